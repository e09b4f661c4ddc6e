//! The report of `spanwire perf client`.

use super::args::ClientArgs;
use super::intervals::limits_text;
use crate::exit::Exit;
use crate::path_report::PathsReport;
use crate::report::{job_exit, loss_text, nonzero, op_name, perf_table, seconds, workers_text};
use crate::signals::Interrupt;
use serde::Serialize;
use spanwire_base::Time;
use spanwire_host::congestion::CongestionReport;
use spanwire_host::fabric::Fabric;
use spanwire_host::initiator::Failure;
use spanwire_host::runner::{
    FlowRow, Interval, JobReport, JobRunner, PerfRow, PerftestPeer, RECEIVE_OVERFLOWS, TransferRow,
    WorkerRow, counters_of,
};
use spanwire_host::text::bytes;
use spanwire_transport::Agreed;
use std::time::UNIX_EPOCH;

/// The JSON object that `spanwire perf client --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct ClientReport {
    fabric: Fabric,
    /// Packets have an ICRC.
    icrc: bool,
    xdp_mode: Option<&'static str>,
    /// The wire mode agreed on: `rc` or `sr`.
    mode: &'static str,
    /// Payload bytes of a full packet: the path MTU, or SR's segment.
    segment_bytes: u32,
    /// The same of the longest packet that the path carries whole, if that is less.
    reduced_segment_bytes: Option<u32>,
    /// The receive buffer of UDP sockets; null over another fabric.
    receive_buffer: Option<ReceiveBuffer>,
    /// Congestion control of sent data.
    congestion: CongestionReport,
    /// Erasure coding and paths of sent data.
    #[serde(flatten)]
    paths: PathsReport,
    ok: bool,
    pub(super) exit: Exit,
    error: Option<String>,
    thresholds: Vec<Threshold>,
    transfer: Option<TransferRow>,
    perf: Vec<PerfRow>,
    /// The measurements of each worker; their sum is `perf`.
    workers: Vec<WorkerRow>,
    /// Time of the first post in seconds since 1970; the origin of the intervals.
    start_unix_s: Option<f64>,
    intervals: Vec<Interval>,
    /// The whole run. Null against perftest.
    flow: Option<FlowRow>,
    /// FETCH_ADDs executed in the server's memory. Each completed one must be executed once.
    atomics_carried_out: Option<u64>,
    /// Times the server's receive buffer was full; null unless it is on UDP sockets.
    server_receive_overflows: Option<u64>,
    /// The tool and the peer's data, with `--oob perftest`.
    perftest: Option<Perftest>,
    counters: serde_json::Map<String, serde_json::Value>,
}

/// The receive buffer of UDP sockets.
#[derive(Debug, Serialize)]
struct ReceiveBuffer {
    /// Its size as the kernel grants it, its own overhead included.
    bytes: u32,
    /// Packets of the largest size that it holds.
    packets: u32,
    /// The window of a queue pair, above that of congestion control.
    window_pkts: u32,
    /// With congestion control it is so long for each millisecond of the least round trip, at least
    /// for one.
    follows_rtt: bool,
}

#[derive(Debug, Serialize)]
struct Perftest {
    tool: &'static str,
    peer: PerftestPeer,
}

#[derive(Debug, Serialize)]
pub(super) struct Threshold {
    name: &'static str,
    limit: f64,
    measured: f64,
    ok: bool,
}

impl ClientReport {
    /// The client's report of the results that the workers of `runners` had on `cores`, with the
    /// thresholds of `args`. `None` without one.
    pub(super) fn of(
        args: &ClientArgs,
        reports: Vec<JobReport>,
        runners: &[JobRunner],
        cores: &[Option<usize>],
        intervals: Vec<Interval>,
    ) -> Option<Self> {
        let workers = WorkerRow::of(&reports, cores);
        let (report, runner) = (&JobReport::sum(reports)?, runners.first()?);
        let transfer = args.transfer.map(|_| TransferRow::of(report));
        let perf = if transfer.is_some() { vec![] } else { vec![PerfRow::of(report)] };
        let thresholds = thresholds(args, report);
        let error = report.error().map(|error| match report.progress.failure {
            Some(Failure::NoResponse) => format!("{error} (here: {})", args.common.queue_text()),
            _ => error,
        });
        let error = error.or_else(|| {
            let n = report.peer_atomics().filter(|_| !report.atomics_agree())?;
            let completed = report.progress.messages;
            Some(format!("{completed} atomics completed, and {n} were carried out"))
        });
        let agreed = runner.agreed().unwrap_or(Agreed::Rc);
        let segment_bytes = match agreed {
            Agreed::Rc => report.job.path_mtu,
            Agreed::Sr(terms) => terms.segment_bytes,
        };
        Some(Self {
            fabric: runner.attachment().fabric,
            icrc: !agreed.has_no_icrc(),
            xdp_mode: runner.attachment().xdp_mode,
            mode: agreed.mode().name(),
            segment_bytes,
            reduced_segment_bytes: report.reduced_bytes,
            receive_buffer: ReceiveBuffer::of(runner),
            congestion: CongestionReport::new(
                runner.sending().congestion,
                report.flow.and_then(|flow| flow.congestion),
            ),
            paths: report.paths.as_ref().map(PathsReport::from).unwrap_or_default(),
            ok: report.is_ok() && thresholds.iter().all(|t| t.ok),
            exit: match job_exit(report) {
                Exit::Success if thresholds.iter().any(|t| !t.ok) => Exit::ThresholdMissed,
                exit => exit,
            },
            error,
            thresholds,
            transfer,
            perf,
            workers,
            start_unix_s: report.progress.started.map(|at| unix_seconds(runner, at)),
            intervals,
            flow: report.flow,
            atomics_carried_out: report.peer_atomics(),
            server_receive_overflows: report.peer.as_ref().and_then(|peer| peer.receive_overflows),
            perftest: None,
            counters: nonzero(&counters_of(runners)),
        })
    }

    /// A signal takes precedence over the outcome of the run.
    pub(super) fn interrupted(&mut self, interrupt: &Interrupt) {
        if interrupt.is_set() {
            self.ok = false;
            self.exit = interrupt.exit();
        }
    }

    /// The same report for a run of perftest's `tool` against `peer`.
    pub(super) fn against(mut self, peer: PerftestPeer, tool: &'static str) -> Self {
        self.perftest = Some(Perftest { tool, peer });
        self
    }
}

impl ReceiveBuffer {
    fn of(runner: &JobRunner) -> Option<Self> {
        let attachment = runner.attachment();
        let (bytes, packets) = attachment.receive_buffer.zip(attachment.receive_pkts())?;
        let follows_rtt = runner.window_follows_rtt();
        let most = if follows_rtt { packets } else { u32::MAX };
        let window_pkts = runner.window_pkts().min(most);
        Some(Self { bytes, packets, window_pkts, follows_rtt })
    }

    /// The cause of a short window, and what to do about it.
    fn text(&self) -> Option<String> {
        let Self { bytes, packets, window_pkts, follows_rtt } = *self;
        let window = match follows_rtt {
            true if bytes >= AMPLE_BYTES => return None,
            true => format!("{packets} packets, or so many for each millisecond of a round trip"),
            false if window_pkts == packets => format!("{packets} packets"),
            false => return None,
        };
        Some(format!(
            "  the window is at most {window}, which a receive buffer of {} KiB holds (--window, \
             sysctl net.core.rmem_max)\n",
            bytes >> 10
        ))
    }
}

/// A receive buffer of this many bytes is not worth a remark: it is that of `--rcvbuf` by default.
const AMPLE_BYTES: u32 = 16 << 20;

/// Datagrams, or runs of them, that a full receive buffer of an end lost, as text.
pub(super) fn overflow_text(whose: &str, overflows: u64) -> Option<String> {
    let text = format!("{whose} receive buffer overflowed {overflows} times (net.core.rmem_max)");
    (overflows > 0).then_some(text)
}

/// The report as text.
pub(super) fn text(r: &ClientReport) -> String {
    let mut out = String::new();
    if let Some(t) = &r.transfer {
        let same = match t.sha256_match {
            None => "not compared",
            Some(true) => "equal on both ends",
            Some(false) => "DIFFERENT",
        };
        out.push_str(&format!(
            "  {} by {} in {:.2} s, {:.3} Gbit/s, SHA-256 {same}\n",
            bytes(t.bytes),
            op_name(t.op),
            t.seconds,
            t.gbps
        ));
    } else {
        out.push_str(&perf_table(&r.perf));
    }
    out.push_str(&workers_text(&r.workers));
    out.extend(r.flow.as_ref().and_then(limits_text));
    out.extend(r.receive_buffer.as_ref().and_then(ReceiveBuffer::text));
    let overflows = r.counters.get(RECEIVE_OVERFLOWS).and_then(serde_json::Value::as_u64);
    let server = r.server_receive_overflows.unwrap_or(0);
    let overflows = [("the", overflows.unwrap_or(0)), ("the server's", server)];
    let overflows = overflows.into_iter().filter_map(|(whose, n)| overflow_text(whose, n));
    out.extend(overflows.map(|text| format!("  {text}\n")));
    out.push_str(&r.congestion.text());
    out.extend(r.paths.text());
    out.extend(loss_text(&r.counters));
    for t in r.thresholds.iter().filter(|t| !t.ok) {
        out.push_str(&format!("  FAILED: {} {:.3}, measured {:.3}\n", t.name, t.limit, t.measured));
    }
    if let Some(e) = &r.error {
        out.push_str(&format!("  FAILED: {e}\n"));
    }
    out
}

/// Converts a time of the runner's clock to seconds since 1970.
fn unix_seconds(runner: &JobRunner, at: Time) -> f64 {
    let start = runner.attachment().clock.wall_start().duration_since(UNIX_EPOCH);
    start.unwrap_or_default().as_secs_f64() + seconds(at.since(Time::ZERO))
}

fn thresholds(args: &ClientArgs, report: &JobReport) -> Vec<Threshold> {
    let floor = args.min_gbps.map(|limit| {
        let measured = report.gbps();
        Threshold { name: "min_gbps", limit, measured, ok: measured >= limit }
    });
    let ceiling = args.max_p99_us.map(|limit| {
        let measured = report.latency_us(0.99);
        Threshold { name: "max_p99_us", limit, measured, ok: measured <= limit }
    });
    floor.into_iter().chain(ceiling).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_text__names_the_end_and_the_limit() {
        assert_eq!(overflow_text("the", 0), None);
        let text = overflow_text("the server's", 3).expect("three");
        assert!(text.starts_with("the server's receive buffer overflowed 3 times"), "{text}");
        assert!(text.contains("net.core.rmem_max"), "{text}");
    }
}
