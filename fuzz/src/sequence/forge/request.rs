//! Targets and lengths of requests.

use crate::sequence::memory::{Memory, PLOT_LEN, Plot};
use spanwire_base::{u32_from, u64_from};
use spanwire_wire::OpcodeProps;

/// The target of a request: a plot by its rkey, its lkey or a key that does not exist, at an
/// address inside, across the end, or at the end of the address space.
pub(super) fn target(memory: &Memory, plot: u8, at: u8) -> (u64, u32) {
    let mr = memory.mr(Plot::ALL[usize::from(plot & 7)]);
    let rkey = mr.rkey.unwrap_or(mr.lkey);
    let key = match plot >> 3 & 3 {
        1 => mr.lkey,
        2 => rkey ^ 1,
        _ => rkey,
    };
    let at = u64::from(at);
    let va = match plot >> 5 & 3 {
        0 => mr.addr.wrapping_add(8 * at),
        1 => mr.addr.wrapping_add(at),
        2 => mr.addr.wrapping_add(u64_from(PLOT_LEN)).wrapping_sub(at),
        _ => u64::MAX - at,
    };
    (va, key)
}

pub(super) fn dma_len(props: &OpcodeProps, kind: u8, payload_len: usize, len: u8) -> u32 {
    let payload_len = u32_from(payload_len);
    match kind {
        // As a correct peer would.
        0 if props.last && props.payload => payload_len,
        0 => payload_len + u32::from(len),
        0x80 => 0,
        0x81 => 1 << 31,
        0x82 => u32::MAX,
        0x83 => u32_from(PLOT_LEN),
        0x84 => 1 << 30,
        0x85.. => u32::from(kind) - 0x84,
        _ => 16 * u32::from(kind),
    }
}
