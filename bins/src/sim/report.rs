//! The report of a run, as text and JSON.

use super::numbers::{decimals, per_second, rounded};
use super::tables::{write_agents, write_groups, write_metric};
use serde::Serialize;
use spanwire_host::text::bytes;
use spanwire_sim::{FlowReport, QueueReport, Report, SharingReport};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The JSON object of `spanwire sim run --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct RunReport {
    /// The simulator's report.
    #[serde(flatten)]
    pub(super) report: Report,
    /// The values of all parameters of the scenario.
    pub(super) parameters: BTreeMap<&'static str, String>,
    /// Wall-clock seconds of the simulation.
    pub(super) wall_s: f64,
    /// Packet hops per wall-clock second.
    pub(super) packet_hops_per_s: f64,
}

impl RunReport {
    /// The report of a run with wall-clock duration `wall`.
    pub(super) fn new(
        report: Report,
        parameters: BTreeMap<&'static str, String>,
        wall: Duration,
    ) -> Self {
        let wall_s = wall.as_secs_f64();
        let packet_hops_per_s = per_second(report.packet_hops, wall_s);
        Self { report, parameters, wall_s, packet_hops_per_s }
    }

    /// The report as text.
    pub(super) fn to_text(&self) -> String {
        let r = &self.report;
        // Writing to a String cannot fail, here and below.
        let mut out = format!("{}, seed {}\n", r.scenario, r.seed);
        write_flows(&mut out, &r.flows);
        if let Some(sharing) = &r.sharing {
            write_sharing(&mut out, sharing);
        }
        write_groups(&mut out, &r.groups);
        if let Some(metric) = &r.metric {
            write_metric(&mut out, metric);
        }
        write_queues(&mut out, &r.queues);
        write_agents(&mut out, &r.agents);
        write_counts(&mut out, "drops", &r.drops);
        if r.pfc_pauses > 0 {
            let _ = writeln!(out, "  pause frames: {}", r.pfc_pauses);
        }
        let recovery =
            RETRANSMISSIONS.iter().filter_map(|name| Some((*name, *r.engine.get(*name)?)));
        write_counts(
            &mut out,
            "recovery",
            &recovery.map(|(name, n)| (name.to_owned(), n)).collect(),
        );
        let _ = writeln!(
            out,
            "  {} us simulated in {:.3} s: {} events, {} packet hops, {} a second",
            decimals(r.simulated_us),
            self.wall_s,
            r.events,
            r.packet_hops,
            rounded(self.packet_hops_per_s)
        );
        let _ = writeln!(out, "  event hash {}", r.event_hash);
        write_checks(&mut out, &r.violations, ROWS_MAX);
        out
    }
}

/// The flows as CSV with a header line.
pub(super) fn flows_csv(flows: &[FlowReport]) -> String {
    let mut out = String::from("flow,src,dst,bytes,start_us,fct_us,slowdown,goodput_gbps,failed\n");
    for (i, f) in flows.iter().enumerate() {
        let [start, fct, slowdown, gbps] =
            [f.start_us, f.fct_us, f.slowdown, f.goodput_gbps].map(field);
        let (src, dst, bytes) = (f.src, f.dst, f.bytes);
        let failed = f.failed.unwrap_or_default();
        let _ = writeln!(out, "{i},{src},{dst},{bytes},{start},{fct},{slowdown},{gbps},{failed}");
    }
    out
}

fn field(n: Option<f64>) -> String {
    n.map(|n| n.to_string()).unwrap_or_default()
}

fn write_flows(out: &mut String, flows: &[FlowReport]) {
    let _ = writeln!(
        out,
        "  {:>5} {:>5} {:>10} {:>12} {:>12} {:>9} {:>10}",
        "src", "dst", "bytes", "start us", "FCT us", "slowdown", "Gbit/s"
    );
    for flow in flows.iter().take(ROWS_MAX) {
        let number = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), decimals);
        let _ = writeln!(
            out,
            "  {:>5} {:>5} {:>10} {:>12} {:>12} {:>9} {:>10}{}{}",
            flow.src,
            flow.dst,
            bytes(flow.bytes),
            number(flow.start_us),
            number(flow.fct_us),
            number(flow.slowdown),
            number(flow.goodput_gbps),
            if flow.failed.is_some() { "  " } else { "" },
            flow.failed.unwrap_or_default()
        );
    }
    write_rest(out, flows.len(), ROWS_MAX);
    let mut fcts: Vec<f64> = flows.iter().filter_map(|f| f.fct_us).collect();
    fcts.sort_by(f64::total_cmp);
    let Some(last) = fcts.len().checked_sub(1) else {
        return;
    };
    // Percentile: the value that `percent` per cent do not exceed.
    let at = |percent: usize| decimals(fcts[(last * percent).div_ceil(100)]);
    let _ = writeln!(
        out,
        "  {} of {} flows done: FCT us min {}, median {}, p99 {}, max {}",
        fcts.len(),
        flows.len(),
        at(0),
        at(50),
        at(99),
        at(100)
    );
}

fn write_sharing(out: &mut String, s: &SharingReport) {
    let share = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.3}"));
    let time = s.jain_time_us.map_or_else(|| "-".to_owned(), |us| format!("{} us", decimals(us)));
    let _ = writeln!(
        out,
        "  utilisation {:.3}, Jain {}, fair after {time}, queue mean {}, p99 {}, inter/intra {}",
        s.utilisation,
        share(s.jain),
        decimals(s.queue_bytes_mean),
        s.queue_bytes_p99,
        share(s.inter_intra_ratio)
    );
}

fn write_queues(out: &mut String, queues: &[QueueReport]) {
    let mut longest: Vec<&QueueReport> = queues.iter().collect();
    longest.sort_by_key(|q| std::cmp::Reverse(q.counters.max_bytes));
    if longest.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "  {:<16} {:>10} {:>12} {:>12} {:>9} {:>9}",
        "queue", "packets", "longest", "mean bytes", "marks", "drops"
    );
    for q in longest.iter().take(QUEUES_MAX) {
        let _ = writeln!(
            out,
            "  {:<16} {:>10} {:>12} {:>12.0} {:>9} {:>9}",
            q.name,
            q.counters.enqueued_pkts,
            bytes(q.counters.max_bytes),
            q.mean_bytes,
            q.marks,
            q.drops
        );
    }
    if longest.len() > QUEUES_MAX {
        let _ = writeln!(out, "  ... {} that were not as long", longest.len() - QUEUES_MAX);
    }
}

fn write_counts(out: &mut String, what: &str, counts: &BTreeMap<String, u64>) {
    if !counts.is_empty() {
        let counts: Vec<String> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let _ = writeln!(out, "  {what}: {}", counts.join(", "));
    }
}

/// Writes the result of the checkers with the first `most` violations.
pub(super) fn write_checks(out: &mut String, violations: &[String], most: usize) {
    match violations.len() {
        0 => out.push_str("  checkers: ok\n"),
        n => _ = writeln!(out, "  checkers: FAILED, {n} violations"),
    }
    for violation in violations.iter().take(most) {
        let _ = writeln!(out, "    {violation}");
    }
    write_rest(out, violations.len(), most);
}

/// Writes the number of rows that were not printed, if any.
fn write_rest(out: &mut String, rows: usize, most: usize) {
    if rows > most {
        let _ = writeln!(out, "  ... {} more", rows - most);
    }
}

/// The engine's counters of loss recovery.
const RETRANSMISSIONS: [&str; 4] =
    ["retransmitted_packets", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err"];
/// Limit of printed rows of a table.
const ROWS_MAX: usize = 16;
/// Limit of printed queues.
const QUEUES_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{flow, queue, report};

    fn run(flows: u32) -> RunReport {
        let mut r = report((0..flows).map(|i| flow(i, flows, 1 << 20, 100.0)).collect());
        r.queues = vec![queue("s0:2", 4096)];
        r.drops = [("switch_queue_full".to_owned(), 3)].into();
        r.engine = [("retransmitted_packets".to_owned(), 9), ("tx_acks".to_owned(), 5)].into();
        RunReport::new(r, [("bytes", "1MiB".to_owned())].into(), Duration::from_millis(250))
    }

    #[test]
    fn to_text__has_flows_drops_and_hash() {
        let mut run = run(3);
        run.report.flows[1].fct_us = None;
        run.report.flows[1].failed = Some("retry-exceeded");
        run.report.flows[2].fct_us = Some(102.0);
        let text = run.to_text();
        for part in [
            "incast-32, seed 7",
            "2 of 3 flows done: FCT us min 100.0, median 102.0, p99 102.0, max 102.0",
            "retry-exceeded",
            "s0:2",
            "4 KiB",
            "drops: switch_queue_full 3",
            "recovery: retransmitted_packets 9\n",
            "checkers: ok",
            "event hash 00000000deadbeef",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn to_text__has_sharing_only_if_measured() {
        let mut run = run(2);
        assert!(!run.to_text().contains("Jain"));
        let json = serde_json::to_value(&run).expect("it is plain data");
        assert!(json.get("utilisation").is_none(), "not of scenarios that do not ask");
        run.report.sharing = Some(SharingReport {
            utilisation: 0.9,
            jain: Some(0.98765),
            jain_time_us: None,
            queue_bytes_mean: 1234.5,
            queue_bytes_p99: 8000,
            inter_intra_ratio: None,
        });
        let text = run.to_text();
        let part = "utilisation 0.900, Jain 0.988, fair after -, queue mean 1234.5, p99 8000";
        assert!(text.contains(part), "{text}");
        let json = serde_json::to_value(&run).expect("it is plain data");
        for member in ["utilisation", "jain", "queue_bytes_mean", "queue_bytes_p99"] {
            assert!(json[member].is_number(), "{member}");
        }
        for member in ["jain_time_us", "inter_intra_ratio"] {
            assert!(json.get(member).is_some_and(serde_json::Value::is_null), "{member}");
        }
    }

    #[test]
    fn to_text__is_compact() {
        let text = run(500).to_text();
        assert!(text.contains("... 484 more") && text.lines().count() < 30, "{text}");
    }

    #[test]
    fn to_text__lists_violations() {
        let mut run = run(2);
        run.report.checkers_ok = false;
        run.report.violations = vec!["flow 1: a byte is wrong".to_owned()];
        let text = run.to_text();
        assert!(text.contains("FAILED, 1 violations\n    flow 1: a byte is wrong"), "{text}");
    }

    #[test]
    fn flows_csv__has_a_line_for_each_flow() {
        let mut flows = vec![flow(0, 2, 1 << 20, 100.0), flow(1, 2, 1 << 20, 100.0)];
        flows[1].fct_us = None;
        let csv = flows_csv(&flows);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[0].split(',').count(), 9);
        assert_eq!(lines[1], "0,0,2,1048576,0,100,1.25,80,");
        assert_eq!(lines[2], "1,1,2,1048576,0,,1.25,80,");
    }

    #[test]
    fn serialize__is_one_object_with_the_promised_members() {
        let json = serde_json::to_value(run(1)).expect("it is plain data");
        for member in [
            "scenario",
            "seed",
            "event_hash",
            "checkers_ok",
            "events",
            "packet_hops",
            "wall_s",
            "flows",
            "queues",
            "drops",
        ] {
            assert!(json.get(member).is_some(), "{member}");
        }
        for member in ["src", "dst", "bytes", "fct_us", "goodput_gbps"] {
            assert!(json["flows"][0].get(member).is_some(), "flows[].{member}");
        }
        assert_eq!(json["drops"]["switch_queue_full"], 3);
        assert_eq!(json["parameters"]["bytes"], "1MiB");
        assert_eq!(json["packet_hops_per_s"], 4000.0);
    }
}
