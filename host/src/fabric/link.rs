//! Ports with the counters and the side poll that a worker needs beside frames.

use spanwire_io::fault::FaultPort;
use spanwire_io::pcap::PcapPort;
use spanwire_io::pipe::PipePort;
use spanwire_io::port::Port;
use spanwire_io::steered::{Owner, SteerCounters, SteeredPort, Tally};
use spanwire_io::udp::UdpPort;
use spanwire_io::worker::Core;
use spanwire_io::xdp::{SidePoll, XdpPort};
use spanwire_transport::{App, Host};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A port with counters and a side poll socket.
pub trait Link: Port {
    /// Its counters by name.
    fn counters(&self) -> Vec<(String, u64)>;

    /// System calls that have received frames, and that have sent frames, so far: each may carry
    /// several over UDP sockets. Zero for ports whose frames need none.
    fn calls(&self) -> [u64; 2] {
        [0; 2]
    }

    /// Counts the frames of `tally` that arrive at the port itself. False if it does not: it is
    /// that of a single worker, or counts for others.
    fn count(&mut self, _tally: &Arc<Tally>) -> bool {
        false
    }

    /// Sends the datagram by which the side poll socket at `peer` learns its receive queue.
    fn greet(&self, _peer: SocketAddr) {}

    /// Opens this end's side poll socket at its address `ip`; returns its UDP port.
    fn open_side_poll(&mut self, _ip: IpAddr) -> Option<u16> {
        None
    }
}

/// The counters of engine, port and driver by name.
#[must_use]
pub fn counters<A: App>(core: &Core<Host<A>, Box<dyn Link + Send>>) -> Vec<(String, u64)> {
    let mut counters = core.node.endpoint().counters().list();
    counters.extend(core.port.counters());
    counters.push(("worker_steps".to_owned(), core.driver().steps));
    counters
}

/// Counters of several workers, added up by name.
#[must_use]
pub fn sum_counters(all: impl IntoIterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (name, n) in all {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += n,
            None => sums.push((name, n)),
        }
    }
    sums
}

/// All but the counters of a link that wraps another one.
#[macro_export]
macro_rules! link_of_inner {
    ($self:ident, $inner:expr, $inner_mut:expr) => {
        fn calls(&$self) -> [u64; 2] {
            $inner.calls()
        }

        fn greet(&$self, peer: std::net::SocketAddr) {
            $inner.greet(peer);
        }

        fn open_side_poll(&mut $self, ip: std::net::IpAddr) -> Option<u16> {
            $inner_mut.open_side_poll(ip)
        }
    };
}
pub use link_of_inner;

impl Link for XdpPort {
    fn counters(&self) -> Vec<(String, u64)> {
        let list = XdpPort::counters(self).list();
        list.into_iter().map(|(name, n)| (format!("xdp_{name}"), n)).collect()
    }

    fn greet(&self, peer: SocketAddr) {
        if let Some(Err(e)) = self.side_poll().map(|s| s.greet(peer)) {
            tracing::debug!("cannot greet {peer}, it will poll more slowly: {e}");
        }
    }

    fn open_side_poll(&mut self, ip: IpAddr) -> Option<u16> {
        match SidePoll::bind(ip, self.device().ifindex()) {
            Ok(side_poll) => {
                let port = side_poll.local_port();
                self.set_side_poll(side_poll);
                Some(port)
            }
            Err(e) => {
                tracing::info!("no side poll on {ip}, receiving will be slower: {e}");
                None
            }
        }
    }
}

impl Link for UdpPort {
    fn counters(&self) -> Vec<(String, u64)> {
        let list = UdpPort::counters(self).list();
        list.into_iter().map(|(name, n)| (format!("udp_{name}"), n)).collect()
    }

    fn calls(&self) -> [u64; 2] {
        let counters = UdpPort::counters(self);
        [counters.rx_calls, counters.tx_calls]
    }
}

impl Link for PipePort {
    fn counters(&self) -> Vec<(String, u64)> {
        let c = PipePort::counters(self);
        let list = [
            ("pipe_rx_frames", c.rx_frames),
            ("pipe_tx_frames", c.tx_frames),
            ("pipe_tx_dropped_closed", c.tx_dropped_closed),
        ];
        list.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
    }
}

impl<P: Link> Link for FaultPort<P> {
    fn counters(&self) -> Vec<(String, u64)> {
        let c = FaultPort::counters(self);
        let mine = [
            ("fault_lost", c.lost),
            ("fault_duplicated", c.duplicated),
            ("fault_reordered", c.reordered),
            ("fault_corrupted", c.corrupted),
        ];
        let mine = mine.into_iter().map(|(name, n)| (name.to_owned(), n));
        mine.chain(self.inner().counters()).collect()
    }

    link_of_inner!(self, self.inner(), self.inner_mut());
}

impl<P: Link, F: Owner> Link for SteeredPort<P, F> {
    fn counters(&self) -> Vec<(String, u64)> {
        let SteerCounters { handed, received, dropped } = SteeredPort::counters(self);
        let mine =
            [("steer_handed", handed), ("steer_received", received), ("steer_dropped", dropped)];
        let mine = mine.into_iter().map(|(name, n)| (name.to_owned(), n));
        mine.chain(self.inner().counters()).collect()
    }

    fn count(&mut self, tally: &Arc<Tally>) -> bool {
        SteeredPort::count(self, tally)
    }

    link_of_inner!(self, self.inner(), self.inner_mut());
}

impl<P: Link, W: Write> Link for PcapPort<P, W> {
    fn counters(&self) -> Vec<(String, u64)> {
        let c = PcapPort::counters(self);
        let mine = [("pcap_recorded", c.recorded), ("pcap_unrecorded", c.unrecorded)];
        let mine = mine.into_iter().map(|(name, n)| (name.to_owned(), n));
        mine.chain(self.inner().counters()).collect()
    }

    link_of_inner!(self, self.inner(), self.inner_mut());
}

impl<P: Link + ?Sized> Link for Box<P> {
    fn counters(&self) -> Vec<(String, u64)> {
        (**self).counters()
    }

    fn count(&mut self, tally: &Arc<Tally>) -> bool {
        (**self).count(tally)
    }

    link_of_inner!(self, (**self), (**self));
}
