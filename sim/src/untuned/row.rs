//! Rows of the table: the samples of a cell over all seeds, and their verdict.

use super::case::{Bar, Figure};
use super::sample::Sample;
use super::{Cell, Untuned};
use serde::Serialize;
use spanwire_base::u64_from;

/// The samples of one cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The case's name.
    pub path: String,
    /// The host model.
    pub host: &'static str,
    /// The algorithm, with parameters that differ from its defaults.
    pub algorithm: String,
    /// The figure that the bar limits.
    pub measure: Figure,
    /// The bar, if there is one for this algorithm on these hosts.
    pub bar: Option<Bar>,
    /// Medians over the seeds.
    pub median: Median,
    /// The worst figure of any seed.
    pub worst: f64,
    /// The lowest window of any seed.
    pub least_window_share: f64,
    /// The bars that were missed, each with the distance.
    pub misses: Vec<String>,
    /// The command that runs the cell alone.
    pub command: String,
    /// One for each seed.
    pub samples: Vec<Sample>,
}

/// Medians over the samples of a row. Of an even number of samples it is the worse of the two in
/// the middle.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Median {
    /// The figure that the bar limits.
    pub figure: f64,
    /// Share of the line.
    pub utilisation: f64,
    /// Jain's index; none of a single flow.
    pub jain: Option<f64>,
    /// Mean queue in bandwidth-delay products.
    pub queue_mean_bdps: f64,
    /// 99th percentile of the queue in bandwidth-delay products.
    pub queue_p99_bdps: f64,
    /// Frames dropped, other than those of a lossy line.
    pub congestion_drops: u64,
    /// Retransmissions.
    pub retransmitted_pkts: u64,
    /// Time to 0.9 of the final rate; none if it was not reached.
    pub time_to_90_us: Option<f64>,
}

impl Row {
    /// The row of a cell with these samples.
    ///
    /// # Panics
    /// If there are no samples.
    #[must_use]
    pub fn new(untuned: &Untuned, cell: &Cell<'_>, samples: Vec<Sample>) -> Self {
        assert!(!samples.is_empty(), "a cell has run");
        let (measure, bar) = (cell.case.figure, untuned.bar(cell));
        let figures = || samples.iter().map(|sample| sample.figure);
        let worst = match measure.is_limit_from_above() {
            true => figures().fold(f64::NEG_INFINITY, f64::max),
            false => figures().fold(f64::INFINITY, f64::min),
        };
        let windows = samples.iter().map(|sample| sample.least_window_share);
        let mut row = Self {
            path: cell.case.name.clone(),
            host: cell.host,
            algorithm: untuned.algorithm().to_string(),
            measure,
            bar,
            median: Median::new(&samples, measure),
            worst,
            least_window_share: windows.fold(f64::INFINITY, f64::min),
            misses: Vec::new(),
            command: untuned.command(cell),
            samples,
        };
        row.misses = bar.map_or_else(Vec::new, |bar| row.find_misses(bar));
        row
    }

    fn find_misses(&self, bar: Bar) -> Vec<String> {
        let above = self.measure.is_limit_from_above();
        let miss = |name: &str, figure: f64, limit: Option<f64>, above: bool| {
            let limit = limit?;
            let short = if above { figure - limit } else { limit - figure };
            let side = if above { "most" } else { "least" };
            (short > 0.0)
                .then(|| format!("{name} {figure:.3} of at {side} {limit}, missed by {short:.3}"))
        };
        let stalled: u64 = self.samples.iter().map(|sample| sample.stalled_flows).sum();
        let stalled = (stalled > 0).then(|| format!("{stalled} flows stalled or failed"));
        [
            miss("median", self.median.figure, Some(bar.median), above),
            miss("worst", self.worst, bar.worst, above),
            miss("lowest window", self.least_window_share, bar.window, false),
            stalled,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// `met`, `MISSED`, or empty without a bar.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.bar {
            None => "",
            Some(_) if self.misses.is_empty() => "met",
            Some(_) => "MISSED",
        }
    }
}

impl Median {
    fn new(samples: &[Sample], measure: Figure) -> Self {
        let low = |of: fn(&Sample) -> f64| median(samples, of, false);
        let high = |of: fn(&Sample) -> f64| median(samples, of, true);
        let time = high(|sample| sample.time_to_90_us.unwrap_or(f64::INFINITY));
        Self {
            figure: median(samples, |sample| sample.figure, measure.is_limit_from_above()),
            utilisation: low(|sample| sample.utilisation),
            jain: samples[0].jain.map(|_| low(|sample| sample.jain.unwrap_or(0.0))),
            queue_mean_bdps: high(|sample| sample.queue_mean_bdps),
            queue_p99_bdps: high(|sample| sample.queue_p99_bdps),
            congestion_drops: count(samples, Sample::congestion_drops),
            retransmitted_pkts: count(samples, |sample| sample.retransmitted_pkts),
            time_to_90_us: Some(time).filter(|us| us.is_finite()),
        }
    }
}

/// The median; of an even number the larger of the two in the middle if `is_high`.
fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64, is_high: bool) -> f64 {
    let mut all: Vec<f64> = samples.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[(all.len() - usize::from(!is_high)) / 2]
}

fn count(samples: &[Sample], of: impl Fn(&Sample) -> u64) -> u64 {
    let mut all: Vec<u64> = samples.iter().map(of).collect();
    all.sort_unstable();
    all[usize::try_from(u64_from(all.len()) / 2).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row of a cell with these figures.
    fn row(only: &str, cc: &str, figures: &[f64]) -> Row {
        let set = [("only", only), ("cc", cc), ("host", "ideal")];
        let untuned = Untuned::new(set).unwrap();
        let cell = untuned.cells()[0];
        assert_eq!(cell.case.name, only);
        let of = |figure: &f64| sample(*figure);
        Row::new(&untuned, &cell, figures.iter().map(of).collect())
    }

    fn sample(figure: f64) -> Sample {
        Sample {
            seed: 1,
            figure,
            utilisation: figure,
            share_of_none: None,
            jain: None,
            least_of_fair_share: figure,
            least_window_share: figure / 2.0,
            time_to_90_us: Some(figure),
            queue_mean_bytes: 0.0,
            queue_p99_bytes: 0,
            queue_mean_bdps: figure,
            queue_p99_bdps: figure,
            drops: [("switch_queue_full".to_owned(), 7)].into(),
            marks: 0,
            retransmitted_pkts: 3,
            timeouts: 0,
            flows: 1,
            stalled_flows: 0,
            slowdown: None,
            event_hash: String::new(),
        }
    }

    #[test]
    fn new__the_bar_is_for_the_median_and_the_worst() {
        let good = row("200M/1ms", "auto", &[0.8, 0.95, 0.93]);
        assert_eq!((good.median.figure, good.worst, good.verdict()), (0.93, 0.8, "met"));
        let bad = row("200M/1ms", "auto", &[0.95, 0.7, 0.91]);
        assert_eq!(
            bad.misses,
            [
                "median 0.910 of at least 0.92, missed by 0.010",
                "worst 0.700 of at least 0.75, missed by 0.050",
            ]
        );
        assert_eq!(row("200M/1ms", "none", &[0.1]).verdict(), "");
        let slow = row("200M/1ms", "swift", &[0.75, 0.08]);
        assert_eq!(slow.misses[1], "lowest window 0.040 of at least 0.05, missed by 0.010");
    }

    #[test]
    fn new__a_queue_has_a_maximum() {
        let queue = row("200M/1ms, queue of 2 flows", "auto", &[0.5, 1.5]);
        assert_eq!((queue.median.figure, queue.worst, queue.misses.len()), (1.5, 1.5, 2));
    }

    #[test]
    fn new__medians_of_two_are_the_worse() {
        let m = row("200M/1ms", "auto", &[0.9, 0.8]).median;
        assert_eq!((m.utilisation, m.queue_mean_bdps, m.time_to_90_us), (0.8, 0.9, Some(0.9)));
        assert_eq!((m.congestion_drops, m.retransmitted_pkts, m.jain), (7, 3, None));
    }

    #[test]
    fn new__a_stalled_flow_misses_every_bar() {
        let untuned = Untuned::new([("only", "10000 flows")]).unwrap();
        let cell = untuned.cells()[0];
        let stalled = Sample { stalled_flows: 2, flows: 10_000, ..sample(0.9998) };
        let row = Row::new(&untuned, &cell, vec![stalled]);
        assert!(row.misses.contains(&"2 flows stalled or failed".to_owned()), "{:?}", row.misses);
    }
}
