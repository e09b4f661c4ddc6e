//! The application of the active side: posts messages, keeps a number of them outstanding and
//! measures the time to their completion.

mod progress;

pub use progress::{Failure, Progress};

use crate::oob::{Job, JobKind, MemoryParams, Op};
use crate::unsent::Unsent;
use hdrhistogram::Histogram;
use spanwire_base::{Dur, Time, u32_from, usize_from};
use spanwire_transport::{
    App, CqId, Endpoint, MemoryRegion, PostError, RecvRequest, RemoteAddr, Sge, Wc, WcOpcode,
    WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::Qpn;

/// The active side of one job.
pub struct Initiator {
    job: Job,
    cq: CqId,
    qps: Vec<Lane>,
    mr: MemoryRegion,
    /// Number of messages on each queue pair, if the job ends by count instead of time.
    limit: Option<u64>,
    outstanding: u64,
    /// Queue pairs whose next ping waits for a completion.
    waiting: u32,
    /// The last call of [`Initiator::end_overdue`].
    checked_at: Option<Time>,
    /// When this process last continued after a suspension.
    resumed_at: Time,
    result: Progress,
    latency: Histogram<u64>,
}

/// A queue pair, and its slots.
struct Lane {
    qpn: Qpn,
    /// The peer's memory.
    remote: MemoryParams,
    /// Messages posted so far, which give the offset of a transfer's next one.
    posted: u64,
    /// When the message in each slot was posted; `None` if it has completed.
    posted_at: Vec<Option<Time>>,
    /// Bytes of the message in each slot.
    bytes: Vec<u32>,
    /// Pings that have not completed. A pong shows that its ping has arrived, but it may arrive
    /// before the ACK that completes the ping.
    pings: u32,
    /// The send queue is full of such pings; the next one waits for a completion.
    is_waiting: bool,
}

impl Initiator {
    /// An initiator for `job` on connected queue pairs, each with the peer's memory for it, and
    /// its own memory.
    #[must_use]
    pub fn new(job: Job, cq: CqId, qps: &[(Qpn, MemoryParams)], mr: MemoryRegion) -> Self {
        let depth = usize_from(job.depth.into());
        let lane = |(qpn, remote): &(Qpn, MemoryParams)| Lane {
            qpn: *qpn,
            remote: *remote,
            posted: 0,
            posted_at: vec![None; depth],
            bytes: vec![0; depth],
            pings: 0,
            is_waiting: false,
        };
        Self {
            job,
            cq,
            qps: qps.iter().map(lane).collect(),
            mr,
            limit: None,
            outstanding: 0,
            waiting: 0,
            checked_at: None,
            resumed_at: Time::ZERO,
            result: Progress::default(),
            latency: latency_histogram(),
        }
    }

    /// The same initiator, ending after `messages` on each queue pair instead of after the job's
    /// duration.
    #[must_use]
    pub fn limited(mut self, messages: u64) -> Self {
        self.limit = Some(messages);
        self
    }

    /// The progress so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.result
    }

    /// Ends the job early, at `now`. Completed messages count.
    pub fn interrupt(&mut self, now: Time) {
        if self.result.finished.is_none() {
            self.result.failure.get_or_insert(Failure::Interrupted);
            self.result.finish(now);
        }
    }

    /// Ends a timed run at `now` if its last messages are outstanding for longer than one second:
    /// the rate or window may be too small for them. Completed messages count. To be called at
    /// least every 100 ms; if this process was suspended, the second begins when it continues.
    pub fn end_overdue(&mut self, now: Time) {
        if self.checked_at.replace(now).is_some_and(|at| now >= at + DRAIN) {
            self.resumed_at = now;
        }
        let Progress { until, finished, last_completion, .. } = self.result;
        let is_overdue = |until: &Time| now >= (*until).max(self.resumed_at) + DRAIN;
        let Some(until) = until.filter(|until| finished.is_none() && is_overdue(until)) else {
            return;
        };
        self.result.unfinished = self.outstanding;
        // Without them the slowest messages would be missing in the quantiles.
        for posted_at in self.qps.iter().flat_map(|lane| lane.posted_at.iter().flatten()) {
            self.latency.saturating_record(now.since(*posted_at).as_ns());
        }
        // A path may fail long before the end, so the time is never that of completions only.
        self.result.finish(last_completion.map_or(now, |last| last.max(until)));
        if self.result.messages == 0 {
            self.result.failure.get_or_insert(Failure::NoCompletion);
        }
    }

    /// Narrows down a timeout: packets that this host did not send are its cause, or no packet of
    /// the peer was received.
    pub fn explain_timeout(&mut self, unsent: Option<Unsent>, received: bool) {
        let unheard = matches!(
            self.result.failure,
            Some(Failure::Completion(WcStatus::RetryExcErr) | Failure::NoCompletion)
        );
        if unheard {
            let cause = unsent.map(Failure::Unsent);
            let cause = cause.or((!received).then_some(Failure::NoResponse));
            self.result.failure = cause.or(self.result.failure);
        }
    }

    /// True once the job has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.result.finished.is_some()
    }

    /// Time from posting to completion, in nanoseconds; for a SEND ping-pong the round trip. An
    /// unfinished message counts with its time from posting until the run was ended.
    #[must_use]
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    fn is_ping_pong(&self) -> bool {
        self.job.op == Op::Send && matches!(self.job.kind, JobKind::Latency { .. })
    }

    fn start(&mut self, now: Time, ep: &mut Endpoint) {
        self.result.started = Some(now);
        self.result.until = match self.job.kind {
            _ if self.limit.is_some() => None,
            JobKind::Transfer { .. } => None,
            JobKind::Bandwidth { duration_ms } | JobKind::Latency { duration_ms } => {
                Some(now + Dur::from_ms(duration_ms))
            }
        };
        // Slot by slot over all queue pairs, so that a transfer's messages are distributed
        // round-robin.
        for slot in 0..usize_from(self.job.depth.into()) {
            for lane in 0..self.qps.len() {
                if self.is_ping_pong() {
                    self.post_pong_receive(lane, ep);
                }
                self.post(now, lane, slot, ep);
            }
        }
        self.finish_if_drained(now);
    }

    /// Posts the next message, if there is one, on a free slot.
    fn post(&mut self, now: Time, lane: usize, slot: usize, ep: &mut Endpoint) {
        let over = self.result.until.is_some_and(|t| now >= t)
            || self.limit.is_some_and(|n| self.qps[lane].posted >= n);
        if over || self.result.failure.is_some() {
            return;
        }
        let Some((offset, len)) = self.place(lane, slot) else {
            return;
        };
        let MemoryParams { va, rkey, .. } = self.qps[lane].remote;
        // The peer chose the address. The sum may wrap only if that address is invalid.
        let remote = RemoteAddr { va: va.wrapping_add(offset), rkey };
        let op = match self.job.op {
            Op::Send => WrOp::Send,
            Op::Write => WrOp::Write { remote },
            Op::Read => WrOp::Read { remote },
            Op::FetchAdd => WrOp::FetchAdd { remote, add: 1 },
            Op::CmpSwap => WrOp::CmpSwap { remote, compare: 0, swap: 1 },
        };
        let sge = Sge { addr: self.mr.addr + offset, len, lkey: self.mr.lkey };
        let wr_id = wr_id(lane, slot);
        let wr = WorkRequest::new(wr_id, op, std::slice::from_ref(&sge));
        match ep.post_send(self.qps[lane].qpn, &wr) {
            Ok(()) => {}
            Err(PostError::QueueFull) if self.qps[lane].pings > 0 => {
                self.qps[lane].is_waiting = true;
                self.waiting += 1;
                return;
            }
            Err(_) => {
                self.result.failure = Some(Failure::Internal("a send queue took no more requests"));
                return;
            }
        }
        let is_ping = self.is_ping_pong();
        let lane = &mut self.qps[lane];
        lane.posted_at[slot] = Some(now);
        lane.bytes[slot] = len;
        lane.posted += 1;
        lane.pings += u32::from(is_ping);
        self.outstanding += 1;
    }

    /// Offset of a queue pair's next message in both regions, and its length. `None` if no part of
    /// a transfer is left for it.
    fn place(&self, lane: usize, slot: usize) -> Option<(u64, u32)> {
        let size = u64::from(self.job.size);
        match self.job.kind {
            JobKind::Transfer { bytes, .. } => {
                // Messages are distributed round-robin, so that the peer derives the offset of each
                // from its count on its queue pair, independent of the order between queue pairs.
                let n = self.qps[lane].posted * self.qps.len() as u64 + lane as u64;
                let offset = n * size;
                let len = size.min(bytes.checked_sub(offset)?);
                (len > 0).then(|| (offset, u32_from(usize_from(len))))
            }
            JobKind::Bandwidth { .. } | JobKind::Latency { .. } => {
                let places = (self.mr.len.min(self.qps[lane].remote.len) / size).max(1);
                let n = lane as u64 * u64::from(self.job.depth) + slot as u64;
                Some((n % places * size, self.job.size))
            }
        }
    }

    fn post_pong_receive(&mut self, lane: usize, ep: &mut Endpoint) {
        let sge = Sge { addr: self.mr.addr, len: self.job.size, lkey: self.mr.lkey };
        let wr = RecvRequest { wr_id: wr_id(lane, 0), sges: std::slice::from_ref(&sge) };
        if ep.post_recv(self.qps[lane].qpn, &wr).is_err() {
            self.result.failure = Some(Failure::Internal("a receive queue took no more requests"));
        }
    }

    fn on_completion(&mut self, now: Time, wc: &Wc, ep: &mut Endpoint) {
        if wc.status != WcStatus::Success {
            // Only the first error is the cause; flushed completions follow it.
            self.result.failure.get_or_insert(Failure::Completion(wc.status));
            return;
        }
        let (lane, slot) = (usize_from(wc.wr_id >> 32), usize_from(wc.wr_id & 0xffff_ffff));
        let pong = wc.opcode == WcOpcode::Recv;
        if self.is_ping_pong() && !pong {
            // The completion of the ping itself. The round ends with the pong.
            self.qps[lane].pings -= 1;
            if std::mem::take(&mut self.qps[lane].is_waiting) {
                self.waiting -= 1;
                self.post(now, lane, slot, ep);
            }
            return;
        }
        let Some(posted_at) = self.qps[lane].posted_at[slot].take() else {
            self.result.failure = Some(Failure::Protocol("a ping was answered twice"));
            return;
        };
        self.latency.saturating_record(now.since(posted_at).as_ns());
        self.result.on_completion(now, self.qps[lane].bytes[slot]);
        self.outstanding -= 1;
        if pong {
            self.post_pong_receive(lane, ep);
        }
        self.post(now, lane, slot, ep);
    }

    fn finish_if_drained(&mut self, now: Time) {
        if self.outstanding + u64::from(self.waiting) == 0 || self.result.failure.is_some() {
            self.result.finish(now);
        }
    }
}

impl App for Initiator {
    fn poll(&mut self, now: Time, ep: &mut Endpoint) {
        if self.is_done() {
            // What completes after the end does not count.
            return;
        }
        if self.result.started.is_none() {
            self.start(now, ep);
        }
        loop {
            match ep.poll_cq(self.cq) {
                Ok(Some(wc)) => self.on_completion(now, &wc, ep),
                Ok(None) => break,
                Err(_) => {
                    let overrun = Failure::Internal("the completion queue overran");
                    self.result.failure.get_or_insert(overrun);
                    break;
                }
            }
        }
        self.finish_if_drained(now);
    }
}

/// An empty histogram of latencies in nanoseconds.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .expect("bounds and digits are within the histogram's range")
}

/// How long a timed run waits for outstanding messages after its end.
pub(crate) const DRAIN: Dur = Dur::from_secs(1);

/// Send requests without a completion on each side of a SEND ping-pong. An answer may arrive before
/// the ACK that completes the answered message, or that ACK may be lost.
pub(crate) const PING_PONG_SENDS: u32 = 16;

/// One minute; slower completions are recorded as one.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

fn wr_id(lane: usize, slot: usize) -> u64 {
    (lane as u64) << 32 | slot as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_mem::Region;
    use spanwire_transport::{Access, AddressVector, Config, Mtu, QpAttr, QpCaps, QpInit, QpState};
    use spanwire_wire::{MacAddr, Psn};

    /// An endpoint whose queue pair has no peer: posted requests stay outstanding.
    fn unanswered(kind: JobKind, depth: u32) -> (Initiator, Endpoint) {
        let mut ep = Endpoint::new(Config::default().validate().unwrap(), [7; 32]);
        let pd = ep.alloc_pd().unwrap();
        let mr = ep.reg_mr(pd, Region::zeroed(4096), Access::LOCAL_WRITE, None).unwrap();
        let cq = ep.create_cq(64).unwrap();
        let caps = QpCaps { max_send_wr: depth * 2, max_recv_wr: 1, ..QpCaps::default() };
        let qpn = ep.create_qp(&QpInit::new(pd, cq, cq, caps)).unwrap();
        let mac = MacAddr::new([2, 0, 0, 0, 0, 1]);
        let av = AddressVector::new(mac, mac, [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        ep.modify_qp(qpn, &QpAttr::init(Access::LOCAL_WRITE)).unwrap();
        ep.modify_qp(qpn, &QpAttr::rtr(Qpn::new(9), Psn::new(1), Mtu::B1024, av)).unwrap();
        ep.modify_qp(qpn, &QpAttr::rts(Psn::new(1))).unwrap();
        let (size, qps, path_mtu) = (64, 1, 1024);
        let (timeout, retry_cnt, op) = (14, 7, Op::Write);
        let job = Job { kind, op, size, qps, depth, path_mtu, timeout, retry_cnt };
        let remote = MemoryParams { va: 0, rkey: 1, len: 4096 };
        (Initiator::new(job, cq, &[(qpn, remote)], mr), ep)
    }

    /// The end of a run does not depend on congestion control: in this test no packet is sent.
    #[test]
    fn end_overdue__a_run_ends_a_second_after_its_time() {
        let start = Time::ZERO + Dur::from_ms(5);
        let (mut app, mut ep) = unanswered(JobKind::Bandwidth { duration_ms: 500 }, 16);
        app.poll(start, &mut ep);
        for ms in [0, 500, 1499] {
            let now = start + Dur::from_ms(ms);
            app.poll(now, &mut ep);
            app.end_overdue(now);
            assert!(!app.is_done(), "{ms} ms: what is outstanding may still complete");
        }
        app.end_overdue(start + Dur::from_ms(1500));
        let progress = app.progress();
        assert_eq!(progress.finished, Some(start + Dur::from_ms(1500)));
        assert_eq!((progress.unfinished, progress.failure), (16, Some(Failure::NoCompletion)));
    }

    /// The completion of the message in `slot` of the first queue pair.
    fn completed(app: &Initiator, slot: usize) -> Wc {
        Wc {
            wr_id: wr_id(0, slot),
            status: WcStatus::Success,
            opcode: WcOpcode::RdmaWrite,
            qpn: app.qps[0].qpn,
            byte_len: 64,
            imm: None,
            invalidated_rkey: None,
            solicited: false,
        }
    }

    #[test]
    fn end_overdue__the_time_is_that_of_the_run_though_the_path_fails_early() {
        for kind in
            [JobKind::Bandwidth { duration_ms: 4000 }, JobKind::Latency { duration_ms: 4000 }]
        {
            let (start, (mut app, mut ep)) = (at(5), unanswered(kind, 16));
            app.poll(start, &mut ep);
            for (slot, ms) in [(0, 100), (1, 400), (0, 410)] {
                let wc = completed(&app, slot);
                app.on_completion(at(5 + ms), &wc, &mut ep);
            }
            app.end_overdue(at(5 + 5000));
            let progress = app.progress();
            assert_eq!(progress.finished, Some(at(5 + 4000)), "{kind:?}");
            assert_eq!((progress.messages, progress.unfinished), (3, 16));
            assert_eq!((progress.longest_gap, progress.failure), (Dur::from_ms(3590), None));
            // The median message is one that was posted at the start and did not complete.
            let median = app.latency().value_at_quantile(0.5);
            assert!(median >= 4_990_000_000, "{median}");
        }
    }

    #[test]
    fn end_overdue__a_suspended_process_drains_once_it_continues() {
        let (mut app, mut ep) = unanswered(JobKind::Bandwidth { duration_ms: 500 }, 2);
        app.poll(at(0), &mut ep);
        for ms in [0, 100, 6000, 6100, 6900] {
            app.end_overdue(at(ms));
            assert!(!app.is_done(), "{ms} ms");
        }
        let wc = completed(&app, 0);
        app.on_completion(at(6950), &wc, &mut ep);
        app.end_overdue(at(7000));
        assert_eq!((app.progress().finished, app.progress().unfinished), (Some(at(6950)), 1));
    }

    #[test]
    fn end_overdue__a_late_completion_is_the_end() {
        let (mut app, mut ep) = unanswered(JobKind::Bandwidth { duration_ms: 500 }, 16);
        app.poll(at(0), &mut ep);
        let wc = completed(&app, 3);
        app.on_completion(at(1400), &wc, &mut ep);
        app.end_overdue(at(1500));
        // What completes later does not count: here the others fail.
        let failed = QpAttr { state: Some(QpState::Err), ..QpAttr::default() };
        ep.modify_qp(app.qps[0].qpn, &failed).unwrap();
        app.poll(at(1600), &mut ep);
        let Progress { finished, messages, unfinished, longest_gap, failure, .. } = app.progress();
        assert_eq!((finished, messages, unfinished), (Some(at(1400)), 1, 15));
        assert_eq!(failure, None);
        assert!(ep.poll_cq(app.cq).unwrap().is_some(), "there were completions");
        assert_eq!(longest_gap, Dur::from_ms(1400));
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Dur::from_ms(ms)
    }

    #[test]
    fn end_overdue__does_not_end_a_transfer() {
        let (mut app, mut ep) = unanswered(JobKind::Transfer { bytes: 4096, seed: 1 }, 16);
        app.poll(Time::ZERO, &mut ep);
        app.end_overdue(Time::ZERO + Dur::from_secs(1_000_000));
        assert!(!app.is_done());
    }
}
