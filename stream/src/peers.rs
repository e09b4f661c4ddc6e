//! Counts of connections by peer address, for the limits of listeners. An IPv6 host may have 2^64
//! addresses, so IPv6 addresses are counted by their /64.

use crate::config::Config;
use crate::error::SetupError;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counts of a network. An address is in the map only while one of its counts is not zero.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    half_open: u32,
    per_peer: BTreeMap<IpAddr, PeerCounts>,
}

/// The counts of one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PeerCounts {
    half_open: u32,
    connections: u32,
}

/// Counts an established connection of a peer until dropped. It is dropped together with the
/// connection's memory.
#[derive(Debug)]
pub(crate) struct ConnectionCount {
    peers: Arc<Peers>,
    peer: IpAddr,
}

/// Counts a connection in its handshake until dropped.
#[derive(Debug)]
pub(crate) struct HalfOpenCount {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Peers {
    /// Counts a new connection of `peer`.
    ///
    /// # Errors
    /// [`SetupError::Limit`].
    pub(crate) fn enter(
        self: &Arc<Self>,
        config: &Config,
        peer: IpAddr,
    ) -> Result<(HalfOpenCount, ConnectionCount), SetupError> {
        let peer = counted(peer);
        let mut counts = self.lock();
        let of_peer = counts.per_peer.get(&peer).copied().unwrap_or_default();
        for (count, limit, field) in [
            (of_peer.half_open, config.max_half_open_per_peer, "max_half_open_per_peer"),
            (of_peer.connections, config.max_connections_per_peer, "max_connections_per_peer"),
            (counts.half_open, config.max_half_open, "max_half_open"),
        ] {
            if count >= limit {
                return Err(SetupError::Limit(field));
            }
        }
        counts.half_open += 1;
        let PeerCounts { half_open, connections } = of_peer;
        let more = PeerCounts { half_open: half_open + 1, connections: connections + 1 };
        counts.per_peer.insert(peer, more);
        let peers = || self.clone();
        Ok((HalfOpenCount { peers: peers(), peer }, ConnectionCount { peers: peers(), peer }))
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn change(&mut self, peer: IpAddr, change: impl FnOnce(&mut PeerCounts)) {
        if let Some(of_peer) = self.per_peer.get_mut(&peer) {
            change(of_peer);
            if *of_peer == PeerCounts::default() {
                self.per_peer.remove(&peer);
            }
        }
    }
}

/// The address under which `peer` is counted.
fn counted(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

impl Drop for HalfOpenCount {
    fn drop(&mut self) {
        let mut counts = self.peers.lock();
        counts.half_open -= 1;
        counts.change(self.peer, |of_peer| of_peer.half_open -= 1);
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.peers.lock().change(self.peer, |of_peer| of_peer.connections -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn config() -> Config {
        Config {
            max_half_open: 3,
            max_half_open_per_peer: 2,
            max_connections_per_peer: 4,
            ..Config::default()
        }
    }

    fn refused<T>(entered: &Result<T, SetupError>) -> &'static str {
        match entered {
            Err(SetupError::Limit(field)) => field,
            _ => "none",
        }
    }

    #[test]
    fn enter__each_limit_binds_by_its_name() {
        let (peers, config) = (Arc::new(Peers::default()), config());
        let mut half_open: Vec<_> =
            (0..2).map(|_| peers.enter(&config, peer(1)).unwrap()).collect();
        assert_eq!(refused(&peers.enter(&config, peer(1))), "max_half_open_per_peer");
        half_open.push(peers.enter(&config, peer(2)).unwrap());
        assert_eq!(refused(&peers.enter(&config, peer(3))), "max_half_open");
        let connected: Vec<ConnectionCount> =
            half_open.into_iter().map(|(_, count)| count).collect();
        let more: Vec<ConnectionCount> =
            (0..2).map(|_| peers.enter(&config, peer(1)).unwrap().1).collect();
        assert_eq!(refused(&peers.enter(&config, peer(1))), "max_connections_per_peer");
        assert_eq!(refused(&peers.enter(&config, peer(2))), "none");
        drop(connected);
        assert_eq!(refused(&peers.enter(&config, peer(1))), "none");
        drop(more);
    }

    #[test]
    fn enter__addresses_of_one_64_bit_prefix_are_one_peer() {
        let (peers, config) = (Arc::new(Peers::default()), config());
        let peer = |ip: &str| ip.parse::<IpAddr>().unwrap();
        let held = ["2001:db8::1", "2001:db8::2"].map(|ip| peers.enter(&config, peer(ip)).unwrap());
        assert_eq!(refused(&peers.enter(&config, peer("2001:db8::3"))), "max_half_open_per_peer");
        assert_eq!(refused(&peers.enter(&config, peer("2001:db8:0:1::1"))), "none");
        drop(held);
        assert!(peers.lock().per_peer.is_empty());
    }

    #[test]
    fn drop__of_the_last_place_forgets_the_address() {
        let (peers, config) = (Arc::new(Peers::default()), config());
        for last in 0..100 {
            let (half_open, count) = peers.enter(&config, peer(last)).unwrap();
            drop(half_open);
            assert_eq!(peers.lock().per_peer.len(), 1);
            drop(count);
        }
        let counts = peers.lock();
        assert_eq!((counts.half_open, counts.per_peer.len()), (0, 0));
    }
}
