//! All channels of a network: the application of its worker, and its commands.

mod place;

use crate::channel::{Channel, Local, Opening, Rings, Standing};
use crate::commands::{ChannelId, Command, Wish};
use crate::config::{Shape, ValidConfig};
use crate::error::{Cause, SetupError};
use crate::keeper::KeeperHandle;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::shared::{Milestone, Shared, Tray};
use place::{Place, State, dur};
use spanwire_base::{Time, usize_from};
use spanwire_host::paths::ConnectionPaths;
use spanwire_host::worker::Work;
use spanwire_io::clock::Clock;
use spanwire_transport::{App, CqId, Endpoint, Notify};
use spanwire_wire::Qpn;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The application on the engine's core: all channels of a network.
#[derive(Debug)]
pub(crate) struct Channels {
    config: ValidConfig,
    clock: Clock,
    tray: Arc<Tray>,
    keeper: KeeperHandle,
    places: Vec<Option<Place>>,
    /// The channel of each completion queue.
    by_cq: BTreeMap<CqId, u32>,
    made: u64,
    /// Paths of the channel that ended last.
    ended_paths: Option<ConnectionPaths>,
    stop: Option<Time>,
    stopping: bool,
    /// When the next deadline of a channel, or of the worker, expires.
    wakes_at: Option<Time>,
}

impl Channels {
    pub(crate) fn new(
        config: ValidConfig,
        clock: Clock,
        tray: Arc<Tray>,
        keeper: KeeperHandle,
    ) -> Self {
        let places = (0..config.max_connections).map(|_| None).collect();
        Self {
            config,
            clock,
            tray,
            keeper,
            places,
            by_cq: BTreeMap::new(),
            made: 0,
            ended_paths: None,
            stop: None,
            stopping: false,
            wakes_at: None,
        }
    }

    fn open(
        &mut self,
        shape: Shape,
        rings: Rings,
        endpoint: &mut Endpoint,
    ) -> Result<(ChannelId, Local), SetupError> {
        if self.stopping {
            return Err(SetupError::NetworkGone("it is being shut down".into()));
        }
        let free = self.places.iter().position(Option::is_none);
        let place = free.ok_or(SetupError::Limit("max_connections"))?;
        let opening = Opening::new(endpoint, &self.config, shape, rings)
            .map_err(|e| SetupError::Config(e.to_string()))?;
        self.made += 1;
        let local = opening.local();
        let (generation, state) = (self.made, State::Opening(opening));
        let active_at = self.clock.now();
        self.places[place] = Some(Place { generation, state, orphan_until: None, active_at });
        let slot = spanwire_base::u32_from(place);
        Ok((ChannelId { slot, generation: self.made }, local))
    }

    fn connect(
        &mut self,
        wish: Wish,
        endpoint: &mut Endpoint,
    ) -> Result<(Sending, Receiving), SetupError> {
        let slot = wish.id.slot;
        let place = self.places[usize_from(slot.into())].as_mut();
        let place = place.filter(|place| place.generation == wish.id.generation);
        let Some(Place { state, active_at, .. }) = place else {
            return Err(SetupError::NetworkGone("the connection was given up".into()));
        };
        let State::Opening(opening) = &*state else {
            return Err(SetupError::NetworkGone("the connection exists already".into()));
        };
        let shared = Shared::new(wish.kind, wish.shape, slot, self.tray.clone())
            .map_err(|e| SetupError::Io("make descriptors", e))?;
        let shared = Arc::new(shared.counted_at(wish.place));
        let impossible = |e: &dyn std::fmt::Display| {
            SetupError::Garbled(format!("what the other end says of itself is not possible: {e}"))
        };
        let channel = opening
            .connect(endpoint, &wish.route, &wish.theirs, shared.clone())
            .map_err(|e| impossible(&e))?;
        let rings = opening.rings().clone();
        endpoint.req_notify_cq(channel.cq(), Notify::Next).map_err(|e| impossible(&e))?;
        self.by_cq.insert(channel.cq(), slot);
        *state = State::Open(channel);
        *active_at = self.clock.now();
        let idle_at = self.config.idle_timeout.map(|idle| *active_at + dur(idle));
        self.wakes_at = self.wakes_at.into_iter().chain(idle_at).min();
        let sending = Sending::new(shared.clone(), rings.send);
        Ok((sending, Receiving::new(shared, rings.receive)))
    }

    fn discard(&mut self, id: ChannelId, endpoint: &mut Endpoint) {
        let place = &mut self.places[usize_from(id.slot.into())];
        if let Some(place) = place.take_if(|place| place.generation == id.generation) {
            place.discard(&mut self.by_cq, endpoint);
        }
    }

    fn channel(&mut self, id: ChannelId) -> Option<&mut Channel> {
        let place = self.places[usize_from(id.slot.into())].as_mut()?;
        match &mut place.state {
            State::Open(channel) if place.generation == id.generation => Some(channel),
            _ => None,
        }
    }

    /// Handles the actions of the application of the channel at `slot`.
    fn handle_news(&mut self, slot: u32, endpoint: &mut Endpoint) {
        let Some(place) = self.places[usize_from(slot.into())].as_mut() else { return };
        let State::Open(channel) = &mut place.state else { return };
        let shared = channel.shared();
        shared.out_of_tray();
        let is_orphan = shared.has(Milestone::Finished) && shared.has(Milestone::Deaf);
        if is_orphan && place.orphan_until.is_none() {
            let until = self.clock.now() + dur(self.config.linger);
            place.orphan_until = Some(until);
            self.wakes_at = self.wakes_at.into_iter().chain([until]).min();
        }
        let standing = channel.handle_news(endpoint);
        self.settle(slot, standing, endpoint);
    }

    /// Applies the new state of the channel at `slot`.
    fn settle(&mut self, slot: u32, standing: Standing, endpoint: &mut Endpoint) {
        let (cause, last_word) = match standing {
            Standing::Open => return,
            Standing::Done => (Cause::PeerClosed, None),
            Standing::Lost(cause) => {
                let last_word = cause.for_peer();
                (cause, Some(last_word))
            }
        };
        let Some(place) = self.places[usize_from(slot.into())].take() else { return };
        let Place { generation, state: State::Open(channel), .. } = place else { return };
        tracing::debug!("connection {generation} has ended: {cause}");
        self.by_cq.remove(&channel.cq());
        let paths = ConnectionPaths::look(endpoint, channel.qpn(), self.clock.now());
        self.ended_paths = paths.or(self.ended_paths.take());
        channel.close(endpoint, cause);
        self.keeper.close(ChannelId { slot, generation }, last_word);
    }

    /// The paths of all channels, the one that ended last first.
    fn paths(&self, endpoint: &Endpoint) -> Vec<ConnectionPaths> {
        let open = self.places.iter().flatten().filter_map(Place::channel);
        let look = |c: &Channel| ConnectionPaths::look(endpoint, c.qpn(), self.clock.now());
        self.ended_paths.iter().cloned().chain(open.filter_map(look)).collect()
    }

    /// Aborts channels past their deadline: idle, or without handles.
    fn give_up_late(&mut self, now: Time, endpoint: &mut Endpoint) {
        if self.wakes_at.is_none_or(|at| now < at) {
            return;
        }
        let idle = self.config.idle_timeout.map(dur);
        for slot in 0..self.config.max_connections {
            let place = self.places[usize_from(slot.into())].as_ref();
            let late = place.and_then(|place| place.deadline(idle)).filter(|(at, _)| *at <= now);
            if let Some((_, why)) = late {
                self.settle(slot, Standing::Lost(Cause::Aborted(why.into())), endpoint);
            }
        }
        let places = self.places.iter().flatten();
        let deadlines = places.filter_map(|place| place.deadline(idle)).map(|(at, _)| at);
        self.wakes_at = deadlines.chain(self.stop.filter(|at| *at > now)).min();
    }

    fn slot_of(&self, qpn: Qpn) -> Option<u32> {
        let is_it = |place: &Place| place.channel().is_some_and(|channel| channel.qpn() == qpn);
        let found = self.places.iter().position(|place| place.as_ref().is_some_and(is_it));
        found.map(spanwire_base::u32_from)
    }
}

impl Work for Channels {
    type Command = Command;

    fn handle_command(&mut self, command: Command, endpoint: &mut Endpoint) {
        match command {
            // The send fails only if the caller has stopped waiting for the reply.
            Command::Open(shape, rings, reply) => {
                let _ = reply.send(self.open(shape, rings, endpoint));
            }
            Command::Connect(wish, reply) => {
                let _ = reply.send(self.connect(*wish, endpoint));
            }
            Command::Keep(id, side) if self.channel(id).is_some() => self.keeper.keep(id, side),
            // The channel has ended meanwhile; dropping its side connection closes it.
            Command::Keep(..) => {}
            Command::Discard(id) => self.discard(id, endpoint),
            Command::PeerLeft(id, why) => {
                let standing = self.channel(id).map(|channel| channel.handle_peer_left(why));
                if let Some(standing) = standing {
                    self.settle(id.slot, standing, endpoint);
                }
            }
            Command::Paths(reply) => {
                let _ = reply.send(self.paths(endpoint));
            }
            Command::Stop(within) => {
                self.stopping = true;
                let until = within.map(|within| self.clock.now() + within);
                self.stop = self.stop.into_iter().chain(until).min();
                self.wakes_at = self.wakes_at.into_iter().chain(until).min();
            }
        }
    }

    /// Handles the actions of applications on their channels.
    fn handle_ring(&mut self, endpoint: &mut Endpoint) {
        while let Some(slot) = self.tray.pop() {
            self.handle_news(slot, endpoint);
        }
        if self.tray.take_overflow() {
            for slot in 0..self.config.max_connections {
                self.handle_news(slot, endpoint);
            }
        }
    }

    fn is_over(&self) -> bool {
        let has_time = self.stop.is_none_or(|until| self.clock.now() < until);
        self.stopping && (!has_time || self.places.iter().all(Option::is_none))
    }

    fn end(&mut self, endpoint: &mut Endpoint, why: &str) {
        let cause = Cause::NetworkGone(why.to_owned());
        for slot in 0..self.config.max_connections {
            self.settle(slot, Standing::Lost(cause.clone()), endpoint);
        }
    }
}

impl App for Channels {
    fn poll(&mut self, now: Time, endpoint: &mut Endpoint) {
        // Before the completions: those of a failed queue pair do not contain the cause.
        while let Some(event) = endpoint.poll_async_event() {
            let standing = Channel::handle_event(event);
            let slot = event.qpn().and_then(|qpn| self.slot_of(qpn));
            if let Some(slot) = slot {
                self.settle(slot, standing, endpoint);
            }
        }
        while let Some(cq) = endpoint.poll_cq_event() {
            let Some(slot) = self.by_cq.get(&cq).copied() else { continue };
            let Some(Some(Place { state: State::Open(channel), active_at, .. })) =
                self.places.get_mut(usize_from(slot.into()))
            else {
                continue;
            };
            *active_at = now;
            // Armed before the last poll, so that no completion is missed between both.
            let armed = endpoint.req_notify_cq(cq, Notify::Next);
            debug_assert!(armed.is_ok(), "a channel's queue exists as long as the channel");
            let standing = channel.handle_completions(endpoint);
            self.settle(slot, standing, endpoint);
        }
        self.give_up_late(now, endpoint);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.wakes_at
    }
}

impl Drop for Channels {
    /// Releases all channels however the worker ends, so that no application waits forever.
    fn drop(&mut self) {
        for channel in self.places.iter().flatten().filter_map(Place::channel) {
            channel.shared().set(Milestone::Gone);
            channel.shared().fail(Cause::NetworkGone("its worker has ended".into()));
        }
    }
}
