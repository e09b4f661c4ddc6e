//! The endpoint: all queue pairs, memory regions and completion queues of one worker, behind
//! [`Node`](spanwire_base::Node). Creating and destroying them is in `endpoint/control.rs`,
//! transmission in `endpoint/turn.rs`.

mod control;
mod dialogue;
mod node;
mod poll;
mod port_rate;
mod reconfigure;
mod turn;

pub use reconfigure::ReconfigureError;

use crate::attr::{QpAttr, QpInit};
use crate::config::ValidConfig;
use crate::counters::Counters;
use crate::ids::SrqId;
use crate::qp::QueuePair;
use crate::qp::common::Shared;
use crate::qp::flow::FlowInfo;
use crate::qp::post::total_bytes;
use crate::qp::state::{ModifyError, QpState};
use crate::schedule::{ActiveList, InFlight, Schedule};
use crate::srq::SrqInfo;
use crate::tables::Slab;
use crate::timer::Timers;
use crate::verbs::{PostError, RecvRequest, WorkRequest};
use dialogue::Dialogue;
use port_rate::PortPacer;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};
use spanwire_base::{Dur, Time};
use spanwire_loadbalance::Balancer;
use spanwire_pacer::{Wheel, WheelConfig};
use spanwire_wire::Qpn;

/// The engine of one core: queue pairs and everything they use, without I/O.
///
/// The verbs are methods. Packets arrive and leave through [`Node`](spanwire_base::Node), at one
/// port: [`PortId::HOST`](spanwire_base::PortId::HOST).
#[derive(Debug)]
pub struct Endpoint {
    shared: Shared,
    rng: ChaCha20Rng,
    pds: Slab<()>,
    qps: Slab<Entry>,
    timers: Timers,
    schedule: Schedule,
    /// Queue pairs whose next packet is paced, by the time at which it may leave.
    pacer: Wheel,
    /// The limit of all queue pairs together, if there is one.
    port: Option<Box<PortPacer>>,
    dialogue: Dialogue,
    /// Some queue pair was made with [`QpInit::places_until_polled`].
    counts_polled: bool,
    /// The queue pair of the last calls, while the schedule has not counted their effects.
    unsettled: Option<u32>,
}

#[derive(Debug)]
struct Entry {
    qp: QueuePair,
    /// The packets in flight that the schedule has counted for this queue pair.
    in_flight: InFlight,
}

/// State, attributes and measurements of a queue pair, as [`Endpoint::query_qp`] returns them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QpInfo {
    /// Its state.
    pub state: QpState,
    /// The attributes of its creation.
    pub init: QpInit,
    /// The attributes in force, with the current PSNs: `sq_psn` of the next new packet, `rq_psn` of
    /// the next expected one. In SR they are the lower 24 of 32 bits.
    pub attr: QpAttr,
    /// Packets and READ responses requested, sent and not acknowledged.
    pub in_flight_pkts: u64,
    /// Smoothed round trip time (srtt), once measured.
    pub srtt: Option<Dur>,
    /// Congestion control, if it has one.
    pub flow: Option<FlowInfo>,
}

impl Endpoint {
    /// Creates an endpoint whose keys and numbers are drawn from `key_seed`.
    ///
    /// On a real network, the seed must be 32 bytes of the operating system's randomness: it
    /// determines every rkey. A simulation passes a constant, so that runs are repeatable.
    #[must_use]
    pub fn new(config: ValidConfig, key_seed: [u8; 32]) -> Self {
        Self {
            rng: ChaCha20Rng::from_seed(key_seed),
            pds: Slab::new(config.max_pds),
            qps: Slab::new(config.max_qps),
            timers: Timers::default(),
            schedule: Schedule::new(config.turn_bytes),
            pacer: Wheel::new(WheelConfig::default()),
            port: PortPacer::new(&config),
            dialogue: Dialogue::default(),
            counts_polled: false,
            unsettled: None,
            shared: Shared::new(config),
        }
    }

    /// Sets attributes of a queue pair, above all its state; all of them or none.
    ///
    /// To [`QpState::Reset`], everything posted to it is gone without completions, and completions
    /// not yet polled are removed from its completion queues, as by [`Endpoint::destroy_qp`].
    ///
    /// # Errors
    /// See [`ModifyError`].
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
        let modify = |qp: &mut QueuePair, sh: &mut Shared| {
            qp.modify(attr, sh)?;
            Ok(qp.weight())
        };
        let weight = self.with_qp(qpn, modify).unwrap_or(Err(ModifyError::UnknownQp))?;
        self.schedule.set_weight(self.slot_of(qpn), weight);
        self.limit_unacknowledged(qpn);
        if attr.state == Some(QpState::Reset) {
            let qp = self.qps.at(self.slot_of(qpn));
            self.on_srq_returned(qp.and_then(|e| e.qp.init().srq));
        }
        Ok(())
    }

    /// State, attributes and measurements of a queue pair.
    #[must_use]
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        let qp = &self.qps.at(self.slot_of(qpn)).filter(|e| e.qp.qpn() == qpn)?.qp;
        let (state, attr) = (qp.state(), qp.attr());
        let (in_flight_pkts, srtt) = (qp.in_flight().pkts, qp.srtt());
        let flow = qp.flow_info();
        Some(QpInfo { state, init: *qp.init(), attr, in_flight_pkts, srtt, flow })
    }

    /// Sizes and limit of a shared receive queue, and what is posted to it.
    #[must_use]
    pub fn query_srq(&self, srq: SrqId) -> Option<SrqInfo> {
        Some(self.shared.srqs.queues.at(srq.0)?.info())
    }

    /// Posts a send work request.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was queued then.
    pub fn post_send(&mut self, qpn: Qpn, wr: &WorkRequest<'_>) -> Result<(), PostError> {
        self.with_qp(qpn, |qp, sh| qp.post_send(wr, sh)).unwrap_or(Err(PostError::UnknownQp))
    }

    /// Posts a receive request.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was queued then.
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvRequest<'_>) -> Result<(), PostError> {
        self.with_qp(qpn, |qp, sh| qp.post_recv(wr, sh)).unwrap_or(Err(PostError::UnknownQp))
    }

    /// Posts a receive request to a shared receive queue.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was queued then.
    pub fn post_srq_recv(&mut self, srq: SrqId, wr: &RecvRequest<'_>) -> Result<(), PostError> {
        let q = self.shared.srqs.queues.at_mut(srq.0).ok_or(PostError::UnknownSrq)?;
        if wr.sges.len() > q.queue.max_sge() {
            return Err(PostError::TooManySges);
        }
        if q.is_full() {
            return Err(PostError::QueueFull);
        }
        q.post(wr, total_bytes(wr.sges, u32::MAX)?);
        if q.take_credit_update() {
            self.on_srq_posted(srq);
        }
        Ok(())
    }

    /// Queue pairs that await an acknowledgement or a response without a timer: if it is lost, they
    /// never proceed. A correct engine has none.
    #[must_use]
    pub fn stuck_qps(&self) -> Vec<Qpn> {
        let is_stuck = |slot: u32, e: &Entry| {
            // At `Time::MAX`, where arithmetic saturates, no timer is armed and nothing is stuck.
            let is_armed = |at| at == Time::MAX || self.timers.is_armed(slot, at);
            let armed = e.qp.next_deadline().is_some_and(is_armed);
            // A paced queue pair becomes active when the pacer releases it.
            let is_active = self.schedule.is_active(slot) || self.unsettled == Some(slot);
            let is_scheduled = is_active || self.pacer.contains(slot);
            let sends_next = e.qp.has_nothing_in_flight() && is_scheduled;
            e.qp.needs_timer() && !armed && !sends_next
        };
        let stuck = self.qps.iter().filter(|(slot, e)| is_stuck(*slot, e));
        stuck.map(|(_, e)| e.qp.qpn()).collect()
    }

    /// The load balancer of a queue pair with its paths, if it has one.
    #[must_use]
    pub fn qp_paths(&self, qpn: Qpn) -> Option<&Balancer> {
        let entry = self.qps.at(self.slot_of(qpn)).filter(|e| e.qp.qpn() == qpn)?;
        entry.qp.balancer()
    }

    /// Payload bytes of the longest packet that the path of a queue pair carries whole, if that is
    /// less than was agreed.
    #[must_use]
    pub fn qp_reduced_bytes(&self, qpn: Qpn) -> Option<u32> {
        let entry = self.qps.at(self.slot_of(qpn)).filter(|e| e.qp.qpn() == qpn)?;
        entry.qp.reduced_bytes()
    }

    /// No memory is reserved for FEC blocks.
    #[cfg(test)]
    pub(crate) fn has_no_block_memory(&self) -> bool {
        self.shared.block_memory.is_unused()
    }

    /// The counters since the endpoint was created.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Asynchronous events lost because the queue of unpolled events was full.
    #[must_use]
    pub fn async_events_lost(&self) -> u64 {
        self.shared.events.lost()
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &ValidConfig {
        &self.shared.config
    }

    /// 64 bits from the endpoint's cryptographic generator, e.g. for an initial PSN.
    pub fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// True if completions or events were added since the last [`Endpoint::take_app_events`].
    pub(crate) fn has_app_events(&self) -> bool {
        self.shared.cqs.has_new() || self.shared.events.has_new()
    }

    /// True if completions or asynchronous events were added since the last call.
    pub(crate) fn take_app_events(&mut self) -> bool {
        // `|`, not `||`: both flags must be cleared.
        self.shared.cqs.take_new() | self.shared.events.take_new()
    }

    /// Advertises the receive requests that may have returned to `srq` to peers that need one.
    fn on_srq_returned(&mut self, srq: Option<SrqId>) {
        let Some(srq) = srq else { return };
        let q = self.shared.srqs.queues.at_mut(srq.0);
        if q.is_some_and(|q| q.queue.len() > 0 && q.take_credit_update()) {
            self.on_srq_posted(srq);
        }
    }

    /// Makes every queue pair of `srq` advertise to its peer that a receive request was posted.
    fn on_srq_posted(&mut self, srq: SrqId) {
        let uses = self.qps.iter().filter(|(_, e)| e.qp.uses_srq(srq));
        let qpns: Vec<Qpn> = uses.map(|(_, e)| e.qp.qpn()).collect();
        for qpn in qpns {
            self.with_qp(qpn, |qp, _| qp.on_receive_posted());
        }
    }

    fn slot_of(&self, qpn: Qpn) -> u32 {
        self.shared.config.slot_of(qpn)
    }

    /// Calls `f` on a queue pair, which may have something to send then. Schedule and timers are
    /// updated once for calls in a row on the same one: see [`Endpoint::settle`].
    fn with_qp<T>(
        &mut self,
        qpn: Qpn,
        f: impl FnOnce(&mut QueuePair, &mut Shared) -> T,
    ) -> Option<T> {
        self.with_qp_if(qpn, |qp, sh| Some(f(qp, sh)))
    }

    /// As [`Endpoint::with_qp`]; if `f` returns `None`, it has changed nothing.
    #[inline]
    fn with_qp_if<T>(
        &mut self,
        qpn: Qpn,
        f: impl FnOnce(&mut QueuePair, &mut Shared) -> Option<T>,
    ) -> Option<T> {
        let slot = self.slot_of(qpn);
        let entry = self.qps.at_mut(slot).filter(|e| e.qp.qpn() == qpn)?;
        let out = f(&mut entry.qp, &mut self.shared)?;
        if self.unsettled != Some(slot) {
            self.settle();
            self.unsettled = Some(slot);
            self.timers.touch(slot);
        }
        Some(out)
    }

    /// Updates the schedule after the last calls of [`Endpoint::with_qp`]: before it is used, and
    /// before a call on another queue pair.
    #[inline]
    fn settle(&mut self) {
        let Some(slot) = self.unsettled.take() else { return };
        let Some(entry) = self.qps.at_mut(slot) else { return };
        entry.update_in_flight(&mut self.schedule);
        let is_control_due = entry.qp.is_control_due();
        if is_control_due {
            self.schedule.activate(ActiveList::Control, slot);
        }
        let may_send = entry.qp.may_send();
        match may_send {
            true => self.schedule.activate(ActiveList::Ready, slot),
            // A failed queue pair no longer waits for its rate.
            false => self.pacer.remove(slot),
        }
        if may_send || is_control_due {
            self.schedule.wake_driver();
        }
    }

    /// Arms the timers of the queue pairs whose deadlines may have changed.
    fn settle_timers(&mut self) {
        self.settle();
        let Self { timers, qps, .. } = self;
        timers.settle(|slot| qps.at(slot)?.qp.next_deadline());
    }
}

impl Entry {
    /// Updates the window accounting of the schedule.
    #[inline]
    fn update_in_flight(&mut self, schedule: &mut Schedule) {
        let in_flight = self.qp.in_flight();
        schedule.on_in_flight_changed(std::mem::replace(&mut self.in_flight, in_flight), in_flight);
    }
}

#[cfg(test)]
mod tests;
