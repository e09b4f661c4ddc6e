//! Whose turn it is to send, and how much of the endpoint's windows is taken.

use crate::config::Config;
use std::collections::VecDeque;

/// The order in which queue pairs send, and what all of them have in flight.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Queue pairs that may have a packet to send, by slot.
    ready: VecDeque<u32>,
    /// Those whose next request waits for room in the endpoint's window, in the order of waiting.
    /// Only requests wait: what is owed to a peer goes through `ready`, or two hosts that wait for
    /// each other's acknowledgements would wait for ever.
    blocked: VecDeque<u32>,
    /// Packets the queue pair at the head may still send before the next one's turn.
    burst_pkts: u32,
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

/// Which list's head has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Those that may have something to send.
    Ready,
    /// Those whose request waits for the window.
    Blocked,
}

impl Schedule {
    /// The queue pair whose turn it is.
    pub(crate) fn head(&self, turn: Turn) -> Option<u32> {
        match turn {
            Turn::Ready => self.ready.front().copied(),
            Turn::Blocked => self.blocked.front().copied(),
        }
    }

    /// Puts a queue pair at the end of a list in which it does not stand.
    pub(crate) fn enter(&mut self, turn: Turn, slot: u32) {
        debug_assert!(!self.list(turn).contains(&slot), "once in a list");
        self.list(turn).push_back(slot);
    }

    /// The head sent a packet: after a burst of them, the next one's turn.
    pub(crate) fn rotate(&mut self, turn: Turn, burst_pkts: u32) {
        if self.burst_pkts > 1 {
            self.burst_pkts -= 1;
            return;
        }
        self.burst_pkts = burst_pkts;
        self.list(turn).rotate_left(1);
    }

    /// The head has nothing to send for now.
    pub(crate) fn leave(&mut self, turn: Turn, burst_pkts: u32) {
        self.burst_pkts = burst_pkts;
        self.list(turn).pop_front();
    }

    /// A queue pair is gone, with what it held.
    pub(crate) fn forget(&mut self, slot: u32, held: Held) {
        self.window_moved(held, Held::default());
        self.ready.retain(|s| *s != slot);
        self.blocked.retain(|s| *s != slot);
        self.tell();
    }

    /// What the windows still take from the head of a list.
    ///
    /// Not every packet asks for an acknowledgement, so a window full of packets that did not ask
    /// would stay full until a timer fires. Those that did not ask may therefore fill it only as
    /// far as leaves room for the largest unit that may wait, a chunk of a READ.
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

    fn list(&mut self, turn: Turn) -> &mut VecDeque<u32> {
        match turn {
            Turn::Ready => &mut self.ready,
            Turn::Blocked => &mut self.blocked,
        }
    }
}

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

    #[test]
    fn rotate__after_a_burst() {
        let mut s = Schedule::default();
        s.enter(Turn::Ready, 1);
        s.enter(Turn::Ready, 2);
        s.leave(Turn::Blocked, 3);
        let order: Vec<u32> = (0..7)
            .map(|_| {
                let slot = s.head(Turn::Ready).unwrap();
                s.rotate(Turn::Ready, 3);
                slot
            })
            .collect();
        assert_eq!(order, [1, 1, 1, 2, 2, 2, 1]);
    }

    #[test]
    fn leave__gives_the_next_one_a_whole_burst() {
        let mut s = Schedule::default();
        s.enter(Turn::Ready, 1);
        s.enter(Turn::Ready, 2);
        s.enter(Turn::Ready, 3);
        s.leave(Turn::Ready, 2);
        assert_eq!(s.head(Turn::Ready), Some(2));
        s.rotate(Turn::Ready, 2);
        assert_eq!(s.head(Turn::Ready), Some(2));
        s.rotate(Turn::Ready, 2);
        assert_eq!(s.head(Turn::Ready), Some(3));
        assert_eq!(s.head(Turn::Blocked), None);
    }

    #[test]
    fn forget__takes_a_queue_pair_out_of_everything() {
        let mut s = Schedule::default();
        s.enter(Turn::Ready, 1);
        s.enter(Turn::Blocked, 1);
        s.window_moved(Held::default(), held(5, 3));
        assert!(!s.take_news());
        s.forget(1, held(5, 3));
        assert_eq!((s.head(Turn::Ready), s.head(Turn::Blocked)), (None, None));
        assert_eq!(s.held, Held::default());
        assert!(s.take_news() && !s.take_news(), "told once");
    }

    #[test]
    fn room__is_what_nobody_holds_and_nobody_waits_for() {
        let config = Config::default();
        let mut s = Schedule::default();
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
