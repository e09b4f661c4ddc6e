//! The tail loss probe (TLP) and the retransmission timeout (RTO).

use super::margin::ProbeMargin;
use super::rtt::Rtt;
use spanwire_base::{Dur, Time};

/// The TLP and RTO timers of a stream.
///
/// RACK detects other losses as later packets arrive ([`super::sent`]). If no ACK arrives, two
/// timers apply. After two round trips a TLP retransmits the newest packet with AckReq, so that a
/// lost tail, or a lost ACK of it, costs no more. After the RTO all packets in flight are presumed
/// lost, and the RTO doubles until feedback arrives.
///
/// While only responses are outstanding, nothing is in flight that the peer could acknowledge. A
/// TLP then shows that the peer is there, and no more, so the interval of TLPs doubles until there
/// is progress.
#[derive(Debug)]
pub(crate) struct Timers {
    /// The time of the last feedback, or of the first packet sent after it; none while nothing is
    /// outstanding.
    idle_since: Option<Time>,
    /// The time of the newest transmission.
    sent_at: Time,
    /// A TLP may be sent if the newest transmission is not older than this: never while a TLP is
    /// outstanding, always after feedback.
    probe_from: Time,
    /// TLPs before the first RTT sample since the last timeout. Feedback does not reset the count:
    /// an ACK of nothing new gives no RTT sample, and must not postpone the RTO indefinitely.
    initial_probes: u32,
    /// A TLP or timeout since the last feedback.
    has_probed: bool,
    /// TLPs in a row that the peer answered without progress, while only responses are outstanding.
    idle_probes: u32,
    /// Timeouts in a row without feedback.
    rto_count: u32,
    /// The start of the outage, before the first timeout in a row.
    outage_since: Time,
    /// When the first timeout in a row expired, until feedback shows whether it was spurious.
    first_expiry: Option<Time>,
    rto_min: Dur,
    initial_rto: Dur,
    /// The longest timeout, whatever round trips and ACK delays are reported: an echo may be
    /// forged.
    rto_max: Dur,
    retry_cnt: u32,
    /// The retry limit is not reached before an outage of this length.
    min_outage: Dur,
    /// The margin that spurious TLPs add to the timeouts.
    pub(crate) margin: ProbeMargin,
}

/// The packets and responses outstanding after feedback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outstanding {
    /// Nothing.
    Nothing,
    /// Packets in flight, or responses after progress: a packet was acknowledged, or a response has
    /// arrived.
    Something,
    /// Only responses, as before this feedback.
    ResponsesAsBefore,
}

/// The action of an expired timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerEvent {
    /// No timer is due.
    Nothing,
    /// TLP: retransmit the newest packet with AckReq.
    Probe,
    /// RTO: presume everything in flight lost.
    Timeout,
    /// The retry limit: `retry_cnt` timeouts in a row have expired without feedback, and the outage
    /// is long enough.
    Exhausted,
}

impl Timers {
    /// Timers with the least RTO, the RTO before the first RTT sample, the timeouts in a row that
    /// do not reach the retry limit, and the least outage that does.
    pub(crate) fn new(rto_min: Dur, initial_rto: Dur, retry_cnt: u8, min_outage: Dur) -> Self {
        Self {
            idle_since: None,
            sent_at: Time::ZERO,
            probe_from: Time::ZERO,
            initial_probes: 0,
            has_probed: false,
            idle_probes: 0,
            rto_count: 0,
            outage_since: Time::ZERO,
            first_expiry: None,
            rto_min,
            initial_rto,
            rto_max: initial_rto * RTO_MAX_FACTOR,
            retry_cnt: retry_cnt.into(),
            min_outage,
            margin: ProbeMargin::default(),
        }
    }

    /// A packet was sent.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time) {
        self.idle_since.get_or_insert(now);
        self.sent_at = now;
    }

    /// Defers the TLP that [`Timers::poll_expired`] returned, because a packet that waits for the
    /// pacer elicits an ACK as well. The TLP is due two round trips after that packet.
    pub(crate) fn defer_probe(&mut self) {
        self.margin.cancel();
        self.probe_from = self.sent_at + Dur::from_ps(1);
    }

    /// Feedback arrived: an ACK, or a response if only responses are outstanding. `echo` is the
    /// send time of the packet that it echoes; `outstanding` says what is outstanding after it.
    /// True if the last timeout was spurious, because a packet sent before it was only delayed.
    pub(crate) fn on_feedback(&mut self, now: Time, echo: Time, outstanding: Outstanding) -> bool {
        let is_spurious = self.first_expiry.take().is_some_and(|expired_at| echo < expired_at);
        let in_flight = outstanding != Outstanding::Nothing;
        match outstanding {
            Outstanding::ResponsesAsBefore => self.idle_probes += u32::from(self.has_probed),
            _ => self.idle_probes = 0,
        }
        self.has_probed = false;
        self.rto_count = 0;
        self.probe_from = Time::ZERO;
        self.idle_since = in_flight.then_some(now);
        is_spurious
    }

    /// The time of the next timer. `oldest` is the send time of the oldest packet in flight.
    #[inline]
    pub(crate) fn next(&self, rtt: &Rtt, oldest: Option<Time>) -> Option<Time> {
        let timeout = self.timeout_at(rtt, oldest)?;
        Some(self.probe_at(rtt, oldest).map_or(timeout, |probe| probe.min(timeout)))
    }

    /// The timer that is due at `now`; `oldest` as in [`Timers::next`].
    pub(crate) fn poll_expired(
        &mut self,
        now: Time,
        rtt: &Rtt,
        oldest: Option<Time>,
    ) -> TimerEvent {
        if self.probe_at(rtt, oldest).is_some_and(|at| at <= now) {
            self.has_probed = true;
            self.probe_from = Time::MAX;
            self.initial_probes += 1;
            self.margin.on_probe(now, self.sent_at);
            return TimerEvent::Probe;
        }
        let is_due = self.timeout_at(rtt, oldest).is_some_and(|at| at <= now);
        let Some(since) = self.idle_since.filter(|_| is_due) else {
            return TimerEvent::Nothing;
        };
        if self.rto_count == 0 {
            self.outage_since = since;
        }
        if self.rto_count >= self.retry_cnt && now.since(self.outage_since) >= self.min_outage {
            self.idle_since = None;
            return TimerEvent::Exhausted;
        }
        // Only the first timeout in a row can be proven spurious: after it, an echo may be of a
        // packet sent between timeouts.
        if self.rto_count == 0 {
            self.first_expiry = Some(now);
        }
        self.rto_count += 1;
        self.has_probed = true;
        // Packets sent now get a TLP before the next, longer RTO.
        (self.probe_from, self.initial_probes) = (Time::ZERO, 0);
        self.idle_since = Some(now);
        TimerEvent::Timeout
    }

    /// A timeout has expired without feedback since: the window is one packet.
    pub(crate) fn is_backed_off(&self) -> bool {
        self.rto_count > 0
    }

    /// Timeouts in a row.
    pub(crate) fn rto_count(&self) -> u32 {
        self.rto_count
    }

    /// Restarts the RTO: nothing was sent that the peer could acknowledge.
    pub(crate) fn restart(&mut self, now: Time) {
        self.idle_since = self.idle_since.map(|_| now);
    }

    /// Stops both timers: nothing is outstanding, or the stream has ended.
    pub(crate) fn stop(&mut self) {
        self.idle_since = None;
    }

    /// As [`Timers::stop`], and resets the backoff and the retries.
    pub(crate) fn reset(&mut self) {
        (self.idle_since, self.first_expiry) = (None, None);
        (self.rto_count, self.initial_probes, self.probe_from) = (0, 0, Time::ZERO);
        (self.has_probed, self.idle_probes) = (false, 0);
    }

    fn probe_at(&self, rtt: &Rtt, oldest: Option<Time>) -> Option<Time> {
        let since = self.idle_since?;
        let after = match rtt.probe_timeout() {
            Some(after) if self.sent_at >= self.probe_from => {
                after + self.margin.get() + self.probe_backoff(rtt, oldest)
            }
            // No RTT sample, and a long RTO: a lost first packet, or its lost ACK, must not cost a
            // whole RTO each time. If the RTO is short, there is no TLP: a packet that is queued
            // for long would be retransmitted repeatedly.
            None if self.initial_probes < INITIAL_PROBES_MAX => {
                let first = Dur::from_ps(self.initial_rto.as_ps() / INITIAL_PROBE_FRACTION);
                Some(first).filter(|first| *first >= self.rto_min)? * (1 << self.initial_probes)
            }
            _ => return None,
        };
        Some(self.sent_at.max(since) + after)
    }

    /// The time that [`Timers::idle_probes`] add to the interval of TLPs and to the RTO.
    #[inline]
    fn probe_backoff(&self, rtt: &Rtt, oldest: Option<Time>) -> Dur {
        match self.idle_probes {
            0 => Dur::ZERO,
            n => self.backoff_after(n, rtt, oldest),
        }
    }

    /// That after `n` probes, if only responses are outstanding. Once the peer is silent the RTO
    /// has its own backoff.
    #[cold]
    #[inline(never)]
    fn backoff_after(&self, n: u32, rtt: &Rtt, oldest: Option<Time>) -> Dur {
        let Some(after) = rtt.probe_timeout().filter(|_| self.rto_count == 0 && oldest.is_none())
        else {
            return Dur::ZERO;
        };
        let factor = (1_u64 << n.min(IDLE_BACKOFF_MAX)) - 1;
        Dur::from_ps(after.as_ps().saturating_mul(factor)).min(self.rto_max)
    }

    /// The RTO's expiry: counted from the last feedback, but not from before the oldest packet in
    /// flight was sent. All packets in flight at the last feedback may have been retransmitted
    /// since.
    fn timeout_at(&self, rtt: &Rtt, oldest: Option<Time>) -> Option<Time> {
        let idle_since = self.idle_since?;
        let since = oldest.map_or(idle_since, |oldest| oldest.max(idle_since));
        let after = rtt.retransmission_timeout(self.rto_min, self.initial_rto);
        // The ACK of the TLP may be as late.
        let after = after + self.margin.get();
        if self.rto_count == 0 {
            return Some(since + after.min(self.rto_max) + self.probe_backoff(rtt, oldest));
        }
        let backed_off = after * (1 << self.rto_count.min(BACKOFF_MAX));
        Some(since + backed_off.min(self.rto_max))
    }
}

/// TLPs for each timeout before the first RTT sample. The first is due after this fraction of the
/// RTO, and each interval doubles: at 1/8, 3/8 and 7/8 of it. There is none if 1/8 is below
/// `rto_min`.
const INITIAL_PROBES_MAX: u32 = 3;
const INITIAL_PROBE_FRACTION: u64 = 8;
/// The most doublings of the interval of TLPs; its limit is the longest RTO.
const IDLE_BACKOFF_MAX: u32 = 30;
/// The most doublings of the RTO: a factor of 16. With 30 % loss each way ten timeouts in a row are
/// one in a thousand. They take 111 times the RTO; with a factor of 64 they would take 447 times.
const BACKOFF_MAX: u32 = 4;
/// The longest RTO, in multiples of the RTO before the first RTT sample, as in RC.
const RTO_MAX_FACTOR: u64 = 4;

#[cfg(test)]
mod tests {
    use super::Outstanding::{Nothing, ResponsesAsBefore, Something};
    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    fn timers() -> (Timers, Rtt) {
        let mut rtt = Rtt::default();
        for _ in 0..100 {
            rtt.sample(Dur::from_us(100), Dur::ZERO);
        }
        (Timers::new(Dur::from_us(1000), Dur::from_us(50_000), 2, Dur::from_us(7000)), rtt)
    }

    #[test]
    fn poll_expired__one_probe_precedes_the_timeout() {
        let (mut t, rtt) = timers();
        assert_eq!(t.next(&rtt, None), None);
        t.on_sent(at(0));
        t.on_sent(at(50));
        assert_eq!(t.next(&rtt, None), Some(at(250)), "two round trips after the newest");
        assert_eq!(t.poll_expired(at(249), &rtt, None), TimerEvent::Nothing);
        assert_eq!(t.poll_expired(at(250), &rtt, None), TimerEvent::Probe);
        assert_eq!(t.next(&rtt, None), Some(at(1000)), "the RTO counts from the first packet");
        assert_eq!(t.poll_expired(at(1000), &rtt, None), TimerEvent::Timeout);
        assert!(t.is_backed_off());
    }

    #[test]
    fn defer_probe__the_next_packet_is_probed() {
        let (mut t, rtt) = timers();
        t.on_sent(at(0));
        assert_eq!(t.poll_expired(at(200), &rtt, None), TimerEvent::Probe);
        t.defer_probe();
        assert_eq!(t.next(&rtt, None), Some(at(1000)), "no TLP while a packet waits for the pacer");
        t.on_sent(at(500));
        assert_eq!(t.next(&rtt, None), Some(at(700)));
        assert_eq!(t.poll_expired(at(700), &rtt, None), TimerEvent::Probe);
        t.on_sent(at(701));
        assert_eq!(t.next(&rtt, None), Some(at(1000)), "a sent TLP is the only one");
    }

    #[test]
    fn defer_probe__without_a_round_trip_the_next_probe_is_later() {
        let (mut t, rtt) = (timers().0, Rtt::default());
        t.on_sent(at(0));
        let first = t.next(&rtt, None).unwrap();
        assert_eq!(t.poll_expired(first, &rtt, None), TimerEvent::Probe);
        t.defer_probe();
        assert!(t.next(&rtt, None).unwrap() > first, "the TLP must not stay due");
    }

    #[test]
    fn poll_expired__a_retransmission_gets_its_own_round_trip() {
        let (mut t, rtt) = timers();
        t.on_sent(at(0));
        // All packets were found lost and retransmitted.
        t.on_sent(at(120));
        t.probe_from = Time::MAX;
        assert_eq!(t.next(&rtt, Some(at(120))), Some(at(1120)));
        assert_eq!(t.poll_expired(at(1000), &rtt, Some(at(120))), TimerEvent::Nothing);
        t.on_feedback(at(150), at(50), Something);
        assert_eq!(t.next(&rtt, Some(at(120))), Some(at(350)), "the TLP");
        t.probe_from = Time::MAX;
        assert_eq!(t.next(&rtt, Some(at(120))), Some(at(1150)), "counted from the last feedback");
        assert_eq!(t.poll_expired(at(1150), &rtt, Some(at(120))), TimerEvent::Timeout);
    }

    #[test]
    fn poll_expired__backs_off_until_exhausted() {
        let (mut t, rtt) = timers();
        t.on_sent(at(0));
        t.poll_expired(at(200), &rtt, None);
        for due in [1000, 3000] {
            assert_eq!(t.next(&rtt, None), Some(at(due)));
            assert_eq!(t.poll_expired(at(due), &rtt, None), TimerEvent::Timeout);
            assert_eq!(
                t.poll_expired(at(due + 200), &rtt, None),
                TimerEvent::Probe,
                "one TLP after each timeout"
            );
        }
        assert_eq!(t.next(&rtt, None), Some(at(7000)));
        assert_eq!(t.poll_expired(at(7000), &rtt, None), TimerEvent::Exhausted);
        assert_eq!(t.next(&rtt, None), None);
    }

    #[test]
    fn poll_expired__is_not_exhausted_before_the_minimum_outage() {
        let (mut t, rtt) = timers();
        t.min_outage = Dur::from_us(100_000);
        t.on_sent(at(0));
        let mut exhausted_at = None;
        while exhausted_at.is_none() {
            let due = t.next(&rtt, None).unwrap();
            exhausted_at =
                (t.poll_expired(due, &rtt, None) == TimerEvent::Exhausted).then_some(due);
        }
        assert_eq!(exhausted_at, Some(at(111_000)), "1 + 2 + 4 + 8 + 6 * 16 ms");
    }

    #[test]
    fn on_feedback__resets_the_backoff_and_reports_a_spurious_timeout() {
        let (mut t, rtt) = timers();
        t.on_sent(at(0));
        t.poll_expired(at(200), &rtt, None);
        t.poll_expired(at(1000), &rtt, None);
        t.on_sent(at(1001));
        assert!(
            t.on_feedback(at(1100), at(0), Something),
            "a packet sent before the timeout arrived"
        );
        assert!(!t.on_feedback(at(1200), at(1001), Something), "reported once");
        assert!(!t.is_backed_off());
        assert_eq!(t.next(&rtt, None), Some(at(1400)));
        assert!(!t.on_feedback(at(1300), at(1001), Nothing));
        assert_eq!(t.next(&rtt, None), None, "nothing is in flight");
    }

    #[test]
    fn on_feedback__without_progress_doubles_the_interval_of_probes() {
        let (mut t, rtt) = timers();
        t.on_sent(at(0));
        t.on_feedback(at(100), at(0), Something);
        let mut now = at(100);
        // The longest RTO is 200 ms.
        for interval in [200, 400, 800, 1_600, 3_200, 6_400] {
            let due = t.next(&rtt, None).unwrap();
            assert_eq!(due, now + Dur::from_us(interval));
            assert_eq!(t.poll_expired(due, &rtt, None), TimerEvent::Probe);
            t.on_sent(due);
            now = due + Dur::from_us(100);
            t.on_feedback(now, due, ResponsesAsBefore);
            // ACKs that no probe elicited do not count.
            t.on_feedback(now, due, ResponsesAsBefore);
        }
        // A packet in flight has its own TLP and RTO.
        assert_eq!(t.next(&rtt, Some(now)), Some(now + Dur::from_us(200)));
        // The RTO follows the probe, as long after it as ever, and then has its own backoff.
        let probe = t.next(&rtt, None).unwrap();
        assert_eq!(t.poll_expired(probe, &rtt, None), TimerEvent::Probe);
        let timeout = t.next(&rtt, None).unwrap();
        assert_eq!(timeout, probe + Dur::from_us(800));
        assert_eq!(t.poll_expired(timeout, &rtt, None), TimerEvent::Timeout);
        t.on_feedback(timeout, at(0), Something);
        assert_eq!(t.next(&rtt, None), Some(timeout + Dur::from_us(200)), "progress");
    }

    #[test]
    fn probe_at__never_waits_longer_than_the_longest_timeout() {
        let (mut t, rtt) = timers();
        t.on_sent(at(0));
        for _ in 0..100 {
            let due = t.next(&rtt, None).unwrap();
            assert!(due.since(t.sent_at) <= t.rto_max + Dur::from_us(200));
            assert_eq!(t.poll_expired(due, &rtt, None), TimerEvent::Probe);
            t.on_sent(due);
            t.on_feedback(due, due, ResponsesAsBefore);
        }
    }

    #[test]
    fn poll_expired__without_a_round_trip_sends_three_probes_per_timeout() {
        let (mut t, _) = timers();
        let rtt = Rtt::default();
        t.on_sent(at(0));
        for (begin, timeout) in [(0, 50_000), (50_000, 150_000)] {
            for after in [6_250, 18_750, 43_750] {
                assert_eq!(t.next(&rtt, None), Some(at(begin + after)));
                assert_eq!(t.poll_expired(at(begin + after), &rtt, None), TimerEvent::Probe);
                t.on_sent(at(begin + after));
            }
            assert_eq!(t.next(&rtt, None), Some(at(timeout)));
            assert_eq!(t.poll_expired(at(timeout), &rtt, None), TimerEvent::Timeout);
            t.on_sent(at(timeout));
        }
    }

    #[test]
    fn on_feedback__without_a_round_trip_does_not_postpone_the_timeout_for_ever() {
        let (mut t, _) = timers();
        let rtt = Rtt::default();
        t.on_sent(at(0));
        let mut fired = Vec::new();
        while fired.last() != Some(&TimerEvent::Timeout) {
            let due = t.next(&rtt, None).unwrap();
            fired.push(t.poll_expired(due, &rtt, None));
            t.on_sent(due);
            // Each TLP elicits an ACK of nothing new.
            t.on_feedback(due, at(0), Something);
        }
        assert_eq!(
            fired,
            [TimerEvent::Probe, TimerEvent::Probe, TimerEvent::Probe, TimerEvent::Timeout]
        );
    }
}
