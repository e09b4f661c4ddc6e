//! A slot of the table of channels: a channel and its deadlines.

use crate::channel::{Channel, Opening};
use crate::place::Place;
use spanwire_base::{Dur, Time};
use spanwire_transport::{CqId, Endpoint};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) generation: u64,
    pub(super) state: State,
    /// Its side connection is with the side thread.
    pub(super) has_side: bool,
    /// When a channel without handles is aborted.
    pub(super) linger_until: Option<Time>,
    /// The last completion on the channel.
    pub(super) active_at: Time,
    pub(super) _place: Place,
}

#[derive(Debug)]
pub(super) enum State {
    Opening(Opening),
    Open(Channel),
}

impl Slot {
    /// The channel, if it is open.
    pub(super) fn channel(&self) -> Option<&Channel> {
        match &self.state {
            State::Open(channel) => Some(channel),
            State::Opening(_) => None,
        }
    }

    /// The deadline at which the channel is aborted, and its cause. `idle` is the idle timeout.
    pub(super) fn deadline(&self, idle: Option<Dur>) -> Option<(Time, &'static str)> {
        self.channel()?;
        let idle = idle.map(|idle| (self.active_at + idle, SILENT));
        let orphan = self.linger_until.map(|until| (until, UNTAKEN));
        idle.into_iter().chain(orphan).min()
    }

    /// Removes a channel whose handshake did not complete.
    pub(super) fn discard(&self, by_cq: &mut BTreeMap<CqId, u32>, endpoint: &mut Endpoint) {
        match &self.state {
            State::Opening(opening) => opening.discard(endpoint),
            State::Open(channel) => {
                by_cq.remove(&channel.cq());
                let why = "it was never set up".into();
                channel.close(endpoint, crate::error::Cause::Aborted(why));
            }
        }
    }
}

/// `duration` in the engine's unit, at most 584 years.
pub(super) fn dur(duration: Duration) -> Dur {
    Dur::from_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

const SILENT: &str = "nothing was sent, taken or acknowledged within idle_timeout";
const UNTAKEN: &str = "what was sent was not taken in time after it was closed";
