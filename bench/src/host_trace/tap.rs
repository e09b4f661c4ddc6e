//! A port that records the steps of its driver.

use spanwire_base::{Dur, LentPayload, RxMeta, Time, TxMeta, u32_from};
use spanwire_host::fabric::{Link, link_of_inner};
use spanwire_io::clock::TimeSource;
use spanwire_io::port::{Port, SlotToken, slots_of_inner};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A step of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// When it began: just before its receive burst.
    pub begin: Time,
    /// When the next step began, or the sleep that follows.
    pub end: Time,
    /// Frames received.
    pub rx: u32,
    /// Frames sent.
    pub tx: u32,
    /// Bytes of all these frames.
    pub bytes: u32,
    /// System calls that received frames, and that sent frames; zero where calls and frames are not
    /// the same thing as over UDP sockets.
    pub calls: [u32; 2],
    /// Kernel timestamp of the first received frame.
    pub arrival: Option<Time>,
    /// The sleep before the step: its beginning and its planned end.
    pub slept: Option<[Time; 2]>,
}

/// The event that ended a sleep, and the time from it to the step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakeup {
    /// A frame arrived.
    Frame(Dur),
    /// The timer of the sleep expired.
    Timer(Dur),
}

/// The recorded steps, in order. Complete once the port is dropped.
#[derive(Clone, Debug, Default)]
pub struct StepLog(Arc<Mutex<Vec<Step>>>);

/// A port that records the first [`STEPS_MAX`] steps of its driver.
pub struct StepTap<P> {
    inner: P,
    log: StepLog,
    steps: Vec<Step>,
    /// The unfinished step.
    step: Option<Step>,
    /// The system calls before it.
    calls: [u64; 2],
    sleeps: Sleeps,
}

/// The sleep since the last step of a driver, of which its worker tells.
#[derive(Clone, Debug, Default)]
pub struct Sleeps(Arc<Mutex<Option<[Time; 2]>>>);

impl Sleeps {
    /// A sleep begins, and is planned to end.
    pub fn add(&self, times: [Time; 2]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(times);
    }

    fn take(&self) -> Option<[Time; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Step {
    /// CPU time of the step.
    #[must_use]
    pub fn took(&self) -> Dur {
        self.end.since(self.begin)
    }

    /// True if frames moved.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.rx > 0 || self.tx > 0
    }

    /// The event that ended the sleep before the step. `None` without a sleep, and if a frame
    /// arrived before the sleep began.
    #[must_use]
    pub fn wakeup(&self) -> Option<Wakeup> {
        let [since, until] = self.slept?;
        match self.arrival.filter(|at| *at <= self.begin) {
            Some(at) if at < since => None,
            Some(at) if at <= until => Some(Wakeup::Frame(self.begin.since(at))),
            _ => (until <= self.begin).then(|| Wakeup::Timer(self.begin.since(until))),
        }
    }
}

impl StepLog {
    /// Takes all steps.
    #[must_use]
    pub fn take(&self) -> Vec<Step> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<P: Link> StepTap<P> {
    /// Wraps `inner` and records the steps in `log`, with the `sleeps` between them.
    pub fn new(inner: P, log: StepLog, sleeps: Sleeps) -> Self {
        // Allocated at once, because a reallocation would look like a stall.
        let steps = Vec::with_capacity(STEPS_MAX);
        let calls = inner.calls();
        Self { inner, log, steps, step: None, calls, sleeps }
    }

    fn end_step(&mut self, end: Time) {
        let (before, after) = (self.calls, self.inner.calls());
        self.calls = after;
        if let Some(step) = self.step.take()
            && self.steps.len() < STEPS_MAX
        {
            let calls = [0, 1].map(|n| u32::try_from(after[n] - before[n]).unwrap_or(u32::MAX));
            self.steps.push(Step { end, calls, ..step });
        }
    }
}

impl<P> StepTap<P> {
    fn count_sent(&mut self, meta: TxMeta) {
        if let Some(step) = &mut self.step {
            step.tx += 1;
            step.bytes += u32_from(meta.len);
        }
    }
}

impl<P> Drop for StepTap<P> {
    fn drop(&mut self) {
        let steps = std::mem::take(&mut self.steps);
        *self.log.0.lock().unwrap_or_else(PoisonError::into_inner) = steps;
    }
}

impl<P: Link> Port for StepTap<P> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        let (begin, slept) = (clock.now(), self.sleeps.take());
        self.end_step(slept.map_or(begin, |[since, _]| since));
        let (mut bytes, mut first) = (0, None);
        let rx = self.inner.rx_burst(clock, max, &mut |frame, meta| {
            bytes += u32_from(frame.len());
            first.get_or_insert(*meta);
            each(frame, meta);
        });
        // Without a timestamp the arrival is an interval.
        let arrival = first.filter(|meta| meta.earliest == meta.at).map(|meta| meta.at);
        let (rx_frames, calls) = (u32_from(rx), [0; 2]);
        self.step =
            Some(Step { begin, end: begin, rx: rx_frames, tx: 0, bytes, calls, arrival, slept });
        rx
    }

    slots_of_inner!();

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        self.count_sent(meta);
        self.inner.slot_commit(slot, meta);
    }

    fn sends_lent(&self) -> bool {
        self.inner.sends_lent()
    }

    fn slot_commit_lent(&mut self, slot: SlotToken, meta: TxMeta, lent: LentPayload) {
        self.count_sent(meta);
        self.inner.slot_commit_lent(slot, meta, lent);
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.wait(timeout)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }
}

impl<P: Link> Link for StepTap<P> {
    fn counters(&self) -> Vec<(String, u64)> {
        self.inner.counters()
    }

    link_of_inner!(self, self.inner, self.inner);
}

/// Maximum number of recorded steps: 130 MB, and two seconds of a driver that only spins.
pub const STEPS_MAX: usize = 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_io::clock::Clock;
    use spanwire_io::pipe::{PipeConfig, pipe};
    use spanwire_io::port::reserve;

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    fn step(begin: u64, arrival: Option<u64>, slept: Option<[u64; 2]>) -> Step {
        let (arrival, slept) = (arrival.map(at), slept.map(|times| times.map(at)));
        let begin = at(begin);
        Step { begin, end: begin, rx: 0, tx: 0, bytes: 0, calls: [0; 2], arrival, slept }
    }

    #[test]
    fn wakeup__is_the_earlier_of_frame_and_timer() {
        let us = Dur::from_us;
        let of = |begin, arrival, slept| step(begin, arrival, slept).wakeup();
        assert_eq!(of(50, Some(40), None), None, "no sleep");
        assert_eq!(of(50, Some(40), Some([10, 90])), Some(Wakeup::Frame(us(10))));
        assert_eq!(of(50, Some(40), Some([10, 35])), Some(Wakeup::Timer(us(15))));
        assert_eq!(of(50, None, Some([10, 35])), Some(Wakeup::Timer(us(15))));
        assert_eq!(of(50, Some(9), Some([10, 35])), None, "the frame arrived before the sleep");
        assert_eq!(of(50, Some(51), Some([10, 90])), None, "the frame arrived during the step");
    }

    #[test]
    fn step_tap__records_frames_times_and_sleeps() {
        let clock = Clock::start();
        let (near, mut far) = pipe(PipeConfig::default());
        let log = StepLog::default();
        let sleeps = Sleeps::default();
        let mut tap = StepTap::new(near, log.clone(), sleeps.clone());
        tap.rx_burst(&clock, 64, &mut |_, _| {});
        reserve(&mut tap).expect("a slot").commit(TxMeta::whole(100));
        tap.flush(clock.now()).expect("sends");
        reserve(&mut far).expect("a slot").commit(TxMeta::whole(60));
        far.flush(clock.now()).expect("sends");
        tap.rx_burst(&clock, 64, &mut |_, _| {});
        let since = clock.now();
        sleeps.add([since, since + Dur::from_ms(2)]);
        tap.wait(Duration::from_millis(2)).expect("sleeps");
        tap.rx_burst(&clock, 64, &mut |_, _| {});
        sleeps.add([clock.now(), Time::MAX]);
        tap.rx_burst(&clock, 64, &mut |_, _| {});
        drop(tap);
        let steps = log.take();
        let frames: Vec<_> = steps.iter().map(|s| (s.rx, s.tx, s.bytes)).collect();
        assert_eq!(frames, [(0, 1, 100), (1, 0, 60), (0, 0, 0)]);
        assert_eq!(steps[0].end, steps[1].begin);
        let [since, until] = steps[2].slept.expect("it slept");
        assert_eq!((since, until), (steps[1].end, since + Dur::from_ms(2)));
        assert!(matches!(steps[2].wakeup(), Some(Wakeup::Timer(_))), "{:?}", steps[2]);
        assert!(steps[..2].iter().all(|s| s.slept.is_none()));
    }
}
