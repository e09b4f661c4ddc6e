//! The interface of `auto` to a flow.

use super::compete::Compete;
use super::paths::Paths;
use super::{Auto, GAP_MAX, PACING_GAIN_MAX, State, TIMEOUTS, UNKNOWN_RTT};
use crate::units::{float, ns, rate, whole};
use crate::{Ack, Cc, Controller, Hop, Loss, LossKind, PseudoAck, Sent, Status};
use spanwire_base::{Dur, Rate, Time};

impl Auto {
    /// The other algorithm, if it runs.
    fn running(&mut self) -> Option<&mut Cc> {
        self.other.as_mut()?.cc_mut()
    }

    /// A CNP: packets of a round trip were marked (RC).
    fn on_marked_round(&mut self, now: Time) {
        self.has_marks = true;
        let srtt = self.srtt.unwrap_or(0.0);
        let is_early = self.changed_at.is_some_and(|at| ns(now.since(at)) < srtt);
        if is_early || matches!(self.state, State::Drain { .. }) {
            return;
        }
        (self.state, self.changed_at) = (State::Avoidance, Some(now));
        self.cwnd = (self.cwnd * CNP_FACTOR).max(self.p.min_pkts * self.mtu);
        self.compete.restart(now, self.cwnd);
    }
}

impl Controller for Auto {
    fn cwnd_bytes(&self) -> u64 {
        whole(self.cwnd)
    }

    fn rate(&self) -> Option<Rate> {
        if let Some(other) = self.other_cc().and_then(Cc::rate) {
            return Some(other.max(rate(self.mtu / ns(GAP_MAX))));
        }
        let srtt = self.srtt?.max(1.0);
        let gain = match self.state {
            State::Startup => 2.0,
            _ => (1.25 + self.stall / srtt).min(PACING_GAIN_MAX),
        };
        Some(rate((gain * self.cwnd / srtt).min(self.line)))
    }

    fn min_gap(&self) -> Dur {
        self.other_cc().map_or(Dur::ZERO, Cc::min_gap).min(GAP_MAX)
    }

    fn wants_int(&self) -> bool {
        self.other.as_ref().is_some_and(|other| other.wants_int())
    }

    fn status(&self) -> Option<Status> {
        let (chosen, reason) = match self {
            Self { other: Some(other), .. } if other.lacks_int() => {
                ("auto", "the path has no telemetry")
            }
            Self { other: Some(other), .. } => {
                (other.name(), "it was requested, and is calibrated to the path")
            }
            Self { has_marks: true, .. } => ("delay, marks", "packets arrive marked CE"),
            Self { has_losses: true, .. } => {
                ("delay, loss", "more packets were lost than the path loses by itself")
            }
            Self { compete, .. } if compete.is_on() => {
                ("loss", "other traffic fills the queue whatever its delay")
            }
            Self { pressure, .. } if *pressure > 1.0 => {
                ("delay", "other traffic keeps a queue, so the target is longer")
            }
            _ => ("delay", "no packet was marked"),
        };
        let base = self.base.ns();
        let target = base.map(|base| Dur::from_ns(whole(self.target(base))));
        let base_rtt = base.map(|ns| Dur::from_ns(whole(ns)));
        Some(Status { chosen, reason, base_rtt, target })
    }

    fn on_ack(&mut self, now: Time, a: &Ack<'_>) {
        let is_limited = a.is_limited(self.cwnd, self.mtu);
        let delay =
            a.fabric_rtt().map(|d| self.paths.relative(now, a.path, ns(d), float(a.acked_bytes)));
        if let Some(delay) = delay {
            self.on_delay(now, a, delay);
        }
        self.interval.add(a, delay, is_limited);
        if is_limited {
            let acked = float(a.acked_bytes.saturating_sub(a.marked_bytes));
            match self.state {
                State::Startup => self.cwnd += acked,
                State::Avoidance if self.compete.is_on() => {
                    let srtt = self.srtt.unwrap_or(UNKNOWN_RTT);
                    self.cwnd = self.compete.on_ack(now, self.cwnd, acked, (srtt, self.mtu));
                }
                State::Avoidance if !self.losses.is_testing() && self.other_cc().is_none() => {
                    let longer = self.cwnd + self.increase(now) * acked / self.cwnd;
                    self.cwnd = longer.min(self.most()).max(self.cwnd);
                }
                State::Avoidance | State::Drain { .. } => {}
            }
            // Packets also wait in the hosts, which the round trip does not include.
            let held = self.srtt.unwrap_or(UNKNOWN_RTT) + self.host_delay;
            let most = self.line * held * 2.0;
            self.cwnd = self.cwnd.min(most.max(self.p.initial_pkts * self.mtu));
        }
        self.exit_startup(now);
        self.on_ack_of_other(now, a);
        if self.interval.ends(now, a.sent_at, self.interval_min()) {
            self.on_interval(now);
            self.interval.restart(now);
        }
    }

    fn on_loss(&mut self, now: Time, loss: &Loss) {
        // Other losses are counted in acknowledgements, all of them.
        // A lossy path loses the acknowledgements of a small window now and then. The engine sends
        // one packet for each further timeout in a row.
        if matches!(loss.kind, LossKind::Timeout(count) if count >= TIMEOUTS) {
            if let Some(cc) = self.running() {
                cc.on_loss(now, loss);
            }
            (self.state, self.changed_at) = (State::Avoidance, Some(now));
            self.cwnd = (self.cwnd / 2.0).max(self.p.min_pkts * self.mtu);
            self.compete.restart(now, self.cwnd);
        }
    }

    fn on_sent(&mut self, now: Time, sent: &Sent) {
        if let Some(other) = &mut self.other {
            other.on_sent(now, sent);
        }
    }

    fn on_cnp(&mut self, now: Time) {
        match self.running() {
            Some(cc) => cc.on_cnp(now),
            None => self.on_marked_round(now),
        }
    }

    fn wants_near(&self) -> bool {
        self.other.as_ref().is_some_and(|other| other.wants_near())
    }

    fn on_pseudo_ack(&mut self, now: Time, ack: &PseudoAck) {
        if let Some(cc) = self.running() {
            cc.on_pseudo_ack(now, ack);
        }
    }

    fn on_near_int(&mut self, now: Time, int: &[Hop]) {
        if let Some(cc) = self.running() {
            cc.on_near_int(now, int);
        }
    }

    fn on_int_discontinuity(&mut self) {
        if let Some(cc) = self.running() {
            cc.on_int_discontinuity();
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.other.as_ref()?.cc()?.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(cc) = self.running() {
            cc.handle_timeout(now);
        }
    }

    fn on_path_change(&mut self, now: Time) {
        if let Some(cc) = self.running() {
            cc.on_path_change(now);
        }
        if self.paths.are_several() {
            // One of them was replaced.
            return;
        }
        self.base.forget();
        self.paths = Paths::default();
        *self.compete = Compete::new();
        (self.low, self.low_at) = (f64::MAX, None);
    }
}

/// The factor of the window for a CNP.
const CNP_FACTOR: f64 = 0.7;
