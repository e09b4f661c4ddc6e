//! The application of simulated hosts. It generates the traffic and verifies every result.
//!
//! Every work request must complete exactly once and in order. Every message must arrive once, in
//! order, with its length, immediate data and bytes. The values that atomics return must be
//! consecutive. Any deviation becomes a violation ([`Traffic::violations`]).

mod drains;
mod incoming;
mod memory;
mod message;
mod outgoing;

pub(crate) use drains::Draining;
pub(crate) use incoming::{Incoming, Queue, Recvs};
pub(crate) use memory::{Allocator, Memory, Slots};
pub(crate) use message::Plan;
pub(crate) use outgoing::{Outgoing, Peer, Progress};

use spanwire_base::{Dur, Time, usize_from};
use spanwire_transport::{App, AsyncEvent, CqId, Endpoint, Wc, WcStatus, WireMode};
use spanwire_wire::Qpn;
use std::collections::{BTreeMap, VecDeque};

/// The application of one host.
#[derive(Debug)]
pub struct Traffic {
    memory: Memory,
    cq: CqId,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    /// One for each of `incoming`, or a single one for a shared receive queue.
    recvs: Vec<Recvs>,
    /// The place in `incoming` of each responder's queue pair.
    by_qpn: BTreeMap<u32, usize>,
    /// (start time, place in `outgoing`), the next to start last.
    starts: Vec<(Time, usize)>,
    /// Delay between the completion of a receive and its reposting.
    recv_delay: Dur,
    /// (time, place in `recvs`, slot) of receives to repost, oldest first.
    reposts: VecDeque<(Time, usize, u64)>,
    pub(crate) draining: Option<Draining>,
    has_begun: bool,
    violations: Vec<String>,
}

/// Progress of a flow at one of its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowState {
    /// The flow's place in the list of all.
    pub flow: u32,
    /// The queue pair at this end.
    pub qpn: Qpn,
    /// When it began; known only at the requester.
    pub started: Option<Time>,
    /// At the requester: when its last message completed. At the responder: when its last message
    /// arrived.
    pub finished: Option<Time>,
    /// The error that ended it; at the responder, `RetryExcErr` if its queue pair failed.
    pub failed: Option<WcStatus>,
    /// When it failed.
    pub failed_at: Option<Time>,
    /// Bytes of completed messages, as counted at this end.
    pub done_bytes: u64,
}

impl Traffic {
    pub(crate) fn new(memory: Memory, cq: CqId, recv_delay: Dur) -> Self {
        Self {
            memory,
            cq,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            recvs: Vec::new(),
            by_qpn: BTreeMap::new(),
            starts: Vec::new(),
            recv_delay,
            reposts: VecDeque::new(),
            draining: None,
            has_begun: false,
            violations: Vec::new(),
        }
    }

    /// Adds the requester's end of a flow, which begins at `start`, or once another flow has
    /// arrived. Returns its place.
    pub(crate) fn add_outgoing(&mut self, outgoing: Outgoing, start: Option<Time>) -> usize {
        let index = self.outgoing.len();
        self.memory.guard(&outgoing.local);
        self.outgoing.push(outgoing);
        if let Some(at) = start {
            // The earliest start is popped from the end; equal starts pop in the order of addition.
            let later = self.starts.partition_point(|(t, _)| *t > at);
            self.starts.insert(later, (at, index));
        }
        index
    }

    /// Adds the responder's end of a flow.
    pub(crate) fn add_incoming(&mut self, incoming: Incoming) {
        for area in &incoming.areas {
            self.memory.guard(area);
        }
        self.by_qpn.insert(incoming.qpn.get(), self.incoming.len());
        self.incoming.push(incoming);
    }

    /// Adds receive requests: of the flow added last, or for all flows.
    pub(crate) fn add_recvs(&mut self, recvs: Recvs) {
        self.memory.guard(&recvs.slots);
        self.recvs.push(recvs);
    }

    /// Starts the outgoing flow once the incoming one has arrived.
    pub(crate) fn add_trigger(&mut self, incoming_flow: u32, outgoing: usize) {
        let of_flow = self.incoming.iter_mut().find(|i| i.flow == incoming_flow);
        of_flow.expect("validated: the awaited flow arrives at this host").triggers.push(outgoing);
    }

    /// Flows of which this host is the requester.
    pub fn requesting(&self) -> impl Iterator<Item = FlowState> {
        self.outgoing.iter().map(|o| FlowState {
            flow: o.flow,
            qpn: o.qpn,
            started: o.progress.started,
            finished: o.progress.finished,
            failed: o.progress.failed,
            failed_at: o.progress.failed_at,
            done_bytes: o.progress.done_bytes,
        })
    }

    /// Flows of which this host is the responder.
    pub fn responding(&self) -> impl Iterator<Item = FlowState> {
        self.incoming.iter().map(|i| FlowState {
            flow: i.flow,
            qpn: i.qpn,
            started: None,
            finished: i.finished,
            failed: i.failed_at.map(|_| WcStatus::RetryExcErr),
            failed_at: i.failed_at,
            done_bytes: i.received_bytes,
        })
    }

    /// Latencies of each outgoing flow's messages, from post to completion, in completion order.
    /// Only successful signaled requests are included.
    pub fn message_times(&self) -> impl Iterator<Item = (u32, &[Dur])> {
        self.outgoing.iter().map(|o| (o.flow, &o.progress.times[..]))
    }

    /// Delivery times of each incoming flow's messages that consume a receive.
    pub fn deliveries(&self) -> impl Iterator<Item = (u32, &[Time])> {
        self.incoming.iter().map(|i| (i.flow, &i.delivered[..]))
    }

    /// Violations so far, one sentence each.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Violations at the end: requests without a completion, messages that did not arrive, bytes
    /// written outside their targets. `is_failed` reports whether a queue pair error ended a flow.
    pub fn check_end(&self, is_failed: impl Fn(u32) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for o in &self.outgoing {
            let guarded = self.memory.check_guards(&o.local).then_some(());
            let ok = guarded.ok_or_else(|| "bytes beside its memory changed".to_owned());
            found.extend(o.check_end().and(ok).err().map(|e| format!("flow {}: {e}", o.flow)));
        }
        for i in self.incoming.iter().filter(|i| !is_failed(i.flow)) {
            let guarded = i.areas.iter().all(|area| self.memory.check_guards(area)).then_some(());
            let ok = guarded.ok_or_else(|| "bytes beside its targets changed".to_owned());
            found.extend(i.check_end().and(ok).err().map(|e| format!("flow {}: {e}", i.flow)));
        }
        for recvs in self.recvs.iter().filter(|r| !self.memory.check_guards(&r.slots)) {
            found.push(format!("bytes beside the receives of {:?} changed", recvs.queue));
        }
        found
    }

    /// Corrupts bytes of messages or their guards, to test the checker.
    #[cfg(test)]
    pub(crate) fn corrupt(&self, guard: bool) {
        let places = self.outgoing.iter().map(|o| o.local);
        let places = places.chain(self.incoming.iter().flat_map(|i| i.areas));
        for slots in places.chain(self.recvs.iter().map(|r| r.slots)) {
            self.memory.corrupt(&slots, guard);
        }
    }

    /// Posts the initial receives, one for each slot.
    fn begin(&mut self, endpoint: &mut Endpoint) {
        for index in 0..self.recvs.len() {
            for slot in 0..self.recvs[index].slots.count() {
                self.post_recv(index, slot.into(), endpoint);
            }
        }
    }

    fn post_recv(&mut self, index: usize, slot: u64, endpoint: &mut Endpoint) {
        if let Err(e) = self.recvs[index].post(index, slot, &self.memory, endpoint) {
            self.violations.push(format!("post_recv failed: {e}"));
        }
    }

    /// True if a flow of this host has not finished.
    fn is_busy(&self) -> bool {
        let is_over = |p: &Progress| p.finished.is_some() || p.failed.is_some();
        self.outgoing.iter().any(|o| !is_over(&o.progress))
    }

    fn start(&mut self, now: Time, index: usize, endpoint: &mut Endpoint) {
        self.outgoing[index].start(now);
        self.post(now, index, endpoint);
    }

    fn post(&mut self, now: Time, index: usize, endpoint: &mut Endpoint) {
        let outgoing = &mut self.outgoing[index];
        if let Err(e) = outgoing.post(now, index, &self.memory, endpoint) {
            self.violations.push(format!("flow {}: {e}", outgoing.flow));
        }
    }

    fn complete(&mut self, now: Time, wc: &Wc, endpoint: &mut Endpoint) {
        let index = usize_from((wc.wr_id & !RECV_BIT) >> WR_ID_SHIFT);
        if wc.wr_id & RECV_BIT == 0 {
            let outgoing = &mut self.outgoing[index];
            if let Err(e) = outgoing.complete(now, wc, &self.memory) {
                self.violations.push(format!("flow {}: {e}", outgoing.flow));
            }
            self.post(now, index, endpoint);
            return;
        }
        let slot = wc.wr_id & ((1 << WR_ID_SHIFT) - 1);
        let Some(at) = self.by_qpn.get(&wc.qpn.get()) else {
            self.violations.push(format!("a completion of an unknown queue pair: {wc:?}"));
            return;
        };
        let incoming = &mut self.incoming[*at];
        if incoming.failed_at.is_some() && wc.status == WcStatus::WrFlushErr {
            return;
        }
        let bytes_at = self.recvs[index].slots.of(slot);
        if let Err(e) = incoming.receive(now, wc, bytes_at, &self.memory) {
            self.violations.push(format!("flow {}: {e}", incoming.flow));
        }
        if incoming.finished == Some(now) {
            for next in std::mem::take(&mut incoming.triggers) {
                self.start(now, next, endpoint);
            }
        }
        match self.recv_delay {
            Dur::ZERO => self.post_recv(index, slot, endpoint),
            delay => self.reposts.push_back((now + delay, index, slot)),
        }
    }

    /// Begins the next drain, if one is due.
    fn drain(&mut self, now: Time, endpoint: &mut Endpoint) {
        let Some(draining) = self.draining.as_mut().filter(|d| d.is_due(now)) else { return };
        let may_drain =
            |o: &&Outgoing| o.progress.started.is_some() && o.progress.finished.is_none();
        let qpns: Vec<Qpn> = self.outgoing.iter().filter(may_drain).map(|o| o.qpn).collect();
        if let Err(e) = draining.handle_timeout(now, &qpns, endpoint) {
            self.violations.push(e);
        }
    }

    fn handle_async_event(&mut self, now: Time, event: AsyncEvent, endpoint: &mut Endpoint) {
        match event {
            AsyncEvent::CommEst(_) | AsyncEvent::LastWqeReached(_) => {}
            AsyncEvent::SqDrained(qpn) => {
                let draining = self.draining.as_mut();
                let why = match draining.map(|draining| draining.resume(qpn, endpoint)) {
                    Some(resumed) => resumed.err(),
                    None => Some(format!("{event:?} without a drain")),
                };
                self.violations.extend(why);
            }
            // `check_end` decides whether the failure was allowed.
            AsyncEvent::QpFatal(qpn) if is_sr(qpn, endpoint) => {
                match self.by_qpn.get(&qpn.get()).map(|at| &mut self.incoming[*at]) {
                    Some(incoming) if incoming.failed_at.is_none() => {
                        incoming.failed_at = Some(now);
                    }
                    _ => self.violations.push(format!("{event:?}")),
                }
            }
            other => self.violations.push(format!("{other:?}")),
        }
    }
}

impl App for Traffic {
    fn poll(&mut self, now: Time, endpoint: &mut Endpoint) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begin(endpoint);
        }
        while let Some((_, index)) = self.starts.pop_if(|(at, _)| *at <= now) {
            self.start(now, index, endpoint);
        }
        while let Some((_, index, slot)) = self.reposts.front().copied().filter(|r| r.0 <= now) {
            self.reposts.pop_front();
            self.post_recv(index, slot, endpoint);
        }
        // Events come before completions, because they explain flushed requests.
        while let Some(event) = endpoint.poll_async_event() {
            self.handle_async_event(now, event, endpoint);
        }
        self.drain(now, endpoint);
        loop {
            match endpoint.poll_cq(self.cq) {
                Ok(Some(wc)) => self.complete(now, &wc, endpoint),
                Ok(None) => break,
                Err(e) => {
                    self.violations.push(e.to_string());
                    break;
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let start = self.starts.last().map(|(at, _)| *at);
        let repost = self.reposts.front().map(|(at, ..)| *at);
        let drain = self.draining.as_ref().and_then(|d| d.poll_timeout(self.is_busy()));
        [start, repost, drain].into_iter().flatten().min()
    }
}

fn is_sr(qpn: Qpn, endpoint: &Endpoint) -> bool {
    endpoint.query_qp(qpn).is_some_and(|info| info.attr.mode() == WireMode::Sr)
}

/// Layout of `wr_id`: the side, the flow's place at the host, and the message's low bits or the
/// slot.
pub(crate) const RECV_BIT: u64 = 1 << 63;
pub(crate) const WR_ID_SHIFT: u32 = 32;
