//! A packet in the form in which it is compared.

use core::fmt;
use spanwire_wire::{Headers, IpRepr, OpClass, Opcode, Packet, Psn, Syndrome};

/// A packet that a side sent: every header and the payload, except fields that implementations
/// choose freely. Those are the IPv4 identification, and the header checksum and the ICRC that
/// depend on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// All headers; the IPv4 identification is 0.
    pub headers: Headers,
    /// The payload, without pad.
    pub payload: Vec<u8>,
}

/// A packet with its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logged {
    /// Index of a frame of the capture: the packet itself if it was recorded, otherwise the frame
    /// being replayed when the engine sent it.
    pub at: usize,
    /// The packet.
    pub sent: Sent,
}

/// The requests and the responses of a queue pair are two independent sequences, because their
/// interleaving is a matter of scheduling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Packets of the side's requester.
    Requests,
    /// Packets of the side's responder.
    Responses,
}

/// A part of a packet that can differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Field {
    /// Ethernet, IP (except IPv4's identification), UDP.
    LowerLayers,
    /// The opcode.
    Opcode,
    /// The packet sequence number.
    Psn,
    /// The AckReq bit.
    AckReq,
    /// The solicited event bit.
    Solicited,
    /// Any other field of the BTH.
    Bth,
    /// Address, key or length of a WRITE or READ.
    Reth,
    /// The operands of an atomic.
    Atomic,
    /// The original value of an atomic.
    AtomicAck,
    /// Immediate data.
    Imm,
    /// ACK, RNR NAK with its timer, or NAK with its code.
    Syndrome,
    /// The message sequence number.
    Msn,
    /// An AETH is present in one packet only.
    AethPresence,
    /// Payload bytes, or their number.
    Payload,
}

impl Sent {
    /// A packet that has passed the wire's checks.
    #[must_use]
    pub fn new(packet: &Packet<'_>) -> Self {
        let mut headers = Headers::from(packet);
        if let IpRepr::V4(v4) = &mut headers.ip {
            v4.id = 0;
        }
        Self { headers, payload: packet.payload.to_vec() }
    }

    /// Its lane; `None` for a CNP.
    #[must_use]
    pub fn lane(&self) -> Option<Lane> {
        match self.headers.bth.opcode.props().class {
            OpClass::Request => Some(Lane::Requests),
            OpClass::Response => Some(Lane::Responses),
            OpClass::Notification => None,
        }
    }

    /// Its sequence number.
    #[must_use]
    pub fn psn(&self) -> Psn {
        self.headers.bth.psn
    }

    /// Its opcode.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        self.headers.bth.opcode
    }

    /// The syndrome of its AETH.
    #[must_use]
    pub fn syndrome(&self) -> Option<Syndrome> {
        self.headers.ext.aeth.map(|aeth| aeth.syndrome)
    }

    /// The fields that differ from `other`, in the order of [`Field`].
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> Vec<Field> {
        let (a, b) = (&self.headers, &other.headers);
        let (x, y) = (&a.ext, &b.ext);
        let rest = |h: &Headers| (h.bth.pkey, h.bth.mig_req, h.bth.dest_qp, h.bth.fecn, h.bth.becn);
        let aeth = match (x.aeth, y.aeth) {
            (Some(x), Some(y)) => (x.syndrome != y.syndrome, x.msn != y.msn, false),
            (x, y) => (false, false, x.is_some() != y.is_some()),
        };
        let checks = [
            (Field::LowerLayers, (a.eth, a.ip, a.udp) != (b.eth, b.ip, b.udp)),
            (Field::Opcode, a.bth.opcode != b.bth.opcode),
            (Field::Psn, a.bth.psn != b.bth.psn),
            (Field::AckReq, a.bth.ack_req != b.bth.ack_req),
            (Field::Solicited, a.bth.solicited != b.bth.solicited),
            (Field::Bth, rest(a) != rest(b)),
            (Field::Reth, x.reth != y.reth),
            (Field::Atomic, x.atomic != y.atomic),
            (Field::AtomicAck, x.atomic_ack != y.atomic_ack),
            (Field::Imm, x.imm != y.imm),
            (Field::Syndrome, aeth.0),
            (Field::Msn, aeth.1),
            (Field::AethPresence, aeth.2),
            (Field::Payload, self.payload != other.payload),
        ];
        checks.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bth, ext) = (&self.headers.bth, &self.headers.ext);
        write!(f, "{} psn={}", bth.opcode.props().name, bth.psn.get())?;
        if bth.ack_req {
            write!(f, " ack_req")?;
        }
        if bth.solicited {
            write!(f, " solicited")?;
        }
        if let Some(reth) = ext.reth {
            write!(f, " va={:#x} rkey={:#x} len={}", reth.va, reth.rkey, reth.dma_len)?;
        }
        if let Some(a) = ext.atomic {
            write!(f, " va={:#x} swap_or_add={:#x} cmp={:#x}", a.va, a.swap_or_add, a.compare)?;
        }
        if let Some(aeth) = ext.aeth {
            write!(f, " syndrome={:#04x} msn={}", aeth.syndrome.to_u8(), aeth.msn)?;
        }
        if let Some(ack) = ext.atomic_ack {
            write!(f, " original={:#x}", ack.original)?;
        }
        if let Some(imm) = ext.imm {
            write!(f, " imm={imm:#x}")?;
        }
        if !self.payload.is_empty() {
            let head = &self.payload[..self.payload.len().min(8)];
            write!(f, " {} bytes {head:02x?}", self.payload.len())?;
        }
        Ok(())
    }
}
