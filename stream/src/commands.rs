//! Commands of other threads to the worker.

use crate::channel::{Local, Rings};
use crate::config::Shape;
use crate::error::SetupError;
use crate::peers::ConnectionCount;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::shared::Kind;
use crate::side::Side;
use spanwire_base::Dur;
use spanwire_host::congestion::ConnectionCongestion;
use spanwire_host::paths::ConnectionPaths;
use spanwire_host::queue_pair::Route;
use spanwire_transport::CongestionControl;
use std::sync::mpsc::SyncSender;

/// Identity of a channel. A slot is reused; an id is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChannelId {
    pub(crate) slot: u32,
    pub(crate) generation: u64,
}

/// A command to the worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Create a queue pair.
    Open(Box<OpenParams>, SyncSender<Result<(ChannelId, Local), SetupError>>),
    /// Connect it to the peer's.
    Connect(Box<ConnectParams>, SyncSender<Result<(Sending, Receiving), SetupError>>),
    /// Both ends are connected: from now on the side connection is watched.
    Keep(ChannelId, Side),
    /// The handshake failed.
    Discard(ChannelId),
    /// The side connection of a channel ended.
    PeerLeft(ChannelId, Option<String>),
    /// Report the paths of packets.
    Paths(SyncSender<Vec<ConnectionPaths>>),
    /// Report the congestion control of packets.
    Congestion(SyncSender<Vec<ConnectionCongestion>>),
    /// End when the last channel has ended, or after this time.
    Stop(Option<Dur>),
}

/// Parameters to create a channel.
#[derive(Debug)]
pub(crate) struct OpenParams {
    /// The most that the connection may have.
    pub(crate) shape: Shape,
    pub(crate) rings: Rings,
    /// Instead of the network's.
    pub(crate) congestion: Option<CongestionControl>,
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

/// Handle to send commands to the worker.
pub(crate) type Commands = spanwire_host::worker::Commands<Command>;
