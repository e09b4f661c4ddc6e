//! AF_XDP ports on a real veth pair. They need CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and
//! CAP_SYS_ADMIN (for namespaces). Without them each test prints SKIPPED and the reason, or panics
//! if SPANWIRE_REQUIRE_E2E=1.
#![expect(non_snake_case, reason = "tests are named subject__case")]

use spanwire_base::{Dur, Time, TxMeta};
use spanwire_io::clock::Clock;
use spanwire_io::fork::in_child;
use spanwire_io::net::{Host, IpPrefix, LabConfig, NetNs, Netlink, TwoHosts, VethEnd, VethSpec};
use spanwire_io::port::{Port, reserve};
use spanwire_io::xdp::{SidePoll, Traffic, XdpConfig, XdpDevice, XdpMode, XdpPort, XdpPreference};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Serialises tests that share the machine's cores.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hosts_or_skip(mtu: u32, queues: u32) -> Option<TwoHosts> {
    let config = LabConfig { mtu, queues, ..LabConfig::default() };
    match TwoHosts::anonymous(&config) {
        Ok(hosts) => Some(hosts),
        Err(reason) => {
            eprintln!("SKIPPED: {reason}");
            let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
            assert!(!required, "SPANWIRE_REQUIRE_E2E=1, but skipped: {reason}");
            None
        }
    }
}

fn open(host: &Host, preference: XdpPreference) -> XdpPort {
    let config = XdpConfig { preference, ..XdpConfig::new(&host.ifname) };
    let opened = host.ns.run(|| XdpPort::open(&config)).expect("namespace");
    opened.expect("open")
}

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(300);

const HEADERS: usize = 42;
const SLOTS: usize = 1024 - 256;

/// Writes frame number `number` and returns its length, which depends on the number.
fn write_frame(number: u64, max: usize, into: &mut [u8]) -> usize {
    let span = u64::try_from(max - 64).expect("small");
    let len = 64 + usize::try_from(number.wrapping_mul(2_654_435_761) % span).expect("small");
    let ip_len = u16::try_from(len - 14).expect("an IPv4 packet");
    let frame = &mut into[..len];
    frame[..HEADERS].fill(0);
    frame[..6].fill(0xff);
    frame[6] = 2;
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
    frame[22] = 64;
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    frame[36..38].copy_from_slice(&4791u16.to_be_bytes());
    frame[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    frame[42..50].copy_from_slice(&number.to_be_bytes());
    // xorshift64: every byte depends on the number.
    let mut state = number | 1 << 63;
    for word in frame[50..].chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bytes = state.to_be_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
    len
}

fn send(port: &mut XdpPort, number: u64, max: usize) -> bool {
    let Some(mut slot) = reserve(port) else {
        return false;
    };
    let len = write_frame(number, max, slot.bytes());
    slot.commit(TxMeta::whole(len));
    true
}

/// Sends `count` frames with at most `window` in flight and verifies each, byte by byte.
fn cross(a: &mut XdpPort, b: &mut XdpPort, count: u64, max: usize, window: u64) {
    let mut expected = vec![0; 4096];
    let (mut sent, mut received) = (0, 0);
    let deadline = Instant::now() + LATE;
    while received < count {
        while sent < count && sent - received < window && send(a, sent, max) {
            sent += 1;
        }
        a.flush(Time::ZERO).expect("a is there");
        b.rx_burst(&Time::ZERO, 64, &mut |bytes, _| {
            let len = write_frame(received, max, &mut expected);
            assert!(bytes == &expected[..len], "frame {received} differs");
            received += 1;
        });
        b.flush(Time::ZERO).expect("b is there");
        a.rx_burst(&Time::ZERO, 64, &mut |_, _| panic!("no frame is sent to a"));
        assert!(Instant::now() < deadline, "{received} of {count} arrived");
    }
}

fn assert_all_home(port: &mut XdpPort) {
    let deadline = Instant::now() + LATE;
    while port.free_slots() < SLOTS {
        port.flush(Time::ZERO).expect("there");
        port.rx_burst(&Time::ZERO, 0, &mut |_, _| ());
        assert!(Instant::now() < deadline, "{} slots", port.free_slots());
    }
}

#[test]
fn port__a_hundred_thousand_frames_cross_intact_and_every_buffer_returns() {
    let _turn = turn();
    let modes = [
        (XdpPreference::Auto, XdpMode::NativeCopy, 100_000),
        (XdpPreference::Skb, XdpMode::GenericCopy, 20_000),
    ];
    for (preference, mode, count) in modes {
        let Some(hosts) = hosts_or_skip(2800, 1) else {
            return;
        };
        let mut b = open(&hosts.b, preference);
        let mut a = open(&hosts.a, preference);
        assert_eq!((a.mode(), b.mode()), (mode, mode));
        assert_eq!((a.mtu(), a.frame_room()), (2800, 3840));
        cross(&mut a, &mut b, count, 2800, 128);
        assert_all_home(&mut a);
        assert_all_home(&mut b);
        assert_eq!(a.tx_pending(), 0);
        let (sent, got) = (a.counters(), b.counters());
        assert_eq!((sent.tx_frames, got.rx_frames), (count, count));
        assert_eq!(sent.tx_bytes, got.rx_bytes);
        assert_eq!(sent.tx_completions, count);
        assert_eq!((sent.tx_busy_drops, got.kernel.rx_dropped), (0, 0));
        assert_eq!((got.rx_bad_desc, sent.tx_bad_completion), (0, 0));
        // 32 descriptors a system call, and a kick counts once.
        assert!(sent.tx_kicks >= count / 32, "{} kicks", sent.tx_kicks);
    }
}

#[test]
fn port__side_poll_receives_on_the_callers_core() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let mut a = open(&hosts.a, XdpPreference::Auto);
    let mut b = open(&hosts.b, XdpPreference::Auto);
    let side = |host: &Host| {
        let bound = host.ns.run(|| SidePoll::bind(host.v4.into(), host.ifindex));
        bound.expect("namespace").expect("side socket")
    };
    let (side_a, side_b) = (side(&hosts.a), side(&hosts.b));
    assert!(!side_b.is_active());
    let deadline = Instant::now() + LATE;
    while !(side_a.is_active() && side_b.is_active()) {
        let to = |host: &Host, side: &SidePoll| SocketAddr::new(host.v4.into(), side.local_port());
        side_a.greet(to(&hosts.b, &side_b)).expect("a route to b");
        side_b.greet(to(&hosts.a, &side_a)).expect("a route to a");
        assert!(Instant::now() < deadline, "no NAPI id");
        std::thread::sleep(Duration::from_millis(1));
    }
    a.set_side_poll(side_a);
    b.set_side_poll(side_b);
    cross(&mut a, &mut b, 20_000, 1400, 64);
    assert_all_home(&mut a);
    assert!(a.counters().rx_side_polls > 0);
    assert!(b.side_poll().is_some_and(SidePoll::is_active));
}

#[test]
fn port__a_busy_ring_runs_out_of_slots_and_recovers() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let _b = open(&hosts.b, XdpPreference::Auto);
    let mut a = open(&hosts.a, XdpPreference::Auto);
    let mut count = 0;
    while send(&mut a, count, 1400) {
        count += 1;
    }
    assert_eq!(count, 256, "the TX ring is the limit");
    assert_eq!(a.tx_pending(), 256);
    assert_eq!(a.counters().tx_no_slot, 1);
    // A slot that is returned is not lost.
    a.flush(Time::ZERO).expect("there");
    drop(reserve(&mut a));
    let deadline = Instant::now() + LATE;
    while a.tx_pending() > 0 {
        a.flush(Time::ZERO).expect("there");
        a.rx_burst(&Time::ZERO, 1, &mut |_, _| ());
        assert!(Instant::now() < deadline, "stuck with {}", a.tx_pending());
    }
    assert_all_home(&mut a);
    let counters = a.counters();
    assert!(counters.tx_again > 0, "256 frames do not fit one budget");
    assert_eq!(counters.tx_completions, 256);
}

#[test]
fn port__frames_longer_than_the_mtu_are_dropped_counted_and_completed() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let mut b = open(&hosts.b, XdpPreference::Auto);
    let mut a = open(&hosts.a, XdpPreference::Auto);
    for number in 0..3 {
        let mut slot = reserve(&mut a).expect("a slot");
        write_frame(number, 1400, slot.bytes());
        slot.commit(TxMeta::whole(3000));
    }
    a.flush(Time::ZERO).expect("there");
    assert_all_home(&mut a);
    assert_eq!(a.counters().tx_busy_drops, 3);
    assert_eq!(b.rx_burst(&Time::ZERO, 8, &mut |_, _| ()), 0);
    cross(&mut a, &mut b, 100, 1400, 32);
}

#[test]
fn wait__ends_with_a_frame_or_the_timeout() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let mut b = open(&hosts.b, XdpPreference::Auto);
    let mut a = open(&hosts.a, XdpPreference::Auto);
    let start = Instant::now();
    b.wait(Duration::from_millis(30)).expect("there");
    assert!(start.elapsed() >= Duration::from_millis(30));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            assert!(send(&mut a, 0, 1400));
            a.flush(Time::ZERO).expect("there");
        });
        let start = Instant::now();
        b.wait(LATE).expect("there");
        assert!(start.elapsed() < LATE);
    });
    assert_eq!(b.rx_burst(&Time::ZERO, 8, &mut |_, _| ()), 1);
}

#[test]
fn rx_burst__dates_frames_by_their_arrival_not_by_the_poll() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let mut b = open(&hosts.b, XdpPreference::Auto);
    let mut a = open(&hosts.a, XdpPreference::Auto);
    let clock = Clock::start();
    let (before, late) = (clock.now(), Dur::from_ms(20));
    assert!(send(&mut a, 0, 1400));
    a.flush(before).expect("there");
    // The frame is in the ring when the wait ends, however late that is. The poll is later still.
    b.wait(LATE).expect("there");
    let arrived = clock.now();
    std::thread::sleep(Duration::from_nanos(late.as_ns()));
    let mut metas = Vec::new();
    assert_eq!(b.rx_burst(&clock, 8, &mut |_, meta| metas.push(*meta)), 1);
    // The kernel's clock and this one differ by less than a millisecond.
    let (meta, apart) = (metas[0], Dur::from_ms(1));
    assert!(
        before <= meta.at + apart && meta.at <= arrived + apart,
        "{before:?} {meta:?} {arrived:?}"
    );
    assert_eq!(meta.earliest, meta.at, "the kernel's timestamp is exact");
}

#[test]
fn device__two_queues_are_two_ports() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 2) else {
        return;
    };
    let both = |host: &Host| {
        let ports = host.ns.run(|| {
            let device = XdpDevice::attach(&host.ifname, 2, Traffic::RoceV2, XdpPreference::Auto)?;
            let at = |queue| {
                let config = XdpConfig { queue, ..XdpConfig::new(&host.ifname) };
                XdpPort::open_on(&device, &config)
            };
            Ok::<_, spanwire_io::xdp::XdpError>([at(0)?, at(1)?])
        });
        ports.expect("namespace").expect("two ports")
    };
    let ([mut a0, mut a1], [mut b0, mut b1]) = (both(&hosts.a), both(&hosts.b));
    cross(&mut a0, &mut b0, 1_000, 1400, 32);
    cross(&mut a1, &mut b1, 1_000, 1400, 32);
    assert_eq!((b0.queue(), b1.queue()), (0, 1));
    assert_eq!(b0.counters().rx_frames, b1.counters().rx_frames);
    // The first port is dropped, the second stays, and the first queue can be reopened.
    let device = std::sync::Arc::clone(b0.device());
    drop(b0);
    cross(&mut a1, &mut b1, 100, 1400, 32);
    let config = XdpConfig::new("");
    let again = hosts.b.ns.run(|| XdpPort::open_on(&device, &config));
    let mut b0 = again.expect("namespace").expect("again");
    cross(&mut a0, &mut b0, 100, 1400, 32);
}

/// The port of the parent keeps its queue, and the thread that watches its addresses.
#[test]
fn drop__in_a_forked_process_leaves_the_port_to_the_parent() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else { return };
    let mut ports = Some([&hosts.a, &hosts.b].map(|host| open(host, XdpPreference::Auto)));
    let dropped = in_child(|| {
        drop(ports.take());
        true
    });
    assert!(dropped.expect("processes are left"), "it panicked");
    let [mut a, mut b] = ports.expect("the child took a copy");
    cross(&mut a, &mut b, 1000, 1514, 64);
}

#[test]
fn open__errors_have_advice() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let host = &hosts.a;
    let fails = |config: XdpConfig| {
        let opened = host.ns.run(|| XdpPort::open(&config));
        opened.expect("namespace").expect_err("refused").to_string()
    };
    let text = fails(XdpConfig::new("nowhere0"));
    assert!(text.contains("nowhere0"), "{text}");
    let queue = XdpConfig { queue: 5, ..XdpConfig::new(&host.ifname) };
    let text = fails(queue);
    assert!(text.contains("no such queue"), "{text}");
    let _port = open(host, XdpPreference::Auto);
    let text = fails(XdpConfig::new(&host.ifname));
    assert!(text.contains("another XDP program"), "{text}");
}

#[test]
fn flush__fails_once_the_interface_is_removed() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let mut a = open(&hosts.a, XdpPreference::Auto);
    let mut netlink = Netlink::open_in(&hosts.a.ns).expect("netlink");
    netlink.set_down(&hosts.a.ifname).expect("down");
    assert!(send(&mut a, 0, 1400));
    a.flush(Time::ZERO).expect("down is not removed");
    assert_eq!((a.counters().tx_net_down, a.tx_pending()), (1, 1));
    netlink.delete_link(&hosts.a.ifname).expect("gone");
    let error = a.flush(Time::ZERO).expect_err("gone");
    assert!(error.to_string().contains("is gone"), "{error}");
    let mut idle = open_idle_and_remove();
    let found = (0..10_000).any(|_| idle.flush(Time::ZERO).is_err());
    assert!(found, "an idle port notices as well");
    assert!(idle.wait(Duration::from_millis(1)).is_err());
}

fn open_idle_and_remove() -> XdpPort {
    let hosts = hosts_or_skip(1500, 1).expect("the caller made one");
    let port = open(&hosts.a, XdpPreference::Auto);
    let mut netlink = Netlink::open_in(&hosts.a.ns).expect("netlink");
    netlink.delete_link(&hosts.a.ifname).expect("gone");
    port
}

/// The child of the next test: holds a port, with frames in flight, until it is killed.
#[test]
fn port__child_that_holds_a_port() {
    let Some(ifname) = std::env::var_os(CHILD_IFNAME) else {
        return;
    };
    let ifname = ifname.into_string().expect("an interface name");
    let mut port = XdpPort::open(&XdpConfig::new(ifname)).expect("open");
    for number in 0..100 {
        assert!(send(&mut port, number, 1400));
    }
    port.flush(Time::ZERO).expect("there");
    println!("{CHILD_READY}");
    std::io::stdout().flush().expect("stdout");
    std::thread::sleep(LATE);
}

const CHILD_IFNAME: &str = "SPANWIRE_TEST_XDP_CHILD";
const CHILD_READY: &str = "the port is open";

/// A process that holds the port of a host. Its priority is the highest: once killed, it has to run
/// to end, and the port may wait only 2 s for that.
fn holder_of(host: &Host) -> Child {
    let program = std::env::current_exe().expect("this test");
    let mut command = Command::new("nice");
    command
        .args(["-n", "-20"])
        .arg(program)
        .args(["--exact", "port__child_that_holds_a_port", "--nocapture"])
        .env(CHILD_IFNAME, &host.ifname)
        .stdout(Stdio::piped());
    host.ns.contain(&mut command).expect("namespace");
    let mut child = command.spawn().expect("start the child");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let ready = output.lines().any(|line| line.is_ok_and(|line| line.contains(CHILD_READY)));
    assert!(ready, "the child opened its port");
    child
}

#[test]
fn open__waits_for_the_program_of_a_killed_process() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    for _ in 0..10 {
        let mut child = holder_of(&hosts.a);
        child.kill().expect("SIGKILL");
        // Before the process is reaped: the kernel is still freeing its memory, sockets and
        // program.
        let port = open(&hosts.a, XdpPreference::Auto);
        child.wait().expect("reaped");
        drop(port);
    }
}

/// The number of a frame that is sent after all others.
const LAST_FRAME: u64 = u64::MAX;

#[test]
fn port__the_queue_of_a_killed_process_can_be_reopened() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let mut b = open(&hosts.b, XdpPreference::Auto);
    for _ in 0..3 {
        let mut child = holder_of(&hosts.a);
        child.kill().expect("SIGKILL");
        child.wait().expect("reaped");
        let mut a = open(&hosts.a, XdpPreference::Auto);
        // Frames of the child may still be in flight. A later frame arrives after them.
        assert!(send(&mut a, LAST_FRAME, 1400));
        let (mut is_drained, deadline) = (false, Instant::now() + LATE);
        while !is_drained {
            a.flush(Time::ZERO).expect("there");
            b.rx_burst(&Time::ZERO, 64, &mut |frame, _| {
                is_drained |= frame[HEADERS..HEADERS + 8] == LAST_FRAME.to_be_bytes();
            });
            assert!(Instant::now() < deadline, "the last frame does not arrive");
        }
        cross(&mut a, &mut b, 1_000, 1400, 64);
        assert_all_home(&mut a);
    }
}

#[test]
fn port__receives_roce_to_the_present_addresses_of_the_host() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let prefix = |text: &str| text.parse::<IpPrefix>().expect("a prefix");
    let mut netlink = Netlink::open_in(&hosts.b.ns).expect("netlink");
    let mut b = open(&hosts.b, XdpPreference::Auto);
    let own: [IpAddr; 2] = [hosts.b.v4.into(), hosts.b.v6.into()];
    let mut takes = |to: IpAddr| {
        let mut count = 0;
        let sent = hosts.a.ns.run(|| {
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            UdpSocket::bind(any)?.send_to(b"RoCEv2", (to, 4791))
        });
        sent.expect("namespace").expect("sent");
        for _ in 0..20 {
            b.rx_burst(&Time::ZERO, 64, &mut |_, _| count += 1);
            b.flush(Time::ZERO).expect("there");
            b.wait(Duration::from_millis(1)).expect("there");
        }
        count > 0
    };
    let mut until = |to: IpAddr, taken: bool| {
        let deadline = Instant::now() + LATE;
        while takes(to) != taken {
            assert!(Instant::now() < deadline, "{to} is not {taken}");
        }
    };
    // b replies to an ARP request for an IPv4 address of any of its interfaces.
    netlink.add_address("lo", prefix("10.77.0.99/32")).expect("privileged");
    until(prefix("10.77.0.99/32").addr(), true);
    own.into_iter().for_each(|address| until(address, true));
    netlink.flush_addresses("lo").expect("privileged");
    own.into_iter().for_each(|address| until(address, true));
    for later in ["10.77.0.98/24", "fd77::98/64"].map(prefix) {
        netlink.add_address("sw0", later).expect("privileged");
        until(later.addr(), true);
    }
    // Only its own addresses: a has a route, and b's kernel gets the packet.
    netlink.flush_addresses("sw0").expect("privileged");
    own.into_iter().for_each(|address| until(address, false));
}

/// A port on an interface of a bridge receives frames to an address of the bridge, and none that
/// the bridge forwards.
#[test]
fn port__leaves_bridged_roce_to_the_kernel() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    // Behind host b: the bridge is in b, and host a reaches c across it.
    let c = NetNs::new_anonymous().expect("privileged");
    let (near, far) = (VethEnd { ns: &hosts.b.ns, name: "c0" }, VethEnd { ns: &c, name: "sw0" });
    VethSpec { a: near, b: far, mtu: 1500, queues: 1 }.create().expect("privileged");
    let mut at_b = Netlink::open_in(&hosts.b.ns).expect("netlink");
    at_b.flush_addresses("sw0").expect("privileged");
    let mut ip = hosts.b.ns.command("sh").expect("namespace");
    let commands = "ip link add br0 type bridge mcast_snooping 0 && ip link set br0 up && \
                    ip link set sw0 master br0 && ip link set c0 master br0 up";
    let done = ip.args(["-c", commands]).output().expect("iproute2 is there");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let prefix = |text: &str| text.parse::<IpPrefix>().expect("a prefix");
    at_b.add_address("br0", prefix("10.77.0.2/24")).expect("privileged");
    let mut at_c = Netlink::open_in(&c).expect("netlink");
    at_c.set_up("sw0").expect("privileged");
    at_c.add_address("sw0", prefix("10.77.0.3/24")).expect("privileged");

    let mut port = open(&hosts.b, XdpPreference::Auto);
    let bind = |ns: &NetNs, port| ns.run(|| UdpSocket::bind(("0.0.0.0", port)));
    let sender = bind(&hosts.a.ns, 0).expect("namespace").expect("any port");
    let receiver = bind(&c, 4791).expect("namespace").expect("the port is free");
    receiver.set_read_timeout(Some(LATE)).expect("not zero");
    for n in 0_u32..100 {
        sender.send_to(&n.to_be_bytes(), "10.77.0.3:4791").expect("sent");
        let mut bytes = [0; 64];
        let len = receiver.recv(&mut bytes).expect("it crosses");
        assert_eq!(bytes[..len], n.to_be_bytes());
    }
    sender.send_to(b"for b", "10.77.0.2:4791").expect("sent");
    let mut taken = Vec::new();
    let deadline = Instant::now() + LATE;
    while taken.is_empty() {
        port.wait(Duration::from_millis(10)).expect("there");
        port.rx_burst(&Time::ZERO, 64, &mut |frame, _| taken.push(frame[42..47].to_vec()));
        port.flush(Time::ZERO).expect("there");
        assert!(Instant::now() < deadline, "nothing for b");
    }
    assert_eq!(taken, [b"for b"]);
}

/// The kernel of the host gets what a port does not receive; with all traffic it gets nothing.
#[test]
fn open__all_traffic_goes_to_the_port() {
    let _turn = turn();
    let Some(hosts) = hosts_or_skip(1500, 1) else {
        return;
    };
    let host = &hosts.a;
    let promiscuous = || {
        let mut cat = host.ns.command("cat").expect("namespace");
        let flags = cat.arg("/sys/class/net/sw0/flags").output().expect("cat").stdout;
        let text = String::from_utf8(flags).expect("digits");
        let digits = text.trim().strip_prefix("0x").expect("hexadecimal");
        u32::from_str_radix(digits, 16).expect("flags") & 0x100 != 0
    };
    assert!(!promiscuous());
    let config = XdpConfig { traffic: Traffic::All, ..XdpConfig::new(&host.ifname) };
    let opened = host.ns.run(|| XdpPort::open(&config)).expect("namespace");
    let mut port = opened.expect("open");
    assert!(promiscuous());

    // The kernel of b sends ARP requests for a's address. a's kernel would reply; the port does
    // not.
    let to = SocketAddr::new(hosts.a.v4.into(), 7);
    let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(50));
    let tried = hosts.b.ns.run(connect).expect("namespace");
    assert!(tried.is_err());
    let (mut types, deadline) = (Vec::new(), Instant::now() + LATE);
    while !types.contains(&0x0806) {
        port.rx_burst(&Time::ZERO, 64, &mut |frame, _| {
            types.push(u16::from_be_bytes([frame[12], frame[13]]));
        });
        assert!(Instant::now() < deadline, "no ARP among {types:x?}");
    }
    drop(port);
    assert!(!promiscuous());
    let tried = hosts.b.ns.run(|| TcpStream::connect_timeout(&to, LATE));
    let refused = tried.expect("namespace").expect_err("no socket listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}
