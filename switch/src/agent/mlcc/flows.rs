//! The flows of MLCC at a switch.

use crate::agent::api::RateChange;
use crate::agent::passing::{FlowEnds, Passing};
use crate::agent::sets::{IDLE, KEY_BYTES, Sets, Standing};
use spanwire_base::{Rate, Time};
use spanwire_wire::Qpn;

/// Flows by direction, addresses and the sender's queue pair. A place is free again once its flow
/// has no packet in the switch and none has come for [`IDLE`]. If all places of a key are in use,
/// the flow has none, and is counted with each packet.
#[derive(Debug)]
pub(super) struct Flows {
    places: Sets<Flow>,
    /// Packets of flows without a place.
    pub(super) collisions: u64,
}

/// One flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    seen: Time,
    pub(super) ends: FlowEnds,
    pub(super) sender: Qpn,
    pub(super) hop_limit: u8,
    /// It comes from outside; otherwise it leaves.
    pub(super) is_incoming: bool,
    /// When its telemetry may go back to the sender again.
    pub(super) near_at: Time,
    /// C_D, once the receiver has sent one.
    pub(super) credit: Option<u32>,
    /// The rate at which it is let in.
    pub(super) rate: Rate,
    /// Its queue; that of no port before the first packet, and of a flow that leaves.
    pub(super) port: u8,
    pub(super) queue: u8,
    /// Those of a flow that comes in.
    pub(super) queued_bytes: u64,
    pub(super) queued_pkts: u32,
}

impl Flow {
    /// A flow by its first packet.
    pub(super) fn new(passing: &Passing, sender: Qpn, is_incoming: bool, rate: Rate) -> Self {
        Self {
            seen: Time::ZERO,
            ends: passing.ends,
            sender,
            hop_limit: passing.hop_limit,
            is_incoming,
            near_at: Time::ZERO,
            credit: None,
            rate,
            port: u8::MAX,
            queue: 0,
            queued_bytes: 0,
            queued_pkts: 0,
        }
    }

    /// Its queue gets its rate.
    pub(super) fn change(&self, key: u64) -> RateChange {
        RateChange { port: self.port, queue: self.queue, flow: key, rate: self.rate }
    }
}

impl Flows {
    /// Places for `most` flows.
    pub(super) fn new(most: u32) -> Self {
        let free = Flow::new(&Passing::default(), Qpn::new(0), false, Rate::from_bps(1));
        Self { places: Sets::new(most, &free), collisions: 0 }
    }

    /// The flows that have not ended. O(places).
    pub(super) fn live(&self, now: Time) -> impl Iterator<Item = &Flow> {
        self.places.values().filter(move |flow| !is_over(now, flow))
    }

    /// The place of a flow, if it has one and has not ended.
    #[inline]
    pub(super) fn find(&self, now: Time, key: u64) -> Option<usize> {
        self.places.find(key).filter(|at| !is_over(now, self.places.get(*at)))
    }

    /// The place of a flow that sends a packet, a new one if it has none; none if all are in use.
    #[inline]
    pub(super) fn see(&mut self, now: Time, key: u64, new: impl FnOnce() -> Flow) -> Option<usize> {
        let at = match self.find(now, key) {
            Some(at) => at,
            None => self.take_place(now, key, new)?,
        };
        self.places.get_mut(at).seen = now;
        Some(at)
    }

    fn take_place(&mut self, now: Time, key: u64, new: impl FnOnce() -> Flow) -> Option<usize> {
        if let Some(own) = self.places.find(key) {
            *self.places.get_mut(own) = new();
            return Some(own);
        }
        let if_over =
            |flow: &Flow| is_over(now, flow).then_some(Standing { rank: (), is_used: false });
        let taken = self.places.take(key, new(), if_over);
        self.collisions += u64::from(taken.is_none());
        taken.map(|(at, _)| at)
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &Flow {
        self.places.get(at)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> &mut Flow {
        self.places.get_mut(at)
    }
}

/// The flow has ended.
fn is_over(now: Time, flow: &Flow) -> bool {
    flow.queued_pkts == 0 && now.since(flow.seen) >= IDLE
}

/// Bytes of a flow in its table.
pub(super) const BYTES: usize = KEY_BYTES + size_of::<Flow>();
