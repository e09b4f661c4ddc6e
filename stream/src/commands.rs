//! What other threads ask of the worker, and how.

use crate::channel::{Local, Rings};
use crate::config::Shape;
use crate::error::SetupError;
use crate::peers::PeerPlace;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::shared::Kind;
use crate::side::Side;
use spanwire_base::Dur;
use spanwire_host::paths::ConnectionPaths;
use spanwire_host::queue_pair::Route;
use std::sync::mpsc::SyncSender;

/// One channel of a worker's life: a place is given again, an id is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChannelId {
    pub(crate) slot: u32,
    pub(crate) generation: u64,
}

/// What other threads ask of the worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Make a queue pair for connections of at most this shape.
    Open(Shape, Rings, SyncSender<Result<(ChannelId, Local), SetupError>>),
    /// Connect it.
    Connect(Box<Wish>, SyncSender<Result<(Sending, Receiving), SetupError>>),
    /// It is connected on both sides: from now on its side connection is its sign of life.
    Keep(ChannelId, Side),
    /// There will be no connection.
    Discard(ChannelId),
    /// The side connection of a channel ended.
    PeerLeft(ChannelId, Option<String>),
    /// Which paths packets take.
    Paths(SyncSender<Vec<ConnectionPaths>>),
    /// End when the last channel has ended, or after this long.
    Stop(Option<Dur>),
}

/// What a channel needs to be connected.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) id: ChannelId,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) route: Route,
    pub(crate) theirs: Local,
    /// Where the peer's connection is counted, if the peer made it.
    pub(crate) place: Option<PeerPlace>,
}

/// The way to the worker.
pub(crate) type Commands = spanwire_host::worker::Commands<Command>;
