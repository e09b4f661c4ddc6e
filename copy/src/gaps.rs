//! Statistics of the gaps between received chunks.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::{Duration, Instant, SystemTime};

/// Times from one chunk of a file to the next, as the application receives them.
#[derive(Debug)]
pub(crate) struct Gaps {
    last: Option<Instant>,
    /// In microseconds.
    times: Histogram<u64>,
    /// Longest first.
    longest: Vec<LongGap>,
}

/// A gap without data.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LongGap {
    /// Its length.
    pub ms: f64,
    /// Its end, in seconds since 1970, for comparison with other logs.
    pub until_unix_s: f64,
}

/// Statistics of gaps, for reports.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GapRow {
    /// Chunks with a preceding chunk of the same file.
    pub chunks: u64,
    /// Median of the gaps.
    pub median_ms: f64,
    /// The longest gap inside a file.
    pub longest_ms: f64,
    /// The longest gaps, at most eight, in descending order.
    pub longest: Vec<LongGap>,
}

impl Gaps {
    pub(crate) fn chunk_came(&mut self, now: Instant, ends_file: bool) {
        if let Some(last) = self.last {
            let gap = now.saturating_duration_since(last).min(GAP_MAX);
            let us = u64::try_from(gap.as_micros()).unwrap_or(u64::MAX);
            self.times.saturating_record(us);
            self.note_long(milliseconds(us), now);
        }
        // The gap after a file is caused by the sender's disk, or has no cause.
        self.last = (!ends_file).then_some(now);
    }

    fn note_long(&mut self, ms: f64, until: Instant) {
        let at = self.longest.partition_point(|longer| longer.ms >= ms);
        if at < LONGEST {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let until = since.unwrap_or_default().saturating_sub(until.elapsed());
            let until_unix_s = until.as_secs_f64();
            self.longest.truncate(LONGEST - 1);
            self.longest.insert(at, LongGap { ms, until_unix_s });
        }
    }

    pub(crate) fn row(&self) -> Option<GapRow> {
        if self.times.is_empty() {
            return None;
        }
        Some(GapRow {
            chunks: self.times.len(),
            median_ms: milliseconds(self.times.value_at_quantile(0.5)),
            longest_ms: milliseconds(self.times.max()),
            longest: self.longest.clone(),
        })
    }
}

impl Default for Gaps {
    fn default() -> Self {
        let max = u64::try_from(GAP_MAX.as_micros()).unwrap_or(u64::MAX);
        let times = Histogram::new_with_max(max, DIGITS);
        let times = times.expect("an hour has enough microseconds for the digits");
        Self { last: None, times, longest: Vec::new() }
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of an hour fit 53 bits")]
fn milliseconds(us: u64) -> f64 {
    us as f64 / 1e3
}

/// Upper bound of a gap. A connection without data is closed long before.
const GAP_MAX: Duration = Duration::from_secs(3600);

const DIGITS: u8 = 3;
const LONGEST: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_came__counts_between_chunks_of_one_file() {
        let mut gaps = Gaps::default();
        let start = Instant::now();
        let mut came = |ms, ends| gaps.chunk_came(start + Duration::from_millis(ms), ends);
        came(0, false);
        came(10, false);
        came(20, false);
        came(75, false);
        came(85, true);
        // Another file, one second later.
        came(1_085, false);
        came(1_095, true);
        let row = gaps.row().unwrap();
        assert_eq!(row.chunks, 5);
        assert!((row.median_ms - 10.0).abs() < 0.1, "{row:?}");
        assert!((row.longest_ms - 55.0).abs() < 0.1, "{row:?}");
        let longest: Vec<f64> = row.longest.iter().map(|gap| gap.ms).collect();
        assert_eq!(longest, [55.0, 10.0, 10.0, 10.0, 10.0]);
        for ms in 0..20 {
            gaps.note_long(f64::from(ms), Instant::now());
        }
        let longest: Vec<f64> = gaps.row().unwrap().longest.iter().map(|gap| gap.ms).collect();
        assert_eq!(longest, [55.0, 19.0, 18.0, 17.0, 16.0, 15.0, 14.0, 13.0]);
    }

    #[test]
    fn row__ignores_files_of_one_chunk() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.row(), None);
        gaps.chunk_came(Instant::now(), true);
        gaps.chunk_came(Instant::now(), true);
        assert_eq!(gaps.row(), None);
    }
}
