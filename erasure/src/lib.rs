//! Erasure coding of packets: any x packets of a block of x + y recover all its data.
//!
//! | | |
//! |---|---|
//! | [`Code`] | encoder: parity packets of a whole block at once, or packet by packet |
//! | [`Recovery`] | decoder: recovers lost data packets from any sufficient set of packets |
//! | [`Columns`] | a set of data packets of a block |
//! | [`Kernel`] | the instruction set, selected by the processor's features |
//!
//! The codes are systematic (data packets are sent unchanged) and MDS (any y losses can be
//! recovered). The arithmetic is that of GF(2^8): bytes at the same offset of all packets of a
//! block are coded together, independently of other offsets. Shorter packets count as padded with
//! zeros, absent ones as zeros, so a block and its last packet may be short. Nothing allocates.
//!
//! A block, packet by packet, as an engine codes it while each packet is in its cache:
//!
//! ```
//! use spanwire_erasure::{Code, Columns, Source};
//!
//! let code = Code::default(); // 8 data packets, 2 parity packets
//! let data = [&b"now is the time "[..], b"for all good men", b"to come"];
//! let mut parity = [[0; 16]; 2];
//! for (column, packet) in (0..).zip(data) {
//!     code.add(column, packet, &mut parity);
//! }
//!
//! // Packets 0 and 2 are lost; both parity packets and packet 1 arrive.
//! let recovery = code.recovery(data.len(), Columns::from_bits(0b010), 0b11).unwrap();
//! assert_eq!(recovery.lost(), [0, 2]);
//! let mut lost = [vec![0; 16], vec![0; 7]];
//! recovery.add(Source::Parity(1), &parity[1], &mut lost);
//! recovery.add(Source::Data(1), data[1], &mut lost);
//! recovery.add(Source::Parity(0), &parity[0], &mut lost);
//! assert_eq!(lost, [data[0], data[2]]);
//! ```
//!
//! docs/erasure.md has the mathematics.
//!
//! # Source
//! Anvin, "The mathematics of RAID-6", for P and Q; Bloemer et al., "An XOR-Based Erasure-Resilient
//! Coding Scheme" (ICSI TR-95-048), for Cauchy matrices; Plank, Greenan and Miller, "Screaming Fast
//! Galois Field Arithmetic Using Intel SIMD Instructions" (FAST'13), for products by shuffles.
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod code;
mod columns;
mod gf;
mod kernel;
mod recovery;
mod redundancy;
mod sum;

pub use code::{Code, CodeError, Scheme};
pub use columns::Columns;
pub use kernel::Kernel;
pub use recovery::{Recovery, Source, TooFew};
pub use redundancy::parity_for;
