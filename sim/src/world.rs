//! Nodes, the links between them, and the event loop. `world/step.rs` handles a single event.

mod step;

use crate::event::{EventQueue, Key};
use crate::frames::Frames;
use crate::hash::EventHash;

use crate::ids::{LinkId, NodeId};
use crate::link::{Link, LinkCounters};
use spanwire_base::{Node, PortId, RxMeta, Time, TxMeta, u32_from, u64_from, usize_from};
use spanwire_switch::Line;

/// Nodes and links in virtual time.
///
/// It is generic over the nodes and calls the methods of [`Node`] as a driver does. Each direction
/// of a link polls the node at its start for a frame when its serialiser is free, so only nodes
/// have queues.
///
/// The same nodes, links and seeds give the same events in the same order on any machine: time is
/// an integer, simultaneous events have a defined order, and there is no other input.
#[derive(Debug)]
pub struct World<N> {
    now: Time,
    nodes: Vec<Site<N>>,
    links: Vec<Link>,
    frames: Frames,
    queue: EventQueue,
    hash: EventHash,
    counters: WorldCounters,
}

/// Counters of a world; they never decrease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorldCounters {
    /// Arrivals, serialisers that became free, and timers; obsolete events are not counted.
    pub events: u64,
    /// Frames transmitted on a link.
    pub packet_hops: u64,
    /// Timers that expired.
    pub timers: u64,
}

/// An observer of frames that does not affect them: a capture, a test.
pub trait Observer {
    /// A frame was given to a link; the link's faults have not been applied yet.
    fn on_sent(&mut self, now: Time, link: LinkId, frame: &[u8], meta: TxMeta);

    /// A frame arrived at the end of a link.
    fn on_arrived(&mut self, now: Time, link: LinkId, frame: &[u8], meta: RxMeta);
}

/// Ignores all frames.
impl Observer for () {
    fn on_sent(&mut self, _: Time, _: LinkId, _: &[u8], _: TxMeta) {}
    fn on_arrived(&mut self, _: Time, _: LinkId, _: &[u8], _: RxMeta) {}
}

/// The reason why [`World::run`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// No event is pending: no frame, no timer.
    Idle,
    /// The next event is later than `until`.
    Time,
    /// The allowed number of events occurred.
    Events,
}

/// A node with its links and its timer.
#[derive(Debug)]
struct Site<N> {
    node: N,
    /// The link that begins at each port.
    out: Vec<Option<LinkId>>,
    /// The node's valid timer event. Others in the queue are obsolete.
    timer: Option<Key>,
}

/// The event that a name encodes.
enum EventKind {
    Arrival(LinkId),
    Free(LinkId),
    Timer(NodeId),
}

impl<N: Node> World<N> {
    /// An empty world at time zero. `frame_bytes` is the longest frame that any node writes.
    #[must_use]
    pub fn new(frame_bytes: usize) -> Self {
        Self {
            now: Time::ZERO,
            nodes: Vec::new(),
            links: Vec::new(),
            frames: Frames::new(frame_bytes),
            queue: EventQueue::default(),
            hash: EventHash::new(),
            counters: WorldCounters::default(),
        }
    }

    /// Adds a node. It is polled when the world runs.
    pub fn add_node(&mut self, node: N) -> NodeId {
        let id = NodeId(u32_from(self.nodes.len()));
        self.nodes.push(Site { node, out: Vec::new(), timer: None });
        self.wake(id);
        id
    }

    /// Connects two ports by a line in each direction, and returns the directions: from `a` to `b`,
    /// and the reverse.
    ///
    /// # Panics
    /// If a port already has a link.
    pub fn connect(
        &mut self,
        a: (NodeId, PortId),
        b: (NodeId, PortId),
        lines: [Line; 2],
    ) -> [LinkId; 2] {
        let [there, back] = lines;
        [self.add_link(a, b, there), self.add_link(b, a, back)]
    }

    /// Runs until no event is pending, the next event would be after `until`, or `events` more have
    /// occurred. The clock then is at the last event, or at `until`.
    pub fn run(&mut self, until: Time, events: u64, observer: &mut impl Observer) -> Stop {
        let end = self.counters.events.saturating_add(events);
        while self.counters.events < end {
            match self.queue.peek() {
                None => return Stop::Idle,
                Some(key) if key.at() > until => {
                    self.now = until;
                    return Stop::Time;
                }
                Some(key) => self.handle_event(key, observer),
            }
        }
        Stop::Events
    }

    /// The time of the last event.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The hash of all events so far.
    #[must_use]
    pub fn event_hash(&self) -> EventHash {
        self.hash
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> &WorldCounters {
        &self.counters
    }

    /// Every node, in the order of addition.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &N)> {
        (0..).map(NodeId).zip(self.nodes.iter().map(|site| &site.node))
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &N {
        &self.nodes[id.index()].node
    }

    /// Mutable access to a node. The world polls it at the present time when it runs on.
    pub fn node_mut(&mut self, id: NodeId) -> &mut N {
        self.wake(id);
        &mut self.nodes[id.index()].node
    }

    /// The line of one direction of a link.
    #[must_use]
    pub fn line(&self, id: LinkId) -> &Line {
        &self.links[id.index()].line
    }

    /// Mutable access to the line of one direction of a link. Frames in flight do not change.
    pub fn line_mut(&mut self, id: LinkId) -> &mut Line {
        &mut self.links[id.index()].line
    }

    /// All directions of all links, in the order of connection.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<N> {
        (0..u32_from(self.links.len())).map(LinkId)
    }

    /// The direction that begins at a port.
    #[must_use]
    pub fn link_at(&self, node: NodeId, port: PortId) -> Option<LinkId> {
        self.nodes.get(node.index())?.out.get(port.index()).copied().flatten()
    }

    /// The source and the destination of a direction of a link.
    #[must_use]
    pub fn ends(&self, id: LinkId) -> [(NodeId, PortId); 2] {
        let link = &self.links[id.index()];
        [link.from, link.to]
    }

    /// The frame counters of one direction of a link.
    #[must_use]
    pub fn link_counters(&self, id: LinkId) -> &LinkCounters {
        &self.links[id.index()].counters
    }

    /// Frames in flight on one direction of a link.
    #[must_use]
    pub fn in_flight(&self, id: LinkId) -> u64 {
        u64_from(self.links[id.index()].flights.len())
    }

    /// Links that have lost or gained uncounted frames; empty unless the world has a bug. O(links).
    #[must_use]
    pub fn check_conservation(&self) -> Vec<LinkId> {
        let mut bad: Vec<LinkId> =
            self.links().filter(|id| !self.links[id.index()].is_conserved()).collect();
        let in_flight: usize = self.links.iter().map(|link| link.flights.len()).sum();
        if in_flight != self.frames.in_use() {
            // A buffer is lost or used twice, which no single link explains.
            bad.extend(self.links());
        }
        bad
    }

    fn add_link(&mut self, from: (NodeId, PortId), to: (NodeId, PortId), line: Line) -> LinkId {
        let id = LinkId(u32_from(self.links.len()));
        let (node, port) = (from.0, from.1.index());
        let out = &mut self.nodes[node.index()].out;
        if out.len() <= port {
            out.resize(port + 1, None);
        }
        assert!(out[port].is_none(), "a port has one link");
        out[port] = Some(id);
        self.links.push(Link::new(from, to, line));
        id
    }

    /// Schedules the node's timer for now.
    fn wake(&mut self, id: NodeId) {
        let key = self.queue.key(self.now, EventKind::Timer(id).name());
        self.queue.push(key);
        self.nodes[id.index()].timer = Some(key);
    }
}

impl NodeId {
    /// The node at this place in the order of addition.
    #[must_use]
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }

    /// Its place in the order of addition.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// The direction at this place in the order of connection.
    ///
    /// # Panics
    /// If no world has that many links.
    #[must_use]
    pub fn from_index(index: usize) -> Self {
        Self(u32_from(index))
    }

    /// Its place in the order of connection; the reverse direction follows the forward one.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl EventKind {
    fn name(&self) -> u64 {
        match *self {
            Self::Arrival(LinkId(n)) => u64::from(n) * 3,
            Self::Free(LinkId(n)) => u64::from(n) * 3 + 1,
            Self::Timer(NodeId(n)) => u64::from(n) * 3 + 2,
        }
    }

    fn of(name: u64) -> Self {
        let n = u32_from(usize_from(name / 3));
        match name % 3 {
            0 => Self::Arrival(LinkId(n)),
            1 => Self::Free(LinkId(n)),
            _ => Self::Timer(NodeId(n)),
        }
    }
}

#[cfg(test)]
mod tests;
