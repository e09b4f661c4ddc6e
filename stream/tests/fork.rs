//! A process that is forked from one with connections, and drops them.
#![expect(non_snake_case, reason = "tests are named function__case")]

use spanwire_io::fork::in_child;
use spanwire_io::net::{LabConfig, NetNs, TwoHosts};
use spanwire_io::udp::UdpConfig;
use spanwire_io::xdp::XdpConfig;
use spanwire_stream::fabric::{Attachment, Wrap};
use spanwire_stream::{
    Cause, Config, ConnectOptions, Connection, Error, Listener, Network, NetworkOptions, Progress,
    SetupError,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);

/// A host: its namespace, its interface and its address.
#[derive(Clone, Copy)]
struct Host<'a> {
    ns: &'a NetNs,
    ifname: &'a str,
    ip: IpAddr,
}

impl Host<'_> {
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.ns.run(work).expect("the namespace is there")
    }

    fn network(&self, is_xdp: bool, progress: Progress) -> Network {
        self.run(|| {
            let wrap = Wrap::default();
            let attachment = if is_xdp {
                Attachment::xdp_with(&XdpConfig::new(self.ifname), &wrap)
            } else {
                let udp = UdpConfig { local: Some(self.ip), ..UdpConfig::new(self.ifname) };
                Attachment::udp(&udp, &wrap)
            };
            // A busy machine may have no core for seconds.
            let handshake_timeout = Duration::from_secs(60);
            let config = Config { handshake_timeout, timeout: 20, ..Config::default() };
            let config = config.validate().expect("within the limits");
            let options = NetworkOptions { config, progress, ..NetworkOptions::default() };
            Network::over(attachment.expect("it opens"), self.ifname, options).expect("it starts")
        })
    }
}

/// A namespace, or `None`, with a message, without the privilege.
fn namespace() -> Option<NetNs> {
    match NetNs::new_anonymous() {
        Ok(ns) => Some(ns),
        Err(why) => {
            let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
            assert!(!required, "an end-to-end test cannot run: {why}");
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

/// The work of the child: every call fails, and it drops everything.
fn misuse(
    networks: &mut [Option<Network>; 2],
    ends: &mut [Option<Connection>; 2],
    listener: &mut Option<Listener<Connection>>,
) {
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
    let forked = |e: Error| assert_eq!(e, Error::Lost(Cause::Forked));
    for end in ends {
        let mut end = end.take().expect("a connection");
        forked(end.send(b"from the child").expect_err("a child sends nothing"));
        forked(end.sender().try_send(b"from the child").expect_err("a child sends nothing"));
        // A message is there.
        forked(end.recv().expect_err("a child receives nothing"));
        forked(end.receiver().try_recv().expect_err("a child receives nothing"));
        forked(end.try_close().expect_err("a child closes nothing"));
        end.sender().finish();
        let (sender, _receiver) = end.split();
        sender.abort("from the child");
    }
    let listener = listener.take().expect("a listener");
    let gone = |e: SetupError| {
        let text = e.to_string();
        assert!(matches!(e, SetupError::NetworkGone(_)) && text.contains("forked"), "{text}");
    };
    gone(listener.accept().expect_err("a child accepts nothing"));
    gone(listener.try_accept().expect_err("a child accepts nothing"));
    listener.closer().close();
    drop(listener);
    let [a, b] = networks.each_mut().map(|network| network.take().expect("a network"));
    gone(a.connect(to, &ConnectOptions::default()).expect_err("a child connects nowhere"));
    gone(a.listen(0, ConnectOptions::default()).expect_err("a child listens nowhere"));
    assert!(a.counters().is_empty() && a.paths().is_empty());
    gone(a.shutdown(LATE).expect_err("a child ends nothing"));
    drop(b);
}

/// Receives the message that waits, and sends the next one in that direction.
fn exchange(from: &mut Connection, to: &mut Connection) {
    assert_eq!(to.recv_timeout(LATE).expect("it goes on").as_deref(), Some(&b"message"[..]));
    from.send(b"message").expect("it goes on");
}

/// Both ends of a connection in one process, of which a child drops its copies.
fn check([a, b]: [Host<'_>; 2], is_xdp: bool, progress: Progress) {
    let mut networks = [a, b].map(|host| Some(host.network(is_xdp, progress)));
    let [Some(of_a), Some(of_b)] = &networks else { unreachable!("they are there") };
    let listener = a.run(|| of_a.listen(0, ConnectOptions::default()).expect("it listens"));
    let to = SocketAddr::new(a.ip, listener.local_addr().port());
    let caller = b.run(|| of_b.connect(to, &ConnectOptions::default()).expect("it connects"));
    let peer = listener.accept_timeout(LATE).expect("no error").expect("it called");
    let mut listener = Some(listener);
    let mut ends = [Some(caller), Some(peer)];
    for end in ends.iter_mut().flatten() {
        end.send(b"message").expect("connected");
    }
    // Twice: the second child has the state of a parent that has gone on.
    for _ in 0..2 {
        let is_right = in_child(|| {
            misuse(&mut networks, &mut ends, &mut listener);
            true
        });
        assert!(is_right.expect("processes are left"), "a call of the child has not failed");
        let [Some(caller), Some(peer)] = &mut ends else { unreachable!("they are there") };
        exchange(caller, peer);
        exchange(peer, caller);
    }
    let [caller, peer] = ends.map(|end| end.expect("it is there"));
    drop((caller, peer, listener));
    for network in networks.into_iter().flatten() {
        network.shutdown(Duration::ZERO).expect("no port is gone");
    }
}

#[test]
fn drop__in_a_child_leaves_udp_sockets_on_the_loopback_to_the_parent() {
    for progress in [Progress::Shared, Progress::Worker, Progress::Inline] {
        let Some(ns) = namespace() else { return };
        // TCP connections over the loopback come from 127.0.0.1.
        let host = |last| Host { ns: &ns, ifname: "lo", ip: Ipv4Addr::new(127, 0, 0, last).into() };
        check([host(2), host(1)], false, progress);
    }
}

#[test]
fn drop__in_a_child_leaves_af_xdp_sockets_to_the_parent() {
    for progress in [Progress::Shared, Progress::Worker, Progress::Inline] {
        if namespace().is_none() {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("two hosts");
        let host = |ns, ip: Ipv4Addr| Host { ns, ifname: "sw0", ip: ip.into() };
        let hosts = [host(&hosts.a.ns, hosts.a.v4), host(&hosts.b.ns, hosts.b.v4)];
        check(hosts, true, progress);
    }
}
