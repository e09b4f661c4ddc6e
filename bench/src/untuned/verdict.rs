//! Figures of samples, and their verdicts.

use super::algorithm::Algorithm;
use super::case::{Bar, Case, Flow, Measure, Path, Traffic};
use super::line::Line;
use super::measure::Reading;
use crate::bed::Frame;
use crate::stats::Spread;
use spanwire_sim::jain;

/// The figure of a sample, and its lowest second as a share of the same whole. `none` is the
/// goodput without congestion control in the same round, in 10^6 bits a second.
pub(super) fn figure(
    case: &Case,
    algorithm: Algorithm,
    reading: &Reading,
    none: Option<f64>,
) -> Option<(f64, Option<f64>)> {
    let share = |whole: f64| {
        let of = |mbps: &f64| mbps / whole;
        let mbps = reading.mbps.first().filter(|_| whole > 0.0)?;
        Some((of(mbps), reading.least_second_mbps.as_ref().map(of)))
    };
    let line = match case.path {
        Path::Cable => None,
        Path::Line(line) => Some(line),
    };
    let least = |shares: Vec<f64>| shares.into_iter().min_by(f64::total_cmp).map(|s| (s, None));
    let mbps = |frame: Frame| line.map(|line| frame.payload_bps(line.rate_bps) / 1e6);
    match case.measure {
        Measure::ShareOfLine => share(payload_mbps(&line?, case.traffic, algorithm)),
        Measure::ShareOfNone => share(none?),
        Measure::Jain => Some((jain(&reading.mbps).unwrap_or(0.0), None)),
        Measure::LeastOfFairShare => {
            let fair = mbps(frame(case.traffic, algorithm))? / reading.mbps.len() as f64;
            least(reading.mbps.iter().map(|mbps| mbps / fair).collect())
        }
        Measure::LeastOfLine => {
            let Traffic::Beside(other) = case.traffic else { return None };
            let frames = [algorithm, other].map(|each| frame(case.traffic, each));
            let wholes = [mbps(frames[0])?, mbps(frames[1])?];
            least(reading.mbps.iter().zip(wholes).map(|(mbps, whole)| mbps / whole).collect())
        }
        Measure::QueueBdps => Some((reading.queue_bytes? / line?.bdp_bytes() as f64, None)),
    }
}

/// Payload of one flow on `line`, as loss and coding leave it, in 10^6 bits a second.
fn payload_mbps(line: &Line, traffic: Traffic, algorithm: Algorithm) -> f64 {
    let frame = frame(traffic, algorithm);
    let source = if frame == Frame::SR_CODED { CODE_RATE } else { 1.0 };
    frame.payload_bps(line.rate_bps) / 1e6 * line.arrives() * source
}

/// The full frame of the first flow.
fn frame(traffic: Traffic, algorithm: Algorithm) -> Frame {
    match (algorithm, traffic) {
        (Algorithm::Tcp(_), _) => Frame::TCP,
        (_, Traffic::One(Flow { rc: true, .. })) => Frame::RC,
        (_, Traffic::One(Flow { coded: true, .. })) => Frame::SR_CODED,
        _ => Frame::SR,
    }
}

/// The figures of one algorithm on one case.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Of each sample; zero, or infinite for a maximum, if it failed.
    pub(super) all: Vec<f64>,
    /// The lowest second of any sample.
    pub(super) least_second: Option<f64>,
    /// The longest time from the end of the traffic to the exit of `perf`.
    pub(super) overrun_s: Option<f64>,
}

impl Figures {
    /// Adds the figure of a sample with this reading.
    pub(super) fn add(&mut self, reading: &Reading, figure: Option<(f64, Option<f64>)>) {
        let lower = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).min_by(f64::total_cmp);
        if let Some((figure, second)) = figure {
            self.all.push(figure);
            self.least_second = lower(self.least_second, second);
        }
        self.overrun_s = self.overrun_s.into_iter().chain(reading.overrun_s).max_by(f64::total_cmp);
    }

    /// Adds a failed sample.
    pub(super) fn add_failed(&mut self, measure: Measure) {
        self.all.push(if measure.is_limit_from_above() { f64::INFINITY } else { 0.0 });
    }

    /// The worst figure.
    pub(super) fn worst(&self, measure: Measure) -> Option<f64> {
        let spread = Spread::of(&self.all)?;
        Some(if measure.is_limit_from_above() { spread.max } else { spread.min })
    }

    /// The bars that were missed, each with the distance.
    pub(super) fn misses(&self, measure: Measure, bar: Bar) -> Vec<String> {
        let above = measure.is_limit_from_above();
        let miss = |name: &str, figure: Option<f64>, limit: Option<f64>| {
            let (figure, limit) = (figure?, limit?);
            let short = if above { figure - limit } else { limit - figure };
            let side = if above { "most" } else { "least" };
            (short > 0.0)
                .then(|| format!("{name} {figure:.3} of at {side} {limit}, missed by {short:.3}"))
        };
        let median = Spread::of(&self.all).map(|spread| spread.median);
        let second = (bar.second, self.least_second);
        [
            miss("median", median, Some(bar.median)),
            miss("worst", self.worst(measure), bar.worst),
            miss("lowest second", second.1, second.0),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The miss of the time limit that every run has.
    pub(super) fn overrun(&self) -> Option<String> {
        let overrun_s = self.overrun_s.filter(|s| *s > OVERRUN_MAX_S)?;
        Some(format!("perf ended {overrun_s:.1} s after -t, of at most {OVERRUN_MAX_S} s"))
    }
}

/// Source packets of all packets with (8,2).
const CODE_RATE: f64 = 0.8;

/// The limit that docs/TOOLS.md states for every run of `perf`.
const OVERRUN_MAX_S: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::super::matrix::matrix;
    use super::*;

    fn case(name: &str) -> Case {
        matrix().into_iter().find(|case| case.name == name).expect(name)
    }

    fn reading(mbps: &[f64]) -> Reading {
        Reading { mbps: mbps.to_vec(), ..Reading::default() }
    }

    fn of(name: &str, algorithm: Algorithm, mbps: &[f64], none: Option<f64>) -> f64 {
        figure(&case(name), algorithm, &reading(mbps), none).expect("a figure").0
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    #[test]
    fn figure__shares_of_a_line_are_of_its_payload() {
        assert!(close(of("200M/1ms", Algorithm::Auto, &[184.05], None), 1.0));
        assert!(close(of("200M/1ms", Algorithm::Tcp("bbr"), &[188.296], None), 1.0));
        assert!(close(of("200M/1ms, SEND, RC", Algorithm::Auto, &[185.17], None), 1.0));
        assert!(close(of("200M/1ms, loss 2 %", Algorithm::Auto, &[180.37], None), 1.0));
        assert!(close(of("4 x 200M/5ms, (8,2), unolb", Algorithm::Auto, &[146.79], None), 1.0));
    }

    #[test]
    fn figure__shares_of_none_need_its_goodput() {
        assert!(close(of("veth", Algorithm::Auto, &[900.0], Some(1000.0)), 0.9));
        assert_eq!(figure(&case("veth"), Algorithm::Auto, &reading(&[900.0]), None), None);
        assert_eq!(figure(&case("veth"), Algorithm::Auto, &reading(&[900.0]), Some(0.0)), None);
        let slow = Reading { least_second_mbps: Some(100.0), ..reading(&[900.0]) };
        let (_, second) = figure(&case("veth"), Algorithm::Auto, &slow, Some(1000.0)).unwrap();
        assert!(close(second.unwrap(), 0.1));
    }

    #[test]
    fn figure__of_several_flows() {
        assert!(close(of("200M/1ms, 2 flows", Algorithm::Auto, &[20.0, 60.0], None), 0.8));
        let (near, far) = (150.0, 184.05 / 8.0);
        assert!(close(of("200M, RTT 2 and 20 ms", Algorithm::Auto, &[near, far], None), 0.25));
        let beside = [184.05 / 2.0, 188.296 / 4.0];
        assert!(close(of("200M/10ms, beside bbr", Algorithm::Auto, &beside, None), 0.25));
        let queue = Reading { queue_bytes: Some(25_000.0), ..reading(&[90.0, 90.0]) };
        let (bdps, _) =
            figure(&case("200M/1ms, queue of 2 flows"), Algorithm::Auto, &queue, None).unwrap();
        assert!(close(bdps, 0.5));
    }

    #[test]
    fn misses__name_the_bar_and_the_distance() {
        let mut figures = Figures::default();
        for share in [0.95, 0.90, 0.60] {
            figures.add(&Reading::default(), Some((share, Some(share / 2.0))));
        }
        let bar = Bar { second: Some(0.4), ..Bar::new(0.92, 0.75) };
        assert_eq!(
            figures.misses(Measure::ShareOfLine, bar),
            [
                "median 0.900 of at least 0.92, missed by 0.020",
                "worst 0.600 of at least 0.75, missed by 0.150",
                "lowest second 0.300 of at least 0.4, missed by 0.100",
            ]
        );
        assert!(figures.misses(Measure::ShareOfLine, Bar::new(0.90, 0.60)).is_empty());
    }

    #[test]
    fn misses__a_queue_has_a_maximum() {
        let mut figures = Figures::default();
        figures.add(&Reading::default(), Some((0.5, None)));
        assert!(figures.misses(Measure::QueueBdps, Bar::every(1.0)).is_empty());
        figures.add_failed(Measure::QueueBdps);
        figures.add_failed(Measure::QueueBdps);
        let misses = figures.misses(Measure::QueueBdps, Bar::every(1.0));
        assert_eq!(misses.len(), 2, "{misses:?}");
    }

    #[test]
    fn misses__a_failed_sample_is_a_share_of_zero() {
        let mut figures = Figures::default();
        figures.add(&Reading::default(), Some((0.99, None)));
        figures.add_failed(Measure::ShareOfLine);
        assert_eq!(figures.worst(Measure::ShareOfLine), Some(0.0));
        assert_eq!(figures.misses(Measure::ShareOfLine, Bar::new(0.4, 0.1)).len(), 1);
    }

    #[test]
    fn overrun__two_seconds_are_allowed() {
        let mut figures = Figures::default();
        let ends = |overrun_s| Reading { overrun_s: Some(overrun_s), ..Reading::default() };
        figures.add(&ends(1.9), None);
        assert_eq!(figures.overrun(), None);
        figures.add(&ends(3.25), None);
        figures.add(&ends(0.1), None);
        assert_eq!(figures.overrun().unwrap(), "perf ended 3.2 s after -t, of at most 2 s");
    }
}
