//! A case of the matrix: a path, its traffic, and the bar for it.

use super::algorithm::Algorithm;
use super::line::Line;
use serde::Serialize;

/// A path with traffic, on which algorithms are measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Case {
    /// Its name, unique in the matrix.
    pub name: String,
    /// The path.
    pub path: Path,
    /// The traffic.
    pub traffic: Traffic,
    /// The figure that the bars limit.
    pub measure: Measure,
    /// The bar for `auto`; none in a quick run.
    pub bar: Option<Bar>,
    /// The bar for Spanwire's other algorithms.
    pub others: Option<Bar>,
    /// The algorithms measured.
    pub algorithms: Vec<Algorithm>,
    /// True of the few cases of a quick run.
    pub quick: bool,
}

/// The path between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// A veth pair.
    Cable,
    /// The software switch, with this line in each direction.
    Line(Line),
}

/// The traffic of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// One flow.
    One(Flow),
    /// Flows of one algorithm, each from a host of its own, that start one by one.
    Several {
        /// Their number.
        flows: u32,
        /// The delay of the last flow's host, if not that of the line.
        far_delay_us: Option<u64>,
    },
    /// A flow, and one of kernel TCP or with a static window.
    Beside(Algorithm),
}

/// One flow of `spanwire perf`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Flow {
    /// Its operation.
    pub op: &'static str,
    /// Bytes of a message; its default if none.
    pub size: Option<u32>,
    /// The wire mode is RC.
    pub rc: bool,
    /// Two processes spin on the cores.
    pub busy: bool,
    /// (8,2) coding, spread over four paths by UnoLB.
    pub coded: bool,
}

/// The figure of a sample that the bars limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Goodput over the payload that the line can carry and that loss and coding leave.
    ShareOfLine,
    /// Goodput over that of `none` in the same round.
    ShareOfNone,
    /// Jain's fairness index.
    Jain,
    /// The least flow over an equal share of the line.
    LeastOfFairShare,
    /// The least flow over the line.
    LeastOfLine,
    /// The mean queue in bandwidth-delay products.
    QueueBdps,
}

/// A limit for the median and the worst sample of a case: a minimum, or a maximum of the queue.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bar {
    /// Of the median.
    pub median: f64,
    /// Of the worst sample.
    pub worst: Option<f64>,
    /// Of the lowest second of any sample.
    pub second: Option<f64>,
}

/// The lab that a case needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Site {
    /// Two hosts and a cable.
    Cable,
    /// Two hosts and a switch.
    Switch,
    /// Several hosts and a switch.
    Star,
    /// Two hosts, a switch beside each, and four links between these.
    FourPaths,
}

impl Case {
    /// The lab that it needs.
    pub(super) fn site(&self) -> Site {
        match (self.path, self.traffic) {
            (Path::Cable, _) => Site::Cable,
            (Path::Line(_), Traffic::One(Flow { coded: true, .. })) => Site::FourPaths,
            (Path::Line(_), Traffic::One(_)) => Site::Switch,
            (Path::Line(_), Traffic::Several { .. } | Traffic::Beside(_)) => Site::Star,
        }
    }

    /// The bar for `algorithm`; none of the references.
    pub(super) fn bar_for(&self, algorithm: Algorithm) -> Option<Bar> {
        match algorithm {
            Algorithm::Auto => self.bar,
            Algorithm::Other(_) => self.others,
            Algorithm::None | Algorithm::Udp(_) | Algorithm::Tcp(_) => None,
        }
    }
}

impl Flow {
    /// WRITEs of the default size.
    pub(super) const WRITE: Self =
        Self { op: "write", size: None, rc: false, busy: false, coded: false };
}

impl Measure {
    /// True if less is better.
    #[must_use]
    pub fn is_limit_from_above(self) -> bool {
        self == Self::QueueBdps
    }
}

impl Bar {
    pub(super) const fn new(median: f64, worst: f64) -> Self {
        Self { median, worst: Some(worst), second: None }
    }

    /// The bar `limit` for every sample.
    pub(super) const fn every(limit: f64) -> Self {
        Self::new(limit, limit)
    }
}
