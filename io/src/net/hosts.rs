//! Two hosts on one machine: two namespaces connected by a veth pair, with addresses.

use super::address::IpPrefix;
use super::error::{NetError, NetErrorKind};
use super::netlink::Netlink;
use super::netns::NetNs;
use super::veth::{VethEnd, VethSpec};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Configuration of two connected hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabConfig {
    /// The interface's name in both namespaces, 1..=15 bytes; default `sw0`.
    pub ifname: String,
    /// MTU in bytes, 1280..=65535 (IPv6 does not exist below 1280); default 1500.
    pub mtu: u32,
    /// The IPv4 network; the hosts are its first and second address. Default 10.77.0.0/24.
    pub v4: IpPrefix,
    /// The IPv6 network; the hosts are its first and second address. Default fd77::/64.
    pub v6: IpPrefix,
    /// Transmit and receive queues of each end, 1..=64; default 1.
    pub queues: u32,
    /// Length of each interface's pfifo queue in packets, `None` for no queue. Default 1000: a full
    /// peer then causes back-pressure instead of drops.
    pub pfifo: Option<u32>,
}

impl Default for LabConfig {
    fn default() -> Self {
        Self {
            ifname: "sw0".to_owned(),
            mtu: 1500,
            v4: IpPrefix::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 0)), 24)
                .expect("24 bits fit an IPv4 address"),
            v6: IpPrefix::new(IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0)), 64)
                .expect("64 bits fit an IPv6 address"),
            queues: 1,
            pfifo: Some(1000),
        }
    }
}

/// One host of [`TwoHosts`].
#[derive(Debug)]
pub struct Host {
    /// The host's namespace.
    pub ns: NetNs,
    /// The interface's name in the namespace.
    pub ifname: String,
    /// The interface's index in the namespace.
    pub ifindex: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its global IPv6 address.
    pub v6: Ipv6Addr,
    /// Its link-local IPv6 address: `fe80::1` or `fe80::2`.
    pub link_local: Ipv6Addr,
}

/// Two connected hosts. Their link has no other ports and no connection to the machine's network.
#[derive(Debug)]
pub struct TwoHosts {
    /// The first host.
    pub a: Host,
    /// The second.
    pub b: Host,
}

impl TwoHosts {
    /// Connects two anonymous namespaces: the kernel removes everything with the value, or with the
    /// process.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN and CAP_NET_ADMIN, or a bad configuration.
    pub fn anonymous(config: &LabConfig) -> Result<Self, NetError> {
        Self::join(NetNs::new_anonymous()?, NetNs::new_anonymous()?, config)
    }

    /// Connects two given namespaces. On an error the veth pair is removed; the namespaces are not
    /// modified further.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN and CAP_NET_ADMIN, a bad configuration, or the interface name is in use.
    pub fn join(a: NetNs, b: NetNs, config: &LabConfig) -> Result<Self, NetError> {
        let plan_a = Plan::new(config, 1)?;
        let plan_b = Plan::new(config, 2)?;
        let name = config.ifname.as_str();
        VethSpec {
            a: VethEnd { ns: &a, name },
            b: VethEnd { ns: &b, name },
            mtu: config.mtu,
            queues: config.queues,
        }
        .create()?;
        let wired = (|| {
            let mut at_a = Netlink::open_in(&a)?;
            let mut at_b = Netlink::open_in(&b)?;
            plan_a.configure(&mut at_a, config)?;
            plan_b.configure(&mut at_b, config)?;
            let link_a = plan_a.look(&mut at_a, name)?;
            let link_b = plan_b.look(&mut at_b, name)?;
            Ok((link_a, link_b))
        })();
        match wired {
            Ok((link_a, link_b)) => {
                Ok(Self { a: plan_a.host(a, name, link_a), b: plan_b.host(b, name, link_b) })
            }
            Err(e) => {
                // Report the first error.
                let _ = Netlink::open_in(&a).and_then(|mut netlink| netlink.delete_link(name));
                Err(e)
            }
        }
    }
}

/// The addresses of one host, validated before anything is created.
#[derive(Debug)]
struct Plan {
    v4: (Ipv4Addr, IpPrefix),
    v6: (Ipv6Addr, IpPrefix),
    link_local: Ipv6Addr,
}

impl Plan {
    fn new(config: &LabConfig, number: u16) -> Result<Self, NetError> {
        let refused = |prefix: &IpPrefix, what: &str| {
            NetError::new(NetErrorKind::Invalid, format!("give two hosts addresses of {prefix}"))
                .advise(what.to_owned())
        };
        if !(MIN_MTU..=MAX_MTU).contains(&config.mtu) {
            let operation = format!("use an MTU of {}", config.mtu);
            return Err(NetError::new(NetErrorKind::Invalid, operation)
                .advise("use 1280..=65535 bytes (IPv6 needs 1280)"));
        }
        let v4 = match config.v4.host(u32::from(number)) {
            Some(prefix) => match prefix.addr() {
                IpAddr::V4(addr) => Some((addr, prefix)),
                IpAddr::V6(_) => None,
            },
            None => None,
        };
        let v6 = match config.v6.host(u32::from(number)) {
            Some(prefix) => match prefix.addr() {
                IpAddr::V6(addr) => Some((addr, prefix)),
                IpAddr::V4(_) => None,
            },
            None => None,
        };
        Ok(Self {
            v4: v4.ok_or_else(|| {
                refused(&config.v4, "use an IPv4 network of at most 30 bits, as 10.77.0.0/24")
            })?,
            v6: v6.ok_or_else(|| {
                refused(&config.v6, "use an IPv6 network of at most 126 bits, as fd77::/64")
            })?,
            link_local: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number),
        })
    }

    /// Sets the interface's addresses and sets it up.
    fn configure(&self, netlink: &mut Netlink, config: &LabConfig) -> Result<(), NetError> {
        let name = config.ifname.as_str();
        // Link-local addresses are set as well, so that they are known and immediately usable.
        netlink.disable_ipv6_autoconf(name)?;
        netlink.set_up(name)?;
        let link_local =
            IpPrefix::new(IpAddr::V6(self.link_local), 64).expect("64 bits fit an IPv6 address");
        for prefix in [self.v4.1, self.v6.1, link_local] {
            netlink.add_address(name, prefix)?;
        }
        if let Some(limit) = config.pfifo {
            netlink.set_pfifo(name, limit)?;
        }
        Ok(())
    }

    /// Waits for the carrier and returns index and MAC address.
    fn look(&self, netlink: &mut Netlink, name: &str) -> Result<(u32, [u8; 6]), NetError> {
        let link = netlink.wait_running(name, CARRIER_TIMEOUT)?;
        let mac = link.mac.ok_or_else(|| {
            NetError::new(NetErrorKind::NotEthernet, "read the MAC address").on(name)
        })?;
        Ok((link.ifindex, mac))
    }

    fn host(&self, ns: NetNs, name: &str, (ifindex, mac): (u32, [u8; 6])) -> Host {
        Host {
            ns,
            ifname: name.to_owned(),
            ifindex,
            mac,
            v4: self.v4.0,
            v6: self.v6.0,
            link_local: self.link_local,
        }
    }
}

/// The smallest MTU at which an interface has IPv6 (RFC 8200 5).
const MIN_MTU: u32 = 1280;

/// The largest MTU of veth, in bytes.
const MAX_MTU: u32 = 65535;

/// Maximum time for the kernel to detect the carrier of both ends: usually some milliseconds, up to
/// a second if it rate-limits link events.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
    use std::thread;

    /// Sends a datagram from `a` to `to`, bound at `b`, and returns the bytes received.
    fn datagram(hosts: &TwoHosts, to: SocketAddr) -> Vec<u8> {
        let receiver = hosts
            .b
            .ns
            .run(|| UdpSocket::bind(to))
            .expect("privileged")
            .expect("an address of b, usable at once");
        receiver.set_read_timeout(Some(Duration::from_secs(120))).expect("not zero");
        let sent = hosts.a.ns.run(|| {
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            UdpSocket::bind(any)?.send_to(b"across", to)
        });
        sent.expect("privileged").expect("a route to b");
        let mut bytes = [0; 64];
        let length = receiver.recv(&mut bytes).expect("it arrives");
        bytes[..length].to_vec()
    }

    #[test]
    fn anonymous__datagrams_cross_on_all_addresses() {
        if testing::lacks_privilege("anonymous") {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("privileged");
        assert_eq!(hosts.a.v4, Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(hosts.b.v4, Ipv4Addr::new(10, 77, 0, 2));
        assert_eq!(hosts.b.v6.to_string(), "fd77::2");
        assert_ne!(hosts.a.mac, hosts.b.mac);
        assert_eq!(datagram(&hosts, (hosts.b.v4, 4000).into()), b"across");
        assert_eq!(datagram(&hosts, (hosts.b.v6, 4000).into()), b"across");
        // One scope for both hosts: the interface is the first of each namespace, so its index is
        // equal.
        assert_eq!(hosts.a.ifindex, hosts.b.ifindex);
        let local = SocketAddrV6::new(hosts.b.link_local, 4000, 0, hosts.b.ifindex);
        assert_eq!(datagram(&hosts, local.into()), b"across");
    }

    #[test]
    fn anonymous__tcp_at_jumbo_mtu() {
        if testing::lacks_privilege("anonymous") {
            return;
        }
        let config = LabConfig { mtu: 9000, queues: 2, pfifo: None, ..LabConfig::default() };
        let hosts = TwoHosts::anonymous(&config).expect("privileged");
        let mut netlink = Netlink::open_in(&hosts.b.ns).expect("privileged");
        let link = netlink.link("sw0").expect("made");
        assert_eq!((link.mtu, link.rx_queues), (9000, 2));
        assert_eq!(link.mac, Some(hosts.b.mac));
        let listener = hosts
            .b
            .ns
            .run(|| TcpListener::bind((hosts.b.v4, 4000)))
            .expect("privileged")
            .expect("an address of b");
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            let (mut stream, _) = listener.accept().expect("a connects");
            stream.read_to_end(&mut all).map(|_| all)
        });
        let sent = vec![7; 1 << 20];
        let outcome = hosts.a.ns.run(|| {
            TcpStream::connect((hosts.b.v4, 4000)).and_then(|mut stream| stream.write_all(&sent))
        });
        outcome.expect("privileged").expect("it connects");
        let received = reader.join().expect("no panic").expect("read to the end");
        assert_eq!(received, sent);
    }

    #[test]
    fn join__failure_removes_the_veth_pair() {
        if testing::lacks_privilege("join") {
            return;
        }
        let a = NetNs::new_anonymous().expect("privileged");
        let b = NetNs::new_anonymous().expect("privileged");
        let mut at_a = Netlink::open_in(&a).expect("privileged");
        let mut at_b = Netlink::open_in(&b).expect("privileged");
        // An address that lo of b has already on another host does not fail; the same address on
        // the new interface twice would. So cause a name conflict in b.
        let other = NetNs::new_anonymous().expect("privileged");
        VethSpec {
            a: VethEnd { ns: &b, name: "sw0" },
            b: VethEnd { ns: &other, name: "sw0" },
            mtu: 1500,
            queues: 1,
        }
        .create()
        .expect("privileged");
        let error = TwoHosts::join(a, b, &LabConfig::default()).expect_err("sw0 is taken in b");
        assert_eq!(error.kind(), NetErrorKind::AlreadyExists);
        assert_eq!(at_a.links().expect("links").len(), 1, "only lo");
        assert_eq!(at_b.links().expect("links").len(), 2, "lo and the old sw0");
    }

    #[test]
    fn plan_new__bad_configurations_are_rejected_before_anything_is_created() {
        let good = LabConfig::default();
        let swapped = LabConfig { v4: good.v6, ..good.clone() };
        let narrow = LabConfig { v4: "10.0.0.0/32".parse().expect("a prefix"), ..good.clone() };
        let not_v6 = LabConfig { v6: good.v4, ..good.clone() };
        let small = LabConfig { mtu: 1279, ..good.clone() };
        let large = LabConfig { mtu: 65536, ..good.clone() };
        assert!(Plan::new(&good, 2).is_ok());
        for bad in [swapped, narrow, not_v6, small, large] {
            let error = Plan::new(&bad, 2).expect_err("bad");
            assert_eq!(error.kind(), NetErrorKind::Invalid, "{bad:?}");
        }
    }
}
