//! The layout of queue pair numbers: from above a prefix, random bits, the worker, the slot.

use spanwire_wire::Qpn;

/// A fixed prefix of QPNs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpnPrefix {
    /// Its bits, 1..=16.
    pub bits: u8,
    /// Its value, below 2^bits.
    pub value: u32,
}

/// Finds the worker that a QPN names, for several endpoints of one process.
///
/// ```
/// use spanwire_transport::Config;
/// use spanwire_wire::Qpn;
///
/// let second = Config { worker: 1, workers: 2, ..Config::default() };
/// // 1024 queue pairs have 10 bits; the one above them is the worker's.
/// assert_eq!(second.qpn_workers().worker_of(Qpn::new(0xabc400)), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpnWorkers {
    shift: u32,
    mask: u32,
}

impl QpnWorkers {
    /// Bits of a QPN below the worker's number, and the mask of that number.
    #[must_use]
    pub const fn shift_and_mask(self) -> (u32, u32) {
        (self.shift, self.mask)
    }

    /// The worker that `qpn` names: that of the endpoint which has such a queue pair. A number that
    /// none has may name a worker that does not exist, below the next power of two.
    #[must_use]
    #[inline]
    pub const fn worker_of(self, qpn: Qpn) -> u32 {
        qpn.get() >> self.shift & self.mask
    }
}

/// The fields of a configuration that determine its QPNs.
#[derive(Clone, Copy)]
pub(crate) struct QpnLayout {
    pub(super) max_qps: u32,
    pub(super) worker: u8,
    pub(super) workers: u8,
    pub(super) prefix: Option<QpnPrefix>,
}

impl QpnLayout {
    pub(crate) fn workers(self) -> QpnWorkers {
        QpnWorkers { shift: self.slot_bits(), mask: (1 << self.worker_bits()) - 1 }
    }

    /// The low bits of a QPN: the queue pair's slot.
    pub(crate) fn slot_bits(self) -> u32 {
        self.max_qps.next_power_of_two().trailing_zeros()
    }

    fn worker_bits(self) -> u32 {
        self.workers.next_power_of_two().trailing_zeros()
    }

    /// A QPN for `slot`. An attacker must guess the bits of `random`, and a destroyed queue pair's
    /// number is not reused soon.
    pub(crate) fn draw(self, slot: u32, random: u32) -> Qpn {
        let (bits, prefix) = self.prefix.map_or((0, 0), |p| (p.bits.into(), p.value));
        let fixed_bits = self.slot_bits() + self.worker_bits();
        let random = random << fixed_bits & Qpn::MASK >> bits;
        let fixed = u32::from(self.worker) << self.slot_bits() | slot;
        let drawn = prefix << (24 - bits) | random | fixed;
        // 0 and 1 are reserved for management, the last one for multicast.
        let is_reserved = drawn < 2 || drawn == Qpn::MASK;
        Qpn::new(drawn ^ u32::from(is_reserved) << fixed_bits.max(1))
    }

    /// Checks by `range`, which compares a field with its least and its largest value, that enough
    /// bits are random.
    pub(super) fn check<E>(
        self,
        range: impl Fn(&'static str, u32, u32, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        range("workers", self.workers.into(), 1, MAX_WORKERS)?;
        range("worker", self.worker.into(), 0, u32::from(self.workers) - 1)?;
        // Bits beside those of the slot and the random ones.
        let spare = 24 - self.slot_bits() - RANDOM_QPN_BITS;
        range("workers", self.workers.into(), 1, 1 << spare.min(4))?;
        if let Some(QpnPrefix { bits, value }) = self.prefix {
            range("qpn_prefix.bits", bits.into(), 1, spare - self.worker_bits())?;
            range("qpn_prefix.value", value, 0, (1 << bits) - 1)?;
        }
        Ok(())
    }
}

/// A QPN has 24 bits: at most 16 for the slot, and at least 8 random ones that change when a slot
/// is reused.
pub(crate) const MAX_QPS: u32 = 1 << 16;
const RANDOM_QPN_BITS: u32 = 8;
const MAX_WORKERS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use spanwire_base::Rng;

    fn wrong(config: Config) -> Option<(&'static str, u64)> {
        config.validate().err().map(|e| (e.field, e.max))
    }

    #[test]
    fn validate__a_qpn_prefix_leaves_eight_random_bits() {
        let with = |max_qps, bits, value| {
            let qpn_prefix = Some(QpnPrefix { bits, value });
            wrong(Config { max_qps, qpn_prefix, ..Config::default() })
        };
        for (max_qps, bits) in [(1024, 6), (1000, 6), (1, 16), (1 << 15, 1)] {
            let most = (1 << bits) - 1;
            assert_eq!([0, most].map(|value| with(max_qps, bits, value)), [None, None]);
            assert_eq!(with(max_qps, bits, most + 1), Some(("qpn_prefix.value", u64::from(most))));
            let wider = with(max_qps, bits + 1, 0);
            assert!(matches!(wider, Some(("qpn_prefix.bits", _))), "{max_qps} {bits}: {wider:?}");
        }
        assert_eq!(with(1 << 16, 1, 0), Some(("qpn_prefix.bits", 0)));
        assert_eq!(with(1024, 0, 0), Some(("qpn_prefix.bits", 6)));
    }

    #[test]
    fn validate__workers_leave_eight_random_bits() {
        let with = |max_qps, worker, workers| {
            wrong(Config { max_qps, worker, workers, ..Config::default() })
        };
        for (max_qps, workers) in [(1024, 16), (1 << 12, 16), (1 << 15, 2), (1 << 16, 1), (1, 16)] {
            for worker in 0..workers {
                assert_eq!(with(max_qps, worker, workers), None);
            }
            assert_eq!(with(max_qps, workers, workers), Some(("worker", u64::from(workers) - 1)));
        }
        assert_eq!(with(1024, 0, 17), Some(("workers", 16)));
        assert_eq!(with(1024, 0, 0), Some(("workers", 16)));
        assert_eq!(with(1 << 15, 0, 3), Some(("workers", 2)));
        let qpn_prefix = Some(QpnPrefix { bits: 3, value: 0 });
        let both = Config { workers: 16, qpn_prefix, ..Config::default() };
        assert_eq!(wrong(both), Some(("qpn_prefix.bits", 2)));
    }

    /// The bits that differ among many numbers of one slot are the random ones.
    #[test]
    fn draw_qpn__names_slot_and_worker_and_is_random_above() {
        let mut rng = Rng::new(5);
        let mut next = || (rng.next_u64() >> 32) as u32;
        for max_qps in [1, 2, 1000, 1024, 4096] {
            for workers in 1..=16 {
                let worker = u8::try_from(next() % u32::from(workers)).unwrap();
                let config = Config { max_qps, worker, workers, ..Config::default() };
                let config = config.validate().unwrap();
                let slot = next() % max_qps;
                let (mut ones, mut zeros) = (0, 0);
                for _ in 0..200 {
                    let qpn = config.qpns().draw(slot, next());
                    assert_eq!(config.qpn_workers().worker_of(qpn), worker.into(), "{qpn}");
                    assert_eq!(qpn.get() & ((1 << config.qpns().slot_bits()) - 1), slot, "{qpn}");
                    assert!(qpn.get() >= 2 && qpn.get() < Qpn::MASK, "{qpn} is reserved");
                    (ones, zeros) = (ones | qpn.get(), zeros | !qpn.get());
                }
                let random = (ones & zeros & Qpn::MASK).count_ones();
                let beside = config.qpns().slot_bits() + config.qpns().worker_bits();
                assert_eq!(random, 24 - beside, "{max_qps} queue pairs, {workers} workers");
                assert!(max_qps > 1024 || random >= 10);
            }
        }
    }
}
