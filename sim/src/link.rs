//! One direction of a link: a line, and the frames that are on it.

use crate::event::Key;
use crate::frames::FrameId;
use crate::world::NodeId;
use spanwire_base::PortId;
use spanwire_switch::Line;
use std::collections::VecDeque;

/// One direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub(crate) u32);

/// What the nodes at the ends of one direction of a link gave and got. What the line did to the
/// frames in between is in [`Line::counters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Frames that the node at its start gave.
    pub sent: u64,
    /// Bytes of those, what is elided included; without preamble, FCS and gap.
    pub sent_bytes: u64,
    /// Frames that the node at its end got.
    pub arrived: u64,
}

/// A frame on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// Its arrival.
    pub(crate) key: Key,
    pub(crate) frame: FrameId,
    pub(crate) len: u32,
    pub(crate) elided_bytes: u32,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) from: (NodeId, PortId),
    pub(crate) to: (NodeId, PortId),
    pub(crate) line: Line,
    /// An event will ask the node for a frame when the serialiser is free.
    pub(crate) is_busy: bool,
    /// By arrival. Only the first stands in the event queue.
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) counters: LinkCounters,
}

impl Link {
    pub(crate) fn new(from: (NodeId, PortId), to: (NodeId, PortId), line: Line) -> Self {
        let (flights, counters) = (VecDeque::new(), LinkCounters::default());
        Self { from, to, line, is_busy: false, flights, counters }
    }

    /// Adds a frame. True when it is the next to arrive: its key must go into the event queue.
    pub(crate) fn insert(&mut self, flight: Flight) -> bool {
        let is_after = |f: &Flight| f.key.at() <= flight.key.at();
        let at = match self.flights.back() {
            // Lines keep the order, but for the frames that they hold back.
            last if last.is_none_or(is_after) => self.flights.len(),
            _ => self.flights.iter().rposition(is_after).map_or(0, |before| before + 1),
        };
        match at == self.flights.len() {
            true => self.flights.push_back(flight),
            false => self.flights.insert(at, flight),
        }
        at == 0
    }

    /// Takes the frame whose arrival is `key`, if that is the next; else the event is an old one.
    pub(crate) fn pop(&mut self, key: Key) -> Option<Flight> {
        match self.flights.front() {
            Some(first) if first.key == key => self.flights.pop_front(),
            _ => None,
        }
    }

    /// True while every frame given, and every copy that the line made, has arrived, was lost with
    /// a reason or is on its way.
    pub(crate) fn is_conserved(&self) -> bool {
        let (ours, line) = (&self.counters, self.line.counters());
        let in_flight = spanwire_base::u64_from(self.flights.len());
        ours.sent == line.frames
            && ours.sent + line.duplicated == ours.arrived + line.dropped() + in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventQueue;
    use crate::frames::Frames;
    use spanwire_base::Time;
    use spanwire_switch::LineConfig;

    fn link() -> Link {
        let end = (NodeId::default(), PortId::HOST);
        Link::new(end, end, Line::new(LineConfig::default(), 1).unwrap())
    }

    #[test]
    fn insert__keeps_the_order_of_arrival_and_tells_of_a_new_first() {
        let (mut link, mut queue, mut frames) = (link(), EventQueue::default(), Frames::new(1));
        let mut insert = |at| {
            let key = queue.key(Time::from_ps(at), 0);
            let flight = Flight { key, frame: frames.take(), len: 0, elided_bytes: 0 };
            (key, link.insert(flight))
        };
        let inserted = [5, 7, 5, 3, 6].map(&mut insert);
        assert_eq!(inserted.map(|(_, first)| first), [true, false, false, true, false]);
        // Of two with one time, the first that was sent.
        for i in [3, 0, 2, 4, 1] {
            let (key, _) = inserted[i];
            assert_eq!(link.pop(key).map(|f| f.key), Some(key));
            assert!(link.pop(key).is_none(), "an event that comes up twice is an old one");
        }
        assert!(link.flights.is_empty());
    }
}
