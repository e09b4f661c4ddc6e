//! The codes of negative acknowledgements: names of NAKs, and delays of RNR NAKs.

use spanwire_wire::NakCode;

/// The name of a NAK code.
pub(crate) fn nak_name(code: NakCode) -> &'static str {
    match code {
        NakCode::SequenceError => "PSN sequence error",
        NakCode::InvalidRequest => "invalid request",
        NakCode::RemoteAccess => "remote access error",
        NakCode::RemoteOperational => "remote operational error",
        NakCode::InvalidRd => "invalid RD request",
    }
}

/// The delay in microseconds of the RNR NAK timer code `code`, 0..=31.
///
/// # Source
/// IBTA's table of the RNR NAK timer field: 10 us, then two series that double, 20 us and 30 us;
/// code 0 is the longest.
pub(crate) fn rnr_timer_us(code: u8) -> u32 {
    match code & 31 {
        0 => 655_360,
        1 => 10,
        even if even % 2 == 0 => 10 << (even / 2),
        odd => 15 << (odd / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_timer_us__ends_and_middle() {
        let codes = [0, 1, 2, 3, 4, 5, 12, 14, 20, 31];
        let want = [655_360, 10, 20, 30, 40, 60, 640, 1_280, 10_240, 491_520];
        assert_eq!(codes.map(rnr_timer_us), want);
    }
}
