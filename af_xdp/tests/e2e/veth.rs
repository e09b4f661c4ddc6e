//! Sockets on a real veth pair between two network namespaces.

use crate::support::{Pair, pair_or_skip, roce_frame};
use af_xdp::{
    AttachMode, CopyMode, Frame, Kick, Received, Socket, SocketConfig, Steering, SteeringConfig,
    ToSend, Umem,
};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// The destination of [`roce_frame`].
const TO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 2));

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(300);

/// A socket with its frames and its steering, in the namespace of its thread.
struct End {
    socket: Socket,
    umem: Umem,
    free: Vec<Frame>,
    steering: Option<Steering>,
}

impl End {
    fn open(ifname: &str, attach: AttachMode, change: impl FnOnce(&mut SocketConfig)) -> Self {
        let ifindex = af_xdp::interface_index(ifname).expect("the veth");
        let modes: &'static [AttachMode] = match attach {
            AttachMode::Native => &[AttachMode::Native],
            AttachMode::Generic => &[AttachMode::Generic],
        };
        let steering = SteeringConfig { modes, ..SteeringConfig::new(ifindex) };
        let (steering, rejected) = Steering::attach(&steering).expect("attach");
        assert!(rejected.is_empty());
        assert_eq!(steering.set_addresses([TO]).expect("one address"), 0);
        let mut config = SocketConfig::new(ifindex, 0);
        change(&mut config);
        let (umem, free) = Umem::with_frames(1024, 4096).expect("4 MiB");
        let (socket, _) = Socket::bind(&umem, &config).expect("bind");
        steering.register(0, &socket).expect("queue 0");
        let mut end = Self { socket, umem, free, steering: Some(steering) };
        end.refill(end.socket.fill.size());
        end
    }

    fn refill(&mut self, count: u32) {
        for _ in 0..count {
            let Some(frame) = self.free.pop() else { break };
            if let Err(frame) = self.socket.fill.push(frame) {
                self.free.push(frame);
                break;
            }
        }
        self.socket.fill.publish();
    }

    /// The frames that have arrived; the fill ring is refilled.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut whole = true;
        while let Some(piece) = self.socket.rx.pop() {
            if whole {
                packets.push(Vec::new());
            }
            let packet = packets.last_mut().expect("pushed");
            packet.extend_from_slice(piece.bytes(&self.umem));
            whole = !piece.has_more();
            self.free.push(Received::into_frame(piece));
            self.refill(1);
        }
        assert!(whole, "the kernel publishes whole packets");
        self.socket.rx.release();
        packets
    }

    fn reap(&mut self) {
        while let Some(frame) = self.socket.completion.pop() {
            self.free.push(frame);
        }
        self.socket.completion.release();
    }

    fn send(&mut self, packet: &[u8]) {
        let chunk = self.umem.chunk_len();
        let pieces = packet.len().div_ceil(chunk);
        for (n, part) in packet.chunks(chunk).enumerate() {
            let mut frame = self.free.pop().expect("a free frame");
            self.umem.bytes_mut(&mut frame)[..part.len()].copy_from_slice(part);
            let len = u32::try_from(part.len()).expect("at most a chunk");
            let piece = ToSend { more: n + 1 < pieces, ..ToSend::whole(frame, len) };
            self.socket.tx.push(piece).expect("room in the TX ring");
        }
        self.socket.tx.publish();
    }

    /// Wakes the kernel until the TX ring is empty.
    fn drain(&mut self) {
        let deadline = Instant::now() + LATE;
        while self.socket.tx.pending() > 0 {
            let kick = self.socket.wake_tx().expect("the interface is there");
            assert!(matches!(kick, Kick::Done | Kick::Again), "{kick:?}");
            self.reap();
            assert!(Instant::now() < deadline, "the TX ring does not drain");
        }
    }

    /// Waits until every frame is free or in the fill ring.
    fn assert_no_leak(&mut self) {
        let deadline = Instant::now() + LATE;
        loop {
            self.reap();
            let in_fill = self.socket.fill.pending() as usize;
            if self.free.len() + in_fill == self.umem.chunks() {
                break;
            }
            assert!(Instant::now() < deadline, "{} frames missing", {
                self.umem.chunks() - self.free.len() - in_fill
            });
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.umem.with_kernel() + self.free.len(), 1024);
    }
}

fn turn() -> std::sync::MutexGuard<'static, ()> {
    let lock = crate::support::ONE_AT_A_TIME.lock();
    lock.unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn ends(pair: &Pair, attach: AttachMode, change: fn(&mut SocketConfig)) -> (End, End) {
    let b = pair.b.run(|| End::open("vb", attach, change));
    let a = pair.a.run(|| End::open("va", attach, change));
    (a, b)
}

/// A payload that depends on its number, of a length that does too.
fn payload(number: u64, max: u64) -> Vec<u8> {
    let len = usize::try_from(18 + number * 7919 % (max - 18)).expect("small");
    let mut bytes = vec![0u8; len];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    for (at, byte) in bytes[8..].iter_mut().enumerate() {
        *byte = at.to_le_bytes()[0].wrapping_mul(31) ^ number.to_le_bytes()[0];
    }
    bytes
}

fn cross(a: &mut End, b: &mut End, count: u64, max: u64, window: u64) {
    let mut buffer = vec![0; 65536];
    let (mut sent, mut received) = (0, 0);
    let deadline = Instant::now() + LATE;
    while received < count {
        while sent < count && sent - received < window {
            let len = roce_frame(&payload(sent, max), &mut buffer);
            a.send(&buffer[..len]);
            sent += 1;
        }
        a.drain();
        for packet in b.receive() {
            let len = roce_frame(&payload(received, max), &mut buffer);
            assert!(packet == buffer[..len], "packet {received} differs");
            received += 1;
        }
        assert!(Instant::now() < deadline, "{received} of {count} arrived");
    }
}

#[test]
fn socket__ten_thousand_frames_cross_in_order_and_no_frame_leaks() {
    let _turn = turn();
    for attach in [AttachMode::Native, AttachMode::Generic] {
        let Some(pair) = pair_or_skip(3506, 1) else {
            return;
        };
        let (mut a, mut b) = ends(&pair, attach, |_| ());
        assert_eq!(a.socket.copy_mode(), CopyMode::Copy, "veth does not support zero-copy");
        cross(&mut a, &mut b, 10_000, 3400, 64);
        a.assert_no_leak();
        b.assert_no_leak();
        let statistics = b.socket.statistics().expect("statistics");
        assert_eq!(statistics.rx_dropped, 0);
        assert_eq!((b.socket.rx.bad_descs(), b.socket.rx.bad_indices()), (0, 0));
        assert_eq!(a.socket.completion.bad_addresses(), 0);
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `now`, which is borrowed mutably for it.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    assert_eq!(result, 0);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).expect("after boot")
}

/// Waits until a frame is in the RX ring, and leaves it there.
fn wait_readable(socket: &Socket) {
    let fd = socket.as_fd().as_raw_fd();
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let timeout = i32::try_from(LATE.as_millis()).expect("minutes");
    // SAFETY: one entry, borrowed mutably for the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, timeout) };
    assert_eq!(ready, 1, "no frame arrives");
}

#[test]
fn arrival_ns__is_when_the_frame_reached_the_interface_not_when_it_was_taken() {
    let _turn = turn();
    for attach in [AttachMode::Native, AttachMode::Generic] {
        let Some(pair) = pair_or_skip(3506, 1) else {
            return;
        };
        let (mut a, mut b) = ends(&pair, attach, |_| ());
        let mut buffer = vec![0; 4096];
        let len = roce_frame(&payload(1, 100), &mut buffer);
        for _ in 0..3 {
            let before = monotonic_ns();
            a.send(&buffer[..len]);
            a.drain();
            wait_readable(&b.socket);
            // The frame is in the ring, and its receiver is late.
            let there = monotonic_ns();
            std::thread::sleep(Duration::from_millis(20));
            let piece = b.socket.rx.pop().expect("one frame");
            let arrival = piece.arrival_ns(&b.umem).expect("veth supports metadata");
            assert!(before <= arrival && arrival <= there, "{attach:?}");
            b.free.push(piece.into_frame());
            b.socket.rx.release();
            b.refill(1);
        }
    }
}

#[test]
fn socket__packets_of_several_pieces_cross() {
    let _turn = turn();
    let Some(pair) = pair_or_skip(9000, 1) else {
        return;
    };
    let (mut a, mut b) = ends(&pair, AttachMode::Native, |config| {
        config.multi_buffer = true;
        config.tx_budget = Some(128);
    });
    cross(&mut a, &mut b, 2_000, 8900, 16);
    a.assert_no_leak();
    b.assert_no_leak();
}

#[test]
fn bind__zero_copy_fails_on_veth_and_is_reported() {
    let _turn = turn();
    let Some(pair) = pair_or_skip(1500, 1) else {
        return;
    };
    pair.a.run(|| {
        let ifindex = af_xdp::interface_index("va").expect("va");
        let (umem, _frames) = Umem::with_frames(64, 2048).expect("memory");
        let (_socket, rejected) =
            Socket::bind(&umem, &SocketConfig::new(ifindex, 0)).expect("copy mode");
        assert_eq!(rejected.len(), 1);
        assert_eq!(rejected[0].mode, CopyMode::ZeroCopy);
        let text = rejected[0].error.to_string();
        assert!(text.contains("on va queue 0") && text.contains("zero-copy"), "{text}");

        let missing = SocketConfig::new(ifindex, 7);
        let error = Socket::bind(&umem, &missing).expect_err("no queue 7");
        assert!(error.to_string().contains("no such queue"), "{error}");
        let nowhere = SocketConfig::new(u32::MAX, 0);
        let error = Socket::bind(&umem, &nowhere).expect_err("no such interface");
        assert_eq!(error.errno(), Some(libc::ENODEV));
    });
}

#[test]
fn bind__a_queue_in_use_is_busy_and_a_closed_one_can_be_bound_again() {
    let _turn = turn();
    let Some(pair) = pair_or_skip(1500, 1) else {
        return;
    };
    let (mut a, mut b) = ends(&pair, AttachMode::Native, |_| ());
    cross(&mut a, &mut b, 10, 1000, 10);
    pair.b.run(|| {
        let ifindex = af_xdp::interface_index("vb").expect("vb");
        let (umem, _frames) = Umem::with_frames(64, 2048).expect("memory");
        let mut config = SocketConfig::new(ifindex, 0);
        config.busy_timeout = Duration::from_millis(20);
        let error = Socket::bind(&umem, &config).expect_err("taken");
        assert_eq!(error.errno(), Some(libc::EBUSY));
        let busy_timeout = Duration::from_millis(20);
        let steering = SteeringConfig { busy_timeout, ..SteeringConfig::new(ifindex) };
        let start = Instant::now();
        let error = Steering::attach(&steering).expect_err("a program is attached");
        assert!(start.elapsed() >= busy_timeout, "{:?}", start.elapsed());
        assert!(error.to_string().contains("another XDP program"), "{error}");
    });
    for round in 0..5 {
        drop(b);
        b = pair.b.run(|| End::open("vb", AttachMode::Native, |_| ()));
        cross(&mut a, &mut b, 100 + round, 1000, 32);
    }
    a.assert_no_leak();
    b.assert_no_leak();
}

#[test]
fn attach__waits_for_the_program_of_an_ending_owner() {
    let _turn = turn();
    let Some(pair) = pair_or_skip(1500, 1) else {
        return;
    };
    pair.a.run(|| {
        let ifindex = af_xdp::interface_index("va").expect("va");
        let config = SteeringConfig {
            busy_timeout: Duration::from_secs(60),
            ..SteeringConfig::new(ifindex)
        };
        let (going, _) = Steering::attach(&config).expect("attach");
        let owner = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            drop(going);
        });
        let (_steering, rejected) = Steering::attach(&config).expect("attach after the owner");
        assert!(rejected.is_empty(), "the first mode, not another one: {rejected:?}");
        owner.join().expect("no panic");
    });
}

#[test]
fn steering__roce_to_other_addresses_reaches_the_kernel() {
    let _turn = turn();
    let Some(pair) = pair_or_skip(1500, 1) else {
        return;
    };
    let (mut a, mut b) = ends(&pair, AttachMode::Native, |_| ());
    let mut received = [0; 64];
    let sender = pair.a.run(|| std::net::UdpSocket::bind("10.77.0.1:0").expect("bind"));
    let kernel = pair.b.run(|| std::net::UdpSocket::bind("10.77.0.2:4791").expect("bind"));
    kernel.set_read_timeout(Some(LATE)).expect("not zero");
    // 10.77.0.2 is an address of b's: the kernel delivers frames to addresses that are not in the
    // map.
    let steering = b.steering.as_ref().expect("attached");
    assert_eq!(steering.set_addresses([]).expect("none"), 0);
    sender.send_to(b"to the kernel", "10.77.0.2:4791").expect("sent");
    let len = kernel.recv(&mut received).expect("the kernel's");
    assert_eq!(&received[..len], b"to the kernel");
    assert!(b.receive().is_empty());
    let steering = b.steering.as_ref().expect("attached");
    assert_eq!(steering.set_addresses([TO]).expect("one"), 0);
    cross(&mut a, &mut b, 100, 1000, 32);
}

#[test]
fn bind_shared__a_second_queue_uses_the_same_memory() {
    let _turn = turn();
    let Some(pair) = pair_or_skip(1500, 2) else {
        return;
    };
    pair.b.run(|| {
        let ifindex = af_xdp::interface_index("vb").expect("vb");
        let two = SteeringConfig { slots: 2, ..SteeringConfig::new(ifindex) };
        let (steering, _) = Steering::attach(&two).expect("attach");
        steering.set_addresses([TO]).expect("one address");
        let (umem, mut frames) = Umem::with_frames(256, 4096).expect("memory");
        let (first, _) = Socket::bind(&umem, &SocketConfig::new(ifindex, 0)).expect("queue 0");
        let again = Socket::bind_shared(&first, &SocketConfig::new(ifindex, 0));
        assert!(again.expect_err("its own queue").to_string().contains("own"));
        let mut second =
            Socket::bind_shared(&first, &SocketConfig::new(ifindex, 1)).expect("queue 1");
        steering.register(0, &first).expect("slot 0");
        steering.register(1, &second).expect("slot 1");
        for _ in 0..64 {
            let frame = frames.pop().expect("256");
            second.fill.push(frame).expect("room");
        }
        second.fill.publish();
        // A packet sent on queue 1 of the peer arrives on queue 1.
        let mut a = pair.a.run(|| {
            let ifindex = af_xdp::interface_index("va").expect("va");
            // A veth end delivers to XDP only while its peer has NAPI, which attaching enables.
            let two = SteeringConfig { slots: 2, ..SteeringConfig::new(ifindex) };
            let (steering, _) = Steering::attach(&two).expect("attach");
            let (umem, free) = Umem::with_frames(1024, 4096).expect("memory");
            let (socket, _) = Socket::bind(&umem, &SocketConfig::new(ifindex, 1)).expect("bind");
            End { socket, umem, free, steering: Some(steering) }
        });
        let mut buffer = [0; 256];
        let len = roce_frame(b"over queue one", &mut buffer);
        a.send(&buffer[..len]);
        a.drain();
        let deadline = Instant::now() + LATE;
        let received = loop {
            if let Some(received) = second.rx.pop() {
                break received;
            }
            assert!(Instant::now() < deadline, "nothing on queue 1");
        };
        assert_eq!(received.bytes(second.umem()), &buffer[..len]);
        assert!(first.statistics().expect("statistics").rx_dropped == 0);
    });
}

#[test]
fn steering__everything_but_roce_reaches_the_kernel() {
    let _turn = turn();
    let Some(pair) = pair_or_skip(1500, 1) else {
        return;
    };
    let (mut a, mut b) = ends(&pair, AttachMode::Native, |_| ());
    // TCP needs ARP first: both bypass the sockets.
    let listener = pair.b.run(|| std::net::TcpListener::bind("10.77.0.2:7000").expect("listen"));
    let mut client =
        pair.a.run(|| std::net::TcpStream::connect("10.77.0.2:7000").expect("connect through XDP"));
    let (mut server, _) = listener.accept().expect("accept");
    let data = vec![0x5a; 1 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&data).expect("write");
            client.shutdown(std::net::Shutdown::Write).expect("close");
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).expect("read");
        assert!(got == data);
    });
    cross(&mut a, &mut b, 100, 1000, 32);
}

#[test]
fn wake_tx__reports_an_interface_that_is_down_or_removed() {
    let _turn = turn();
    let Some(pair) = pair_or_skip(1500, 1) else {
        return;
    };
    let (a, _b) = ends(&pair, AttachMode::Native, |_| ());
    pair.a.run(|| crate::support::set_link("va", false)).expect("down");
    assert_eq!(a.socket.wake_tx().expect("still there"), Kick::Down);
    pair.a.run(|| crate::support::set_link("va", true)).expect("up");
    assert_eq!(a.socket.wake_tx().expect("back"), Kick::Done);
    pair.a.run(|| crate::support::remove("va")).expect("gone");
    let error = a.socket.wake_tx().expect_err("gone");
    assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
}

#[test]
fn busy_poll__options_are_accepted_and_veth_has_no_napi_id() {
    let _turn = turn();
    let Some(pair) = pair_or_skip(1500, 1) else {
        return;
    };
    let (a, _b) = ends(&pair, AttachMode::Native, |_| ());
    a.socket.set_busy_poll(Duration::from_micros(20)).expect("SO_BUSY_POLL");
    a.socket.set_prefer_busy_poll(true).expect("prefer");
    a.socket.set_busy_poll_budget(64).expect("budget");
    a.socket.napi_id().expect("readable");
    assert!(a.socket.set_busy_poll(Duration::from_secs(1 << 40)).is_err());
}
