//! Raw AF_XDP: the throughput of the ports without a transport, the upper bound for any on them.
//!
//! Frames have the size of the engine's packets. The sender keeps a window of them in flight, and
//! the receiver acknowledges every 16th cumulatively. There is no integrity check, no
//! retransmission and no memory protection. [`Touch`] selects whether the payload is copied between
//! the frames and a buffer of the application, which a transport cannot avoid, or not.

use crate::quiet::{StealWatch, ThreadUse};
use crate::sample::{Error, Rate, Sample};
use spanwire_base::{Time, TxMeta, u64_from};
use spanwire_io::affinity;
use spanwire_io::net::{Host, TwoHosts};
use spanwire_io::port::Port;
use spanwire_io::xdp::{SidePoll, XdpConfig, XdpPort};
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, IpRepr, MacAddr, Opcode, Psn, Qpn, Template,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The treatment of each frame's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// Copied from a buffer into the frame, and from the frame into a buffer.
    Copy,
    /// Not copied: only headers and a number are written and read.
    Headers,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Blast {
    /// Payload bytes of a frame, 8 and up: the path MTU of the transport it is compared with.
    pub payload: usize,
    /// The treatment of the payload.
    pub touch: Touch,
    /// Frames in flight, 1 and up. Beyond 200 a veth's ring of 256 may overflow.
    pub window: u64,
    /// The duration.
    pub time: Duration,
}

/// Headers of one direction, ready to be copied.
#[derive(Clone, Debug)]
pub struct Frames {
    headers: Vec<u8>,
    frame_len: usize,
}

impl Frames {
    /// The frames from `from` to `to` with `payload` bytes of payload, 8 and up: Ethernet, IPv4,
    /// UDP, BTH, payload, and four bytes in place of the ICRC.
    ///
    /// # Errors
    /// The payload does not fit an IPv4 packet.
    ///
    /// # Panics
    /// If `payload` is too short for the number.
    pub fn new(from: &Host, to: &Host, payload: usize) -> Result<Self, Error> {
        assert!(payload >= NUMBER_BYTES, "{payload} bytes are too short for the number");
        let eth = EthernetRepr {
            dst: MacAddr::new(to.mac),
            src: MacAddr::new(from.mac),
            ..EthernetRepr::default()
        };
        let ip = IpRepr::new(from.v4.into(), to.v4.into()).expect("both addresses are IPv4");
        let bth = BthRepr::new(Opcode::RcWriteMiddle, Qpn::new(17), Psn::new(0));
        let mut frame = vec![0; HEADERS_BYTES + payload + ICRC_BYTES];
        Template::new(eth, ip, SRC_PORT)
            .emit(&bth, &ExtHeaders::default(), payload, &mut frame)
            .map_err(|_| format!("{payload} bytes of payload exceed an IPv4 packet"))?;
        let frame_len = frame.len();
        frame.truncate(HEADERS_BYTES);
        Ok(Self { headers: frame, frame_len })
    }

    /// Bytes of a frame, without FCS.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Commits a frame with a number, and all of `payload` after it; false if there is no
    /// transmit buffer.
    pub fn commit(&self, port: &mut XdpPort, number: u64, payload: Option<&[u8]>) -> bool {
        let Some(slot) = port.slot_take() else {
            return false;
        };
        let bytes = port.slot_bytes(&slot);
        bytes[..HEADERS_BYTES].copy_from_slice(&self.headers);
        if let Some(payload) = payload {
            bytes[HEADERS_BYTES..HEADERS_BYTES + payload.len()].copy_from_slice(payload);
        }
        bytes[HEADERS_BYTES..HEADERS_BYTES + NUMBER_BYTES].copy_from_slice(&number.to_be_bytes());
        let len = self.frame_len;
        port.slot_commit(slot, TxMeta::whole(len));
        true
    }
}

/// The number in a frame; `None` if the frame is not one of [`Frames`].
#[must_use]
pub fn number_of(frame: &[u8]) -> Option<u64> {
    let payload = frame.get(HEADERS_BYTES..)?;
    payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Opens a port on each host, with active side poll on both or on neither.
///
/// # Errors
/// No privilege, or the side sockets get no NAPI id.
pub fn open_ports(hosts: &TwoHosts, side_poll: bool) -> Result<[XdpPort; 2], Error> {
    let open = |host: &Host| -> Result<XdpPort, Error> {
        let config = XdpConfig::new(&host.ifname);
        Ok(host.ns.run(|| XdpPort::open(&config))??)
    };
    let (mut a, mut b) = (open(&hosts.a)?, open(&hosts.b)?);
    if side_poll {
        let bind = |host: &Host| host.ns.run(|| SidePoll::bind(host.v4.into(), host.ifindex));
        let (side_a, side_b) = (bind(&hosts.a)??, bind(&hosts.b)??);
        let deadline = Instant::now() + GREETING;
        while !(side_a.is_active() && side_b.is_active()) {
            if Instant::now() > deadline {
                return Err("the side sockets get no NAPI id: is this a veth?".into());
            }
            side_a.greet(SocketAddr::new(hosts.b.v4.into(), side_b.local_port()))?;
            side_b.greet(SocketAddr::new(hosts.a.v4.into(), side_a.local_port()))?;
            std::thread::sleep(Duration::from_millis(1));
        }
        a.set_side_poll(side_a);
        b.set_side_poll(side_b);
    }
    Ok([a, b])
}

/// Measures one direction, from host `a` on the first core to host `b` on the second, side poll on
/// both.
///
/// # Errors
/// The ports cannot be opened, or nothing arrives.
pub fn blast(hosts: &TwoHosts, cores: [usize; 2], blast: Blast) -> Result<Sample, Error> {
    let there = Frames::new(&hosts.a, &hosts.b, blast.payload)?;
    let back = Frames::new(&hosts.b, &hosts.a, NUMBER_BYTES)?;
    let [mut a, mut b] = open_ports(hosts, true)?;
    let (stop, bursts) = (AtomicBool::new(false), AtomicU32::new(0));
    let timed = || stop_after(blast.time, &bursts, &stop);
    let (_, (sent, received)) = both_sides(timed, || {
        both_sides(
            || watched(cores[0], || send(&mut a, &there, blast, &stop)),
            || watched(cores[1], || receive(&mut b, &back, blast, &stop, &bursts)),
        )
    });
    let ((), use_a) = sent?;
    let (rate, use_b) = received?;
    Ok(Sample::rate(Rate { packets_per_call: packets_per_call(&a), ..rate }, [use_a, use_b]))
}

/// Sets `stop` after `time`, and after two bursts, which a rate takes: a thread may have no core
/// for all of the time.
pub(crate) fn stop_after(time: Duration, bursts: &AtomicU32, stop: &AtomicBool) {
    std::thread::sleep(time);
    let silent_until = Instant::now() + SILENCE;
    while bursts.load(Ordering::Relaxed) < 2 && Instant::now() < silent_until {
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
}

/// Frames that a system call of `port` sent, in the mean.
fn packets_per_call(port: &XdpPort) -> f64 {
    let counters = port.counters();
    counters.tx_completions as f64 / (counters.tx_kicks as f64).max(1.0)
}

/// Runs both sides of a measurement, each in a thread of its own.
///
/// # Panics
/// If one of them does.
pub fn both_sides<A: Send, B: Send>(
    client: impl FnOnce() -> A + Send,
    server: impl FnOnce() -> B + Send,
) -> (A, B) {
    std::thread::scope(|scope| {
        let (client, server) = (scope.spawn(client), scope.spawn(server));
        let client = client.join().expect("the client does not panic");
        (client, server.join().expect("the server does not panic"))
    })
}

/// Runs `work` on a core in a thread of its own and returns its use of the core as well.
///
/// # Errors
/// Those of `work`, or the thread may not run on that core.
pub fn watched<T>(
    core: usize,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<(T, ThreadUse), Error> {
    affinity::pin(core)?;
    let watch = StealWatch::start()?;
    let done = work()?;
    Ok((done, watch.thread_use()?))
}

/// Sends while the window allows. Acknowledgements carry the next number that the receiver expects.
fn send(port: &mut XdpPort, frames: &Frames, blast: Blast, stop: &AtomicBool) -> Result<(), Error> {
    let mut source = Places::new(blast.payload, APPLICATION_BYTES);
    let (mut next, mut acked) = (0, 0);
    let mut last_progress = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let mut latest = acked;
        port.rx_burst(&Time::ZERO, BATCH, &mut |frame, _| {
            latest = latest.max(number_of(frame).unwrap_or(0).min(next));
        });
        let mut sent = 0;
        while sent < BATCH && next - latest < blast.window {
            let payload = match blast.touch {
                Touch::Copy => Some(&*source.next()),
                Touch::Headers => None,
            };
            if !frames.commit(port, next, payload) {
                break;
            }
            next += 1;
            sent += 1;
        }
        port.flush(Time::ZERO)?;
        if latest > acked || sent > 0 {
            acked = latest;
            last_progress = Instant::now();
        } else if last_progress.elapsed() > STALL {
            // A loss: continue as if it had arrived. The receiver counts it.
            acked = next;
            last_progress = Instant::now();
        }
    }
    Ok(())
}

/// Counts frames, and acknowledges every 16th, or the rest when no more arrive.
fn receive(
    port: &mut XdpPort,
    acks: &Frames,
    blast: Blast,
    stop: &AtomicBool,
    bursts: &AtomicU32,
) -> Result<Rate, Error> {
    let mut sink = Places::new(blast.payload, APPLICATION_BYTES);
    let (mut count, mut next, mut owed, mut idle) = (0u64, 0u64, 0u64, 0u32);
    let mut started = None;
    while !stop.load(Ordering::Relaxed) {
        let got = port.rx_burst(&Time::ZERO, BATCH, &mut |frame, _| {
            let Some(number) = number_of(frame) else {
                return;
            };
            if blast.touch == Touch::Copy
                && let Some(payload) = frame.get(HEADERS_BYTES..HEADERS_BYTES + blast.payload)
            {
                sink.next().copy_from_slice(payload);
            }
            next = number + 1;
            count += 1;
            owed += 1;
        });
        idle = if got > 0 { 0 } else { idle.saturating_add(1) };
        bursts.fetch_add(u32::from(got > 0), Ordering::Relaxed);
        if got > 0 && started.is_none() {
            started = Some((Instant::now(), count));
        }
        let due = owed >= ACK_EVERY || (owed > 0 && idle > IDLE_ACK);
        if due && acks.commit(port, next, None) {
            owed = 0;
        }
        port.flush(Time::ZERO)?;
    }
    let (start, before) = started.ok_or("nothing arrived")?;
    let seconds = start.elapsed().as_secs_f64();
    // The veth keeps order, so a number missing below the last one was lost.
    let lost = next - count;
    let rate = Rate::of_packets(count - before, blast.payload, seconds, lost);
    Ok(Rate { bytes: count * u64_from(blast.payload), ..rate })
}

/// A buffer of the application, used in steps of one payload: as large as the messages of the
/// engine that it is compared with, so that both have equal cache hit rates.
pub(crate) struct Places {
    bytes: Vec<u8>,
    step: usize,
    at: usize,
}

impl Places {
    pub(crate) fn new(step: usize, bytes: usize) -> Self {
        Self { bytes: vec![0x5a; bytes.max(step)], step, at: 0 }
    }

    pub(crate) fn next(&mut self) -> &mut [u8] {
        if self.at + self.step > self.bytes.len() {
            self.at = 0;
        }
        let from = self.at;
        self.at += self.step;
        &mut self.bytes[from..self.at]
    }
}

/// Ethernet, IPv4, UDP and BTH.
pub const HEADERS_BYTES: usize = 14 + 20 + 8 + 12;
/// Bytes after the payload of every packet.
pub const ICRC_BYTES: usize = 4;
/// An acknowledgement costs about as much as a data packet.
pub const ACK_EVERY: u64 = 16;
/// Frames received and committed per turn, as in the engine's driver.
pub const BATCH: usize = 64;
const NUMBER_BYTES: usize = 8;
const APPLICATION_BYTES: usize = 16 << 16;
const SRC_PORT: u16 = 0xc000;
/// Turns without a frame before fewer than sixteen are acknowledged.
const IDLE_ACK: u32 = 400;
const STALL: Duration = Duration::from_millis(5);
const GREETING: Duration = Duration::from_secs(60);
/// After which no frame at all is an error.
const SILENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_transport::Mtu;

    #[test]
    fn number_of__follows_the_headers() {
        let mut frame = vec![0; HEADERS_BYTES];
        assert_eq!(number_of(&frame), None);
        frame.extend_from_slice(&7u64.to_be_bytes());
        assert_eq!(number_of(&frame), Some(7));
        assert_eq!(number_of(&frame[..frame.len() - 1]), None);
    }

    #[test]
    fn headers_bytes__leave_room_for_the_longest_headers() {
        // The longest headers have a RETH more, or an immediate, over IPv6.
        let longest = usize::try_from(Mtu::B1024.max_frame_bytes()).unwrap();
        assert!(HEADERS_BYTES + 1024 + ICRC_BYTES < longest);
    }

    #[test]
    fn next__walks_and_starts_over() {
        let mut places = Places::new(APPLICATION_BYTES / 2, APPLICATION_BYTES);
        places.next().fill(1);
        places.next().fill(2);
        assert_eq!(places.next()[0], 1);
        let mut odd = Places::new(1000, APPLICATION_BYTES);
        for _ in 0..APPLICATION_BYTES / 1000 + 2 {
            assert_eq!(odd.next().len(), 1000);
        }
    }
}
