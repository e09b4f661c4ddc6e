//! A job of several workers: the part of each, and the sum of their reports.

use super::{FlowRow, JobReport, JobRunner, Shares};
use crate::fabric::sum_counters;
use crate::initiator::Progress;
use crate::oob::{Job, JobKind, Outcome};
use sha2::{Digest, Sha256};
use spanwire_base::Time;

impl Job {
    /// The part of worker `index` of `workers`, each of which has the queue pairs of this job: its
    /// share of the bytes of a transfer, with a seed of its own; a run as it is.
    ///
    /// # Errors
    /// A transfer has fewer bytes than there are workers.
    pub fn part(self, index: u32, workers: u32) -> Result<Self, String> {
        let JobKind::Transfer { bytes, seed } = self.kind else { return Ok(self) };
        let (i, n) = (u64::from(index), u64::from(workers));
        if bytes < n {
            return Err(format!("{bytes} bytes are too few for {workers} workers"));
        }
        let bytes = bytes / n + u64::from(i < bytes % n);
        Ok(Self { kind: JobKind::Transfer { bytes, seed: seed.wrapping_add(i) }, ..self })
    }
}

/// The counters of engines and ports of several workers, added up by name.
#[must_use]
pub fn counters_of<'a>(runners: impl IntoIterator<Item = &'a JobRunner>) -> Vec<(String, u64)> {
    sum_counters(runners.into_iter().flat_map(JobRunner::counters))
}

impl JobReport {
    /// The sum of the reports of workers that share a clock: messages, bytes and queue pairs are
    /// sums, the time is from the first post of one to the end of the last, latencies are of all
    /// messages, and hashes are of the hashes in their order. The first failure is that of all.
    /// `None` without a report.
    #[must_use]
    pub fn sum(reports: Vec<Self>) -> Option<Self> {
        let flows: Vec<FlowRow> = reports.iter().filter_map(|report| report.flow).collect();
        let mut reports = reports.into_iter();
        let mut sum = reports.next()?;
        let (mut sha256, mut theirs) = (sum.sha256.take(), sum.peer_sha256());
        let mut others = 0;
        for one in reports {
            others += 1;
            sum.job = sum.job.and(&one.job);
            sum.progress = sum.progress.and(&one.progress);
            // Both have the bounds of `latency_histogram`.
            let added = sum.latency.add(&one.latency);
            debug_assert!(added.is_ok(), "{added:?}");
            sha256 = sha256.zip(one.sha256.as_ref()).map(|(all, one)| all + one);
            theirs = theirs.zip(one.peer_sha256()).map(|(all, one)| all + &one);
            sum.peer = sum.peer.zip(one.peer).map(|(all, one)| all.and(&one));
            sum.missing = sum.missing.or(one.missing);
            sum.reduced_bytes = least(sum.reduced_bytes, one.reduced_bytes);
            if let (Some(paths), Some(more)) = (&mut sum.paths, one.paths) {
                paths.qps.extend(more.qps);
            }
        }
        let hash = |text: String| match others {
            0 => text,
            _ => Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect(),
        };
        sum.sha256 = sha256.map(hash);
        if let Some(peer) = &mut sum.peer {
            peer.sha256 = theirs.map(hash);
        }
        sum.flow = FlowRow::sum(&flows);
        Some(sum)
    }

    fn peer_sha256(&self) -> Option<String> {
        self.peer.as_ref()?.sha256.clone()
    }
}

impl Job {
    fn and(self, other: &Self) -> Self {
        let kind = match (self.kind, other.kind) {
            (JobKind::Transfer { bytes, seed }, JobKind::Transfer { bytes: more, .. }) => {
                JobKind::Transfer { bytes: bytes + more, seed }
            }
            (kind, _) => kind,
        };
        Self { kind, qps: self.qps + other.qps, ..self }
    }
}

impl Progress {
    fn and(self, other: &Self) -> Self {
        let latest = |a: Option<Time>, b: Option<Time>| a.max(b);
        Self {
            started: least(self.started, other.started),
            until: latest(self.until, other.until),
            last_completion: latest(self.last_completion, other.last_completion),
            // One that has not ended has no end, so the sum has none.
            finished: self.finished.zip(other.finished).map(|(a, b)| a.max(b)),
            longest_gap: self.longest_gap.max(other.longest_gap),
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            unfinished: self.unfinished + other.unfinished,
            failure: self.failure.or(other.failure),
        }
    }
}

impl Outcome {
    fn and(self, other: &Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a + b);
        Self {
            messages: self.messages + other.messages,
            atomics: sum(self.atomics, other.atomics),
            receive_overflows: sum(self.receive_overflows, other.receive_overflows),
            ..self
        }
    }
}

impl FlowRow {
    /// The sum over workers: as over queue pairs, windows and rates are sums, RTTs and fractions
    /// are means. `None` without a row.
    #[must_use]
    pub fn sum(rows: &[Self]) -> Option<Self> {
        let first = rows.first()?;
        let limits: Vec<Shares> = rows.iter().filter_map(|row| row.limited).collect();
        let limited = Shares::mean(&limits);
        Some(Self {
            cwnd_bytes: rows.iter().map(|row| row.cwnd_bytes).sum(),
            rate_gbps: rows.iter().filter_map(|row| row.rate_gbps).reduce(|a, b| a + b),
            srtt_us: mean(rows.iter().filter_map(|row| row.srtt_us)),
            marked: mean(rows.iter().filter_map(|row| row.marked)),
            cnps: rows.iter().map(|row| row.cnps).sum(),
            limited_by: limited.map(|shares| shares.largest()),
            limited,
            congestion: first.congestion,
        })
    }
}

impl Shares {
    fn mean(all: &[Self]) -> Option<Self> {
        let of = |share: fn(&Self) -> f64| mean(all.iter().map(share));
        Some(Self {
            window: of(|s| s.window)?,
            pacer: of(|s| s.pacer)?,
            receiver: of(|s| s.receiver)?,
            ring: of(|s| s.ring)?,
            cpu: of(|s| s.cpu)?,
            application: of(|s| s.application)?,
            endpoint: of(|s| s.endpoint)?,
        })
    }
}

fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.into_iter().chain(b).min()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initiator::{Failure, latency_histogram};
    use spanwire_base::Dur;

    fn at(ms: u64) -> Option<Time> {
        Some(Time::ZERO + Dur::from_ms(ms))
    }

    fn report(kind: JobKind, [started, finished]: [u64; 2], latency_ns: u64) -> JobReport {
        let (started, finished) = (at(started), at(finished));
        let progress =
            Progress { started, finished, messages: 10, bytes: 1_000_000, ..Progress::default() };
        let mut latency = latency_histogram();
        latency.record_n(latency_ns, 10).unwrap();
        JobReport::new(Job::of(kind), progress, latency, false)
    }

    fn run() -> JobKind {
        JobKind::Bandwidth { duration_ms: 10 }
    }

    #[test]
    fn sum__is_from_the_first_post_to_the_last_end() {
        let parts = vec![report(run(), [1, 11], 1_000), report(run(), [3, 13], 3_000)];
        let sum = JobReport::sum(parts).unwrap();
        assert_eq!(sum.duration(), Dur::from_ms(12));
        assert_eq!((sum.progress.messages, sum.progress.bytes, sum.job.qps), (20, 2_000_000, 2));
        assert!((sum.latency_us(0.25) - 1.0).abs() < 0.01, "{}", sum.latency_us(0.25));
        assert!((sum.latency_us(0.99) - 3.0).abs() < 0.01, "{}", sum.latency_us(0.99));
        assert!(sum.is_ok());
    }

    #[test]
    fn sum__one_failure_is_that_of_all() {
        let mut failed = report(run(), [0, 5], 1);
        failed.progress.failure = Some(Failure::NoResponse);
        let sum = JobReport::sum(vec![report(run(), [0, 9], 1), failed]).unwrap();
        assert!(!sum.is_ok() && sum.progress.failure == Some(Failure::NoResponse));
        let mut endless = report(run(), [0, 5], 1);
        endless.progress.finished = None;
        assert!(!JobReport::sum(vec![report(run(), [0, 9], 1), endless]).unwrap().is_ok());
        assert!(JobReport::sum(vec![]).is_none());
    }

    #[test]
    fn sum__hashes_are_equal_only_if_each_is() {
        let with = |ours: &str, theirs: &str| {
            let mut one = report(JobKind::Transfer { bytes: 7, seed: 1 }, [0, 1], 1);
            one.sha256 = Some(ours.to_owned());
            let sha256 = Some(theirs.to_owned());
            one.peer =
                Some(Outcome { sha256, messages: 1, atomics: None, receive_overflows: None });
            one
        };
        let equal = JobReport::sum(vec![with("a", "a"), with("b", "b")]).unwrap();
        assert_eq!(equal.sha256_match(), Some(true));
        assert!(equal.is_ok() && equal.sha256.is_some_and(|hash| hash.len() == 64));
        let crossed = JobReport::sum(vec![with("a", "b"), with("b", "a")]).unwrap();
        assert_eq!(crossed.sha256_match(), Some(false));
        assert_eq!(JobReport::sum(vec![with("a", "a")]).unwrap().sha256.as_deref(), Some("a"));
    }

    #[test]
    fn part__shares_add_up_to_the_transfer() {
        let job = Job::of(JobKind::Transfer { bytes: 1_000_003, seed: u64::MAX });
        let parts: Vec<_> = (0..4).map(|i| job.part(i, 4).unwrap().kind).collect();
        let all = parts.iter().map(|kind| match kind {
            JobKind::Transfer { bytes, .. } => *bytes,
            _ => 0,
        });
        assert_eq!(all.sum::<u64>(), 1_000_003);
        assert_eq!(parts[1], JobKind::Transfer { bytes: 250_001, seed: 0 });
        let few = Job::of(JobKind::Transfer { bytes: 3, seed: 1 });
        assert!(few.part(0, 4).unwrap_err().contains("too few for 4 workers"));
    }

    #[test]
    fn flows__rates_are_sums_and_fractions_are_means() {
        let row = |rate_gbps, window, marked| FlowRow {
            cwnd_bytes: 100,
            rate_gbps,
            srtt_us: None,
            marked,
            cnps: 2,
            limited_by: Some("window"),
            limited: Some(Shares { window, cpu: 1.0 - window, ..Shares::default() }),
            congestion: None,
        };
        let sum = FlowRow::sum(&[row(Some(1.5), 0.8, Some(0.5)), row(None, 0.1, None)]).unwrap();
        assert_eq!((sum.cwnd_bytes, sum.rate_gbps, sum.cnps), (200, Some(1.5), 4));
        assert_eq!((sum.marked, sum.srtt_us, sum.limited_by), (Some(0.5), None, Some("cpu")));
    }
}
