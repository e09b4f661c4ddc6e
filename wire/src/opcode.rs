//! BTH opcodes and their properties: one table, so that no other file lists opcodes.

use crate::{aeth, atomic, cnp, deth, ieth, immdt, reth};

/// The BTH opcode. The top three bits name the service (RC 0, UC 1, UD 3, a
/// manufacturer's 6 and 7), the rest the operation.
///
/// Reliable Datagram, XRC and resync are not supported; [`Opcode::from_u8`] rejects them.
#[expect(missing_docs, reason = "the names are IBTA's, and the table below describes each")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Opcode {
    RcSendFirst = 0x00,
    RcSendMiddle = 0x01,
    RcSendLast = 0x02,
    RcSendLastImm = 0x03,
    RcSendOnly = 0x04,
    RcSendOnlyImm = 0x05,
    RcWriteFirst = 0x06,
    RcWriteMiddle = 0x07,
    RcWriteLast = 0x08,
    RcWriteLastImm = 0x09,
    RcWriteOnly = 0x0a,
    RcWriteOnlyImm = 0x0b,
    RcReadRequest = 0x0c,
    RcReadResponseFirst = 0x0d,
    RcReadResponseMiddle = 0x0e,
    RcReadResponseLast = 0x0f,
    RcReadResponseOnly = 0x10,
    RcAck = 0x11,
    RcAtomicAck = 0x12,
    RcCmpSwap = 0x13,
    RcFetchAdd = 0x14,
    RcSendLastInv = 0x16,
    RcSendOnlyInv = 0x17,
    UcSendFirst = 0x20,
    UcSendMiddle = 0x21,
    UcSendLast = 0x22,
    UcSendLastImm = 0x23,
    UcSendOnly = 0x24,
    UcSendOnlyImm = 0x25,
    UcWriteFirst = 0x26,
    UcWriteMiddle = 0x27,
    UcWriteLast = 0x28,
    UcWriteLastImm = 0x29,
    UcWriteOnly = 0x2a,
    UcWriteOnlyImm = 0x2b,
    UdSendOnly = 0x64,
    UdSendOnlyImm = 0x65,
    Cnp = 0x81,
    SrData = 0xc0,
    SrAck = 0xc1,
    SrParity = 0xc2,
    SrNear = 0xc3,
}

/// The transport service an opcode belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// Reliable Connection.
    Rc,
    /// Unreliable Connection.
    Uc,
    /// Unreliable Datagram.
    Ud,
    /// None: the congestion notification packet of RoCEv2.
    Cnp,
    /// Selective repeat, in the manufacturer's opcodes.
    Sr,
}

/// The side of a queue pair that receives an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpClass {
    /// For the responder.
    Request,
    /// For the requester.
    Response,
    /// For the sender's congestion control; consumes no PSN.
    Notification,
}

/// The operation that an opcode belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpKind {
    /// SEND, with or without immediate or invalidate.
    Send,
    /// RDMA WRITE, with or without immediate.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledge: ACK, RNR NAK or NAK, by the AETH.
    Ack,
    /// Atomic acknowledge.
    AtomicAck,
    /// Compare-and-swap or fetch-and-add.
    Atomic,
    /// Congestion notification.
    Cnp,
    /// Data of SR; its own header has the operation ([`SrDataRepr`](crate::SrDataRepr)).
    SrData,
    /// Acknowledgement of SR ([`SrAckRepr`](crate::SrAckRepr)).
    SrAck,
    /// Parity of a block of SR data ([`SrDataRepr::parse_parity`](crate::SrDataRepr)).
    SrParity,
    /// Feedback of a switch about SR data ([`SrNearRepr`](crate::SrNearRepr)).
    SrNear,
}

/// The properties of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpcodeProps {
    /// The service.
    pub service: Service,
    /// Request, response or notification.
    pub class: OpClass,
    /// The operation.
    pub kind: OpKind,
    /// Starts a message: First or Only. Single-packet operations are Only.
    pub first: bool,
    /// Ends a message: Last or Only.
    pub last: bool,
    /// A RETH follows.
    pub reth: bool,
    /// An AETH follows.
    pub aeth: bool,
    /// Immediate data follow.
    pub imm: bool,
    /// An IETH (the rkey to invalidate) follows.
    pub ieth: bool,
    /// An AtomicETH follows.
    pub atomic: bool,
    /// An AtomicAckETH follows.
    pub atomic_ack: bool,
    /// A DETH follows.
    pub deth: bool,
    /// May carry a payload, perhaps an empty one.
    pub payload: bool,
    /// Bytes between the BTH and the payload.
    pub ext_len: usize,
    /// A short name for traces, in `snake_case`.
    pub name: &'static str,
}

impl Opcode {
    /// Every opcode, ascending.
    pub const ALL: [Self; ROWS.len()] = {
        let mut all = [Self::Cnp; ROWS.len()];
        let mut i = 0;
        while i < ROWS.len() {
            all[i] = ROWS[i].0;
            i += 1;
        }
        all
    };

    /// The opcode of a BTH's first byte, `None` if it is not supported.
    #[must_use]
    #[inline]
    pub const fn from_u8(v: u8) -> Option<Self> {
        BY_BYTE[v as usize]
    }

    /// The byte on the wire.
    #[must_use]
    #[inline]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// Its properties.
    #[must_use]
    #[inline]
    pub const fn props(self) -> &'static OpcodeProps {
        &PROPS[self as usize]
    }

    /// Bytes of its extension headers, 0..=28: from the end of the BTH to the payload.
    #[must_use]
    pub const fn ext_len(self) -> usize {
        self.props().ext_len
    }
}

/// The position of a packet in its message: (first, last).
type Place = (bool, bool);
const FIRST: Place = (true, false);
const MIDDLE: Place = (false, false);
const LAST: Place = (false, true);
const ONLY: Place = (true, true);

/// The headers and the payload after the BTH, as bits.
type Parts = u16;
const NONE: Parts = 0;
const RETH: Parts = 1 << 0;
const AETH: Parts = 1 << 1;
const IMM: Parts = 1 << 2;
const IETH: Parts = 1 << 3;
const ATOMIC: Parts = 1 << 4;
const ATOMIC_ACK: Parts = 1 << 5;
const DETH: Parts = 1 << 6;
const CNP: Parts = 1 << 7;
const DATA: Parts = 1 << 8;

/// The table in readable form: opcode, operation, place, parts after the BTH, name.
#[rustfmt::skip]
const ROWS: [(Opcode, OpKind, Place, Parts, &str); 42] = [
    (Opcode::RcSendFirst,          OpKind::Send,         FIRST,  DATA,              "rc_send_first"),
    (Opcode::RcSendMiddle,         OpKind::Send,         MIDDLE, DATA,              "rc_send_middle"),
    (Opcode::RcSendLast,           OpKind::Send,         LAST,   DATA,              "rc_send_last"),
    (Opcode::RcSendLastImm,        OpKind::Send,         LAST,   IMM | DATA,        "rc_send_last_imm"),
    (Opcode::RcSendOnly,           OpKind::Send,         ONLY,   DATA,              "rc_send_only"),
    (Opcode::RcSendOnlyImm,        OpKind::Send,         ONLY,   IMM | DATA,        "rc_send_only_imm"),
    (Opcode::RcWriteFirst,         OpKind::Write,        FIRST,  RETH | DATA,       "rc_write_first"),
    (Opcode::RcWriteMiddle,        OpKind::Write,        MIDDLE, DATA,              "rc_write_middle"),
    (Opcode::RcWriteLast,          OpKind::Write,        LAST,   DATA,              "rc_write_last"),
    (Opcode::RcWriteLastImm,       OpKind::Write,        LAST,   IMM | DATA,        "rc_write_last_imm"),
    (Opcode::RcWriteOnly,          OpKind::Write,        ONLY,   RETH | DATA,       "rc_write_only"),
    (Opcode::RcWriteOnlyImm,       OpKind::Write,        ONLY,   RETH | IMM | DATA, "rc_write_only_imm"),
    (Opcode::RcReadRequest,        OpKind::ReadRequest,  ONLY,   RETH,              "rc_read_request"),
    (Opcode::RcReadResponseFirst,  OpKind::ReadResponse, FIRST,  AETH | DATA,       "rc_read_response_first"),
    (Opcode::RcReadResponseMiddle, OpKind::ReadResponse, MIDDLE, DATA,              "rc_read_response_middle"),
    (Opcode::RcReadResponseLast,   OpKind::ReadResponse, LAST,   AETH | DATA,       "rc_read_response_last"),
    (Opcode::RcReadResponseOnly,   OpKind::ReadResponse, ONLY,   AETH | DATA,       "rc_read_response_only"),
    (Opcode::RcAck,                OpKind::Ack,          ONLY,   AETH,              "rc_ack"),
    (Opcode::RcAtomicAck,          OpKind::AtomicAck,    ONLY,   AETH | ATOMIC_ACK, "rc_atomic_ack"),
    (Opcode::RcCmpSwap,            OpKind::Atomic,       ONLY,   ATOMIC,            "rc_cmp_swap"),
    (Opcode::RcFetchAdd,           OpKind::Atomic,       ONLY,   ATOMIC,            "rc_fetch_add"),
    (Opcode::RcSendLastInv,        OpKind::Send,         LAST,   IETH | DATA,       "rc_send_last_inv"),
    (Opcode::RcSendOnlyInv,        OpKind::Send,         ONLY,   IETH | DATA,       "rc_send_only_inv"),
    (Opcode::UcSendFirst,          OpKind::Send,         FIRST,  DATA,              "uc_send_first"),
    (Opcode::UcSendMiddle,         OpKind::Send,         MIDDLE, DATA,              "uc_send_middle"),
    (Opcode::UcSendLast,           OpKind::Send,         LAST,   DATA,              "uc_send_last"),
    (Opcode::UcSendLastImm,        OpKind::Send,         LAST,   IMM | DATA,        "uc_send_last_imm"),
    (Opcode::UcSendOnly,           OpKind::Send,         ONLY,   DATA,              "uc_send_only"),
    (Opcode::UcSendOnlyImm,        OpKind::Send,         ONLY,   IMM | DATA,        "uc_send_only_imm"),
    (Opcode::UcWriteFirst,         OpKind::Write,        FIRST,  RETH | DATA,       "uc_write_first"),
    (Opcode::UcWriteMiddle,        OpKind::Write,        MIDDLE, DATA,              "uc_write_middle"),
    (Opcode::UcWriteLast,          OpKind::Write,        LAST,   DATA,              "uc_write_last"),
    (Opcode::UcWriteLastImm,       OpKind::Write,        LAST,   IMM | DATA,        "uc_write_last_imm"),
    (Opcode::UcWriteOnly,          OpKind::Write,        ONLY,   RETH | DATA,       "uc_write_only"),
    (Opcode::UcWriteOnlyImm,       OpKind::Write,        ONLY,   RETH | IMM | DATA, "uc_write_only_imm"),
    (Opcode::UdSendOnly,           OpKind::Send,         ONLY,   DETH | DATA,       "ud_send_only"),
    (Opcode::UdSendOnlyImm,        OpKind::Send,         ONLY,   DETH | IMM | DATA, "ud_send_only_imm"),
    (Opcode::Cnp,                  OpKind::Cnp,          ONLY,   CNP,               "cnp"),
    (Opcode::SrData,              OpKind::SrData,      ONLY,   DATA,              "sr_data"),
    (Opcode::SrAck,               OpKind::SrAck,       ONLY,   DATA,              "sr_ack"),
    (Opcode::SrParity,            OpKind::SrParity,    ONLY,   DATA,              "sr_parity"),
    (Opcode::SrNear,              OpKind::SrNear,      ONLY,   DATA,              "sr_near"),
];

/// The table indexed by the opcode's byte; unassigned bytes hold a row that no [`Opcode`] value
/// reaches.
static PROPS: [OpcodeProps; 256] = {
    let (op, kind, place, parts, _) = ROWS[0];
    let mut table = [expand(op, kind, place, parts, "unassigned"); 256];
    let mut i = 0;
    while i < ROWS.len() {
        let (op, kind, place, parts, name) = ROWS[i];
        table[op as usize] = expand(op, kind, place, parts, name);
        i += 1;
    }
    table
};

static BY_BYTE: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut i = 0;
    while i < ROWS.len() {
        table[ROWS[i].0 as usize] = Some(ROWS[i].0);
        i += 1;
    }
    table
};

const fn expand(
    op: Opcode,
    kind: OpKind,
    (first, last): Place,
    parts: Parts,
    name: &'static str,
) -> OpcodeProps {
    let service = match op as u8 {
        0x00..0x20 => Service::Rc,
        0x20..0x40 => Service::Uc,
        0x60..0x80 => Service::Ud,
        0xc0..=0xff => Service::Sr,
        _ => Service::Cnp,
    };
    let class = match kind {
        OpKind::Send | OpKind::Write | OpKind::ReadRequest | OpKind::Atomic => OpClass::Request,
        OpKind::ReadResponse | OpKind::Ack | OpKind::AtomicAck => OpClass::Response,
        OpKind::SrData | OpKind::SrParity => OpClass::Request,
        OpKind::SrAck => OpClass::Response,
        OpKind::Cnp | OpKind::SrNear => OpClass::Notification,
    };
    OpcodeProps {
        service,
        class,
        kind,
        first,
        last,
        reth: parts & RETH != NONE,
        aeth: parts & AETH != NONE,
        imm: parts & IMM != NONE,
        ieth: parts & IETH != NONE,
        atomic: parts & ATOMIC != NONE,
        atomic_ack: parts & ATOMIC_ACK != NONE,
        deth: parts & DETH != NONE,
        payload: parts & DATA != NONE,
        ext_len: len_of(parts),
        name,
    }
}

const fn len_of(parts: Parts) -> usize {
    let lens = [
        (RETH, reth::LEN),
        (AETH, aeth::LEN),
        (IMM, immdt::LEN),
        (IETH, ieth::LEN),
        (ATOMIC, atomic::LEN),
        (ATOMIC_ACK, atomic::ACK_LEN),
        (DETH, deth::LEN),
        (CNP, cnp::LEN),
    ];
    let mut sum = 0;
    let mut i = 0;
    while i < lens.len() {
        if parts & lens[i].0 != NONE {
            sum += lens[i].1;
        }
        i += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all__is_ascending_and_complete() {
        assert!(Opcode::ALL.windows(2).all(|w| w[0].to_u8() < w[1].to_u8()));
        let known = (0..=255).filter(|b| Opcode::from_u8(*b).is_some()).count();
        assert_eq!(known, Opcode::ALL.len());
    }

    #[test]
    fn from_u8__is_the_inverse_of_to_u8() {
        for op in Opcode::ALL {
            assert_eq!(Opcode::from_u8(op.to_u8()), Some(op));
        }
        for hole in [0x15, 0x18, 0x1f, 0x2c, 0x40, 0x63, 0x66, 0x80, 0x82, 0xc4, 0xff] {
            assert_eq!(Opcode::from_u8(hole), None, "{hole:#x}");
        }
    }

    #[test]
    fn props__belong_to_their_opcode() {
        for op in Opcode::ALL {
            // The name of a row is that of its variant: this fails if a row is misplaced.
            let mut name = String::new();
            for c in format!("{op:?}").chars() {
                if c.is_ascii_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.push(c.to_ascii_lowercase());
            }
            assert_eq!(op.props().name, name);
        }
    }

    #[test]
    fn props__uc_requests_mirror_rc() {
        for low in 0..=0x0b {
            let (rc, uc) = (Opcode::from_u8(low).unwrap(), Opcode::from_u8(low | 0x20).unwrap());
            assert_eq!((rc.props().service, uc.props().service), (Service::Rc, Service::Uc));
            let same = |p: &OpcodeProps| OpcodeProps { service: Service::Rc, name: "", ..*p };
            assert_eq!(same(rc.props()), same(uc.props()));
        }
    }

    #[test]
    fn ext_len__is_the_length_of_the_headers() {
        let lens = [
            (Opcode::RcSendMiddle, 0),
            (Opcode::RcWriteOnly, 16),
            (Opcode::RcWriteOnlyImm, 20),
            (Opcode::RcAck, 4),
            (Opcode::RcAtomicAck, 12),
            (Opcode::RcFetchAdd, 28),
            (Opcode::RcSendOnlyInv, 4),
            (Opcode::UdSendOnlyImm, 12),
            (Opcode::Cnp, 16),
        ];
        for (op, len) in lens {
            assert_eq!(op.ext_len(), len, "{op:?}");
        }
    }
}
