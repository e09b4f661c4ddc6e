//! Two channels on a virtual wire with virtual time, and the halves of their applications.

use crate::channel::{Channel, ChannelState, Opening, Rings};
use crate::config::{Config, Shape};
use crate::error::Cause;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::shared::{Kind, ReadyQueue, Shared};
use spanwire_base::{Dur, Node, PortId, Rng, RxMeta, Time};
use spanwire_host::queue_pair::Route;
use spanwire_io::worker::{self, Bell, Progress};
use spanwire_transport::{AddressVector, Endpoint, Mtu, Offer, ValidConfig, WireMode, agree};
use spanwire_wire::MacAddr;
use std::sync::Arc;

pub(crate) fn bell() -> Arc<Bell> {
    worker::bell(Progress::Shared).unwrap()
}

pub(crate) fn shared(kind: Kind, shape: Shape) -> Shared {
    let ready_queue = ReadyQueue::new(1, bell());
    Shared::new(kind, shape, 0, Arc::new(ready_queue)).unwrap()
}

/// Faults of the wire, in millionths of frames.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Faults {
    pub(crate) loss_ppm: u32,
    pub(crate) late_ppm: u32,
    pub(crate) twice_ppm: u32,
}

pub(crate) struct End {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: Channel,
    pub(crate) state: ChannelState,
    pub(crate) sending: Option<Sending>,
    pub(crate) receiving: Option<Receiving>,
    inbox: Vec<(Time, u64, Vec<u8>)>,
}

/// Two connected ends, 0 and 1.
pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) ends: [End; 2],
    pub(crate) faults: Faults,
    rng: Rng,
    frames: u64,
}

pub(crate) const SMALL: Shape =
    Shape { ring_bytes: 4096, fragment_bytes: 1000, fragments: 16, max_message_bytes: 3000 };

pub(crate) fn in_both_modes(test: impl Fn(WireMode)) {
    test(WireMode::Rc);
    test(WireMode::Sr);
}

impl Pair {
    pub(crate) fn new(mode: WireMode, kind: Kind, shape: Shape) -> Self {
        Self::between(mode, [kind; 2], shape)
    }

    /// Ends of different kinds: a byte stream can say what no sender of messages does.
    pub(crate) fn between(mode: WireMode, kinds: [Kind; 2], shape: Shape) -> Self {
        let config = Config {
            ring_bytes: shape.ring_bytes,
            fragment_bytes: shape.fragment_bytes,
            fragments: shape.fragments,
            max_message_bytes: shape.max_message_bytes,
            timeout: 8,
            ..Config::default()
        };
        let config = config.validate().unwrap();
        let mut opened = [1, 2].map(|seed| {
            let mut endpoint = Endpoint::new(ValidConfig::default(), [seed; 32]);
            let rings = Rings::new(shape.ring_bytes).unwrap();
            let opening = Opening::new(&mut endpoint, &config, None, shape, rings).unwrap();
            (endpoint, opening)
        });
        let locals = [opened[0].1.local(), opened[1].1.local()];
        let mut connect = |me: usize| {
            let (endpoint, opening) = &mut opened[me];
            let shared = Arc::new(shared(kinds[me], shape));
            let route = route(mode, me);
            let channel =
                opening.connect(endpoint, &route, &locals[1 - me], shared.clone()).unwrap();
            let rings = opening.rings().clone();
            let sending = Some(Sending::new(shared.clone(), rings.send));
            (channel, sending, Some(Receiving::new(shared, rings.receive)))
        };
        let halves = [connect(0), connect(1)];
        let mut opened = opened.into_iter();
        let ends = halves.map(|(channel, sending, receiving)| {
            let (endpoint, _) = opened.next().unwrap();
            let state = ChannelState::Open;
            End { endpoint, channel, state, sending, receiving, inbox: Vec::new() }
        });
        let (faults, rng) = (Faults::default(), Rng::new(7));
        Self { now: Time::ZERO, ends, faults, rng, frames: 0 }
    }

    /// Frames that the wire has carried.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    pub(crate) fn sender(&mut self, side: usize) -> &mut Sending {
        self.ends[side].sending.as_mut().expect("not dropped")
    }

    pub(crate) fn receiver(&mut self, side: usize) -> &mut Receiving {
        self.ends[side].receiving.as_mut().expect("not dropped")
    }

    /// Runs until no event is left, or for `limit`. False if it stopped at the limit.
    pub(crate) fn run(&mut self, limit: Dur) -> bool {
        let end = self.now + limit;
        loop {
            for side in [0, 1] {
                self.step(side);
            }
            match self.ends.iter().filter_map(End::next_event).min() {
                None => return true,
                Some(at) if at > end => {
                    self.now = end;
                    return false;
                }
                Some(at) => self.now = self.now.max(at),
            }
        }
    }

    pub(crate) fn step(&mut self, side: usize) {
        let now = self.now;
        let end = &mut self.ends[side];
        while let Some(frame) = end.pop_due(now) {
            end.endpoint.handle_packet(now, PortId::HOST, &frame, &RxMeta::whole(now));
        }
        if end.endpoint.poll_timeout().is_some_and(|t| t <= now) {
            end.endpoint.handle_timeout(now);
        }
        end.work();
        if self.ends[1 - side].state == ChannelState::Done {
            self.ends[side].handle_peer_closed();
        }
        let mut frame = vec![0; 8192];
        while let Some(meta) = self.ends[side].endpoint.poll_transmit(now, PortId::HOST, &mut frame)
        {
            self.carry(side, &frame[..meta.len]);
        }
        assert_eq!(self.ends[side].endpoint.stuck_qps(), [], "side {side} waits without a timer");
    }

    fn carry(&mut self, side: usize, frame: &[u8]) {
        let mut happens = |ppm: u32| self.rng.per_million(ppm);
        let copies = match (happens(self.faults.loss_ppm), happens(self.faults.twice_ppm)) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        let late = if happens(self.faults.late_ppm) { Dur::from_us(30) } else { Dur::ZERO };
        for _ in 0..copies {
            self.frames += 1;
            let at = self.now + Dur::from_us(5) + late;
            self.ends[1 - side].inbox.push((at, self.frames, frame.to_vec()));
        }
    }
}

impl End {
    /// Runs the channel as the worker does.
    pub(crate) fn work(&mut self) {
        if self.state != ChannelState::Open {
            return;
        }
        self.channel.shared().clear_queued();
        while let Some(event) = self.endpoint.poll_async_event() {
            self.state = Channel::handle_event(event);
        }
        if self.state == ChannelState::Open {
            self.state = self.channel.handle_completions(&mut self.endpoint);
        }
        self.close_if_done();
    }

    /// Handles the closed side connection of an end that is done.
    fn handle_peer_closed(&mut self) {
        if self.state == ChannelState::Open {
            self.state = self.channel.handle_peer_left(None);
            self.close_if_done();
        }
    }

    fn close_if_done(&mut self) {
        let cause = match &self.state {
            ChannelState::Open => return,
            ChannelState::Done => Cause::PeerGone("done"),
            ChannelState::Lost(cause) => cause.clone(),
        };
        self.channel.close(&mut self.endpoint, cause);
    }

    fn pop_due(&mut self, now: Time) -> Option<Vec<u8>> {
        let (at, i) = self.inbox.iter().enumerate().map(|(i, f)| ((f.0, f.1), i)).min()?;
        (at.0 <= now).then(|| self.inbox.swap_remove(i).2)
    }

    fn next_event(&self) -> Option<Time> {
        let frame = self.inbox.iter().map(|f| f.0).min();
        [frame, self.endpoint.poll_timeout()].into_iter().flatten().min()
    }
}

pub(crate) fn route(mode: WireMode, me: usize) -> Route {
    let ip = |i: usize| [10, 0, 0, 1 + u8::try_from(i).unwrap()].into();
    let mac = |i: usize| MacAddr::new([2, 0, 0, 0, 0, u8::try_from(i).unwrap()]);
    let av = AddressVector::new(mac(me), mac(1 - me), ip(me), ip(1 - me));
    let offer = Offer::of(&ValidConfig::default(), Some(300)).only(mode);
    let agreed = agree(&offer, &offer).expect("the same with itself");
    Route { av, path_mtu: Mtu::B256, agreed }
}
