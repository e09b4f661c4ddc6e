//! Any frames to send, with any errors of the kernel: each frame leaves once, in the order of its
//! flow, in runs that the kernel sends.

use super::frame::{Fields, residue, seal};
use super::input::{ICRC, Input, ROOMS, null};
use spanwire_io::udp::fuzzing::{PortSender, SendArgs};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The frames that are expected to leave.
struct Model {
    /// The frames of each flow, oldest first.
    flows: BTreeMap<Fields, VecDeque<Expected>>,
    /// Source ports with a socket.
    bound: Vec<(u16, bool)>,
    has_checksum: bool,
    /// Payloads from this length on are sent as fragments, since one was too long.
    fragmented_from: usize,
    counts: Counts,
}

/// A committed frame that has not left.
struct Expected {
    payload: Vec<u8>,
    /// The residue of its ICRC, for identification 0 and its own source port; none if its headers
    /// differ from those that a socket sends.
    residue: Option<Option<u32>>,
}

/// The expected counters of the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    committed: u64,
    sent: u64,
    calls: u64,
    again: u64,
    too_long: u64,
    no_memory: u64,
    rejected: u64,
    unsegmented: u64,
    not_udp: u64,
    no_source: u64,
}

pub(super) fn run(input: &mut Input<'_>) {
    let flags = input.byte();
    let has_checksum = flags & 1 == 0;
    // The longest is that of IPv6 without a jumbogram.
    let room = ROOMS[input.below(ROOMS.len())];
    let v4 = input.below(PortSender::SOURCES + 1);
    let sources: [(u16, bool); PortSender::SOURCES] =
        std::array::from_fn(|n| (0xc000 + u16::try_from(n).expect("few"), n >= v4));
    let checksum = has_checksum.then_some(ICRC);
    let port = PortSender::new(sources, room, checksum, &null());
    let mut port = port.expect("descriptors are free");
    let (_, slots) = port.pending_and_free();
    let bound = sources.to_vec();
    let flows = BTreeMap::new();
    let (counts, fragmented_from) = (Counts::default(), usize::MAX);
    let mut model = Model { flows, bound, has_checksum, fragmented_from, counts };
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.byte() {
            0..0x80 => commit(&mut port, &mut model, input, room),
            0x80..0xa0 => commit_any(&mut port, &mut model, input, room),
            _ => {
                let errors = input.below(9);
                let mut errors = input.take(errors).iter();
                port.flush(&mut |args| model.on_send(&args, errors.next().copied()));
            }
        }
        let (pending, free) = port.pending_and_free();
        assert_eq!(pending + free, slots, "buffers");
    }
    port.flush(&mut |args| model.on_send(&args, None));
    assert_eq!(port.pending_and_free(), (0, slots));
    for (fields, left) in &model.flows {
        assert!(left.is_empty(), "{} frames of {fields:?} have not left", left.len());
    }
    let counters = port.counters();
    let counted = Counts {
        sent: counters.tx_frames,
        calls: counters.tx_calls,
        again: counters.tx_again,
        too_long: counters.tx_too_long,
        no_memory: counters.tx_no_memory,
        rejected: counters.tx_rejected + counters.tx_denied,
        unsegmented: counters.tx_unsegmented,
        not_udp: counters.tx_not_udp,
        no_source: counters.tx_no_source,
        committed: model.counts.committed,
    };
    assert_eq!(counted, model.counts);
    let Counts { sent, too_long, no_memory, rejected, not_udp, no_source, .. } = counted;
    let gone = sent + too_long + no_memory + rejected + not_udp + no_source;
    assert_eq!(gone, counted.committed, "each frame leaves or is counted");
}

/// Commits equal frames of one flow, as long as there are buffers.
fn commit(port: &mut PortSender, model: &mut Model, input: &mut Input<'_>, room: usize) {
    let (flow, shape) = (input.byte(), input.byte());
    let is_v6 = flow & 1 != 0;
    let ip = |n: u8| -> IpAddr {
        match is_v6 {
            true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into(),
            false => Ipv4Addr::new(10, 0, 0, n).into(),
        }
    };
    let fields = Fields {
        src: ip(1 + (flow >> 1 & 1)),
        dst: ip(8 + (flow >> 2 & 1)),
        // Half of those below are bound.
        src_port: 0xc000 + u16::from(flow >> 3),
        dst_port: 4791,
        tos: shape & 3,
        hop_limit: if shape & 4 == 0 { 64 } else { 0 },
    };
    let is_bound = model.bound.contains(&(fields.src_port, is_v6));
    let longest = room - fields.header_len();
    let shortest = if is_bound { 0 } else { DISTINCT_BYTES };
    let len = match shape >> 3 & 3 {
        0 => usize::from(input.half()),
        1 => input.below(64),
        // A multiple of few lengths, so that runs form.
        2 => 300 * (1 + input.below(4)),
        _ => longest,
    };
    let len = len.clamp(shortest, longest);
    let count = if shape & 0x20 == 0 { 1 } else { 1 + input.below(100) };
    let count = count.min(1 + BYTES_MAX / (len + 1));
    let trailer = if shape & 0x40 == 0 { 0 } else { input.below(32) };
    for _ in 0..count {
        let mut payload = vec![0x5a; len];
        if let Some(head) = payload.first_chunk_mut::<8>() {
            *head = model.counts.committed.to_be_bytes();
        }
        let mut frame = fields.frame(0, &payload);
        if shape & 0x80 == 0 {
            seal(&mut frame);
        }
        payload.copy_from_slice(&frame[fields.header_len()..]);
        let residue = Some(residue(&frame));
        frame.resize((frame.len() + trailer).min(room), 0xee);
        if !port.commit(&frame) {
            return;
        }
        model.on_committed(Some((fields, Expected { payload, residue })));
    }
}

/// Commits a frame of any bytes, or a valid one with a changed byte.
fn commit_any(port: &mut PortSender, model: &mut Model, input: &mut Input<'_>, room: usize) {
    let is_v6 = input.bit();
    let Some((src_port, _)) = model.bound.iter().find(|(_, six)| *six == is_v6).copied() else {
        return;
    };
    let [src, dst] = match is_v6 {
        true => [IpAddr::V6(Ipv6Addr::LOCALHOST); 2],
        false => [IpAddr::V4(Ipv4Addr::LOCALHOST); 2],
    };
    let fields = Fields { src, dst, src_port, dst_port: 1, tos: 0, hop_limit: 1 };
    let len = input.below(64);
    let mut frame = fields.frame(0, &vec![0x77; len]);
    for _ in 0..input.below(4) {
        let at = input.below(frame.len());
        frame[at] ^= input.byte();
    }
    let cut = input.byte();
    if cut < 0x40 {
        frame.truncate(cut.into());
    }
    frame.truncate(room);
    let known = expected(&frame);
    // A short payload may be that of another flow whose source port is replaced, too.
    let is_bound = |fields: &Fields| model.bound.contains(&(fields.src_port, fields.src.is_ipv6()));
    if known.as_ref().is_some_and(|(fields, _)| !is_bound(fields)) {
        return;
    }
    if port.commit(&frame) {
        model.on_committed(known.map(|(fields, payload)| {
            let residue = None;
            (fields, Expected { payload, residue })
        }));
    }
}

/// The flow and the payload of a frame, if it is UDP as a socket sends it: over IPv4 without
/// options, or over IPv6.
fn expected(frame: &[u8]) -> Option<(Fields, Vec<u8>)> {
    let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let (ip, end, udp) = match (half(12)?, frame.get(14)?) {
        (0x0800, 0x45) if *frame.get(23)? == 17 => {
            let ip = |at: usize| Some(IpAddr::from(*frame.get(at..)?.first_chunk::<4>()?));
            ((ip(26)?, ip(30)?, frame[15], frame[22]), 14 + usize::from(half(16)?), 34)
        }
        (0x86dd, 0x60..=0x6f) if *frame.get(20)? == 17 => {
            let ip = |at: usize| Some(IpAddr::from(*frame.get(at..)?.first_chunk::<16>()?));
            let tos = frame[14] << 4 | frame[15] >> 4;
            ((ip(22)?, ip(38)?, tos, frame[21]), 54 + usize::from(half(18)?), 54)
        }
        _ => return None,
    };
    let (src, dst, tos, hop_limit) = ip;
    let (src_port, dst_port) = (half(udp)?, half(udp + 2)?);
    let payload = frame.get(udp + 8..end)?.to_vec();
    Some((Fields { src, dst, src_port, dst_port, tos, hop_limit }, payload))
}

impl Model {
    fn on_committed(&mut self, frame: Option<(Fields, Expected)>) {
        self.counts.committed += 1;
        match frame {
            None => self.counts.not_udp += 1,
            Some((fields, _)) if !self.has_source(fields.src.is_ipv6()) => {
                self.counts.no_source += 1;
            }
            Some((fields, frame)) => self.flows.entry(fields).or_default().push_back(frame),
        }
    }

    fn has_source(&self, is_v6: bool) -> bool {
        self.bound.iter().any(|(_, six)| *six == is_v6)
    }

    /// Checks a send call, and answers it with an error of the input.
    fn on_send(&mut self, args: &SendArgs, error: Option<u8>) -> io::Result<()> {
        let count = args.parts.len();
        let key = self.flow_of(args, &args.parts[0]);
        self.check_run(&key, args);
        let error = match error.map(|byte| byte % 8) {
            None | Some(0 | 1) => {
                for (id, part) in (0..).zip(&args.parts) {
                    let key = self.flow_of(args, part);
                    self.check_part(&key, args.source_port, id, part);
                }
                self.counts.sent += count as u64;
                self.counts.calls += 1;
                return Ok(());
            }
            Some(2) => libc_errno::EAGAIN,
            Some(3) => libc_errno::EINTR,
            Some(4) => libc_errno::EINVAL,
            Some(5) => libc_errno::EMSGSIZE,
            Some(6) => libc_errno::ENOBUFS,
            Some(_) => libc_errno::EPERM,
        };
        let is_about_segments = [libc_errno::EINVAL, libc_errno::EMSGSIZE].contains(&error);
        match error {
            libc_errno::EAGAIN => self.counts.again += 1,
            libc_errno::EINTR => {}
            _ if count > 1 && is_about_segments => self.counts.unsegmented += 1,
            // The port sends this one and longer ones as fragments.
            libc_errno::EMSGSIZE if args.parts[0].len() < self.fragmented_from => {
                self.fragmented_from = args.parts[0].len();
            }
            _ => {
                match error {
                    libc_errno::EMSGSIZE => self.counts.too_long += 1,
                    libc_errno::ENOBUFS => self.counts.no_memory += 1,
                    _ => self.counts.rejected += 1,
                }
                self.pop(&key);
            }
        }
        Err(io::Error::from_raw_os_error(error))
    }

    /// The flow whose oldest frame is this part. A source port without a socket is replaced by one
    /// with a socket, so that a run may have frames of both; the former differ from all others.
    fn flow_of(&self, args: &SendArgs, part: &[u8]) -> Fields {
        let to = args.to.expect("an address");
        let is_it = |(fields, frames): &(&Fields, &VecDeque<Expected>)| {
            let is_v6 = fields.src.is_ipv6();
            let is_bound = self.bound.contains(&(fields.src_port, is_v6));
            let is_source = fields.src_port == args.source_port || !is_bound;
            let is_to = (fields.dst, fields.dst_port) == (to.ip(), to.port());
            is_source
                && is_to
                && self.control_of(fields, args) == args.control
                && frames.front().is_some_and(|frame| self.is_same(&frame.payload, part))
        };
        let mut found = self.flows.iter().filter(is_it).map(|(fields, _)| *fields);
        let found = found.next();
        found.unwrap_or_else(|| panic!("no flow has a frame to leave as {part:?} by {args:?}"))
    }

    /// Whether a part is a payload. The port changes the ICRC.
    fn is_same(&self, payload: &[u8], part: &[u8]) -> bool {
        let kept = payload.len().saturating_sub(if self.has_checksum { 4 } else { 0 });
        payload.len() == part.len() && payload[..kept] == part[..kept]
    }

    /// The limits of UDP_SEGMENT: at most 64 segments of one length, but for a shorter last one, in
    /// at most 65,487 bytes.
    fn check_run(&self, fields: &Fields, args: &SendArgs) {
        let (last, others) = args.parts.split_last().expect("a part");
        assert!(others.len() < 64, "{} parts", args.parts.len());
        let bytes: usize = args.parts.iter().map(Vec::len).sum();
        if let Some(first) = others.first() {
            assert!(bytes <= 65_487, "{bytes} bytes");
            assert!(others.iter().all(|part| part.len() == first.len()));
            assert!((1..=first.len()).contains(&last.len()), "a last part of {}", last.len());
        }
        let source = (args.source_port, fields.src.is_ipv6());
        assert!(self.bound.contains(&source), "{source:?}");
    }

    /// The control messages for the headers of a flow.
    fn control_of(&self, fields: &Fields, args: &SendArgs) -> Vec<(i32, i32, Vec<u8>)> {
        let (tos, hops) = (i32::from(fields.tos), i32::from(fields.hop_limit));
        let (level, info, names) = match fields.src {
            IpAddr::V4(ip) => (0, [&[0; 4], &ip.octets()[..], &[0; 4]].concat(), [8, 1, 2]),
            IpAddr::V6(ip) => (41, [&ip.octets()[..], &[0; 4]].concat(), [50, 67, 52]),
        };
        let mut control =
            vec![(level, names[0], info), (level, names[1], tos.to_ne_bytes().to_vec())];
        if hops > 0 {
            control.push((level, names[2], hops.to_ne_bytes().to_vec()));
        }
        if args.parts.len() > 1 {
            let segment = u16::try_from(args.parts[0].len()).expect("a datagram");
            control.push((17, 103, segment.to_ne_bytes().to_vec()));
        }
        control
    }

    /// Part `id` of a send is the oldest frame of the flow, and its ICRC is as right as before.
    fn check_part(&mut self, key: &Fields, source_port: u16, id: u16, part: &[u8]) {
        let frame = self.pop(key);
        assert!(self.is_same(&frame.payload, part), "part {id} of {key:?}");
        if frame.payload.ends_with(&[0; 4]) {
            assert_eq!(frame.payload, part, "part {id} of {key:?} has no ICRC");
            return;
        }
        if let Some(before) = frame.residue.filter(|_| self.has_checksum) {
            let sent = Fields { src_port: source_port, ..*key };
            assert_eq!(residue(&sent.frame(id, part)), before, "part {id} of {key:?}");
        }
    }

    fn pop(&mut self, key: &Fields) -> Expected {
        let frames = self.flows.get_mut(key).expect("a known flow");
        frames.pop_front().expect("a frame that was committed")
    }
}

/// Error numbers of Linux.
mod libc_errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const EINTR: i32 = 4;
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const EMSGSIZE: i32 = 90;
    pub(super) const ENOBUFS: i32 = 105;
}

/// A run over each IP version, several flows in turns, frames of any bytes, and each error.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let run = |flow: u8| [0, flow, 0x30, 3, 70];
    let flush = |errors: &[u8]| [&[0xff, errors.len().to_le_bytes()[0]], errors].concat();
    let setup = [0, 1, 8];
    vec![
        ("sends", [&setup[..], &run(0), &run(0x41), &flush(&[])].concat()),
        ("flows", [&setup[..], &run(0), &run(0x80), &run(8), &run(0x48), &flush(&[])].concat()),
        ("again", [&setup[..], &run(0xf8), &flush(&[2]), &run(0xf8), &flush(&[0, 2])].concat()),
        ("unsegmented", [&setup[..], &run(0), &flush(&[4, 0, 2]), &flush(&[5, 5, 6, 7])].concat()),
        ("short", [&setup[..], &[0, 0, 8, 0], &[0, 0, 8, 7], &flush(&[3, 3])].concat()),
        ("bytes", [&setup[..], &[0x80, 0, 20, 1, 14, 0xff, 0xff], &[0x80, 1, 9, 0, 30]].concat()),
        ("no-source", [&[0, 1, 16][..], &run(1), &run(0), &flush(&[])].concat()),
    ]
}

/// Payload of one step, beyond the first frame: more than a run has.
const BYTES_MAX: usize = 80_000;
/// Steps of an input.
const STEPS_MAX: usize = 200;
/// Payloads of this length differ from each other also in front of the ICRC.
const DISTINCT_BYTES: usize = 12;
