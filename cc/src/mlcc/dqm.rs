//! Queue management: the rate that keeps the queue at the receiver's DCI switch at a target delay.

use super::parameters::{LEAST_SHARE, Params};
use crate::units::{float, whole};
use spanwire_base::{u64_from, usize_from};
use std::collections::VecDeque;

/// DQM of one flow. Rates in bytes per nanosecond, times in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Dqm {
    form: Form,
    alpha: f64,
    theta: f64,
    target: f64,
    rtt_c: f64,
    mtu: f64,
    line: f64,
    /// R_DQM, towards which the suggested rate moves.
    goal: f64,
    token: f64,
    /// dw, in packets of the window of a round trip between sender and receiver.
    dw: f64,
    /// The last n suggested rates, one of each round: they arrive in the next round trip.
    suggested: Mean,
    /// The last m credit rates.
    credit: Mean,
}

/// How the suggested rate approaches R_DQM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Smoothed,
    Credit,
    Printed,
    Off,
}

/// The mean of the last values, of which there are fewer at first.
#[derive(Clone, Debug)]
struct Mean {
    values: VecDeque<f64>,
    most: usize,
    sum: f64,
}

impl Dqm {
    pub(super) fn new(p: &Params, mtu: f64, line: f64) -> Self {
        let form = match whole(p.dqm) {
            0 => Form::Smoothed,
            1 => Form::Credit,
            2 => Form::Printed,
            _ => Form::Off,
        };
        let n = whole(p.rtt_c_us / p.rtt_d_us + 0.5).clamp(1, MAX_ROUNDS);
        Self {
            form,
            alpha: p.alpha,
            theta: p.theta_ms * 1e6,
            target: p.target_us * 1e3,
            rtt_c: p.rtt_c_us * 1e3,
            mtu,
            line,
            goal: line,
            token: 0.0,
            dw: 0.0,
            suggested: Mean::new(n),
            credit: Mean::new(whole(p.rounds)),
        }
    }

    /// The rate to suggest at this credit rate.
    pub(super) fn rate(&self, credit: f64) -> f64 {
        if self.form == Form::Off {
            return self.line;
        }
        (credit + self.dw * self.step()).clamp(self.least(), self.line)
    }

    /// A round has ended with this credit rate, while `waiting` bytes of the flow were queued at
    /// the DCI switch.
    pub(super) fn on_round(&mut self, credit: f64, waiting: f64) {
        self.credit.push(credit);
        let arriving = self.suggested.mean_with(credit);
        let predicted = ((arriving - credit) * self.rtt_c + waiting).max(0.0);
        let delay = predicted / self.credit.mean_with(credit);
        let goal = credit * (1.0 - (delay - self.target) / self.theta);
        self.goal = goal.clamp(0.0, self.line);
        self.limit(credit);
        let rate = self.rate(credit);
        self.suggested.push(rate);
    }

    /// A packet of the flow has arrived.
    pub(super) fn on_packet(&mut self, credit: f64) {
        let reference = match self.form {
            Form::Smoothed => self.rate(credit),
            Form::Credit => credit,
            Form::Printed => {
                self.dw += 1.0;
                return self.limit(credit);
            }
            Form::Off => return,
        };
        self.token += (self.alpha * self.goal / reference).min(1.0);
        if self.token >= 1.0 {
            self.token -= 1.0;
            self.dw += 1.0;
        } else {
            self.dw -= 1.0;
        }
        self.limit(credit);
    }

    /// Rate of one packet in a round trip.
    fn step(&self) -> f64 {
        self.mtu / self.rtt_c
    }

    fn least(&self) -> f64 {
        self.line * LEAST_SHARE
    }

    /// Limits dw to what changes the rate, so that it does not wind up.
    fn limit(&mut self, credit: f64) {
        let [least, most] = [self.least(), self.line].map(|rate| (rate - credit) / self.step());
        self.dw = self.dw.clamp(least.min(0.0), most.max(0.0));
    }

    /// R_DQM and dw, for tests.
    #[cfg(test)]
    pub(super) fn state(&self) -> (f64, f64, f64) {
        (self.goal, self.token, self.dw)
    }

    /// As if all rounds before had suggested `rate`.
    #[cfg(test)]
    pub(super) fn set_suggested(&mut self, rate: f64, credit: f64) {
        (0..self.suggested.most).for_each(|_| self.suggested.push(rate));
        (0..self.credit.most).for_each(|_| self.credit.push(credit));
    }
}

impl Mean {
    fn new(most: u64) -> Self {
        let most = usize_from(most.clamp(1, MAX_ROUNDS));
        Self { values: VecDeque::with_capacity(most), most, sum: 0.0 }
    }

    fn push(&mut self, value: f64) {
        // Within its capacity: nothing is allocated.
        if self.values.len() == self.most {
            self.sum -= self.values.pop_front().unwrap_or(0.0);
        }
        self.values.push_back(value);
        self.sum += value;
    }

    /// With `value` in place of those that are not there yet.
    fn mean_with(&self, value: f64) -> f64 {
        let float = |n: usize| float(u64_from(n));
        let missing = float(self.most - self.values.len());
        ((self.sum + missing * value) / float(self.most)).max(0.0)
    }
}

/// The most rounds in a round trip between sender and receiver that are remembered.
pub(super) const MAX_ROUNDS: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: f64 = 0.125;

    /// A flow at 25 Gbit/s with packets of 1000 bytes and a round trip of 6 ms.
    fn dqm(form: f64) -> Dqm {
        let p = Params { rtt_c_us: 6000.0, dqm: form, ..Params::default() };
        Dqm::new(&p, 1000.0, 25.0 * GBIT)
    }

    fn about(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * b.abs().max(1.0)
    }

    #[test]
    fn on_round__and_on_packet__follow_the_vectors() {
        // R_credit 10 Gbit/s, R_pre 12, 1 MB waits: Q_pre 2.5 MB, D_pre 2 ms.
        let credit = 10.0 * GBIT;
        let mut dqm = dqm(0.0);
        dqm.set_suggested(12.0 * GBIT, credit);
        dqm.on_round(credit, 1e6);
        assert!(about(dqm.state().0 / GBIT, 9.444_444_444), "{}", dqm.state().0 / GBIT);
        let tokens = [0.472_222, 0.944_507, 0.416_856, 0.889_141];
        let rates = [9_998.666_7, 9_997.333_3, 9_998.666_7, 9_997.333_3];
        for ((token, dw), rate) in tokens.into_iter().zip([-1.0, -2.0, -1.0, -2.0]).zip(rates) {
            dqm.on_packet(credit);
            let (_, have, change) = dqm.state();
            assert!((have - token).abs() < 1e-6 && about(change, dw), "{have} {change}");
            let mbit = dqm.rate(credit) / GBIT * 1e3;
            assert!((mbit - rate).abs() < 1e-3, "{mbit}");
        }
    }

    #[test]
    fn rate__stays_between_a_hundredth_of_the_line_and_the_line() {
        for form in [0.0, 1.0, 2.0] {
            let mut dqm = dqm(form);
            for (credit, waiting) in [(25.0, 0.0), (0.3, 1e9), (12.0, 0.0), (25.0, 1e9)] {
                for n in 0..50_000 {
                    if n % 10 == 0 {
                        dqm.on_round(credit * GBIT, waiting);
                    }
                    dqm.on_packet(credit * GBIT);
                    let gbit = dqm.rate(credit * GBIT) / GBIT;
                    assert!((0.25 - 1e-9..=25.0 + 1e-9).contains(&gbit), "{form}: {gbit}");
                }
            }
        }
        assert!(about(dqm(3.0).rate(GBIT), 25.0 * GBIT), "off: nothing is suggested");
    }

    /// A queue of one flow that `credit` drains and what was suggested a round trip ago fills,
    /// over `ms` milliseconds; the bytes at each round.
    fn queue(dqm: &mut Dqm, credit: f64, ms: u64) -> Vec<f64> {
        let round = 22_000.0;
        let mut flying: VecDeque<f64> = vec![25.0 * GBIT; 273].into();
        let (mut bytes, mut packets, mut out) = (0.0_f64, 0.0, Vec::new());
        for _ in 0..ms * 1_000_000 / 22_000 {
            bytes += (flying.pop_front().unwrap() - credit) * round;
            bytes = bytes.max(0.0);
            dqm.on_round(credit, bytes);
            packets += credit * round / 1000.0;
            while packets >= 1.0 {
                dqm.on_packet(credit);
                packets -= 1.0;
            }
            flying.push_back(dqm.rate(credit));
            out.push(bytes);
        }
        out
    }

    #[test]
    fn queue__settles_at_the_target_delay_in_the_order_of_theta() {
        let credit = 12.5 * GBIT;
        let target = credit * 1e6;
        let mut settled = Vec::new();
        for theta_ms in [6.0, 18.0, 30.0] {
            let p = Params { rtt_c_us: 6000.0, theta_ms, ..Params::default() };
            let mut dqm = Dqm::new(&p, 1000.0, 25.0 * GBIT);
            dqm.set_suggested(credit, credit);
            let bytes = queue(&mut dqm, credit, 300);
            let peak = bytes.iter().fold(0.0_f64, |a, b| a.max(*b));
            assert!((peak / 9.4e6 - 1.0).abs() < 0.02, "{peak}");
            let last = bytes.last().unwrap();
            assert!((last / target - 1.0).abs() < 0.1, "theta {theta_ms}: {last} of {target}");
            let off = bytes.iter().rposition(|b| (b / target - 1.0).abs() > 0.25).unwrap();
            settled.push(off);
            let least = bytes[1000..].iter().fold(f64::MAX, |a, b| a.min(*b));
            assert_eq!(least < 0.5 * target, theta_ms < 10.0, "undershoot at 6 ms: {least}");
        }
        assert!(settled.is_sorted(), "{settled:?}");
        // By the credit rate it does not settle, and as printed it grows without bound.
        let mut by_credit = dqm(1.0);
        by_credit.set_suggested(credit, credit);
        let bytes = queue(&mut by_credit, credit, 300);
        let tail = &bytes[bytes.len() / 2..];
        let swing = tail.iter().fold(0.0_f64, |a, b| a.max(*b))
            - tail.iter().fold(f64::MAX, |a, b| a.min(*b));
        assert!(swing > target, "{swing}");
        let bytes = queue(&mut dqm(2.0), credit, 300);
        assert!(*bytes.last().unwrap() > 100e6);
    }
}
