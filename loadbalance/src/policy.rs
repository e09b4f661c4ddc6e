//! The [`LoadBalancer`] trait.

use crate::{Entropy, Outgoing, PathAck, PathLoss, Round};
use spanwire_base::Time;
use std::fmt::Debug;

/// The path selection of one flow.
///
/// A path changes only in [`LoadBalancer::pick`], when a packet would take it: an idle flow never
/// reroutes. Provided methods do nothing.
pub trait LoadBalancer: Debug + Send {
    /// The path of a packet that leaves. Called once for each packet and each retransmission.
    fn pick(&mut self, out: &Outgoing) -> Pick;

    /// Packets of a path arrived.
    fn on_ack(&mut self, _now: Time, _ack: &PathAck) {}

    /// Packets of a path were lost. Called after the arrivals of the same frame.
    fn on_loss(&mut self, _now: Time, _loss: &PathLoss) {}

    /// The retransmission timeout expired: no path had feedback.
    fn on_timeout(&mut self, _now: Time) {}

    /// A round trip ended.
    fn on_round(&mut self, _now: Time, _round: &Round) {}

    /// True if all packets take one path until it changes. Congestion control must know of changes.
    fn is_single_path(&self) -> bool {
        false
    }

    /// The state of a path of this policy. None if the policy does not track it; then the last
    /// feedback about the path determines the state.
    fn state(&self, _now: Time, _path: Entropy) -> Option<PathState> {
        None
    }
}

/// The path selected for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick {
    /// The path.
    pub entropy: Entropy,
    /// The path that it replaced with this packet, if any.
    pub replaced: Option<Entropy>,
}

/// The state of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathState {
    /// In use; the last feedback was an arrival.
    Live,
    /// In use; packets were lost, and none sent after them has arrived.
    Suspect,
    /// Presumed dead: not used, or replaced with the next packet.
    Bad,
    /// No longer in use.
    Retired,
}

impl PathState {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Suspect => "suspect",
            Self::Bad => "bad",
            Self::Retired => "retired",
        }
    }
}

impl From<Entropy> for Pick {
    fn from(entropy: Entropy) -> Self {
        Self { entropy, replaced: None }
    }
}
