//! Instruction counts of the packet path: exact enough to fail a build.
//!
//! Time on a shared machine is noisy; instruction counts show the cost of a change. Each
//! workload runs under valgrind twice, with different numbers of operations, so that the difference
//! excludes setup. Counts are reproducible to the instruction, so a few percent more is a change
//! of the code (or of the compiler: the baseline has its version).

pub mod clock;
pub mod costs;
pub mod engine;
pub mod workload;

use crate::sample::Error;
use costs::{Costs, OTHER};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use workload::Workload;

/// The accepted counts of each workload.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// `rustc --version` of the counted build.
    pub rustc: String,
    /// By the name of the workload.
    pub rows: BTreeMap<String, Row>,
}

/// The accepted counts of one workload.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Instructions of an operation.
    pub per_op: f64,
    /// Those of the engine for a data packet, see [`Costs::engine`].
    pub engine_per_packet: f64,
    /// The most that the engine may take for a data packet. Set by the change that reached it.
    pub budget: Option<f64>,
}

/// A count compared with its baseline.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The workload.
    pub name: String,
    /// The operation.
    pub op: &'static str,
    /// The current count.
    pub per_op: f64,
    /// That of the engine, for a data packet.
    pub engine_per_packet: f64,
    /// The accepted counts; none for a new workload.
    pub baseline: Option<Row>,
}

impl Baseline {
    /// Reads a baseline; a missing file is an empty one.
    ///
    /// # Errors
    /// The file exists but is not a baseline.
    pub fn read(path: &Path) -> Result<Self, Error> {
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| format!("{}: {e}", path.display()).into()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(format!("{}: {e}", path.display()).into()),
        }
    }

    /// Writes it, one workload a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let row = |(name, row)| Ok(format!("    \"{name}\": {}", serde_json::to_string(row)?));
        let rows = self.rows.iter().map(row).collect::<Result<Vec<_>, serde_json::Error>>()?;
        let (rustc, rows) = (serde_json::to_string(&self.rustc)?, rows.join(",\n"));
        let text = format!("{{\n  \"rustc\": {rustc},\n  \"rows\": {{\n{rows}\n  }}\n}}\n");
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()).into())
    }
}

impl Verdict {
    /// More instructions than the baseline, as a fraction of it; negative for fewer.
    #[must_use]
    pub fn growth(&self) -> Option<f64> {
        self.baseline.filter(|row| row.per_op > 0.0).map(|row| self.per_op / row.per_op - 1.0)
    }

    /// It grew beyond [`GROWTH_MAX`], exceeds its budget, or has no baseline.
    #[must_use]
    pub fn fails(&self) -> bool {
        let budget = self.baseline.and_then(|row| row.budget);
        self.growth().is_none_or(|g| g > GROWTH_MAX)
            || budget.is_some_and(|budget| self.engine_per_packet > budget)
    }
}

/// The counts of `workload` and the accepted ones.
///
/// # Errors
/// As [`costs()`].
pub fn count(workload: &Workload, baseline: &Baseline) -> Result<Verdict, Error> {
    let costs = costs(workload)?;
    let ops = approximately(workload.ops * 2);
    let (name, op) = (workload.name.to_owned(), workload.op);
    let per_op = approximately(costs.total()) / ops;
    let engine_per_packet = approximately(costs.engine()) / ops / f64::from(workload.packets);
    let baseline = baseline.rows.get(&name).copied();
    Ok(Verdict { name, op, per_op, engine_per_packet, baseline })
}

/// The instructions of twice the operations of `workload`, without set-up, by running this program
/// under valgrind.
///
/// # Errors
/// There is no valgrind, or the workload fails under it.
pub fn costs(workload: &Workload) -> Result<Costs, Error> {
    let few = costs_of_run(workload.name, workload.ops)?;
    let many = costs_of_run(workload.name, workload.ops * 3)?;
    if many.total() < few.total() {
        return Err("more operations took fewer instructions".into());
    }
    Ok(few.to(&many))
}

/// A table of the stages of `workload`, in instructions for a data packet, and for people what the
/// last row has.
///
/// # Errors
/// As [`costs()`].
pub fn profile(workload: &Workload) -> Result<String, Error> {
    let costs = costs(workload)?;
    let per = approximately(workload.ops * 2) * f64::from(workload.packets);
    let total = approximately(costs.total());
    let mut text = String::new();
    for (stage, n) in costs.stages() {
        let n = approximately(n);
        _ = writeln!(text, "{stage:<34} {:>9.1} {:>5.1} %", n / per, n / total * 100.0);
    }
    _ = writeln!(text, "{:<34} {:>9.1}", "all", total / per);
    let engine = approximately(costs.engine());
    _ = writeln!(text, "{:<34} {:>9.1}", "engine", engine / per);
    for (place, n) in costs.unknown().iter().take(UNKNOWN_SHOWN) {
        _ = writeln!(text, "  {OTHER}: {:>7.1} {place}", approximately(*n) / per);
    }
    Ok(text)
}

/// The compiler's version string.
///
/// # Errors
/// There is no rustc.
pub fn rustc_version() -> Result<String, Error> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn costs_of_run(name: &str, ops: u64) -> Result<Costs, Error> {
    let out = env::temp_dir().join(format!("spanwire-icount-{}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no"])
        .arg(format!("--cachegrind-out-file={}", out.display()))
        .arg(env::current_exe()?)
        .args(["icount-run", name, &ops.to_string()])
        .output()
        .map_err(|e| format!("valgrind: {e} (apt-get install valgrind)"))?;
    let text = std::fs::read_to_string(&out);
    _ = std::fs::remove_file(&out);
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} fails under valgrind:\n{stderr}").into());
    }
    Ok(Costs::parse(&text.map_err(|e| format!("{}: {e}", out.display()))?))
}

/// Counts far below 2^53 are exact as floats.
#[expect(clippy::cast_precision_loss, reason = "a count of instructions stays below 2^53")]
fn approximately(n: u64) -> f64 {
    n as f64
}

/// The growth that fails a build. Counts of one compiler differ by less than a tenth of a percent
/// from run to run.
pub const GROWTH_MAX: f64 = 0.03;

/// Places of [`OTHER`] that a profile lists.
const UNKNOWN_SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fails__on_growth_above_the_budget_and_without_a_baseline() {
        let verdict = |per_op, baseline| Verdict {
            name: "x".to_owned(),
            op: "packet",
            per_op,
            engine_per_packet: 50.0,
            baseline,
        };
        let row = |budget| Some(Row { per_op: 100.0, engine_per_packet: 50.0, budget });
        assert!(verdict(10.0, None).fails());
        assert!(verdict(103.1, row(None)).fails());
        assert!(!verdict(102.9, row(None)).fails());
        assert!(!verdict(50.0, row(Some(50.0))).fails());
        assert!(verdict(50.0, row(Some(49.9))).fails());
    }

    #[test]
    fn baseline__covers_every_workload() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("icount.json");
        let blessed = Baseline::read(&path).unwrap().rows;
        let known: Vec<&str> = workload::ALL.iter().map(|w| w.name).collect();
        let mut sorted = known.clone();
        sorted.sort_unstable();
        assert_eq!(blessed.keys().map(String::as_str).collect::<Vec<_>>(), sorted);
    }
}
