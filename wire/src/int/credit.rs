//! Stacks of version 2: telemetry that the receiver's DCI switch begins anew, with a credit (MLCC).

use super::{
    HOPS_AT, INT_HEADER_LEN, INT_MAX_HOPS, IntFormat, IntStack, MAGIC, VERSION_CREDIT, ip_end,
};
use crate::be;

/// Bytes of a credit in a stack.
pub const INT_CREDIT_LEN: usize = 8;

/// What the receiver's DCI switch writes into the telemetry of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IntCredit {
    /// C_D: the number of the last round of the credit loop that it has heard of; 0 before.
    pub credit: u32,
    /// Bytes of the packet's flow that wait there; saturates.
    pub waiting_bytes: u32,
}

impl IntCredit {
    pub(super) const fn parse(bytes: &[u8; INT_CREDIT_LEN]) -> Self {
        Self { credit: be::u32_at(bytes, 0), waiting_bytes: be::u32_at(bytes, 4) }
    }

    fn emit(self, out: &mut [u8; INT_CREDIT_LEN]) {
        be::put(out, 0, self.credit.to_be_bytes());
        be::put(out, 4, self.waiting_bytes.to_be_bytes());
    }
}

/// Appends an empty stack of version 2, with a credit of zeros, after the frame that ends at `len`.
/// Returns the frame's new length, or `None` if the buffer has no room for it.
///
/// `max_hops` is cut to [`INT_MAX_HOPS`].
pub fn int_request_credit(
    buffer: &mut [u8],
    len: usize,
    max_hops: u8,
    format: IntFormat,
) -> Option<usize> {
    let out = buffer.get_mut(len..)?.first_chunk_mut::<{ INT_HEADER_LEN + INT_CREDIT_LEN }>()?;
    let [m0, m1, m2, m3] = MAGIC;
    let header = [m0, m1, m2, m3, VERSION_CREDIT, 0, max_hops.min(INT_MAX_HOPS), format.to_u8()];
    let (place, credit) = out.split_at_mut(INT_HEADER_LEN);
    place.copy_from_slice(&header);
    credit.fill(0);
    Some(len + INT_HEADER_LEN + INT_CREDIT_LEN)
}

/// Empties the stack of version 2 after the frame's IP packet, sets its credit, and drops all bytes
/// after it. Returns the frame's new length. Returns `None` and leaves the frame unchanged if there
/// is no such stack.
///
/// # Arguments
/// - `buffer`: the frame in its first `len` bytes.
/// - `elided_bytes`: as for [`ip_end`].
pub fn int_restart_credit(
    buffer: &mut [u8],
    len: usize,
    elided_bytes: u32,
    credit: IntCredit,
) -> Option<usize> {
    let frame = buffer.get_mut(..len)?;
    let start = ip_end(frame, elided_bytes)?;
    IntStack::parse(&frame[start..])?.credit()?;
    let at = start + INT_HEADER_LEN;
    credit.emit(frame.get_mut(at..)?.first_chunk_mut()?);
    frame[start + HOPS_AT] = 0;
    Some(at + INT_CREDIT_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IntHop, int_push, int_request};
    use proptest::prelude::*;

    /// An IPv4 packet of 48 bytes in a frame, and free space.
    fn frame() -> Vec<u8> {
        let mut f = vec![0; 12];
        f.extend([0x08, 0x00, 0x45, 0, 0, 48]);
        f.resize(62 + 200, 0xee);
        f
    }

    const HOP: IntHop =
        IntHop { time_ps: 1 << 40, tx_bytes: 1 << 50, queue_bytes: 3, link_rate_mbps: 100_000 };
    const CREDIT: IntCredit = IntCredit { credit: 0x0102_0304, waiting_bytes: 0x0506_0708 };

    #[test]
    fn int_request_credit__is_filled_and_begun_anew() {
        let mut f = frame();
        let len = int_request_credit(&mut f, 62, 3, IntFormat::Compact).unwrap();
        assert_eq!(len, 78);
        assert_eq!(f[62..78], *b"INTs\x02\x00\x03\x01\0\0\0\0\0\0\0\0");
        let len = int_push(&mut f, len, 0, &HOP).unwrap();
        let len = int_push(&mut f, len, 0, &HOP).unwrap();
        let stack = IntStack::find(&f[..len], 0).unwrap();
        assert_eq!((len, stack.len(), stack.credit()), (94, 2, Some(IntCredit::default())));
        let len = int_restart_credit(&mut f, len, 0, CREDIT).unwrap();
        assert_eq!(len, 78);
        assert_eq!(f[70..78], [1, 2, 3, 4, 5, 6, 7, 8]);
        let len = int_push(&mut f, len, 0, &HOP).unwrap();
        let stack = IntStack::find(&f[..len], 0).unwrap();
        assert_eq!((stack.len(), stack.max_hops(), stack.credit()), (1, 3, Some(CREDIT)));
        assert_eq!(stack.compact_hops().count(), 1);
        for cut in 62..len {
            assert!(IntStack::find(&f[..cut], 0).is_none(), "{cut}");
        }
    }

    #[test]
    fn int_restart_credit__changes_no_other_frame() {
        let mut f = frame();
        let before = f.clone();
        assert_eq!(int_restart_credit(&mut f, 262, 0, CREDIT), None, "no stack");
        assert_eq!(f, before);
        let len = int_request(&mut f, 62, 3, IntFormat::Full).unwrap();
        let before = f.clone();
        assert_eq!(int_restart_credit(&mut f, len, 0, CREDIT), None, "version 1");
        assert_eq!(f, before);
        assert!(IntStack::find(&f[..len], 0).unwrap().credit().is_none());
        assert_eq!(int_request_credit(&mut f, 250, 3, IntFormat::Full), None, "no room");
    }

    proptest! {
        #[test]
        fn int_restart_credit__never_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            cut in 0..40_usize,
        ) {
            let mut f = frame();
            int_request_credit(&mut f, 62, 16, IntFormat::Full).unwrap();
            let at = 262 - bytes.len().min(200);
            f[66..66 + bytes.len().min(60)].copy_from_slice(&bytes[..bytes.len().min(60)]);
            let len = (62 + cut).min(at);
            let before = f[..62].to_vec();
            if let Some(end) = int_restart_credit(&mut f, len, 0, CREDIT) {
                prop_assert!(end <= len);
                prop_assert_eq!(IntStack::find(&f[..end], 0).unwrap().credit(), Some(CREDIT));
            }
            prop_assert_eq!(&f[..62], &before[..]);
        }
    }
}
