//! Compact telemetry records, as short as those of HPCC.

use super::records::INT_COMPACT_LEN;

/// The compact record of one switch: its fields as on the wire. The two counters wrap.
///
/// # Source
/// HPCC (SIGCOMM'19), figure 7, with a shorter time and a longer rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IntCompactHop {
    /// When the frame left its queue, by the switch's own clock, in units of
    /// [`IntCompactHop::TIME_PS`] modulo [`IntCompactHop::WRAP`].
    pub time: u32,
    /// Bytes that the port had sent before this frame, elided ones included, in units of
    /// [`IntCompactHop::BYTES`] modulo [`IntCompactHop::WRAP`].
    pub tx: u32,
    /// The frame's queue after it left, in units of [`IntCompactHop::BYTES`]; saturates.
    pub queue: u16,
    /// The code of the port's rate; 0 when it has none.
    pub rate: u8,
}

impl IntCompactHop {
    /// The unit of the time, in picoseconds.
    pub const TIME_PS: u64 = 16_000;
    /// The unit of bytes sent and queued.
    pub const BYTES: u32 = 128;
    /// The units after which the time and the bytes sent begin again at 0.
    pub const WRAP: u32 = 1 << 20;

    /// The record of a port that had sent `tx_bytes` at `time_ps`, with a queue of `queue_bytes`
    /// after it and a rate of `rate_mbps`, 0 for none.
    #[must_use]
    pub fn new([time_ps, tx_bytes]: [u64; 2], queue_bytes: u32, rate_mbps: u32) -> Self {
        Self {
            time: wrapped(time_ps / Self::TIME_PS),
            tx: wrapped(tx_bytes / u64::from(Self::BYTES)),
            // Rounded up, so that only an empty queue is 0.
            queue: u16::try_from(queue_bytes.div_ceil(Self::BYTES)).unwrap_or(u16::MAX),
            rate: rate_code(rate_mbps),
        }
    }

    /// The fields of a record.
    #[must_use]
    pub const fn parse(record: &[u8; INT_COMPACT_LEN]) -> Self {
        let [rate, a, b, c, d, e, q0, q1] = *record;
        Self {
            time: u32::from_be_bytes([0, a, b, c]) >> 4,
            tx: u32::from_be_bytes([0, c & 0xf, d, e]),
            queue: u16::from_be_bytes([q0, q1]),
            rate,
        }
    }

    /// Writes all 8 bytes.
    pub fn emit(&self, out: &mut [u8; INT_COMPACT_LEN]) {
        let counters = u64::from(self.time % Self::WRAP) << 20 | u64::from(self.tx % Self::WRAP);
        let word = u64::from(self.rate) << 56 | counters << 16 | u64::from(self.queue);
        *out = word.to_be_bytes();
    }

    /// The port's rate in Mbit/s, rounded down; 0 when it has none.
    #[must_use]
    pub fn link_rate_mbps(&self) -> u32 {
        let Some(n) = self.rate.checked_sub(1) else { return 0 };
        let of_decade = u64::from(SERIES[usize::from(n) % SERIES.len()]);
        let decade = u32::from(n) / 40;
        // At most 2.24 x 10^6.
        u32::try_from(of_decade * 10_u64.pow(decade) / 100).unwrap_or(u32::MAX)
    }
}

/// The code of the largest rate of the series that is not above `mbps`.
fn rate_code(mbps: u32) -> u8 {
    if mbps == 0 {
        return 0;
    }
    let (mut hundredths, mut decade) = (u64::from(mbps) * 100, 0);
    while hundredths >= 1000 {
        hundredths /= 10;
        decade += SERIES.len();
    }
    let n = decade + SERIES.partition_point(|value| u64::from(*value) <= hundredths);
    u8::try_from(n).unwrap_or(u8::MAX)
}

fn wrapped(units: u64) -> u32 {
    // The remainder has 20 bits.
    u32::try_from(units % u64::from(IntCompactHop::WRAP)).unwrap_or(0)
}

/// A decade of preferred numbers, in hundredths; the rates of Ethernet are among them. A number of
/// 5 bits and a power of ten in 3 would have gaps of a quarter: a port of 39 Mbit/s would appear
/// as one of 30, and its senders would leave the rest unused.
///
/// # Source
/// ISO 3, series R40.
const SERIES: [u16; 40] = [
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280,
    300, 315, 335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850,
    900, 950,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn coded(mbps: u32) -> u32 {
        IntCompactHop::new([0; 2], 0, mbps).link_rate_mbps()
    }

    #[test]
    fn new__rates_of_ethernet_are_exact() {
        for mbps in [0, 1, 10, 100, 1_000, 2_500, 5_000, 10_000, 25_000, 40_000, 50_000, 56_000] {
            assert_eq!(coded(mbps), mbps);
        }
        for mbps in [100_000, 200_000, 400_000, 800_000, 1_600_000] {
            assert_eq!(coded(mbps), mbps);
        }
        assert_eq!(coded(u32::MAX), 2_240_000, "the highest");
    }

    #[test]
    fn new__every_rate_is_the_largest_not_above() {
        let mut last = 0;
        for mbps in (1..20_000).chain((20_000..2_400_000).step_by(77)) {
            let coded = coded(mbps);
            assert!(coded <= mbps && coded >= last, "{mbps} {coded}");
            // 15 of 16 hundredths, from 100 Mbit/s on without fractions.
            let is_near = f64::from(coded) > 0.933 * f64::from(mbps);
            assert!(is_near || !(100..2_260_000).contains(&mbps), "{mbps} {coded}");
            last = coded;
        }
    }

    #[test]
    fn new__counters_wrap_and_the_queue_rounds_up_and_saturates() {
        let wrap_ps = 16_000 << 20;
        let hop = IntCompactHop::new([3 * wrap_ps + 2 * 16_000 - 1, (5 << 27) + 255], 129, 0);
        assert_eq!(hop, IntCompactHop { time: 1, tx: 1, queue: 2, rate: 0 });
        let queue = |bytes| IntCompactHop::new([0; 2], bytes, 0).queue;
        assert_eq!([0, 1, 128, 8_388_480].map(queue), [0, 1, 1, u16::MAX]);
        assert_eq!([8_388_481, u32::MAX].map(queue), [u16::MAX; 2]);
    }

    #[test]
    fn emit__places_the_fields_as_documented() {
        let hop = IntCompactHop { time: 0x1_2345, tx: 0x6_789a, queue: 0xbcde, rate: 0xf0 };
        let mut out = [0; INT_COMPACT_LEN];
        hop.emit(&mut out);
        assert_eq!(out, [0xf0, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
    }

    proptest! {
        #[test]
        fn parse__keeps_every_bit(record: [u8; INT_COMPACT_LEN]) {
            let hop = IntCompactHop::parse(&record);
            prop_assert!(hop.time < IntCompactHop::WRAP && hop.tx < IntCompactHop::WRAP);
            let mut out = [0; INT_COMPACT_LEN];
            hop.emit(&mut out);
            prop_assert_eq!(out, record);
            prop_assert!(hop.link_rate_mbps() <= 2_240_000);
        }
    }
}
