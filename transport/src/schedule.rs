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
    held: Held,
    /// The driver has not been told yet.
    news: bool,
}

/// What the endpoint's windows still take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// Request packets.
    pub(crate) pkts: u32,
    /// Request packets that do not ask for an acknowledgement.
    pub(crate) unasked_pkts: u32,
}

/// What a queue pair holds of the endpoint's windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    /// Packets in flight.
    pub(crate) pkts: u64,
    /// Those of them that nothing asked the peer about.
    pub(crate) unasked_pkts: u64,
}

/// A list of queue pairs whose head has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
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
            held: Held::default(),
            news: false,
        }
    }

    /// The queue pair whose turn it is.
    #[inline]
    pub(crate) fn head(&mut self, turn: Turn) -> Option<u32> {
        self.list(turn).head()
    }

    /// Puts a queue pair at the end of a list, unless it stands there.
    #[inline]
    pub(crate) fn enter(&mut self, turn: Turn, slot: u32) {
        self.list(turn).enter(slot);
    }

    /// A queue pair has nothing to send for now.
    #[inline]
    pub(crate) fn leave(&mut self, turn: Turn, slot: u32) {
        self.list(turn).leave(slot);
    }

    /// It may send, or waits for the window.
    pub(crate) fn has_its_turn(&self, slot: u32) -> bool {
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
    pub(crate) fn control_goes_first(&self) -> bool {
        !self.owes_nothing() && self.control_in_a_row < CONTROL_IN_A_ROW_MAX
    }

    /// Nobody owes anything.
    #[inline]
    pub(crate) fn owes_nothing(&self) -> bool {
        self.control.is_empty()
    }

    /// The head of those that owe something sent it.
    pub(crate) fn control_went(&mut self) {
        self.control_in_a_row = self.control_in_a_row.saturating_add(1);
        self.control.charge(1);
    }

    /// The head of a list of the others sent `bytes`.
    #[inline]
    pub(crate) fn data_went(&mut self, turn: Turn, bytes: u32) {
        self.control_in_a_row = 0;
        self.list(turn).charge(bytes);
    }

    /// A queue pair is gone, with what it held.
    pub(crate) fn forget(&mut self, slot: u32, held: Held) {
        self.window_moved(held, Held::default());
        for turn in [Turn::Control, Turn::Ready, Turn::Blocked] {
            self.list(turn).forget(slot);
        }
        self.tell();
    }

    /// What the windows still take from the head of a list.
    ///
    /// Not every packet asks for an acknowledgement, so a window full of packets that did not ask
    /// would stay full until a timer fires. Those that did not ask may therefore fill it only as
    /// far as leaves room for the largest unit that may wait, a chunk of a READ.
    #[inline]
    pub(crate) fn room(&self, turn: Turn, config: &Config) -> Room {
        let pkts = match turn {
            // Whoever waits for the window comes first: nobody overtakes them.
            Turn::Ready if !self.blocked.is_empty() => 0,
            _ => rest(config.endpoint_window_pkts, self.held.pkts),
        };
        let unasked = config.endpoint_window_pkts - config.read_chunk_pkts;
        let unasked_pkts = rest(unasked, self.held.unasked_pkts);
        Room { pkts, unasked_pkts }
    }

    /// What one queue pair holds has changed.
    #[inline]
    pub(crate) fn window_moved(&mut self, before: Held, after: Held) {
        self.held.pkts = self.held.pkts - before.pkts + after.pkts;
        self.held.unasked_pkts = self.held.unasked_pkts - before.unasked_pkts + after.unasked_pkts;
    }

    /// Something may have become ready to send.
    pub(crate) fn tell(&mut self) {
        self.news = true;
    }

    /// True once after [`Schedule::tell`].
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Packets of all queue pairs in flight.
    #[cfg(test)]
    pub(crate) fn in_flight_pkts(&self) -> u64 {
        self.held.pkts
    }

    #[inline]
    fn list(&mut self, turn: Turn) -> &mut Drr {
        match turn {
            Turn::Control => &mut self.control,
            Turn::Ready => &mut self.ready,
            Turn::Blocked => &mut self.blocked,
        }
    }
}

/// Acknowledgements and notifications are below a hundred bytes, so eight are less than one full
/// packet on Ethernet: whatever a peer provokes, data keep two thirds of the port.
const CONTROL_IN_A_ROW_MAX: u32 = 8;

fn rest(window: u32, held: u64) -> u32 {
    let rest = u64::from(window).saturating_sub(held);
    u32::try_from(rest).expect("at most the window, a u32")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(pkts: u64, unasked_pkts: u64) -> Held {
        Held { pkts, unasked_pkts }
    }

    fn schedule(slots: &[u32]) -> Schedule {
        let mut s = Schedule::new(4096);
        for slot in slots {
            s.enter(Turn::Ready, *slot);
        }
        s
    }

    #[test]
    fn data_went__turns_are_of_bytes_times_the_weight() {
        let mut s = schedule(&[1, 2]);
        s.set_weight(2, 3);
        let order: Vec<u32> = (0..12)
            .map(|_| {
                let slot = s.head(Turn::Ready).unwrap();
                s.data_went(Turn::Ready, 2048);
                slot
            })
            .collect();
        assert_eq!(order, [1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 2, 2]);
        assert_eq!(s.head(Turn::Blocked), None);
    }

    #[test]
    fn control_went__in_turns_and_not_for_ever() {
        let mut s = schedule(&[]);
        s.enter(Turn::Control, 1);
        s.enter(Turn::Control, 2);
        let mut order = Vec::new();
        while s.control_goes_first() {
            order.push(s.head(Turn::Control).unwrap());
            s.control_went();
        }
        assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 2]);
        s.data_went(Turn::Ready, 1);
        assert!(s.control_goes_first());
        s.leave(Turn::Control, 1);
        s.leave(Turn::Control, 2);
        assert!(s.owes_nothing() && !s.control_goes_first());
    }

    #[test]
    fn forget__takes_a_queue_pair_out_of_everything() {
        let mut s = schedule(&[1]);
        s.enter(Turn::Blocked, 1);
        s.enter(Turn::Control, 1);
        s.set_weight(1, 100);
        s.window_moved(Held::default(), held(5, 3));
        assert!(!s.take_news() && s.has_its_turn(1));
        s.forget(1, held(5, 3));
        for turn in [Turn::Control, Turn::Ready, Turn::Blocked] {
            assert_eq!(s.head(turn), None);
        }
        assert_eq!(s.held, Held::default());
        assert!(s.take_news() && !s.take_news(), "told once");
        // Who gets the slot next begins with a weight of 1.
        s.enter(Turn::Ready, 1);
        s.enter(Turn::Ready, 2);
        assert_eq!(s.head(Turn::Ready), Some(1));
        s.data_went(Turn::Ready, 4096);
        assert_eq!(s.head(Turn::Ready), Some(2));
    }

    #[test]
    fn room__is_what_nobody_holds_and_nobody_waits_for() {
        let config = Config::default();
        let mut s = schedule(&[]);
        let room = |s: &Schedule, turn| {
            let Room { pkts, unasked_pkts } = s.room(turn, &config);
            (pkts, unasked_pkts)
        };
        assert_eq!(room(&s, Turn::Ready), (224, 192));
        s.window_moved(held(0, 0), held(100, 90));
        assert_eq!(room(&s, Turn::Ready), (124, 102));
        s.window_moved(held(100, 90), held(300, 290));
        assert_eq!(room(&s, Turn::Blocked), (0, 0), "never below");
        s.window_moved(held(300, 290), held(10, 0));
        s.enter(Turn::Blocked, 7);
        assert_eq!(room(&s, Turn::Ready).0, 0, "nobody overtakes");
        assert_eq!(room(&s, Turn::Blocked).0, 214);
    }
}
