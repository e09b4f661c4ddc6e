//! The scheduler among queue pairs (deficit round robin) and the endpoint's windows.

use crate::config::Config;
use spanwire_pacer::Drr;

/// The order in which queue pairs send, and what they have in flight together.
///
/// Queue pairs are slots of the endpoint's table. The cost of each decision does not depend on
/// their number.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Queue pairs with a control packet (ACK, NAK, CNP) due: one packet each, round robin.
    control: Drr,
    /// Queue pairs that may have data to send: deficit round robin, by bytes and weight.
    ready: Drr,
    /// Queue pairs whose next request waits for the endpoint's window, likewise. Only requests
    /// wait. ACKs and responses do not: two hosts that wait for each other's ACKs would deadlock.
    blocked: Drr,
    /// Control packets sent since the last data packet.
    control_in_a_row: u32,
    /// Packets in flight of all queue pairs.
    in_flight: InFlight,
    /// Something may have become ready to send since the driver last asked.
    wake: bool,
    /// Every packet of a request requests an ACK.
    requests_acks: bool,
    /// The queue pair that sent data last.
    last_sent: u32,
}

/// The space in the endpoint's windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowSpace {
    /// Request packets.
    pub(crate) pkts: u32,
    /// Request packets without AckReq.
    pub(crate) no_ack_req_pkts: u32,
}

/// The packets of a queue pair that count against the endpoint's windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct InFlight {
    /// Packets in flight.
    pub(crate) pkts: u64,
    /// Packets after the last one with AckReq: no ACK of them is on its way.
    pub(crate) no_ack_req_pkts: u64,
}

/// A list of queue pairs; its head sends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ActiveList {
    /// A control packet is due.
    Control,
    /// Data may be ready.
    Ready,
    /// A request waits for the endpoint's window.
    Blocked,
}

impl Schedule {
    /// An empty schedule. The quantum of a queue pair is `turn_bytes` times its weight.
    pub(crate) fn new(turn_bytes: u32) -> Self {
        Self {
            control: Drr::new(1),
            ready: Drr::new(turn_bytes),
            blocked: Drr::new(turn_bytes),
            control_in_a_row: 0,
            in_flight: InFlight::default(),
            wake: false,
            requests_acks: false,
            last_sent: u32::MAX,
        }
    }

    /// The queue pair that sends next from `list`.
    #[inline]
    pub(crate) fn head(&mut self, list: ActiveList) -> Option<u32> {
        self.list(list).head()
    }

    /// Appends a queue pair to a list, unless it is in it.
    #[inline]
    pub(crate) fn activate(&mut self, list: ActiveList, slot: u32) {
        self.list(list).activate(slot);
    }

    /// Removes a queue pair from a list: it has nothing to send for now.
    #[inline]
    pub(crate) fn deactivate(&mut self, list: ActiveList, slot: u32) {
        self.list(list).deactivate(slot);
    }

    /// The queue pair is ready or waits for the endpoint's window.
    pub(crate) fn is_active(&self, slot: u32) -> bool {
        self.ready.is_active(slot) || self.blocked.is_active(slot)
    }

    /// Sets the weight of a queue pair: its quantum is 1..=255 times `turn_bytes`.
    pub(crate) fn set_weight(&mut self, slot: u32, weight: u8) {
        self.ready.set_weight(slot, weight.into());
        self.blocked.set_weight(slot, weight.into());
    }

    /// No queue pair may have a packet to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.ready.is_empty() && self.blocked.is_empty()
    }

    /// A control packet goes before data: it is short, and the peer waits for it. The limit in a
    /// row protects data from a peer that provokes control packets without end.
    #[inline]
    pub(crate) fn prefers_control(&self) -> bool {
        self.has_control() && self.control_in_a_row < CONTROL_IN_A_ROW_MAX
    }

    /// A control packet of any queue pair is due.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// The head of the control list sent a packet.
    pub(crate) fn on_control_sent(&mut self) {
        self.control_in_a_row = self.control_in_a_row.saturating_add(1);
        self.control.charge(1);
    }

    /// The queue pair that sends next if no control packet is due, and the bytes that it may send
    /// before another one's turn.
    #[inline]
    pub(crate) fn head_of_burst(&mut self) -> Option<(u32, i64)> {
        let slot = self.ready.head().filter(|_| self.control.is_empty())?;
        Some((slot, self.ready.left()))
    }

    /// The head of a data list sent `bytes`.
    #[inline]
    pub(crate) fn on_data_sent(&mut self, list: ActiveList, bytes: u32) {
        self.control_in_a_row = 0;
        self.list(list).charge(bytes);
    }

    /// Removes a destroyed queue pair and its packets in flight.
    pub(crate) fn remove(&mut self, slot: u32, in_flight: InFlight) {
        self.on_in_flight_changed(in_flight, InFlight::default());
        for list in [ActiveList::Control, ActiveList::Ready, ActiveList::Blocked] {
            self.list(list).remove(slot);
        }
        self.wake_driver();
    }

    /// The space in the windows for the head of a list.
    ///
    /// Not every packet has AckReq, and a window full of packets without it would stay full until a
    /// timer expires. Packets without AckReq therefore leave space for the largest unit that may
    /// wait: a chunk of a READ.
    #[inline]
    pub(crate) fn window_space(&self, list: ActiveList, config: &Config) -> WindowSpace {
        let pkts = match list {
            // Queue pairs that wait for the window go first: no request overtakes them.
            ActiveList::Ready if !self.blocked.is_empty() => 0,
            _ => remaining(config.endpoint_window_pkts, self.in_flight.pkts),
        };
        let no_ack_req = config.endpoint_window_pkts - config.read_chunk_pkts;
        let no_ack_req_pkts = match self.requests_acks {
            false => remaining(no_ack_req, self.in_flight.no_ack_req_pkts),
            true => 0,
        };
        WindowSpace { pkts, no_ack_req_pkts }
    }

    /// The packets in flight of one queue pair have changed.
    #[inline]
    pub(crate) fn on_in_flight_changed(&mut self, before: InFlight, after: InFlight) {
        self.in_flight.pkts = self.in_flight.pkts - before.pkts + after.pkts;
        self.in_flight.no_ack_req_pkts =
            self.in_flight.no_ack_req_pkts - before.no_ack_req_pkts + after.no_ack_req_pkts;
    }

    /// From now on every packet of a request requests an ACK, or only as needed. SR's receivers
    /// acknowledge without a request.
    pub(crate) fn set_requests_acks(&mut self, requests_acks: bool) {
        self.requests_acks = requests_acks;
    }

    /// The queue pair sent data.
    #[inline]
    pub(crate) fn set_last_sent(&mut self, slot: u32) {
        self.last_sent = slot;
    }

    /// The queue pair that sent data last.
    pub(crate) fn last_sent(&self) -> u32 {
        self.last_sent
    }

    /// Reports to the driver that something may have become ready to send.
    pub(crate) fn wake_driver(&mut self) {
        self.wake = true;
    }

    /// True once after [`Schedule::wake_driver`].
    pub(crate) fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.wake)
    }

    /// Packets are in flight.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.in_flight.pkts > 0
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

/// Control packets are below 100 bytes, so eight are less than one full packet on Ethernet.
/// Whatever a peer provokes, data get two thirds of the port.
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
    fn on_data_sent__a_quantum_is_bytes_times_the_weight() {
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
    fn on_control_sent__round_robin_up_to_the_limit_in_a_row() {
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
    fn remove__takes_a_queue_pair_out_of_all_lists() {
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
        assert!(s.take_wake() && !s.take_wake(), "the flag is cleared");
        // The next queue pair in this slot starts with weight 1.
        s.activate(ActiveList::Ready, 1);
        s.activate(ActiveList::Ready, 2);
        assert_eq!(s.head(ActiveList::Ready), Some(1));
        s.on_data_sent(ActiveList::Ready, 4096);
        assert_eq!(s.head(ActiveList::Ready), Some(2));
    }

    #[test]
    fn room__is_the_window_without_packets_in_flight_and_waiting_requests() {
        let config = Config::default();
        let mut s = schedule(&[]);
        let space = |s: &Schedule, list| {
            let WindowSpace { pkts, no_ack_req_pkts } = s.window_space(list, &config);
            (pkts, no_ack_req_pkts)
        };
        assert_eq!(space(&s, ActiveList::Ready), (224, 192));
        s.on_in_flight_changed(in_flight(0, 0), in_flight(100, 90));
        assert_eq!(space(&s, ActiveList::Ready), (124, 102));
        s.on_in_flight_changed(in_flight(100, 90), in_flight(300, 290));
        assert_eq!(space(&s, ActiveList::Blocked), (0, 0), "never negative");
        s.on_in_flight_changed(in_flight(300, 290), in_flight(10, 0));
        s.activate(ActiveList::Blocked, 7);
        assert_eq!(space(&s, ActiveList::Ready).0, 0, "a waiting request is not overtaken");
        assert_eq!(space(&s, ActiveList::Blocked).0, 214);
    }
}
