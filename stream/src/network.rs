//! A network: one interface, one worker, any number of connections.

use crate::byte_stream::ByteStream;
use crate::channels::Channels;
use crate::commands::{Command, Commands};
use crate::config::ValidConfig;
use crate::connection::Connection;
use crate::error::SetupError;
use crate::handshake::{Established, call};
use crate::keeper::Keeper;
use crate::listener::Listener;
use crate::peers::Peers;
use crate::shared::{Kind, Tray};
use crate::side::Side;
use spanwire_base::Dur;
use spanwire_host::dial::dial;
use spanwire_host::fabric::{Attachment, Error as FabricError, Way, Wrap};
use spanwire_host::modes::ModeChoice;
use spanwire_host::paths::ConnectionPaths;
use spanwire_host::{seed, worker};
use spanwire_io::doorbell::Doorbell;
use spanwire_io::driver::Polling;
use spanwire_io::xdp::XdpConfig;
use spanwire_transport::{Mtu, Offer};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One interface and the worker that moves its packets: where connections come from.
///
/// Dropping it leaves connections and listeners at work until they end; [`Network::shutdown`] waits
/// for connections and ends the rest.
#[derive(Debug)]
pub struct Network {
    shared: Arc<NetworkShared>,
    threads: Vec<JoinHandle<()>>,
}

/// How a network is opened.
#[derive(Clone, Debug, Default)]
pub struct NetworkOptions {
    /// Limits of connections.
    pub config: ValidConfig,
    /// Limits of the engine.
    pub engine: spanwire_transport::ValidConfig,
    /// How the worker passes the time. Default: adaptive, spinning 50 us, about a round trip.
    pub polling: Option<Polling>,
    /// The core that the worker is pinned to. Default: any.
    pub core: Option<usize>,
}

/// How a connection is made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConnectOptions {
    /// The wire mode. Default: SR where both ends speak it.
    pub mode: ModeChoice,
    /// What the applications speak to each other, at most 255 bytes: both ends must name the same.
    /// Default: nothing.
    pub protocol: String,
    /// A listener takes peers whose RoCE address is not the one they call from; whoever reaches it
    /// may then have it send packets to any address. Default: no.
    pub any_address: bool,
}

/// What the threads of a network share.
#[derive(Debug)]
pub(crate) struct NetworkShared {
    pub(crate) config: ValidConfig,
    engine: spanwire_transport::ValidConfig,
    pub(crate) commands: Commands,
    pub(crate) way: Way,
    pub(crate) path_mtu: Mtu,
    ip_bytes: u32,
    pub(crate) ifname: String,
    pub(crate) peers: Arc<Peers>,
    /// The side poll socket's address and port, once there is one.
    side_poll: Mutex<Option<(IpAddr, Option<u16>)>>,
    /// Why the worker has ended.
    ended: OnceLock<String>,
}

impl Network {
    /// A network on queue 0 of interface `ifname`, by AF_XDP, in the network namespace of the
    /// calling thread.
    ///
    /// # Errors
    /// No such interface, no privilege, or the queue is taken; the message says what to do.
    pub fn open(ifname: &str, options: NetworkOptions) -> Result<Self, SetupError> {
        let attachment = Attachment::xdp_with(&XdpConfig::new(ifname), &Wrap::default());
        let attachment = attachment.map_err(|e| SetupError::Interface(e.to_string()))?;
        Self::over(attachment, ifname, options)
    }

    /// A network over a port that is open already. Its side connections use interface `ifname`.
    ///
    /// # Errors
    /// There are no threads, descriptors or randomness left.
    pub fn over(
        attachment: Attachment,
        ifname: &str,
        options: NetworkOptions,
    ) -> Result<Self, SetupError> {
        let NetworkOptions { config, engine, polling, core } = options;
        let endpoint =
            seed::endpoint(engine.clone()).map_err(|e| SetupError::Io("draw random keys", e))?;
        let descriptors = |e| SetupError::Io("make descriptors", e);
        let bell = Arc::new(Doorbell::new().map_err(descriptors)?);
        let tray = Arc::new(Tray::new(config.max_connections, bell.clone()));
        let (commands, queue) = worker::commands(bell);
        let (keeper_handle, keeper) = Keeper::new(commands.clone()).map_err(descriptors)?;
        let clock = attachment.clock;
        let channels = Channels::new(config.clone(), clock, tray, keeper_handle);
        let shared = Arc::new(NetworkShared {
            config,
            engine,
            commands,
            way: attachment.way(),
            path_mtu: attachment.path_mtu,
            ip_bytes: attachment.ip_bytes,
            ifname: ifname.to_owned(),
            peers: Arc::default(),
            side_poll: Mutex::default(),
            ended: OnceLock::new(),
        });
        let polling = polling.unwrap_or(Polling::Adaptive { spin: SPIN });
        let port = attachment.port;
        let ended = shared.clone();
        let work = move || {
            worker::pin(core);
            if let Err(why) = worker::run(channels, queue, endpoint, port, clock, polling) {
                tracing::error!("{why}");
                let _ = ended.ended.set(why);
            }
        };
        let threads =
            vec![start("spanwire-worker", work)?, start("spanwire-side", || keeper.run())?];
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
        Ok(Connection::new(self.reach(address, options, Kind::Messages)?))
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
        Ok(ByteStream::new(self.reach(address, options, Kind::Bytes)?))
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

    /// What engine, port and worker have counted, by name; empty when the worker is gone.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.shared.commands.counters().unwrap_or_default()
    }

    /// The paths of what connections sent, of those that were told to balance: of the one that
    /// ended last, and of all that are open. Empty when the worker is gone.
    #[must_use]
    pub fn paths(&self) -> Vec<ConnectionPaths> {
        self.shared.commands.ask(Command::Paths).unwrap_or_default()
    }

    /// Lets connections whose handles were dropped deliver what was sent, for at most `within`, and
    /// ends everything.
    ///
    /// # Errors
    /// The port was gone before, or a thread panicked.
    pub fn shutdown(mut self, within: Duration) -> Result<(), SetupError> {
        let within = Dur::from_ns(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
        self.shared.commands.send(Command::Stop(Some(within)));
        let joined: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        if let Some(why) = self.shared.ended.get() {
            return Err(SetupError::NetworkGone(why.clone()));
        }
        match joined.into_iter().all(|thread| thread.is_ok()) {
            true => Ok(()),
            false => Err(SetupError::NetworkGone("one of its threads panicked".into())),
        }
    }

    fn reach(
        &self,
        address: SocketAddr,
        options: &ConnectOptions,
        kind: Kind,
    ) -> Result<Established, SetupError> {
        let within = self.shared.config.handshake_timeout;
        let deadline = Instant::now() + within;
        let stream = dial(&self.shared.ifname, address, within)
            .map_err(|e| SetupError::Io("reach the other end", e))?;
        let side = Side::new(stream).map_err(|e| SetupError::Io("use the side connection", e))?;
        call(&self.shared, side, options, kind, deadline)
    }
}

impl NetworkShared {
    /// What an end with address `ip` offers to speak.
    pub(crate) fn offer(&self, ip: IpAddr, mode: ModeChoice) -> Offer {
        mode.offer(&self.engine, self.ip_bytes, ip, u32::MAX)
    }

    /// The UDP port of the side poll socket for address `ip`. There is one for the first address
    /// that is asked for: it serves the whole port.
    pub(crate) fn side_poll_port(&self, ip: IpAddr) -> Option<u16> {
        let mut known = self.side_poll.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let port = self.commands.open_side_poll(ip)?;
            *known = Some((ip, port));
        }
        known.filter(|(of, _)| *of == ip).and_then(|(_, port)| port)
    }

    /// Why nothing works any more.
    pub(crate) fn gone(&self) -> SetupError {
        let why = self.ended.get().map_or("its worker has ended", String::as_str);
        SetupError::NetworkGone(why.to_owned())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.commands.send(Command::Stop(None));
    }
}

/// A thread by that name.
pub(crate) fn start(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SetupError> {
    worker::spawn(name, work).map_err(|e| SetupError::Io("start a thread", e))
}

impl From<FabricError> for SetupError {
    fn from(e: FabricError) -> Self {
        Self::NoWay(e.to_string())
    }
}

/// About a round trip, so that an answer finds the worker awake.
const SPIN: Dur = Dur::from_us(50);
