//! Processor time of a workload in one thread, beside that of another build.

use super::workload::Workload;
use crate::sample::Error;
use crate::stats::{Ratio, Spread};
use std::env;
use std::path::Path;
use std::process::Command;

/// Measures `workload` in `rounds` rounds, in each round this build and `other`, a
/// `spanwire-bench`, if there is one; every other round in reverse order. Returns medians and
/// ranges in nanoseconds of a data packet, or of an operation whose packets vary.
///
/// # Errors
/// A program cannot be run, or fails.
pub fn measure(workload: &Workload, other: Option<&Path>, rounds: u32) -> Result<String, Error> {
    let this = env::current_exe()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            ours.push(Some(sample(&this, workload)?));
        }
        if let Some(other) = other {
            theirs.push(Some(sample(other, workload)?));
        }
        if round % 2 == 1 {
            ours.push(Some(sample(&this, workload)?));
        }
    }
    let ratio = Ratio::of(&ours, &theirs).and_then(|ratio| ratio.paired);
    let ratio = ratio.map(|r| format!(", against {}: {:.3}", shown(&theirs), r.median));
    Ok(shown(&ours) + &ratio.unwrap_or_default())
}

fn shown(samples: &[Option<f64>]) -> String {
    Spread::of_present(samples).map_or_else(String::new, |Spread { median, min, max, .. }| {
        format!("{median:.1} ns ({min:.1} to {max:.1})")
    })
}

/// The difference of a long and a short run, so without set-up.
fn sample(program: &Path, workload: &Workload) -> Result<f64, Error> {
    let packets = f64::from(workload.packets);
    let short = run(program, workload.name, workload.ops)?;
    let long = run(program, workload.name, workload.ops * (LONG + 1))?;
    Ok((long - short) / (super::approximately(workload.ops * LONG) * packets))
}

/// The processor time of one run in nanoseconds, which it prints.
fn run(program: &Path, name: &str, ops: u64) -> Result<f64, Error> {
    let output =
        Command::new(program).args(["icount-run", name, &ops.to_string(), "--timed"]).output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {name}: {stderr}", program.display()).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.trim().parse().map_err(|_| format!("{}: prints no time", program.display()))?)
}

/// Operations of the longer run beyond those of the shorter, in multiples of them.
const LONG: u64 = 20;
