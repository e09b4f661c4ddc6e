//! Options of a network, and of its connections and listeners.

use crate::config::ValidConfig;
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
    /// The core that the worker is pinned to. Default: any.
    pub core: Option<usize>,
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
            core: None,
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
}
