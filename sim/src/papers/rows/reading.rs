//! Functions of the result of one seed.

use crate::groups::GroupReport;
use crate::papers::{MetricReport, Trace};
use crate::record::to_f64;
use serde::Deserialize;
use std::fmt;
use std::rc::Rc;

/// The result of one seed, as `spanwire sim run NAME --seeds N --json` writes it, or the output of
/// a command. Members that a scenario does not have are empty.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SeedResult {
    /// Completion times of its flows; `None` for one that did not complete.
    pub fct_us: Vec<Option<f64>>,
    /// Their mean.
    pub mean_us: Option<f64>,
    /// Packets that hosts sent again.
    pub retransmitted_packets: u64,
    /// Pause frames that switches have sent.
    pub pfc_pauses: u64,
    /// Statistics of groups of flows.
    pub groups: Vec<GroupReport>,
    /// The metric of the scenario's figure.
    #[serde(flatten)]
    pub metric: Option<MetricReport>,
    /// The cost of agents, of the command that measures it.
    pub agents: Vec<AgentCost>,
    /// The queues and rates of the scenario's figure.
    pub over_time: Vec<Trace>,
}

/// The cost of an agent of switches.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct AgentCost {
    /// Its kind.
    pub kind: String,
    /// Memory of a flow.
    pub bytes_per_entry: f64,
    /// Time for a packet.
    pub ns_per_packet: f64,
}

/// A function of a [`SeedResult`], with a name and a unit. Its value is a list, as a rule of one
/// number. Infinite is an event that never happened.
#[derive(Clone)]
pub struct Reading {
    /// Its name.
    pub name: String,
    /// Its unit; empty for a number.
    pub unit: &'static str,
    of: Rc<OfSeed>,
}

type OfSeed = dyn Fn(&SeedResult) -> Option<Vec<f64>>;

/// A reading of one number; `of` returns `None` if the scenario has none.
#[must_use]
pub fn reading(
    name: impl Into<String>,
    unit: &'static str,
    of: impl Fn(&SeedResult) -> Option<f64> + 'static,
) -> Reading {
    list(name, unit, move |result| of(result).map(|value| vec![value]))
}

/// A reading of a list.
pub(super) fn list(
    name: impl Into<String>,
    unit: &'static str,
    of: impl Fn(&SeedResult) -> Option<Vec<f64>> + 'static,
) -> Reading {
    Reading { name: name.into(), unit, of: Rc::new(of) }
}

/// A number of the metric of this kind, and of no other.
macro_rules! metric {
    ($kind:ident, $name:expr, $unit:expr, $of:expr) => {
        $crate::papers::rows::reading::list($name, $unit, move |result| match &result.metric {
            Some($crate::papers::MetricReport::$kind(report)) => Some($of(report)),
            _ => None,
        })
    };
}
pub(super) use metric;

impl Reading {
    /// The value for a result.
    ///
    /// # Errors
    /// The scenario of the result has no such value.
    pub fn of(&self, result: &SeedResult) -> Result<Vec<f64>, String> {
        (self.of)(result).ok_or_else(|| format!("the result has no {}", self.name))
    }

    /// A number of its list, by a function of it.
    fn reduced(&self, how: &str, by: fn(&[f64]) -> f64) -> Self {
        let of = Rc::clone(&self.of);
        let by = move |result: &SeedResult| of(result).filter(|l| !l.is_empty()).map(|l| by(&l));
        reading(format!("{how} {}", self.name), self.unit, by)
    }

    /// The most of its list.
    #[must_use]
    pub fn most(&self) -> Self {
        self.reduced("highest", |list| list.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }

    /// The least of its list.
    #[must_use]
    pub fn least(&self) -> Self {
        self.reduced("lowest", |list| list.iter().copied().fold(f64::INFINITY, f64::min))
    }

    /// The sum of its list.
    #[must_use]
    pub fn sum(&self) -> Self {
        self.reduced("sum of", |list| list.iter().sum())
    }

    /// The middle of its list.
    #[must_use]
    pub fn median(&self) -> Self {
        self.reduced("median", super::statistics::median)
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Pause frames of all switches.
#[must_use]
pub fn pfc_pauses() -> Reading {
    reading("pause frames", "", |result| Some(to_f64(result.pfc_pauses)))
}

/// The mean completion time of all flows.
pub(super) fn mean_fct() -> Reading {
    reading("mean FCT", "us", |result| Some(result.mean_us.unwrap_or(f64::INFINITY)))
}

/// The completion times of all flows.
pub(super) fn fcts() -> Reading {
    list("FCT", "us", |result| {
        Some(result.fct_us.iter().map(|us| us.unwrap_or(f64::INFINITY)).collect())
    })
}

/// A number of a group of flows, or with `size` of the flows in that place of its list of sizes.
pub(super) fn of_group(
    name: impl Into<String>,
    group: &'static str,
    size: Option<usize>,
    of: fn(&crate::groups::FctStats) -> Option<f64>,
) -> Reading {
    reading(name, "", move |result| {
        let group = result.groups.iter().find(|own| own.name == group)?;
        let stats = match size {
            Some(size) => &group.by_size.get(size)?.flows,
            None => &group.all,
        };
        // No flow completed.
        Some(of(stats).unwrap_or(f64::INFINITY))
    })
}
