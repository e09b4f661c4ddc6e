//! The WRITE ping-pong, as `ib_write_lat` does it: each side WRITEs into the other's memory and
//! polls its own, because an incoming WRITE causes no completion.

use crate::initiator::{Failure, Progress, latency_histogram};
use crate::oob::MemoryParams;
use hdrhistogram::Histogram;
use spanwire_base::{Time, usize_from};
use spanwire_mem::Region;
use spanwire_transport::{
    App, CqId, Endpoint, MemoryRegion, RemoteAddr, Sge, WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::Qpn;

/// One side of a WRITE ping-pong on one queue pair.
///
/// Round `n` (from 1) is a message whose last byte is the low byte of `n`. An arriving message
/// completes nothing, so the driver must call [`App::poll`] after every step.
pub struct WritePingPong {
    lane: PingPongLane,
    rounds: u64,
    /// True for the side that sends first. Exactly one of the two does.
    begins: bool,
    sent: u64,
    completed: u64,
    received: u64,
    sent_at: Time,
    result: Progress,
    latency: Histogram<u64>,
}

/// Memory of one side of a ping-pong: where it sends from and to, and where it polls.
#[derive(Clone)]
pub struct PingPongLane {
    /// The queue pair.
    pub qpn: Qpn,
    /// Its completion queue.
    pub cq: CqId,
    /// Bytes of a message, 1 or more.
    pub size: u32,
    /// The local memory.
    pub region: Region,
    /// The same as registered. Messages are sent from its start.
    pub source: MemoryRegion,
    /// Offset in `region` at which the peer's messages arrive.
    pub watch_offset: u64,
    /// The destination of our messages.
    pub remote: MemoryParams,
}

impl WritePingPong {
    /// A ping-pong of `rounds`; `begins` is true for the side that sends first. The memory where
    /// messages arrive must be zero.
    #[must_use]
    pub fn new(lane: PingPongLane, rounds: u64, begins: bool) -> Self {
        Self {
            lane,
            rounds,
            begins,
            sent: 0,
            completed: 0,
            received: 0,
            sent_at: Time::ZERO,
            result: Progress::default(),
            latency: latency_histogram(),
        }
    }

    /// Progress: messages that arrived, and their bytes.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.result
    }

    /// Time from posting a message to seeing its answer, in nanoseconds.
    #[must_use]
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// True once the ping-pong has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.result.finished.is_some()
    }

    /// Ends it early, at `now`.
    pub fn interrupt(&mut self, now: Time) {
        self.fail(now, Failure::Interrupted);
    }

    fn fail(&mut self, now: Time, why: Failure) {
        if self.result.finished.is_none() {
            self.result.failure = Some(why);
            self.result.finish(now);
        }
    }

    /// The next step, which depends only on the counts so far.
    fn next(&self) -> Next {
        let behind = u64::from(self.begins);
        if self.completed < self.sent {
            Next::Complete
        } else if self.received < self.rounds && self.received + behind <= self.sent {
            Next::Watch
        } else if self.sent < self.rounds {
            Next::Send
        } else {
            Next::End
        }
    }

    /// The round of the last message in memory, by its low byte.
    fn seen(&self) -> u8 {
        let mut last = [0];
        let at = self.lane.watch_offset + u64::from(self.lane.size) - 1;
        self.lane.region.copy_out(usize_from(at), &mut last).expect("the watched part is inside");
        last[0]
    }

    fn watch(&mut self, now: Time) -> bool {
        if self.seen() != low_byte(self.received + 1) {
            return false;
        }
        self.received += 1;
        self.result.on_completion(now, self.lane.size);
        if self.sent > 0 {
            self.latency.saturating_record(now.since(self.sent_at).as_ns());
        }
        true
    }

    fn send(&mut self, now: Time, ep: &mut Endpoint) {
        let PingPongLane { qpn, size, region, source, remote, .. } = &self.lane;
        let last = usize_from(u64::from(*size) - 1);
        region.copy_in(last, &[low_byte(self.sent + 1)]).expect("the source is inside");
        let remote = RemoteAddr { va: remote.va, rkey: remote.rkey };
        let sge = Sge { addr: source.addr, len: *size, lkey: source.lkey };
        let wr = WorkRequest::new(0, WrOp::Write { remote }, std::slice::from_ref(&sge));
        if ep.post_send(*qpn, &wr).is_err() {
            self.fail(now, Failure::Internal("a send queue took no more requests"));
            return;
        }
        self.sent += 1;
        self.sent_at = now;
    }

    fn poll_completions(&mut self, now: Time, ep: &mut Endpoint) {
        loop {
            match ep.poll_cq(self.lane.cq) {
                Ok(Some(wc)) if wc.status == WcStatus::Success => self.completed += 1,
                Ok(Some(wc)) => self.fail(now, Failure::Completion(wc.status)),
                Ok(None) => return,
                Err(_) => {
                    self.fail(now, Failure::Internal("the completion queue overran"));
                    return;
                }
            }
        }
    }
}

impl App for WritePingPong {
    fn poll(&mut self, now: Time, ep: &mut Endpoint) {
        self.result.started.get_or_insert(now);
        self.poll_completions(now, ep);
        while !self.is_done() {
            match self.next() {
                Next::Complete => return,
                Next::Watch => {
                    if !self.watch(now) {
                        return;
                    }
                }
                Next::Send => self.send(now, ep),
                Next::End => self.result.finish(now),
            }
        }
    }
}

/// The next step of one side of a ping-pong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Waits for the ACK of its own message: only then may its source memory change.
    Complete,
    /// Waits for the peer's message.
    Watch,
    Send,
    End,
}

#[expect(clippy::cast_possible_truncation, reason = "the low byte is what is meant")]
fn low_byte(n: u64) -> u8 {
    n as u8
}
