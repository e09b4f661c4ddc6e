mod fragments;
mod group;
mod lent;

use super::checksum::testing::{SUM, sum};
use super::headers::Flow;
use super::*;
use crate::clock::Clock;
use crate::port::reserve;
use std::net::{SocketAddr, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);
const SRC_PORT: u16 = 0xd00d;

/// One time line for all tests.
fn clock() -> Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    *CLOCK.get_or_init(Clock::start)
}

/// An address of the loopback that no other test uses.
fn loopback() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let [_, a, b, c] = std::process::id().wrapping_mul(64).to_be_bytes();
    let [.., n] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    Ipv4Addr::new(127, a | 1, b, c.wrapping_add(n + 1)).into()
}

fn open(local: IpAddr, change: impl FnOnce(&mut UdpConfig)) -> UdpPort {
    let mut config = UdpConfig { local: Some(local), ..UdpConfig::new("lo") };
    config.checksum = Some(SUM);
    config.ip_bytes_max = 1500;
    change(&mut config);
    UdpPort::open(&config).expect("the address is free")
}

/// Two ports of one IP version, each at a UDP port of its own.
fn pair(is_v6: bool) -> [UdpPort; 2] {
    if !is_v6 {
        return [(); 2].map(|()| open(loopback(), |_| {}));
    }
    let local = IpAddr::V6(Ipv6Addr::LOCALHOST);
    [(); 2].map(|()| {
        let free = UdpSocket::bind((local, 0)).and_then(|socket| socket.local_addr());
        open(local, |config| config.port = free.expect("loopback").port())
    })
}

/// A frame from `from` to `to` with `len` bytes of payload that `number` determines, sealed.
fn frame(from: &UdpPort, to: &UdpPort, tos: u8, number: usize, len: usize) -> Vec<u8> {
    let (src, dst, src_port) = (at(from).ip(), at(to), SRC_PORT);
    let (dst, dst_port) = (dst.ip(), dst.port());
    let flow = Flow { src, dst, src_port, dst_port, tos, hop_limit: 33 };
    let head = flow.header_len();
    let mut frame: Vec<u8> = vec![0; head];
    flow.write(0, u16::try_from(len).unwrap(), &mut frame);
    frame.extend((0..len).map(|n| (n * 3 + number).to_le_bytes()[0]));
    let covered = frame.len() - 4;
    let sum = sum(&frame[14..covered]);
    frame[covered..].copy_from_slice(&sum.to_le_bytes());
    frame
}

/// The address that a port receives at.
fn at(port: &UdpPort) -> SocketAddr {
    let socket = port.receiver.socket.try_clone().expect("a descriptor");
    UdpSocket::from(socket).local_addr().expect("bound")
}

fn commit(port: &mut UdpPort, frame: &[u8]) {
    let mut slot = reserve(port).expect("a free buffer");
    slot.bytes()[..frame.len()].copy_from_slice(frame);
    slot.commit(TxMeta::whole(frame.len()));
}

fn send(port: &mut UdpPort, frames: &[Vec<u8>]) {
    frames.iter().for_each(|frame| commit(port, frame));
    port.flush(Time::ZERO).expect("the interface is there");
    assert_eq!(port.tx_pending(), 0);
}

/// The frames received until there are `count`, or more.
fn receive(port: &mut UdpPort, count: usize, max: usize) -> Vec<(Vec<u8>, RxMeta)> {
    let clock = clock();
    let mut frames = Vec::new();
    let deadline = Instant::now() + LATE;
    while frames.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} frames arrived", frames.len());
        port.wait(LATE).expect("the socket is there");
        port.rx_burst(&clock, max, &mut |frame, meta| {
            assert!(meta.earliest <= meta.at && meta.at <= clock.now());
            frames.push((frame.to_vec(), *meta));
        });
    }
    frames
}

/// True if the checksum in the last four bytes is right.
fn is_sealed(frame: &[u8]) -> bool {
    frame[14..].split_last_chunk().is_some_and(|(of, sent)| sum(of) == u32::from_le_bytes(*sent))
}

/// The IP packet without what a socket does not preserve: IPv4's identification and checksum.
fn comparable(frame: &[u8]) -> Vec<u8> {
    let mut packet = frame[14..].to_vec();
    if packet[0] == 0x45 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
        let end = packet.len() - 4;
        packet[end..].fill(0);
    }
    packet
}

#[test]
fn port__frames_cross_with_tos_and_hop_limit_in_runs_over_ipv4_and_ipv6() {
    for is_v6 in [false, true] {
        let [mut a, mut b] = pair(is_v6);
        // Two flows; runs end at a shorter frame, at a longer one and at another TOS.
        let shapes: [(u8, usize); 12] = [
            (2, 1000),
            (2, 1000),
            (2, 1000),
            (2, 600),
            (2, 1000),
            (2, 1200),
            (3, 1200),
            (3, 1200),
            (1, 1200),
            (0x6a, 64),
            (0, 16),
            (0, 16),
        ];
        let frames: Vec<Vec<u8>> =
            shapes.iter().enumerate().map(|(n, (tos, len))| frame(&a, &b, *tos, n, *len)).collect();
        send(&mut a, &frames);
        let received = receive(&mut b, frames.len(), 64);
        for (n, ((got, _), sent)) in received.iter().zip(&frames).enumerate() {
            assert_eq!(comparable(got), comparable(sent), "frame {n}");
            assert!(is_sealed(got), "frame {n}");
        }
        assert_eq!(received.len(), frames.len());
        let (sent, got) = (a.counters(), b.counters());
        assert_eq!((sent.tx_frames, got.rx_frames), (12, 12));
        assert_eq!(sent.tx_calls, 7, "runs of 4, 1, 1, 2, 1, 1 and 2");
        assert_eq!((sent.tx_other_source, got.rx_unidentified), (0, 0));
        assert_eq!(got.rx_coalesced, 8, "loopback does not split what was sent at once");
    }
}

#[test]
fn rx_burst__a_run_longer_than_the_burst_is_delivered_in_parts() {
    let [mut a, mut b] = pair(false);
    let frames: Vec<Vec<u8>> = (0..100).map(|n| frame(&a, &b, 2, n, 1400)).collect();
    send(&mut a, &frames);
    // A run has at most 65,487 bytes.
    assert_eq!(a.counters().tx_calls, 3);
    let clock = clock();
    b.wait(LATE).expect("the socket is there");
    let mut lens = Vec::new();
    assert_eq!(b.rx_burst(&clock, 10, &mut |frame, _| lens.push(frame.len())), 10);
    assert!(b.poll_fd().is_none(), "it holds frames that the socket does not report");
    b.wait(LATE).expect("returns at once");
    lens.extend(receive(&mut b, 90, 7).iter().map(|(frame, _)| frame.len()));
    assert_eq!(lens, vec![42 + 1400; 100]);
    assert!(b.poll_fd().is_some());
}

#[test]
fn rx_burst__the_first_of_a_run_is_dated_and_the_others_lie_behind_it() {
    let [mut a, mut b] = pair(false);
    let frames: Vec<Vec<u8>> = (0..4).map(|n| frame(&a, &b, 2, n, 500)).collect();
    send(&mut a, &frames);
    let received = receive(&mut b, 4, 64);
    let first = received[0].1;
    assert_eq!(first.earliest, first.at, "a stamp");
    for (_, meta) in &received[1..] {
        assert_eq!(meta.earliest, first.at);
        assert!(meta.at >= first.at);
    }
}

#[test]
fn flush__frames_of_several_flows_form_a_run_each_in_their_order() {
    let [mut a, mut b] = pair(false);
    let of_port = |n: usize| {
        let mut frame = frame(&a, &b, 2, n, 300 + n / 30);
        let port = SRC_PORT + u16::try_from(n % 3).unwrap();
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame
    };
    let frames: Vec<Vec<u8>> = (0..60).map(of_port).collect();
    send(&mut a, &frames);
    assert_eq!(a.counters().tx_calls, 6, "a run of each length and flow");
    let received = receive(&mut b, 60, 64);
    for flow in 0..3 {
        let port = (SRC_PORT + flow).to_be_bytes();
        let payloads = |frames: &mut dyn Iterator<Item = &Vec<u8>>| -> Vec<Vec<u8>> {
            let ours = frames.filter(|frame| frame[34..36] == port);
            ours.map(|frame| frame[42..frame.len() - 4].to_vec()).collect()
        };
        let sent = payloads(&mut frames.iter());
        assert_eq!(sent.len(), 20);
        assert_eq!(payloads(&mut received.iter().map(|(frame, _)| frame)), sent);
    }
}

#[test]
fn flush__a_source_port_that_is_taken_is_replaced_and_the_checksum_adjusted() {
    let [mut a, mut b] = pair(false);
    let _taken = UdpSocket::bind((at(&a).ip(), SRC_PORT)).expect("free until now");
    let frames: Vec<Vec<u8>> = (0..3).map(|n| frame(&a, &b, 2, n, 400)).collect();
    send(&mut a, &frames);
    for (got, _) in receive(&mut b, 3, 64) {
        assert!(is_sealed(&got));
        assert_eq!(got[34..36], a.source_port().to_be_bytes());
    }
    assert_eq!(a.counters().tx_other_source, 3);
}

#[test]
fn flush__frames_that_cannot_be_sent_are_counted_and_their_buffers_return() {
    let [mut a, b] = pair(false);
    let free = a.sender.free.len();
    let good = frame(&a, &b, 2, 0, 100);
    // Neither UDP, nor from an address of this host, nor of the port's IP version.
    commit(&mut a, &[0; 60]);
    let mut foreign = good.clone();
    foreign[26..30].copy_from_slice(&[192, 0, 2, 1]);
    commit(&mut a, &foreign);
    let [six, other] = pair(true);
    commit(&mut a, &frame(&six, &other, 2, 0, 100));
    commit(&mut a, &good);
    a.flush(Time::ZERO).expect("the interface is there");
    let counters = a.counters();
    assert_eq!((counters.tx_not_udp, counters.tx_rejected, counters.tx_no_source), (1, 1, 1));
    assert_eq!((counters.tx_frames, a.sender.free.len()), (1, free));
}

#[test]
fn flush__a_run_that_the_kernel_rejects_leaves_one_by_one_and_soon_no_other_is_tried() {
    let [mut a, mut b] = pair(false);
    let first = frame(&a, &b, 2, 0, 400);
    send(&mut a, std::slice::from_ref(&first));
    let source = a.sender.sources.find(Time::ZERO, SRC_PORT, false).expect("bound");
    // Without UDP checksums the kernel does not segment.
    sockopt::set(a.sender.sources.socket(source), libc::SOL_SOCKET, libc::SO_NO_CHECK, &1u32)
        .unwrap();
    for round in 1..=9 {
        let frames: Vec<Vec<u8>> = (0..3).map(|n| frame(&a, &b, 2, n, 400)).collect();
        send(&mut a, &frames);
        let counters = a.counters();
        assert_eq!((counters.tx_unsegmented, counters.tx_rejected), (round.min(8), 0));
        assert_eq!(counters.tx_calls, 1 + 3 * round);
    }
    let received = receive(&mut b, 28, 64);
    assert!(received.iter().all(|(frame, _)| is_sealed(frame)));
}

#[test]
fn rx_burst__hostile_datagrams_end_in_frames_or_counters() {
    let mut port = open(loopback(), |config| config.ip_bytes_max = 1280);
    let to = at(&port);
    let stranger = UdpSocket::bind((loopback(), 0)).expect("loopback");
    // Empty, too short for any header, and as long as the longest frame.
    for len in [0, 1, 3, 19, 1252] {
        stranger.send_to(&vec![0xa5; len], to).expect("loopback");
    }
    let frames = receive(&mut port, 5, 64);
    let lens: Vec<usize> = frames.iter().map(|(frame, _)| frame.len() - 42).collect();
    assert_eq!(lens, [0, 1, 3, 19, 1252]);
    assert_eq!(port.counters().rx_unidentified, 5, "none has a checksum that is right");
    // Longer than a frame may be, up to the longest datagram; the good one marks the end.
    for len in [1253, 9000, 65_507, 8] {
        stranger.send_to(&vec![0; len], to).expect("loopback");
    }
    assert_eq!(receive(&mut port, 1, 64).len(), 1);
    assert_eq!(port.counters().rx_too_long, 3);
    // A buffer shorter than a datagram, as if the kernel had one that is longer than allowed.
    port.receiver.buffer = vec![0; rx::HEADROOM + 100].into();
    for len in [101, 100] {
        stranger.send_to(&vec![0; len], to).expect("loopback");
    }
    assert_eq!(receive(&mut port, 1, 64).len(), 1);
    assert_eq!(port.counters().rx_truncated, 1);
}

#[test]
fn rx_burst__runs_of_strangers_do_not_mix_with_ours() {
    let [mut a, mut b] = pair(false);
    let stranger = UdpSocket::bind((loopback(), 0)).expect("loopback");
    let to = at(&b);
    // Segments of 7 bytes, and a last one of 2.
    let seven = 7u32;
    sockopt::set(&stranger, libc::SOL_UDP, libc::UDP_SEGMENT, &seven).expect("a new kernel");
    for round in 0..20 {
        let frames: Vec<Vec<u8>> = (0..3).map(|n| frame(&a, &b, 2, n, 300)).collect();
        send(&mut a, &frames);
        stranger.send_to(&[round; 30], to).expect("loopback");
    }
    let received = receive(&mut b, 20 * 8, 64);
    let (ours, theirs): (Vec<_>, Vec<_>) = received
        .iter()
        .map(|(frame, _)| frame)
        .partition(|frame| frame[34..36] == SRC_PORT.to_be_bytes());
    assert_eq!((ours.len(), theirs.len()), (60, 100));
    assert!(ours.iter().all(|frame| is_sealed(frame)));
    assert!(theirs.iter().all(|frame| matches!(frame.len() - 42, 7 | 2)));
}

/// The kernel coalesces by addresses, ports and length, so the packets of a forger of all three may
/// lie in the run of another sender. The run of one send has the same bytes.
#[test]
fn rx_burst__each_segment_of_a_run_of_two_senders_is_verified_by_itself() {
    let mut port = open(loopback(), |_| {});
    let sender = UdpSocket::bind((loopback(), 0)).expect("loopback");
    let from = sender.local_addr().expect("bound");
    let (src, dst, src_port, dst_port) = (from.ip(), at(&port).ip(), from.port(), at(&port).port());
    let flow = Flow { src, dst, src_port, dst_port, tos: 0, hop_limit: 64 };
    // Identifications of two senders that count by themselves, and packets without a checksum.
    let ids = [Some(0), Some(0), None, Some(1), Some(1), None, None, Some(2), Some(127), Some(2)];
    let segment = |(n, id): (usize, &Option<u16>)| {
        let mut packet: Vec<u8> = vec![0; flow.header_len()];
        flow.write(id.unwrap_or(0), 100, &mut packet);
        packet.extend([n.to_le_bytes()[0]; 96]);
        let sum = sum(&packet[14..]) ^ if id.is_some() { 0 } else { 0xdead_beef };
        packet.extend(sum.to_le_bytes());
        packet[flow.header_len()..].to_vec()
    };
    let segments: Vec<Vec<u8>> = ids.iter().enumerate().map(segment).collect();
    let hundred = 100u32;
    sockopt::set(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, &hundred).expect("a new kernel");
    sender.send_to(&segments.concat(), at(&port)).expect("loopback");
    let received = receive(&mut port, ids.len(), 64);
    for (n, (frame, _)) in received.iter().enumerate() {
        assert_eq!(frame[42..], segments[n], "segment {n}");
        assert_eq!(is_sealed(frame), ids[n].is_some(), "segment {n}");
        if let Some(id) = ids[n] {
            assert_eq!(frame[18..20], id.to_be_bytes(), "segment {n}");
        }
    }
    let counters = port.counters();
    assert_eq!((counters.rx_calls, counters.rx_coalesced), (1, 10));
    assert_eq!(counters.rx_unidentified, 3);
}

#[test]
fn rx_burst__a_flood_into_a_small_buffer_is_lost_and_counted() {
    let [mut a, _] = pair(false);
    let mut b = open(loopback(), |config| config.receive_buffer = 8192);
    assert!(b.receive_buffer() <= 2 * 8192, "{}", b.receive_buffer());
    let burst: Vec<Vec<u8>> = (0..50).map(|n| frame(&a, &b, 2, n, 900 + n)).collect();
    send(&mut a, &burst);
    let mut received = receive(&mut b, 1, 64).len();
    // The drops are reported with the next datagram.
    send(&mut a, &burst[..1]);
    received += receive(&mut b, 1, 64).len();
    let lost = usize_from(b.counters().rx_overflow);
    assert!(lost > 0);
    assert_eq!(received + lost, 51);
}

#[test]
fn open__says_who_may_have_the_port() {
    let local = loopback();
    let config = UdpConfig { local: Some(local), ..UdpConfig::new("lo") };
    let _first = UdpPort::open(&config).expect("free");
    let text = UdpPort::open(&config).expect_err("taken").to_string();
    for words in [&local.to_string(), "4791", "rxe", "another Spanwire"] {
        assert!(text.contains(words), "{text}");
    }
    let elsewhere = UdpConfig { local: "192.0.2.1".parse().ok(), ..UdpConfig::new("lo") };
    let text = UdpPort::open(&elsewhere).expect_err("not ours").to_string();
    assert!(text.contains("no address of this machine"), "{text}");
    let text = UdpPort::open(&UdpConfig::new("sw-none")).expect_err("no interface").to_string();
    assert!(text.contains("sw-none"), "{text}");
}

#[test]
fn open__at_any_address_takes_both_ip_versions() {
    let free = UdpSocket::bind("[::]:0").and_then(|socket| socket.local_addr());
    let port = free.expect("IPv6").port();
    let mut b = UdpPort::open(&UdpConfig { port, ..UdpConfig::new("lo") }).expect("free");
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    stranger.send_to(b"four", ("127.0.0.1", port)).expect("loopback");
    let six = UdpSocket::bind("[::1]:0").expect("loopback");
    six.send_to(b"six", ("::1", port)).expect("loopback");
    let received = receive(&mut b, 2, 64);
    let flows: Vec<Flow> = received.iter().map(|(f, _)| Flow::read(f).expect("UDP").0).collect();
    assert_eq!(flows[0].dst, IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(flows[1].dst, IpAddr::V6(Ipv6Addr::LOCALHOST));
    assert_eq!(
        [flows[0].src_port, flows[1].src_port],
        [&stranger, &six].map(|socket| { socket.local_addr().expect("bound").port() })
    );
    assert!(flows.iter().all(|flow| flow.dst_port == port && flow.hop_limit == 64));
}
