//! Delays of a flow that uses several paths at once.
//!
//! A longer path would look like one with a queue, and the emptiest path would hide the queues of
//! the others. So the delay of a sample is relative to the base round trip of its own path, and in
//! an interval the mean over the paths of their smallest delays counts.

use super::base::BaseRtt;
use spanwire_base::Time;

/// The paths of a flow. With one path it changes nothing and costs a comparison.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    /// The only path so far.
    only: Option<u16>,
    /// Paths used recently, at most [`PATHS_MAX`]; empty as long as there is one path.
    list: Vec<Path>,
    /// Paths of which little is known: random spraying uses too many to know any.
    unknown: Smallest,
    /// The lowest base round trip of the known paths, ns.
    lowest: f64,
    /// Paths with a sample in the last interval.
    in_use: usize,
}

/// The path of a source port.
#[derive(Clone, Debug)]
struct Path {
    port: u16,
    used_at: Time,
    base: BaseRtt,
    /// Intervals with a sample.
    intervals: u32,
    /// Smallest delay in this interval, ns, as measured.
    measured: f64,
    smallest: Smallest,
}

/// The smallest relative delay of an interval, ns, and the bytes acknowledged in it.
#[derive(Clone, Copy, Debug)]
struct Smallest {
    delay: f64,
    bytes: f64,
}

impl Default for Smallest {
    fn default() -> Self {
        Self { delay: f64::MAX, bytes: 0.0 }
    }
}

impl Smallest {
    fn add(&mut self, delay: f64, bytes: f64) {
        self.delay = self.delay.min(delay);
        self.bytes += bytes;
    }
}

impl Paths {
    /// The delay of a sample of `port`, ns, as if all paths were as long as the shortest.
    pub(super) fn relative(&mut self, now: Time, port: u16, delay: f64, bytes: f64) -> f64 {
        if *self.only.get_or_insert(port) == port && self.list.is_empty() {
            return delay;
        }
        let lowest = self.lowest;
        let at = self.find(port, now);
        let path = &mut self.list[at];
        path.used_at = now;
        path.measured = path.measured.min(delay);
        let longer = match path.base.ns() {
            Some(base) if path.intervals >= KNOWN => base - lowest,
            _ => {
                self.unknown.add(delay, bytes);
                return delay;
            }
        };
        let relative = (delay - longer).max(0.0);
        path.smallest.add(relative, bytes);
        relative
    }

    /// Several paths are in use at once, not one after another.
    pub(super) fn are_several(&self) -> bool {
        self.in_use > 1
    }

    /// The place of a path in the list. A new one replaces the one that was not used for longest.
    fn find(&mut self, port: u16, now: Time) -> usize {
        if let Some(at) = self.list.iter().position(|path| path.port == port) {
            return at;
        }
        let new = Path {
            port,
            used_at: now,
            base: BaseRtt::new(None),
            intervals: 0,
            measured: f64::MAX,
            smallest: Smallest::default(),
        };
        if self.list.len() < PATHS_MAX {
            self.list.push(new);
            return self.list.len() - 1;
        }
        let oldest = self.list.iter().enumerate().min_by_key(|(_, path)| path.used_at);
        let at = oldest.map_or(0, |(at, _)| at);
        self.list[at] = new;
        at
    }

    /// Ends an interval: the mean over the paths of their smallest relative delays, by bytes. None
    /// if there is one path.
    pub(super) fn on_interval(&mut self, now: Time) -> Option<f64> {
        if self.list.is_empty() {
            return None;
        }
        let (mut sum, mut bytes) = (0.0, 0.0);
        let mut add = |smallest: &mut Smallest| {
            let Smallest { delay, bytes: of } = std::mem::take(smallest);
            if of > 0.0 {
                (sum, bytes) = (sum + delay * of, bytes + of);
            }
        };
        add(&mut self.unknown);
        self.in_use = 0;
        for path in &mut self.list {
            add(&mut path.smallest);
            let measured = std::mem::replace(&mut path.measured, f64::MAX);
            if measured < f64::MAX {
                self.in_use += 1;
                path.base.on_interval(now, measured);
                path.intervals = path.intervals.saturating_add(1);
            }
        }
        let known = self.list.iter().filter(|path| path.intervals >= KNOWN);
        self.lowest = known.filter_map(|path| path.base.ns()).fold(f64::MAX, f64::min);
        (bytes > 0.0).then(|| sum / bytes)
    }
}

/// Paths remembered: as many as UnoLB has subflows.
const PATHS_MAX: usize = 32;
/// Intervals with a sample after which the base round trip of a path is used.
const KNOWN: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    /// Intervals of `delays`, one sample of 1000 bytes for each path, and the mean of the last.
    fn run(paths: &mut Paths, intervals: u64, delays: &[(u16, f64)]) -> Option<f64> {
        let mut mean = None;
        for n in 0..intervals {
            for (port, delay) in delays {
                paths.relative(at(n), *port, *delay, 1000.0);
            }
            mean = paths.on_interval(at(n));
        }
        mean
    }

    #[test]
    fn relative__of_one_path_is_the_delay() {
        let mut paths = Paths::default();
        assert_eq!(paths.relative(at(0), 7, 123.0, 1.0), 123.0);
        assert_eq!(run(&mut paths, 20, &[(7, 200.0)]), None);
        // Rerouted.
        assert_eq!(run(&mut paths, 20, &[(8, 300.0)]), Some(300.0));
        assert!(!paths.are_several());
    }

    #[test]
    fn relative__a_longer_path_has_no_queue() {
        let mut paths = Paths::default();
        run(&mut paths, 20, &[(7, 100.0), (8, 900.0)]);
        assert!(paths.are_several());
        assert_eq!(paths.relative(at(30), 7, 110.0, 1.0), 110.0);
        assert_eq!(paths.relative(at(30), 8, 950.0, 1.0), 150.0);
    }

    #[test]
    fn on_interval__the_emptiest_path_does_not_hide_the_queues_of_others() {
        let mut paths = Paths::default();
        run(&mut paths, 20, &[(7, 100.0), (8, 100.0), (9, 100.0)]);
        assert_eq!(run(&mut paths, 1, &[(7, 100.0), (8, 400.0), (9, 700.0)]), Some(400.0));
    }

    #[test]
    fn relative__random_spraying_remembers_a_bounded_number_of_paths() {
        let mut paths = Paths::default();
        for port in 0..10_000 {
            assert_eq!(paths.relative(at(port.into()), port, 500.0, 1000.0), 500.0);
            if port % 100 == 99 {
                assert_eq!(paths.on_interval(at(port.into())), Some(500.0));
            }
        }
        assert_eq!(paths.list.len(), PATHS_MAX);
    }
}
