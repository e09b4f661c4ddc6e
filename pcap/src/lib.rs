//! Captures: pcap and pcapng read record by record, RoCEv2 packets decoded, every ICRC checked.
//!
//! | item | what it is |
//! |---|---|
//! | [`Capture`] | the records of a file, of either format |
//! | [`Decoder`] | a record as a RoCE packet or as something else |
//! | [`Line`] | a decoded record as one line for people |
//! | [`Flows`] | packets by flow: address, address, queue pair |
//!
//! A capture is untrusted: whatever a file holds, it is decoded or counted.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod capture;
mod decode;
mod flows;
mod line;
mod link;
mod sr;

pub use capture::{Capture, CaptureError, Record};
pub use decode::{Decoded, Decoder, Icrc, Other, RocePacket};
pub use flows::{Flow, FlowRow, Flows};
pub use line::{Line, opcode_name};
pub use link::{Linked, VLAN_MAX, is_known, unlink};
pub use sr::Sr;
