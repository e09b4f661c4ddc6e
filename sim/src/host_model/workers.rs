//! Several engines of one host behind one port, as the workers of a process on an adapter with RSS.
//!
//! The adapter selects the queue of an arriving frame by a hash of its flow. Each worker polls its
//! own queue, and hands over a frame whose QPN names another worker, as `io`'s `SteeredPort` does.

use super::{Lateness, PolledHost};
use spanwire_base::{Dur, Node, PortId, PortMask, Rng, RxMeta, Time, TxMeta, u64_from, usize_from};
use spanwire_transport::QpnWorkers;
use spanwire_wire::peek_dest_qp;
use std::collections::VecDeque;

/// Frames that wait for one worker at most, as in `io`.
pub const HANDOVER_FRAMES: usize = 256;

/// The engines of one host behind its port.
#[derive(Debug)]
pub enum Engines<N> {
    /// One, which has the port to itself, and no indirection.
    One(PolledHost<N>),
    /// Several workers that share it.
    Several(Box<Workers<N>>),
}

/// Workers that share a port and hand frames over to each other.
///
/// A frame of another worker waits until the worker at whose queue it arrived has handed it over.
/// That takes a drawn time, and a worker hands over frames in the order of their arrival. So the
/// frames that reach an engine directly, and those from each of the other queues, come in any
/// order.
#[derive(Debug)]
pub struct Workers<N> {
    pub(super) workers: Vec<PolledHost<N>>,
    qpns: QpnWorkers,
    /// Differs from host to host, as the key of RSS does.
    rss_key: u64,
    rng: Rng,
    lateness: Lateness,
    /// By the queue at which they arrived, oldest first.
    handed: Vec<VecDeque<HandedFrame>>,
    /// Frames that wait for each worker, at most [`HANDOVER_FRAMES`].
    waiting: Vec<usize>,
    /// Buffers of frames that are gone.
    spare: Vec<Vec<u8>>,
    /// The worker that may transmit next.
    turn: usize,
    pub(super) counters: HandoverCounters,
}

/// Counters of hand-over between the workers of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandoverCounters {
    /// Frames that arrived at the queue of another worker and were handed over.
    pub handed: u64,
    /// Handed frames that their worker has received.
    pub received: u64,
    /// Frames that were dropped because [`HANDOVER_FRAMES`] waited for their worker.
    pub dropped: u64,
}

#[derive(Debug)]
struct HandedFrame {
    to: usize,
    /// When its worker receives it.
    at: Time,
    bytes: Vec<u8>,
    meta: RxMeta,
}

impl<N: Node> Engines<N> {
    /// The engines of all workers of a host, whose QPNs name their places by `qpns`. `seed` is that
    /// of the times that hand-over takes.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(mut workers: Vec<PolledHost<N>>, qpns: QpnWorkers, seed: u64) -> Self {
        if workers.len() > 1 {
            return Self::Several(Box::new(Workers::new(workers, qpns, seed)));
        }
        Self::One(workers.pop().expect("a host has a worker"))
    }

    /// The engine of each worker behind its driver.
    pub fn all(&self) -> &[PolledHost<N>] {
        match self {
            Self::One(engine) => std::slice::from_ref(engine),
            Self::Several(workers) => &workers.workers,
        }
    }

    /// The same, mutable.
    pub fn all_mut(&mut self) -> &mut [PolledHost<N>] {
        match self {
            Self::One(engine) => std::slice::from_mut(engine),
            Self::Several(workers) => &mut workers.workers,
        }
    }

    /// The counters of hand-over; zero with one worker.
    pub fn handover(&self) -> HandoverCounters {
        match self {
            Self::One(_) => HandoverCounters::default(),
            Self::Several(workers) => workers.counters,
        }
    }

    /// Frames that wait for their worker.
    pub fn waiting(&self) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Several(workers) => u64_from(workers.waiting.iter().sum()),
        }
    }
}

impl<N: Node> Workers<N> {
    fn new(workers: Vec<PolledHost<N>>, qpns: QpnWorkers, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            qpns,
            rss_key: rng.next_u64(),
            rng,
            lateness: handover_lateness(),
            handed: workers.iter().map(|_| VecDeque::new()).collect(),
            waiting: vec![0; workers.len()],
            spare: Vec::new(),
            turn: 0,
            counters: HandoverCounters::default(),
            workers,
        }
    }

    /// The worker of a frame; the first one if its QPN names none.
    fn owner_of(&self, frame: &[u8]) -> usize {
        let named = peek_dest_qp(frame).map(|qpn| usize_from(self.qpns.worker_of(qpn).into()));
        named.filter(|worker| *worker < self.workers.len()).unwrap_or(0)
    }

    /// The queue of a frame, by its addresses and UDP source port.
    pub(super) fn queue_of(&self, frame: &[u8]) -> usize {
        let fields = match frame.get(ETHERTYPE..ETHERTYPE + 2) {
            Some([0x08, 0x00]) => frame.get(26..36),
            Some([0x86, 0xdd]) => frame.get(22..56),
            _ => None,
        };
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FACTOR);
        let hash = fields.unwrap_or_default().iter().fold(self.rss_key, mix);
        usize_from((hash >> 32) % u64_from(self.workers.len()))
    }

    /// Worker `via` hands a frame over to worker `to`.
    fn hand_over(&mut self, now: Time, [via, to]: [usize; 2], frame: &[u8], meta: &RxMeta) {
        if self.waiting[to] == HANDOVER_FRAMES {
            self.counters.dropped += 1;
            return;
        }
        self.counters.handed += 1;
        self.waiting[to] += 1;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        let before = self.handed[via].back().map_or(now, |frame| frame.at);
        let at = before.max(now + self.lateness.draw(&mut self.rng));
        self.handed[via].push_back(HandedFrame { to, at, bytes, meta: *meta });
    }

    /// When the next handed frame reaches its worker, and the queue at which it arrived.
    fn next_handed(&self) -> Option<(Time, usize)> {
        let next = |(via, queue): (usize, &VecDeque<HandedFrame>)| Some((queue.front()?.at, via));
        self.handed.iter().enumerate().filter_map(next).min()
    }
}

impl<N: Node> Node for Workers<N> {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        let [via, to] = [self.queue_of(frame), self.owner_of(frame)];
        match via == to {
            true => self.workers[to].handle_packet(now, port, frame, meta),
            false => self.hand_over(now, [via, to], frame, meta),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((_, via)) = self.next_handed().filter(|(at, _)| *at <= now)
            && let Some(HandedFrame { to, bytes, meta, .. }) = self.handed[via].pop_front()
        {
            self.waiting[to] -= 1;
            self.counters.received += 1;
            self.workers[to].handle_packet(now, PortId::HOST, &bytes, &meta);
            self.spare.push(bytes);
        }
        for worker in &mut self.workers {
            if worker.poll_timeout().is_some_and(|at| at <= now) {
                worker.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        let count = self.workers.len();
        let (place, meta) = (0..count).find_map(|n| {
            let place = (self.turn + n) % count;
            Some((place, self.workers[place].poll_transmit(now, port, frame)?))
        })?;
        self.turn = (place + 1) % count;
        Some(meta)
    }

    fn may_have_frame(&self, port: PortId) -> bool {
        self.workers.iter().any(|worker| worker.may_have_frame(port))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let timeouts = self.workers.iter().filter_map(Node::poll_timeout);
        timeouts.chain(self.next_handed().map(|(at, _)| at)).min()
    }

    fn take_ready(&mut self) -> PortMask {
        let mut ready = PortMask::EMPTY;
        self.workers.iter_mut().for_each(|worker| ready.merge(worker.take_ready()));
        ready
    }
}

impl<N: Node> Node for Engines<N> {
    #[inline]
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        match self {
            Self::One(engine) => engine.handle_packet(now, port, frame, meta),
            Self::Several(workers) => workers.handle_packet(now, port, frame, meta),
        }
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::One(engine) => engine.handle_timeout(now),
            Self::Several(workers) => workers.handle_timeout(now),
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        match self {
            Self::One(engine) => engine.poll_transmit(now, port, frame),
            Self::Several(workers) => workers.poll_transmit(now, port, frame),
        }
    }

    #[inline]
    fn may_have_frame(&self, port: PortId) -> bool {
        match self {
            Self::One(engine) => engine.may_have_frame(port),
            Self::Several(workers) => workers.may_have_frame(port),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::One(engine) => engine.poll_timeout(),
            Self::Several(workers) => workers.poll_timeout(),
        }
    }

    #[inline]
    fn take_ready(&mut self) -> PortMask {
        match self {
            Self::One(engine) => engine.take_ready(),
            Self::Several(workers) => workers.take_ready(),
        }
    }
}

/// The time from the arrival of a frame until the worker at whose queue it arrived has handed it
/// over: mostly that of a burst of one that spins, rarely that of one that computes or sleeps.
pub(crate) fn handover_lateness() -> Lateness {
    let [least, median, p99] = [200, 1_000, 5_000].map(Dur::from_ns);
    Lateness::new(&[(0, least), (500_000, median), (990_000, p99), (1_000_000, Dur::from_us(50))])
}

const ETHERTYPE: usize = 12;
/// Odd, with about as many ones as zeros.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
