//! A case of the matrix: a path, its traffic, and the bar for it.

use serde::Serialize;

/// A path with traffic, on which an algorithm is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// Its name, unique in the matrix. Delays in names are one-way, as in `spanwire-bench untuned`.
    pub name: String,
    /// The scenario of the catalogue that it runs.
    pub scenario: &'static str,
    /// The parameters of the scenario: all but congestion control and hosts.
    pub set: Vec<(&'static str, String)>,
    /// The figure that the bars limit.
    pub figure: Figure,
    /// The bar for `auto`, if there is one.
    pub bar: Option<Bar>,
    /// The bar for `auto` on busy hosts, if there is one.
    pub busy_bar: Option<Bar>,
    /// The bar for other algorithms, if there is one.
    pub others: Option<Bar>,
    /// The bandwidth-delay product of the bottleneck, without queueing.
    pub bdp_bytes: u64,
    /// The host models that it is run with.
    pub hosts: &'static [&'static str],
    /// True of the few cases of a quick run.
    pub quick: bool,
}

/// The figure of a sample that the bars limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Goodput over the payload that the link can carry and that loss and coding leave.
    ShareOfLine,
    /// Goodput over that of the static window without congestion control.
    ShareOfNone,
    /// Jain's fairness index.
    Jain,
    /// The least flow over an equal share of the link.
    LeastOfFairShare,
    /// The mean queue in bandwidth-delay products.
    QueueBdps,
    /// The part of all flows that completed.
    Completed,
}

/// A limit for the median and the worst sample of a case: a minimum, or a maximum of the queue.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bar {
    /// Of the median over the seeds.
    pub median: f64,
    /// Of the worst seed.
    pub worst: Option<f64>,
    /// Of the lowest window of any seed, see [`Sample::least_window_share`](super::Sample).
    pub window: Option<f64>,
}

impl Case {
    /// The bar for `auto` on hosts of this model.
    pub(super) fn bar_on(&self, host: &str) -> Option<Bar> {
        if host == BUSY { self.busy_bar } else { self.bar }
    }
}

impl Figure {
    /// True if less is better.
    #[must_use]
    pub fn is_limit_from_above(self) -> bool {
        self == Self::QueueBdps
    }

    /// Its name in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ShareOfLine => "of line",
            Self::ShareOfNone => "of none",
            Self::Jain => "Jain",
            Self::LeastOfFairShare => "least of fair",
            Self::QueueBdps => "queue, BDP",
            Self::Completed => "completed",
        }
    }
}

impl Bar {
    pub(super) const fn new(median: f64, worst: f64) -> Self {
        Self { median, worst: Some(worst), window: None }
    }

    /// The bar `limit` for every sample.
    pub(super) const fn every(limit: f64) -> Self {
        Self::new(limit, limit)
    }
}

/// The hosts of the matrix by default, as [`HostModel::named`](crate::HostModel::named) knows them.
pub(super) const ALL_HOSTS: [&str; 4] = ["ideal", "veth", BUSY, "udp"];
/// Hosts that a run may choose for the rows of `veth`.
pub(super) const CHOSEN_HOSTS: [&str; 2] = ["adaptive", "busy-poll"];
/// Hosts without drivers: for links that real ones cannot fill.
pub(super) const IDEAL_HOSTS: [&str; 1] = ["ideal"];
/// Hosts with drivers: for links that are faster than they.
pub(super) const LATE_HOSTS: [&str; 3] = ["veth", BUSY, "udp"];
/// The hosts beside busy processes.
pub(super) const BUSY: &str = "busy";
