//! A worker of a network: an engine on a port of its own, with the channels of its connections.

use crate::channel::ChannelId;
use crate::channels::Channels;
use crate::config::ValidConfig;
use crate::engine::Engine;
use crate::error::SetupError;
use crate::place::Place;
use crate::shared::ReadyQueue;
use crate::side_thread::SideThread;
use crate::threads;
use spanwire_host::fabric::{Attachment, Terms};
use spanwire_host::oob::WorkerOf;
use spanwire_host::seed;
use spanwire_io::affinity;
use spanwire_io::driver::Polling;
use spanwire_io::worker::{self, Bell};
use spanwire_progress::Progress;
use spanwire_transport::{Endpoint, Host};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

/// A worker of a network. The workers share nothing but the limits of connections.
#[derive(Debug)]
pub(crate) struct NetworkWorker {
    pub(crate) engine: Arc<Engine>,
    /// Which worker of the network it is.
    pub(crate) worker_of: WorkerOf,
    /// The side poll socket's address and port, once it was opened.
    side_poll: Mutex<Option<(IpAddr, Option<u16>)>>,
    places: Place,
}

impl NetworkWorker {
    /// Starts a worker on `port`, and its threads.
    pub(super) fn start(
        port: Attachment,
        bell: Arc<Bell>,
        config: &ValidConfig,
        engine: &spanwire_transport::ValidConfig,
        (worker_of, polling, core): (WorkerOf, Polling, Option<usize>),
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<Self, SetupError> {
        let descriptors = |e| SetupError::Io("make descriptors", e);
        let engine = engine.of_worker(worker_of.index, worker_of.workers);
        let engine = engine.map_err(|e| SetupError::Config(e.to_string()))?;
        let endpoint = seed::endpoint(engine).map_err(|e| SetupError::Io("draw random keys", e))?;
        let progress = bell.progress();
        let ready_queue = Arc::new(ReadyQueue::new(config.max_connections, bell.clone()));
        let (side_handle, side_thread) = SideThread::new().map_err(descriptors)?;
        let Attachment { port, terms: Terms { clock, .. } } = port;
        let channels = Channels::new(config.clone(), clock, ready_queue, side_handle);
        let host = Host::new(endpoint, channels);
        let worker = worker::worker(bell, host, port, clock, polling).map_err(descriptors)?;
        let worker = Self::new(worker, worker_of);
        // Not to keep it: its channels keep the thread.
        let weak = Arc::downgrade(&worker.engine);
        let peer_left = move |id, why| peer_left(&weak, id, why);
        threads.push(threads::start("spanwire-side", move || side_thread.run(&peer_left))?);
        if progress != Progress::Inline {
            let driven = worker.engine.clone();
            let work = move || {
                if let Some(Err(e)) = core.map(affinity::pin) {
                    tracing::warn!("the worker is not pinned: {e}");
                }
                driven.work();
            };
            threads.push(threads::start("spanwire-worker", work)?);
        }
        Ok(worker)
    }

    fn new(engine: Engine, worker_of: WorkerOf) -> Self {
        let (side_poll, places) = (Mutex::default(), Place::default());
        Self { engine: Arc::new(engine), worker_of, side_poll, places }
    }

    /// A place for one more connection.
    pub(super) fn place(&self) -> Place {
        self.places.clone()
    }

    /// Connections that have a place.
    pub(super) fn load(&self) -> usize {
        self.places.others()
    }

    /// The UDP port of the side poll socket. It is opened for the first `ip` that is passed: one
    /// socket serves the whole port.
    pub(crate) fn side_poll_port(&self, ip: IpAddr) -> Option<u16> {
        let mut known = self.side_poll.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let port = self.engine.with_engine(|core| core.port.open_side_poll(ip))?;
            *known = Some((ip, port));
        }
        known.filter(|(of, _)| *of == ip).and_then(|(_, port)| port)
    }

    /// Sends the datagram for the side poll socket at `peer`. The steering programs of both ends
    /// are attached by now, so it reaches the peer's receive queue.
    pub(crate) fn greet(&self, peer: SocketAddr) {
        self.engine.with_engine(|core| core.port.greet(peer));
    }

    /// Runs `call` with the channels and their engine, and then a step.
    pub(crate) fn call<T>(
        &self,
        call: impl FnOnce(&mut Channels, &mut Endpoint) -> T,
    ) -> Result<T, SetupError> {
        let called = self.engine.submit(|host| {
            let (endpoint, channels) = host.parts_mut();
            call(channels, endpoint)
        });
        called.ok_or_else(|| self.gone())
    }

    /// The error after its engine has ended.
    pub(crate) fn gone(&self) -> SetupError {
        let why = self.engine.why().unwrap_or("its worker has ended");
        SetupError::NetworkGone(why.to_owned())
    }
}

/// Tells the channel `id` that its side connection has ended, by a thread that does not drive the
/// engine.
fn peer_left(engine: &Weak<Engine>, id: ChannelId, why: Option<String>) {
    let Some(engine) = engine.upgrade() else { return };
    engine.with(|host| {
        let (endpoint, channels) = host.parts_mut();
        channels.handle_peer_left(endpoint, id, why);
    });
    engine.bell().ring();
    engine.bell().wake();
}
