//! Counts of connections by peer address, for the limits of listeners. An IPv6 host may have 2^64
//! addresses, so IPv6 addresses are counted by their /64.

use crate::config::Config;
use crate::error::SetupError;
use spanwire_base::usize_from;
use spanwire_io::fork::Origin;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The counts of a network. An address is in the map only while one of its counts is not zero.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    counts: Mutex<Counts>,
    origin: Origin,
}

#[derive(Debug, Default)]
struct Counts {
    half_open: BTreeMap<u64, HalfOpen>,
    /// Half-open connections so far; the key of the next one.
    made: u64,
    /// Handshakes whose thread has not ended, dropped ones included.
    handshakes: u32,
    per_peer: BTreeMap<IpAddr, PeerCounts>,
}

/// A connection in its handshake.
#[derive(Debug)]
struct HalfOpen {
    peer: IpAddr,
    stage: Stage,
    /// Its socket, and the function that ends the handshake; `None` in tests.
    socket: Option<(TcpStream, Dismiss)>,
}

/// Rejects the peer of a handshake that is dropped, and ends the wait of the handshake's thread.
/// It must not block.
pub(crate) type Dismiss = fn(&TcpStream);

/// The stage of a handshake. The order is that in which handshakes are dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// The peer has sent nothing since then.
    AwaitsHello(Instant),
    /// The peer has sent its hello; its `ready` is awaited since then.
    AwaitsReady(Instant),
    /// This end is at work. Such a handshake is not dropped.
    AtWork,
}

/// The counts of one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PeerCounts {
    half_open: u32,
    connections: u32,
    /// Of the rings that its connections write to.
    ring_bytes: u64,
}

/// Counts an established connection of a peer until dropped. It is dropped together with the
/// connection's memory.
#[derive(Debug)]
pub(crate) struct ConnectionCount {
    peers: Arc<Peers>,
    peer: IpAddr,
    ring_bytes: u64,
}

/// Counts a connection in its handshake until dropped.
#[derive(Debug)]
pub(crate) struct HalfOpenCount {
    peers: Arc<Peers>,
    key: u64,
}

impl Peers {
    /// Counts a new connection of `peer`, over `socket`, which is dismissed by that function. If a
    /// limit of half-open connections is reached, the one that has been silent for longest is
    /// dropped: of that peer if its own limit is reached, else of all.
    ///
    /// # Errors
    /// [`SetupError::Limit`].
    pub(crate) fn enter(
        self: &Arc<Self>,
        config: &Config,
        peer: IpAddr,
        socket: Option<(TcpStream, Dismiss)>,
    ) -> Result<(HalfOpenCount, ConnectionCount), SetupError> {
        let peer = counted(peer);
        let mut counts = self.lock();
        // A dropped handshake occupies its thread until that has noticed.
        if counts.handshakes >= config.max_half_open.saturating_mul(2) {
            return Err(SetupError::Limit(MAX_HALF_OPEN));
        }
        let of_peer = counts.per_peer.get(&peer).copied().unwrap_or_default();
        // Checked before another one is dropped in vain.
        if of_peer.connections >= config.max_connections_per_peer {
            return Err(SetupError::Limit(MAX_CONNECTIONS_PER_PEER));
        }
        if of_peer.half_open >= config.max_half_open_per_peer && !counts.drop_silent(Some(peer)) {
            return Err(SetupError::Limit(MAX_HALF_OPEN_PER_PEER));
        }
        if counts.half_open.len() >= usize_from(config.max_half_open.into())
            && !counts.drop_silent(None)
        {
            return Err(SetupError::Limit(MAX_HALF_OPEN));
        }
        let of_peer = counts.per_peer.entry(peer).or_default();
        of_peer.half_open += 1;
        of_peer.connections += 1;
        let key = counts.made;
        (counts.made, counts.handshakes) = (key + 1, counts.handshakes + 1);
        let stage = Stage::AwaitsHello(Instant::now());
        counts.half_open.insert(key, HalfOpen { peer, stage, socket });
        let peers = || self.clone();
        let count = ConnectionCount { peers: peers(), peer, ring_bytes: 0 };
        Ok((HalfOpenCount { peers: peers(), key }, count))
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Drops the handshake, of `peer` or of any, whose other end has been silent for longest. False
    /// if there is none.
    fn drop_silent(&mut self, peer: Option<IpAddr>) -> bool {
        let may_go = |half_open: &HalfOpen| {
            half_open.stage != Stage::AtWork && peer.is_none_or(|peer| half_open.peer == peer)
        };
        let silent = self.half_open.iter().filter(|(_, half_open)| may_go(half_open));
        let Some((&key, _)) = silent.min_by_key(|(_, half_open)| half_open.stage) else {
            return false;
        };
        if let Some((socket, dismiss)) = self.remove(key).and_then(|half_open| half_open.socket) {
            dismiss(&socket);
        }
        true
    }

    fn remove(&mut self, key: u64) -> Option<HalfOpen> {
        let removed = self.half_open.remove(&key)?;
        self.change(removed.peer, |of_peer| of_peer.half_open -= 1);
        Some(removed)
    }

    fn change(&mut self, peer: IpAddr, change: impl FnOnce(&mut PeerCounts)) {
        if let Some(of_peer) = self.per_peer.get_mut(&peer) {
            change(of_peer);
            if *of_peer == PeerCounts::default() {
                self.per_peer.remove(&peer);
            }
        }
    }
}

impl ConnectionCount {
    /// Counts the ring that the peer will write to; once for a connection.
    ///
    /// # Errors
    /// [`SetupError::Limit`]: the peer's rings would have too many bytes.
    pub(crate) fn take_ring(&mut self, config: &Config, bytes: u32) -> Result<(), SetupError> {
        let mut counts = self.peers.lock();
        let of_peer = counts.per_peer.entry(self.peer).or_default();
        let all = of_peer.ring_bytes + u64::from(bytes);
        if all > config.max_ring_bytes_per_peer {
            return Err(SetupError::Limit(MAX_RING_BYTES_PER_PEER));
        }
        (of_peer.ring_bytes, self.ring_bytes) = (all, bytes.into());
        Ok(())
    }
}

impl HalfOpenCount {
    /// This end is at work: the handshake is not dropped meanwhile.
    ///
    /// # Errors
    /// [`SetupError::Limit`]: it was dropped before.
    pub(crate) fn at_work(&self) -> Result<(), SetupError> {
        self.enter(Stage::AtWork)
    }

    /// The peer's `ready` is awaited from now on.
    ///
    /// # Errors
    /// As [`HalfOpenCount::at_work`].
    pub(crate) fn awaits_ready(&self) -> Result<(), SetupError> {
        self.enter(Stage::AwaitsReady(Instant::now()))
    }

    /// `e`, or the reason why the handshake was dropped.
    pub(crate) fn cause(&self, e: SetupError) -> SetupError {
        if self.peers.lock().half_open.contains_key(&self.key) { e } else { DROPPED }
    }

    fn enter(&self, stage: Stage) -> Result<(), SetupError> {
        let mut counts = self.peers.lock();
        counts.half_open.get_mut(&self.key).ok_or(DROPPED)?.stage = stage;
        Ok(())
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
        counts.remove(self.key);
        counts.handshakes -= 1;
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        // In a forked process the lock may be held by a thread that is not there.
        if !self.peers.origin.is_here() {
            return;
        }
        self.peers.lock().change(self.peer, |of_peer| {
            of_peer.connections -= 1;
            of_peer.ring_bytes -= self.ring_bytes;
        });
    }
}

/// The error of a handshake that was dropped for a newer one.
pub(crate) const DROPPED: SetupError = SetupError::Limit(MAX_HALF_OPEN);

/// Names of the limits in the configuration.
pub(crate) const MAX_HALF_OPEN: &str = "max_half_open";
pub(crate) const MAX_HALF_OPEN_PER_PEER: &str = "max_half_open_per_peer";
pub(crate) const MAX_CONNECTIONS_PER_PEER: &str = "max_connections_per_peer";
pub(crate) const MAX_RING_BYTES_PER_PEER: &str = "max_ring_bytes_per_peer";

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

    fn enter(
        peers: &Arc<Peers>,
        peer: IpAddr,
    ) -> Result<(HalfOpenCount, ConnectionCount), SetupError> {
        peers.enter(&config(), peer, None)
    }

    /// Half-open connections of `n` peers, whose handshakes this end is at work on.
    fn busy<const N: usize>(
        peers: &Arc<Peers>,
        of: [u8; N],
    ) -> [(HalfOpenCount, ConnectionCount); N] {
        of.map(|last| {
            let entered = enter(peers, peer(last)).unwrap();
            entered.0.at_work().unwrap();
            entered
        })
    }

    #[test]
    fn enter__each_limit_binds_by_its_name() {
        let peers = Arc::new(Peers::default());
        let half_open = busy(&peers, [1, 1]);
        assert_eq!(refused(&enter(&peers, peer(1))), "max_half_open_per_peer");
        let more = busy(&peers, [2]);
        assert_eq!(refused(&enter(&peers, peer(3))), "max_half_open");
        let connected = half_open.into_iter().chain(more).map(|(_, count)| count);
        let connected: Vec<ConnectionCount> = connected.collect();
        let more = [1, 1].map(|last| enter(&peers, peer(last)).unwrap().1);
        assert_eq!(refused(&enter(&peers, peer(1))), "max_connections_per_peer");
        assert_eq!(refused(&enter(&peers, peer(2))), "none");
        drop(connected);
        assert_eq!(refused(&enter(&peers, peer(1))), "none");
        drop(more);
    }

    #[test]
    fn enter__drops_the_connection_that_has_been_silent_for_longest() {
        let peers = Arc::new(Peers::default());
        let is_there = |half_open: &HalfOpenCount| half_open.at_work().is_ok();
        let (first, _counts) = enter(&peers, peer(1)).unwrap();
        let (second, _counts2) = enter(&peers, peer(2)).unwrap();
        let (third, _counts3) = enter(&peers, peer(3)).unwrap();
        // The oldest has sent its hello, so the second is dropped before it.
        first.awaits_ready().unwrap();
        let (fourth, _counts4) = enter(&peers, peer(4)).unwrap();
        assert!(!is_there(&second) && is_there(&third) && is_there(&fourth));
        assert!(matches!(second.cause(SetupError::Closed), SetupError::Limit("max_half_open")));
        // Of all others this end is at work.
        let (fifth, _counts5) = enter(&peers, peer(5)).unwrap();
        assert!(!is_there(&first) && is_there(&fifth));
        assert_eq!(refused(&enter(&peers, peer(6))), "max_half_open");
    }

    #[test]
    fn enter__a_peer_at_its_limit_drops_its_own_connections_only() {
        let peers = Arc::new(Peers::default());
        let (other, _count) = enter(&peers, peer(2)).unwrap();
        let of_one = [1, 1].map(|last| enter(&peers, peer(last)).unwrap());
        let (newest, _count2) = enter(&peers, peer(1)).unwrap();
        assert!(of_one[0].0.at_work().is_err() && of_one[1].0.at_work().is_ok());
        assert!(other.at_work().is_ok() && newest.at_work().is_ok());
        assert_eq!(refused(&enter(&peers, peer(1))), "max_half_open_per_peer");
    }

    #[test]
    fn enter__a_peer_with_too_many_connections_drops_none_and_leaves_no_trace() {
        let peers = Arc::new(Peers::default());
        let connected = [1, 1].map(|last| enter(&peers, peer(last)).unwrap().1);
        let half_open = [1, 1].map(|last| enter(&peers, peer(last)).unwrap());
        assert_eq!(refused(&enter(&peers, peer(1))), "max_connections_per_peer");
        assert!(half_open.iter().all(|(half_open, _)| half_open.at_work().is_ok()));
        drop((connected, half_open));
        assert!(peers.lock().per_peer.is_empty());
    }

    #[test]
    fn take_ring__rings_of_one_address_have_a_share_until_their_connections_end() {
        let peers = Arc::new(Peers::default());
        let config = Config { max_ring_bytes_per_peer: 10_000, ..config() };
        let connect = |last| enter(&peers, peer(last)).unwrap().1;
        let [mut one, mut two, mut three] = [1, 1, 1].map(connect);
        one.take_ring(&config, 6_000).unwrap();
        two.take_ring(&config, 4_000).unwrap();
        assert_eq!(refused(&three.take_ring(&config, 1)), "max_ring_bytes_per_peer");
        connect(2).take_ring(&config, 10_000).unwrap();
        drop(two);
        assert_eq!(refused(&three.take_ring(&config, 4_001)), "max_ring_bytes_per_peer");
        three.take_ring(&config, 4_000).unwrap();
        drop((one, three));
        assert!(peers.lock().per_peer.is_empty());
    }

    #[test]
    fn enter__threads_of_dropped_handshakes_are_limited() {
        let peers = Arc::new(Peers::default());
        let held: Vec<_> = (0..6).map(|last| enter(&peers, peer(last)).unwrap()).collect();
        assert_eq!(refused(&enter(&peers, peer(9))), "max_half_open");
        drop(held);
        assert_eq!(refused(&enter(&peers, peer(9))), "none");
    }

    #[test]
    fn drop_silent__tells_its_peer_and_closes_its_socket() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let dismiss: Dismiss = crate::handshake::dismiss;
        let socket = Some((listener.accept().unwrap().0, dismiss));
        let peers = Arc::new(Peers::default());
        let first = peers.enter(&config(), peer(1), socket).unwrap();
        let more = [1, 1].map(|last| enter(&peers, peer(last)).unwrap());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut client, &mut said).unwrap();
        let reason = "too many connections are being set up there";
        let line = format!("{{\"type\":\"reject\",\"reason\":\"{reason}\",\"busy\":true}}\n");
        assert_eq!(said, line);
        drop((first, more));
    }

    #[test]
    fn enter__addresses_of_one_64_bit_prefix_are_one_peer() {
        let peers = Arc::new(Peers::default());
        let enter = |ip: &str| enter(&peers, ip.parse().unwrap());
        let held = ["2001:db8::1", "2001:db8::2"].map(|ip| enter(ip).unwrap());
        held.iter().for_each(|(half_open, _)| half_open.at_work().unwrap());
        assert_eq!(refused(&enter("2001:db8::3")), "max_half_open_per_peer");
        assert_eq!(refused(&enter("2001:db8:0:1::1")), "none");
        drop(held);
        assert!(peers.lock().per_peer.is_empty());
    }

    #[test]
    fn drop__of_the_last_place_forgets_the_address() {
        let peers = Arc::new(Peers::default());
        for last in 0..100 {
            let (half_open, count) = enter(&peers, peer(last)).unwrap();
            drop(half_open);
            assert_eq!(peers.lock().per_peer.len(), 1);
            drop(count);
        }
        let counts = peers.lock();
        assert_eq!((counts.half_open.len(), counts.handshakes, counts.per_peer.len()), (0, 0, 0));
    }
}
