//! A host that runs spanwire and forwards RoCEv2 between other hosts: forwarded packets must not be
//! affected.

use super::lab::{HANG, Running, skip, take_turn};
use serde_json::Value;
use spanwire_io::net::{NetNs, Netlink, VethEnd, VethSpec};
use std::net::{IpAddr, UdpSocket};
use std::sync::MutexGuard;

/// Hosts left and right, and a host in the middle with an interface to each.
pub(crate) struct Row {
    pub(crate) left: NetNs,
    pub(crate) middle: NetNs,
    pub(crate) right: NetNs,
    _turn: MutexGuard<'static, ()>,
}

impl Row {
    /// As [`Row::new`], where the host in the middle is a router between networks 1 and 2: 10.78.N
    /// and fd78:N.
    pub(crate) fn routed() -> Option<Self> {
        let row = Self::new()?;
        let Self { left, middle, right, .. } = &row;
        for (ns, name, v4, v6) in [
            (left, "sw0", "10.78.1.2/24", "fd78:1::2/64"),
            (middle, "l0", "10.78.1.1/24", "fd78:1::1/64"),
            (middle, "r0", "10.78.2.1/24", "fd78:2::1/64"),
            (right, "sw0", "10.78.2.2/24", "fd78:2::2/64"),
        ] {
            address(ns, name, v4);
            address(ns, name, v6);
        }
        for (ns, side) in [(left, 1), (right, 2)] {
            ip(ns, &format!("-4 route add default via 10.78.{side}.1"));
            ip(ns, &format!("-6 route add default via fd78:{side}::1"));
        }
        for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let file = format!("/proc/sys/net/{key}");
            middle.run(|| std::fs::write(&file, "1")).expect("privileged").expect("a setting");
        }
        Some(row)
    }

    /// `None` without the privilege (reported on stderr).
    fn new() -> Option<Self> {
        if skip() {
            return None;
        }
        let turn = take_turn();
        let [left, middle, right] = [(); 3].map(|()| NetNs::new_anonymous().expect("privileged"));
        for (host, name) in [(&left, "l0"), (&right, "r0")] {
            let (a, b) = (VethEnd { ns: host, name: "sw0" }, VethEnd { ns: &middle, name });
            VethSpec { a, b, mtu: 1500, queues: 1 }.create().expect("privileged");
        }
        for (n, (host, name)) in
            [(&left, "sw0"), (&right, "sw0"), (&middle, "l0"), (&middle, "r0")].iter().enumerate()
        {
            let mut netlink = Netlink::open_in(host).expect("privileged");
            netlink.disable_ipv6_autoconf(name).expect("privileged");
            netlink.set_up(name).expect("privileged");
            // A router without a link-local address sends no neighbour solicitation.
            address(host, name, &format!("fe80::{}/64", n + 1));
        }
        Some(Self { left, middle, right, _turn: turn })
    }

    /// Sends RoCEv2 from left to right over both IP versions, while the host in the middle serves
    /// successive clients on interface `dev`. It must arrive in order and without a gap.
    fn check(&self, dev: &str, right: [&str; 2], middle: [&str; 2]) {
        let any = || UdpSocket::bind(("::", 4791));
        let receiver = self.right.run(any).expect("privileged").expect("the port is free");
        receiver.set_read_timeout(Some(HANG)).expect("not zero");
        let sender = self.left.run(|| UdpSocket::bind("[::]:0")).expect("privileged").expect("any");
        let cross = |to: &str| {
            let to: IpAddr = to.parse().expect("an address");
            let to = match to {
                IpAddr::V4(to) => to.to_ipv6_mapped(),
                IpAddr::V6(to) => to,
            };
            for n in 0_u32..200 {
                sender.send_to(&n.to_be_bytes(), (to, 4791)).expect("sent");
                let mut bytes = [0; 64];
                let len = receiver.recv(&mut bytes);
                let len = len.unwrap_or_else(|e| panic!("datagram {n} to {to} is lost: {e}"));
                assert_eq!(bytes[..len], n.to_be_bytes(), "to {to}");
            }
        };
        let says = format!("serving on {dev}");
        let server = Running::start_until(&self.middle, &["perf", "server", "--dev", dev], &says);
        for (through, ours) in right.into_iter().zip(middle) {
            cross(through);
            let args = ["perf", "client", "--dev", "sw0", ours, "--transfer", "4M", "--json"];
            let outcome = Running::start(&self.left, &args).wait();
            let report: Value = outcome.json();
            assert_eq!(report["ok"], true, "{report}{}", outcome.stderr);
            cross(through);
        }
        server.terminate();
    }
}

/// Adds an address.
fn address(ns: &NetNs, name: &str, text: &str) {
    let mut netlink = Netlink::open_in(ns).expect("privileged");
    netlink.add_address(name, text.parse().expect("a prefix")).expect("privileged");
}

/// Runs a command of iproute2 and returns its output.
pub(crate) fn ip(ns: &NetNs, args: &str) -> String {
    let mut command = ns.command("ip").expect("there");
    let done = command.args(args.split(' ')).output().expect("iproute2 is there");
    assert!(done.status.success(), "ip {args}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn server__a_router_still_forwards_roce_of_others() {
    let Some(row) = Row::routed() else { return };
    // The last of its addresses is on another interface than the served one.
    row.check("l0", ["10.78.2.2", "fd78:2::2"], ["10.78.1.1", "fd78:2::1"]);
}

/// The server is on the bridge itself; `io/tests/xdp_port.rs` has a port on a member interface.
#[test]
fn server__a_bridge_still_forwards_roce_of_others() {
    let Some(row) = Row::new() else { return };
    let Row { left, middle, right, .. } = &row;
    ip(middle, "link add br0 type bridge mcast_snooping 0");
    for port in ["l0", "r0"] {
        ip(middle, &format!("link set {port} master br0"));
    }
    ip(middle, "link set br0 up");
    for (ns, name, n) in [(left, "sw0", 1), (middle, "br0", 2), (right, "sw0", 3)] {
        address(ns, name, &format!("10.78.0.{n}/24"));
        address(ns, name, &format!("fd78::{n}/64"));
    }
    row.check("br0", ["10.78.0.3", "fd78::3"], ["10.78.0.2", "fd78::2"]);
}
