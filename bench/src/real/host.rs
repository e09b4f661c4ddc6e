//! Lateness of the host: how late it wakes a thread, and how much of its cores others use.
//!
//! A thread at normal priority on each core sleeps 1 ms at a time and records how much later than
//! due it runs. The maximum is reported, because one late wake-up is enough to miss a bar for a gap
//! or a duration. The processes of the sample itself delay these threads as well, by the few
//! milliseconds of the scheduler's time slice.
//!
//! Rates and shares suffer from processor time rather than from one wake-up. Its stolen part is
//! computed from `/proc/stat`: the busy time of all cores, without that of this process, of its
//! children, of the lab's switch, and of kernel threads, which process its packets.

use serde::Serialize;
use spanwire_io::affinity;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The lateness of the host during a sample.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Lateness {
    /// The latest wake-up of any core, in milliseconds.
    pub late_ms: f64,
    /// The 99th percentile of all wake-ups.
    pub late_p99_ms: f64,
    /// The share of all cores that other processes used, 0..=1.
    pub stolen: f64,
}

/// Measures [`Lateness`] from its start to its end.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    cores: Vec<JoinHandle<Vec<Duration>>>,
    followed: Followed,
    since: Instant,
    before: Usage,
}

/// Processes of the sample that are not children of this one, with their processor time when last
/// seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed(Arc<Mutex<Vec<(u32, u64)>>>);

/// Processor time in ticks.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Usage {
    /// Of all processes.
    busy: u64,
    /// Of this process, its children that have ended, and kernel threads.
    own: u64,
}

impl Watch {
    pub(super) fn start() -> Self {
        let (stop, followed) = (Arc::new(AtomicBool::new(false)), Followed::default());
        let cores = affinity::usable_cores().into_iter().enumerate().map(|(n, core)| {
            let (stop, followed) = (Arc::clone(&stop), followed.clone());
            thread::spawn(move || {
                // Without the affinity it is a sample of another core.
                let _ = affinity::pin(core);
                wake_ups(&stop, || {
                    if n == 0 {
                        followed.look();
                    }
                })
            })
        });
        let cores = cores.collect();
        Self { stop, cores, followed, since: Instant::now(), before: Usage::now() }
    }

    /// The list of processes that belong to the sample.
    pub(super) fn followed(&self) -> &Followed {
        &self.followed
    }

    pub(super) fn end(self) -> Lateness {
        self.stop.store(true, Ordering::Relaxed);
        let (after, elapsed) = (Usage::now(), self.since.elapsed());
        let own = self.followed.ticks();
        let cores = self.cores.len();
        let mut late: Vec<Duration> = Vec::new();
        for core in self.cores {
            late.extend(core.join().unwrap_or_default());
        }
        late.sort_unstable();
        let ms = |at: usize| late.get(at).map_or(0.0, |late| late.as_secs_f64() * 1e3);
        let (last, p99) = (late.len().saturating_sub(1), late.len() * 99 / 100);
        let stolen = stolen(self.before, after, own, elapsed, cores);
        Lateness { late_ms: ms(last), late_p99_ms: ms(p99.min(last)), stolen }
    }
}

/// The lateness of each sleep until `stop`: of one at least.
fn wake_ups(stop: &AtomicBool, look: impl Fn()) -> Vec<Duration> {
    let mut late: Vec<Duration> = Vec::new();
    while late.is_empty() || !stop.load(Ordering::Relaxed) {
        if late.len().is_multiple_of(SLEEPS_PER_LOOK) {
            look();
        }
        let due = Instant::now() + SLEEP;
        thread::sleep(SLEEP);
        late.push(due.elapsed());
    }
    late
}

impl Followed {
    /// Adds a process.
    pub(super) fn add(&self, pid: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((pid, 0));
    }

    /// Reads the time of those that have not ended.
    fn look(&self) {
        for (pid, ticks) in &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            if let Some(time) = process_ticks(&pid.to_string()) {
                *ticks = time.alone.max(*ticks);
            }
        }
    }

    fn ticks(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, ticks)| ticks).sum()
    }
}

impl Usage {
    /// The usage since the system's start. What `/proc` does not report counts as nothing.
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = process_ticks("self").map_or(0, |time| time.alone + time.children);
        Self { busy: busy_ticks(&stat).unwrap_or(0), own: own + kernel_ticks() }
    }
}

/// Processor time of a process in ticks.
#[derive(Clone, Copy, PartialEq, Debug)]
struct ProcessTime {
    parent: u64,
    alone: u64,
    /// Of children that it has waited for.
    children: u64,
}

fn process_ticks(pid: &str) -> Option<ProcessTime> {
    parse_process(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The time of kernel threads: children of `kthreadd`, which is process 2.
fn kernel_ticks() -> u64 {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = names.filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let times = pids.filter_map(|pid| process_ticks(&pid));
    times.filter(|time| time.parent == KTHREADD).map(|time| time.alone).sum()
}

/// The fields of `/proc/PID/stat`: 4 is the parent, 14 to 17 are the times. The second, in
/// parentheses, is the name, which may have spaces.
fn parse_process(stat: &str) -> Option<ProcessTime> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(ProcessTime {
        parent: field(4)?,
        alone: field(14)? + field(15)?,
        children: field(16)? + field(17)?,
    })
}

/// The busy time in the first line of `/proc/stat`: user, nice, system, irq, softirq and steal.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> =
        line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    [0, 1, 2, 5, 6, 7].into_iter().map(|n| fields.get(n).copied()).sum()
}

/// The share of `cores` that others used.
fn stolen(before: Usage, after: Usage, followed: u64, elapsed: Duration, cores: usize) -> f64 {
    let busy = after.busy.saturating_sub(before.busy);
    let own = after.own.saturating_sub(before.own) + followed;
    let whole = elapsed.as_secs_f64() * TICKS_PER_S * cores as f64;
    if whole <= 0.0 { 0.0 } else { (busy.saturating_sub(own) as f64 / whole).min(1.0) }
}

const SLEEP: Duration = Duration::from_millis(1);
const SLEEPS_PER_LOOK: usize = 50;
/// `USER_HZ`, the unit of these files on every architecture that the port supports.
const TICKS_PER_S: f64 = 100.0;
const KTHREADD: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_process__a_name_may_have_spaces_and_parentheses() {
        let stat = "77 (a (b) c) S 2 77 77 0 -1 4194304 1 2 3 4 10 20 300 400 20 0 1 0 5 6 7\n";
        let time = ProcessTime { parent: 2, alone: 30, children: 700 };
        assert_eq!(parse_process(stat), Some(time));
        assert_eq!(parse_process("77 (short) S 2"), None);
        assert_eq!(parse_process(""), None);
    }

    #[test]
    fn busy_ticks__without_idle_and_guest() {
        let stat = "cpu  100 20 3 9999 8888 4 5 6 70 80\ncpu0 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(138));
        assert_eq!(busy_ticks("cpu  100 20"), None);
        assert_eq!(busy_ticks(""), None);
    }

    #[test]
    fn stolen__is_what_others_used_of_all_cores() {
        let before = Usage { busy: 1000, own: 500 };
        let after = Usage { busy: 1300, own: 600 };
        let second = Duration::from_secs(1);
        // 300 ticks of 400, of which 100 and 50 are our own.
        assert!((stolen(before, after, 50, second, 4) - 0.375).abs() < 1e-9);
        assert_eq!(stolen(before, after, 900, second, 4), 0.0);
        assert_eq!(stolen(before, after, 0, Duration::ZERO, 4), 0.0);
    }

    #[test]
    fn usage__of_this_machine_only_grows() {
        let before = Usage::now();
        assert!(before.busy > 0);
        let after = Usage::now();
        assert!(after.busy >= before.busy && after.own >= before.own);
    }

    #[test]
    fn followed__keeps_the_time_of_a_process_that_has_ended() {
        let followed = Followed::default();
        followed.add(u32::MAX);
        followed.0.lock().unwrap()[0].1 = 7;
        followed.look();
        assert_eq!(followed.ticks(), 7);
        followed.add(std::process::id());
        followed.look();
        assert!(followed.ticks() >= 7);
    }
}
