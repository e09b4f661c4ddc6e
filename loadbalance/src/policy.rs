//! The seam.

use crate::{Entropy, Outgoing, PathAck, PathLoss, Round};
use spanwire_base::Time;
use std::fmt::Debug;

/// Which path each packet of one flow takes.
///
/// Paths are changed only in [`LoadBalancer::pick`], when a packet would take them: a flow that
/// does not send does not wander. Every method that a policy does not need has a body that does
/// nothing.
pub trait LoadBalancer: Debug + Send {
    /// The path of a packet that leaves. Once for each packet, retransmissions as well.
    fn pick(&mut self, out: &Outgoing) -> Pick;

    /// Packets of a path arrived.
    fn on_ack(&mut self, _now: Time, _ack: &PathAck) {}

    /// Packets of a path were lost. After the same frame's arrivals.
    fn on_loss(&mut self, _now: Time, _loss: &PathLoss) {}

    /// The retransmission timeout: nothing was heard of any path.
    fn on_timeout(&mut self, _now: Time) {}

    /// A round trip ended.
    fn on_round(&mut self, _now: Time, _round: &Round) {}

    /// All packets take one path until it changes: congestion control is to know when it does.
    fn is_single_path(&self) -> bool {
        false
    }

    /// What the policy makes of a path that it gave out. None if it keeps no account of it: then
    /// the last that was heard of the path counts.
    fn state(&self, _now: Time, _path: Entropy) -> Option<PathState> {
        None
    }
}

/// A path for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick {
    /// The path.
    pub entropy: Entropy,
    /// The path that was given up for it, if it was just now.
    pub left: Option<Entropy>,
}

/// What is thought of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathState {
    /// In use, and the last that was heard is good.
    Live,
    /// In use; packets were lost and none that was sent after them has arrived.
    Suspect,
    /// Dead, for all that is known: not used, or left with the next packet.
    Bad,
    /// No longer in use.
    Retired,
}

impl PathState {
    /// As reports spell it.
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
        Self { entropy, left: None }
    }
}
