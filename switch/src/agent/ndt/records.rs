//! When the last packets of a flow left the switch.

use spanwire_base::{Dur, Time, usize_from};

/// The egress times of the last packets of a flow.
///
/// A flow at 100 Gbit/s sends 64 packets of 1 KiB in 5 us, less than a round trip. So packets that
/// leave within `spacing` of a recorded one are not recorded, and have its time.
#[derive(Clone, Debug)]
pub(super) struct Records {
    psns: [u32; RECORDS],
    at: [Time; RECORDS],
    /// Bit i: record i is of its PSN alone, which was sent again; otherwise it is also of those
    /// that follow, up to the next record.
    alone: u64,
    /// Records so far.
    count: u64,
    /// The highest PSN that has left.
    last: u32,
}

/// When a packet left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Egress {
    /// At this time, or up to the spacing later.
    At(Time),
    /// Before this time, which is that of the oldest record.
    Before(Time),
}

impl Default for Records {
    fn default() -> Self {
        Self { psns: [0; RECORDS], at: [Time::ZERO; RECORDS], alone: 0, count: 0, last: 0 }
    }
}

impl Records {
    /// A packet leaves; `spacing` is the interval of records.
    #[inline]
    pub(super) fn set(&mut self, psn: u32, now: Time, spacing: Dur) {
        let is_first = self.count == 0;
        let is_new = is_first || is_after(psn, self.last);
        if is_new {
            self.last = psn;
            if !is_first && now.since(self.at[self.place(0)]) < spacing && !self.is_alone(0) {
                return;
            }
        }
        self.count += 1;
        let place = self.place(0);
        (self.psns[place], self.at[place]) = (psn, now);
        self.alone = self.alone & !(1 << place) | u64::from(!is_new) << place;
    }

    /// When a packet left; `None` if it has not left.
    #[inline]
    pub(super) fn get(&self, psn: u32) -> Option<Egress> {
        if self.count == 0 || is_after(psn, self.last) {
            return None;
        }
        let held = self.count.min(RECORDS as u64);
        let is_it = |back: &u64| {
            let own = self.psns[self.place(*back)];
            own == psn || !self.is_alone(*back) && is_after(psn, own)
        };
        let found = (0..held).find(is_it).map(|back| Egress::At(self.at[self.place(back)]));
        Some(found.unwrap_or(Egress::Before(self.at[self.place(held - 1)])))
    }

    /// The place of the record that is so many before the last.
    #[inline]
    fn place(&self, back: u64) -> usize {
        usize_from(self.count.wrapping_sub(1 + back)) % RECORDS
    }

    #[inline]
    fn is_alone(&self, back: u64) -> bool {
        self.alone >> self.place(back) & 1 != 0
    }
}

/// PSNs are 32 bits, and wrap.
#[inline]
fn is_after(psn: u32, other: u32) -> bool {
    psn != other && psn.wrapping_sub(other) < 1 << 31
}

/// Records of a flow: with a spacing of a sixteenth of the threshold, four times the threshold.
const RECORDS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::testing::at;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const NONE: Dur = Dur::ZERO;

    #[test]
    fn get__the_last_64_and_no_others() {
        let mut records = Records::default();
        assert!((0..200).all(|psn| records.get(psn).is_none()));
        (0..100).for_each(|psn| records.set(psn, at(psn.into()), NONE));
        assert!((0..36).all(|psn| records.get(psn) == Some(Egress::Before(at(36)))));
        assert!((36..100).all(|psn| records.get(psn) == Some(Egress::At(at(psn.into())))));
        assert_eq!(records.get(100), None, "it has not left");
    }

    #[test]
    fn get__a_packet_that_was_sent_again_left_the_last_time() {
        let mut records = Records::default();
        (0..10).for_each(|psn| records.set(psn, at(psn.into()), Dur::from_us(4)));
        // Records of 0, 4 and 8.
        records.set(5, at(500), Dur::from_us(4));
        let all = [4, 5, 6, 9].map(|psn| records.get(psn));
        assert_eq!(all, [4, 500, 4, 8].map(|us| Some(Egress::At(at(us)))));
        records.set(10, at(501), Dur::from_us(4));
        assert_eq!(records.get(10), Some(Egress::At(at(501))), "it is recorded, since 5 was alone");
    }

    proptest! {
        /// At any rate, with gaps, repetitions and PSNs that wrap: a time that is known is that of
        /// the last transmission, or up to the spacing before, and those of the last 63 spacings
        /// are known while nothing is sent again. Older packets left before the oldest record.
        #[test]
        fn get__is_right_up_to_the_spacing(
            first in any::<u32>(),
            steps in prop::collection::vec((0_u64..1_500, 1_u32..4, 0_u32..40), 1..400),
            repeats in any::<bool>(),
        ) {
            let spacing = Dur::from_ns(625);
            let mut records = Records::default();
            let mut sent = BTreeMap::new();
            let (mut now, mut psn) = (at(1), first);
            for (wait, gap, back) in steps {
                now += Dur::from_ns(wait);
                let again = repeats && back < 10 && sent.contains_key(&psn.wrapping_sub(back));
                let this = if again { psn.wrapping_sub(back) } else { psn.wrapping_add(gap) };
                if !again {
                    psn = this;
                }
                records.set(this, now, spacing);
                sent.insert(this, now);
            }
            for (psn, left) in sent {
                match records.get(psn) {
                    Some(Egress::At(found)) => {
                        prop_assert!(found <= left && left.since(found) < spacing, "{psn}");
                    }
                    Some(Egress::Before(oldest)) => {
                        prop_assert!(repeats || left < oldest, "{psn}");
                        prop_assert!(repeats || now.since(left) >= spacing * 63);
                    }
                    None => prop_assert!(false, "{psn} has left"),
                }
            }
        }
    }
}
