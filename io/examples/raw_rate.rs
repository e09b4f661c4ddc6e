//! Frame rate of two AF_XDP ports over a veth pair without a protocol: the upper bound for
//! everything built on them.
//!
//! ```text
//! cargo run --release -p spanwire-io --example raw_rate -- [ROUNDS [MILLISECONDS]]
//! ```
//!
//! One thread a side, pinned to cores 0 and 1, in two network namespaces that it creates (needs
//! root). The sender keeps at most 128 or 200 frames in flight; the receiver acknowledges every
//! 16th with a cumulative ACK. Rounds are interleaved, so that a slowdown of the machine affects
//! every variant; medians and the spread are printed. The round trip of a cache line between the
//! cores is printed too: a virtual machine may move its cores apart, and rates measured at
//! different distances are not comparable.

use spanwire_base::{Time, TxMeta};
use spanwire_io::net::{Host, LabConfig, TwoHosts};
use spanwire_io::port::{Port, reserve};
use spanwire_io::xdp::{SidePoll, XdpConfig, XdpPort};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Copy)]
struct Variant {
    frame_len: usize,
    window: u64,
    side_poll: bool,
}

fn main() -> Fallible<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(7), |text| text.parse())?;
    let millis: u64 = arguments.next().map_or(Ok(300), |text| text.parse())?;
    let time = Duration::from_millis(millis);

    let mut variants = Vec::new();
    for frame_len in [64, 1098, 2122] {
        for (window, side_poll) in [(128, false), (200, false), (128, true), (200, true)] {
            variants.push(Variant { frame_len, window, side_poll });
        }
    }
    let hosts = TwoHosts::anonymous(&LabConfig { mtu: 2800, ..LabConfig::default() })?;
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); variants.len()];
    let mut distances = Vec::new();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        distances.push(core_distance_ns());
        for n in order {
            rates[n].push(measure(&hosts, variants[n], time)?);
        }
    }
    distances.sort_by(f64::total_cmp);
    println!(
        "{rounds} rounds of {millis} ms; cache line round trip {:.0} ns (median; {:.0}..{:.0})",
        distances[rounds / 2],
        distances[0],
        distances[rounds - 1]
    );
    println!("frame  window  side poll      kpps   Gbit/s   [min..max kpps]");
    for (variant, rates) in variants.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        let bits = f64::from(u32::try_from(variant.frame_len)?) * 8.0;
        println!(
            "{:5}  {:6}  {:9}  {:8.0}  {:7.2}   [{:.0}..{:.0}]",
            variant.frame_len,
            variant.window,
            if variant.side_poll { "on" } else { "off" },
            median / 1e3,
            median * bits / 1e9,
            rates[0] / 1e3,
            rates[rates.len() - 1] / 1e3
        );
    }
    Ok(())
}

/// Frames received per second, by the receiver's clock.
fn measure(hosts: &TwoHosts, variant: Variant, time: Duration) -> Fallible<f64> {
    let (mut a, mut b) = (open(&hosts.a)?, open(&hosts.b)?);
    if variant.side_poll {
        run_side_poll(&mut a, &hosts.a, &mut b, &hosts.b)?;
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&mut a, hosts.b.v4, variant, &stop));
        let receiver = scope.spawn(|| receive(&mut b, hosts.a.v4, &stop));
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        sender.join().expect("the sender does not panic")?;
        receiver.join().expect("the receiver does not panic")
    })
}

fn open(host: &Host) -> Fallible<XdpPort> {
    Ok(host.ns.run(|| XdpPort::open(&XdpConfig::new(&host.ifname)))??)
}

fn run_side_poll(a: &mut XdpPort, host_a: &Host, b: &mut XdpPort, host_b: &Host) -> Fallible<()> {
    let bind = |host: &Host| host.ns.run(|| SidePoll::bind(host.v4.into(), host.ifindex));
    let (side_a, side_b) = (bind(host_a)??, bind(host_b)??);
    let deadline = Instant::now() + Duration::from_secs(2);
    while !(side_a.is_active() && side_b.is_active()) {
        if Instant::now() > deadline {
            return Err("the side sockets learn no NAPI id".into());
        }
        side_a.greet(SocketAddr::new(host_b.v4.into(), side_b.local_port()))?;
        side_b.greet(SocketAddr::new(host_a.v4.into(), side_a.local_port()))?;
        std::thread::sleep(Duration::from_millis(1));
    }
    a.set_side_poll(side_a);
    b.set_side_poll(side_b);
    Ok(())
}

/// Sends while the window allows. Acknowledgements carry the next number that the receiver expects.
fn send(port: &mut XdpPort, to: Ipv4Addr, variant: Variant, stop: &AtomicBool) -> Fallible<()> {
    pin(0);
    let (mut next, mut acked) = (0u64, 0u64);
    let mut last_progress = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let got = port.rx_burst(&Time::ZERO, BATCH, &mut |frame, _| {
            acked = acked.max(number_of(frame).min(next));
        });
        for _ in 0..BATCH {
            if next - acked >= variant.window {
                break;
            }
            let Some(mut slot) = reserve(port) else { break };
            write_frame(slot.bytes(), to, variant.frame_len, next);
            slot.commit(TxMeta::whole(variant.frame_len));
            next += 1;
        }
        port.flush(Time::ZERO)?;
        if got > 0 {
            last_progress = Instant::now();
        } else if next - acked >= variant.window && last_progress.elapsed() > STALL {
            // A frame was lost: continue as if it had arrived.
            acked = next;
            last_progress = Instant::now();
        }
    }
    Ok(())
}

/// Counts frames and acknowledges every 16th, or all so far once no more arrive.
fn receive(port: &mut XdpPort, to: Ipv4Addr, stop: &AtomicBool) -> Fallible<f64> {
    pin(1);
    let (mut frames, mut next, mut owed, mut idle) = (0u64, 0u64, 0u64, 0u32);
    let mut started = None;
    while !stop.load(Ordering::Relaxed) {
        let got = port.rx_burst(&Time::ZERO, BATCH, &mut |frame, _| {
            next = number_of(frame) + 1;
            frames += 1;
            owed += 1;
        });
        idle = if got > 0 { 0 } else { idle + 1 };
        if got > 0 && started.is_none() {
            started = Some((Instant::now(), frames));
        }
        if (owed >= ACK_EVERY || (owed > 0 && idle > IDLE_ACK))
            && let Some(mut slot) = reserve(port)
        {
            write_frame(slot.bytes(), to, 64, next);
            slot.commit(TxMeta::whole(64));
            owed = 0;
        }
        port.flush(Time::ZERO)?;
    }
    let (start, before) = started.ok_or("nothing arrived")?;
    let counted = f64::from(u32::try_from(frames - before)?);
    Ok(counted / start.elapsed().as_secs_f64())
}

/// Writes the headers of a UDP packet to port 4791 of `to` and a number; the rest of the frame is
/// left unchanged.
fn write_frame(into: &mut [u8], to: Ipv4Addr, len: usize, number: u64) {
    let ip_len = u16::try_from(len - 14).expect("a frame below 64 KiB");
    let headers = &mut into[..50];
    headers.fill(0);
    headers[..6].fill(0xff);
    headers[6] = 2;
    headers[12] = 8;
    headers[14] = 0x45;
    headers[16..18].copy_from_slice(&ip_len.to_be_bytes());
    headers[22] = 64;
    headers[23] = 17;
    headers[30..34].copy_from_slice(&to.octets());
    headers[36..38].copy_from_slice(&4791u16.to_be_bytes());
    headers[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    headers[42..50].copy_from_slice(&number.to_be_bytes());
}

fn number_of(frame: &[u8]) -> u64 {
    let bytes = frame.get(42..50).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

fn pin(core: usize) {
    core_affinity::set_for_current(core_affinity::CoreId { id: core });
}

/// Round-trip time of a cache line between core 0 and core 1, in nanoseconds.
fn core_distance_ns() -> f64 {
    const TRIPS: u32 = 5_000;
    let ball = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for trip in 0..TRIPS {
                while ball.load(Ordering::Acquire) != 2 * trip + 1 {}
                ball.store(2 * trip + 2, Ordering::Release);
            }
        });
        let player = scope.spawn(|| {
            pin(0);
            let mut start = Instant::now();
            for trip in 0..TRIPS {
                if trip == TRIPS / 2 {
                    start = Instant::now();
                }
                ball.store(2 * trip + 1, Ordering::Release);
                while ball.load(Ordering::Acquire) != 2 * trip + 2 {}
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(TRIPS / 2)
        });
        player.join().expect("the player does not panic")
    })
}

const BATCH: usize = 64;
const ACK_EVERY: u64 = 16;
const IDLE_ACK: u32 = 400;
const STALL: Duration = Duration::from_millis(5);
