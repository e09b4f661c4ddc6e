//! The forger: makes any packet from a step's operands, close to an acceptable one.

mod blocks;
mod request;
mod selective;
mod view;

pub(super) use view::View;

use super::layout::STEP_LEN;
use super::setup::{MTU, OUR_IP, PEER_IP};
use super::streams::Inside;
use request::{dma_len, target};
use spanwire_wire::{
    AethRepr, AtomicAckEthRepr, AtomicEthRepr, BthRepr, DethRepr, EthernetRepr, ExtHeaders,
    Headers, IntFormat, IpRepr, MacAddr, Opcode, OpcodeProps, Packet, Psn, Qpn, RethRepr, Syndrome,
    UdpRepr, seal,
};
use std::net::{IpAddr, Ipv6Addr};

/// A forged packet.
pub(super) struct Forged {
    pub(super) frame: Vec<u8>,
    pub(super) bth: BthRepr,
    pub(super) ext: ExtHeaders,
    pub(super) payload_len: usize,
    /// Its content, if it is an SR packet.
    pub(super) inside: Option<Inside>,
    /// False if no queue pair may accept it, whatever its content.
    pub(super) is_acceptable: bool,
}

impl Forged {
    /// The operands: kind, opcode, PSN's base and distance, flags, length's kind and value, plot,
    /// address, DMA length, syndrome.
    pub(super) fn new(step: &[u8; STEP_LEN], view: &View<'_>) -> Self {
        let [_, op, base, distance, flags, len_kind, len, plot, at, dma, syndrome] = *step;
        let is_srs =
            matches!(selective::opcode(op), Opcode::SrData | Opcode::SrAck | Opcode::SrNear);
        if view.is_sr && is_srs {
            return Self::of_sr(step, view);
        }
        let op = if view.is_sr { op - 0xe0 } else { op };
        let opcode = Opcode::ALL[usize::from(op) % Opcode::ALL.len()];
        let props = opcode.props();
        let payload_len = payload_len(props, len_kind, len);
        let special = Special::of(flags >> 2);
        let bth = special.bth(flags, opcode, view.qpn, psn(view, base, distance));
        let (va, rkey) = target(view.memory, plot, at);
        let dma_len = dma_len(props, dma, payload_len, len);
        let ext = extensions(props, RethRepr { va, rkey, dma_len }, len, syndrome);
        let mut frame = emit(special, bth, ext, payload_len, FILL | (len & FILL_MASK));
        special.spoil(&mut frame, at, view.credit);
        let is_acceptable = special.is_acceptable();
        Self { frame, bth, ext, payload_len, inside: None, is_acceptable }
    }

    /// An SR packet. The operands: kind, operation, PSN's base and distance, flags, then those of
    /// its header.
    fn of_sr(step: &[u8; STEP_LEN], view: &View<'_>) -> Self {
        let [_, op, _, _, flags, _, len, _, at, ..] = *step;
        let body = match selective::opcode(op) {
            Opcode::SrData => selective::data(step, view),
            Opcode::SrNear => selective::near(step, view),
            _ => selective::ack(step, view),
        };
        let special = Special::of(flags >> 2);
        let bth = special.bth(flags, body.opcode, view.qpn, Psn::new(body.psn & Psn::MASK));
        let (header_len, ext) = (body.header.len(), ExtHeaders::default());
        let whole = header_len + body.payload_len;
        let fill = FILL | (len.wrapping_add(body.fill_offset) & FILL_MASK);
        let mut frame = emit(special, bth, ext, whole, fill);
        // The end of the BTH, for either version of IP.
        let start = frame.len() - whole.next_multiple_of(4) - ICRC_LEN;
        frame[start..start + header_len].copy_from_slice(&body.header);
        if special == Special::BentHeader {
            frame[start + usize::from(at) % header_len] ^= len;
        }
        let sealed = frame.len();
        seal(&mut frame, sealed);
        let inside = Packet::parse_unverified(&frame).ok().and_then(|p| Inside::of(&p));
        special.spoil(&mut frame, at, view.credit);
        let is_acceptable = special.is_acceptable();
        Self { frame, bth, ext, payload_len: body.payload_len, inside, is_acceptable }
    }
}

/// An anomaly of a packet outside its transport headers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    Nothing,
    WrongQpn,
    WrongSource,
    WrongDestination,
    OtherIpVersion,
    BadPkey,
    LimitedPkey,
    Marked,
    Corrupt,
    Truncated,
    LinkPadding,
    /// Telemetry after it, of any number of hops.
    Stamped,
    /// The same with a credit: mostly that of our last acknowledgement.
    Released,
    /// One byte of SR's header is changed; the ICRC is valid.
    BentHeader,
}

impl Special {
    /// From six bits; most values mean no anomaly.
    fn of(bits: u8) -> Self {
        match bits {
            48 => Self::WrongQpn,
            49 => Self::WrongSource,
            50 => Self::WrongDestination,
            51 => Self::OtherIpVersion,
            52 => Self::BadPkey,
            53 => Self::LimitedPkey,
            54 => Self::Marked,
            55 => Self::Corrupt,
            56 => Self::Truncated,
            57 => Self::LinkPadding,
            58 => Self::BentHeader,
            59 | 60 => Self::Stamped,
            32..48 => Self::Released,
            _ => Self::Nothing,
        }
    }

    fn is_acceptable(self) -> bool {
        matches!(
            self,
            Self::Nothing
                | Self::LimitedPkey
                | Self::Marked
                | Self::LinkPadding
                | Self::Stamped
                | Self::Released
                | Self::BentHeader
        )
    }

    fn bth(self, flags: u8, opcode: Opcode, qpn: Qpn, psn: Psn) -> BthRepr {
        let qpn = match self {
            Self::WrongQpn => Qpn::new(qpn.get() ^ 0x10_0000),
            _ => qpn,
        };
        let is_marked = self == Self::Marked;
        BthRepr {
            solicited: flags & 2 != 0,
            ack_req: flags & 1 == 0,
            pkey: match self {
                Self::BadPkey => 0x1234,
                Self::LimitedPkey => 0x7fff,
                _ => BthRepr::DEFAULT_PKEY,
            },
            becn: is_marked,
            fecn: is_marked,
            mig_req: is_marked,
            ..BthRepr::new(opcode, qpn, psn)
        }
    }

    fn ip(self) -> IpRepr {
        let other: IpAddr = [10, 0, 0, 3].into();
        let (src, dst) = match self {
            Self::WrongSource => (other, OUR_IP),
            Self::WrongDestination => (PEER_IP, other),
            Self::OtherIpVersion => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
            _ => (PEER_IP, OUR_IP),
        };
        IpRepr::new(src, dst).expect("addresses of one version")
    }

    /// Changes the frame as in transit. `credit` is that of our last acknowledgement.
    fn spoil(self, frame: &mut Vec<u8>, at: u8, credit: u32) {
        let inside = frame.len() - PAST_ICRC_MASKS;
        match self {
            // After the last byte that the ICRC does not cover.
            Self::Corrupt => frame[PAST_ICRC_MASKS + usize::from(at) % inside] ^= 1 << (at & 7),
            Self::Truncated => frame.truncate(frame.len() - 1 - usize::from(at) % frame.len()),
            Self::LinkPadding => frame.resize(frame.len() + usize::from(at), 0),
            Self::Stamped | Self::Released => {
                let (hops, format) = (at & 0x1f, at >> 6 & 1);
                let version = if self == Self::Released { 2 } else { 1 };
                frame.extend(b"INTs");
                frame.extend([version, hops, 16 | at >> 5, format]);
                if self == Self::Released {
                    let other = if at & 0xc == 0xc { u32::from(at) } else { 0 };
                    frame.extend(credit.wrapping_add(other).to_be_bytes());
                    frame.extend((u32::from(at) << (at & 0x1f)).to_be_bytes());
                }
                let format = IntFormat::from_u8(format).expect("0 or 1");
                let bytes = usize::from(hops) * format.record_len();
                frame.resize(frame.len() + bytes.saturating_sub(usize::from(at >> 7)), at);
            }
            _ => {}
        }
    }
}

fn psn(view: &View<'_>, base: u8, distance: u8) -> Psn {
    let base = match base & 3 {
        0 => view.epsn,
        1 => view.snd_una,
        2 => view.snd_nxt,
        _ => return Psn::new(u32::from(distance) << 16),
    };
    match distance.cast_signed() {
        ahead @ 0.. => base.plus(ahead.unsigned_abs().into()),
        behind => base.minus(behind.unsigned_abs().into()),
    }
}

/// The length that the opcode requires, or any up to 510 bytes.
fn payload_len(props: &OpcodeProps, kind: u8, len: u8) -> usize {
    let mtu = spanwire_base::usize_from(MTU.bytes().into());
    match kind & 3 {
        _ if !props.payload => 0,
        2 => 2 * usize::from(len),
        3 => mtu,
        _ if props.last => usize::from(len),
        _ => mtu,
    }
}

fn extensions(props: &OpcodeProps, reth: RethRepr, value: u8, syndrome: u8) -> ExtHeaders {
    let syndrome = match syndrome {
        0 => Syndrome::Ack { credits: Syndrome::NO_CREDIT_LIMIT },
        other => Syndrome::from_u8(other),
    };
    let RethRepr { va, rkey, .. } = reth;
    let compare = if value & 1 == 0 { u64::from_ne_bytes([0x11; 8]) } else { 0 };
    let swap_or_add = u64::from(value);
    ExtHeaders {
        reth: props.reth.then_some(reth),
        aeth: props.aeth.then_some(AethRepr { syndrome, msn: value.into() }),
        imm: props.imm.then_some(value.into()),
        ieth: props.ieth.then_some(rkey),
        atomic: props.atomic.then_some(AtomicEthRepr { va, rkey, swap_or_add, compare }),
        atomic_ack: props.atomic_ack.then_some(AtomicAckEthRepr { original: swap_or_add }),
        deth: props.deth.then_some(DethRepr { qkey: rkey, src_qp: Qpn::GSI }),
    }
}

fn emit(special: Special, bth: BthRepr, ext: ExtHeaders, payload_len: usize, fill: u8) -> Vec<u8> {
    let ip = special.ip();
    let headers = Headers {
        eth: EthernetRepr {
            dst: MacAddr::new([2, 0, 0, 0, 0, 1]),
            src: MacAddr::new([2, 0, 0, 0, 0, 2]),
            ethertype: EthernetRepr::IPV4,
        },
        ip,
        udp: UdpRepr::new(0xc000),
        bth,
        ext,
    };
    let len = headers.frame_len(payload_len);
    let mut frame = vec![0; len];
    let at = headers.emit(&mut frame, payload_len).expect("the buffer has the reported length");
    frame[at].fill(fill);
    seal(&mut frame, len);
    frame
}

/// The payload consists of bytes 0x40..=0x7f, which memory is never filled with.
const FILL: u8 = 0x40;
const FILL_MASK: u8 = 0x3f;
const ICRC_LEN: usize = 4;
/// Ethernet, IPv4, UDP and the first five bytes of the BTH.
const PAST_ICRC_MASKS: usize = 14 + 20 + 8 + 5;
