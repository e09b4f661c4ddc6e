//! Packets as lines of text, in the terms of the InfiniBand specification.

use crate::decode::{Decoded, RocePacket, Segment};
use crate::ip::{Icrc, Other};
use crate::nak::{nak_name, rnr_timer_us};
use spanwire_wire::{AethRepr, Bth, Ecn, ExtHeaders, OpKind, Opcode, Service, Syndrome};
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;

/// A frame as a line of text, by its `Display`.
#[derive(Debug)]
pub struct Line<'a> {
    /// Its number in the file, from 1, as in Wireshark.
    pub number: u64,
    /// Nanoseconds since the first frame of the file, which may not be the earliest; `None` if the
    /// file has no timestamps.
    pub since_first_ns: Option<i128>,
    /// Length on the wire in bytes.
    pub original_len: usize,
    /// Captured length in bytes.
    pub captured_len: usize,
    /// The decoded frame.
    pub decoded: &'a Decoded<'a>,
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6} ", self.number)?;
        match self.since_first_ns {
            Some(ns) => {
                let sign = if ns < 0 { "-" } else { "" };
                let (s, ns) = (ns.unsigned_abs() / NS_PER_S, ns.unsigned_abs() % NS_PER_S);
                write!(f, "{:>14}", format_args!("{sign}{s}.{ns:09}").to_string())?;
            }
            None => write!(f, "{:>14}", "-")?,
        }
        match self.decoded {
            Decoded::Roce(packet) => {
                write!(f, "  {packet}")?;
                if packet.truncated {
                    let Self { captured_len, original_len, .. } = self;
                    write!(f, "  truncated: {captured_len} of {original_len} bytes captured")?;
                }
                Ok(())
            }
            Decoded::Other(other) => {
                write!(f, "  not RoCE: {other}, {} bytes", self.original_len)
            }
        }
    }
}

impl Display for RocePacket<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for vlan in self.vlans.iter().flatten() {
            write!(f, "vlan {vlan} ")?;
        }
        write!(f, "{} -> {}", SocketAddr::new(self.src, self.src_port), self.dst)?;
        if let Some(bth) = &self.bth {
            write_bth(f, bth)?;
        }
        if let Some(ext) = &self.ext {
            write_ext(f, ext, self.opcode)?;
        }
        if let Some(src) = &self.sr_header {
            write!(f, "  {src}")?;
        }
        let has_payload = |opcode: Opcode| {
            opcode.props().payload && !matches!(opcode, Opcode::SrAck | Opcode::SrNear)
        };
        if self.opcode.is_some_and(has_payload)
            && let Some(len) = self.payload_len
        {
            write!(f, "  payload {len}")?;
        }
        match self.ecn {
            Ecn::NotEct => {}
            Ecn::Ect0 => f.write_str("  ECT(0)")?,
            Ecn::Ect1 => f.write_str("  ECT(1)")?,
            Ecn::Ce => f.write_str("  CE")?,
        }
        match self.icrc {
            Icrc::Good => f.write_str("  icrc good")?,
            Icrc::Bad { sent, computed } => {
                write!(f, "  icrc BAD (sent {sent:#010x}, computed {computed:#010x})")?;
            }
            Icrc::Unchecked => f.write_str("  icrc not checked")?,
        }
        if let Some(fault) = self.fault {
            write!(f, "  PARSE ERROR {fault}")?;
        }
        match self.segment {
            Some(Segment { number, of }) => write!(f, "  segment {number} of {of}"),
            None => Ok(()),
        }
    }
}

impl Display for Other {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("no whole header"),
            Self::EtherType(0x0806) => f.write_str("ARP"),
            Self::EtherType(other) => write!(f, "EtherType {other:#06x}"),
            Self::Fragment => f.write_str("IP fragment"),
            Self::Protocol(1 | 58) => f.write_str("ICMP"),
            Self::Protocol(6) => f.write_str("TCP"),
            Self::Protocol(other) => write!(f, "IP protocol {other}"),
            Self::UdpPort(port) => write!(f, "UDP port {port}"),
        }
    }
}

/// The name of an opcode byte: the service, the operation, and the packet's position in its
/// message. An unsupported opcode is named by its service and number.
#[must_use]
pub fn opcode_name(byte: u8) -> String {
    let Some(opcode) = Opcode::from_u8(byte) else {
        return match SERVICES.get(usize::from(byte >> 5)) {
            Some(service) => format!("{service} opcode {byte:#04x}"),
            None => format!("opcode {byte:#04x}"),
        };
    };
    let props = opcode.props();
    let service = match props.service {
        Service::Rc => "RC ",
        Service::Uc => "UC ",
        Service::Ud => "UD ",
        Service::Cnp => "",
        Service::Sr => "SR ",
    };
    let (operation, in_parts) = match props.kind {
        OpKind::Send => ("SEND", true),
        OpKind::Write => ("WRITE", true),
        OpKind::ReadRequest => ("READ Request", false),
        OpKind::ReadResponse => ("READ Response", true),
        OpKind::Ack => ("Acknowledge", false),
        OpKind::AtomicAck => ("Atomic Acknowledge", false),
        OpKind::Atomic if opcode == Opcode::RcCmpSwap => ("CmpSwap", false),
        OpKind::Atomic => ("FetchAdd", false),
        OpKind::Cnp => ("CNP", false),
        OpKind::SrData => ("Data", false),
        OpKind::SrAck => ("Acknowledge", false),
        OpKind::SrParity => ("Parity", false),
        OpKind::SrNear => ("Feedback", false),
    };
    let position = match (in_parts, props.first, props.last) {
        (false, ..) => "",
        (_, true, true) => " Only",
        (_, true, false) => " First",
        (_, false, true) => " Last",
        (_, false, false) => " Middle",
    };
    let with = match (props.imm, props.ieth) {
        (true, _) => " with Immediate",
        (_, true) => " with Invalidate",
        _ => "",
    };
    format!("{service}{operation}{position}{with}")
}

fn write_bth(f: &mut Formatter<'_>, bth: &Bth<'_>) -> fmt::Result {
    let (qp, psn, name) = (bth.dest_qp().get(), bth.psn().get(), opcode_name(bth.opcode()));
    write!(f, "  qp {qp:#08x}  {name}  psn {psn:#08x}")?;
    for (flag, name) in [
        (bth.ack_req(), "AckReq"),
        (bth.solicited(), "SE"),
        (bth.fecn(), "FECN"),
        (bth.becn(), "BECN"),
    ] {
        if flag {
            write!(f, " {name}")?;
        }
    }
    if bth.pad() > 0 {
        write!(f, " pad {}", bth.pad())?;
    }
    if bth.pkey() != DEFAULT_PKEY {
        write!(f, " pkey {:#06x}", bth.pkey())?;
    }
    if bth.tver() != 0 {
        write!(f, " tver {}", bth.tver())?;
    }
    Ok(())
}

fn write_ext(f: &mut Formatter<'_>, ext: &ExtHeaders, opcode: Option<Opcode>) -> fmt::Result {
    if let Some(deth) = &ext.deth {
        write!(f, "  from qp {:#08x} qkey {:#010x}", deth.src_qp.get(), deth.qkey)?;
    }
    if let Some(reth) = &ext.reth {
        write!(f, "  va {:#018x} rkey {:#010x} len {}", reth.va, reth.rkey, reth.dma_len)?;
    }
    if let Some(atomic) = &ext.atomic {
        write!(f, "  va {:#018x} rkey {:#010x}", atomic.va, atomic.rkey)?;
        if opcode == Some(Opcode::RcCmpSwap) {
            write!(f, " compare {:#x} swap {:#x}", atomic.compare, atomic.swap_or_add)?;
        } else {
            write!(f, " add {:#x}", atomic.swap_or_add)?;
        }
    }
    if let Some(aeth) = &ext.aeth {
        write_aeth(f, aeth)?;
    }
    if let Some(ack) = &ext.atomic_ack {
        write!(f, " original {:#x}", ack.original)?;
    }
    if let Some(imm) = ext.imm {
        write!(f, "  imm {imm:#010x}")?;
    }
    match ext.ieth {
        Some(rkey) => write!(f, "  invalidate rkey {rkey:#010x}"),
        None => Ok(()),
    }
}

fn write_aeth(f: &mut Formatter<'_>, aeth: &AethRepr) -> fmt::Result {
    match aeth.syndrome {
        Syndrome::Ack { credits: Syndrome::NO_CREDIT_LIMIT } => f.write_str("  ACK")?,
        Syndrome::Ack { credits } => write!(f, "  ACK credits {credits}")?,
        Syndrome::RnrNak { timer } => {
            let us = rnr_timer_us(timer);
            write!(f, "  RNR NAK timer {}.{:02} ms", us / 1000, us % 1000 / 10)?;
        }
        Syndrome::Nak(code) => write!(f, "  NAK {}", nak_name(code))?,
        Syndrome::Reserved(byte) => write!(f, "  syndrome {byte:#04x}")?,
    }
    write!(f, " msn {}", aeth.msn)
}

const NS_PER_S: u128 = 1_000_000_000;
/// The default partition key with full membership; only other keys are shown.
const DEFAULT_PKEY: u16 = 0xffff;
/// Names of the services by the top three bits of an opcode.
const SERVICES: [&str; 6] = ["RC", "UC", "RD", "UD", "CNP", "XRC"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcode_name__has_service_operation_and_position() {
        for (byte, name) in [
            (0x00, "RC SEND First"),
            (0x05, "RC SEND Only with Immediate"),
            (0x06, "RC WRITE First"),
            (0x09, "RC WRITE Last with Immediate"),
            (0x0c, "RC READ Request"),
            (0x0e, "RC READ Response Middle"),
            (0x11, "RC Acknowledge"),
            (0x12, "RC Atomic Acknowledge"),
            (0x13, "RC CmpSwap"),
            (0x14, "RC FetchAdd"),
            (0x17, "RC SEND Only with Invalidate"),
            (0x2a, "UC WRITE Only"),
            (0x64, "UD SEND Only"),
            (0x81, "CNP"),
            (0x15, "RC opcode 0x15"),
            (0xa6, "XRC opcode 0xa6"),
            (0xff, "opcode 0xff"),
        ] {
            assert_eq!(opcode_name(byte), name);
        }
    }

    #[test]
    fn opcode_name__is_unique() {
        let mut names: Vec<_> = (0..=255).map(opcode_name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 256);
    }

    #[test]
    fn line__time_may_be_negative_or_missing() {
        let of = |since_first_ns| {
            let decoded = Decoded::Other(Other::EtherType(0x0806));
            let (original_len, captured_len) = (60, 60);
            Line { number: 7, since_first_ns, original_len, captured_len, decoded: &decoded }
                .to_string()
        };
        assert_eq!(of(Some(-1_500)), "     7   -0.000001500  not RoCE: ARP, 60 bytes");
        assert_eq!(of(Some(12_000_000_001)), "     7   12.000000001  not RoCE: ARP, 60 bytes");
        assert_eq!(of(None), "     7              -  not RoCE: ARP, 60 bytes");
    }
}
