//! Whose turn it is to send, and how much of the endpoint's windows is taken.

use crate::config::Config;
use spanwire_pacer::Drr;

/// The order in which queue pairs send, and what all of them have in flight.
///
/// Queue pairs are slots of the endpoint's table. All decisions cost the same however many there
/// are.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Those that owe their peer an acknowledgement or a notification: a packet each in turn.
    control: Drr,
    /// Those that may have data to send: by bytes and weight.
    ready: Drr,
    /// Those whose next request waits for room in the endpoint's window, likewise. Only requests
    /// wait: what is owed to a peer does not, or two hosts that wait for each other's
    /// acknowledgements would wait for ever.
    blocked: Drr,
    /// Packets of the first kind since data had its turn.
    control_in_a_row: u32,
    /// What all queue pairs hold together.
    in_flight: InFlight,
    /// The driver has not been told yet.
    wake: bool,
}

/// What the endpoint's windows still take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// Request packets.
    pub(crate) pkts: u32,
    /// Request packets that do not ask for an acknowledgement.
    pub(crate) no_ack_req_pkts: u32,
}

/// What a queue pair holds of the endpoint's windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct InFlight {
    /// Packets in flight.
    pub(crate) pkts: u64,
    /// Those of them that nothing asked the peer about.
    pub(crate) no_ack_req_pkts: u64,
}

/// A list of queue pairs whose head has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ActiveList {
    /// Those that owe something small.
    Control,
    /// Those that may have something to send.
    Ready,
    /// Those whose request waits for the window.
    Blocked,
}

impl Schedule {
    /// Nobody has anything to send. A turn is of `turn_bytes` times the weight.
    pub(crate) fn new(turn_bytes: u32) -> Self {
        Self {
            control: Drr::new(1),
            ready: Drr::new(turn_bytes),
            blocked: Drr::new(turn_bytes),
            control_in_a_row: 0,
            in_flight: InFlight::default(),
            wake: false,
        }
    }

    /// The queue pair whose turn it is.
    #[inline]
    pub(crate) fn head(&mut self, list: ActiveList) -> Option<u32> {
        self.list(list).head()
    }

    /// Puts a queue pair at the end of a list, unless it stands there.
    #[inline]
    pub(crate) fn activate(&mut self, list: ActiveList, slot: u32) {
        self.list(list).enter(slot);
    }

    /// A queue pair has nothing to send for now.
    #[inline]
    pub(crate) fn deactivate(&mut self, list: ActiveList, slot: u32) {
        self.list(list).leave(slot);
    }

    /// It may send, or waits for the window.
    pub(crate) fn is_active(&self, slot: u32) -> bool {
        self.ready.stands(slot) || self.blocked.stands(slot)
    }

    /// The share of a queue pair among those that send, 1..=255 times a turn's bytes.
    pub(crate) fn set_weight(&mut self, slot: u32, weight: u8) {
        self.ready.set_weight(slot, weight.into());
        self.blocked.set_weight(slot, weight.into());
    }

    /// What is owed leaves before data: it is short, and somebody waits for it. But whoever makes
    /// us owe it may do so without end.
    #[inline]
    pub(crate) fn prefers_control(&self) -> bool {
        self.has_control() && self.control_in_a_row < CONTROL_IN_A_ROW_MAX
    }

    /// Nobody owes anything.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// The head of those that owe something sent it.
    pub(crate) fn on_control_sent(&mut self) {
        self.control_in_a_row = self.control_in_a_row.saturating_add(1);
        self.control.charge(1);
    }

    /// The head of a list of the others sent `bytes`.
    #[inline]
    pub(crate) fn on_data_sent(&mut self, list: ActiveList, bytes: u32) {
        self.control_in_a_row = 0;
        self.list(list).charge(bytes);
    }

    /// A queue pair is gone, with what it held.
    pub(crate) fn remove(&mut self, slot: u32, in_flight: InFlight) {
        self.on_in_flight_changed(in_flight, InFlight::default());
        for list in [ActiveList::Control, ActiveList::Ready, ActiveList::Blocked] {
            self.list(list).forget(slot);
        }
        self.wake_driver();
    }

    /// What the windows still take from the head of a list.
    ///
    /// Not every packet asks for an acknowledgement, so a window full of packets that did not ask
    /// would stay full until a timer fires. Those that did not ask may therefore fill it only as
    /// far as leaves room for the largest unit that may wait, a chunk of a READ.
    #[inline]
    pub(crate) fn room(&self, list: ActiveList, config: &Config) -> Room {
        let pkts = match list {
            // Whoever waits for the window comes first: nobody overtakes them.
            ActiveList::Ready if !self.blocked.is_empty() => 0,
            _ => remaining(config.endpoint_window_pkts, self.in_flight.pkts),
        };
        let no_ack_req = config.endpoint_window_pkts - config.read_chunk_pkts;
        let no_ack_req_pkts = remaining(no_ack_req, self.in_flight.no_ack_req_pkts);
        Room { pkts, no_ack_req_pkts }
    }

    /// What one queue pair holds has changed.
    #[inline]
    pub(crate) fn on_in_flight_changed(&mut self, before: InFlight, after: InFlight) {
        self.in_flight.pkts = self.in_flight.pkts - before.pkts + after.pkts;
        self.in_flight.no_ack_req_pkts =
            self.in_flight.no_ack_req_pkts - before.no_ack_req_pkts + after.no_ack_req_pkts;
    }

    /// Something may have become ready to send.
    pub(crate) fn wake_driver(&mut self) {
        self.wake = true;
    }

    /// True once after [`Schedule::wake_driver`].
    pub(crate) fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.wake)
    }

    /// Packets of all queue pairs in flight.
    #[cfg(test)]
    pub(crate) fn in_flight_pkts(&self) -> u64 {
        self.in_flight.pkts
    }

    #[inline]
    fn list(&mut self, list: ActiveList) -> &mut Drr {
        match list {
            ActiveList::Control => &mut self.control,
            ActiveList::Ready => &mut self.ready,
            ActiveList::Blocked => &mut self.blocked,
        }
    }
}

/// Acknowledgements and notifications are below a hundred bytes, so eight are less than one full
/// packet on Ethernet: whatever a peer provokes, data keep two thirds of the port.
const CONTROL_IN_A_ROW_MAX: u32 = 8;

fn remaining(window: u32, in_flight: u64) -> u32 {
    let remaining = u64::from(window).saturating_sub(in_flight);
    u32::try_from(remaining).expect("at most the window, a u32")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_flight(pkts: u64, no_ack_req_pkts: u64) -> InFlight {
        InFlight { pkts, no_ack_req_pkts }
    }

    fn schedule(slots: &[u32]) -> Schedule {
        let mut s = Schedule::new(4096);
        for slot in slots {
            s.activate(ActiveList::Ready, *slot);
        }
        s
    }

    #[test]
    fn data_went__turns_are_of_bytes_times_the_weight() {
        let mut s = schedule(&[1, 2]);
        s.set_weight(2, 3);
        let order: Vec<u32> = (0..12)
            .map(|_| {
                let slot = s.head(ActiveList::Ready).unwrap();
                s.on_data_sent(ActiveList::Ready, 2048);
                slot
            })
            .collect();
        assert_eq!(order, [1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 2, 2]);
        assert_eq!(s.head(ActiveList::Blocked), None);
    }

    #[test]
    fn control_went__in_turns_and_not_for_ever() {
        let mut s = schedule(&[]);
        s.activate(ActiveList::Control, 1);
        s.activate(ActiveList::Control, 2);
        let mut order = Vec::new();
        while s.prefers_control() {
            order.push(s.head(ActiveList::Control).unwrap());
            s.on_control_sent();
        }
        assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 2]);
        s.on_data_sent(ActiveList::Ready, 1);
        assert!(s.prefers_control());
        s.deactivate(ActiveList::Control, 1);
        s.deactivate(ActiveList::Control, 2);
        assert!(!s.has_control() && !s.prefers_control());
    }

    #[test]
    fn forget__takes_a_queue_pair_out_of_everything() {
        let mut s = schedule(&[1]);
        s.activate(ActiveList::Blocked, 1);
        s.activate(ActiveList::Control, 1);
        s.set_weight(1, 100);
        s.on_in_flight_changed(InFlight::default(), in_flight(5, 3));
        assert!(!s.take_wake() && s.is_active(1));
        s.remove(1, in_flight(5, 3));
        for list in [ActiveList::Control, ActiveList::Ready, ActiveList::Blocked] {
            assert_eq!(s.head(list), None);
        }
        assert_eq!(s.in_flight, InFlight::default());
        assert!(s.take_wake() && !s.take_wake(), "told once");
        // Who gets the slot next begins with a weight of 1.
        s.activate(ActiveList::Ready, 1);
        s.activate(ActiveList::Ready, 2);
        assert_eq!(s.head(ActiveList::Ready), Some(1));
        s.on_data_sent(ActiveList::Ready, 4096);
        assert_eq!(s.head(ActiveList::Ready), Some(2));
    }

    #[test]
    fn room__is_what_nobody_holds_and_nobody_waits_for() {
        let config = Config::default();
        let mut s = schedule(&[]);
        let room = |s: &Schedule, list| {
            let Room { pkts, no_ack_req_pkts } = s.room(list, &config);
            (pkts, no_ack_req_pkts)
        };
        assert_eq!(room(&s, ActiveList::Ready), (224, 192));
        s.on_in_flight_changed(in_flight(0, 0), in_flight(100, 90));
        assert_eq!(room(&s, ActiveList::Ready), (124, 102));
        s.on_in_flight_changed(in_flight(100, 90), in_flight(300, 290));
        assert_eq!(room(&s, ActiveList::Blocked), (0, 0), "never below");
        s.on_in_flight_changed(in_flight(300, 290), in_flight(10, 0));
        s.activate(ActiveList::Blocked, 7);
        assert_eq!(room(&s, ActiveList::Ready).0, 0, "nobody overtakes");
        assert_eq!(room(&s, ActiveList::Blocked).0, 214);
    }
}
