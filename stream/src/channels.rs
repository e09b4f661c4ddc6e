//! All channels of a network: the application of its worker, and its commands.

mod slot;

use crate::channel::{Channel, ChannelId, ChannelState, Local, Opening, Rings};
use crate::config::{Shape, ValidConfig};
use crate::error::{Cause, SetupError};
use crate::peers::ConnectionCount;
use crate::place::Place;
use crate::shared::{Kind, Milestone, ReadyQueue, Shared};
use crate::side::{Side, SideMessage};
use crate::side_thread::SideThreadHandle;
use slot::{Slot, State, dur};
use spanwire_base::{Dur, Time, usize_from};
use spanwire_host::congestion::ConnectionCongestion;
use spanwire_host::paths::ConnectionPaths;
use spanwire_host::queue_pair::Route;
use spanwire_io::clock::Clock;
use spanwire_transport::{App, CongestionControl, CqId, Endpoint, Notify};
use spanwire_wire::Qpn;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The application on the engine's core: all channels of a network.
#[derive(Debug)]
pub(crate) struct Channels {
    config: ValidConfig,
    clock: Clock,
    ready_queue: Arc<ReadyQueue>,
    side_thread: SideThreadHandle,
    slots: Vec<Option<Slot>>,
    /// The channel of each completion queue.
    by_cq: BTreeMap<CqId, u32>,
    made: u64,
    /// Reasons of channels that ended before their side connections were handed over: those that
    /// their applications aborted at once. At most one for each handshake in progress.
    unsent_reasons: Vec<(ChannelId, String)>,
    /// Paths of the channel that ended last.
    ended_paths: Option<ConnectionPaths>,
    /// Its congestion control.
    ended_congestion: Option<ConnectionCongestion>,
    stop: Option<Time>,
    stopping: bool,
    /// When the next deadline of a channel, or of the worker, expires.
    wakes_at: Option<Time>,
}

/// Parameters to connect a channel.
#[derive(Debug)]
pub(crate) struct ConnectParams {
    pub(crate) id: ChannelId,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) route: Route,
    pub(crate) theirs: Local,
    /// The count of the peer's connections, if the peer connected to us.
    pub(crate) count: Option<ConnectionCount>,
}

impl Channels {
    pub(crate) fn new(
        config: ValidConfig,
        clock: Clock,
        ready_queue: Arc<ReadyQueue>,
        side_thread: SideThreadHandle,
    ) -> Self {
        let slots = (0..config.max_connections).map(|_| None).collect();
        Self {
            config,
            clock,
            ready_queue,
            side_thread,
            slots,
            by_cq: BTreeMap::new(),
            made: 0,
            unsent_reasons: Vec::new(),
            ended_paths: None,
            ended_congestion: None,
            stop: None,
            stopping: false,
            wakes_at: None,
        }
    }

    /// Creates a queue pair for a connection of at most `shape`, which has this `place`, with
    /// `congestion` in place of the network's.
    pub(crate) fn open(
        &mut self,
        endpoint: &mut Endpoint,
        (shape, rings, place): (Shape, Rings, Place),
        congestion: Option<CongestionControl>,
    ) -> Result<(ChannelId, Local), SetupError> {
        if self.stopping {
            return Err(SetupError::NetworkGone("it is being shut down".into()));
        }
        let free = self.slots.iter().position(Option::is_none);
        let entry = free.ok_or(SetupError::Limit("max_connections"))?;
        let opening = Opening::new(endpoint, &self.config, congestion, shape, rings)
            .map_err(|e| SetupError::Config(e.to_string()))?;
        self.made += 1;
        let local = opening.local();
        let (generation, state) = (self.made, State::Opening(opening));
        let active_at = self.clock.now();
        let (has_side, linger_until, _place) = (false, None, place);
        let slot = Slot { generation, state, has_side, linger_until, active_at, _place };
        self.slots[entry] = Some(slot);
        let slot = spanwire_base::u32_from(entry);
        Ok((ChannelId { slot, generation: self.made }, local))
    }

    /// Connects the queue pair of a channel to the peer's. Returns the state that it shares with
    /// its application, and their rings.
    pub(crate) fn connect(
        &mut self,
        endpoint: &mut Endpoint,
        params: ConnectParams,
    ) -> Result<(Arc<Shared>, Rings), SetupError> {
        let slot = params.id.slot;
        let entry = self.slots[usize_from(slot.into())].as_mut();
        let entry = entry.filter(|entry| entry.generation == params.id.generation);
        let Some(Slot { state, active_at, .. }) = entry else {
            return Err(SetupError::NetworkGone("the connection was given up".into()));
        };
        let State::Opening(opening) = &*state else {
            return Err(SetupError::NetworkGone("the connection exists already".into()));
        };
        let shared = Shared::new(params.kind, params.shape, slot, self.ready_queue.clone())
            .map_err(|e| SetupError::Io("make descriptors", e))?;
        let shared = Arc::new(shared.counted_by(params.count));
        let impossible = |e: &dyn std::fmt::Display| {
            SetupError::Garbled(format!("what the other end says of itself is not possible: {e}"))
        };
        let channel = opening
            .connect(endpoint, &params.route, &params.theirs, shared.clone())
            .map_err(|e| impossible(&e))?;
        let rings = opening.rings().clone();
        endpoint.req_notify_cq(channel.cq(), Notify::Next).map_err(|e| impossible(&e))?;
        self.by_cq.insert(channel.cq(), slot);
        *state = State::Open(channel);
        *active_at = self.clock.now();
        let idle_at = self.config.idle_timeout.map(|idle| *active_at + dur(idle));
        self.wakes_at = self.wakes_at.into_iter().chain(idle_at).min();
        Ok((shared, rings))
    }

    /// Hands the side connection of a channel to the side thread. If the channel has ended
    /// meanwhile, its reason is sent and the side connection closed.
    pub(crate) fn keep(&mut self, id: ChannelId, side: Side) {
        if self.channel(id).is_some()
            && let Some(entry) = &mut self.slots[usize_from(id.slot.into())]
        {
            entry.has_side = true;
            self.side_thread.keep(id, side);
        } else if let Some(reason) = self.take_unsent_reason(id) {
            side.send_last(&SideMessage::Abort { reason });
        }
    }

    fn take_unsent_reason(&mut self, id: ChannelId) -> Option<String> {
        let found = self.unsent_reasons.iter().position(|(ended, _)| *ended == id)?;
        Some(self.unsent_reasons.swap_remove(found).1)
    }

    /// Removes a channel whose handshake failed.
    pub(crate) fn discard(&mut self, endpoint: &mut Endpoint, id: ChannelId) {
        self.take_unsent_reason(id);
        let entry = &mut self.slots[usize_from(id.slot.into())];
        if let Some(entry) = entry.take_if(|entry| entry.generation == id.generation) {
            entry.discard(&mut self.by_cq, endpoint);
        }
    }

    fn channel(&mut self, id: ChannelId) -> Option<&mut Channel> {
        let entry = self.slots[usize_from(id.slot.into())].as_mut()?;
        match &mut entry.state {
            State::Open(channel) if entry.generation == id.generation => Some(channel),
            _ => None,
        }
    }

    /// Handles the actions of the application of the channel at `slot`.
    fn handle_application(&mut self, slot: u32, endpoint: &mut Endpoint) {
        let Some(entry) = self.slots[usize_from(slot.into())].as_mut() else { return };
        let State::Open(channel) = &mut entry.state else { return };
        let shared = channel.shared();
        shared.clear_queued();
        let is_orphan = shared.has(Milestone::Finished) && shared.has(Milestone::ReceiveClosed);
        if is_orphan && entry.linger_until.is_none() {
            let until = self.clock.now() + dur(self.config.linger);
            entry.linger_until = Some(until);
            self.wakes_at = self.wakes_at.into_iter().chain([until]).min();
        }
        let state = channel.handle_application(endpoint);
        self.settle(slot, state, endpoint);
    }

    /// Applies the new state of the channel at `slot`.
    fn settle(&mut self, slot: u32, state: ChannelState, endpoint: &mut Endpoint) {
        let (cause, abort_reason) = match state {
            ChannelState::Open => return,
            ChannelState::Done => (Cause::PeerClosed, None),
            ChannelState::Lost(cause) => {
                let abort_reason = cause.for_peer();
                (cause, Some(abort_reason))
            }
        };
        let Some(entry) = self.slots[usize_from(slot.into())].take() else { return };
        let Slot { generation, state: State::Open(channel), has_side, .. } = entry else { return };
        tracing::debug!("connection {generation} has ended: {cause}");
        self.by_cq.remove(&channel.cq());
        let paths = ConnectionPaths::look(endpoint, channel.qpn(), self.clock.now());
        self.ended_paths = paths.or(self.ended_paths.take());
        self.ended_congestion = ConnectionCongestion::look(endpoint, channel.qpn());
        channel.close(endpoint, cause);
        let id = ChannelId { slot, generation };
        if has_side {
            self.side_thread.close(id, abort_reason);
        } else {
            self.unsent_reasons.extend(abort_reason.map(|reason| (id, reason)));
        }
    }

    /// The side connection of a channel has ended, with the peer's reason.
    pub(crate) fn handle_peer_left(
        &mut self,
        endpoint: &mut Endpoint,
        id: ChannelId,
        why: Option<String>,
    ) {
        if let Some(channel) = self.channel(id) {
            let state = channel.handle_peer_left(why);
            self.settle(id.slot, state, endpoint);
        }
    }

    /// Ends when the last channel has ended, or after `within`.
    pub(crate) fn stop(&mut self, within: Option<Dur>) {
        self.stopping = true;
        let until = within.map(|within| self.clock.now() + within);
        self.stop = self.stop.into_iter().chain(until).min();
        self.wakes_at = self.wakes_at.into_iter().chain(until).min();
    }

    /// The paths of all channels, the one that ended last first.
    pub(crate) fn paths(&self, endpoint: &Endpoint) -> Vec<ConnectionPaths> {
        let open = self.slots.iter().flatten().filter_map(Slot::channel);
        let look = |c: &Channel| ConnectionPaths::look(endpoint, c.qpn(), self.clock.now());
        self.ended_paths.iter().cloned().chain(open.filter_map(look)).collect()
    }

    /// The congestion control of all channels, the one that ended last first.
    pub(crate) fn congestion(&self, endpoint: &Endpoint) -> Vec<ConnectionCongestion> {
        let open = self.slots.iter().flatten().filter_map(Slot::channel);
        let look = |c: &Channel| ConnectionCongestion::look(endpoint, c.qpn());
        self.ended_congestion.iter().cloned().chain(open.filter_map(look)).collect()
    }

    /// Aborts channels past their deadline: idle, or without handles.
    fn abort_expired(&mut self, now: Time, endpoint: &mut Endpoint) {
        if self.wakes_at.is_none_or(|at| now < at) {
            return;
        }
        let idle = self.config.idle_timeout.map(dur);
        for slot in 0..self.config.max_connections {
            let entry = self.slots[usize_from(slot.into())].as_ref();
            let late = entry.and_then(|entry| entry.deadline(idle)).filter(|(at, _)| *at <= now);
            if let Some((_, why)) = late {
                self.settle(slot, ChannelState::Lost(Cause::Aborted(why.into())), endpoint);
            }
        }
        let slots = self.slots.iter().flatten();
        let deadlines = slots.filter_map(|entry| entry.deadline(idle)).map(|(at, _)| at);
        self.wakes_at = deadlines.chain(self.stop.filter(|at| *at > now)).min();
    }

    fn slot_of(&self, qpn: Qpn) -> Option<u32> {
        let is_it = |entry: &Slot| entry.channel().is_some_and(|channel| channel.qpn() == qpn);
        let found = self.slots.iter().position(|entry| entry.as_ref().is_some_and(is_it));
        found.map(spanwire_base::u32_from)
    }
}

impl App for Channels {
    fn poll(&mut self, now: Time, endpoint: &mut Endpoint) {
        // Before the completions: those of a failed queue pair do not contain the cause.
        while let Some(event) = endpoint.poll_async_event() {
            let state = Channel::handle_event(event);
            let slot = event.qpn().and_then(|qpn| self.slot_of(qpn));
            if let Some(slot) = slot {
                self.settle(slot, state, endpoint);
            }
        }
        while let Some(cq) = endpoint.poll_cq_event() {
            let Some(slot) = self.by_cq.get(&cq).copied() else { continue };
            let Some(Some(Slot { state: State::Open(channel), active_at, .. })) =
                self.slots.get_mut(usize_from(slot.into()))
            else {
                continue;
            };
            *active_at = now;
            // Armed before the last poll, so that no completion is missed between both.
            let armed = endpoint.req_notify_cq(cq, Notify::Next);
            debug_assert!(armed.is_ok(), "a channel's queue exists as long as the channel");
            let state = channel.handle_completions(endpoint);
            self.settle(slot, state, endpoint);
        }
        self.abort_expired(now, endpoint);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.wakes_at
    }

    /// Handles the actions of applications on their channels.
    fn handle_ring(&mut self, endpoint: &mut Endpoint) {
        while let Some(slot) = self.ready_queue.pop() {
            self.handle_application(slot, endpoint);
        }
        if self.ready_queue.take_overflow() {
            for slot in 0..self.config.max_connections {
                self.handle_application(slot, endpoint);
            }
        }
    }

    fn is_finished(&self) -> bool {
        let has_time = self.stop.is_none_or(|until| self.clock.now() < until);
        self.stopping && (!has_time || self.slots.iter().all(Option::is_none))
    }

    fn end(&mut self, endpoint: &mut Endpoint, why: &str) {
        let cause = Cause::NetworkGone(why.to_owned());
        for slot in 0..self.config.max_connections {
            self.settle(slot, ChannelState::Lost(cause.clone()), endpoint);
        }
    }
}

impl Drop for Channels {
    /// Releases all channels however the worker ends, so that no application waits forever.
    fn drop(&mut self) {
        for channel in self.slots.iter().flatten().filter_map(Slot::channel) {
            channel.shared().set(Milestone::Gone);
            channel.shared().fail(Cause::NetworkGone("its worker has ended".into()));
        }
    }
}

#[cfg(test)]
mod tests;
