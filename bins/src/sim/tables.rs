//! Tables of groups of flows, of agents, and of a paper's metric.

use super::numbers::decimals;
use serde_json::Value;
use spanwire_sim::{AgentReport, FctStats, GroupReport, MetricReport, SizeReport, Spread};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Writes the statistics of groups, each with its sizes.
pub(super) fn write_groups(out: &mut String, groups: &[GroupReport]) {
    if groups.is_empty() {
        return;
    }
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        out,
        "  {:<22} {:>7} {:>7} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9}",
        "flows", "n", "failed", "FCT us", "p50", "p99", "NFCT", "p50", "p99"
    );
    for group in groups {
        write_stats(out, &group.name, &group.all);
        for size in group.by_size.iter().filter(|size| size.flows.n > 0) {
            write_stats(out, &format!("  {}", range(size)), &size.flows);
        }
    }
}

fn write_stats(out: &mut String, name: &str, stats: &FctStats) {
    let [fct, nfct] = [&stats.fct_us, &stats.nfct].map(|spread| {
        let of = |value: fn(&Spread) -> f64| {
            spread.as_ref().map_or_else(|| "-".to_owned(), |spread| decimals(value(spread)))
        };
        [of(|s| s.mean), of(|s| s.p50), of(|s| s.p99)]
    });
    let _ = writeln!(
        out,
        "  {name:<22} {:>7} {:>7} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9}",
        stats.n, stats.failed, fct[0], fct[1], fct[2], nfct[0], nfct[1], nfct[2]
    );
}

/// The sizes as words: the ranges of papers are decimal.
fn range(size: &SizeReport) -> String {
    match (size.above_bytes, size.upto_bytes) {
        (0, Some(upto)) => format!("up to {}", decimal(upto)),
        (above, Some(upto)) => format!("{} to {}", decimal(above), decimal(upto)),
        (above, None) => format!("above {}", decimal(above)),
    }
}

fn decimal(bytes: u64) -> String {
    let units = [(1_000_000, "MB"), (1_000, "kB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        None => format!("{bytes} B"),
        Some((unit, name)) if bytes.is_multiple_of(unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
    }
}

/// Writes the totals of all agents of each kind.
pub(super) fn write_agents(out: &mut String, agents: &[AgentReport]) {
    let mut kinds: BTreeMap<&str, (usize, BTreeMap<&str, u64>)> = BTreeMap::new();
    for agent in agents {
        let (count, totals) = kinds.entry(agent.kind).or_default();
        *count += 1;
        for (name, n) in &agent.counters {
            *totals.entry(name).or_default() += n;
        }
    }
    for (kind, (count, totals)) in kinds {
        let totals: Vec<String> = totals.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let _ = writeln!(out, "  agents {kind} ({count}): {}", totals.join(", "));
    }
}

/// Writes the values of a metric, by their names in JSON.
pub(super) fn write_metric(out: &mut String, metric: &MetricReport) {
    let values = serde_json::to_value(metric).expect("it is plain data");
    for (name, value) in values.as_object().into_iter().flatten() {
        let _ = writeln!(out, "  {name}: {}", text(value));
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Number(n) if n.is_f64() => decimals(n.as_f64().expect("it is one")),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_sim::{BurstReport, IsolatedReport};

    fn stats(n: u64) -> FctStats {
        let spread = Spread { mean: 1234.56, p50: 2.0, p99: 3.0, p999: 4.0 };
        FctStats { n, failed: 1, fct_us: Some(spread), nfct: None }
    }

    #[test]
    fn write_groups__a_line_for_each_group_and_size_with_flows() {
        let size =
            |above_bytes, upto_bytes, n| SizeReport { above_bytes, upto_bytes, flows: stats(n) };
        let by_size = vec![
            size(0, Some(100_000), 3),
            size(10, Some(12_500_000), 0),
            size(1_000_000, None, 2),
        ];
        let mut out = String::new();
        write_groups(&mut out, &[GroupReport { name: "inter".to_owned(), all: stats(5), by_size }]);
        let lines: Vec<Vec<&str>> = out.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["inter", "5", "1", "1234.6", "2.000", "3.000", "-", "-", "-"]);
        assert_eq!(lines[2][..5], ["up", "to", "100", "kB", "3"]);
        assert_eq!(lines[3][..4], ["above", "1", "MB", "2"]);
        assert_eq!(lines.len(), 4, "{out}");
    }

    #[test]
    fn range__is_of_decimal_units() {
        let of = |above_bytes, upto_bytes| {
            range(&SizeReport { above_bytes, upto_bytes, flows: stats(0) })
        };
        assert_eq!(of(1_000_000, Some(12_500_000)), "1 MB to 12.5 MB");
        assert_eq!(of(0, Some(900)), "up to 900 B");
    }

    #[test]
    fn write_agents__adds_those_of_a_kind() {
        let agent = |kind, port| AgentReport {
            switch: "edge0".to_owned(),
            kind,
            port,
            counters: [("feedback_tx", 4)].into(),
            gauges: BTreeMap::new(),
        };
        let mut out = String::new();
        write_agents(&mut out, &[agent("pacc", 1), agent("nsf", 1), agent("pacc", 2)]);
        assert_eq!(out, "  agents nsf (1): feedback_tx 4\n  agents pacc (2): feedback_tx 8\n");
    }

    #[test]
    fn write_metric__names_and_values() {
        let mut out = String::new();
        write_metric(&mut out, &MetricReport::Isolated(IsolatedReport { isolated_flows: 7 }));
        let burst = BurstReport {
            peak_bytes: 592_000,
            below_200kb_us: None,
            refill_us: Some(19.25),
            rates_gbps: vec![2.5, 2.25],
            cnps: vec![8, 9],
        };
        write_metric(&mut out, &MetricReport::Burst(burst));
        for line in [
            "  isolated_flows: 7\n",
            "  peak_bytes: 592000\n",
            "  below_200kb_us: -\n",
            "  refill_us: 19.250\n",
            "  rates_gbps: 2.500 2.250\n",
            "  cnps: 8 9\n",
        ] {
            assert!(out.contains(line), "{line} is missing in\n{out}");
        }
    }
}
