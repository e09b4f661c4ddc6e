//! Parallel runs over a range of seeds, with results in the order of the seeds.

use crate::report::{LiveLine, bar};
use crate::signals::Interrupt;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs every seed of `seeds` on `threads` threads. `each` is called with the results in the order
/// of the seeds, independent of the order of completion.
///
/// After an interrupt, started runs complete, so that the results have no gap.
///
/// # Returns
/// The seed after the last one run: the end of `seeds` unless interrupted.
pub(super) fn sweep<R: Send>(
    seeds: std::ops::Range<u64>,
    threads: NonZero<usize>,
    interrupt: &Interrupt,
    run: impl Fn(u64) -> R + Sync,
    mut each: impl FnMut(u64, R),
) -> u64 {
    let (next, end) = (AtomicU64::new(seeds.start), seeds.end);
    let (results, finished) = mpsc::sync_channel(2 * threads.get());
    let mut expected = seeds.start;
    thread::scope(|scope| {
        for _ in 0..threads.get() {
            let (results, next, run) = (results.clone(), &next, &run);
            scope.spawn(move || {
                // A seed taken from `next` is always run; else the results would have a gap.
                while !interrupt.is_set() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    if results.send((seed, run(seed))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(results);
        let mut early = BTreeMap::new();
        for (seed, result) in finished {
            early.insert(seed, result);
            while let Some(result) = early.remove(&expected) {
                each(expected, result);
                expected += 1;
            }
        }
    });
    expected
}

/// Runs 0 to `count` on all cores, and shows the progress in units of `what` if `live`.
///
/// # Errors
/// The first error in the order of the runs. No further run begins after one.
pub(super) fn sweep_all<R: Send, E: Send>(
    count: u64,
    live: bool,
    what: &str,
    run: impl Fn(u64) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let (mut line, mut results, interrupt) = (LiveLine::new(live), Vec::new(), Interrupt::never());
    let run = |i| run(i).inspect_err(|_| interrupt.set());
    sweep(0..count, all_cores(), &interrupt, run, |i, result| {
        results.push(result);
        line.show(&format!("{} {} of {count} {what}", bar(i + 1, count), i + 1));
    });
    line.clear();
    results.into_iter().collect()
}

/// A thread for each core.
pub(super) fn all_cores() -> NonZero<usize> {
    thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FOUR: NonZero<usize> = NonZero::new(4).expect("four is not zero");

    #[test]
    fn sweep__results_are_in_order_of_seeds() {
        let mut seen = Vec::new();
        let run = |seed: u64| {
            // Earlier seeds take longer.
            thread::sleep(Duration::from_millis(10 - (seed % 10)));
            seed * seed
        };
        let end = sweep(100..140, FOUR, &Interrupt::never(), run, |seed, result| {
            seen.push((seed, result));
        });
        assert_eq!(end, 140);
        let expected: Vec<_> = (100..140).map(|s| (s, s * s)).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn sweep__an_interrupt_ends_it_without_a_gap() {
        let interrupt = Interrupt::never();
        let mut seen = Vec::new();
        let run = |seed: u64| {
            if seed == 20 {
                interrupt.set();
            }
        };
        let end = sweep(0..1_000_000, FOUR, &interrupt, run, |seed, _| seen.push(seed));
        assert!((21..1_000_000).contains(&end), "{end}");
        assert_eq!(seen, (0..end).collect::<Vec<_>>());
    }
}
