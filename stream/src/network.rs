//! A network: one interface, one worker, any number of connections.

pub(crate) mod options;
pub(crate) mod shared;

pub use options::{ConnectOptions, NetworkOptions};

use crate::byte_stream::ByteStream;
use crate::channel::ChannelId;
use crate::channels::Channels;
use crate::connection::Connection;
use crate::engine::Engine;
use crate::error::SetupError;
use crate::handshake::{Established, call};
use crate::listener::Listener;
use crate::pending::Pending;
use crate::shared::{Kind, ReadyQueue};
use crate::side::Side;
use crate::side_thread::SideThread;
use shared::{NetworkShared, start};
use spanwire_base::Dur;
use spanwire_host::congestion::ConnectionCongestion;
use spanwire_host::dial::{dial, retry_busy};
use spanwire_host::fabric::{Attachment, Error as FabricError, Fabric, Wrap, counters};
use spanwire_host::paths::ConnectionPaths;
use spanwire_host::seed;
use spanwire_host::window::{self, WindowChoice};
use spanwire_io::affinity;
use spanwire_io::udp::UdpConfig;
use spanwire_io::worker;
use spanwire_io::xdp::XdpPreference;
use spanwire_progress::Progress;
use spanwire_transport::Host;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One interface and the worker that moves its packets; it creates connections and listeners.
///
/// After a drop, connections and listeners work until they end. [`Network::shutdown`] waits for
/// connections and ends the rest.
#[derive(Debug)]
pub struct Network {
    shared: Arc<NetworkShared>,
    threads: Vec<JoinHandle<()>>,
}

impl Network {
    /// A network on interface `ifname`, in the network namespace of the calling thread: by AF_XDP
    /// on its queue 0, or by UDP sockets (`NetworkOptions::fabric`).
    ///
    /// # Errors
    /// No such interface, no privilege for AF_XDP alone, or queue or UDP port are taken; the
    /// message names a remedy.
    pub fn open(ifname: &str, options: NetworkOptions) -> Result<Self, SetupError> {
        let window_pkts = Some(options.engine.qp_window_pkts);
        let xdp = window::port(ifname, 0, XdpPreference::Auto, window_pkts);
        let udp = UdpConfig { local: options.address, ..UdpConfig::new(ifname) };
        let attachment = Attachment::open(options.fabric, &xdp, &udp, &Wrap::default());
        let attachment = attachment.map_err(|e| SetupError::Interface(e.to_string()))?;
        let choice = WindowChoice::of(options.config.congestion.as_ref());
        let engine = attachment.fit(options.engine, choice);
        Self::over(attachment, ifname, NetworkOptions { engine, ..options })
    }

    /// As [`Network::open`], without blocking.
    ///
    /// # Errors
    /// There are no threads or descriptors left.
    pub fn begin_open(ifname: &str, options: NetworkOptions) -> Result<Pending<Self>, SetupError> {
        let ifname = ifname.to_owned();
        Pending::start("spanwire-open", move || Self::open(&ifname, options))
    }

    /// A network over an open port. Its side connections use interface `ifname`.
    ///
    /// # Errors
    /// There are no threads, descriptors or randomness left.
    pub fn over(
        attachment: Attachment,
        ifname: &str,
        options: NetworkOptions,
    ) -> Result<Self, SetupError> {
        let NetworkOptions { config, engine, address, progress, polling, core, fabric: _ } =
            options;
        let engine = window::for_polling(engine, polling);
        let endpoint =
            seed::endpoint(engine.clone()).map_err(|e| SetupError::Io("draw random keys", e))?;
        let descriptors = |e| SetupError::Io("make descriptors", e);
        let bell = worker::bell(progress).map_err(descriptors)?;
        let ready_queue = Arc::new(ReadyQueue::new(config.max_connections, bell.clone()));
        let (side_handle, side_thread) = SideThread::new().map_err(descriptors)?;
        let hop_resolver = attachment.hop_resolver();
        let (icrc, sizes) = (attachment.has_icrc(), attachment.packet_sizes());
        let takes_fragments = attachment.takes_fragments();
        let Attachment { port, terms } = attachment;
        let channels = Channels::new(config.clone(), terms.clock, ready_queue, side_handle);
        let host = Host::new(endpoint, channels);
        let worker = worker::worker(bell, host, port, terms.clock, polling).map_err(descriptors)?;
        let worker = Arc::new(worker);
        // Not to keep it: its channels keep the thread.
        let weak = Arc::downgrade(&worker);
        let peer_left = move |id, why| peer_left(&weak, id, why);
        let mut threads = vec![start("spanwire-side", move || side_thread.run(&peer_left))?];
        if progress != Progress::Inline {
            let driven = worker.clone();
            let work = move || {
                if let Some(Err(e)) = core.map(affinity::pin) {
                    tracing::warn!("the worker is not pinned: {e}");
                }
                driven.work();
            };
            threads.push(start("spanwire-worker", work)?);
        }
        let shared = Arc::new(NetworkShared {
            config,
            engine,
            worker,
            fabric: terms.fabric,
            hop_resolver,
            sizes,
            takes_fragments,
            icrc,
            ifname: ifname.to_owned(),
            address,
            peers: Arc::default(),
            side_poll: Mutex::default(),
        });
        Ok(Self { shared, threads })
    }

    /// Connects to a listener for messages at `address`: its RoCE address, and its TCP port.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn connect(
        &self,
        address: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Connection, SetupError> {
        Ok(Connection::new(reach(&self.shared, address, options, Kind::Messages)?))
    }

    /// As [`Network::connect`], without blocking.
    ///
    /// # Errors
    /// There are no threads or descriptors left.
    pub fn begin_connect(
        &self,
        address: SocketAddr,
        options: ConnectOptions,
    ) -> Result<Pending<Connection>, SetupError> {
        let shared = self.shared.clone();
        let reach = move || reach(&shared, address, &options, Kind::Messages);
        Pending::start("spanwire-connect", move || reach().map(Connection::new))
    }

    /// Connects to a listener for byte streams at `address`: its RoCE address, and its TCP port.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn connect_stream(
        &self,
        address: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<ByteStream, SetupError> {
        Ok(ByteStream::new(reach(&self.shared, address, options, Kind::Bytes)?))
    }

    /// As [`Network::connect_stream`], without blocking.
    ///
    /// # Errors
    /// There are no threads or descriptors left.
    pub fn begin_connect_stream(
        &self,
        address: SocketAddr,
        options: ConnectOptions,
    ) -> Result<Pending<ByteStream>, SetupError> {
        let shared = self.shared.clone();
        let reach = move || reach(&shared, address, &options, Kind::Bytes);
        Pending::start("spanwire-connect", move || reach().map(ByteStream::new))
    }

    /// Listens for messages on TCP `port` of every address of the interface; 0 for any port.
    ///
    /// # Errors
    /// The port is taken, or there are no threads or descriptors left.
    pub fn listen(
        &self,
        port: u16,
        options: ConnectOptions,
    ) -> Result<Listener<Connection>, SetupError> {
        Listener::new(self.shared.clone(), port, options, Kind::Messages)
    }

    /// Listens for byte streams on TCP `port` of every address of the interface; 0 for any port.
    ///
    /// # Errors
    /// The port is taken, or there are no threads or descriptors left.
    pub fn listen_stream(
        &self,
        port: u16,
        options: ConnectOptions,
    ) -> Result<Listener<ByteStream>, SetupError> {
        Listener::new(self.shared.clone(), port, options, Kind::Bytes)
    }

    /// The fabric that carries its packets.
    #[must_use]
    pub fn fabric(&self) -> Fabric {
        self.shared.fabric
    }

    /// Counters of engine, port and worker by name; empty if the worker has ended.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.shared.worker.with_engine(|core| counters(core)).unwrap_or_default()
    }

    /// The paths of connections with a load balancer: of the one that ended last, and of all open
    /// ones. [`About::qpn`](crate::About::qpn) identifies a connection. Empty if the worker has
    /// ended.
    #[must_use]
    pub fn paths(&self) -> Vec<ConnectionPaths> {
        self.shared.call(|channels, endpoint| channels.paths(endpoint)).unwrap_or_default()
    }

    /// The congestion control of connections: of the one that ended last, and of all open ones.
    /// [`About::qpn`](crate::About::qpn) identifies a connection. Empty if the worker has ended.
    #[must_use]
    pub fn congestion(&self) -> Vec<ConnectionCongestion> {
        self.shared.call(|channels, endpoint| channels.congestion(endpoint)).unwrap_or_default()
    }

    /// One step of the engine by the calling thread: receives, answers, handles due timers and
    /// transmits, without waiting. True if there was something to do. For event loops with
    /// [`Progress::Inline`], where nothing happens between calls.
    ///
    /// # Errors
    /// The network is gone.
    pub fn turn(&mut self) -> Result<bool, SetupError> {
        let moved = self.shared.worker.turn();
        self.shared.check().map(|()| moved)
    }

    /// Drives the engine until something was received, sent or due, or for `timeout`. With
    /// [`Progress::Inline`] it sleeps at the port meanwhile.
    ///
    /// # Errors
    /// The network is gone.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), SetupError> {
        self.shared.worker.pause(Instant::now().checked_add(timeout));
        self.shared.check()
    }

    /// Waits, for at most `within`, until connections whose handles were dropped have delivered
    /// their data, and ends everything.
    ///
    /// # Errors
    /// The port failed before, or a thread panicked.
    pub fn shutdown(mut self, within: Duration) -> Result<(), SetupError> {
        if self.shared.worker.is_forked() {
            return Err(self.shared.gone());
        }
        let within = Dur::from_ns(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
        let _ = self.shared.call(|channels, _| channels.stop(Some(within)));
        if self.shared.worker.bell().progress() == Progress::Inline {
            while !self.shared.worker.has_ended() {
                self.shared.worker.pause(Some(Instant::now() + SLICE));
            }
        }
        let joined: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        if let Some(why) = self.shared.worker.why() {
            return Err(SetupError::NetworkGone(why.to_owned()));
        }
        match joined.into_iter().all(|thread| thread.is_ok()) {
            true => Ok(()),
            false => Err(SetupError::NetworkGone("one of its threads panicked".into())),
        }
    }

    /// As [`Network::shutdown`], without blocking. With [`Progress::Inline`] its thread drives the
    /// engine.
    ///
    /// # Errors
    /// There are no threads or descriptors left.
    pub fn begin_shutdown(self, within: Duration) -> Result<Pending<()>, SetupError> {
        Pending::start("spanwire-shutdown", move || self.shutdown(within))
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

/// Connects to the listener at `address`.
fn reach(
    network: &NetworkShared,
    address: SocketAddr,
    options: &ConnectOptions,
    kind: Kind,
) -> Result<Established, SetupError> {
    network.check()?;
    let is_busy = |e: &SetupError| matches!(e, SetupError::Busy(_));
    retry_busy(is_busy, || try_reach(network, address, options, kind))
}

fn try_reach(
    network: &NetworkShared,
    address: SocketAddr,
    options: &ConnectOptions,
    kind: Kind,
) -> Result<Established, SetupError> {
    let within = network.config.handshake_timeout;
    let deadline = Instant::now() + within;
    let stream = dial(&network.ifname, network.address, address, within)
        .map_err(|e| SetupError::Io("reach the other end", e))?;
    let side = Side::new(stream).map_err(|e| SetupError::Io("use the side connection", e))?;
    call(network, side, options, kind, deadline)
}

impl Drop for Network {
    fn drop(&mut self) {
        if self.shared.worker.is_forked() {
            // These are threads of another process.
            return self.threads.drain(..).for_each(std::mem::forget);
        }
        let _ = self.shared.call(|channels, _| channels.stop(None));
    }
}

impl From<FabricError> for SetupError {
    fn from(e: FabricError) -> Self {
        Self::Unreachable(e.to_string())
    }
}

/// Without a worker, [`Network::shutdown`] looks this often whether its time is over.
const SLICE: Duration = Duration::from_millis(10);
