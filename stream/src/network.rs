//! A network: one interface, its workers, any number of connections.

pub(crate) mod options;
pub(crate) mod shared;
pub(crate) mod worker;

pub use options::{ConnectOptions, NetworkOptions};

use crate::byte_stream::ByteStream;
use crate::channels::Channels;
use crate::connection::Connection;
use crate::error::SetupError;
use crate::handshake::{Established, call};
use crate::listener::Listener;
use crate::pending::Pending;
use crate::shared::Kind;
use crate::side::Side;
use shared::NetworkShared;
use spanwire_base::{Dur, u32_from};
use spanwire_host::congestion::ConnectionCongestion;
use spanwire_host::dial::{dial, retry_busy};
use spanwire_host::fabric::{
    Attachment, Error as FabricError, Fabric, Wrap, counters, sum_counters,
};
use spanwire_host::oob::WorkerOf;
use spanwire_host::paths::ConnectionPaths;
use spanwire_host::window::{self, WindowChoice};
use spanwire_io::udp::UdpConfig;
use spanwire_io::worker as engine;
use spanwire_io::xdp::XdpPreference;
use spanwire_progress::Progress;
use spanwire_transport::Endpoint;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::NetworkWorker;

/// One interface and the workers that move its packets; it creates connections and listeners.
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
    /// on its first queues, one for each worker, or by UDP sockets (`NetworkOptions::fabric`).
    ///
    /// # Errors
    /// No such interface, no privilege for AF_XDP alone, fewer queues than workers, or queue or UDP
    /// port are taken; the message names a remedy.
    pub fn open(ifname: &str, options: NetworkOptions) -> Result<Self, SetupError> {
        let window_pkts = Some(options.engine.qp_window_pkts);
        let xdp = window::port(ifname, 0, XdpPreference::Auto, window_pkts);
        let udp = UdpConfig { local: options.address, ..UdpConfig::new(ifname) };
        let workers = options.workers;
        let first = options.engine.of_worker(0, workers);
        let qpns = first.map_err(|e| SetupError::Config(e.to_string()))?.qpn_workers();
        let wrap = Wrap::default();
        let ports = Attachment::open_workers(options.fabric, &xdp, &udp, &wrap, (workers, qpns));
        let ports = ports.map_err(|e| SetupError::Interface(e.to_string()))?;
        let choice = WindowChoice::of(options.config.congestion.as_ref());
        let engine = ports.first().map(|port| port.fit(options.engine.clone(), choice));
        let engine = engine.unwrap_or(options.engine);
        Self::over_workers(ports, ifname, NetworkOptions { engine, ..options })
    }

    /// As [`Network::open`], without blocking.
    ///
    /// # Errors
    /// There are no threads or descriptors left.
    pub fn begin_open(ifname: &str, options: NetworkOptions) -> Result<Pending<Self>, SetupError> {
        let ifname = ifname.to_owned();
        Pending::start("spanwire-open", move || Self::open(&ifname, options))
    }

    /// A network with one worker over an open port. Its side connections use interface `ifname`.
    ///
    /// # Errors
    /// There are no threads, descriptors or randomness left.
    pub fn over(
        attachment: Attachment,
        ifname: &str,
        options: NetworkOptions,
    ) -> Result<Self, SetupError> {
        Self::over_workers(vec![attachment], ifname, options)
    }

    /// A network with a worker over each of these ports: those of [`Attachment::open_workers`], in
    /// their order, whatever `NetworkOptions::workers` is.
    ///
    /// # Errors
    /// As [`Network::over`]; there is no port, or the options are not for so many workers.
    pub fn over_workers(
        ports: Vec<Attachment>,
        ifname: &str,
        options: NetworkOptions,
    ) -> Result<Self, SetupError> {
        let workers = u32_from(ports.len());
        options.check_workers(workers)?;
        let NetworkOptions { config, engine, address, progress, polling, cores, .. } = options;
        let engine = window::for_polling(engine, polling);
        let qpns = engine.of_worker(0, workers).map_err(|e| SetupError::Config(e.to_string()))?;
        let bells = ports.iter().map(|_| engine::bell(progress)).collect::<Result<Vec<_>, _>>();
        let bells = bells.map_err(|e| SetupError::Io("make descriptors", e))?;
        let ports = Attachment::steered(ports, &bells, qpns.qpn_workers());
        let terms = ports[0].terms.clone();
        let (mut made, mut threads) = (Vec::new(), Vec::new());
        for ((port, bell), index) in ports.into_iter().zip(bells).zip(0..) {
            let worker_of = WorkerOf { index, workers };
            let core = usize::try_from(index).ok().and_then(|index| cores.get(index)).copied();
            let how = (worker_of, polling, core);
            let started = NetworkWorker::start(port, bell, &config, &engine, how, &mut threads);
            made.push(started.inspect_err(|_| end_all(&made))?);
        }
        let shared = Arc::new(NetworkShared {
            config,
            engine,
            workers: made.into(),
            placing: Mutex::default(),
            fabric: terms.fabric,
            rss: terms.rss,
            hop_resolver: terms.hop_resolver(),
            sizes: terms.packet_sizes(),
            takes_fragments: terms.takes_fragments(),
            icrc: terms.has_icrc(),
            ifname: ifname.to_owned(),
            address,
            peers: Arc::default(),
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

    /// Counters of engine, port and worker by name, added up over the workers that have not ended.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, u64)> {
        sum_counters((0..self.shared.workers.len()).flat_map(|worker| self.counters_of(worker)))
    }

    /// As [`Network::counters`], of one worker; empty if it has ended, or there is none.
    #[must_use]
    pub fn counters_of(&self, worker: usize) -> Vec<(String, u64)> {
        let worker = self.shared.workers.get(worker);
        let counters = worker.and_then(|it| it.engine.with_engine(|core| counters(core)));
        counters.unwrap_or_default()
    }

    /// The paths of connections with a load balancer: for each worker of the one that ended last,
    /// and of all open ones. [`About::qpn`](crate::About::qpn) identifies a connection. Empty if
    /// the workers have ended.
    #[must_use]
    pub fn paths(&self) -> Vec<ConnectionPaths> {
        self.of_all(Channels::paths)
    }

    /// The congestion control of connections: for each worker of the one that ended last, and of
    /// all open ones. [`About::qpn`](crate::About::qpn) identifies a connection. Empty if the
    /// workers have ended.
    #[must_use]
    pub fn congestion(&self) -> Vec<ConnectionCongestion> {
        self.of_all(Channels::congestion)
    }

    fn of_all<T>(&self, look: impl Fn(&Channels, &Endpoint) -> Vec<T>) -> Vec<T> {
        let workers = self.shared.workers.iter();
        let looked =
            workers.map(|worker| worker.call(|channels, endpoint| look(channels, endpoint)));
        looked.flat_map(Result::unwrap_or_default).collect()
    }

    /// One step of the engine by the calling thread: receives, answers, handles due timers and
    /// transmits, without waiting. True if there was something to do. For event loops with
    /// [`Progress::Inline`], where nothing happens between calls.
    ///
    /// # Errors
    /// The network is gone.
    pub fn turn(&mut self) -> Result<bool, SetupError> {
        let moved = self.shared.workers.iter().fold(false, |moved, it| it.engine.turn() | moved);
        self.shared.check().map(|()| moved)
    }

    /// Drives the engine until something was received, sent or due, or for `timeout`. With
    /// [`Progress::Inline`] it sleeps at the port meanwhile. With several workers, which have
    /// threads of their own, it is the engine of the first.
    ///
    /// # Errors
    /// The network is gone.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), SetupError> {
        self.shared.workers[0].engine.pause(Instant::now().checked_add(timeout));
        self.shared.check()
    }

    /// Waits, for at most `within`, until connections whose handles were dropped have delivered
    /// their data, and ends everything.
    ///
    /// # Errors
    /// The port failed before, or a thread panicked.
    pub fn shutdown(mut self, within: Duration) -> Result<(), SetupError> {
        if self.shared.is_forked() {
            return Err(self.shared.gone());
        }
        let within = Dur::from_ns(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
        self.stop(Some(within));
        let first = &self.shared.workers[0].engine;
        if first.bell().progress() == Progress::Inline {
            while !first.has_ended() {
                first.pause(Some(Instant::now() + SLICE));
            }
        }
        let joined: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        if let Some(why) = self.shared.workers.iter().find_map(|worker| worker.engine.why()) {
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

impl Network {
    /// Ends each worker when its last channel has ended, or after `within`.
    fn stop(&self, within: Option<Dur>) {
        for worker in &self.shared.workers {
            let _ = worker.call(|channels, _| channels.stop(within));
        }
    }
}

/// Ends workers of a network of which another one was not started: their threads would go on.
fn end_all(workers: &[NetworkWorker]) {
    workers.iter().for_each(|worker| worker.engine.end("another worker was not started"));
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
    let reach =
        |worker| retry_busy(is_busy, || try_reach(network, address, (options, worker), kind));
    match reach(options.worker) {
        // The other end has fewer workers, or the listener has chosen one.
        Err(SetupError::Worker(_, theirs))
            if options.worker.is_none() && network.has_worker(theirs) =>
        {
            reach(Some(theirs))
        }
        reached => reached,
    }
}

fn try_reach(
    network: &NetworkShared,
    address: SocketAddr,
    at: (&ConnectOptions, Option<u32>),
    kind: Kind,
) -> Result<Established, SetupError> {
    let within = network.config.handshake_timeout;
    let deadline = Instant::now() + within;
    let stream = dial(&network.ifname, network.address, address, within)
        .map_err(|e| SetupError::Io("reach the other end", e))?;
    let side = Side::new(stream).map_err(|e| SetupError::Io("use the side connection", e))?;
    call(network, side, at, kind, deadline)
}

impl Drop for Network {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // These are threads of another process.
            return self.threads.drain(..).for_each(std::mem::forget);
        }
        self.stop(None);
    }
}

impl From<FabricError> for SetupError {
    fn from(e: FabricError) -> Self {
        Self::Unreachable(e.to_string())
    }
}

/// Without a worker, [`Network::shutdown`] looks this often whether its time is over.
const SLICE: Duration = Duration::from_millis(10);
