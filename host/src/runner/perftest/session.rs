//! The state of a perftest run, and the steps that it waits for.

use super::traffic::Traffic;
use crate::initiator::Initiator;
use crate::oob::REPLY_TIMEOUT;
use crate::oob::perftest::{Exchange, Test};
use spanwire_base::Time;
use std::time::Duration;

/// One run: the connection, the test, and the applications that run meanwhile.
pub(super) struct Session<'a> {
    pub(super) exchange: Exchange,
    pub(super) test: Test,
    pub(super) traffic: Traffic,
    pub(super) stop: &'a dyn Fn() -> bool,
    pub(super) watch: &'a mut dyn FnMut(Time, &Initiator),
    /// Upper limit of the idle timeout of the next steps.
    pub(super) quiet_max: Duration,
}

/// A step that is waited for, and the idle timeout: time without a message or packet of the peer.
#[derive(Clone, Copy)]
pub(super) struct AwaitedStep {
    pub(super) step: &'static str,
    pub(super) quiet: Duration,
}

impl AwaitedStep {
    /// The default timeout for `step`.
    pub(super) fn of(step: &'static str) -> Self {
        Self { step, quiet: REPLY_TIMEOUT }
    }
}
