//! One subflow: its path, and the liveness of the path.

use crate::rtt::{Rtt, towards};
use crate::{Entropy, PathAck, PathLoss};
use spanwire_base::{Dur, Time};

/// One subflow. A reroute resets all state of its path.
#[derive(Clone, Debug)]
pub(super) struct Subflow {
    pub(super) entropy: Entropy,
    pub(super) moved_at: Option<Time>,
    /// The time of the last feedback about this path.
    pub(super) feedback_at: Option<Time>,
    /// The RTT of this path.
    pub(super) rtt: Rtt,
    /// The interval between two packets of the subflow, smoothed.
    gap: Dur,
    sent_at: Option<Time>,
    /// Packets in flight, by acknowledgements and losses.
    outstanding: u64,
    unacked_times: SendTimes,
    /// The send time of the newest packet that arrived.
    arrived: Option<Time>,
    /// Packets lost since the last arrival of a packet sent later.
    lost_in_row: u32,
    /// The send time of the first of these.
    lost_from: Time,
}

/// The thresholds for silence and losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The round trip of this path.
    pub(super) rtt: Dur,
    /// The base round trip of the flow.
    pub(super) base: Dur,
    /// How late hosts process packets.
    pub(super) lateness: Dur,
    /// Consecutive lost packets.
    pub(super) lost_in_row: u32,
}

impl Subflow {
    pub(super) fn new(entropy: Entropy) -> Self {
        Self {
            entropy,
            moved_at: None,
            feedback_at: None,
            rtt: Rtt::default(),
            gap: Dur::ZERO,
            sent_at: None,
            outstanding: 0,
            unacked_times: SendTimes::default(),
            arrived: None,
            lost_in_row: 0,
            lost_from: Time::ZERO,
        }
    }

    /// Reroutes to another path.
    pub(super) fn reroute_to(&mut self, entropy: Entropy, now: Time) {
        *self = Self { gap: self.gap, moved_at: Some(now), ..Self::new(entropy) };
    }

    /// A packet leaves; a round trip takes about `rtt`.
    pub(super) fn on_sent(&mut self, now: Time, rtt: Dur) {
        if let Some(last) = self.sent_at {
            // A pause is not a sample of the packet interval.
            let gap = now.since(last).min(rtt);
            self.gap = Dur::from_ps(towards(self.gap.as_ps(), gap.as_ps(), 8));
            if now > last + rtt * IDLE_RTTS {
                // Nothing can be in flight any more, reported or not.
                self.outstanding = 0;
            }
        }
        if self.outstanding == 0 {
            self.unacked_times = SendTimes::default();
        }
        self.unacked_times.push(now, rtt / SEND_TIMES_EACH_RTT);
        self.outstanding += 1;
        self.sent_at = Some(now);
    }

    pub(super) fn on_ack(&mut self, now: Time, ack: &PathAck) {
        self.outstanding = self.outstanding.saturating_sub(u64::from(ack.packets));
        self.feedback_at = Some(now);
        self.arrived = self.arrived.max(Some(ack.sent_at));
        self.unacked_times.arrived(ack.sent_at, self.sent_at);
        if ack.sent_at >= self.lost_from {
            self.lost_in_row = 0;
        }
        if let Some(rtt) = ack.rtt {
            self.rtt.sample(rtt);
        }
    }

    pub(super) fn on_loss(&mut self, loss: &PathLoss) {
        self.outstanding = self.outstanding.saturating_sub(u64::from(loss.packets));
        // A packet sent with it or later has arrived: the path is not the cause.
        if self.arrived.is_some_and(|arrived| arrived >= loss.sent_at) {
            return;
        }
        if self.lost_in_row == 0 {
            self.lost_from = loss.sent_at;
        }
        self.lost_in_row = self.lost_in_row.saturating_add(loss.packets);
    }

    /// Applies a retransmission timeout. Counts as a loss if packets are in flight, in addition to
    /// the losses reported with it.
    pub(super) fn on_timeout(&mut self) {
        let Some(first) = self.unacked_times.first().filter(|_| self.outstanding > 0) else {
            return;
        };
        if self.lost_in_row == 0 {
            self.lost_from = first;
        }
        self.lost_in_row = self.lost_in_row.saturating_add(1);
    }

    /// The send time of the newest packet that arrived.
    pub(super) fn arrived(&self) -> Option<Time> {
        self.arrived
    }

    /// Packets were lost on it, and none sent after them has arrived.
    pub(super) fn is_suspect(&self) -> bool {
        self.lost_in_row > 0
    }

    /// The send time of the first packet of the current losses.
    pub(super) fn lost_from(&self) -> Time {
        self.lost_from
    }

    /// It is suspect, and silent or above the loss limit.
    pub(super) fn is_bad(&self, now: Time, limits: &Limits) -> bool {
        // A path without any feedback so far gets half the limit.
        let unproven = self.feedback_at.is_none();
        let row = if unproven { limits.lost_in_row.div_ceil(2) } else { limits.lost_in_row };
        self.is_suspect() && (self.lost_in_row >= row || self.is_silent(now, limits))
    }

    /// Packets are in flight, and an acknowledgement has been due for longer than half a base
    /// round trip, three packet intervals of the subflow, and the lateness of the hosts. It is due
    /// a round trip after the packet left, so a subflow is not silent in the first round trip or
    /// after idle.
    pub(super) fn is_silent(&self, now: Time, limits: &Limits) -> bool {
        let Some(first) = self.unacked_times.first().filter(|_| self.outstanding > 0) else {
            return false;
        };
        let due = (first + limits.rtt).max(self.feedback_at.unwrap_or(Time::ZERO));
        now >= due + (limits.base / 2).max(self.gap * 3).max(limits.lateness)
    }
}

/// Send times of packets that have not arrived; the first is accurate to a part of a round trip.
///
/// A queue of all packets would grow with the window. This holds a few of them, far enough apart to
/// span a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct SendTimes {
    times: [Time; SEND_TIMES],
    len: usize,
}

impl SendTimes {
    fn first(&self) -> Option<Time> {
        (self.len > 0).then(|| self.times[0])
    }

    fn push(&mut self, now: Time, apart: Dur) {
        let far = self.len == 0 || now >= self.times[self.len - 1] + apart;
        if far && self.len < SEND_TIMES {
            self.times[self.len] = now;
            self.len += 1;
        }
    }

    /// Removes a packet sent at `sent_at` that arrived. The last one left at `newest`.
    fn arrived(&mut self, sent_at: Time, newest: Option<Time>) {
        let gone = self.times[..self.len].iter().take_while(|time| **time <= sent_at).count();
        self.times.copy_within(gone..self.len, 0);
        self.len -= gone;
        if let Some(newest) = newest.filter(|newest| self.len == 0 && *newest > sent_at) {
            self.times[0] = newest;
            self.len = 1;
        }
    }
}

const SEND_TIMES: usize = 6;
/// Fewer than [`SEND_TIMES`], since round trips grow.
const SEND_TIMES_EACH_RTT: u64 = 4;
/// A subflow that sends nothing for this many round trips is idle.
const IDLE_RTTS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{acked, at, lost};

    const LIMITS: Limits = Limits {
        rtt: Dur::from_us(100),
        base: Dur::from_us(100),
        lateness: Dur::ZERO,
        lost_in_row: 4,
    };

    fn subflow() -> Subflow {
        Subflow::new(Entropy::new(1))
    }

    fn send(subflow: &mut Subflow, us: u64) {
        subflow.on_sent(at(us), LIMITS.rtt);
    }

    fn ack(subflow: &mut Subflow, us: u64) {
        subflow.on_ack(at(us), &acked(subflow.entropy, at(us - 100), 100));
    }

    fn lose(subflow: &mut Subflow, sent_us: u64) {
        subflow.on_loss(&lost(subflow.entropy, 1, at(sent_us)));
    }

    #[test]
    fn is_silent__not_in_the_first_round_trip() {
        let mut s = subflow();
        assert!(!s.is_silent(at(1_000_000), &LIMITS), "no packet was sent");
        send(&mut s, 1000);
        assert!(!s.is_silent(at(1149), &LIMITS));
        assert!(s.is_silent(at(1150), &LIMITS));
        ack(&mut s, 1151);
        assert!(!s.is_silent(at(1_000_000), &LIMITS), "no packet is in flight");
    }

    #[test]
    fn is_silent__not_while_the_hosts_are_as_late() {
        let mut s = subflow();
        send(&mut s, 1000);
        let late = Limits { lateness: Dur::from_us(700), ..LIMITS };
        assert!(!s.is_silent(at(1799), &late));
        assert!(s.is_silent(at(1800), &late));
    }

    #[test]
    fn is_silent__not_after_idle_even_with_a_packet_unaccounted_for() {
        let mut s = subflow();
        send(&mut s, 0);
        send(&mut s, 1);
        ack(&mut s, 100);
        send(&mut s, 10_000);
        assert!(!s.is_silent(at(10_149), &LIMITS));
        assert!(s.is_silent(at(10_150), &LIMITS));
    }

    #[test]
    fn is_silent__counts_from_the_last_feedback() {
        let mut s = subflow();
        for us in (0..=1000).step_by(10) {
            send(&mut s, us);
            // Dead from 500 on: the last acknowledgement arrives at 590.
            if us >= 100 && us - 100 < 500 {
                ack(&mut s, us);
            }
            // The first missing one was due at 600, accurate to a quarter of a round trip.
            assert!(us < 680 || s.is_silent(at(us), &LIMITS), "{us}");
            assert!(us >= 650 || !s.is_silent(at(us), &LIMITS), "{us}");
        }
    }

    #[test]
    fn is_silent__not_while_late_feedback_arrives() {
        let mut s = subflow();
        for us in 0..1000 {
            send(&mut s, us);
            // A queue has made round trips three times as long as before.
            if us >= 300 {
                s.on_ack(at(us), &acked(s.entropy, at(us - 300), 300));
            }
            assert_eq!(s.is_silent(at(us), &LIMITS), (150..300).contains(&us), "{us}");
        }
    }

    #[test]
    fn is_silent__counts_packets_without_stored_times() {
        let mut s = subflow();
        for us in 0..400 {
            send(&mut s, us);
        }
        // Later than all stored times: the first missing packet is assumed to be the last.
        s.on_ack(at(400), &acked(s.entropy, at(300), 100));
        assert!(!s.is_silent(at(548), &LIMITS));
        assert!(s.is_silent(at(549), &LIMITS));
    }

    #[test]
    fn is_silent__not_if_the_newest_has_arrived_and_the_count_is_wrong() {
        let mut s = subflow();
        send(&mut s, 0);
        send(&mut s, 1);
        // The first is never acknowledged nor reported lost.
        ack(&mut s, 101);
        assert!(!s.is_silent(at(300), &LIMITS));
    }

    #[test]
    fn is_silent__a_slow_sender_gets_three_packet_intervals() {
        let mut s = subflow();
        for us in (0..8000).step_by(80) {
            send(&mut s, us);
            if us >= 160 {
                ack(&mut s, us - 160 + 100);
            }
        }
        // The packets sent at 7840 and 7920 are not acknowledged: due at 7940 at the earliest.
        assert!(!s.is_silent(at(8150), &LIMITS));
        assert!(s.is_silent(at(8181), &LIMITS));
        s.reroute_to(Entropy::new(2), at(8190));
        send(&mut s, 8190);
        assert!(!s.is_silent(at(8490), &LIMITS), "the sender is slow, not the path");
    }

    #[test]
    fn is_bad__four_consecutive_losses_or_one_and_silence() {
        let mut s = subflow();
        for us in 0..100 {
            send(&mut s, us);
        }
        ack(&mut s, 100);
        for sent_us in 1..4 {
            lose(&mut s, sent_us);
            assert!(s.is_suspect() && !s.is_bad(at(101), &LIMITS));
        }
        assert!(s.is_bad(at(175), &LIMITS), "silence");
        lose(&mut s, 4);
        assert!(s.is_bad(at(101), &LIMITS), "four");
    }

    #[test]
    fn is_bad__two_losses_suffice_without_feedback() {
        let mut s = subflow();
        send(&mut s, 0);
        send(&mut s, 1);
        send(&mut s, 2);
        lose(&mut s, 0);
        assert!(!s.is_bad(at(110), &LIMITS));
        lose(&mut s, 1);
        assert!(s.is_bad(at(110), &LIMITS));
    }

    #[test]
    fn on_ack__of_a_later_packet_clears_the_path_and_of_an_earlier_one_does_not() {
        let mut s = subflow();
        for us in 0..10 {
            send(&mut s, us);
        }
        lose(&mut s, 5);
        ack(&mut s, 104);
        assert!(s.is_suspect());
        ack(&mut s, 106);
        assert!(!s.is_suspect());
        lose(&mut s, 6);
        lose(&mut s, 3);
        assert!(!s.is_suspect(), "a packet sent with it or later has arrived");
        lose(&mut s, 7);
        assert!(s.is_suspect());
    }

    #[test]
    fn on_timeout__counts_as_a_loss_of_packets_in_flight() {
        let mut s = subflow();
        s.on_timeout();
        assert!(!s.is_suspect());
        send(&mut s, 10);
        s.on_timeout();
        assert!(s.is_suspect() && s.lost_from() == at(10) && !s.is_bad(at(20), &LIMITS));
        s.on_timeout();
        assert!(s.is_bad(at(20), &LIMITS), "two losses on a path without feedback");
        ack(&mut s, 111);
        assert!(!s.is_suspect());
    }
}
