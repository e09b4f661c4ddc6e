//! The application of the passive side: posts receives, and answers a ping with a pong.

use crate::oob::{Job, JobKind, Op};
use spanwire_base::{Time, usize_from};
use spanwire_transport::{
    App, CqId, Endpoint, MemoryRegion, PostError, RecvRequest, Sge, Wc, WcOpcode, WcStatus,
    WorkRequest, WrOp,
};
use spanwire_wire::Qpn;
use std::collections::VecDeque;

/// The passive side of one job.
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
    /// Receives posted so far, which give the offset of a transfer's next one.
    posted: u64,
    /// Pongs that have not completed.
    pongs: u32,
    /// Pings to be answered once the send queue has room. Their receives are reposted only then, so
    /// there are at most [`Target::receives`] of them.
    owed: VecDeque<Ping>,
}

/// A received ping.
#[derive(Clone, Copy, Debug)]
struct Ping {
    /// The slot of its receive.
    slot: u64,
    bytes: u32,
}

impl Target {
    /// A target for `job` on its queue pairs and memory. Call [`Target::post_receives`] before the
    /// peer starts.
    #[must_use]
    pub fn new(job: Job, cq: CqId, qps: &[Qpn], mr: MemoryRegion) -> Self {
        let lane = |qpn: &Qpn| Lane { qpn: *qpn, posted: 0, pongs: 0, owed: VecDeque::new() };
        let qps = qps.iter().map(lane).collect();
        Self { job, cq, qps, mr, messages: 0, failure: None }
    }

    /// Receives that each queue pair keeps posted: twice the peer's depth, so that no RNR NAK is
    /// sent while completions are being polled.
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

    /// A failure of this side, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        self.failure
    }

    fn post_receive(&mut self, lane: usize, slot: u64, ep: &mut Endpoint) {
        let size = u64::from(self.job.size);
        let (offset, len) = match self.job.kind {
            JobKind::Transfer { bytes, .. } => {
                // The initiator distributes its messages over the queue pairs in round-robin order.
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
        if wc.status != WcStatus::Success {
            return;
        }
        let (lane, slot) = (usize_from(wc.wr_id >> 32), wc.wr_id & 0xffff_ffff);
        if wc.opcode != WcOpcode::Recv {
            self.qps[lane].pongs -= 1;
            self.answer(lane, ep);
            return;
        }
        self.messages += 1;
        if matches!(self.job.kind, JobKind::Latency { .. }) {
            self.qps[lane].owed.push_back(Ping { slot, bytes: wc.byte_len });
            self.answer(lane, ep);
        } else {
            self.post_receive(lane, slot, ep);
        }
    }

    /// Answers the pings of a queue pair as far as its send queue has room. Each answered ping's
    /// receive is reposted.
    fn answer(&mut self, lane: usize, ep: &mut Endpoint) {
        while let Some(Ping { slot, bytes }) = self.qps[lane].owed.front().copied() {
            let sge = Sge { addr: self.mr.addr, len: bytes, lkey: self.mr.lkey };
            let wr_id = (lane as u64) << 32;
            let wr = WorkRequest::new(wr_id, WrOp::Send, std::slice::from_ref(&sge));
            match ep.post_send(self.qps[lane].qpn, &wr) {
                Ok(()) => {}
                Err(PostError::QueueFull) if self.qps[lane].pongs > 0 => return,
                Err(_) => {
                    self.failure = Some("a send queue took no more requests");
                    return;
                }
            }
            self.qps[lane].owed.pop_front();
            self.qps[lane].pongs += 1;
            self.post_receive(lane, slot, ep);
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
