//! Loss recovery of RC, go-back-N: the retransmission timer (local ACK timeout), RNR waits, the
//! retry counts, and the start of the current recovery.

use crate::attr::QpAttr;
use crate::qp::timeouts::{RNR_RETRY_INFINITE, ack_timeout, rnr_wait};
use crate::timer::earlier;
use spanwire_base::{Dur, Time};

/// Timers and retry counts of one queue pair.
#[derive(Debug)]
pub(crate) struct Loss {
    /// Local ACK timeout; `None` is infinite.
    timeout: Option<Dur>,
    retry_cnt: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_retries_left: u8,
    /// Consecutive timeouts without progress.
    timeouts: u32,
    /// Expiry of the retransmission timer.
    deadline: Option<Time>,
    /// End of the RNR wait, before which no request leaves.
    rnr_until: Option<Time>,
    /// The number from which the current loss recovery retransmits. Until progress is made, a
    /// further NAK of this number reports the same loss.
    recovering_from: Option<u64>,
}

/// The action that an expired timer or an RNR NAK requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerEvent {
    /// Nothing was due.
    Nothing,
    /// Retransmit from the oldest unacknowledged packet.
    Retransmit,
    /// The RNR wait has ended.
    Resume,
    /// The retry count is exhausted.
    Exhausted,
}

impl Loss {
    pub(crate) fn new() -> Self {
        Self {
            timeout: None,
            retry_cnt: 0,
            rnr_retry: 0,
            retries_left: 0,
            rnr_retries_left: 0,
            timeouts: 0,
            deadline: None,
            rnr_until: None,
            recovering_from: None,
        }
    }

    /// Takes timeout and retry counts from the RTR to RTS transition.
    pub(crate) fn start(&mut self, attr: &QpAttr) {
        let exponent = attr.timeout.unwrap_or(0);
        *self = Self::new();
        self.timeout = (exponent > 0).then(|| ack_timeout(exponent));
        self.retry_cnt = attr.retry_cnt.unwrap_or(0);
        self.rnr_retry = attr.rnr_retry.unwrap_or(0);
        self.reset_retries();
    }

    /// Applies attributes that a drained send queue may change; `None` keeps one.
    pub(crate) fn modify(&mut self, attr: &QpAttr) {
        if let Some(exponent) = attr.timeout {
            self.timeout = (exponent > 0).then(|| ack_timeout(exponent));
        }
        self.retry_cnt = attr.retry_cnt.unwrap_or(self.retry_cnt);
        self.rnr_retry = attr.rnr_retry.unwrap_or(self.rnr_retry);
        self.reset_retries();
    }

    /// The local ACK timeout; `None` is infinite.
    pub(crate) fn timeout(&self) -> Option<Dur> {
        self.timeout
    }

    /// A request packet left. The timer runs from the first one that is outstanding.
    pub(crate) fn on_sent(&mut self, now: Time) {
        if self.deadline.is_none() {
            self.deadline = self.timeout.map(|t| now + t);
        }
    }

    /// Progress: something new was acknowledged. `outstanding`: something else still is not.
    pub(crate) fn on_progress(&mut self, now: Time, outstanding: bool) {
        self.reset_retries();
        self.timeouts = 0;
        self.recovering_from = None;
        self.rnr_until = None;
        self.deadline = self.timeout.filter(|_| outstanding).map(|t| now + t);
    }

    /// Begins loss recovery from `number`. False if that recovery is already in progress.
    pub(crate) fn begin_recovery(&mut self, number: u64) -> bool {
        if self.recovering_from == Some(number) {
            return false;
        }
        self.recovering_from = Some(number);
        true
    }

    /// Handles an RNR NAK of `number` with the 5-bit code `timer`. Returns
    /// [`TimerEvent::Exhausted`] if the RNR retry count is exhausted, [`TimerEvent::Nothing`] for a
    /// repeated RNR NAK, else [`TimerEvent::Retransmit`].
    pub(crate) fn on_rnr(&mut self, now: Time, number: u64, timer: u8) -> TimerEvent {
        if self.rnr_until.is_some() {
            return TimerEvent::Nothing;
        }
        if self.rnr_retry < RNR_RETRY_INFINITE {
            if self.rnr_retries_left == 0 {
                return TimerEvent::Exhausted;
            }
            self.rnr_retries_left -= 1;
        }
        // The peer responds, so earlier timeouts no longer count.
        (self.retries_left, self.timeouts) = (self.retry_cnt, 0);
        self.recovering_from = Some(number);
        self.rnr_until = Some(now + rnr_wait(timer));
        self.deadline = None;
        TimerEvent::Retransmit
    }

    /// Handles the timers that are due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> TimerEvent {
        if self.rnr_until.is_some_and(|t| t <= now) {
            self.rnr_until = None;
            return TimerEvent::Resume;
        }
        if self.deadline.is_none_or(|t| t > now) {
            return TimerEvent::Nothing;
        }
        if self.retries_left == 0 {
            self.deadline = None;
            return TimerEvent::Exhausted;
        }
        self.retries_left -= 1;
        self.timeouts += 1;
        // IBTA allows expiry between one and four times the timeout. The backoff doubles after each
        // timeout, up to four, for a peer whose core is busy.
        let factor = 1 << self.timeouts.min(2);
        self.deadline = self.timeout.map(|t| now + t * factor);
        TimerEvent::Retransmit
    }

    /// The timer expired while nothing was in flight: restarts it, without using a retry.
    pub(crate) fn on_stalled(&mut self, now: Time) {
        if self.deadline.is_some_and(|t| t <= now) {
            self.deadline = self.timeout.map(|t| now + t);
        }
    }

    /// The next deadline for [`Loss::handle_timeout`].
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        earlier(self.rnr_until, self.deadline)
    }

    /// The local ACK timeout is finite.
    pub(crate) fn has_timeout(&self) -> bool {
        self.timeout.is_some()
    }

    /// Requests wait for the end of an RNR wait.
    pub(crate) fn is_rnr_waiting(&self) -> bool {
        self.rnr_until.is_some()
    }

    /// Consecutive timeouts.
    pub(crate) fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// A timeout occurred without progress since: only one packet may be in flight, as a probe.
    pub(crate) fn is_probing(&self) -> bool {
        self.timeouts > 0
    }

    /// Stops all timers.
    pub(crate) fn stop(&mut self) {
        (self.deadline, self.rnr_until, self.recovering_from) = (None, None, None);
    }

    fn reset_retries(&mut self) {
        self.retries_left = self.retry_cnt;
        self.rnr_retries_left = self.rnr_retry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_wire::Psn;

    fn loss(timeout: u8, retry_cnt: u8, rnr_retry: u8) -> Loss {
        let mut l = Loss::new();
        let base = QpAttr::rts(Psn::new(0));
        l.start(&QpAttr {
            timeout: Some(timeout),
            retry_cnt: Some(retry_cnt),
            rnr_retry: Some(rnr_retry),
            ..base
        });
        l
    }

    fn ms(n: u64) -> Time {
        Time::ZERO + Dur::from_ms(n)
    }

    #[test]
    fn handle_timeout__retry_cnt_3_means_four_transmissions() {
        let mut l = loss(12, 3, 7);
        let mut now = Time::ZERO;
        l.on_sent(now);
        let mut transmissions = 1;
        loop {
            now = l.next_deadline().unwrap();
            match l.handle_timeout(now) {
                TimerEvent::Retransmit => transmissions += 1,
                TimerEvent::Exhausted => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(transmissions, 4);
        assert_eq!(l.next_deadline(), None);
        // 16.8 ms * (1 + 2 + 4 + 4): each wait within four times the timeout.
        assert_eq!(now.since(Time::ZERO).as_ms(), 184);
    }

    #[test]
    fn on_progress__restores_all_retries() {
        let mut l = loss(12, 1, 7);
        l.on_sent(ms(0));
        assert_eq!(l.handle_timeout(ms(17)), TimerEvent::Retransmit);
        assert!(l.is_probing());
        l.on_progress(ms(18), true);
        assert!(!l.is_probing());
        assert_eq!(l.handle_timeout(ms(19)), TimerEvent::Nothing);
        assert_eq!(l.handle_timeout(ms(40)), TimerEvent::Retransmit);
        l.on_progress(ms(41), false);
        assert_eq!(l.next_deadline(), None, "nothing outstanding, no timer");
    }

    #[test]
    fn on_sent__does_not_restart_the_timer() {
        let mut l = loss(12, 1, 7);
        l.on_sent(ms(0));
        let armed = l.next_deadline();
        l.on_sent(ms(10));
        assert_eq!(l.next_deadline(), armed);
    }

    #[test]
    fn start__timeout_zero_is_infinite() {
        let mut l = loss(0, 7, 7);
        l.on_sent(ms(0));
        assert_eq!(l.next_deadline(), None);
    }

    #[test]
    fn begin_recovery__once_until_progress() {
        let mut l = loss(12, 1, 7);
        assert!(l.begin_recovery(5));
        assert!(!l.begin_recovery(5));
        assert!(l.begin_recovery(6));
        l.on_progress(ms(1), true);
        assert!(l.begin_recovery(6));
    }

    #[test]
    fn on_rnr__counts_down_and_waits() {
        let mut l = loss(12, 1, 2);
        assert_eq!(l.on_rnr(ms(0), 3, 14), TimerEvent::Retransmit);
        assert!(l.is_rnr_waiting());
        assert_eq!(
            l.on_rnr(ms(1), 3, 14),
            TimerEvent::Nothing,
            "a repeated RNR NAK costs no retry"
        );
        assert!(!l.begin_recovery(3), "a NAK after an RNR NAK reports the same loss");
        assert_eq!(l.handle_timeout(ms(1)), TimerEvent::Nothing);
        assert_eq!(l.handle_timeout(ms(2)), TimerEvent::Resume);
        assert_eq!(l.on_rnr(ms(2), 3, 14), TimerEvent::Retransmit);
        assert_eq!(l.handle_timeout(ms(4)), TimerEvent::Resume);
        assert_eq!(l.on_rnr(ms(4), 3, 14), TimerEvent::Exhausted);
    }

    #[test]
    fn on_rnr__seven_never_gives_up() {
        let mut l = loss(12, 1, 7);
        for i in 0..100 {
            assert_eq!(l.on_rnr(ms(i * 2), 3, 1), TimerEvent::Retransmit);
            assert_eq!(l.handle_timeout(ms(i * 2 + 1)), TimerEvent::Resume);
        }
    }

    #[test]
    fn on_rnr__proves_that_the_peer_responds() {
        let mut l = loss(12, 1, 7);
        l.on_sent(ms(0));
        assert_eq!(l.handle_timeout(ms(17)), TimerEvent::Retransmit);
        assert_eq!(l.on_rnr(ms(18), 0, 1), TimerEvent::Retransmit);
        assert!(!l.is_probing());
        assert_eq!(l.handle_timeout(ms(19)), TimerEvent::Resume);
        l.on_sent(ms(19));
        assert_eq!(l.handle_timeout(ms(40)), TimerEvent::Retransmit, "its retry is restored");
        assert_eq!(l.handle_timeout(ms(80)), TimerEvent::Exhausted);
    }

    #[test]
    fn on_stalled__restarts_the_timer_without_a_retry() {
        let mut l = loss(12, 0, 7);
        l.on_sent(ms(0));
        let armed = l.next_deadline().unwrap();
        l.on_stalled(ms(1));
        assert_eq!(l.next_deadline(), Some(armed), "not due yet");
        l.on_stalled(armed);
        assert!(l.next_deadline() > Some(armed));
        assert_eq!(l.handle_timeout(ms(100)), TimerEvent::Exhausted);
    }
}
