//! Packet numbers: 64 bits in the engine, the lower 32 bits on the wire.

use spanwire_wire::Psn;

/// The 64-bit number nearest to `near` whose 32 bits on the wire are `psn`.
pub(crate) fn unwrap(near: u64, psn: u32) -> u64 {
    let ahead = psn.wrapping_sub(wrap(near));
    if ahead < 1 << 31 {
        near + u64::from(ahead)
    } else {
        near.saturating_sub(u64::from(ahead.wrapping_neg()))
    }
}

/// The wire number of a direction's first packet, from the PSN that the ends exchanged.
///
/// The 24 random bits of the PSN are the high bits, so an off-path attacker must guess all of them.
pub(crate) fn first_number(psn: Psn) -> u32 {
    psn.get() << 8
}

/// The 32 bits of a number on the wire.
pub(crate) fn wrap(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("masked to 32 bits")
}

/// The PSN of a number in the BTH: its lower 24 bits.
pub(crate) fn bth_psn(number: u64) -> Psn {
    Psn::new(wrap(number) & Psn::MASK)
}
