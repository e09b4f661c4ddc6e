//! Differences of switch telemetry between acknowledgements.

use crate::units::{bytes_per_ns, float, ns};
use crate::{Ack, Hop};
#[cfg(test)]
use spanwire_base::{Rate, Time};

/// The last telemetry of each hop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Telemetry {
    hops: [Option<Hop>; MAX_HOPS],
    /// Beside the path, so that both take one word.
    count: u8,
    path: u16,
}

/// The difference of a hop between two acknowledgements. Bytes and nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Change {
    /// The port's rate.
    pub(crate) rate: f64,
    /// Bytes sent per nanosecond.
    pub(crate) tx: f64,
    /// The queue before and after.
    pub(crate) queue_before: f64,
    pub(crate) queue: f64,
    /// The time between the records.
    pub(crate) span: f64,
}

impl Telemetry {
    /// The load of the busiest hop, with `load` of each hop's difference, and the time it covers
    /// in nanoseconds. `None` without a previous record to compare with: for the first telemetry,
    /// or after a path change. Records that are not newer than the previous ones are skipped.
    pub(crate) fn busiest(
        &mut self,
        a: &Ack<'_>,
        mut load: impl FnMut(&Change) -> f64,
    ) -> Option<(f64, f64)> {
        if a.int.is_empty() {
            return None;
        }
        let int = &a.int[..a.int.len().min(MAX_HOPS)];
        let count = u8::try_from(int.len()).unwrap_or(u8::MAX);
        if count != self.count || a.path != self.path {
            *self = Self { count, path: a.path, ..Self::default() };
            for (known, hop) in self.hops.iter_mut().zip(int) {
                *known = Some(*hop);
            }
            return None;
        }
        let mut busiest: Option<(f64, f64)> = None;
        for (known, hop) in self.hops.iter_mut().zip(int) {
            let Some(last) = known.filter(|last| hop.at > last.at) else { continue };
            *known = Some(*hop);
            let span = ns(hop.at.since(last.at));
            let load = load(&Change {
                rate: bytes_per_ns(hop.rate),
                tx: float(hop.tx_bytes.saturating_sub(last.tx_bytes)) / span,
                queue_before: float(last.queue_bytes),
                queue: float(hop.queue_bytes),
                span,
            });
            if busiest.is_none_or(|(most, _)| load > most) {
                busiest = Some((load, span));
            }
        }
        busiest
    }

    /// Discards all records.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Maximum number of hops used; a path between datacenters has about ten.
const MAX_HOPS: usize = 16;

/// A record with `tx_bytes` sent by `at` and a queue of `queue_bytes`, for tests.
#[cfg(test)]
pub(crate) fn hop(at: Time, tx_bytes: u64, queue_bytes: u64) -> Hop {
    Hop { at, tx_bytes, queue_bytes, rate: Rate::from_gbps(100) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn differences(t: &mut Telemetry, int: &[Hop], path: u16) -> (bool, Vec<Change>) {
        let mut changes = Vec::new();
        let ack = Ack { int, path, ..Ack::default() };
        let busiest = t.busiest(&ack, |c| {
            changes.push(*c);
            c.tx
        });
        (busiest.is_some(), changes)
    }

    #[test]
    fn busiest__compares_hop_by_hop_and_restarts_on_another_path() {
        let mut t = Telemetry::default();
        assert_eq!(differences(&mut t, &[], 0), (false, vec![]));
        assert!(!differences(&mut t, &[hop(at(0), 0, 10)], 1).0);
        let (compared, changes) = differences(&mut t, &[hop(at(10), 50_000, 20)], 1);
        assert!(compared);
        assert_eq!(
            changes,
            [Change { rate: 12.5, tx: 5.0, queue_before: 10.0, queue: 20.0, span: 10_000.0 }]
        );
        assert!(!differences(&mut t, &[hop(at(20), 60_000, 0)], 2).0, "another path");
        assert!(
            !differences(&mut t, &[hop(at(30), 0, 0), hop(at(30), 0, 0)], 2).0,
            "a longer path"
        );
    }

    #[test]
    fn busiest__skips_records_that_are_not_newer() {
        let mut t = Telemetry::default();
        differences(&mut t, &[hop(at(10), 0, 0)], 0);
        assert!(!differences(&mut t, &[hop(at(10), 9, 9)], 0).0);
        assert!(!differences(&mut t, &[hop(at(5), 9, 9)], 0).0);
        assert!(differences(&mut t, &[hop(at(15), 9, 9)], 0).0);
    }
}
