//! One direction of a link: its line and the frames in flight.

use crate::event::Key;
use crate::frames::FrameId;
use crate::ids::NodeId;
use spanwire_base::PortId;
use spanwire_switch::Line;
use std::collections::VecDeque;

/// Frames that entered and left one direction of a link. Faults in between are counted in
/// [`Line::counters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Frames transmitted by the node at its start.
    pub sent: u64,
    /// Bytes of those with elided payload; without preamble, FCS and inter-frame gap.
    pub sent_bytes: u64,
    /// Frames received by the node at its end.
    pub arrived: u64,
}

/// A frame in flight.
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
    /// An event is scheduled that polls the node when the serialiser is free.
    pub(crate) is_busy: bool,
    /// Ordered by arrival. Only the first has an event in the queue.
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) counters: LinkCounters,
}

impl Link {
    pub(crate) fn new(from: (NodeId, PortId), to: (NodeId, PortId), line: Line) -> Self {
        let (flights, counters) = (VecDeque::new(), LinkCounters::default());
        Self { from, to, line, is_busy: false, flights, counters }
    }

    /// Adds a frame. Returns true if it is the next to arrive: its key must then be pushed to the
    /// event queue.
    pub(crate) fn insert(&mut self, flight: Flight) -> bool {
        let is_after = |f: &Flight| f.key.at() <= flight.key.at();
        let at = match self.flights.back() {
            // Lines preserve order, except for frames that they delay.
            last if last.is_none_or(is_after) => self.flights.len(),
            _ => self.flights.iter().rposition(is_after).map_or(0, |before| before + 1),
        };
        match at == self.flights.len() {
            true => self.flights.push_back(flight),
            false => self.flights.insert(at, flight),
        }
        at == 0
    }

    /// Removes the frame whose arrival is `key` if it is the next; otherwise the event is obsolete.
    pub(crate) fn pop(&mut self, key: Key) -> Option<Flight> {
        match self.flights.front() {
            Some(first) if first.key == key => self.flights.pop_front(),
            _ => None,
        }
    }

    /// True if every frame given to the line, and every duplicate, has arrived, was lost with a
    /// counted reason, or is in flight.
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
    fn insert__keeps_the_order_of_arrival_and_reports_a_new_first() {
        let (mut link, mut queue, mut frames) = (link(), EventQueue::default(), Frames::new(1));
        let mut insert = |at| {
            let key = queue.key(Time::from_ps(at), 0);
            let flight = Flight { key, frame: frames.keep(0), len: 0, elided_bytes: 0 };
            (key, link.insert(flight))
        };
        let inserted = [5, 7, 5, 3, 6].map(&mut insert);
        assert_eq!(inserted.map(|(_, first)| first), [true, false, false, true, false]);
        // Of two with equal times, the first that was sent comes first.
        for i in [3, 0, 2, 4, 1] {
            let (key, _) = inserted[i];
            assert_eq!(link.pop(key).map(|f| f.key), Some(key));
            assert!(link.pop(key).is_none(), "an event that is popped twice is obsolete");
        }
        assert!(link.flights.is_empty());
    }
}
