//! RoCEv2 packets: Ethernet, IPv4 or IPv6, UDP port 4791, the InfiniBand transport headers, the
//! payload and the ICRC.
//!
//! Each header has a file with two types. The view (`Bth`, `Reth`, ...) lies over received bytes:
//! its constructor checks the length, after which no accessor can panic. The `Repr` (`BthRepr`,
//! ...) is the header by value. It parses from the view and emits into an array of the header's
//! size. [`Packet`] and [`Headers`] combine them to a whole frame. [`Opcode`] selects the headers
//! of a packet, and [`DropReason`] names every defect of a received one.
//!
//! There is no state, no time and no allocation here. Received bytes are hostile: any byte string
//! yields a packet or a drop reason, never a panic.
//!
//! # Sending and receiving
//!
//! Sending takes two steps, so that the payload is copied once, straight into the frame:
//! [`Headers::emit`] (or [`Template::emit`]) writes the headers and returns the range of the
//! payload. After the payload is in place, [`seal`] computes the ICRC.
//!
//! ```
//! use spanwire_wire::*;
//!
//! let ip = IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).expect("one IP version");
//! let reth = RethRepr { va: 0x7f00_0000_1000, rkey: 0x1df9, dma_len: 5 };
//! let headers = Headers {
//!     eth: EthernetRepr {
//!         dst: MacAddr::new([2, 0, 0, 0, 0, 2]),
//!         src: MacAddr::new([2, 0, 0, 0, 0, 1]),
//!         ethertype: EthernetRepr::IPV4,
//!     },
//!     ip,
//!     udp: UdpRepr::new(0xc123),
//!     bth: BthRepr {
//!         ack_req: true,
//!         ..BthRepr::new(Opcode::RcWriteOnly, Qpn::new(0x11), Psn::new(0xff_ffff))
//!     },
//!     ext: ExtHeaders { reth: Some(reth), ..ExtHeaders::NONE },
//! };
//!
//! let mut frame = [0; 128];
//! let payload = headers.emit(&mut frame, 5)?;
//! frame[payload].copy_from_slice(b"hello");
//! let len = headers.frame_len(5);
//! seal(&mut frame, len);
//!
//! let packet = Packet::parse(&frame[..len])?;
//! assert_eq!(packet.payload, b"hello");
//! assert_eq!(packet.ext.reth, Some(reth));
//! assert_eq!(packet.bth.psn.next(), Psn::new(0));
//!
//! frame[60] ^= 1;
//! assert_eq!(Packet::parse(&frame[..len]), Err(DropReason::BadIcrc));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod aeth;
mod atomic;
mod be;
mod block;
mod bth;
mod cnp;
mod deth;
mod drop;
mod error;
mod ethernet;
mod ext;
mod headers;
mod hop;
mod icrc;
mod ieth;
mod immdt;
mod int;
mod ip;
mod ipv4;
mod ipv6;
mod known;
mod opcode;
mod packet;
mod pfc;
mod psn;
mod qpn;
mod reth;
mod split;
mod sr_ack;
mod sr_data;
mod sr_near;
mod sr_passing;
mod template;
mod trim;
mod udp;

pub use aeth::{Aeth, AethRepr, NakCode, Syndrome};
pub use atomic::{AtomicAckEth, AtomicAckEthRepr, AtomicEth, AtomicEthRepr};
pub use block::{
    BLOCK_PKTS_MAX, BLOCK_REPORTS_MAX, BlockReport, BlockReportKind, BlockReports, BlockRepr,
};
pub use bth::{Bth, BthRepr};
pub use deth::{Deth, DethRepr};
pub use drop::DropReason;
pub use error::BufferTooShort;
pub use ethernet::{Ethernet, EthernetRepr, MacAddr};
pub use ext::ExtHeaders;
pub use headers::{Headers, MAX_FRAME_LEN};
pub use hop::{TtlError, decrement_ttl, dscp_of, ecn_of, mark_ce, set_dscp};
pub use icrc::{icrc, icrc_change, icrc_prefix, icrc_residue, seal, seal_around};
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use int::{
    INT_COMPACT_LEN, INT_CREDIT_HEADER_LEN, INT_ECHO_HEADER_LEN, INT_FULL_LEN, INT_HEADER_LEN,
    INT_MAX_HOPS, IntCompactHop, IntCredit, IntFormat, IntHop, IntRecords, IntStack, int_push,
    int_request, int_request_credit, int_restart_credit, ip_end,
};
pub use ip::{Ecn, IpRepr};
pub use ipv4::{Ipv4, Ipv4Repr};
pub use ipv6::{Ipv6, Ipv6Repr};
pub use known::{Known, KnownHeads, PlainRc, UsualSrData, peek_dest_qp, peek_dest_qp_word};
pub use opcode::{OpClass, OpKind, Opcode, OpcodeProps, Service};
pub use packet::{Packet, Unverified};
pub use pfc::PfcFrame;
pub use psn::Psn;
pub use qpn::Qpn;
pub use reth::{Reth, RethRepr};
pub use sr_ack::{AckReason, SACK_WORDS_MAX, SackWord, SackWords, SrAckRepr, SrCredit, SrNak};
pub use sr_data::{SrDataRepr, SrKind, SrUsualPart, SrUsualRepr};
pub use sr_near::{NearKind, SrNearRepr};
pub use sr_passing::{SrAckPassing, SrDataPassing};
pub use template::{PlainBth, Template};
pub use trim::{is_trimmed, trim};
pub use udp::{ROCE_PORT, Udp, UdpRepr};
