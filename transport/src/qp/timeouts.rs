//! Timeouts that verbs encode in five bits.

use spanwire_base::Dur;

/// The local ACK timeout, 4.096 us * 2^exponent (IBTA C9-140).
///
/// # Source
/// IBTA; 14 gives 67 ms, and rxe was measured at 64 to 70 ms.
pub(crate) fn ack_timeout(exponent: u8) -> Dur {
    Dur::from_ns(4_096) * (1 << u32::from(exponent.min(31)))
}

/// The wait of an RNR NAK's 5-bit code.
///
/// # Source
/// IBTA's table of the RNR NAK Timer Field: 0 is 655.36 ms, 1 is 10 us, then alternately times 2
/// and times 1.5 (codes 12, 14, 20 and 31 were seen on rxe).
pub(crate) fn rnr_wait(code: u8) -> Dur {
    const TENS_OF_US: [u64; 32] = [
        65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
        1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    Dur::from_us(10) * TENS_OF_US[usize::from(code & 31)]
}

/// An `rnr_retry` that sets no limit, as in verbs.
pub(crate) const RNR_RETRY_INFINITE: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_wait__matches_the_codes_seen() {
        assert_eq!(rnr_wait(0), Dur::from_us(655_360));
        assert_eq!(rnr_wait(1), Dur::from_us(10));
        assert_eq!(rnr_wait(12), Dur::from_us(640));
        assert_eq!(rnr_wait(14), Dur::from_us(1_280));
        assert_eq!(rnr_wait(20), Dur::from_us(10_240));
        assert_eq!(rnr_wait(31), Dur::from_us(491_520));
    }

    #[test]
    fn ack_timeout__14_is_67_ms() {
        assert_eq!(ack_timeout(14).as_us(), 67_108);
    }
}
