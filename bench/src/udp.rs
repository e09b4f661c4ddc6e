//! Raw UDP through kernel sockets with segmentation offload: the throughput of datagrams without a
//! transport, the upper bound for a transport over them.
//!
//! A call sends up to 64 datagrams of one size (`UDP_SEGMENT`), and a call receives as many
//! (`UDP_GRO`). Each has a number; its payload is copied from the buffer of the call to its place
//! in a region, as a transport does. The sender keeps a window of bytes in flight, which fits the
//! receiver's socket buffer, and the receiver acknowledges cumulatively.

use crate::raw::{Places, both_sides, stop_after, watched};
use crate::sample::{Error, Rate, Sample};
use af_xdp::sockopt;
use socket2::SockRef;
use spanwire_base::{u64_from, usize_from};
use spanwire_io::net::{Host, TwoHosts};
use spanwire_mem::Region;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The datagrams of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    /// UDP payload of a datagram, a number and payload of the application.
    segment: usize,
    /// Datagrams of a call.
    segments: usize,
}

impl Layout {
    /// The largest datagrams that cross a link of this MTU over IPv4 in one packet each.
    fn of(link_mtu: u32) -> Self {
        let segment = usize_from(link_mtu.into()).min(IP_BYTES_MAX) - IP_UDP_BYTES;
        Self { segment, segments: (UDP_BYTES_MAX / segment).min(SEGMENTS_MAX) }
    }

    fn payload(self) -> usize {
        self.segment - NUMBER_BYTES
    }

    fn call_bytes(self) -> usize {
        self.segment * self.segments
    }
}

/// Progress of both threads.
#[derive(Debug, Default)]
struct Shared {
    /// The time is over: the sender ends.
    stop: AtomicBool,
    /// Calls that received data.
    bursts: AtomicU32,
    /// Datagrams sent in all, once the sender has ended.
    sent: AtomicU64,
    has_sent: AtomicBool,
}

/// Measures one direction, from host `a` on the first core to `b` on the second for `time`, both
/// spinning. Memory of `source_bytes` is sent in turn, so that a processor's cache may hold it or
/// not. The hosts have no XDP program, and their offloads are on.
///
/// # Errors
/// A socket fails, or nothing arrives.
pub fn blast(
    hosts: &TwoHosts,
    cores: [usize; 2],
    (link_mtu, source_bytes): (u32, usize),
    time: Duration,
) -> Result<Sample, Error> {
    let layout = Layout::of(link_mtu);
    let (a, b) = connect(&hosts.a, &hosts.b)?;
    enable(&a, libc::UDP_SEGMENT, layout.segment)?;
    enable(&b, libc::UDP_GRO, 1)?;
    let window = window(&b, layout)?;
    let shared = Shared::default();
    let timed = || stop_after(time, &shared.bursts, &shared.stop);
    let (_, (sent, received)) = both_sides(timed, || {
        both_sides(
            || watched(cores[0], || send(&a, layout, (window, source_bytes), &shared)),
            || watched(cores[1], || receive(&b, layout, window, &shared)),
        )
    });
    let (packets_per_call, use_a) = sent?;
    let (rate, use_b) = received?;
    Ok(Sample::rate(Rate { packets_per_call, ..rate }, [use_a, use_b]))
}

/// A socket on each host, connected to the other.
fn connect(a: &Host, b: &Host) -> Result<(UdpSocket, UdpSocket), Error> {
    let bind = |host: &Host| host.ns.run(|| UdpSocket::bind((host.v4, 0)));
    let (at_a, at_b) = (bind(a)??, bind(b)??);
    at_a.connect(at_b.local_addr()?)?;
    at_b.connect(at_a.local_addr()?)?;
    for socket in [&at_a, &at_b] {
        socket.set_nonblocking(true)?;
    }
    Ok((at_a, at_b))
}

fn enable(socket: &UdpSocket, option: libc::c_int, value: usize) -> Result<(), Error> {
    let value = libc::c_int::try_from(value)?;
    sockopt::set(socket, libc::SOL_UDP, option, &value)
        .map_err(|e| format!("this kernel has no UDP segmentation offload: {e}").into())
}

/// Datagrams in flight: a quarter of the receiver's buffer, since the kernel accounts for its own
/// memory in it; one call at least.
fn window(receiver: &UdpSocket, layout: Layout) -> Result<u64, Error> {
    let socket = SockRef::from(receiver);
    socket.set_recv_buffer_size(WINDOW_BYTES_MAX * 4)?;
    let bytes = (socket.recv_buffer_size()? / 4).min(WINDOW_BYTES_MAX);
    Ok(u64_from((bytes / layout.segment).max(layout.segments)))
}

/// Sends while the window allows. Returns the datagrams of a call, in the mean.
fn send(
    socket: &UdpSocket,
    layout: Layout,
    (window, source_bytes): (u64, usize),
    shared: &Shared,
) -> Result<f64, Error> {
    let mut source = Places::new(layout.call_bytes(), source_bytes);
    let (mut next, mut acked, mut calls) = (0, 0, 0u64);
    let mut last_progress = Instant::now();
    let segments = u64_from(layout.segments);
    while !shared.stop.load(Ordering::Relaxed) {
        let mut latest = acked;
        let mut ack = [0; NUMBER_BYTES];
        while now(socket.recv(&mut ack))? == Some(NUMBER_BYTES) {
            latest = latest.max(u64::from_be_bytes(ack).min(next));
        }
        let mut has_sent = false;
        if next - latest + segments <= window {
            let call = source.next();
            for (number, segment) in (next..).zip(call.chunks_exact_mut(layout.segment)) {
                segment[..NUMBER_BYTES].copy_from_slice(&number.to_be_bytes());
            }
            if now(socket.send(call))?.is_some() {
                next += segments;
                calls += 1;
                has_sent = true;
            }
        }
        if latest > acked || has_sent {
            acked = latest;
            last_progress = Instant::now();
        } else if last_progress.elapsed() > STALL {
            // A loss: continue as if it had arrived. The receiver counts it.
            acked = next;
            last_progress = Instant::now();
        }
    }
    shared.sent.store(next, Ordering::Relaxed);
    shared.has_sent.store(true, Ordering::Release);
    Ok(next as f64 / (calls as f64).max(1.0))
}

/// Receives until all datagrams have arrived, or none has for a while after the sender's end.
fn receive(
    socket: &UdpSocket,
    layout: Layout,
    window: u64,
    shared: &Shared,
) -> Result<Rate, Error> {
    let payload = layout.payload();
    let region = Region::try_zeroed(REGION_BYTES / payload * payload)?;
    let places = u64_from(region.len() / payload);
    let mut buffer = vec![0; UDP_BYTES_MAX + 1];
    let (mut count, mut next, mut acked) = (0u64, 0u64, 0u64);
    let (mut first, mut last) = (None, Instant::now());
    loop {
        let Some(len) = now(socket.recv(&mut buffer))? else {
            if acked < next && last.elapsed() > IDLE_ACK {
                now(socket.send(&next.to_be_bytes()))?;
                acked = next;
            }
            let is_complete = || count == shared.sent.load(Ordering::Relaxed);
            let has_sent = shared.has_sent.load(Ordering::Acquire);
            match has_sent && (is_complete() || last.elapsed() > LAST_WAIT) {
                true => break,
                false => continue,
            }
        };
        for datagram in buffer[..len].chunks(layout.segment) {
            let (number, bytes) = datagram.split_first_chunk().ok_or("a datagram has no number")?;
            let number = u64::from_be_bytes(*number);
            region.copy_in(usize_from(number % places) * payload, bytes)?;
            next = next.max(number + 1);
            count += 1;
        }
        last = Instant::now();
        first.get_or_insert((last, count));
        shared.bursts.fetch_add(1, Ordering::Relaxed);
        if next - acked >= window / 4 {
            now(socket.send(&next.to_be_bytes()))?;
            acked = next;
        }
    }
    let (start, before) = first.ok_or("nothing arrived")?;
    let lost = shared.sent.load(Ordering::Relaxed).saturating_sub(count);
    let seconds = last.duration_since(start).as_secs_f64();
    let rate = Rate::of_packets(count - before, payload, seconds, lost);
    Ok(Rate { bytes: count * u64_from(payload), ..rate })
}

/// `None` if the call would block. An ICMP error of an earlier datagram is none of this call.
fn now(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The longest IPv4 packet, and its headers without options.
const IP_BYTES_MAX: usize = 65_535;
const IP_UDP_BYTES: usize = 20 + 8;
/// Payload of a call, and its datagrams (`UDP_MAX_SEGMENTS` of older kernels).
const UDP_BYTES_MAX: usize = IP_BYTES_MAX - IP_UDP_BYTES;
const SEGMENTS_MAX: usize = 64;
const NUMBER_BYTES: usize = 8;
/// The memory of sixteen messages of the engine.
const REGION_BYTES: usize = 16 << 20;
const WINDOW_BYTES_MAX: usize = 1 << 20;
const IDLE_ACK: Duration = Duration::from_micros(20);
const STALL: Duration = Duration::from_millis(5);
const LAST_WAIT: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout__fills_the_packets_and_the_calls() {
        let of = |mtu| Layout::of(mtu);
        assert_eq!(of(1500), Layout { segment: 1472, segments: 44 });
        assert_eq!(of(9000), Layout { segment: 8972, segments: 7 });
        assert_eq!(of(65_535), Layout { segment: 65_507, segments: 1 });
        assert_eq!(of(1280).segments, 52);
        for mtu in 1280..=65_535 {
            assert!(of(mtu).call_bytes() <= UDP_BYTES_MAX, "{mtu}");
        }
    }

    /// Over loopback, without namespaces.
    #[test]
    fn send_and_receive__all_datagrams_are_counted_once() {
        let [a, b] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        let layout = Layout::of(1500);
        for socket in [&a, &b] {
            socket.set_nonblocking(true).unwrap();
        }
        enable(&a, libc::UDP_SEGMENT, layout.segment).unwrap();
        enable(&b, libc::UDP_GRO, 1).unwrap();
        let window = window(&b, layout).unwrap();
        let shared = Shared::default();
        let timed = || {
            while shared.bursts.load(Ordering::Relaxed) < 20 {
                std::thread::yield_now();
            }
            shared.stop.store(true, Ordering::Relaxed);
        };
        let (_, (sent, received)) = both_sides(timed, || {
            both_sides(
                || send(&a, layout, (window, 1 << 20), &shared),
                || receive(&b, layout, window, &shared),
            )
        });
        let (per_call, rate) = (sent.unwrap(), received.unwrap());
        let datagrams = shared.sent.load(Ordering::Relaxed);
        assert!(per_call > 43.9, "{per_call}");
        assert!(datagrams >= 20, "{datagrams}");
        let payload = u64_from(layout.payload());
        assert_eq!(rate.bytes + rate.lost * payload, datagrams * payload);
    }
}
