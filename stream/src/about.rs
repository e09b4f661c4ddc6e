//! The attributes of an established connection.

use spanwire_transport::{Agreed, WireMode};
use std::net::SocketAddr;

/// Attributes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// The number of the local queue pair, as in
    /// [`Network::congestion`](crate::Network::congestion) and
    /// [`Network::paths`](crate::Network::paths).
    pub qpn: u32,
    /// The local worker, below [`NetworkOptions::workers`](crate::NetworkOptions::workers).
    pub worker: u32,
    /// The wire mode.
    pub mode: WireMode,
    /// The agreed terms, which determine whether erasure coding and several paths can be used.
    pub agreed: Agreed,
    /// The other end's RoCE address, and its port of the side connection.
    pub peer: SocketAddr,
    /// This end's.
    pub local: SocketAddr,
}
