//! The results of jobs as rows of a report, which are JSON objects.

use super::JobReport;
use crate::oob::{Job, JobKind, Op};
use serde::Serialize;
use spanwire_base::Dur;

/// One measurement, as `perf[]` in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct PerfRow {
    /// `send`, `write`, `read`, `fetch-add` or `cmp-swap`.
    pub op: Op,
    /// `bandwidth` or `latency`.
    pub mode: &'static str,
    /// Bytes of a message.
    pub size: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Messages outstanding on each queue pair.
    pub depth: u32,
    /// Path MTU in payload bytes.
    pub path_mtu: u32,
    /// Goodput in 10^9 bits per second.
    pub gbps: f64,
    /// Messages per second.
    pub msgs_per_s: f64,
    /// Meaning of the quantiles: `completion` (from post to completion) or `half_rtt`.
    pub latency: &'static str,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile in microseconds.
    pub p999_us: f64,
    /// Messages completed.
    pub messages: u64,
    /// Messages still outstanding when the run was ended, a second after its duration.
    pub unfinished: u64,
    /// Seconds from the first post to the end of the run: its duration, or the last completion if
    /// that is later.
    pub seconds: f64,
    /// The longest time without a completion, in seconds.
    pub longest_gap_s: f64,
    /// The failure, if it ended early, or why the result of the peer is missing.
    pub error: Option<String>,
}

/// One of several workers, as `workers[]` in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerRow {
    /// Its index, from 0.
    pub worker: usize,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// Its measurement.
    #[serde(flatten)]
    pub row: PerfRow,
}

/// A transfer, as `transfer` in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct TransferRow {
    /// The operation.
    pub op: Op,
    /// Bytes of completed messages.
    pub bytes: u64,
    /// Queue pairs.
    pub qps: u32,
    /// Path MTU in payload bytes.
    pub path_mtu: u32,
    /// Goodput in 10^9 bits per second.
    pub gbps: f64,
    /// Seconds from the first post to the last completion, without hashing.
    pub seconds: f64,
    /// SHA-256 of the local memory.
    pub sha256: Option<String>,
    /// The memory of both ends has the same hash. Null if one of the hashes is unknown.
    pub sha256_match: Option<bool>,
    /// The failure, if it ended early, or why the result of the peer is missing.
    pub error: Option<String>,
}

impl PerfRow {
    /// The row of a bandwidth or latency job.
    #[must_use]
    pub fn of(report: &JobReport) -> Self {
        let Job { op, size, qps, depth, path_mtu, kind, .. } = report.job;
        let latency = matches!(kind, JobKind::Latency { .. });
        Self {
            op,
            mode: if latency { "latency" } else { "bandwidth" },
            size,
            qps,
            depth,
            path_mtu,
            gbps: report.gbps(),
            msgs_per_s: report.messages_per_s(),
            latency: if report.is_ping_pong() { "half_rtt" } else { "completion" },
            p50_us: report.latency_us(0.5),
            p99_us: report.latency_us(0.99),
            p999_us: report.latency_us(0.999),
            messages: report.progress.messages,
            unfinished: report.progress.unfinished,
            seconds: seconds(report.duration()),
            longest_gap_s: seconds(report.progress.longest_gap),
            error: report.error(),
        }
    }
}

impl WorkerRow {
    /// The rows of workers with these cores.
    #[must_use]
    pub fn of(reports: &[JobReport], cores: &[Option<usize>]) -> Vec<Self> {
        let row = |(worker, (report, core)): (usize, (&JobReport, &Option<usize>))| Self {
            worker,
            core: *core,
            row: PerfRow::of(report),
        };
        reports.iter().zip(cores).enumerate().map(row).collect()
    }
}

impl TransferRow {
    /// The row of a transfer.
    #[must_use]
    pub fn of(report: &JobReport) -> Self {
        let Job { op, qps, path_mtu, .. } = report.job;
        Self {
            op,
            bytes: report.progress.bytes,
            qps,
            path_mtu,
            gbps: report.gbps(),
            seconds: seconds(report.duration()),
            sha256: report.sha256.clone(),
            sha256_match: report.sha256_match(),
            error: report.error(),
        }
    }
}

/// A duration in seconds.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a report's figure; 53 bits of nanoseconds")]
pub fn seconds(d: Dur) -> f64 {
    d.as_ns() as f64 / 1e9
}
