//! The ping-pong that has no completions to go by: each side WRITEs into the other's memory and
//! watches its own, as `ib_write_lat` does.

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
/// Round `n` (from 1) is a message whose last byte is the low byte of `n`. Nothing completes when
/// one arrives, so whoever drives it calls [`App::poll`] after every step.
pub struct WritePingPong {
    lane: PingPongLane,
    rounds: u64,
    /// It sends before anything came. Exactly one of the two sides does.
    begins: bool,
    sent: u64,
    completed: u64,
    received: u64,
    sent_at: Time,
    result: Progress,
    latency: Histogram<u64>,
}

/// Where one side of a ping-pong sends from, to, and watches.
#[derive(Clone)]
pub struct PingPongLane {
    /// The queue pair.
    pub qpn: Qpn,
    /// Its completion queue.
    pub cq: CqId,
    /// Bytes of a message, 1 or more.
    pub size: u32,
    /// All our memory.
    pub region: Region,
    /// It as registered. Messages are sent from its beginning.
    pub source: MemoryRegion,
    /// Offset in `region` of where the peer's messages arrive.
    pub watch_offset: u64,
    /// Where our messages go.
    pub remote: MemoryParams,
}

impl WritePingPong {
    /// A ping-pong of so many `rounds`; `begins` is true for the side that sends first. Where
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

    /// How far it is: messages that arrived, and their bytes.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.result
    }

    /// Times from posting a message to seeing the one that answers it, in nanoseconds.
    #[must_use]
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Nothing more will happen.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.result.finished.is_some()
    }

    /// Ends it at `now`, before its time.
    pub fn interrupt(&mut self, now: Time) {
        self.fail(now, Failure::Interrupted);
    }

    fn fail(&mut self, now: Time, why: Failure) {
        if self.result.finished.is_none() {
            self.result.failure = Some(why);
            self.result.finished = Some(now);
        }
    }

    /// What the next thing to do is; the same whatever happened in between.
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

    /// The round that the memory shows, by its low byte.
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
        self.result.messages += 1;
        self.result.bytes += u64::from(self.lane.size);
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
                Next::End => self.result.finished = Some(now),
            }
        }
    }
}

/// What a side of a ping-pong waits for or does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Waits until its own message is acknowledged: only then may its memory change.
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
