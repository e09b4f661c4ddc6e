//! The interval reports of a running job.

use crate::port_args::interval;
use crate::report::{print_text, seconds};
use serde::Serialize;
use spanwire_base::{Dur, Time};
use spanwire_host::initiator::Progress;
use spanwire_host::runner::{FlowRow, Flows};
use spanwire_host::text::bytes;

/// Data transferred in an interval, and the state of its flows.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Interval {
    /// Seconds since the first message was posted.
    pub(super) start_s: f64,
    pub(super) end_s: f64,
    pub(super) bytes: u64,
    pub(super) gbps: f64,
    pub(super) msgs_per_s: f64,
    /// Null against perftest.
    pub(super) flow: Option<FlowRow>,
}

/// Measures a running job in intervals.
pub(super) struct Meter {
    every: Option<Dur>,
    print: bool,
    /// Time of the first post.
    pub(super) started: Option<Time>,
    /// `None` before the first sample, and after the end of the job.
    last: Option<Last>,
    pub(super) intervals: Vec<Interval>,
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
    /// A meter with intervals of `interval_s` seconds; zero for none.
    pub(super) fn new(interval_s: f64, print: bool) -> Self {
        Self {
            every: interval(interval_s),
            print,
            started: None,
            last: None,
            intervals: Vec::new(),
        }
    }

    /// Samples the job at `now` and ends the interval if it is due. `flows` is called only at the
    /// start and the end of an interval. The last interval extends to the end of the job, so that
    /// all of them add up to its time and its bytes. It has at least half the length of others.
    pub(super) fn sample(&mut self, now: Time, p: Progress, flows: impl FnOnce() -> Option<Flows>) {
        let Some(started) = p.started else { return };
        let is_first = self.started.replace(started).is_none();
        let Some(every) = self.every else { return };
        let Some(last) = self.last else {
            if is_first {
                self.last = Some(Last { at: started, bytes: 0, messages: 0, flows: flows() });
            }
            return;
        };
        let is_last = p.until.is_some_and(|until| now + every / 2 >= until);
        let now = match p.finished {
            Some(end) => {
                self.last = None;
                // A job shorter than an interval has none.
                if end.since(last.at) < every && self.intervals.is_empty() {
                    return;
                }
                end
            }
            None if is_last || now.since(last.at) < every => return,
            None => now,
        };
        if now <= last.at || self.intervals.len() >= INTERVALS_MAX {
            return;
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
        if self.print {
            print_text(&line(&interval));
        }
        self.intervals.push(interval);
        if p.finished.is_none() {
            self.last = Some(Last { at: now, bytes: p.bytes, messages: p.messages, flows });
        }
    }
}

/// An interval as a line of text; with congestion control its flows instead of the message rate.
fn line(i: &Interval) -> String {
    let Interval { start_s, end_s, bytes: moved, gbps, msgs_per_s, flow } = i;
    let moved = bytes(*moved);
    let begin = format!("{start_s:>8.2}-{end_s:<6.2} s {moved:>10} {gbps:>8.3} Gbit/s");
    match flow {
        Some(flow) if flow.limited_by.is_some() => format!("{begin}{}\n", flow_text(flow)),
        _ => format!("{begin} {msgs_per_s:>10.0} messages/s\n"),
    }
}

/// A flow in 50 columns: window, RTT, ECN marks or CNPs, and what limits it.
fn flow_text(flow: &FlowRow) -> String {
    let window = bytes(flow.cwnd_bytes);
    let srtt = flow.srtt_us.map_or_else(|| "-".to_owned(), |us| format!("{:.2}", us / 1e3));
    let marks = match flow.marked {
        Some(part) => format!("marked {:>3.0} %", part * 100.0),
        None => format!("cnps {:>6}", flow.cnps),
    };
    let by = flow.limited_by.unwrap_or("-");
    format!("  {window:>9}  {srtt:>6} ms  {marks}  {by}")
}

/// The shares of time by limit over the whole run, as a line of text.
pub(super) fn limits_text(flow: &FlowRow) -> Option<String> {
    let mut parts: Vec<_> = flow.limited?.named().into_iter().filter(|p| p.1 >= 0.005).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> =
        parts.iter().map(|(name, part)| format!("{name} {:.0} %", part * 100.0)).collect();
    Some(format!("  limited by: {}\n", parts.join(", ")))
}

/// Limit of intervals kept for JSON: a day of seconds.
const INTERVALS_MAX: usize = 86_400;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_host::runner::Shares;

    fn flow() -> FlowRow {
        FlowRow {
            cwnd_bytes: 123_456,
            rate_gbps: Some(0.2),
            srtt_us: Some(4_012.0),
            marked: Some(0.123),
            cnps: 0,
            limited_by: Some("application"),
            limited: Some(Shares {
                application: 0.62,
                pacer: 0.376,
                cpu: 0.004,
                ..Shares::default()
            }),
            congestion: None,
        }
    }

    fn interval(flow: Option<FlowRow>) -> Interval {
        Interval {
            start_s: 3599.0,
            end_s: 3600.0,
            bytes: 1 << 30,
            gbps: 8.6,
            msgs_per_s: 1e6,
            flow,
        }
    }

    #[test]
    fn sample__ends_intervals_by_time_with_their_bytes() {
        let at = |ms| Time::ZERO + Dur::from_ms(ms);
        let mut meter = Meter::new(0.1, false);
        let mut sample = |ms, bytes| {
            let p = Progress {
                started: Some(at(5)),
                bytes,
                messages: bytes / 10,
                ..Progress::default()
            };
            meter.sample(at(ms), p, || None);
        };
        sample(5, 0);
        sample(104, 900);
        sample(105, 1_000);
        sample(150, 1_100);
        sample(225, 4_000);
        let cut: Vec<_> =
            meter.intervals.iter().map(|i| (i.end_s, i.bytes, i.msgs_per_s)).collect();
        assert_eq!(cut, [(0.1, 1_000, 1_000.0), (0.22, 3_000, 2_500.0)]);
        assert_eq!(meter.started, Some(at(5)));
    }

    /// Samples of a run of 4 s with intervals of 1 s: (milliseconds, bytes, end of the run).
    fn intervals_of(samples: &[(u64, u64, Option<u64>)]) -> Vec<(f64, f64, u64, f64)> {
        let at = |ms| Time::ZERO + Dur::from_ms(ms);
        let mut meter = Meter::new(1.0, false);
        for (ms, bytes, finished) in samples {
            let (started, until) = (Some(at(0)), Some(at(4000)));
            let (bytes, finished) = (*bytes, finished.map(at));
            let p = Progress { started, until, bytes, finished, ..Progress::default() };
            meter.sample(at(*ms), p, || None);
        }
        meter.intervals.iter().map(|i| (i.start_s, i.end_s, i.bytes, i.gbps)).collect()
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
    fn line__fits_a_terminal_of_100_columns() {
        let text = line(&interval(Some(flow())));
        for words in ["120.5 KiB", "4.01 ms", "marked  12 %", "application"] {
            assert!(text.contains(words), "{words} in {text}");
        }
        assert!(text.trim_end().len() <= 100, "{} columns: {text}", text.len());
        let rc = FlowRow { marked: None, cnps: 17, ..flow() };
        assert!(line(&interval(Some(rc))).contains("cnps     17"));
        let none = FlowRow { limited_by: None, limited: None, ..flow() };
        assert!(line(&interval(Some(none))).contains("messages/s"));
    }

    #[test]
    fn limits_text__begins_with_the_largest_and_leaves_out_the_small() {
        let text = limits_text(&flow()).unwrap();
        assert_eq!(text, "  limited by: application 62 %, pacer 38 %\n");
        assert_eq!(limits_text(&FlowRow { limited: None, ..flow() }), None);
    }
}
