//! Decoder of captures: reads pcap and pcapng, decodes RoCEv2 packets, checks every ICRC.
//!
//! | item | contents |
//! |---|---|
//! | [`Capture`] | the records of a file, of either format |
//! | [`Decoder`] | decodes a record as a RoCE packet or another frame |
//! | [`Line`] | a decoded record as one line of text |
//! | [`Flows`] | counts by flow: source, destination, queue pair |
//!
//! A capture is untrusted. Any content of a file is decoded, counted or reported as an error.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod capture;
mod decode;
mod flows;
mod ip;
mod line;
mod link;
mod nak;
mod run;
mod sr;

pub use capture::{Capture, CaptureError, Record};
pub use decode::{Decoded, Decoder, RocePacket, Segment};
pub use flows::{Flow, FlowRow, Flows};
pub use ip::{Icrc, Other};
pub use line::{Line, opcode_name};
pub use link::{Linked, VLAN_MAX, is_known, unlink};
pub use sr::Sr;
