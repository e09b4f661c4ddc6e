//! The intervals of a running job, of one worker and of all.

use super::rows::seconds;
use super::{FlowRow, Flows};
use crate::initiator::Progress;
use serde::Serialize;
use spanwire_base::{Dur, Time};
use std::sync::{Mutex, PoisonError};

/// Data transferred in an interval, and the state of its flows.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Seconds since the first message was posted.
    pub start_s: f64,
    /// Its end, likewise.
    pub end_s: f64,
    /// Payload bytes of the messages that completed.
    pub bytes: u64,
    /// Goodput in 10^9 bits per second.
    pub gbps: f64,
    /// Messages per second.
    pub msgs_per_s: f64,
    /// The flows; null against perftest.
    pub flow: Option<FlowRow>,
}

/// Measures the running job of one worker in intervals.
pub struct Meter {
    every: Option<Dur>,
    /// Time of the first post.
    started: Option<Time>,
    /// `None` before the first sample, and after the end of the job.
    last: Option<Last>,
    /// Intervals so far.
    count: usize,
}

/// State at the start of the current interval.
#[derive(Clone, Copy)]
struct Last {
    at: Time,
    bytes: u64,
    messages: u64,
    flows: Option<Flows>,
}

impl Meter {
    /// A meter with intervals of this length, of at least one nanosecond; `None` for none.
    #[must_use]
    pub fn new(every: Option<Dur>) -> Self {
        Self { every, started: None, last: None, count: 0 }
    }

    /// Samples the job at `now`. Returns the interval that ends, if one does. `flows` is called
    /// only at the start and the end of an interval. The last interval extends to the end of the
    /// job, so that all of them add up to its time and its bytes. It has at least half the length
    /// of others.
    pub fn sample(
        &mut self,
        now: Time,
        p: Progress,
        flows: impl FnOnce() -> Option<Flows>,
    ) -> Option<Interval> {
        let started = p.started?;
        let is_first = self.started.replace(started).is_none();
        let every = self.every?;
        let Some(last) = self.last else {
            if is_first {
                self.last = Some(Last { at: started, bytes: 0, messages: 0, flows: flows() });
            }
            return None;
        };
        let is_last = p.until.is_some_and(|until| now + every / 2 >= until);
        let now = match p.finished {
            Some(end) => {
                self.last = None;
                // A job shorter than an interval has none.
                if end.since(last.at) < every && self.count == 0 {
                    return None;
                }
                end
            }
            None if is_last || now.since(last.at) < every => return None,
            None => now,
        };
        if now <= last.at || self.count >= INTERVALS_MAX {
            return None;
        }
        let flows = flows();
        let (moved, messages) = (p.bytes - last.bytes, p.messages - last.messages);
        let took = seconds(now.since(last.at));
        #[expect(clippy::cast_precision_loss, reason = "a report's figure, of three digits")]
        let (gbps, msgs_per_s) = (moved as f64 * 8.0 / took / 1e9, messages as f64 / took);
        let interval = Interval {
            start_s: seconds(last.at.since(started)),
            end_s: seconds(now.since(started)),
            bytes: moved,
            gbps,
            msgs_per_s,
            flow: flows.zip(last.flows).map(|(flows, before)| flows.since(&before)),
        };
        self.count += 1;
        if p.finished.is_none() {
            self.last = Some(Last { at: now, bytes: p.bytes, messages: p.messages, flows });
        }
        Some(interval)
    }
}

/// The intervals of all workers of a job: interval `n` of the job is the sum of theirs.
pub struct Board {
    workers: usize,
    each: Box<dyn Fn(&Interval) + Sync + Send>,
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Sums {
    /// Those that every worker has ended.
    whole: Vec<Interval>,
    /// Those that some have ended, by worker.
    open: Vec<Vec<Interval>>,
    /// Intervals that each worker has ended.
    ended: Vec<usize>,
}

impl Board {
    /// A board for so many workers. `each` is called with every sum, in their order.
    #[must_use]
    pub fn new(workers: usize, each: impl Fn(&Interval) + Sync + Send + 'static) -> Self {
        let sums = Mutex::new(Sums { ended: vec![0; workers], ..Sums::default() });
        Self { workers, each: Box::new(each), sums }
    }

    /// Adds the next interval of `worker`.
    ///
    /// # Panics
    /// There is no such worker.
    pub fn add(&self, worker: usize, interval: Interval) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let place = sums.ended[worker] - sums.whole.len();
        sums.ended[worker] += 1;
        if sums.open.len() <= place {
            sums.open.push(Vec::new());
        }
        sums.open[place].push(interval);
        if sums.open[0].len() == self.workers {
            let whole = Interval::sum(&sums.open.remove(0));
            (self.each)(&whole);
            sums.whole.push(whole);
        }
    }

    /// The sums, which add up to all intervals: those at the end that only some workers have ended
    /// are sums of what there is.
    #[must_use]
    pub fn into_sums(self) -> Vec<Interval> {
        let Sums { mut whole, open, .. } =
            self.sums.into_inner().unwrap_or_else(PoisonError::into_inner);
        for parts in open {
            let sum = Interval::sum(&parts);
            (self.each)(&sum);
            whole.push(sum);
        }
        whole
    }
}

impl Interval {
    /// The sum over workers, from the earliest start to the latest end.
    fn sum(parts: &[Self]) -> Self {
        let flows: Option<Vec<FlowRow>> = parts.iter().map(|part| part.flow).collect();
        Self {
            start_s: parts.iter().map(|part| part.start_s).fold(f64::INFINITY, f64::min),
            end_s: parts.iter().map(|part| part.end_s).fold(0.0, f64::max),
            bytes: parts.iter().map(|part| part.bytes).sum(),
            gbps: parts.iter().map(|part| part.gbps).sum(),
            msgs_per_s: parts.iter().map(|part| part.msgs_per_s).sum(),
            flow: flows.and_then(|flows| FlowRow::sum(&flows)),
        }
    }
}

/// Limit of intervals kept for JSON: a day of seconds.
const INTERVALS_MAX: usize = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample__ends_intervals_by_time_with_their_bytes() {
        let at = |ms| Time::ZERO + Dur::from_ms(ms);
        let mut meter = Meter::new(Some(Dur::from_ms(100)));
        let mut intervals = Vec::new();
        let mut sample = |ms, bytes| {
            let p = Progress {
                started: Some(at(5)),
                bytes,
                messages: bytes / 10,
                ..Progress::default()
            };
            intervals.extend(meter.sample(at(ms), p, || None));
        };
        sample(5, 0);
        sample(104, 900);
        sample(105, 1_000);
        sample(150, 1_100);
        sample(225, 4_000);
        let cut: Vec<_> = intervals.iter().map(|i| (i.end_s, i.bytes, i.msgs_per_s)).collect();
        assert_eq!(cut, [(0.1, 1_000, 1_000.0), (0.22, 3_000, 2_500.0)]);
    }

    /// Samples of a run of 4 s with intervals of 1 s: (milliseconds, bytes, end of the run).
    fn intervals_of(samples: &[(u64, u64, Option<u64>)]) -> Vec<(f64, f64, u64, f64)> {
        let at = |ms| Time::ZERO + Dur::from_ms(ms);
        let mut meter = Meter::new(Some(Dur::from_secs(1)));
        let mut intervals = Vec::new();
        for (ms, bytes, finished) in samples {
            let (started, until) = (Some(at(0)), Some(at(4000)));
            let (bytes, finished) = (*bytes, finished.map(at));
            let p = Progress { started, until, bytes, finished, ..Progress::default() };
            intervals.extend(meter.sample(at(*ms), p, || None));
        }
        intervals.iter().map(|i| (i.start_s, i.end_s, i.bytes, i.gbps)).collect()
    }

    #[test]
    fn sample__intervals_add_up_to_the_run_although_nothing_completes() {
        let dead = [(0, 0, None), (1050, 9000, None), (2050, 9000, None), (3100, 9000, None)];
        let ended = [(4150, 9000, None), (5200, 9000, None), (5300, 9000, Some(4000))];
        let first = (0.0, 1.05, 9000, 9000.0 * 8.0 / 1.05 / 1e9);
        let rest = [(1.05, 2.05, 0, 0.0), (2.05, 3.1, 0, 0.0), (3.1, 4.0, 0, 0.0)];
        let expected = [&[first], &rest[..]].concat();
        assert_eq!(intervals_of(&[&dead[..], &ended].concat()), expected);
    }

    #[test]
    fn sample__the_last_interval_contains_what_completes_after_the_duration() {
        let slow = [(0, 0, None), (2500, 300, None), (3500, 350, None), (4500, 400, None)];
        let slow = [&slow[..], &[(4900, 500, Some(4900))]].concat();
        // Perftest's exchange goes on after the end.
        let again = [(5000, 500, Some(4900)), (9000, 500, Some(4900))];
        let ends = intervals_of(&[&slow[..], &again].concat());
        let ends: Vec<_> = ends.iter().map(|i| (i.0, i.1, i.2)).collect();
        assert_eq!(ends, [(0.0, 2.5, 300), (2.5, 4.9, 200)]);
        // A run that is shorter than an interval has none.
        assert_eq!(intervals_of(&[(0, 0, None), (900, 7, Some(900))]), []);
        assert_eq!(intervals_of(&[(0, 0, None), (1000, 7, Some(1000))]).len(), 1);
    }

    #[test]
    fn board__an_interval_is_whole_once_every_worker_has_ended_it() {
        let part = |start_s, gbps| Interval {
            start_s,
            end_s: start_s + 1.0,
            bytes: 10,
            gbps,
            msgs_per_s: 1.0,
            flow: None,
        };
        let (seen, shown) = std::sync::mpsc::channel();
        let board = Board::new(2, move |sum: &Interval| seen.send(sum.gbps).unwrap());
        board.add(1, part(0.1, 1.0));
        board.add(1, part(1.1, 2.0));
        assert!(shown.try_recv().is_err());
        board.add(0, part(0.0, 4.0));
        assert_eq!(shown.try_recv(), Ok(5.0));
        board.add(0, part(1.0, 8.0));
        assert_eq!(shown.try_recv(), Ok(10.0));
        // Only one of them has ended this.
        board.add(0, part(2.0, 8.0));
        let sums = board.into_sums();
        assert_eq!((sums.len(), sums[2].bytes, shown.try_recv()), (3, 10, Ok(8.0)));
        assert_eq!((sums[0].start_s, sums[0].end_s, sums[0].bytes), (0.0, 1.1, 20));
    }
}
