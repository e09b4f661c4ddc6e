//! The deterministic simulator: the real engine and the real switch in virtual time.
//!
//! - [`World`]: nodes, links and one event loop, for any type of [`Node`](spanwire_base::Node).
//! - [`Topology`]: networks as data, with addresses and routes.
//! - [`workload`]: flows, and the distributions they are drawn from.
//! - [`Traffic`]: the application of simulated hosts, which verifies every completion.
//! - [`Network`]: hosts, switches and links of a topology. [`check_now`] and [`check_end`]: its
//!   invariants.
//! - [`Scenario`]: a [`Plan`] by name, with parameters; running it gives a [`Report`].
//! - [`LossSweep`]: RC and SR compared over loss, round trip and reordering.
//! - [`untuned`]: congestion control with its defaults on a matrix of paths and hosts.
//! - `training` (feature `train`): LAECN's networks learn in simulations.
//! - [`swarm_run`]: a run whose network, faults and flows are drawn from a seed.
//!
//! One seed decides everything: the same seed has the same [`EventHash`] on any machine. No code of
//! this crate reads a clock, starts a thread or opens a file.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod app;
mod check;
mod congestion;
mod event;
mod flow_report;
mod frames;
mod groups;
mod hash;
mod host;
mod host_model;
mod ids;
mod link;
mod liveness;
mod loss_sweep;
mod measure;
mod network;
mod papers;
mod params;
mod plan;
mod record;
mod report;
mod results;
mod run;
mod scenario;
mod setup;
mod sharing;
mod swarm;
mod topology;
#[cfg(feature = "train")]
pub mod training;
pub mod untuned;
pub mod workload;
mod world;

pub use app::{FlowState, Traffic};
pub use check::{check_end, check_now, name as link_name};
pub use congestion::Congestion;
pub use event::{EventQueue, Key};
pub use flow_report::FlowReport;
pub use groups::{FctStats, GroupReport, Groups, SizeReport, Spread};
pub use hash::EventHash;
pub use host::{SimHost, Storm};
pub use host_model::{
    Engines, HANDOVER_FRAMES, HandoverCounters, HostCounters, HostModel, Lateness, PolledHost,
    Sockets, Workers,
};
pub use ids::{LinkId, NodeId};
pub use link::LinkCounters;
pub use liveness::{LivenessBounds, failure_detection_max};
pub use loss_sweep::{Bar, Cell, CellOutcome, LossSweep, SweepRow};
pub use measure::Measure;
pub use network::{FlowProgress, Machine, Network, NetworkError};
pub use papers::{
    Bins, BinsReport, Burst, BurstReport, Dci, DciFlowReport, DciReport, Disturbed, IntraStage,
    IsolatedReport, Metric, MetricReport, Recover, RecoverReport, Stage, Stages, StagesReport,
    Steady, SteadyReport, Trace, TraceUnit, rows,
};
pub use params::{
    AgentChoice, CcChoice, Chosen, EcBlocks, EcChoice, LbChoice, Param, ParamError, Params, Value,
};
pub use plan::{Fault, Plan};
pub use record::{AgentSeries, DciFlowSeries, DciSeries, FlowSeries, QueueSeries, Series};
pub use report::{AgentReport, QueueReport, Report, WorkersReport};
pub use results::{Identity, RESULTS_VERSION};
pub use run::Watch;
pub use scenario::Scenario;
pub use setup::{AgentSetup, Drains, PortKind, RoleSetup, Sends, Setup, Telemetry};
pub use sharing::{JAIN_FAIR, Sharing, SharingReport, jain};
pub use spanwire_progress::Polling;
pub use swarm::{SwarmOutcome, swarm_describe, swarm_plan, swarm_run};
pub use topology::{
    Border, Cable, FatTree, LeafSpine, PathInfo, Plug, Port, Role, Routes, Topology, TopologyError,
};
pub use world::{Observer, Stop, World, WorldCounters};
