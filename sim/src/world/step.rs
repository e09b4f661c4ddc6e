//! The handling of a single event.

use super::{EventKind, NodeId, Observer, World};
use crate::event::Key;
use crate::ids::LinkId;
use crate::link::Flight;
use spanwire_base::{Node, PortMask, RxMeta, u32_from};
use spanwire_switch::Fate;

impl<N: Node> World<N> {
    pub(super) fn handle_event(&mut self, key: Key, observer: &mut impl Observer) {
        assert!(key.at() >= self.now, "events are popped in order");
        self.now = key.at();
        match EventKind::of(key.name()) {
            EventKind::Arrival(link) => self.handle_arrival(key, link, observer),
            EventKind::Free(link) => self.handle_free(link, observer),
            EventKind::Timer(node) => self.handle_timer(key, node, observer),
        }
    }

    fn handle_arrival(&mut self, key: Key, id: LinkId, observer: &mut impl Observer) {
        let link = &mut self.links[id.index()];
        let Some(flight) = link.pop(key) else {
            self.queue.pop();
            return;
        };
        match link.flights.front() {
            Some(next) => self.queue.replace_top(next.key),
            None => self.queue.pop().expect("the event being handled is in the queue"),
        };
        link.counters.arrived += 1;
        self.counters.events += 1;
        let (node, port) = link.to;
        let frame = &self.frames.at(flight.frame)[..flight.len as usize];
        let meta = RxMeta { elided_bytes: flight.elided_bytes, ..RxMeta::whole(self.now) };
        self.hash.on_frame(self.now, node.0, port.index(), frame);
        observer.on_arrived(self.now, id, frame, meta);
        self.nodes[node.index()].node.handle_packet(self.now, port, frame, &meta);
        self.frames.give_back(flight.frame);
        self.serve(node, observer);
    }

    fn handle_free(&mut self, id: LinkId, observer: &mut impl Observer) {
        self.counters.events += 1;
        let node = self.links[id.index()].from.0;
        match self.transmit(id, observer) {
            Some(free) => self.queue.replace_top(free),
            None => self.queue.pop().expect("the event being handled is in the queue"),
        };
        self.serve(node, observer);
    }

    fn handle_timer(&mut self, key: Key, id: NodeId, observer: &mut impl Observer) {
        self.queue.pop();
        let site = &mut self.nodes[id.index()];
        if site.timer != Some(key) {
            return;
        }
        site.timer = None;
        self.counters.events += 1;
        // The timer may have been armed for a time that the node has since postponed.
        if site.node.poll_timeout().is_some_and(|at| at <= self.now) {
            self.counters.timers += 1;
            self.hash.on_timer(self.now, id.0);
            site.node.handle_timeout(self.now);
        }
        self.serve(id, observer);
    }

    /// After a call of a node: starts its links that may have a frame, and arms its timer.
    fn serve(&mut self, id: NodeId, observer: &mut impl Observer) {
        // Transmission may make other ports ready: a draining buffer resumes a paused neighbour.
        loop {
            let mut ready: PortMask = self.nodes[id.index()].node.take_ready();
            if ready.is_empty() {
                break;
            }
            while let Some(port) = ready.pop() {
                let out = self.nodes[id.index()].out.get(port.index()).copied().flatten();
                let Some(link) = out.filter(|link| !self.links[link.index()].is_busy) else {
                    continue;
                };
                if let Some(free) = self.begin(link, observer) {
                    self.queue.push(free);
                }
            }
        }
        self.arm(id);
    }

    /// Starts transmission on an idle link whose node has a frame: polls now, or schedules a poll
    /// for when the serialiser is free.
    fn begin(&mut self, id: LinkId, observer: &mut impl Observer) -> Option<Key> {
        let link = &mut self.links[id.index()];
        let free_at = link.line.free_at();
        if free_at <= self.now {
            return self.transmit(id, observer);
        }
        link.is_busy = true;
        Some(self.queue.key(free_at, EventKind::Free(id).name()))
    }

    /// Polls the node at the start of a link for a frame and sends it. Returns the event of the
    /// next poll; `None` if there was no frame, or no other is waiting.
    fn transmit(&mut self, id: LinkId, observer: &mut impl Observer) -> Option<Key> {
        let link = &mut self.links[id.index()];
        let (node, port) = link.from;
        let node = &mut self.nodes[node.index()].node;
        let Some(meta) = node.poll_transmit(self.now, port, self.frames.written()) else {
            link.is_busy = false;
            return None;
        };
        self.counters.packet_hops += 1;
        link.counters.sent += 1;
        link.counters.sent_bytes += meta.wire_len();
        let frame = &mut self.frames.written()[..meta.len];
        observer.on_sent(self.now, id, frame, meta);
        let sent = link.line.send(self.now, frame, meta.elided_bytes);
        // Polling a node that has no more frames would cost an event for each frame.
        link.is_busy = node.may_have_frame(port);
        let is_busy = link.is_busy;
        for fate in &sent.fates {
            let &Fate::Arrives(at) = fate else {
                continue;
            };
            let frame = self.frames.keep(meta.len);
            let key = self.queue.key(at, EventKind::Arrival(id).name());
            let (len, elided_bytes) = (u32_from(meta.len), meta.elided_bytes);
            if link.insert(Flight { key, frame, len, elided_bytes }) {
                self.queue.push(key);
            }
        }
        is_busy.then(|| self.queue.key(sent.tx_done, EventKind::Free(id).name()))
    }

    /// Ensures that the node's timer is queued no later than its deadline.
    fn arm(&mut self, id: NodeId) {
        let site = &mut self.nodes[id.index()];
        let Some(at) = site.node.poll_timeout() else {
            return;
        };
        let at = at.max(self.now);
        if site.timer.is_some_and(|key| key.at() <= at) {
            return;
        }
        let key = self.queue.key(at, EventKind::Timer(id).name());
        self.queue.push(key);
        site.timer = Some(key);
    }
}
