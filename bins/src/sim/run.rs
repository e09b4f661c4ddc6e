//! `spanwire sim list` and `spanwire sim run`.

use super::args::{ListArgs, RunArgs};
use super::capture::Capture;
use super::file::Chosen;
use super::loss_sweep;
use super::pictures::{self, link_rates, queue_thresholds};
use super::prepare::{cannot_write, prepare};
use super::report::{RunReport, flows_csv};
use super::{samples, seeds, untuned};
use crate::exit::Exit;
use crate::report::{print_report, print_text};
use spanwire_host::fabric::Error;
use spanwire_sim::untuned::Untuned;
use spanwire_sim::{LossSweep, Params, Plan, Report, Scenario, Series, Watch};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// `spanwire sim list`.
pub(super) fn list(args: &ListArgs) -> Result<Exit, Error> {
    let scenarios = Scenario::all().iter().map(|s| (s.name, s.about, s.params()));
    let sweep = (LossSweep::NAME, LossSweep::ABOUT, LossSweep::params());
    let matrix = (Untuned::NAME, Untuned::ABOUT, Untuned::params());
    let scenarios = scenarios.chain([sweep, matrix]);
    if args.json {
        let entries: Vec<_> = scenarios.map(|(name, about, p)| entry(name, about, &p)).collect();
        print_report(true, &entries, |_| String::new())?;
        return Ok(Exit::Success);
    }
    let mut out = String::new();
    for (name, about, params) in scenarios {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:<16} {about}");
        for p in params.iter().filter(|_| args.verbose) {
            let setting = format!("{}={}", p.name, p.value);
            let _ = writeln!(out, "    {setting:<22} {}", p.about);
        }
    }
    print_text(&out);
    Ok(Exit::Success)
}

fn entry(name: &str, about: &str, parameters: &Params) -> serde_json::Value {
    serde_json::json!({ "name": name, "about": about, "parameters": parameters })
}

/// `spanwire sim run`.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Error> {
    let chosen = Chosen::of(args)?;
    if chosen.name == LossSweep::NAME {
        return loss_sweep::run(args, &chosen);
    }
    if chosen.name == Untuned::NAME {
        return untuned::run(args, &chosen);
    }
    if let Some(count) = args.seeds {
        return seeds::run(args, &chosen, count);
    }
    let (plan, parameters) = prepare(&chosen)?;
    let watch = Watch { series: args.plot.is_some() || args.samples.is_some(), ..Watch::default() };
    let started = Instant::now();
    let mut report = simulate(args, &plan, watch)?;
    let wall = started.elapsed();
    let series = report.series.take().unwrap_or_default();
    let report = RunReport::new(report, parameters, wall);
    write_files(args, &plan, &report, &series)?;
    print_report(args.json, &report, RunReport::to_text)?;
    Ok(if report.report.checkers_ok { Exit::Success } else { Exit::Failure })
}

fn simulate(args: &RunArgs, plan: &Plan, watch: Watch) -> Result<Report, Error> {
    let Some(path) = &args.pcap else {
        return Ok(plan.run(watch, &mut ())?);
    };
    let mut capture = Capture::create(path, args.pcap_link.as_deref(), &plan.topology)?;
    let report = plan.run(watch, &mut capture)?;
    capture.finish().map_err(|e| cannot_write(path, &e))?;
    Ok(report)
}

/// Writes the output files of `--samples`, `--flows` and `--plot`.
fn write_files(
    args: &RunArgs,
    plan: &Plan,
    report: &RunReport,
    series: &Series,
) -> Result<(), Error> {
    let write =
        |path: &Path, text: String| fs::write(path, text).map_err(|e| cannot_write(path, &e));
    if let Some(path) = &args.samples {
        write(path, samples::to_csv(series))?;
    }
    if let Some(path) = &args.flows {
        write(path, flows_csv(&report.report.flows))?;
    }
    if let Some(dir) = &args.plot {
        let (rates, thresholds) = (link_rates(plan), queue_thresholds(plan));
        let run = pictures::Run { report, series, rates: &rates, thresholds: &thresholds };
        pictures::write(&run, dir).map_err(|e| cannot_write(dir, &e))?;
    }
    Ok(())
}
