//! The cores of a process's workers: one each, because a worker polls.

use crate::fabric::Error;
use spanwire_io::affinity;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A list of cores as `taskset` has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreList(Vec<usize>);

impl CoreList {
    /// Parses numbers and ranges with commas between them, such as `0,2,4-7`.
    ///
    /// # Errors
    /// The text is something else, a core is named twice, or there are more than 1,024.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no list of cores such as 0,2,4-7");
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= CORES_MAX {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        let mut sorted = cores.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("{text} names core {} twice", pair[0])),
            None => Ok(Self(cores)),
        }
    }
}

/// The core of each of `workers` workers: those of `listed` in its order, else the first ones that
/// this process may use. A single worker without a list is not pinned (`None`). With
/// `oversubscribe` workers may share cores.
///
/// # Errors
/// There are fewer cores than workers; the message says what limits them: the list, the affinity of
/// this process, or the processor time of its control group.
pub fn assign(
    workers: u32,
    listed: Option<&CoreList>,
    oversubscribe: bool,
) -> Result<Vec<Option<usize>>, Error> {
    let parallelism = thread::available_parallelism().map_or(usize::MAX, Into::into);
    assign_among(&affinity::usable_cores(), parallelism, workers, listed, oversubscribe)
        .map_err(Error::from)
}

/// As [`assign`], with the cores of the affinity mask, and the processor time of the control group
/// in cores.
fn assign_among(
    usable: &[usize],
    quota: usize,
    workers: u32,
    listed: Option<&CoreList>,
    oversubscribe: bool,
) -> Result<Vec<Option<usize>>, String> {
    let wanted = workers as usize;
    if wanted == 1 && listed.is_none() {
        return Ok(vec![None]);
    }
    let cores = listed.map_or(usable, |list| &list.0);
    if let Some(core) = cores.iter().find(|core| !usable.contains(core)) {
        return Err(format!("this process may not use core {core}, only {}", text(usable)));
    }
    let limit = if cores.len() < wanted && listed.is_some() {
        Some(format!("--cores names {}", text(cores)))
    } else if cores.len() < wanted {
        Some(format!("this process may use {} (its affinity mask)", text(cores)))
    } else if quota < wanted {
        Some(format!("its control group has the processor time of {quota}"))
    } else {
        None
    };
    match limit {
        Some(limit) if !oversubscribe => Err(format!(
            "{workers} workers need a core each: {limit}; fewer --workers, or --oversubscribe to \
             share cores"
        )),
        _ if cores.is_empty() => Ok(vec![None; wanted]),
        _ => Ok((0..wanted).map(|i| Some(cores[i % cores.len()])).collect()),
    }
}

/// Runs `work` for every one of `items` at once, each in a thread of its own on the core of the
/// same place, and returns the results in this order. The calling thread waits. The condition that
/// `work` gets is true once `stop` is, or once another one has failed.
///
/// # Errors
/// The first error in the order of `items`: of `work`, or that a thread cannot be pinned.
pub fn on_each<I: Send, T: Send>(
    cores: &[Option<usize>],
    items: impl IntoIterator<Item = I>,
    stop: &(impl Fn() -> bool + Sync),
    work: impl Fn(usize, I, &dyn Fn() -> bool) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let has_failed = AtomicBool::new(false);
    let stop = || stop() || has_failed.load(Ordering::Relaxed);
    let run = |place: usize, core: Option<usize>, item: I| {
        // A panic ends the others too: they may wait for this one.
        let failure = Failure(&has_failed);
        core.map_or(Ok(()), affinity::pin)?;
        let done = work(place, item, &stop)?;
        std::mem::forget(failure);
        Ok(done)
    };
    thread::scope(|scope| {
        let run = &run;
        let places = cores.iter().zip(items).enumerate();
        let spawn = |(place, (core, item)): (usize, (&Option<usize>, I))| {
            let core = *core;
            scope.spawn(move || run(place, core, item))
        };
        let threads: Vec<_> = places.map(spawn).collect();
        // A panic in a worker is a bug: it is propagated once all have ended.
        let ended: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ended.into_iter().map(|end| end.unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    })
}

/// Sets the flag when it is dropped.
struct Failure<'a>(&'a AtomicBool);

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Some cores, as text.
fn text(cores: &[usize]) -> String {
    let numbers: Vec<String> = cores.iter().map(usize::to_string).collect();
    let plural = if cores.len() == 1 { "core" } else { "cores" };
    match cores.len() {
        0 => "no core".to_owned(),
        n @ 1..=16 => format!("{n} {plural} ({})", numbers.join(", ")),
        n => format!("{n} cores"),
    }
}

/// Above any machine's number, so that a list of ranges has a limit.
const CORES_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CoreList {
        CoreList::parse(text).unwrap()
    }

    #[test]
    fn parse__takes_numbers_and_ranges_in_their_order() {
        assert_eq!(list("3").0, [3]);
        assert_eq!(list("4,0-2,9").0, [4, 0, 1, 2, 9]);
        for wrong in ["", "a", "1-", "2-1", "0,,1", "-1", "1024", "0-99999999999"] {
            assert!(CoreList::parse(wrong).unwrap_err().contains("0,2,4-7"), "{wrong}");
        }
        assert!(CoreList::parse("0-3,2").unwrap_err().contains("core 2 twice"));
    }

    #[test]
    fn assign__one_worker_is_pinned_only_to_a_core_that_was_named() {
        assert_eq!(assign_among(&[0, 1], 2, 1, None, false), Ok(vec![None]));
        assert_eq!(assign_among(&[0, 1], 2, 1, Some(&list("1,0")), false), Ok(vec![Some(1)]));
    }

    #[test]
    fn assign__several_workers_have_a_core_each() {
        let all = [2, 3, 5];
        assert_eq!(assign_among(&all, 3, 2, None, false), Ok(vec![Some(2), Some(3)]));
        let listed = assign_among(&all, 3, 2, Some(&list("5,2,3")), false);
        assert_eq!(listed, Ok(vec![Some(5), Some(2)]));
    }

    #[test]
    fn assign__the_error_names_what_limits_the_cores() {
        let of = |usable: &[usize], quota, listed: Option<&str>| {
            let listed = listed.map(list);
            assign_among(usable, quota, 3, listed.as_ref(), false).unwrap_err()
        };
        let mask = of(&[0, 1], 2, None);
        assert!(mask.contains("2 cores (0, 1) (its affinity mask)"), "{mask}");
        let quota = of(&[0, 1, 2, 3], 2, None);
        assert!(quota.contains("control group has the processor time of 2"), "{quota}");
        let short = of(&[0, 1, 2, 3], 4, Some("2"));
        assert!(short.contains("--cores names 1 core (2)"), "{short}");
        let foreign = of(&[0, 1, 2], 3, Some("0,1,7"));
        assert!(foreign.contains("may not use core 7, only 3 cores (0, 1, 2)"), "{foreign}");
        for why in [mask, quota, short] {
            assert!(why.contains("3 workers") && why.contains("--oversubscribe"), "{why}");
        }
    }

    #[test]
    fn assign__oversubscribed_workers_share_cores() {
        let shared = assign_among(&[4, 6], 2, 3, None, true);
        assert_eq!(shared, Ok(vec![Some(4), Some(6), Some(4)]));
        assert_eq!(assign_among(&[], 1, 2, None, true), Ok(vec![None, None]));
    }

    #[test]
    fn on_each__has_results_in_order_and_the_first_error() {
        let never = || false;
        let squares = on_each(&[None; 3], [4, 5, 6], &never, |i, n, _| Ok(i * n)).unwrap();
        assert_eq!(squares, [0, 5, 12]);
        // The first waits for the failure of the second.
        let failed = on_each(&[None; 2], 0..2, &never, |i, _, stop| match i {
            0 => {
                while !stop() {
                    thread::yield_now();
                }
                Ok(())
            }
            _ => Err("of the second".into()),
        });
        assert_eq!(failed.unwrap_err().to_string(), "of the second");
        let waits = |i, (), stop: &dyn Fn() -> bool| {
            assert_ne!(i, 1, "the second panics");
            while !stop() {
                thread::yield_now();
            }
            Ok(())
        };
        let run = || on_each(&[None; 2], [(); 2], &never, waits).map(drop);
        assert!(std::panic::catch_unwind(run).is_err(), "it did not hang");
        let nowhere = on_each(&[Some(1_000)], [()], &never, |_, (), _| Ok(())).unwrap_err();
        assert!(nowhere.to_string().contains("core 1000"), "{nowhere}");
    }
}
