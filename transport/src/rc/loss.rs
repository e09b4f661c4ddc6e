//! What happens when nothing, or a refusal, comes back: the retransmission timer, the retry counts
//! and where recovery has begun (*what if lost*). Go-back-N, as RC has it on the wire.

use crate::attr::QpAttr;
use crate::qp::timeouts::{RNR_RETRY_INFINITE, ack_timeout, rnr_wait};
use crate::timer::earlier;
use spanwire_base::{Dur, Time};

/// Timers and budgets of one queue pair's recovery.
#[derive(Debug)]
pub(crate) struct Loss {
    /// Local ACK timeout; `None` waits for ever.
    timeout: Option<Dur>,
    retry_cnt: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_retries_left: u8,
    /// Timeouts in a row without progress.
    timeouts: u32,
    /// When the retransmission timer fires.
    deadline: Option<Time>,
    /// No request leaves before this: the peer was not ready.
    rnr_until: Option<Time>,
    /// Recovery from this number has begun and nothing was acknowledged since: a second report of
    /// the same loss is an echo.
    recovering_from: Option<u64>,
}

/// What a timer that fired asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerEvent {
    /// Nothing was due.
    Nothing,
    /// Send again from the oldest packet not acknowledged.
    Retransmit,
    /// The wait that the peer asked for is over.
    Resume,
    /// The retry count is used up.
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

    /// Takes over what a drained queue pair is given; what is `None` stays.
    pub(crate) fn change(&mut self, attr: &QpAttr) {
        if let Some(exponent) = attr.timeout {
            self.timeout = (exponent > 0).then(|| ack_timeout(exponent));
        }
        self.retry_cnt = attr.retry_cnt.unwrap_or(self.retry_cnt);
        self.rnr_retry = attr.rnr_retry.unwrap_or(self.rnr_retry);
        self.reset_retries();
    }

    /// A request packet left: the timer runs from the first one that is outstanding.
    pub(crate) fn on_sent(&mut self, now: Time) {
        if self.deadline.is_none() {
            self.deadline = self.timeout.map(|t| now + t);
        }
    }

    /// Something new was acknowledged; `outstanding` says whether something else still is.
    pub(crate) fn on_progress(&mut self, now: Time, outstanding: bool) {
        self.reset_retries();
        self.timeouts = 0;
        self.recovering_from = None;
        self.rnr_until = None;
        self.deadline = self.timeout.filter(|_| outstanding).map(|t| now + t);
    }

    /// Says whether recovery from `number` should begin now, and takes note that it does.
    pub(crate) fn begin_recovery(&mut self, number: u64) -> bool {
        if self.recovering_from == Some(number) {
            return false;
        }
        self.recovering_from = Some(number);
        true
    }

    /// The peer was not ready for `number` and names a wait. Returns [`TimerEvent::Exhausted`] when the
    /// RNR retry count is used up, [`TimerEvent::Nothing`] for an echo, else [`TimerEvent::Retransmit`].
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
        // The peer is there: what was lost on the way before counts no more.
        (self.retries_left, self.timeouts) = (self.retry_cnt, 0);
        self.recovering_from = Some(number);
        self.rnr_until = Some(now + rnr_wait(timer));
        self.deadline = None;
        TimerEvent::Retransmit
    }

    /// Does what is due at `now`.
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
        // IBTA lets the timer fire anywhere between one and four times the timeout: twice as late
        // after each silence gives a peer that lost its core time to come back.
        let factor = 1 << self.timeouts.min(2);
        self.deadline = self.timeout.map(|t| now + t * factor);
        TimerEvent::Retransmit
    }

    /// The timer may fire, but nothing is out that could be answered: looks again later, at no cost
    /// in retries.
    pub(crate) fn on_stalled(&mut self, now: Time) {
        if self.deadline.is_some_and(|t| t <= now) {
            self.deadline = self.timeout.map(|t| now + t);
        }
    }

    /// When [`Loss::handle_timeout`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        earlier(self.rnr_until, self.deadline)
    }

    /// It gives up waiting at some time.
    pub(crate) fn has_timeout(&self) -> bool {
        self.timeout.is_some()
    }

    /// Requests must wait because the peer was not ready.
    pub(crate) fn is_rnr_waiting(&self) -> bool {
        self.rnr_until.is_some()
    }

    /// How many times in a row the timer has fired.
    pub(crate) fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// The peer has been silent: only one packet may ask until it answers.
    pub(crate) fn is_probing(&self) -> bool {
        self.timeouts > 0
    }

    /// Nothing is outstanding any more, or the queue pair has stopped.
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
    fn on_progress__gives_all_retries_back() {
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
    fn on_sent__does_not_push_the_timer_out() {
        let mut l = loss(12, 1, 7);
        l.on_sent(ms(0));
        let armed = l.next_deadline();
        l.on_sent(ms(10));
        assert_eq!(l.next_deadline(), armed);
    }

    #[test]
    fn start__timeout_zero_waits_for_ever() {
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
        assert_eq!(l.on_rnr(ms(1), 3, 14), TimerEvent::Nothing, "an echo costs no retry");
        assert!(!l.begin_recovery(3), "the NAK that follows an RNR NAK says nothing new");
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
    fn on_rnr__shows_that_the_peer_is_there() {
        let mut l = loss(12, 1, 7);
        l.on_sent(ms(0));
        assert_eq!(l.handle_timeout(ms(17)), TimerEvent::Retransmit);
        assert_eq!(l.on_rnr(ms(18), 0, 1), TimerEvent::Retransmit);
        assert!(!l.is_probing());
        assert_eq!(l.handle_timeout(ms(19)), TimerEvent::Resume);
        l.on_sent(ms(19));
        assert_eq!(l.handle_timeout(ms(40)), TimerEvent::Retransmit, "its retry is back");
        assert_eq!(l.handle_timeout(ms(80)), TimerEvent::Exhausted);
    }

    #[test]
    fn on_stalled__waits_on_without_a_retry() {
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
