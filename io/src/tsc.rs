//! A clock that counts ticks, steered after the monotonic clock.
//!
//! Time is a line made of straight pieces over the counter's ticks. A piece has a fixed end, half
//! a tenth of a second to a tenth after its beginning; whoever reads beyond that compares with the
//! monotonic clock and begins the next piece where the line is, a little steeper or flatter, so
//! that the difference has gone when it ends. So every reader, on any core, reads the same line,
//! whatever it was interrupted by, and the line never falls. A reading within a piece takes no
//! lock and no kernel.
//!
//! # Source
//! The kernel's own clocks are kept this way (multiplier and shift, a generation counter); RDTSC
//! behind a fence, as its vDSO has it, because a processor may read the counter early.

mod counter;

pub(crate) use counter::{Machine, is_trustworthy};

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Where ticks come from, and what they are compared with.
pub(crate) trait Counter {
    /// Ticks, at a rate that does not change; wraps. Not before what the caller did before.
    fn ticks(&self) -> u64;

    /// The monotonic clock, picoseconds.
    fn monotonic_ps(&self) -> u64;
}

/// A counter of ticks as a clock.
#[derive(Debug)]
pub(crate) struct Steered<C> {
    counter: C,
    /// How many pieces there have been; the last one is at this number modulo [`PIECES`].
    pieces: AtomicU64,
    ring: [Place; PIECES],
    steering: Mutex<Steering>,
}

/// A straight piece of the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    begin_ticks: u64,
    begin_ps: u64,
    /// Picoseconds a tick, times 2^32; 0: not the counter but the monotonic clock, plus `begin_ps`.
    slope: u64,
    /// Ticks until it ends.
    len_ticks: u64,
}

/// The same, to be read while another one is written.
#[derive(Debug, Default)]
struct Place([AtomicU64; 4]);

/// What the next piece is made from.
#[derive(Clone, Copy, Debug)]
struct Steering {
    /// The last comparison that counts.
    last: Reading,
    /// Picoseconds a tick, times 2^32, without what corrects a difference.
    slope: u64,
    /// How long the next piece is.
    next_ps: u64,
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: u64,
    ps: u64,
    /// What was between the two readings of the counter around that of the clock, in ticks: they
    /// are of one moment to within this.
    width_ticks: u64,
}

impl<C: Counter> Steered<C> {
    /// Compares for a millisecond or so, spinning, and begins. If the counter cannot be told the
    /// rate of, it is the monotonic clock.
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

    /// Picoseconds since about when it was made; never less than any reading before, on any core.
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
            if let Some(ps) = self.go_on(number, &piece, passed) {
                return ps;
            }
        }
    }

    /// The counter is what it reads, not the monotonic clock.
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
            // The place is written again when as many pieces have begun as there are places, less
            // one, because a piece is written before it counts.
            let newer = self.pieces.load(Ordering::Relaxed);
            if newer - number < PIECES as u64 - 1 {
                return (number, piece);
            }
        }
    }

    /// The end of a piece was passed: begins the next one. `Some` is the time, if it was not begun.
    #[cold]
    fn go_on(&self, number: u64, piece: &Piece, passed: u64) -> Option<u64> {
        // Just before its beginning: the counter of this core is a hair behind another's.
        if passed.wrapping_neg() < SKEW_TICKS {
            return Some(piece.begin_ps);
        }
        let mut steering = match self.steering.try_lock() {
            Ok(steering) => steering,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody is at it. Until that is done, which may be long if the core is taken away,
            // time stands at the end of the piece: nobody else reads more.
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
    /// Of a clock that is not steered.
    fn default() -> Self {
        let last = Reading { ticks: 0, ps: 0, width_ticks: 0 };
        Self { last, slope: 0, next_ps: FIRST_PIECE_PS }
    }
}

impl Steering {
    /// Finds out how long a tick is, to within [`CALIBRATION`]; longer attempts follow a failed
    /// one.
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
        // Nobody has read more than the end; from there on it went as it should, not as it was
        // steered.
        let end_ticks = piece.begin_ticks.wrapping_add(piece.len_ticks);
        let since_end = now.ticks.wrapping_sub(end_ticks);
        let line_ps = piece.end_ps().saturating_add(ps_for(since_end, self.slope));
        let behind = i128::from(now.ps) - i128::from(line_ps);
        let elapsed_ps = now.ps.saturating_sub(self.last.ps);
        let width_ps = ps_for(now.width_ticks, self.slope);
        let bound = DISAGREEMENT_PS.saturating_add(elapsed_ps / 1000).saturating_add(width_ps);
        if behind.unsigned_abs() > u128::from(bound) {
            return Piece::monotonic(piece.end_ps().saturating_sub(now.ps));
        }
        let unsteered = |s: &Self, len_ps| Piece::new(now.ticks, line_ps, s.slope, len_ps);
        if width_ps > WIDTH_MAX_PS {
            // The core was taken away in between, each time: nothing was learnt. Soon again.
            return unsteered(self, FIRST_PIECE_PS);
        }
        if let Some(slope) = slope(&self.last, now) {
            // A leap of either clock is no change of rate: it is believed by and by.
            self.slope = self.slope - self.slope / BELIEF + slope / BELIEF;
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
    /// The closest of some.
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

/// Picoseconds a tick, times 2^32, between two readings; none if too little lies between them, or
/// no such slope is possible.
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
/// A reader that sleeps over two pieces or more between its two looks at the number looks again.
const PIECES: usize = 4;
const READINGS: usize = 5;
const MS: u64 = 1_000_000_000;
/// The first comparison, and the shortest that says how long a tick is.
const CALIBRATE_PS: u64 = MS;
/// Attempts of 1, 2, 4 ... ms.
const ATTEMPTS: u32 = 7;
/// One part in so many is what a tick's length is known to at the beginning.
const CALIBRATION: u64 = 2000;
const FIRST_PIECE_PS: u64 = 10 * MS;
/// How often it is compared. It is also how far time may leap when the counter turns out to be
/// wrong: somebody may have read the end of the piece.
const PIECE_PS: u64 = 100 * MS;
/// A difference goes away by one part in so many of the time, at most: 500 us a second.
const SLEW: u64 = 2000;
/// A comparison changes the length of a tick by one part in so many of what it says.
const BELIEF: u64 = 4;
/// What the two clocks may differ by, beside a thousandth of the time since they were compared.
const DISAGREEMENT_PS: u64 = MS / 10;
/// A comparison that takes longer says nothing of how long a tick is.
const WIDTH_MAX_PS: u64 = MS / 100;
/// Counters of two cores differ by less: some microseconds.
const SKEW_TICKS: u64 = 1 << 14;

#[cfg(test)]
mod tests;
