//! `spanwire sim run untuned`: congestion control with its defaults on a matrix of paths and hosts.

use super::args::RunArgs;
use super::file::Chosen;
use super::numbers::{per_second, rounded};
use super::prepare::{explained, shown};
use super::report::write_checks;
use super::sweep::sweep_all;
use crate::exit::Exit;
use crate::report::print_report;
use serde::Serialize;
use spanwire_base::{u64_from, usize_from};
use spanwire_host::fabric::Error;
use spanwire_sim::untuned::{CellOutcome, Row, Untuned};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::time::Instant;

/// The JSON object of `spanwire sim run untuned --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct UntunedReport {
    /// Always `untuned`.
    scenario: &'static str,
    /// The first seed.
    seed: u64,
    /// Number of seeds of each row.
    seeds: u64,
    /// The values of all parameters.
    parameters: BTreeMap<&'static str, String>,
    /// In the order of the matrix; the hosts of a path in turn.
    rows: Vec<Row>,
    /// Rows that missed a bar.
    missed: usize,
    /// No checker failed in any run.
    checkers_ok: bool,
    /// Violations that the checkers found.
    violations: Vec<String>,
    /// Events of all runs.
    events: u64,
    /// Packet hops of all runs.
    packet_hops: u64,
    /// Wall-clock seconds.
    wall_s: f64,
}

/// Runs the matrix.
pub(super) fn run(args: &RunArgs, chosen: &Chosen) -> Result<Exit, Error> {
    let of_one =
        [args.pcap.is_some(), args.samples.is_some(), args.flows.is_some(), args.plot.is_some()];
    if of_one.contains(&true) {
        return Err("untuned is many runs: --pcap, --samples, --flows and --plot need a single \
                    one. --json has the command of each row"
            .into());
    }
    let untuned = Untuned::new(chosen.set()).map_err(|e| explained(&e))?;
    if untuned.cells().is_empty() {
        return Err("no row is selected by only=, quick= and host=: `--set only=` has all".into());
    }
    let seeds = args.seeds.unwrap_or(NonZero::<u64>::MIN).get();
    chosen.seed.checked_add(seeds).ok_or("there are not as many seeds")?;
    let report = simulate(args, &untuned, chosen.seed, seeds)?;
    print_report(args.json, &report, UntunedReport::to_text)?;
    Ok(match (report.checkers_ok, report.missed) {
        (false, _) => Exit::Failure,
        (true, 0) => Exit::Success,
        (true, _) => Exit::ThresholdMissed,
    })
}

/// Runs all cells from all seeds in parallel on all cores. Each is a simulation of its own.
fn simulate(
    args: &RunArgs,
    untuned: &Untuned,
    seed: u64,
    seeds: u64,
) -> Result<UntunedReport, Error> {
    let cells = untuned.cells();
    let started = Instant::now();
    let run = |i| untuned.run(&cells[usize_from(i / seeds)], seed + i % seeds);
    let outcomes = sweep_all(u64_from(cells.len()) * seeds, !args.json, "runs", run)?;
    let sum = |of: fn(&CellOutcome) -> u64| outcomes.iter().map(of).sum();
    let (events, packet_hops) = (sum(|o| o.events), sum(|o| o.packet_hops));
    let (mut rows, mut violations) = (Vec::new(), Vec::new());
    for (cell, outcomes) in cells.iter().zip(outcomes.chunks(usize_from(seeds))) {
        for outcome in outcomes {
            let name = format!("{}, {}, seed {}", cell.case.name, cell.host, outcome.sample.seed);
            violations.extend(outcome.violations.iter().map(|v| format!("{name}: {v}")));
        }
        let samples = outcomes.iter().map(|outcome| outcome.sample.clone()).collect();
        rows.push(Row::new(untuned, cell, samples));
    }
    Ok(UntunedReport {
        scenario: Untuned::NAME,
        seed,
        seeds,
        parameters: shown(untuned.parameters()),
        missed: rows.iter().filter(|row| !row.misses.is_empty()).count(),
        rows,
        checkers_ok: violations.is_empty(),
        violations,
        events,
        packet_hops,
        wall_s: started.elapsed().as_secs_f64(),
    })
}

impl UntunedReport {
    fn to_text(&self) -> String {
        let algorithm = self.rows.first().map_or("", |row| &row.algorithm);
        let last = self.seed + self.seeds - 1;
        // Writing to a String cannot fail, here and below.
        let mut out = format!("{}, {algorithm}, seeds {} to {last}\n", self.scenario, self.seed);
        let _ = writeln!(
            out,
            "  {:<34} {:<5} {:>6} {:>6} {:>7} {:>7} {:>8} {:>8} {:>9} {:>6}  {:<13} {:>6} {:>6} \
             {:<16} verdict",
            "path",
            "host",
            "util",
            "Jain",
            "queue",
            "p99",
            "drops",
            "retrans",
            "to 0.9 ms",
            "lowest",
            "figure",
            "median",
            "worst",
            "bar",
        );
        self.rows.iter().for_each(|row| write_row(&mut out, row));
        out.push_str(
            "  util: payload over what the line carries; queue: in bandwidth-delay products, mean \
             and p99\n  lowest: window of a second, or a tenth of a short run; bar: median, \
             worst, lowest window\n",
        );
        for row in &self.rows {
            let name = format!("{}, {}", row.path, row.host);
            row.misses.iter().for_each(|miss| _ = writeln!(out, "  missed: {name}: {miss}"));
        }
        let bars = self.rows.iter().filter(|row| row.bar.is_some()).count();
        let _ = writeln!(out, "  {} of {bars} rows with a bar missed it", self.missed);
        let rate = rounded(per_second(self.packet_hops, self.wall_s));
        let _ = writeln!(
            out,
            "  {} events, {} packet hops in {:.1} s, {rate} a second",
            self.events, self.packet_hops, self.wall_s
        );
        write_checks(&mut out, &self.violations, usize::MAX);
        out
    }
}

fn write_row(out: &mut String, row: &Row) {
    let m = &row.median;
    let number = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.3}"));
    let limit = |l: Option<f64>| l.map_or_else(|| "-".to_owned(), |l| format!("{l:.2}"));
    let bar = row.bar.map_or_else(String::new, |bar| {
        let window = bar.window.map(|l| format!(", {l:.2}")).unwrap_or_default();
        format!("{:.2}, {}{window}", bar.median, limit(bar.worst))
    });
    let ms = m.time_to_90_us.map_or_else(|| "-".to_owned(), |us| format!("{:.3}", us / 1e3));
    let _ = writeln!(
        out,
        "  {:<34} {:<5} {:>6.3} {:>6} {:>7.3} {:>7.3} {:>8} {:>8} {ms:>9} {:>6.3}  {:<13} {:>6.3} \
         {:>6.3} {bar:<16} {}",
        row.path,
        row.host,
        m.utilisation,
        number(m.jain),
        m.queue_mean_bdps,
        m.queue_p99_bdps,
        m.congestion_drops,
        m.retransmitted_pkts,
        row.least_window_share,
        row.measure.name(),
        m.figure,
        row.worst,
        row.verdict(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(name: &str) -> RunArgs {
        RunArgs {
            name: Some(name.to_owned()),
            file: None,
            seed: None,
            seeds: NonZero::new(2),
            set: Vec::new(),
            json: true,
            plot: None,
            pcap: None,
            pcap_link: None,
            samples: None,
            flows: None,
        }
    }

    fn chosen(set: &[(&str, &str)]) -> Chosen {
        let set = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Chosen { name: Untuned::NAME.to_owned(), seed: 3, set: set.collect() }
    }

    #[test]
    fn simulate__every_row_has_every_seed() {
        let chosen = chosen(&[("only", "100G/5us"), ("quick", "true")]);
        let untuned = Untuned::new(chosen.set()).expect("parameters that it has");
        let report = simulate(&args("untuned"), &untuned, 3, 2).expect("it can be built");
        let seeds: Vec<u64> = report.rows[0].samples.iter().map(|sample| sample.seed).collect();
        assert_eq!((report.rows.len(), seeds), (1, vec![3, 4]));
        let text = report.to_text();
        for part in ["untuned, auto, seeds 3 to 4", "100G/5us", "of line", "0.92, 0.75", "met"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let json = serde_json::to_value(&report).expect("it is plain data");
        let sample = &json["rows"][0]["samples"][1];
        for member in ["utilisation", "queue_p99_bytes", "time_to_90_us", "drops", "event_hash"] {
            assert!(sample.get(member).is_some(), "{member}: {sample}");
        }
        assert_eq!(json["rows"][0]["measure"], "share_of_line");
    }

    #[test]
    fn run__rejects_what_is_of_one_run_and_an_empty_selection() {
        let none = run(&args("untuned"), &chosen(&[("only", "no such row")])).unwrap_err();
        assert!(none.to_string().contains("only="), "{none}");
        let plot = RunArgs { plot: Some("x".into()), ..args("untuned") };
        let error = run(&plot, &chosen(&[])).unwrap_err();
        assert!(error.to_string().contains("--plot"), "{error}");
    }
}
