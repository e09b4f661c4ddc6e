//! `spanwire sim run loss-sweep`: goodput of RC and SR over loss, RTT and reordering.

use super::args::RunArgs;
use super::file::Chosen;
use super::numbers::{per_second, rounded};
use super::pictures;
use super::prepare::{cannot_write, explained, shown};
use super::report::write_checks;
use super::sweep::sweep_all;
use crate::exit::Exit;
use crate::report::print_report;
use serde::Serialize;
use spanwire_base::{u64_from, usize_from};
use spanwire_host::fabric::Error;
use spanwire_sim::{Bar, CellOutcome, LossSweep, SweepRow};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

/// The JSON object of `spanwire sim run loss-sweep --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct SweepReport {
    /// Always `loss-sweep`.
    scenario: &'static str,
    /// Seed of all randomness.
    pub(super) seed: u64,
    /// The values of all parameters.
    pub(super) parameters: BTreeMap<&'static str, String>,
    /// By RTT, then by loss, then by reordering; RC before SR.
    pub(super) rows: Vec<SweepRow>,
    /// Thresholds that SR must meet.
    pub(super) bars: Vec<Bar>,
    /// No checker failed in any run.
    pub(super) checkers_ok: bool,
    /// Violations that the checkers found.
    violations: Vec<String>,
    /// Events of all rows.
    events: u64,
    /// Packet hops of all rows.
    packet_hops: u64,
    /// Wall-clock seconds.
    wall_s: f64,
}

/// Runs the sweep.
pub(super) fn run(args: &RunArgs, chosen: &Chosen) -> Result<Exit, Error> {
    let of_one = [args.pcap.is_some(), args.samples.is_some(), args.flows.is_some()];
    if of_one.contains(&true) {
        return Err("loss-sweep is many runs: --pcap, --samples and --flows need one run".into());
    }
    if args.seeds.is_some() {
        return Err("loss-sweep runs from one seed: --seeds is for other scenarios".into());
    }
    let of = LossSweep::new(chosen.seed, chosen.set()).map_err(|e| explained(&e))?;
    let report = simulate(args, chosen.seed, &of)?;
    if let Some(dir) = &args.plot {
        pictures::write_sweep(&report, dir).map_err(|e| cannot_write(dir, &e))?;
    }
    print_report(args.json, &report, SweepReport::to_text)?;
    Ok(match (report.checkers_ok, report.bars.iter().all(|bar| bar.ok)) {
        (false, _) => Exit::Failure,
        (true, false) => Exit::ThresholdMissed,
        (true, true) => Exit::Success,
    })
}

/// Runs all cells in parallel on all cores. Each cell is a simulation of its own; rows are in the
/// order of the cells.
fn simulate(args: &RunArgs, seed: u64, of: &LossSweep) -> Result<SweepReport, Error> {
    let cells = of.cells();
    let started = Instant::now();
    let run = |i| of.run(&cells[usize_from(i)]);
    let outcomes = sweep_all(u64_from(cells.len()), !args.json, "runs", run)?;
    let sum = |f: fn(&CellOutcome) -> u64| outcomes.iter().map(f).sum();
    let violations = outcomes.iter().flat_map(|o| {
        let name = o.row.name();
        o.violations.iter().map(move |v| format!("{name}: {v}"))
    });
    let violations: Vec<String> = violations.collect();
    let (events, packet_hops) = (sum(|o| o.events), sum(|o| o.packet_hops));
    let rows: Vec<SweepRow> = outcomes.into_iter().map(|o| o.row).collect();
    Ok(SweepReport {
        scenario: LossSweep::NAME,
        seed,
        parameters: shown(of.parameters()),
        bars: Bar::all(&rows),
        rows,
        checkers_ok: violations.is_empty(),
        violations,
        events,
        packet_hops,
        wall_s: started.elapsed().as_secs_f64(),
    })
}

impl SweepReport {
    fn to_text(&self) -> String {
        let rate = self.parameters.get("rate").map_or("", String::as_str);
        // Writing to a String cannot fail, here and below.
        let mut out = format!("{}, seed {}, a link of {rate}\n", self.scenario, self.seed);
        let _ = writeln!(
            out,
            "  {:>9} {:>7} {:>10} {:>7} {:>9} {:>9} {:>10} {:>10}",
            "RTT us", "loss %", "reorder us", "window", "RC", "SR", "RC useless", "SR useless"
        );
        // RC and SR of the same path.
        for pair in self.rows.chunks(2) {
            let Some((first, last)) = pair.first().zip(pair.last()) else { continue };
            let spurious = |r: &SweepRow| format!("{:.3} %", r.spurious_retx_fraction * 100.0);
            let _ = writeln!(
                out,
                "  {:>9} {:>7} {:>10} {:>7} {:>9} {:>9} {:>10} {:>10}{}",
                first.rtt_us,
                first.loss * 100.0,
                first.reorder_us,
                last.window_pkts,
                format!("{:.4}", first.goodput_fraction),
                format!("{:.4}", last.goodput_fraction),
                spurious(first),
                spurious(last),
                ended(pair),
            );
        }
        out.push_str(
            "  RC, SR: goodput as a share of the link; useless: duplicate or discarded frames\n",
        );
        for bar in &self.bars {
            let verdict = if bar.ok { "ok" } else { "MISSED" };
            let _ = writeln!(out, "  {verdict}: {}, {} rows", bar.name, bar.rows);
            for row in &bar.missed {
                let _ = writeln!(out, "    {row}");
            }
        }
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

/// The errors of the two connections, if any.
fn ended(pair: &[SweepRow]) -> String {
    let of = |row: &SweepRow| Some(format!("  {} ended: {}", row.mode, row.failed?));
    pair.iter().filter_map(of).collect()
}
