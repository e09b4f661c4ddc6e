//! What `spanwire perf client` reports.

use super::args::{ClientArgs, milliseconds};
use super::nonzero;
use crate::initiator::Initiator;
use crate::oob::Congestion;
use crate::report::{PerfRow, TransferRow, bytes, op_name, perf_table, say, seconds};
use crate::station::{JobReport, PerftestPeer, Station};
use serde::Serialize;
use spanwire_base::{Dur, Time};
use spanwire_transport::Agreed;

/// The JSON object that `spanwire perf client --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct ClientReport {
    fabric: &'static str,
    xdp_mode: Option<&'static str>,
    /// The wire mode agreed on: `rc` or `src`.
    mode: &'static str,
    /// Payload bytes of a full packet: the path MTU, or SRC's segment.
    segment_bytes: u32,
    /// Congestion control of what we sent, if any.
    congestion: Option<Congestion>,
    pub(super) ok: bool,
    error: Option<String>,
    thresholds: Vec<Threshold>,
    transfer: Option<TransferRow>,
    perf: Vec<PerfRow>,
    intervals: Vec<Interval>,
    /// FETCH_ADDs that the server's memory has seen, in which each completed one must be once.
    atomics_carried_out: Option<u64>,
    /// The tool and what is known of the peer, with `--oob perftest`.
    perftest: Option<Perftest>,
    counters: serde_json::Map<String, serde_json::Value>,
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

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Interval {
    start_s: f64,
    end_s: f64,
    bytes: u64,
    gbps: f64,
    msgs_per_s: f64,
}

impl ClientReport {
    /// The report of `report`, the outcome of what `args` asked for.
    pub(super) fn of(
        args: &ClientArgs,
        report: &JobReport,
        station: &Station,
        intervals: Vec<Interval>,
    ) -> Self {
        let transfer = args.transfer.map(|_| TransferRow::of(report));
        let perf = if transfer.is_some() { vec![] } else { vec![PerfRow::of(report)] };
        let thresholds = thresholds(args, report);
        let error = report.progress.failure.map(|f| f.to_string()).or_else(|| {
            let n = report.peer_atomics.filter(|_| !report.atomics_agree())?;
            let completed = report.progress.messages;
            Some(format!("{completed} atomics completed, and {n} were carried out"))
        });
        let agreed = station.agreed().unwrap_or(Agreed::Rc);
        let segment_bytes = match agreed {
            Agreed::Rc => report.job.path_mtu,
            Agreed::Src(terms) => terms.segment_bytes,
        };
        Self {
            fabric: "af_xdp",
            xdp_mode: station.attachment().xdp_mode,
            mode: agreed.mode().name(),
            segment_bytes,
            congestion: station.congestion().map(Congestion::from),
            ok: report.is_ok() && thresholds.iter().all(|t| t.ok),
            error,
            thresholds,
            transfer,
            perf,
            intervals,
            atomics_carried_out: report.peer_atomics,
            perftest: None,
            counters: nonzero(&station.counters()),
        }
    }

    /// The same report, of a run of perftest's `tool` against `peer`.
    pub(super) fn against(mut self, peer: PerftestPeer, tool: &'static str) -> Self {
        self.perftest = Some(Perftest { tool, peer });
        self
    }
}

/// Cuts a running job into intervals.
pub(super) struct Meter {
    every: Option<Dur>,
    print: bool,
    last: Option<(Time, u64, u64)>,
    pub(super) intervals: Vec<Interval>,
}

impl Meter {
    /// A meter that cuts every `interval_s` seconds; zero never cuts.
    pub(super) fn new(interval_s: f64, print: bool) -> Self {
        let every = milliseconds(interval_s).ok().filter(|ms| *ms > 0).map(Dur::from_ms);
        Self { every, print, last: None, intervals: Vec::new() }
    }

    /// Sees the job at `now`, and ends the interval if it is time.
    pub(super) fn look(&mut self, now: Time, app: &Initiator) {
        let p = app.progress();
        let (Some(every), Some(started)) = (self.every, p.started) else {
            return;
        };
        let (from, bytes_then, messages_then) = *self.last.get_or_insert((started, 0, 0));
        if now.since(from) < every || self.intervals.len() >= INTERVALS_MAX {
            return;
        }
        let (moved, messages) = (p.bytes - bytes_then, p.messages - messages_then);
        let took = seconds(now.since(from));
        #[expect(clippy::cast_precision_loss, reason = "a report's figure, of three digits")]
        let (gbps, msgs_per_s) = (moved as f64 * 8.0 / took / 1e9, messages as f64 / took);
        let (start_s, end_s) = (seconds(from.since(started)), seconds(now.since(started)));
        let interval = Interval { start_s, end_s, bytes: moved, gbps, msgs_per_s };
        if self.print {
            let moved = bytes(moved);
            say(&format!(
                "{start_s:>8.2}-{end_s:<6.2} s {moved:>10} {gbps:>8.3} Gbit/s \
                 {msgs_per_s:>10.0} messages/s\n"
            ));
        }
        self.intervals.push(interval);
        self.last = Some((now, p.bytes, p.messages));
    }
}

/// The report for people.
pub(super) fn text(r: &ClientReport) -> String {
    let mut out = String::new();
    if let Some(t) = &r.transfer {
        let same = match (&t.sha256, t.sha256_match) {
            (None, _) => "not compared",
            (Some(_), true) => "equal on both ends",
            (Some(_), false) => "DIFFERENT",
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
    for t in r.thresholds.iter().filter(|t| !t.ok) {
        out.push_str(&format!("  FAILED: {} {:.3}, measured {:.3}\n", t.name, t.limit, t.measured));
    }
    if let Some(e) = &r.error {
        out.push_str(&format!("  FAILED: {e}\n"));
    }
    out
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

/// Interval lines kept for JSON: a day of seconds.
const INTERVALS_MAX: usize = 86_400;
