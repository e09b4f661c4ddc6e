//! A clock that counts ticks, slewed towards the monotonic clock.
//!
//! Time is a piecewise linear function of the counter's ticks. A piece has a fixed end, 50 to 100
//! ms after its beginning. The first reader beyond that end compares with the monotonic clock. It
//! begins the next piece at the present value with a slightly different slope, so that the
//! difference is zero at its end. So every reader on any core evaluates the same function,
//! regardless of preemption, and the function never decreases. A reading within a piece takes no
//! lock and no system call.
//!
//! # Source
//! The kernel's own clocks work this way (multiplier and shift, a sequence counter). RDTSC follows
//! a fence, as in the vDSO, because a processor may read the counter early.

mod counter;

pub(crate) use counter::{Machine, is_trustworthy};

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The source of ticks, and the clock that they are compared with.
pub(crate) trait Counter {
    /// Ticks, at a constant rate; wraps. Ordered after the caller's preceding instructions.
    fn ticks(&self) -> u64;

    /// The monotonic clock, picoseconds.
    fn monotonic_ps(&self) -> u64;
}

/// A clock on a counter of ticks.
#[derive(Debug)]
pub(crate) struct Steered<C> {
    counter: C,
    /// Number of pieces so far; the last one is at this number modulo [`PIECES`].
    pieces: AtomicU64,
    ring: [Place; PIECES],
    steering: Mutex<Steering>,
}

/// A linear piece of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    begin_ticks: u64,
    begin_ps: u64,
    /// Picoseconds per tick, times 2^32; 0: the monotonic clock plus `begin_ps` instead of the
    /// counter.
    slope: u64,
    /// Ticks until it ends.
    len_ticks: u64,
}

/// A piece that can be read while another one is written.
#[derive(Debug, Default)]
struct Place([AtomicU64; 4]);

/// State from which the next piece is computed.
#[derive(Clone, Copy, Debug)]
struct Steering {
    /// The last valid comparison.
    last: Reading,
    /// Picoseconds per tick, times 2^32, without the correction of a difference.
    slope: u64,
    /// How long the next piece is.
    next_ps: u64,
}

/// Readings of both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: u64,
    ps: u64,
    /// Ticks between the two counter readings around the clock's reading: the uncertainty of the
    /// moment.
    width_ticks: u64,
}

impl<C: Counter> Steered<C> {
    /// Calibrates for about a millisecond, spinning, and starts. If the counter's rate cannot be
    /// determined, the clock is the monotonic clock.
    pub(crate) fn calibrated(counter: C) -> Self {
        let steering = Steering::calibrate(&counter);
        let piece = match &steering {
            Some(s) => Piece::new(s.last.ticks, s.last.ps, s.slope, s.next_ps),
            None => Piece::monotonic(0),
        };
        Self::begin(counter, piece, steering.unwrap_or_default())
    }

    /// The monotonic clock.
    pub(crate) fn monotonic(counter: C) -> Self {
        Self::begin(counter, Piece::monotonic(0), Steering::default())
    }

    fn begin(counter: C, piece: Piece, steering: Steering) -> Self {
        let ring: [Place; PIECES] = Default::default();
        ring[0].write(&piece);
        Self { counter, pieces: AtomicU64::new(0), ring, steering: Mutex::new(steering) }
    }

    /// Picoseconds since about its creation; never less than any earlier reading on any core.
    #[inline]
    pub(crate) fn now_ps(&self) -> u64 {
        loop {
            let (number, piece) = self.piece();
            if piece.slope == 0 {
                return self.counter.monotonic_ps().saturating_add(piece.begin_ps);
            }
            let passed = self.counter.ticks().wrapping_sub(piece.begin_ticks);
            if passed < piece.len_ticks {
                return piece.at(passed);
            }
            if let Some(ps) = self.begin_next_piece(number, &piece, passed) {
                return ps;
            }
        }
    }

    /// The source of ticks.
    pub(crate) fn counter(&self) -> &C {
        &self.counter
    }

    /// True if it reads the counter instead of the monotonic clock.
    pub(crate) fn counts_ticks(&self) -> bool {
        self.piece().1.slope != 0
    }

    /// The last piece, and its number.
    #[inline]
    fn piece(&self) -> (u64, Piece) {
        loop {
            let number = self.pieces.load(Ordering::Acquire);
            let piece = self.ring[place(number)].read();
            fence(Ordering::Acquire);
            // The place is reused after [`PIECES`] - 1 further pieces, because a piece is written
            // before it is published.
            let newer = self.pieces.load(Ordering::Relaxed);
            if newer - number < PIECES as u64 - 1 {
                return (number, piece);
            }
        }
    }

    /// Begins the next piece after the end of `piece` was passed. Returns the time if it did not.
    #[cold]
    fn begin_next_piece(&self, number: u64, piece: &Piece, passed: u64) -> Option<u64> {
        // Just before its beginning: this core's counter lags slightly behind another's.
        if passed.wrapping_neg() < SKEW_TICKS {
            return Some(piece.begin_ps);
        }
        let mut steering = match self.steering.try_lock() {
            Ok(steering) => steering,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread begins the next piece. Until it is done, which may be long if it is
            // preempted, time stops at the end of the piece; no thread reads more.
            Err(TryLockError::WouldBlock) => return Some(piece.end_ps()),
        };
        if self.pieces.load(Ordering::Relaxed) == number {
            self.publish(number + 1, &steering.next(piece, &Reading::of(&self.counter)));
        }
        drop::<MutexGuard<'_, _>>(steering);
        None
    }

    fn publish(&self, number: u64, piece: &Piece) {
        self.ring[place(number)].write(piece);
        self.pieces.store(number, Ordering::Release);
    }
}

impl Piece {
    fn new(begin_ticks: u64, begin_ps: u64, slope: u64, len_ps: u64) -> Self {
        let len_ticks = (u128::from(len_ps) << SLOPE_BITS) / u128::from(slope.max(1));
        let len_ticks = u64::try_from(len_ticks).unwrap_or(u64::MAX);
        Self { begin_ticks, begin_ps, slope: slope.max(1), len_ticks }
    }

    fn monotonic(ahead_ps: u64) -> Self {
        Self { begin_ticks: 0, begin_ps: ahead_ps, slope: 0, len_ticks: 0 }
    }

    #[inline]
    fn at(&self, passed: u64) -> u64 {
        self.begin_ps.saturating_add(ps_for(passed, self.slope))
    }

    fn end_ps(&self) -> u64 {
        self.at(self.len_ticks)
    }
}

impl Place {
    fn write(&self, p: &Piece) {
        let words = [p.begin_ticks, p.begin_ps, p.slope, p.len_ticks];
        for (place, word) in self.0.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    #[inline]
    fn read(&self) -> Piece {
        let [begin_ticks, begin_ps, slope, len_ticks] =
            std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed));
        Piece { begin_ticks, begin_ps, slope, len_ticks }
    }
}

impl Default for Steering {
    /// The state of a clock that is not slewed.
    fn default() -> Self {
        let last = Reading { ticks: 0, ps: 0, width_ticks: 0 };
        Self { last, slope: 0, next_ps: FIRST_PIECE_PS }
    }
}

impl Steering {
    /// Determines the tick length to within [`CALIBRATION`]; longer attempts follow a failed one.
    fn calibrate(counter: &impl Counter) -> Option<Self> {
        let first = Reading::of(counter);
        for attempt in 0..ATTEMPTS {
            let until = first.ps.saturating_add(CALIBRATE_PS << attempt);
            while counter.monotonic_ps() < until {
                std::hint::spin_loop();
            }
            let last = Reading::of(counter);
            let ticks = last.ticks.wrapping_sub(first.ticks);
            let width_ticks = first.width_ticks.saturating_add(last.width_ticks);
            if width_ticks.saturating_mul(CALIBRATION) < ticks {
                let slope = slope(&first, &last)?;
                return Some(Self { last, slope, next_ps: FIRST_PIECE_PS });
            }
        }
        None
    }

    /// The piece after `piece`, begun at `now`.
    fn next(&mut self, piece: &Piece, now: &Reading) -> Piece {
        // No thread has read more than the end of the piece. Beyond it the clock ran at the
        // uncorrected rate, without the slew.
        let end_ticks = piece.begin_ticks.wrapping_add(piece.len_ticks);
        let since_end = now.ticks.wrapping_sub(end_ticks);
        let line_ps = piece.end_ps().saturating_add(ps_for(since_end, self.slope));
        let behind = i128::from(now.ps) - i128::from(line_ps);
        let elapsed_ps = now.ps.saturating_sub(self.last.ps);
        let width_ps = ps_for(now.width_ticks, self.slope);
        let bound = DIFFERENCE_MAX_PS.saturating_add(elapsed_ps / 1000).saturating_add(width_ps);
        if behind.unsigned_abs() > u128::from(bound) {
            return Piece::monotonic(piece.end_ps().saturating_sub(now.ps));
        }
        let unsteered = |s: &Self, len_ps| Piece::new(now.ticks, line_ps, s.slope, len_ps);
        if width_ps > WIDTH_MAX_PS {
            // Each comparison was preempted and is invalid. Compare again soon.
            return unsteered(self, FIRST_PIECE_PS);
        }
        if let Some(slope) = slope(&self.last, now) {
            // A leap of either clock is no change of rate, so the slope follows with a low-pass
            // filter.
            self.slope = self.slope - self.slope / SLOPE_WEIGHT + slope / SLOPE_WEIGHT;
        }
        self.last = *now;
        let len_ps = self.next_ps;
        self.next_ps = (len_ps * 2).min(PIECE_PS);
        let steepest = i128::from(self.slope / SLEW);
        let steeper =
            (behind * i128::from(self.slope) / i128::from(len_ps)).clamp(-steepest, steepest);
        match u64::try_from(i128::from(self.slope) + steeper) {
            Ok(slope) => Piece::new(now.ticks, line_ps, slope, len_ps),
            Err(_) => unsteered(self, len_ps),
        }
    }
}

impl Reading {
    /// The most precise of several readings.
    fn of(counter: &impl Counter) -> Self {
        let one = || {
            let before = counter.ticks();
            let ps = counter.monotonic_ps();
            let width_ticks = counter.ticks().wrapping_sub(before);
            Self { ticks: before.wrapping_add(width_ticks / 2), ps, width_ticks }
        };
        let first = one();
        (1..READINGS)
            .map(|_| one())
            .fold(first, |best, r| if r.width_ticks < best.width_ticks { r } else { best })
    }
}

/// Picoseconds per tick, times 2^32, between two readings; `None` if they are too close together,
/// or the slope is out of range.
fn slope(from: &Reading, to: &Reading) -> Option<u64> {
    let ps = to.ps.checked_sub(from.ps).filter(|ps| *ps >= CALIBRATE_PS)?;
    let ticks = to.ticks.wrapping_sub(from.ticks);
    let slope = (u128::from(ps) << SLOPE_BITS).checked_div(u128::from(ticks))?;
    u64::try_from(slope).ok().filter(|slope| *slope > SLEW)
}

#[inline]
fn ps_for(ticks: u64, slope: u64) -> u64 {
    let ps = (u128::from(ticks) * u128::from(slope)) >> SLOPE_BITS;
    u64::try_from(ps).unwrap_or(u64::MAX)
}

fn place(number: u64) -> usize {
    // Less than the number of places, which is small.
    usize::try_from(number % PIECES as u64).unwrap_or(0)
}

const SLOPE_BITS: u32 = 32;
/// Number of places: a reader that is preempted for two pieces or more between its two reads of the
/// number retries.
const PIECES: usize = 4;
const READINGS: usize = 5;
const MS: u64 = 1_000_000_000;
/// Duration of the first comparison, the shortest that determines the tick length.
const CALIBRATE_PS: u64 = MS;
/// Attempts of 1, 2, 4 ... ms.
const ATTEMPTS: u32 = 7;
/// Initial precision of the tick length, one part in so many.
const CALIBRATION: u64 = 2000;
const FIRST_PIECE_PS: u64 = 10 * MS;
/// Interval between comparisons. It also bounds the leap of time if the counter proves wrong,
/// because another thread may have read the end of the piece.
const PIECE_PS: u64 = 100 * MS;
/// Maximum slew, one part in so many of the time: 500 us a second.
const SLEW: u64 = 2000;
/// Weight of a comparison in the tick length, one part in so many.
const SLOPE_WEIGHT: u64 = 4;
/// Maximum difference of the two clocks, in addition to a thousandth of the time since their
/// comparison.
const DIFFERENCE_MAX_PS: u64 = MS / 10;
/// A longer comparison is not used for the tick length.
const WIDTH_MAX_PS: u64 = MS / 100;
/// Upper bound of the difference between two cores' counters: some microseconds.
const SKEW_TICKS: u64 = 1 << 14;

#[cfg(test)]
mod tests;
