//! Receive credit: the peer's advertised receive limit, and the probes of a limit that stops the
//! sender.

use super::rtt::Rtt;
use crate::attr::QpAttr;
use crate::qp::timeouts::{RNR_RETRY_INFINITE, rnr_wait};
use spanwire_base::{Dur, Time};

/// The receive credit that the peer grants.
///
/// If the peer has its own receive queue, the limit only grows; with an SRQ it may shrink. If all
/// data to send lack credit and nothing is in flight, a packet beyond the limit is sent as a probe
/// at intervals. Its ACK carries the current limit, in case the ACK with the change was lost.
#[derive(Debug)]
pub(super) struct Credit {
    /// The last limit that the peer advertised; none before the first ACK.
    receive_limit: Option<u32>,
    /// The peer's received-packet count in the ACK with that limit.
    limit_rx_pkts: u32,
    /// The time of the next probe.
    probe_at: Option<Time>,
    /// Probes since the limit last changed.
    probes: u32,
    /// Rounds refused for lack of a receive request, since the limit last changed.
    rnr_rounds: u32,
    round_is_counted: bool,
    /// When the last probe was due. An RNR NAK of an older transmission is of an earlier round.
    last_probe_at: Time,
    /// The send time of the packet whose RNR NAK was counted last.
    last_rnr_sent_at: Option<Time>,
    /// One past that packet's number.
    last_rnr_end: u64,
    /// Packets sent until then have been checked against the limit.
    checked_until: Option<Time>,
    rnr_timer: Dur,
    rnr_retry: u8,
}

impl Credit {
    pub(super) fn new(attr: &QpAttr) -> Self {
        let mut this = Self {
            receive_limit: None,
            limit_rx_pkts: 0,
            probe_at: None,
            probes: 0,
            rnr_rounds: 0,
            round_is_counted: false,
            last_probe_at: Time::ZERO,
            last_rnr_sent_at: None,
            last_rnr_end: 0,
            checked_until: None,
            rnr_timer: Dur::ZERO,
            rnr_retry: 0,
        };
        this.modify(attr);
        this
    }

    pub(super) fn modify(&mut self, attr: &QpAttr) {
        // The peer's timer is not known; both ends usually have the same.
        self.rnr_timer = rnr_wait(attr.min_rnr_timer.unwrap_or_default());
        self.rnr_retry = attr.rnr_retry.unwrap_or(RNR_RETRY_INFINITE);
    }

    pub(super) fn receive_limit(&self) -> Option<u32> {
        self.receive_limit
    }

    /// Updates the limit from an ACK whose received-packet count is `rx_pkts`. An ACK with a lower
    /// count than the last is stale and ignored.
    pub(super) fn on_limit(&mut self, limit: u32, rx_pkts: u32) {
        let has_changed = match self.receive_limit {
            None => true,
            Some(_) if rx_pkts.wrapping_sub(self.limit_rx_pkts) >= 1 << 31 => return,
            Some(old) if rx_pkts == self.limit_rx_pkts => {
                limit != old && limit.wrapping_sub(old) < 1 << 31
            }
            Some(old) => limit != old,
        };
        self.limit_rx_pkts = rx_pkts;
        if has_changed {
            let grew = |old: u32| limit.wrapping_sub(old) < 1 << 31;
            self.checked_until =
                self.checked_until.filter(|_| self.receive_limit.is_some_and(grew));
            self.receive_limit = Some(limit);
            (self.probe_at, self.probes, self.rnr_rounds) = (None, 0, 0);
            self.round_is_counted = false;
        }
    }

    /// Marks packets sent until `sent` as checked against the limit. Returns the time until which
    /// they were already.
    pub(super) fn extend_checked(&mut self, sent: Time) -> Option<Time> {
        let before = self.checked_until;
        self.checked_until = before.max(Some(sent));
        before
    }

    /// The received-packet count `rx_pkts` exceeds that of the last limit.
    pub(super) fn is_newer(&self, rx_pkts: u32) -> bool {
        let ahead = rx_pkts.wrapping_sub(self.limit_rx_pkts);
        ahead > 0 && ahead < 1 << 31
    }

    /// The RNR NAK of a packet sent at `sent` begins a new round: it is the first since the last
    /// probe or limit change, and its acknowledgement is neither a duplicate nor stale.
    pub(super) fn is_new_round(&self, sent: Time) -> bool {
        let is_old =
            sent < self.last_probe_at || self.last_rnr_sent_at.is_some_and(|at| sent <= at);
        !self.round_is_counted && !is_old
    }

    /// The packet `number`, sent at `sent`, was refused for lack of a receive request. All data
    /// below `data_una` have arrived. True if `rnr_retry` is exceeded.
    pub(super) fn on_rnr(&mut self, sent: Time, number: u64, data_una: u64) -> bool {
        if self.is_new_round(sent) {
            // If the packet refused before has arrived since, the count restarts, even at the same
            // limit.
            let rnr_rounds = if self.last_rnr_end <= data_una { 0 } else { self.rnr_rounds };
            (self.round_is_counted, self.last_rnr_sent_at) = (true, Some(sent));
            (self.rnr_rounds, self.last_rnr_end) = (rnr_rounds + 1, number + 1);
        }
        self.rnr_retry != RNR_RETRY_INFINITE && self.rnr_rounds > u32::from(self.rnr_retry)
    }

    /// Starts the probe timer if only the receive limit prevents sending and nothing is in flight;
    /// stops it otherwise.
    pub(super) fn set_credit_limited(&mut self, now: Time, is_credit_limited: bool, rtt: &Rtt) {
        self.probe_at = match (is_credit_limited, self.probe_at) {
            (false, _) => None,
            (true, None) => {
                let base = rtt.probe_timeout().unwrap_or(self.rnr_timer).max(self.rnr_timer);
                let backed_off = base * (1 << self.probes.min(BACKOFF_MAX));
                Some(now + backed_off.min(base.max(PROBE_INTERVAL_MAX)))
            }
            (true, probe_at) => probe_at,
        };
    }

    /// The time of the next probe, for [`Credit::handle_timeout`].
    pub(super) fn next(&self) -> Option<Time> {
        self.probe_at
    }

    /// True if a probe is due at `now`.
    pub(super) fn handle_timeout(&mut self, now: Time) -> bool {
        let due = self.probe_at.is_some_and(|at| at <= now);
        if due {
            (self.probe_at, self.last_probe_at) = (None, now);
            self.probes = self.probes.saturating_add(1);
            self.round_is_counted = false;
        }
        due
    }

    pub(super) fn stop(&mut self) {
        self.probe_at = None;
    }
}

/// The most doublings of the probe interval.
const BACKOFF_MAX: u32 = 6;
/// The longest probe interval, unless the first interval is longer: the most that a lost ACK with a
/// new limit costs.
const PROBE_INTERVAL_MAX: Dur = Dur::from_ms(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn credit(rnr_retry: u8) -> Credit {
        let (min_rnr_timer, rnr_retry) = (Some(12), Some(rnr_retry));
        Credit::new(&QpAttr { min_rnr_timer, rnr_retry, ..QpAttr::default() })
    }

    #[test]
    fn on_limit__ignores_a_stale_limit() {
        let mut c = credit(7);
        assert_eq!(c.receive_limit(), None);
        c.on_limit(5, 10);
        c.on_limit(3, 9);
        assert_eq!(c.receive_limit(), Some(5));
        c.on_limit(4, 10);
        assert_eq!(c.receive_limit(), Some(5), "of two limits with one count, the larger is newer");
        c.on_limit(8, 10);
        assert_eq!(c.receive_limit(), Some(8));
        c.on_limit(6, 11);
        assert_eq!(c.receive_limit(), Some(6), "the limit of an SRQ may shrink");
    }

    #[test]
    fn extend_checked__restarts_when_the_limit_shrinks() {
        let mut c = credit(7);
        let at = |us| Time::ZERO + Dur::from_us(us);
        c.on_limit(5, 1);
        assert_eq!([5, 3, 9].map(|us| c.extend_checked(at(us))), [None, Some(at(5)), Some(at(5))]);
        c.on_limit(6, 2);
        assert_eq!(
            c.extend_checked(at(9)),
            Some(at(9)),
            "packets below the old limit are still allowed"
        );
        c.on_limit(4, 3);
        assert_eq!(c.extend_checked(at(9)), None);
    }

    #[test]
    fn is_newer__compares_across_the_wrap() {
        let mut c = credit(7);
        c.on_limit(1, u32::MAX);
        assert_eq!(
            [u32::MAX - 1, u32::MAX, 0, 1].map(|n| c.is_newer(n)),
            [false, false, true, true]
        );
    }

    #[test]
    fn set_credit_limited__probes_back_off_until_the_limit_changes() {
        let (mut c, rtt) = (credit(7), Rtt::default());
        let mut now = Time::ZERO;
        let mut waits = Vec::new();
        for _ in 0..7 {
            c.set_credit_limited(now, true, &rtt);
            let at = c.next().unwrap();
            c.set_credit_limited(at - Dur::from_ns(1), true, &rtt);
            assert_eq!(c.next(), Some(at), "the probe timer starts once");
            assert!(!c.handle_timeout(at - Dur::from_ns(1)) && c.handle_timeout(at));
            waits.push(at.since(now).as_us());
            now = at;
        }
        assert_eq!(waits, [640, 1280, 2560, 5120, 10_240, 20_000, 20_000]);
        c.on_limit(1, 1);
        c.set_credit_limited(now, true, &rtt);
        assert_eq!(c.next(), Some(now + Dur::from_us(640)));
        c.set_credit_limited(now, false, &rtt);
        assert_eq!(c.next(), None);
    }

    #[test]
    fn on_rnr__counts_rounds_not_packets() {
        let at = |us| Time::ZERO + Dur::from_us(us);
        let mut c = credit(1);
        assert!(!c.on_rnr(at(1), 8, 7) && !c.on_rnr(at(2), 8, 7));
        c.set_credit_limited(at(3), true, &Rtt::default());
        assert!(c.handle_timeout(at(1000)));
        assert!(c.on_rnr(at(1000), 8, 7));
        let mut for_ever = credit(7);
        for ms in 1..100 {
            for_ever.set_credit_limited(at(1000 * ms), true, &Rtt::default());
            for_ever.handle_timeout(at(1000 * ms + 999));
            assert!(!for_ever.on_rnr(at(1000 * ms + 999), 8, 7));
        }
    }

    /// A duplicate or stale acknowledgement reports the same RNR NAK. If it counted again after
    /// each probe, the queue pair would fail after fewer rounds than `rnr_retry` allows.
    #[test]
    fn on_rnr__a_duplicate_or_stale_report_counts_once() {
        let at = |us| Time::ZERO + Dur::from_us(us);
        let mut c = credit(1);
        assert!(c.is_new_round(at(5)) && !c.on_rnr(at(5), 8, 7));
        c.set_credit_limited(at(10), true, &Rtt::default());
        assert!(c.handle_timeout(at(1000)));
        for late in [5, 7, 999] {
            assert!(!c.is_new_round(at(late)) && !c.on_rnr(at(late), 8, 7), "{late} us");
        }
        c.on_limit(3, 1);
        assert!(!c.is_new_round(at(5)), "the limit has changed since");
        assert!(!c.on_rnr(at(1001), 8, 7), "the first round at this limit");
        c.set_credit_limited(at(1010), true, &Rtt::default());
        assert!(c.handle_timeout(at(2000)) && c.on_rnr(at(2001), 8, 7));
    }

    #[test]
    fn on_rnr__restarts_once_the_refused_packet_has_arrived() {
        let at = |us| Time::ZERO + Dur::from_us(us);
        let mut c = credit(1);
        for round in 1..4 {
            let at = at(10_000 * round);
            assert!(!c.on_rnr(at, round, round), "all packets below have arrived");
            c.set_credit_limited(at, true, &Rtt::default());
            assert!(c.handle_timeout(at + Dur::from_us(9_999)));
        }
        assert!(c.on_rnr(at(40_000), 3, 3), "the same packet is refused twice");
    }
}
