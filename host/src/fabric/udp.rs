//! Attachment by UDP sockets.

use super::{
    Attachment, Error, Fabric, HopResolver, Terms, Wrap, around, interface, ip_room, widest,
};
use crate::seed;
use crate::window::{self, WindowChoice};
use spanwire_io::clock::Clock;
use spanwire_io::net::LinkInfo;
use spanwire_io::port::Port;
use spanwire_io::udp::{PacketChecksum, UdpConfig, UdpGroup, UdpPort};
use spanwire_transport::{QpnWorkers, SourcePort, ValidConfig};

impl Attachment {
    /// Attaches to interface `config.ifname` by UDP sockets, in the network namespace of the
    /// calling thread. Needs no privilege. Source port and checksum of `config` are set here.
    ///
    /// # Errors
    /// No such interface, UDP port 4791 is taken, or the capture cannot be written.
    pub fn udp(config: &UdpConfig, wrap: &Wrap) -> Result<Self, Error> {
        let info = interface(&config.ifname)?;
        let seed = u64::from_ne_bytes(seed::random()?);
        let port = UdpPort::open(&UdpConfig { seed, checksum: Some(ICRC), ..config.clone() })?;
        udp_over(port, config, &info, wrap, Clock::start())
    }

    /// As [`Attachment::udp`], for workers whose endpoints have the QPNs of `qpns`: the kernel
    /// gives each the packets of its queue pairs. They have one clock, and the wrappers of
    /// [`Wrap::of_worker`].
    ///
    /// # Errors
    /// As [`Attachment::udp`].
    pub fn udp_workers(
        config: &UdpConfig,
        wrap: &Wrap,
        workers: u32,
        qpns: QpnWorkers,
    ) -> Result<Vec<Self>, Error> {
        let info = interface(&config.ifname)?;
        let seed = u64::from_ne_bytes(seed::random()?);
        let config = UdpConfig { seed, checksum: Some(ICRC), ..config.clone() };
        let (shift, mask) = qpns.shift_and_mask();
        let ports = UdpPort::open_group(&config, UdpGroup { shift, mask }, workers)?;
        let clock = Clock::start();
        let over = |(port, worker)| {
            udp_over(port, &config, &info, &wrap.of_worker(worker, workers), clock)
        };
        ports.into_iter().zip(0..).map(over).collect()
    }
}

/// The attachment by `port` on the interface `info`.
fn udp_over(
    port: UdpPort,
    config: &UdpConfig,
    info: &LinkInfo,
    wrap: &Wrap,
    clock: Clock,
) -> Result<Attachment, Error> {
    let ifname = config.ifname.as_str();
    if info.xdp.is_some() {
        tracing::warn!(
            interface = ifname,
            "an XDP program is attached; if it is that of another Spanwire, RoCEv2 does not \
                 arrive at UDP sockets"
        );
    }
    // The length of a packet in the receive buffer, so that many fit.
    let share = (port.receive_buffer() / PACKETS_MIN).max(info.mtu.min(ETHERNET_MTU));
    let ip_bytes = ip_room(port.frame_room()).min(info.mtu).min(share);
    let path_mtu = widest(ip_bytes, port.frame_room())
        .ok_or_else(|| format!("{ifname}: MTU {} is too small for RoCEv2", info.mtu))?;
    let receive_buffer = port.receive_buffer();
    let (first, count) = (port.source_port(), UdpPort::SOURCE_PORTS);
    let resolver = HopResolver::Socket {
        local: config.local,
        device: (!info.loopback).then_some(info.ifindex),
        src_port: SourcePort::Among { first, count },
    };
    let (port, capture) = around(port, wrap, clock)?;
    let terms = Terms {
        clock,
        fabric: Fabric::Udp,
        fallback: None,
        xdp_mode: None,
        path_mtu,
        receive_buffer: Some(receive_buffer),
        ip_bytes,
        capture,
        // The kernel steers by the QPN.
        rss: false,
        icrc: true,
        ifindex: Some(info.ifindex),
        resolver,
    };
    Ok(Attachment { port, terms })
}

impl Terms {
    /// Packets of the largest size that the receive buffer holds; `None` if it is no limit. The
    /// kernel counts about as many bytes of its own as of packets.
    #[must_use]
    pub fn receive_pkts(&self) -> Option<u32> {
        self.receive_buffer.map(|bytes| (bytes / 2 / self.ip_bytes).max(RECEIVE_PKTS_MIN))
    }

    /// `config` for this fabric. Over UDP sockets windows fit the receive buffer, for the peer's is
    /// probably no longer, and a queue pair sends enough in a turn to fill a run.
    #[must_use]
    pub fn fit(&self, config: ValidConfig, choice: WindowChoice) -> ValidConfig {
        match self.receive_buffer.zip(self.receive_pkts()) {
            Some((bytes, packets)) => window::over_sockets(&config, choice, packets, bytes / 2),
            None => config,
        }
    }
}

/// The ICRC, which covers IPv4's identification and the UDP source port.
const ICRC: PacketChecksum = PacketChecksum {
    prefix: spanwire_wire::icrc_prefix,
    residue: spanwire_wire::icrc_residue,
    change: spanwire_wire::icrc_change,
};

/// Packets of the largest size that the receive buffer has room for.
const PACKETS_MIN: u32 = 32;
/// A window of fewer packets has no loss recovery but timeouts.
const RECEIVE_PKTS_MIN: u32 = 4;
/// Packets of this length are possible in any buffer.
const ETHERNET_MTU: u32 = 1500;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn udp__over_loopback_has_a_source_port_and_room_for_many_packets() {
        let local: IpAddr = "127.83.1.9".parse().unwrap();
        let config = UdpConfig { local: Some(local), ..UdpConfig::new("lo") };
        let small = UdpConfig { receive_buffer: 8192, ..config.clone() };
        let end = Attachment::udp(&small, &Wrap::default()).unwrap();
        assert_eq!((end.fabric, end.ip_bytes), (Fabric::Udp, 1500));
        let packets = end.receive_pkts().unwrap();
        let window = end.fit(ValidConfig::default(), WindowChoice::Static).qp_window_pkts;
        assert_eq!(window, packets);
        assert!((4..=8).contains(&packets), "{packets}");
        let auto = end.fit(ValidConfig::default(), WindowChoice::Controlled);
        assert_eq!(auto.receive_room_bytes, end.receive_buffer.map(|bytes| bytes / 2));
        let hop = end.hop("127.0.0.1".parse().unwrap()).unwrap();
        let av = hop.address_vector(local, local, 2);
        let SourcePort::Among { first, count } = av.udp_src_port else { panic!("{av:?}") };
        assert!(first >= 0xfff0 && count == 16, "{av:?}");
        drop(end);
        let end = Attachment::udp(&config, &Wrap::default()).unwrap();
        assert!(end.ip_bytes > 1500, "{}", end.ip_bytes);
    }

    #[test]
    fn icrc__is_that_of_the_wire() {
        assert_eq!(((ICRC.prefix)(&[]), (ICRC.residue)(0, &[])), (None, None));
        assert_ne!((ICRC.change)(100, 4), (ICRC.change)(104, 4));
    }
}
