//! The description of a run.

use crate::groups::Groups;
use crate::host::Storm;
use crate::liveness::LivenessBounds;
use crate::measure::Measure;
use crate::papers::Metric;
use crate::setup::Setup;
use crate::sharing::Sharing;
use crate::topology::Topology;
use crate::workload::Flow;
use spanwire_base::{Dur, Time};
use spanwire_switch::Impairments;

/// The complete description of a run. [`Setup::seed`] is its seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name in the report.
    pub scenario: String,
    /// The network.
    pub topology: Topology,
    /// The flows.
    pub flows: Vec<Flow>,
    /// Settings of hosts, queue pairs and switches.
    pub setup: Setup,
    /// The impairments of links.
    pub faults: Vec<Fault>,
    /// Hosts with PFC storms.
    pub storms: Vec<(u32, Storm)>,
    /// When all faults end, if they do; the flows must complete afterwards.
    pub faults_end: Option<Time>,
    /// When the run ends at the latest. A flow that has not ended then is a violation.
    pub until: Time,
    /// Measures how flows share a queue. Then the flows outlast the run, which ends at `until`, and
    /// only the invariants of [`check_now`](crate::check_now) are checked.
    pub sharing: Option<Sharing>,
    /// The groups of flows in statistics.
    pub groups: Groups,
    /// A metric of a paper's figure. It needs time series, which a run with one keeps.
    pub metric: Option<Metric>,
    /// The subject of the completion times.
    pub measure: Measure,
    /// The ideal FCT that the scenario defines, for its report.
    pub ideal: Option<Dur>,
    /// Queue pairs may fail before this; time zero: never.
    pub may_fail_until: Time,
    /// Bounds of the liveness check; `None` disables it.
    pub liveness: Option<LivenessBounds>,
    /// Limit of events: a run that reaches it does not terminate.
    pub max_events: u64,
    /// Interval between samples of the queues; above 0.
    pub sample_every: Dur,
    /// The end of the time series. Later samples would show only timers that expire.
    pub series_until: Time,
}

/// An impairment of one direction of a link.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// The link, by its place in [`Topology::links`].
    pub link: usize,
    /// From the link's end b to a, instead of from a to b.
    pub backwards: bool,
    /// The impairments.
    pub impairments: Impairments,
}

impl Plan {
    /// A plan of flows on a network, without faults, for at most 100 s.
    #[must_use]
    pub fn new(scenario: &str, topology: Topology, flows: Vec<Flow>, setup: Setup) -> Self {
        Self {
            scenario: scenario.to_owned(),
            topology,
            flows,
            setup,
            faults: Vec::new(),
            storms: Vec::new(),
            faults_end: None,
            until: Time::ZERO + Dur::from_secs(100),
            sharing: None,
            groups: Groups::default(),
            metric: None,
            measure: Measure::default(),
            ideal: None,
            may_fail_until: Time::ZERO,
            liveness: None,
            max_events: u64::MAX,
            sample_every: Dur::from_us(10),
            series_until: Time::MAX,
        }
    }

    /// Adds the same fault to both directions of a link.
    #[must_use]
    pub fn with_fault(mut self, link: usize, impairments: &Impairments) -> Self {
        for backwards in [false, true] {
            self.faults.push(Fault { link, backwards, impairments: impairments.clone() });
        }
        self
    }
}
