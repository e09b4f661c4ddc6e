//! Priority-based flow control (IEEE 802.1Qbb, clause 36): MAC control frames from one end of a
//! link to the other, which no bridge forwards.
//!
//! ```text
//! destination 01:80:c2:00:00:01 | source | EtherType 0x8808 | opcode 0x0101 |
//! enabled priorities 16 (bit i: priority i) | 8 times of 16 bits | padding up to 60 bytes
//! ```
//!
//! A time is in quanta of 512 bit times at the link's rate; 0 ends a pause.

use crate::{MacAddr, be};

/// A PFC frame: a pause time for each enabled priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PfcFrame {
    /// Bit i: the time of priority i is valid.
    pub enabled: u8,
    /// The pause of each priority in quanta; 0 resumes it. Ignored for priorities not enabled.
    pub quanta: [u16; 8],
}

impl PfcFrame {
    /// Bytes of the frame, without FCS.
    pub const LEN: usize = 60;
    /// The destination of PFC frames: the other end of the link.
    pub const DST: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x01]);

    /// The PFC frame in `frame`, or `None` if it is anything else. Padding may be missing.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let f = frame.first_chunk::<{ TIMES_AT + 16 }>()?;
        let is_pfc = be::bytes_at(f, 0) == Self::DST.0
            && be::u16_at(f, 12) == ETHERTYPE
            && be::u16_at(f, 14) == OPCODE;
        if !is_pfc {
            return None;
        }
        let mut quanta = [0; 8];
        for (i, q) in quanta.iter_mut().enumerate() {
            *q = be::u16_at(f, TIMES_AT + 2 * i);
        }
        // The upper byte of the vector is reserved.
        Some(Self { enabled: f[17], quanta })
    }

    /// Writes all 60 bytes.
    pub fn emit(&self, src: MacAddr, out: &mut [u8; Self::LEN]) {
        out.fill(0);
        be::put(out, 0, Self::DST.0);
        be::put(out, 6, src.0);
        be::put(out, 12, ETHERTYPE.to_be_bytes());
        be::put(out, 14, OPCODE.to_be_bytes());
        out[17] = self.enabled;
        for (i, q) in self.quanta.iter().enumerate() {
            be::put(out, TIMES_AT + 2 * i, q.to_be_bytes());
        }
    }
}

/// MAC control.
const ETHERTYPE: u16 = 0x8808;
/// The opcode of priority-based flow control among MAC control frames.
const OPCODE: u16 = 0x0101;
const TIMES_AT: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses priority 3 for the longest time and resumes priority 5; written by hand.
    const WIRE: [u8; 34] = [
        0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0x08, 1, 1, 0, 0x28, 0, 0, 0, 0, 0, 0,
        0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn parse__reads_vector_and_times() {
        let p = PfcFrame::parse(&WIRE).unwrap();
        assert_eq!(p, PfcFrame { enabled: 0x28, quanta: [0, 0, 0, 0xffff, 0, 0, 0, 0] });
        for len in 0..WIRE.len() {
            assert_eq!(PfcFrame::parse(&WIRE[..len]), None);
        }
        for at in [0, 5, 12, 13, 14, 15] {
            let mut other = WIRE;
            other[at] ^= 4;
            assert_eq!(PfcFrame::parse(&other), None, "byte {at}");
        }
    }

    #[test]
    fn emit__writes_what_was_parsed() {
        let mut out = [0xaa; PfcFrame::LEN];
        PfcFrame::parse(&WIRE).unwrap().emit(MacAddr([2, 0, 0, 0, 0, 9]), &mut out);
        assert_eq!(out[..34], WIRE);
        assert_eq!(out[34..], [0; 26]);
    }
}
