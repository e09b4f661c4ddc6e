//! The receive requests of the peer, as far as we know: what it said last, and when to ask again.

use super::rtt::Rtt;
use crate::attr::QpAttr;
use crate::qp::timeouts::{RNR_RETRY_INFINITE, rnr_wait};
use spanwire_base::{Dur, Time};

/// What the peer takes.
///
/// With a queue of its own the receive limit only grows; with a shared one it may shrink. When
/// everything that is left to send waits for it and nothing is in flight, a packet that must wait
/// is sent all the same now and then: the acknowledgement of it says whether the limit has moved,
/// if the one that said so first was lost.
#[derive(Debug)]
pub(super) struct Credit {
    /// What the peer said last of its receive requests; none before it has said.
    receive_limit: Option<u32>,
    /// How many packets of ours it had received when it said so.
    said_at: u32,
    /// The next question.
    ask_at: Option<Time>,
    /// Questions since the limit last moved.
    asked: u32,
    /// Rounds of packets that found no receive request since then.
    refused: u32,
    round_is_counted: bool,
    /// When the last probe was due. Refusals of older transmissions belong to an earlier round.
    asked_at: Time,
    /// When the packet was sent whose refusal was counted last.
    refused_at: Option<Time>,
    /// One past that packet's number.
    refused_below: u64,
    /// Of what was sent until then it is known what the limit turns away.
    judged_until: Option<Time>,
    wait: Dur,
    rnr_retry: u8,
}

impl Credit {
    pub(super) fn new(attr: &QpAttr) -> Self {
        let mut this = Self {
            receive_limit: None,
            said_at: 0,
            ask_at: None,
            asked: 0,
            refused: 0,
            round_is_counted: false,
            asked_at: Time::ZERO,
            refused_at: None,
            refused_below: 0,
            judged_until: None,
            wait: Dur::ZERO,
            rnr_retry: 0,
        };
        this.change(attr);
        this
    }

    pub(super) fn change(&mut self, attr: &QpAttr) {
        // The peer's is not known here; both ends usually have the same.
        self.wait = rnr_wait(attr.min_rnr_timer.unwrap_or_default());
        self.rnr_retry = attr.rnr_retry.unwrap_or(RNR_RETRY_INFINITE);
    }

    pub(super) fn receive_limit(&self) -> Option<u32> {
        self.receive_limit
    }

    /// The peer says that it has receive requests below `limit`, and that it has received `rx_pkts`
    /// packets: what it said before it knew so many is old.
    pub(super) fn on_told(&mut self, limit: u32, rx_pkts: u32) {
        let moved = match self.receive_limit {
            None => true,
            Some(_) if rx_pkts.wrapping_sub(self.said_at) >= 1 << 31 => return,
            Some(old) if rx_pkts == self.said_at => {
                limit != old && limit.wrapping_sub(old) < 1 << 31
            }
            Some(old) => limit != old,
        };
        self.said_at = rx_pkts;
        if moved {
            let grew = |old: u32| limit.wrapping_sub(old) < 1 << 31;
            self.judged_until = self.judged_until.filter(|_| self.receive_limit.is_some_and(grew));
            self.receive_limit = Some(limit);
            (self.ask_at, self.asked, self.refused) = (None, 0, 0);
            self.round_is_counted = false;
        }
    }

    /// What was sent until `sent` is judged by this limit from now on. Returns until when it was
    /// already.
    pub(super) fn judge_until(&mut self, sent: Time) -> Option<Time> {
        let before = self.judged_until;
        self.judged_until = before.max(Some(sent));
        before
    }

    /// Who says that it has received `rx_pkts` packets has received one since it was last heard.
    pub(super) fn is_news(&self, rx_pkts: u32) -> bool {
        let ahead = rx_pkts.wrapping_sub(self.said_at);
        ahead > 0 && ahead < 1 << 31
    }

    /// The refusal of a packet sent at `sent` begins a new round: it is the first since the last
    /// probe or limit change, and its acknowledgement is neither a duplicate nor stale.
    pub(super) fn is_new_round(&self, sent: Time) -> bool {
        let is_old = sent < self.asked_at || self.refused_at.is_some_and(|at| sent <= at);
        !self.round_is_counted && !is_old
    }

    /// The packet `number` that was sent at `sent` found no receive request; all data below `due`
    /// have arrived, while parity may be missing. True if `rnr_retry` is exceeded.
    pub(super) fn on_refused(&mut self, sent: Time, number: u64, due: u64) -> bool {
        if self.is_new_round(sent) {
            // The packet refused before has arrived since, even under the same limit.
            let refused = if self.refused_below <= due { 0 } else { self.refused };
            (self.round_is_counted, self.refused_at) = (true, Some(sent));
            (self.refused, self.refused_below) = (refused + 1, number + 1);
        }
        self.rnr_retry != RNR_RETRY_INFINITE && self.refused > u32::from(self.rnr_retry)
    }

    /// Nothing may leave but for this limit, and nothing is in flight (or not, any more).
    pub(super) fn set_stuck(&mut self, now: Time, is_stuck: bool, rtt: &Rtt) {
        self.ask_at = match (is_stuck, self.ask_at) {
            (false, _) => None,
            (true, None) => {
                let base = rtt.probe_timeout().unwrap_or(self.wait).max(self.wait);
                let backed_off = base * (1 << self.asked.min(BACKOFF_MAX));
                Some(now + backed_off.min(base.max(WAIT_MAX)))
            }
            (true, asks) => asks,
        };
    }

    /// When [`Credit::handle_timeout`] has something to do.
    pub(super) fn next(&self) -> Option<Time> {
        self.ask_at
    }

    /// True when it is time to ask.
    pub(super) fn handle_timeout(&mut self, now: Time) -> bool {
        let due = self.ask_at.is_some_and(|at| at <= now);
        if due {
            (self.ask_at, self.asked_at) = (None, now);
            self.asked = self.asked.saturating_add(1);
            self.round_is_counted = false;
        }
        due
    }

    pub(super) fn stop(&mut self) {
        self.ask_at = None;
    }
}

/// Doublings of the wait.
const BACKOFF_MAX: u32 = 6;
/// A limit that moved unheard costs at most this, or the round trip and a half that a question
/// takes.
const WAIT_MAX: Dur = Dur::from_ms(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn credit(rnr_retry: u8) -> Credit {
        let (min_rnr_timer, rnr_retry) = (Some(12), Some(rnr_retry));
        Credit::new(&QpAttr { min_rnr_timer, rnr_retry, ..QpAttr::default() })
    }

    #[test]
    fn on_told__old_news_change_nothing() {
        let mut c = credit(7);
        assert_eq!(c.receive_limit(), None);
        c.on_told(5, 10);
        c.on_told(3, 9);
        assert_eq!(c.receive_limit(), Some(5));
        c.on_told(4, 10);
        assert_eq!(c.receive_limit(), Some(5), "which of two of one time is newer: the larger");
        c.on_told(8, 10);
        assert_eq!(c.receive_limit(), Some(8));
        c.on_told(6, 11);
        assert_eq!(c.receive_limit(), Some(6), "a shared queue may have less than before");
    }

    #[test]
    fn judge_until__begins_anew_when_the_limit_shrinks() {
        let mut c = credit(7);
        let at = |us| Time::ZERO + Dur::from_us(us);
        c.on_told(5, 1);
        assert_eq!([5, 3, 9].map(|us| c.judge_until(at(us))), [None, Some(at(5)), Some(at(5))]);
        c.on_told(6, 2);
        assert_eq!(c.judge_until(at(9)), Some(at(9)), "who had room has it still");
        c.on_told(4, 3);
        assert_eq!(c.judge_until(at(9)), None);
    }

    #[test]
    fn is_news__counts_further_across_the_wrap() {
        let mut c = credit(7);
        c.on_told(1, u32::MAX);
        assert_eq!(
            [u32::MAX - 1, u32::MAX, 0, 1].map(|n| c.is_news(n)),
            [false, false, true, true]
        );
    }

    #[test]
    fn set_stuck__asks_later_and_later_until_the_limit_moves() {
        let (mut c, rtt) = (credit(7), Rtt::default());
        let mut now = Time::ZERO;
        let mut waits = Vec::new();
        for _ in 0..7 {
            c.set_stuck(now, true, &rtt);
            let at = c.next().unwrap();
            c.set_stuck(at - Dur::from_ns(1), true, &rtt);
            assert_eq!(c.next(), Some(at), "the wait begins once");
            assert!(!c.handle_timeout(at - Dur::from_ns(1)) && c.handle_timeout(at));
            waits.push(at.since(now).as_us());
            now = at;
        }
        assert_eq!(waits, [640, 1280, 2560, 5120, 10_240, 20_000, 20_000]);
        c.on_told(1, 1);
        c.set_stuck(now, true, &rtt);
        assert_eq!(c.next(), Some(now + Dur::from_us(640)));
        c.set_stuck(now, false, &rtt);
        assert_eq!(c.next(), None);
    }

    #[test]
    fn on_refused__counts_rounds_not_packets() {
        let at = |us| Time::ZERO + Dur::from_us(us);
        let mut c = credit(1);
        assert!(!c.on_refused(at(1), 8, 7) && !c.on_refused(at(2), 8, 7));
        c.set_stuck(at(3), true, &Rtt::default());
        assert!(c.handle_timeout(at(1000)));
        assert!(c.on_refused(at(1000), 8, 7));
        let mut for_ever = credit(7);
        for ms in 1..100 {
            for_ever.set_stuck(at(1000 * ms), true, &Rtt::default());
            for_ever.handle_timeout(at(1000 * ms + 999));
            assert!(!for_ever.on_refused(at(1000 * ms + 999), 8, 7));
        }
    }

    /// A duplicate or stale acknowledgement reports the same refusal. If it counted again after
    /// each probe, the queue pair would fail after fewer rounds than `rnr_retry` allows.
    #[test]
    fn on_refused__what_is_told_twice_or_late_is_one_refusal() {
        let at = |us| Time::ZERO + Dur::from_us(us);
        let mut c = credit(1);
        assert!(c.is_new_round(at(5)) && !c.on_refused(at(5), 8, 7));
        c.set_stuck(at(10), true, &Rtt::default());
        assert!(c.handle_timeout(at(1000)));
        for late in [5, 7, 999] {
            assert!(!c.is_new_round(at(late)) && !c.on_refused(at(late), 8, 7), "{late} us");
        }
        c.on_told(3, 1);
        assert!(!c.is_new_round(at(5)), "the limit has moved since");
        assert!(!c.on_refused(at(1001), 8, 7), "the first for this limit");
        c.set_stuck(at(1010), true, &Rtt::default());
        assert!(c.handle_timeout(at(2000)) && c.on_refused(at(2001), 8, 7));
    }

    #[test]
    fn on_refused__begins_anew_when_what_was_refused_has_arrived() {
        let at = |us| Time::ZERO + Dur::from_us(us);
        let mut c = credit(1);
        for round in 1..4 {
            let at = at(10_000 * round);
            assert!(!c.on_refused(at, round, round), "everything below has arrived");
            c.set_stuck(at, true, &Rtt::default());
            assert!(c.handle_timeout(at + Dur::from_us(9_999)));
        }
        assert!(c.on_refused(at(40_000), 3, 3), "the same again");
    }
}
