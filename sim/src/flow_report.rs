//! The results of a flow.

use crate::workload::FlowOp;
use serde::Serialize;

/// The results of a flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowReport {
    /// The source of the bytes.
    pub src: u32,
    /// The destination of the bytes.
    pub dst: u32,
    /// Number of bytes; of a mix those carried, in both directions together.
    pub bytes: u64,
    /// The operation that carried them.
    pub op: FlowOp,
    /// When it began, in us; `None` if it did not.
    pub start_us: Option<f64>,
    /// Its FCT in us, from the first post on; `None` if it did not complete.
    /// [`Report::measure`](crate::Report::measure) defines its end.
    pub fct_us: Option<f64>,
    /// The latency of each message in us, or the time since the previous delivery, if
    /// [`Report::measure`](crate::Report::measure) is of messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages_us: Vec<f64>,
    /// Payload divided by the FCT.
    pub goodput_gbps: Option<f64>,
    /// The FCT relative to the ideal FCT; `None` for a mix.
    pub slowdown: Option<f64>,
    /// It was to send until a time, not a number of bytes: then no FCT is no failure.
    #[serde(skip)]
    pub is_timed: bool,
    /// The error that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<&'static str>,
}

impl FlowReport {
    /// True if it ended with an error, or should have completed and did not.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.failed.is_some() || (self.fct_us.is_none() && !self.is_timed)
    }
}
