//! Options of a network, and of its connections and listeners.

use crate::config::ValidConfig;
use crate::error::SetupError;
use spanwire_base::usize_from;
use spanwire_host::fabric::FabricChoice;
use spanwire_host::modes::ModeChoice;
use spanwire_host::window;
use spanwire_io::driver::Polling;
use spanwire_progress::Progress;
use spanwire_transport::{Config as EngineConfig, CongestionControl};
use std::net::IpAddr;

/// Options of a network.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// Limits of connections.
    pub config: ValidConfig,
    /// Limits of the engine. Default: a window that does not limit congestion control.
    /// [`Network::open`](crate::Network::open) shortens windows to what the receive buffer of UDP
    /// sockets holds. Its `line_rate` is what congestion control assumes; its `port_rate`, by
    /// default none, limits what the port sends, with any congestion control.
    pub engine: spanwire_transport::ValidConfig,
    /// The fabric that [`Network::open`](crate::Network::open) uses. Default:
    /// [`FabricChoice::Auto`], AF_XDP where it is possible, else UDP sockets.
    pub fabric: FabricChoice,
    /// The local address of connections: listeners accept at it only. Default: every address of
    /// the interface. Two processes on one machine need it over UDP sockets, where each binds port
    /// 4791.
    pub address: Option<IpAddr>,
    /// Which threads drive the engine. Default: the one that waits, or a worker if none does.
    pub progress: Progress,
    /// How a thread that waits at the port polls it. Default: it spins while that pays.
    pub polling: Polling,
    /// Workers, 1..=16: each is an engine on a queue of the interface (the first ones), with
    /// threads of its own, and shares nothing with the others. A connection has the worker with
    /// the fewest, or that of [`ConnectOptions::worker`]; a listener accepts at all. Several need
    /// [`Progress::Shared`] or [`Progress::Worker`]. Default: 1.
    pub workers: u32,
    /// The cores that the workers are pinned to, in their order: none, or one for each. Default:
    /// none.
    pub cores: Vec<usize>,
}

impl NetworkOptions {
    /// Checks that these are options for `workers` workers.
    pub(super) fn check_workers(&self, workers: u32) -> Result<(), SetupError> {
        let cores = self.cores.len();
        let wrong = if workers == 0 {
            "a network needs a worker".to_owned()
        } else if workers > 1 && self.progress == Progress::Inline {
            "several workers need threads of their own (progress)".to_owned()
        } else if cores > 0 && cores != usize_from(workers.into()) {
            format!("{cores} cores for {workers} workers: name one for each, or none")
        } else {
            return Ok(());
        };
        Err(SetupError::Config(wrong))
    }
}

impl Default for NetworkOptions {
    fn default() -> Self {
        let line_rate = EngineConfig::default().line_rate;
        let engine = window::config(Some(window::CC_WINDOW_PKTS), line_rate, None);
        let engine = engine.expect("the window is in its range");
        Self {
            config: ValidConfig::default(),
            engine,
            fabric: FabricChoice::Auto,
            address: None,
            progress: Progress::default(),
            polling: Polling::default(),
            workers: 1,
            cores: Vec::new(),
        }
    }
}

/// Options of a connection or listener.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ConnectOptions {
    /// The wire mode. Default: SR if both ends support it.
    pub mode: ModeChoice,
    /// Name of the application protocol, at most 255 bytes; both ends must name the same. Default:
    /// empty.
    pub protocol: String,
    /// A listener accepts peers whose RoCE address is not the one they connect from. Any client may
    /// then make it send packets to any address. Default: no.
    pub any_address: bool,
    /// Congestion control of this connection, or of those that the listener accepts. Default: that
    /// of [`Config::congestion`](crate::Config::congestion).
    pub congestion: Option<CongestionControl>,
    /// The worker of this connection, or of those that the listener accepts, below
    /// [`NetworkOptions::workers`]. Over AF_XDP both ends must name the same one, as a queue sends
    /// to the queue of its number. Default: the one with the fewest connections; over AF_XDP the
    /// listener's is that of the caller.
    pub worker: Option<u32>,
}
