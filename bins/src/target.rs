//! The application on the passive side: posts receives, and answers a ping with a pong.

use crate::oob::{Job, JobKind, Op};
use spanwire_base::{Time, usize_from};
use spanwire_transport::{
    App, CqId, Endpoint, MemoryRegion, RecvRequest, Sge, Wc, WcOpcode, WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::Qpn;

/// Serves one job.
pub struct Target {
    job: Job,
    cq: CqId,
    qps: Vec<Lane>,
    mr: MemoryRegion,
    messages: u64,
    failure: Option<&'static str>,
}

struct Lane {
    qpn: Qpn,
    /// Receives posted so far: the place of a transfer's next one.
    posted: u64,
}

impl Target {
    /// A target for `job` on its queue pairs and memory. [`Target::post_receives`] before the peer
    /// starts.
    #[must_use]
    pub fn new(job: Job, cq: CqId, qps: &[Qpn], mr: MemoryRegion) -> Self {
        let qps = qps.iter().map(|qpn| Lane { qpn: *qpn, posted: 0 }).collect();
        Self { job, cq, qps, mr, messages: 0, failure: None }
    }

    /// Receives each queue pair keeps posted: twice what the peer has outstanding, so that it does
    /// not run into RNR while completions are being polled.
    #[must_use]
    pub fn receives(job: &Job) -> u32 {
        if job.op == Op::Send { job.depth * 2 } else { 0 }
    }

    /// Posts the first receives.
    pub fn post_receives(&mut self, ep: &mut Endpoint) {
        for slot in 0..Self::receives(&self.job) {
            for lane in 0..self.qps.len() {
                self.post_receive(lane, slot.into(), ep);
            }
        }
    }

    /// Messages received.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// What went wrong here, if anything did.
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        self.failure
    }

    fn post_receive(&mut self, lane: usize, slot: u64, ep: &mut Endpoint) {
        let size = u64::from(self.job.size);
        let (offset, len) = match self.job.kind {
            JobKind::Transfer { bytes, .. } => {
                // The initiator deals its messages over the queue pairs in turn.
                let n = self.qps[lane].posted * self.qps.len() as u64 + lane as u64;
                match n * size {
                    offset if offset >= bytes => return,
                    offset => (offset, size.min(bytes - offset)),
                }
            }
            _ => (slot % (self.mr.len / size).max(1) * size, size),
        };
        let len = spanwire_base::u32_from(usize_from(len));
        let sge = Sge { addr: self.mr.addr + offset, len, lkey: self.mr.lkey };
        let wr_id = (lane as u64) << 32 | slot;
        let wr = RecvRequest { wr_id, sges: std::slice::from_ref(&sge) };
        match ep.post_recv(self.qps[lane].qpn, &wr) {
            Ok(()) => self.qps[lane].posted += 1,
            Err(_) => self.failure = Some("a receive queue took no more requests"),
        }
    }

    fn on_completion(&mut self, wc: &Wc, ep: &mut Endpoint) {
        if wc.status != WcStatus::Success || wc.opcode != WcOpcode::Recv {
            return;
        }
        self.messages += 1;
        let (lane, slot) = (usize_from(wc.wr_id >> 32), wc.wr_id & 0xffff_ffff);
        self.post_receive(lane, slot, ep);
        if matches!(self.job.kind, JobKind::Latency { .. }) {
            let sge = Sge { addr: self.mr.addr, len: wc.byte_len, lkey: self.mr.lkey };
            let wr = WorkRequest::new(0, WrOp::Send, std::slice::from_ref(&sge));
            if ep.post_send(self.qps[lane].qpn, &wr).is_err() {
                self.failure = Some("a send queue took no more requests");
            }
        }
    }
}

impl App for Target {
    fn poll(&mut self, _: Time, ep: &mut Endpoint) {
        loop {
            match ep.poll_cq(self.cq) {
                Ok(Some(wc)) => self.on_completion(&wc, ep),
                Ok(None) => return,
                Err(_) => {
                    self.failure = Some("the completion queue overran");
                    return;
                }
            }
        }
    }
}
