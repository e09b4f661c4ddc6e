//! A capture with its metadata: hosts, programs, losses.

use super::packet::Sent;
use super::script::{Program, Script};
use crate::pcap::Pcap;
use core::fmt;
use spanwire_base::{Dur, Time};
use spanwire_wire::{
    Bth, DropReason, Ethernet, EthernetRepr, Ipv4, Ipv6, MacAddr, Opcode, Packet, Qpn, ROCE_PORT,
    Service, Udp,
};
use std::fs;
use std::path::PathBuf;

/// A host of the captures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Host {
    /// The rxe guest that connects.
    A,
    /// The rxe guest that listens.
    B,
    /// The hand-made endpoint of captures 80 to 85.
    U,
}

/// A RoCE frame of a capture.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Time of capture, from a second before the first frame on.
    pub at: Time,
    /// The sender.
    pub from: Host,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The queue pair it is addressed to.
    pub dest_qp: Qpn,
    /// UDP source port.
    pub src_port: u16,
    /// The transport service of its opcode; `None` for an unsupported one.
    pub service: Option<Service>,
    /// The packet, or the reason why it is dropped.
    pub packet: Result<Sent, DropReason>,
    /// A filter dropped it after the point of capture.
    pub lost: bool,
}

/// Two connected queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Numbers of the queue pairs, in the order of [`Capture::hosts`]; `None` if the file does not
    /// have it.
    pub qpns: [Option<Qpn>; 2],
}

/// A frame that a filter of the capture's bridge dropped, as `captures.md` describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Its sender.
    pub from: Host,
    /// Its opcode.
    pub opcode: Opcode,
    /// Its position among the frames of that opcode, from 1; `None` for all of them.
    pub nth: Option<usize>,
}

/// The parameters that a vprobe announces to its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Announced {
    pub(super) qpn: Qpn,
    pub(super) rkey: u32,
    /// Address and bytes of its memory.
    pub(super) va: u64,
    pub(super) len: u64,
}

/// A capture file.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The file's name without its ending.
    pub name: String,
    /// The hosts: the one that connects first.
    pub hosts: [Host; 2],
    /// RoCE frames, in the order captured.
    pub frames: Vec<Frame>,
    /// The frames that the filter dropped.
    pub loss: Option<Loss>,
    /// The program of each of `hosts`.
    pub(super) scripts: [Script; 2],
    /// The announcement of each of `hosts` over TCP.
    pub(super) announced: [Option<Announced>; 2],
}

/// The directory of the captures.
#[must_use]
pub fn rxe_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/rxe")
}

/// All captures that `captures.md` names, in its order.
///
/// # Panics
/// If the folder or a file in it is invalid; `golden.rs` tests the files themselves.
#[must_use]
pub fn captures() -> Vec<Capture> {
    let text = fs::read_to_string(rxe_dir().join("captures.md")).expect("captures.md is there");
    text.split("\n## ").skip(1).map(Capture::read).collect()
}

impl Capture {
    fn read(section: &str) -> Self {
        let file = section.lines().next().expect("a section has a heading");
        let name = file.strip_suffix(".pcap").expect("a capture").to_owned();
        let command = |side: &str| {
            let line = section.lines().find(|l| l.starts_with(side)).expect("both commands");
            let (_, command) = line.split_once("): ").or(line.split_once(": ")).expect("a command");
            Script::parse(command)
        };
        let scripts = [command("client"), command("server")];
        let hosts = match scripts.each_ref().map(|s| s.program) {
            [Program::HandMade, _] => [Host::U, Host::B],
            [_, Program::HandMade] => [Host::A, Host::U],
            _ => [Host::A, Host::B],
        };
        let bytes = fs::read(rxe_dir().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let loss = loss_of(&name);
        assert_eq!(loss.is_some(), section.contains("\nloss: "), "{name}");
        let mut this =
            Self { name, hosts, frames: Vec::new(), loss, scripts, announced: [None; 2] };
        this.read_frames(&bytes);
        this.mark_lost();
        this
    }

    fn read_frames(&mut self, file: &[u8]) {
        let pcap = Pcap::new(file).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let mut start = None;
        for frame in pcap.frames() {
            let frame = frame.unwrap_or_else(|e| panic!("{}: {e}", self.name));
            let Ok(eth) = Ethernet::new(frame.bytes) else {
                continue;
            };
            let from = Host::of(eth.src());
            let Some((udp, ib)) = roce_of(frame.bytes) else {
                self.note_announcement(from, frame.bytes);
                continue;
            };
            let bth = Bth::new(ib).expect("golden.rs has read them all");
            let start = *start.get_or_insert(frame.at_ns);
            let at = Time::ZERO + Dur::from_secs(1) + Dur::from_ns(frame.at_ns - start);
            self.frames.push(Frame {
                at,
                from,
                bytes: frame.bytes.to_vec(),
                dest_qp: bth.dest_qp(),
                src_port: udp.src_port(),
                service: Opcode::from_u8(bth.opcode()).map(|op| op.props().service),
                packet: Packet::parse(frame.bytes).map(|p| Sent::new(&p)),
                lost: false,
            });
        }
    }

    /// Parses vprobe's announcement, a line of text with its queue pair and memory: `VP qpn psn gid
    /// rkey address length qkey`.
    fn note_announcement(&mut self, from: Host, frame: &[u8]) {
        let Some(at) = frame.windows(5).position(|w| w == b"VP 0x") else {
            return;
        };
        let line = String::from_utf8_lossy(&frame[at..]);
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |word: &str| {
            u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("a hexadecimal number")
        };
        let small = |word| u32::try_from(hex(word)).expect("32 bits");
        self.announced[self.index(from)] = Some(Announced {
            qpn: Qpn::new(small(words[1])),
            rkey: small(words[4]),
            va: hex(words[5]),
            len: words[6].parse().expect("a decimal number"),
        });
    }

    fn mark_lost(&mut self) {
        let Some(loss) = self.loss else {
            return;
        };
        let of_kind = |f: &Frame| {
            f.from == loss.from
                && f.packet.as_ref().is_ok_and(|p| p.headers.bth.opcode == loss.opcode)
        };
        // Frames that B lost are not in the file, because they were dropped before the point of
        // capture.
        if loss.from == Host::A {
            for (n, frame) in (1..).zip(self.frames.iter_mut().filter(|f| of_kind(f))) {
                frame.lost = loss.nth.is_none_or(|nth| nth == n);
            }
            assert!(self.frames.iter().any(|f| f.lost), "{}: nothing is lost", self.name);
        }
    }

    /// Place of `host` in [`Capture::hosts`].
    ///
    /// # Panics
    /// If it did not take part.
    #[must_use]
    pub fn index(&self, host: Host) -> usize {
        self.hosts
            .iter()
            .position(|h| *h == host)
            .unwrap_or_else(|| panic!("{} has no {host}", self.name))
    }

    /// True for the hand-made endpoint, which is no implementation to conform to.
    #[must_use]
    pub fn is_hand_made(&self, host: Host) -> bool {
        self.scripts[self.index(host)].program == Program::HandMade
    }

    /// Bytes of the first receive request of `host`, if its program is known to post one.
    #[must_use]
    pub fn first_recv_len(&self, host: Host) -> Option<u32> {
        self.scripts[self.index(host)].recvs.first().copied()
    }

    /// The frames of one service.
    pub fn of_service(&self, service: Service) -> impl Iterator<Item = &Frame> {
        self.frames.iter().filter(move |f| f.service == Some(service))
    }

    /// The connected RC queue pairs. Both ends of a connection use the same UDP source port; a
    /// single connection needs no matching.
    #[must_use]
    pub fn links(&self) -> Vec<Link> {
        let mut to: [Vec<(Qpn, u16)>; 2] = [Vec::new(), Vec::new()];
        for frame in self.of_service(Service::Rc) {
            let list = &mut to[1 - self.index(frame.from)];
            if !list.iter().any(|(qpn, _)| *qpn == frame.dest_qp) {
                list.push((frame.dest_qp, frame.src_port));
            }
        }
        let [first, second] = to;
        if first.len() <= 1 && second.len() <= 1 {
            if first.is_empty() && second.is_empty() {
                return Vec::new();
            }
            // A queue pair without a response is identified by its announcement.
            let announced = self.announced.map(|a| a.map(|a| a.qpn));
            let qpn = |list: &[(Qpn, u16)], side: usize| {
                list.first().map(|(qpn, _)| *qpn).or(announced[side])
            };
            return vec![Link { qpns: [qpn(&first, 0), qpn(&second, 1)] }];
        }
        second
            .iter()
            .map(|(qpn, port)| {
                let other = first.iter().find(|(_, p)| p == port).map(|(qpn, _)| *qpn);
                Link { qpns: [other, Some(*qpn)] }
            })
            .collect()
    }
}

impl Host {
    fn of(mac: MacAddr) -> Self {
        match mac.octets() {
            [0x52, 0x54, 0x00, 0x4f, 0xd8, 0x01] => Self::A,
            [0x52, 0x54, 0x00, 0x10, 0x0b, 0x01] => Self::B,
            _ => Self::U,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// UDP header and payload of a frame to port 4791.
fn roce_of(frame: &[u8]) -> Option<(Udp<'_>, &[u8])> {
    let ip = frame.get(14..)?;
    let payload = match Ethernet::new(frame).ok()?.ethertype() {
        EthernetRepr::IPV4 => Ipv4::new(ip).ok().filter(|(v, _)| v.protocol() == 17)?.1,
        EthernetRepr::IPV6 => Ipv6::new(ip).ok().filter(|(v, _)| v.next_header() == 17)?.1,
        _ => return None,
    };
    Udp::new(payload).ok().filter(|(udp, _)| udp.dst_port() == ROCE_PORT)
}

/// The `loss:` lines of `captures.md`.
fn loss_of(name: &str) -> Option<Loss> {
    use Opcode::{
        RcAck, RcAtomicAck, RcReadRequest, RcReadResponseLast, RcReadResponseMiddle, RcSendOnly,
        RcWriteMiddle,
    };
    let (from, opcode, nth) = match name {
        "70_loss_write_middle" => (Host::A, RcWriteMiddle, Some(2)),
        "71_loss_send_only" => (Host::A, RcSendOnly, Some(3)),
        "72_loss_tail" => (Host::A, RcSendOnly, Some(4)),
        "73_loss_ack" => (Host::B, RcAck, Some(1)),
        "74_loss_read_middle" => (Host::B, RcReadResponseMiddle, Some(2)),
        "75_loss_read_last" => (Host::B, RcReadResponseLast, Some(1)),
        "76_loss_read_request" => (Host::A, RcReadRequest, Some(1)),
        "77_loss_atomic_ack" | "78_loss_atomic_ack_pipelined" => (Host::B, RcAtomicAck, Some(1)),
        "79_loss_all" => (Host::A, RcSendOnly, None),
        _ => return None,
    };
    Some(Loss { from, opcode, nth })
}
