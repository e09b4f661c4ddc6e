//! BBR, version 1, by Linux's steps on each acknowledgement, in their order. Decided: no estimator
//! of policers; 16 packets beside the target in place of the aggregation of acknowledgements; the
//! initial phase of a cycle follows from the time in nanoseconds.

use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct Bbr {
    path: PathModel,
    expiry: f64,
    probe: f64,
    mode: Mode,
    cwnd: f64,
    pacing: Option<f64>,
    bw: Largest,
    min_rtt: Option<f64>,
    min_rtt_at: f64,
    rounds: u64,
    next_round_delivered: f64,
    full_bw: f64,
    full_count: u32,
    filled: bool,
    phase: usize,
    /// Payload and paced bytes of recent packets.
    sent: (f64, f64),
    phase_at: f64,
    phase_lost: bool,
    prior: f64,
    probe_until: Option<f64>,
    probe_round: bool,
    /// The start of a recovery, and the round at whose end packet conservation stops.
    recovery: Option<(f64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// The largest of ten rounds by three samples, each the largest since the one before it.
#[derive(Default)]
struct Largest(Vec<(u64, f64)>);

impl Largest {
    fn get(&self) -> Option<f64> {
        self.0.first().map(|s| s.1)
    }

    fn put(&mut self, round: u64, value: f64) {
        let new = (round, value);
        let s = &mut self.0;
        if s.is_empty() || value >= s[0].1 || round - s[2].0 > 10 {
            *s = vec![new; 3];
            return;
        }
        if value >= s[1].1 {
            (s[1], s[2]) = (new, new);
        } else if value >= s[2].1 {
            s[2] = new;
        }
        let age = round - s[0].0;
        if age > 10 {
            s.remove(0);
            s.push(new);
            if round - s[0].0 > 10 {
                s.remove(0);
                s.push(new);
            }
        } else if s[1] == s[0] && age > 2 {
            (s[1], s[2]) = (new, new);
        } else if s[2] == s[1] && age > 5 {
            s[2] = new;
        }
    }
}

const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const HIGH: f64 = 739.0 / 256.0;

impl Bbr {
    /// `expiry`: nanoseconds until the smallest round trip is too old; `probe`: duration of
    /// ProbeRTT.
    fn new(path: PathModel, expiry: f64, probe: f64) -> Self {
        Self {
            path,
            expiry,
            probe,
            mode: Mode::Startup,
            cwnd: 10.0 * path.mtu,
            pacing: None,
            bw: Largest::default(),
            min_rtt: None,
            min_rtt_at: 0.0,
            rounds: 0,
            next_round_delivered: 0.0,
            full_bw: 0.0,
            full_count: 0,
            filled: false,
            phase: 0,
            sent: (0.0, 0.0),
            phase_at: 0.0,
            phase_lost: false,
            prior: 0.0,
            probe_until: None,
            probe_round: false,
            recovery: None,
        }
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (HIGH, HIGH),
            Mode::Drain => (88.0 / 256.0, HIGH),
            Mode::ProbeBw => (CYCLE[self.phase], 2.0),
            Mode::ProbeRtt => (1.0, 1.0),
        }
    }

    fn bdp(&self, gain: f64) -> Option<f64> {
        Some(gain * self.bw.get()? * self.min_rtt?)
    }

    /// Returns true at the end of a round.
    fn update_bw(&mut self, a: &AckSample) -> bool {
        let Some(d) = a.delivery.filter(|d| d.interval > 0.0) else { return false };
        let over = d.at_send >= self.next_round_delivered;
        if over {
            self.next_round_delivered = d.total;
            self.rounds += 1;
        }
        let bw = (d.total - d.at_send) / d.interval;
        if !d.app_limited || self.bw.get().is_none_or(|max| bw >= max) {
            self.bw.put(self.rounds, bw);
        }
        if over && !d.app_limited && !self.filled {
            let bw = self.bw.get().unwrap_or(0.0);
            if bw >= 1.25 * self.full_bw {
                (self.full_bw, self.full_count) = (bw, 0);
            } else {
                self.full_count += 1;
                self.filled = self.full_count == 3;
            }
        }
        over
    }

    fn begin_phase(&mut self, now: f64, phase: usize) {
        (self.phase, self.phase_at, self.phase_lost) = (phase, now, false);
    }

    fn enter_probe_bw(&mut self, now: f64) {
        self.mode = Mode::ProbeBw;
        let phases = [0, 2, 3, 4, 5, 6, 7];
        let draw = now % 7.0;
        let drawn = phases.iter().zip(0_u32..).find(|(_, n)| f64::from(*n) == draw);
        self.begin_phase(now, drawn.map_or(0, |(phase, _)| *phase));
    }

    fn update_cycle(&mut self, now: f64, inflight: f64) {
        let elapsed = self.min_rtt.is_none_or(|rtt| now - self.phase_at > rtt);
        let next = match CYCLE[self.phase] {
            gain if gain > 1.0 => {
                let up = self.bdp(gain).is_some_and(|bdp| inflight >= bdp);
                elapsed && (self.phase_lost || up)
            }
            gain if gain < 1.0 => elapsed || self.bdp(1.0).is_some_and(|bdp| inflight <= bdp),
            _ => elapsed,
        };
        if next {
            self.begin_phase(now, (self.phase + 1) % 8);
        }
    }

    fn update_min_rtt(&mut self, now: f64, a: &AckSample, inflight: f64, round_over: bool) {
        let expired = self.min_rtt.is_some() && now - self.min_rtt_at > self.expiry;
        if let Some(rtt) = a.fabric()
            && (expired || self.min_rtt.is_none_or(|min| rtt <= min))
        {
            (self.min_rtt, self.min_rtt_at) = (Some(rtt.max(1.0)), now);
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_cwnd();
            self.probe_until = None;
        }
        if self.mode != Mode::ProbeRtt {
            return;
        }
        let Some(until) = self.probe_until else {
            if inflight <= 4.0 * self.path.mtu {
                (self.probe_until, self.probe_round) = (Some(now + self.probe), false);
                self.next_round_delivered = a.delivery.map_or(0.0, |d| d.total);
            }
            return;
        };
        self.probe_round |= round_over;
        if self.probe_round && now >= until {
            self.min_rtt_at = now;
            self.cwnd = self.cwnd.max(self.prior);
            if self.filled {
                self.enter_probe_bw(now);
            } else {
                self.mode = Mode::Startup;
            }
        }
    }

    fn save_cwnd(&mut self) {
        let undisturbed = self.recovery.is_none() && self.mode != Mode::ProbeRtt;
        self.prior = if undisturbed { self.cwnd } else { self.prior.max(self.cwnd) };
    }
}

impl Oracle for Bbr {
    fn ack(&mut self, now: f64, a: &AckSample) {
        if self.recovery.is_some_and(|(began, _)| a.sent_at > began) {
            self.recovery = None;
            self.cwnd = self.cwnd.max(self.prior);
        }
        let round_over = self.update_bw(a);
        let inflight = (a.inflight - a.acked).max(0.0);
        if self.mode == Mode::Startup && self.filled {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && self.bdp(1.0).is_none_or(|bdp| inflight <= bdp) {
            self.enter_probe_bw(now);
        }
        if self.mode == Mode::ProbeBw {
            self.update_cycle(now, inflight);
        }
        self.update_min_rtt(now, a, inflight, round_over);
        let (pacing_gain, cwnd_gain) = self.gains();
        let first = self.min_rtt.map(|rtt| self.cwnd / rtt);
        if let Some(bw) = self.bw.get().or(first) {
            // The bandwidth is one of payload, the rate one with headers.
            let headers = if self.sent.0 > 0.0 { self.sent.1 / self.sent.0 } else { 1.0 };
            let headers = (headers / 1.125).max(1.0);
            let to = 0.99 * pacing_gain * bw * headers;
            if self.filled || self.pacing.is_none_or(|old| to > old) {
                self.pacing = Some(to.max(self.path.mtu / 1e9));
            }
        }
        let target = self.bdp(cwnd_gain).map(|bdp| bdp + 16.0 * self.path.mtu);
        if self.recovery.is_some_and(|(_, until)| self.rounds < until) {
            self.cwnd = self.cwnd.max(inflight + a.acked);
        } else if let Some(target) = target {
            if self.filled {
                self.cwnd = (self.cwnd + a.acked).min(target);
            } else if self.cwnd < target {
                self.cwnd += a.acked;
            }
        } else {
            self.cwnd += a.acked;
        }
        self.cwnd = self.cwnd.max(4.0 * self.path.mtu);
        if self.mode == Mode::ProbeRtt {
            self.cwnd = self.cwnd.min(4.0 * self.path.mtu);
        }
    }

    fn loss(&mut self, now: f64, kind: LossKind, _bytes: f64, inflight: f64) {
        self.phase_lost = true;
        match kind {
            LossKind::Recovery | LossKind::BlockRecovery if self.recovery.is_none() => {
                self.save_cwnd();
                self.recovery = Some((now, self.rounds + 1));
                self.cwnd = inflight.max(4.0 * self.path.mtu);
            }
            LossKind::Timeout(_) => {
                self.save_cwnd();
                self.recovery = Some((now, self.rounds));
                self.full_bw = 0.0;
                self.cwnd = 4.0 * self.path.mtu;
            }
            _ => {}
        }
    }

    fn sent(&mut self, bytes: f64, paced: f64) {
        self.sent = (self.sent.0 + bytes, self.sent.1 + paced);
        // Packets count half once there are a mebibyte.
        if self.sent.1 >= f64::from(1 << 20) {
            self.sent = ((self.sent.0 / 2.0).floor(), (self.sent.1 / 2.0).floor());
        }
    }

    fn window(&self) -> f64 {
        self.cwnd
    }

    fn rate(&self) -> Option<f64> {
        self.pacing.map(|rate| rate.min(self.path.line))
    }
}

#[test]
fn bbr__follows_linux() {
    compare("bbr", &[], |path| Bbr::new(path, 1e10, 2e8));
}

#[test]
fn bbr__probes_for_the_round_trip() {
    // Ten seconds are longer than any trace.
    let set = [("min_rtt_s", "0.001"), ("probe_rtt_ms", "0.05")];
    compare("bbr", &set, |path| Bbr::new(path, 1e6, 5e4));
}
