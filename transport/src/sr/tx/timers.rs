//! When silence means something: the probe of the tail, and the retransmission timeout.

use super::margin::ProbeMargin;
use super::rtt::Rtt;
use spanwire_base::{Dur, Time};

/// The timers of a stream that has packets in flight.
///
/// Loss among packets is found by time as others arrive ([`super::sent`]). Two things are left for
/// when nothing arrives. After two round trips the newest packet goes out again and asks for an
/// answer: a lost tail, or a lost acknowledgement of it, costs no more than that. After the
/// retransmission timeout everything counts as lost, once; the time doubles until something is
/// heard.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Nothing has been heard since; none while nothing is in flight.
    idle_since: Option<Time>,
    /// The newest transmission.
    sent_at: Time,
    /// A probe may be sent if the newest transmission is not older: never while a probe is
    /// outstanding, always after the peer was heard.
    probe_from: Time,
    /// Probes without knowing a round trip since the last timeout, whatever was heard: what tells
    /// nothing new gives no round trip either, and must not put the timeout off for ever.
    initial_probes: u32,
    /// Timeouts in a row.
    rto_count: u32,
    /// The silence began: what the verdict counts from.
    outage_since: Time,
    /// When the last of them was, while it may still turn out needless.
    first_expiry: Option<Time>,
    rto_min: Dur,
    initial_rto: Dur,
    /// The longest timeout, whatever round trips and ACK delays are reported: an echo may be
    /// forged.
    rto_max: Dur,
    retry_cnt: u32,
    /// No verdict before so long a silence.
    min_outage: Dur,
    /// What spurious probes have added to the timeouts.
    pub(crate) margin: ProbeMargin,
}

/// What a timer that fired asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerEvent {
    /// Nothing was due.
    Nothing,
    /// Send the newest packet again, and ask.
    Probe,
    /// Everything in flight is lost.
    Timeout,
    /// The peer is gone: as many timeouts as retries have passed without a word from it, and as
    /// much time as a peer may be away.
    Exhausted,
}

impl Timers {
    /// Timers with a floor for the timeout, the timeout before a round trip is known, how many
    /// timeouts in a row are still no verdict, and how long a silence.
    pub(crate) fn new(rto_min: Dur, initial_rto: Dur, retry_cnt: u8, min_outage: Dur) -> Self {
        Self {
            idle_since: None,
            sent_at: Time::ZERO,
            probe_from: Time::ZERO,
            initial_probes: 0,
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

    /// A packet left.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time) {
        self.idle_since.get_or_insert(now);
        self.sent_at = now;
    }

    /// The probe that [`Timers::poll_expired`] returned is not sent, because a packet waits for the
    /// pacer and elicits an ACK as well. The probe is due again two round trips after that packet.
    pub(crate) fn defer_probe(&mut self) {
        self.margin.cancel();
        self.probe_from = self.sent_at + Dur::from_ps(1);
    }

    /// The peer was heard. `echo` is when what it tells of was sent, `in_flight` whether anything
    /// still is. Returns true when the last timeout was needless: its packets were only slow.
    pub(crate) fn on_feedback(&mut self, now: Time, echo: Time, in_flight: bool) -> bool {
        let is_spurious = self.first_expiry.take().is_some_and(|rto_count| echo < rto_count);
        self.rto_count = 0;
        self.probe_from = Time::ZERO;
        self.idle_since = in_flight.then_some(now);
        is_spurious
    }

    /// When [`Timers::poll_expired`] has something to do. `oldest` is the time of the oldest
    /// transmission in flight.
    #[inline]
    pub(crate) fn next(&self, rtt: &Rtt, oldest: Option<Time>) -> Option<Time> {
        let timeout = self.timeout_at(rtt, oldest)?;
        Some(self.probe_at(rtt).map_or(timeout, |probe| probe.min(timeout)))
    }

    /// What is due at `now`; `oldest` as in [`Timers::next`].
    pub(crate) fn poll_expired(
        &mut self,
        now: Time,
        rtt: &Rtt,
        oldest: Option<Time>,
    ) -> TimerEvent {
        if self.probe_at(rtt).is_some_and(|at| at <= now) {
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
        // Only the first of a row can be told needless: what is sent after it muddles the echo.
        if self.rto_count == 0 {
            self.first_expiry = Some(now);
        }
        self.rto_count += 1;
        // What is sent now gets a second chance before the next, longer, timeout.
        (self.probe_from, self.initial_probes) = (Time::ZERO, 0);
        self.idle_since = Some(now);
        TimerEvent::Timeout
    }

    /// The peer is silent: one packet at a time until it is heard.
    pub(crate) fn is_backed_off(&self) -> bool {
        self.rto_count > 0
    }

    /// How many timeouts there were in a row.
    pub(crate) fn rto_count(&self) -> u32 {
        self.rto_count
    }

    /// Nothing left since then, by no fault of the peer: the silence begins now.
    pub(crate) fn restart(&mut self, now: Time) {
        self.idle_since = self.idle_since.map(|_| now);
    }

    /// Everything has arrived, or the stream has ended.
    pub(crate) fn stop(&mut self) {
        self.idle_since = None;
    }

    /// As [`Timers::stop`], and what is sent next begins with all its retries.
    pub(crate) fn reset(&mut self) {
        (self.idle_since, self.first_expiry) = (None, None);
        (self.rto_count, self.initial_probes, self.probe_from) = (0, 0, Time::ZERO);
    }

    fn probe_at(&self, rtt: &Rtt) -> Option<Time> {
        let since = self.idle_since?;
        let after = match rtt.probe_timeout() {
            Some(after) if self.sent_at >= self.probe_from => after + self.margin.get(),
            // Nobody knows how long to wait, and the timeout is long: a first packet that is lost,
            // or its answer, must not cost all of it each time. A short one is soon over, and what
            // queues up behind others would be sent again and again.
            None if self.initial_probes < INITIAL_PROBES_MAX => {
                let first = Dur::from_ps(self.initial_rto.as_ps() / INITIAL_PROBE_FRACTION);
                Some(first).filter(|first| *first >= self.rto_min)? * (1 << self.initial_probes)
            }
            _ => return None,
        };
        Some(self.sent_at.max(since) + after)
    }

    /// The RTO counts from the last ACK, but not from before the oldest transmission in flight: all
    /// earlier ones may have been detected as lost and retransmitted.
    fn timeout_at(&self, rtt: &Rtt, oldest: Option<Time>) -> Option<Time> {
        let idle_since = self.idle_since?;
        let since = oldest.map_or(idle_since, |oldest| oldest.max(idle_since));
        let after = rtt.retransmission_timeout(self.rto_min, self.initial_rto);
        // The ACK of the probe may be as late.
        let after = after + self.margin.get();
        if self.rto_count == 0 {
            return Some(since + after.min(self.rto_max));
        }
        let backed_off = after * (1 << self.rto_count.min(BACKOFF_MAX));
        Some(since + backed_off.min(self.rto_max))
    }
}

/// Probes for each timeout before a round trip is known, the first after this part of the timeout
/// and each after twice as long as the last: 1/8, 3/8 and 7/8 of it, unless the eighth is below the
/// timeout's floor.
const INITIAL_PROBES_MAX: u32 = 3;
const INITIAL_PROBE_FRACTION: u64 = 8;
/// Doublings of the timeout: 64 times.
const BACKOFF_MAX: u32 = 6;
/// But no more than so many times the timeout before a round trip is known: as RC waits.
const RTO_MAX_FACTOR: u64 = 4;

#[cfg(test)]
mod tests {
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
        assert_eq!(t.next(&rtt, None), Some(at(1000)), "since the oldest");
        assert_eq!(t.poll_expired(at(1000), &rtt, None), TimerEvent::Timeout);
        assert!(t.is_backed_off());
    }

    #[test]
    fn defer_probe__the_next_packet_is_probed() {
        let (mut t, rtt) = timers();
        t.on_sent(at(0));
        assert_eq!(t.poll_expired(at(200), &rtt, None), TimerEvent::Probe);
        t.defer_probe();
        assert_eq!(t.next(&rtt, None), Some(at(1000)), "no probe while it waits");
        t.on_sent(at(500));
        assert_eq!(t.next(&rtt, None), Some(at(700)));
        assert_eq!(t.poll_expired(at(700), &rtt, None), TimerEvent::Probe);
        t.on_sent(at(701));
        assert_eq!(t.next(&rtt, None), Some(at(1000)), "one probe, if it was sent");
    }

    #[test]
    fn defer_probe__without_a_round_trip_the_next_probe_is_later() {
        let (mut t, rtt) = (timers().0, Rtt::default());
        t.on_sent(at(0));
        let first = t.next(&rtt, None).unwrap();
        assert_eq!(t.poll_expired(first, &rtt, None), TimerEvent::Probe);
        t.defer_probe();
        assert!(t.next(&rtt, None).unwrap() > first, "not due for ever");
    }

    #[test]
    fn poll_expired__a_retransmission_gets_its_own_round_trip() {
        let (mut t, rtt) = timers();
        t.on_sent(at(0));
        // All of it was found lost, and left again.
        t.on_sent(at(120));
        t.probe_from = Time::MAX;
        assert_eq!(t.next(&rtt, Some(at(120))), Some(at(1120)));
        assert_eq!(t.poll_expired(at(1000), &rtt, Some(at(120))), TimerEvent::Nothing);
        t.on_feedback(at(150), at(50), true);
        assert_eq!(t.next(&rtt, Some(at(120))), Some(at(350)), "the probe");
        t.probe_from = Time::MAX;
        assert_eq!(t.next(&rtt, Some(at(120))), Some(at(1150)), "since the last word");
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
                "once after each"
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
        assert_eq!(exhausted_at, Some(at(127_000)), "1 + 2 + 4 ... + 64 ms");
    }

    #[test]
    fn on_feedback__resets_the_backoff_and_reports_a_spurious_timeout() {
        let (mut t, rtt) = timers();
        t.on_sent(at(0));
        t.poll_expired(at(200), &rtt, None);
        t.poll_expired(at(1000), &rtt, None);
        t.on_sent(at(1001));
        assert!(t.on_feedback(at(1100), at(0), true), "what was sent before the timeout arrived");
        assert!(!t.on_feedback(at(1200), at(1001), true), "told once");
        assert!(!t.is_backed_off());
        assert_eq!(t.next(&rtt, None), Some(at(1400)));
        assert!(!t.on_feedback(at(1300), at(1001), false));
        assert_eq!(t.next(&rtt, None), None, "nothing is in flight");
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
            // Each probe is answered, with nothing new.
            t.on_feedback(due, at(0), true);
        }
        assert_eq!(
            fired,
            [TimerEvent::Probe, TimerEvent::Probe, TimerEvent::Probe, TimerEvent::Timeout]
        );
    }
}
