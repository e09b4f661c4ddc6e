//! Receive calls with valid results of any content, and with any bytes.

use super::frame::{Fields, residue, seal};
use super::input::{ICRC, Input, ROOMS, null};
use spanwire_base::{RxMeta, Time};
use spanwire_io::clock::TimeSource;
use spanwire_io::udp::UdpCounters;
use spanwire_io::udp::fuzzing::{Arrived, PortReceiver};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A port, and what is known of it.
struct Check {
    port: PortReceiver,
    local: Option<IpAddr>,
    room: usize,
    has_checksum: bool,
    /// The highest identification that it accepts.
    id_max: u16,
    /// The kernel's last count of dropped datagrams, if it is known.
    overflow: Option<u32>,
    clock: Ticks,
}

/// A receive call with valid results.
struct Call {
    fields: Fields,
    /// Its source is an IPv4 address in IPv6.
    is_mapped: bool,
    /// The control messages name the destination.
    says_to: bool,
    segment: Option<usize>,
    len: usize,
    truncated: bool,
    overflow: Option<u32>,
    stamp_ns: Option<u64>,
}

/// A clock that advances with each reading.
struct Ticks(Cell<u64>);

impl TimeSource for Ticks {
    fn now(&self) -> Time {
        self.0.set(self.0.get() + 1);
        Time::from_ps(self.0.get())
    }

    fn of_monotonic_ns(&self, _ns: u64) -> Option<Time> {
        None
    }

    fn of_realtime_ns(&self, ns: u64) -> Option<Time> {
        (!ns.is_multiple_of(3)).then(|| Time::from_ps(ns))
    }
}

pub(super) fn run(input: &mut Input<'_>) {
    let flags = input.byte();
    let local: Option<IpAddr> = match flags & 3 {
        0 => Some(Ipv4Addr::new(10, 0, 0, 1).into()),
        1 => Some(Ipv6Addr::LOCALHOST.into()),
        _ => None,
    };
    let (has_checksum, any_id) = (flags & 4 == 0, flags & 8 != 0);
    let room = ROOMS[input.below(ROOMS.len())];
    let checksum = has_checksum.then_some(ICRC);
    let port = PortReceiver::new((local, PORT), room, (checksum, any_id), null());
    let clock = Ticks(Cell::new(1 << 40));
    let id_max = if any_id { u16::MAX } else { 127 };
    let overflow = Some(0);
    let mut check = Check { port, local, room, has_checksum, id_max, overflow, clock };
    for _ in 0..CALLS_MAX {
        if input.is_empty() {
            break;
        }
        if input.byte() < 0x40 {
            check.any(input);
        } else {
            check.valid(input);
        }
    }
}

impl Check {
    /// A receive call with any address, any control messages and any payload.
    fn any(&mut self, input: &mut Input<'_>) {
        let before = self.port.counters();
        let (from, control) = (input.below(32), input.byte());
        let (from, control) = (input.take(from), input.take(control.into()));
        let (len, fill, truncated) = (usize::from(input.half()) % 2048, input.byte(), input.bit());
        let payload = vec![fill; len];
        let arrived = Arrived { from, control, payload: &payload, truncated };
        let is_run = self.port.receive(arrived, &self.clock);
        self.overflow = None;
        self.check_outcome(&before, is_run);
        let frames = self.frames();
        assert_eq!(is_run, !frames.is_empty());
        if is_run {
            let segment = frames[0].0.len() - Fields::of(&frames[0].0).0.header_len();
            self.check_frames(&frames, &payload, segment.max(1));
        }
    }

    /// A receive call as the kernel returns it, with any payload. Some segments are sealed.
    fn valid(&mut self, input: &mut Input<'_>) {
        let call = Call::read(input, self.room, self.overflow.unwrap_or(0));
        let (payload, ids) = call.payload(input);
        let from = call.from();
        let control = call.control();
        let before = self.port.counters();
        let truncated = call.truncated;
        let arrived = Arrived { from: &from, control: &control, payload: &payload, truncated };
        let is_run = self.port.receive(arrived, &self.clock);
        self.check_outcome(&before, is_run);
        let after = self.port.counters();
        let to = if call.says_to { Some(call.fields.dst) } else { self.local };
        let segment = call.segment.unwrap_or(call.len).min(call.len).max(1);
        // Addresses of two versions have the headers of neither.
        let is_known = to.is_some_and(|to| to.is_ipv4() == call.fields.src.is_ipv4());
        let is_too_long = segment + call.fields.header_len() > self.room;
        let expected = [
            call.truncated,
            !call.truncated && !is_known,
            !call.truncated && is_known && is_too_long,
        ];
        let counted = [
            after.rx_truncated - before.rx_truncated,
            after.rx_malformed - before.rx_malformed,
            after.rx_too_long - before.rx_too_long,
        ];
        assert_eq!(counted, expected.map(u64::from), "{:?}", call.fields);
        if let Some(now) = call.overflow {
            if let Some(last) = self.overflow {
                let more = u64::from(now.wrapping_sub(last));
                assert_eq!(after.rx_overflow - before.rx_overflow, more);
            }
            self.overflow = Some(now);
        }
        let frames = self.frames();
        assert_eq!(frames.is_empty(), expected.contains(&true));
        let Some(to) = to.filter(|_| !frames.is_empty()) else { return };
        self.check_frames(&frames, &payload, segment);
        let coalesced = if segment < call.len { frames.len() } else { 0 };
        assert_eq!(after.rx_coalesced - before.rx_coalesced, coalesced as u64);
        let fields = Fields { dst: to, ..call.fields };
        for (n, (frame, _)) in frames.iter().enumerate() {
            let (of, id) = Fields::of(frame);
            assert_eq!(of, fields);
            let sealed = ids.get(n).copied().flatten().filter(|_| call.fields.dst == to);
            let Some(sealed) = sealed.filter(|_| residue(frame).is_some()) else { continue };
            match id {
                Some(id) if self.has_checksum && sealed <= self.id_max => {
                    assert_eq!((id, residue(frame)), (sealed, Some(0)), "segment {n}");
                }
                None => assert_eq!(residue(frame), Some(0), "segment {n}"),
                Some(_) => {}
            }
        }
    }

    /// A call is counted once: as a run or as what is wrong with it.
    fn check_outcome(&self, before: &UdpCounters, is_run: bool) {
        let after = self.port.counters();
        let wrong = |c: &UdpCounters| c.rx_truncated + c.rx_malformed + c.rx_too_long;
        assert_eq!(wrong(&after) - wrong(before), u64::from(!is_run));
    }

    /// All frames of the run.
    fn frames(&mut self) -> Vec<(Vec<u8>, RxMeta)> {
        let mut frames = Vec::new();
        let before = self.port.counters();
        let mut marks = Vec::new();
        while self.port.deliver(&mut |frame, meta| {
            marks.push(meta.checked.is_of(frame));
            frames.push((frame.to_vec(), *meta));
        }) {}
        let after = self.port.counters();
        let bytes: usize = frames.iter().map(|(frame, _)| frame.len()).sum();
        assert_eq!(after.rx_frames - before.rx_frames, frames.len() as u64);
        assert_eq!(after.rx_bytes - before.rx_bytes, bytes as u64);
        // A frame is accepted without a counter exactly if its checksum is right, or there is none.
        let is_examined =
            |frame: &[u8]| self.has_checksum && frame[12] == 8 && !frame.ends_with(&[0; 4]);
        let is_right = |frame: &[u8]| residue(frame) == Some(0);
        for ((frame, _), mark) in frames.iter().zip(marks) {
            assert_eq!(mark, is_examined(frame) && is_right(frame));
        }
        let examined = frames.iter().filter(|(frame, _)| is_examined(frame));
        let wrong = examined.filter(|(frame, _)| !is_right(frame)).count();
        assert_eq!(after.rx_unidentified - before.rx_unidentified, wrong as u64);
        frames
    }

    /// The frames have the payload in order, in segments of one length but the last.
    fn check_frames(&self, frames: &[(Vec<u8>, RxMeta)], payload: &[u8], segment: usize) {
        let mut rest = payload;
        for (frame, meta) in frames {
            assert!(frame.len() <= self.room, "{} of {}", frame.len(), self.room);
            assert!(meta.earliest <= meta.at && meta.at <= self.clock.now());
            let (_, bytes) = frame.split_at(Fields::of(frame).0.header_len());
            assert_eq!(bytes.len(), segment.min(rest.len()));
            let (expected, after) = rest.split_at(bytes.len());
            assert_eq!(bytes, expected);
            rest = after;
        }
        assert!(rest.is_empty(), "{} bytes are not delivered", rest.len());
    }
}

impl Call {
    fn read(input: &mut Input<'_>, room: usize, overflow: u32) -> Self {
        let flags = input.byte();
        let (is_v6, is_mapped) = (flags & 1 != 0, flags & 3 == 2);
        let other_version = flags & 0x0c == 0x0c;
        let host = input.byte();
        let ip = |is_v6: bool, n: u8| -> IpAddr {
            match is_v6 {
                true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into(),
                false => Ipv4Addr::new(10, 0, 0, n).into(),
            }
        };
        let fields = Fields {
            src: ip(is_v6, host | 1),
            dst: ip(is_v6 != other_version, host & 0xfe),
            src_port: input.half(),
            dst_port: PORT,
            tos: input.byte(),
            hop_limit: input.byte(),
        };
        // Half of them are about as long as a frame may be.
        let longest = room - fields.header_len();
        let segment = (flags & 0x10 != 0).then(|| usize::from(input.half()));
        let segment = segment.map(|n| if n & 1 == 0 { n } else { (longest - 4) + n / 2 % 8 });
        // Few deliveries for an input.
        let len_max = if segment.is_some_and(|bytes| bytes < 256) { 1500 } else { 65_536 };
        let len = (usize::from(input.half()) * (1 + usize::from(flags & 1))).min(len_max);
        let grown = (flags & 0x20 != 0).then(|| overflow.wrapping_add(input.byte().into()));
        let stamp_ns = (flags & 0x40 != 0).then(|| u64::from(input.half()) << (input.byte() % 48));
        Self {
            fields,
            is_mapped,
            says_to: flags & 0x80 == 0,
            segment,
            len,
            truncated: input.byte() == 0xff,
            overflow: grown,
            stamp_ns,
        }
    }

    /// The payload, and the identification of each segment for which it is sealed.
    fn payload(&self, input: &mut Input<'_>) -> (Vec<u8>, Vec<Option<u16>>) {
        let (fill, step) = (input.byte(), input.byte());
        let mut payload: Vec<u8> = Vec::with_capacity(self.len);
        let (mut id, mut value) = (0_u16, fill);
        let mut ids = Vec::new();
        let is_one_version = self.fields.src.is_ipv4() == self.fields.dst.is_ipv4();
        let segment = self.segment.unwrap_or(self.len).min(self.len).max(1);
        while payload.len() < self.len {
            let len = segment.min(self.len - payload.len());
            let start = payload.len();
            for _ in 0..len {
                payload.push(value);
                value = value.wrapping_add(step);
            }
            let kind = if ids.len() < KINDS { input.byte() } else { 1 };
            id = match kind % 8 {
                0 => input.half(),
                1..4 => id.wrapping_add(1),
                4 => 0,
                5 => id % 128,
                _ => id,
            };
            let is_sealed = kind < 0xc0 && len <= 65_000 && is_one_version;
            if is_sealed {
                let mut frame = self.fields.frame(id, &payload[start..]);
                seal(&mut frame);
                payload.truncate(start);
                payload.extend(&frame[self.fields.header_len()..]);
            }
            ids.push(is_sealed.then_some(id));
        }
        (payload, ids)
    }

    /// The sender's address as the kernel writes it.
    fn from(&self) -> Vec<u8> {
        let port = self.fields.src_port.to_be_bytes();
        let inet = |family: u16, rest: &[&[u8]]| {
            [&family.to_ne_bytes()[..], &port, &rest.concat()].concat()
        };
        match self.fields.src {
            IpAddr::V4(ip) if !self.is_mapped => inet(AF_INET, &[&ip.octets(), &[0; 8]]),
            IpAddr::V4(ip) => inet(AF_INET6, &[&[0; 4], &ip.to_ipv6_mapped().octets(), &[0; 4]]),
            IpAddr::V6(ip) => inet(AF_INET6, &[&[0; 4], &ip.octets(), &[0; 4]]),
        }
    }

    /// The control messages as the kernel writes them (cmsg(3)).
    fn control(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut push = |level: i32, kind: i32, value: &[u8]| {
            bytes.extend((16 + value.len()).to_ne_bytes());
            bytes.extend(level.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        };
        let Fields { src, dst, tos, hop_limit, .. } = self.fields;
        if let Some(ns) = self.stamp_ns {
            let (seconds, nanos) = (ns / 1_000_000_000, ns % 1_000_000_000);
            push(SOL_SOCKET, 35, &[seconds.to_ne_bytes(), nanos.to_ne_bytes()].concat());
        }
        if let Some(count) = self.overflow {
            push(SOL_SOCKET, 40, &count.to_ne_bytes());
        }
        let hops = i32::from(hop_limit).to_ne_bytes();
        match src {
            IpAddr::V4(_) => {
                push(0, 2, &hops);
                push(0, 1, &[tos]);
            }
            IpAddr::V6(_) => {
                push(41, 52, &hops);
                push(41, 67, &i32::from(tos).to_ne_bytes());
            }
        }
        match dst {
            _ if !self.says_to => {}
            IpAddr::V4(ip) => push(0, 8, &[&[1, 0, 0, 0, 9, 9, 9, 9], &ip.octets()[..]].concat()),
            IpAddr::V6(ip) => push(41, 50, &[&ip.octets()[..], &[1, 0, 0, 0]].concat()),
        }
        if let Some(segment) = self.segment {
            let segment = i32::try_from(segment).expect("16 bits");
            push(17, 104, &segment.to_ne_bytes());
        }
        bytes
    }
}

/// A run of three sealed segments, a single datagram, one that is too long, one without a
/// destination, and bytes of no structure.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let run = |flags: u8, segment: u16, len: u16, more: &[u8]| {
        let [s, t] = segment.to_be_bytes();
        let [l, m] = len.to_be_bytes();
        let segment = if flags & 0x10 != 0 { vec![s, t] } else { vec![] };
        [&[0x40, flags, 7, 0xc1, 0x23, 2, 64], &segment[..], &[l, m], more].concat()
    };
    vec![
        ("run-v4", [&[2, 1][..], &run(0x10, 300, 1000, &[0, 5, 3, 4, 1, 1, 1])].concat()),
        ("run-v6", [&[2, 2][..], &run(0x11, 300, 500, &[0, 5, 3, 4, 1, 1, 1])].concat()),
        ("two-senders", [&[0, 1][..], &run(0x10, 100, 500, &[0, 5, 3, 4, 4, 0xc1, 1, 6])].concat()),
        ("any-id", [&[10, 1][..], &run(0x10, 100, 300, &[0, 1, 1, 0, 0x9b, 0xe7, 1, 1])].concat()),
        ("mapped", [&[2, 0][..], &run(0x62, 0, 200, &[3, 1, 2, 9, 0, 1, 1, 4])].concat()),
        ("too-long", [&[2, 0][..], &run(0, 0, 9000, &[0, 1, 1, 4])].concat()),
        ("no-destination", [&[2, 0][..], &run(0x80, 0, 200, &[0, 1, 1, 4])].concat()),
        ("bytes", [&[2, 0, 0, 28, 32][..], &[2; 60], &[1, 0, 7, 0]].concat()),
    ]
}

/// The port that it is bound to.
const PORT: u16 = 4791;
/// Calls of an input.
const CALLS_MAX: usize = 64;
/// Segments of a call with an identification of the input.
const KINDS: usize = 64;
const SOL_SOCKET: i32 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
