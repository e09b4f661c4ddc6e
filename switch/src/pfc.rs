//! PFC at one port: pauses obeyed and pauses requested.

use crate::config::{CLASSES, PfcConfig};
use serde::Serialize;
use spanwire_base::{Dur, Rate, Time};
use spanwire_wire::{MacAddr, PfcFrame};

/// Counters of a port's PFC frames and pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PfcCounters {
    /// Frames sent that pause at least one priority.
    pub pause_tx: u64,
    /// Frames sent that only resume priorities.
    pub resume_tx: u64,
    /// Frames received that pause at least one priority.
    pub pause_rx: u64,
    /// Frames received that only resume priorities.
    pub resume_rx: u64,
    /// Times that each priority was paused at this port.
    pub pauses: [u64; CLASSES],
    /// Time for which each priority was paused at this port, in ps, up to the port's last event.
    pub paused_ps: [u64; CLASSES],
}

/// The PFC signal to the other end of the ingress link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    Pause,
    Resume,
}

/// Priorities that the other end has paused at this port.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    /// Duration of a quantum: 512 bit times.
    quantum: Dur,
    /// Bit i: priority i is paused.
    mask: u8,
    until: [Time; CLASSES],
    /// Time up to which paused time is counted.
    counted: [Time; CLASSES],
}

/// Priorities that this port pauses at the other end, and when to renew the pause.
#[derive(Clone, Debug)]
pub(crate) struct Pausing {
    /// Half of the duration of a pause.
    refresh: Dur,
    quanta: u16,
    /// Bit i: priority i is to be paused.
    mask: u8,
    /// Bit i: a change of priority i has not been sent.
    unsent: u8,
    refresh_at: Option<Time>,
}

impl Pauses {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            quantum: rate.time_for(QUANTUM_BYTES),
            mask: 0,
            until: [Time::ZERO; CLASSES],
            counted: [Time::ZERO; CLASSES],
        }
    }

    /// Sets the link's rate. Pauses in effect keep their end.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.quantum = rate.time_for(QUANTUM_BYTES);
    }

    /// Applies a pause frame to the priorities of `obeyed`.
    pub(crate) fn handle_frame(
        &mut self,
        now: Time,
        frame: &PfcFrame,
        obeyed: u8,
        counters: &mut PfcCounters,
    ) {
        self.expire(now, counters);
        let mut pauses = false;
        for (class, quanta) in frame.quanta.iter().enumerate() {
            let bit = 1 << class;
            if frame.enabled & bit == 0 {
                continue;
            }
            pauses |= *quanta > 0;
            if obeyed & bit == 0 {
                continue;
            }
            if *quanta == 0 {
                self.mask &= !bit;
            } else {
                if self.mask & bit == 0 {
                    counters.pauses[class] += 1;
                    self.counted[class] = now;
                }
                self.mask |= bit;
                self.until[class] = now + self.quantum * u64::from(*quanta);
            }
        }
        *(if pauses { &mut counters.pause_rx } else { &mut counters.resume_rx }) += 1;
    }

    /// Ends expired pauses, counts paused time, and returns the paused priorities.
    #[inline]
    pub(crate) fn expire(&mut self, now: Time, counters: &mut PfcCounters) -> u8 {
        if self.mask != 0 {
            for class in 0..CLASSES {
                if self.mask & (1 << class) != 0 {
                    let to = now.min(self.until[class]);
                    counters.paused_ps[class] += to.since(self.counted[class]).as_ps();
                    self.counted[class] = to.max(self.counted[class]);
                    if self.until[class] <= now {
                        self.mask &= !(1 << class);
                    }
                }
            }
        }
        self.mask
    }

    /// The paused priorities, as of the last call of [`Pauses::expire`].
    pub(crate) fn mask(&self) -> u8 {
        self.mask
    }

    /// When the first pause expires.
    pub(crate) fn next_end(&self) -> Option<Time> {
        (0..CLASSES).filter(|class| self.mask & (1 << class) != 0).map(|c| self.until[c]).min()
    }
}

impl Pausing {
    pub(crate) fn new(config: &PfcConfig, rate: Rate) -> Self {
        let mut this = Self {
            refresh: Dur::ZERO,
            quanta: config.quanta,
            mask: 0,
            unsent: 0,
            refresh_at: None,
        };
        this.set_rate(rate);
        this
    }

    /// Sets the link's rate.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.refresh = rate.time_for(QUANTUM_BYTES) * u64::from(self.quanta) / 2;
    }

    /// Records that a priority exceeds its threshold, or no longer does.
    pub(crate) fn handle_signal(&mut self, class: u8, signal: Signal) {
        let bit = 1 << class;
        self.unsent |= bit;
        match signal {
            Signal::Pause => self.mask |= bit,
            Signal::Resume => self.mask &= !bit,
        }
    }

    /// True if a frame must be sent now; pauses that would expire are renewed.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh_at = None;
            self.unsent |= self.mask;
        }
        self.unsent != 0
    }

    /// Writes the pending pause frame, if any; `out` has room.
    pub(crate) fn poll_frame(
        &mut self,
        now: Time,
        src: MacAddr,
        out: &mut [u8; PfcFrame::LEN],
        counters: &mut PfcCounters,
    ) -> bool {
        if !self.is_due(now) {
            return false;
        }
        // Pauses in effect are renewed along with changes.
        let enabled = self.unsent | self.mask;
        let mut quanta = [0; CLASSES];
        for (class, quanta) in quanta.iter_mut().enumerate() {
            if self.mask & (1 << class) != 0 {
                *quanta = self.quanta;
            }
        }
        self.unsent = 0;
        self.refresh_at = (self.mask != 0).then(|| now + self.refresh);
        *(if self.mask != 0 { &mut counters.pause_tx } else { &mut counters.resume_tx }) += 1;
        PfcFrame { enabled, quanta }.emit(src, out);
        true
    }

    /// The priorities to pause.
    pub(crate) fn mask(&self) -> u8 {
        self.mask
    }

    /// True if no change is pending and no pause needs renewal.
    pub(crate) fn is_idle(&self) -> bool {
        self.mask == 0 && self.unsent == 0
    }

    /// When pauses must be renewed.
    pub(crate) fn refresh_at(&self) -> Option<Time> {
        self.refresh_at
    }
}

/// 512 bits.
const QUANTUM_BYTES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// A quantum is 5.12 ns at 100 Gbit/s.
    fn pauses() -> Pauses {
        Pauses::new(Rate::from_gbps(100))
    }

    fn frame(enabled: u8, quanta: u16) -> PfcFrame {
        PfcFrame { enabled, quanta: [quanta; 8] }
    }

    #[test]
    fn handle_frame__pauses_for_the_given_quanta() {
        let (mut p, mut c) = (pauses(), PfcCounters::default());
        p.handle_frame(Time::ZERO, &frame(0b1000, 100), 0xff, &mut c);
        assert_eq!(p.next_end(), Some(Time::from_ns(512)));
        assert_eq!(p.expire(Time::from_ns(511), &mut c), 0b1000);
        assert_eq!(p.expire(Time::from_ns(512), &mut c), 0);
        assert_eq!(p.expire(Time::from_ns(9_000), &mut c), 0);
        assert_eq!((c.paused_ps[3], c.pauses[3], c.pause_rx), (512_000, 1, 1));
    }

    #[test]
    fn handle_frame__renews_and_ends() {
        let (mut p, mut c) = (pauses(), PfcCounters::default());
        p.handle_frame(Time::ZERO, &frame(0b11, 100), 0xff, &mut c);
        p.handle_frame(Time::from_ns(500), &frame(0b01, 100), 0xff, &mut c);
        assert_eq!(p.expire(Time::from_ns(600), &mut c), 0b01);
        p.handle_frame(Time::from_ns(700), &frame(0b01, 0), 0xff, &mut c);
        assert_eq!((p.mask(), p.next_end()), (0, None));
        assert_eq!(c.paused_ps[..2], [700_000, 512_000]);
        assert_eq!((c.pauses[0], c.pause_rx, c.resume_rx), (1, 2, 1));
    }

    #[test]
    fn handle_frame__affects_only_obeyed_priorities() {
        let (mut p, mut c) = (pauses(), PfcCounters::default());
        p.handle_frame(Time::ZERO, &frame(0xff, 9), 0b100, &mut c);
        assert_eq!(p.mask(), 0b100);
    }

    #[test]
    fn poll_frame__pauses_renews_and_resumes() {
        let config = PfcConfig { quanta: 1_000, ..PfcConfig::default() };
        let mut p = Pausing::new(&config, Rate::from_gbps(100));
        let (mut c, mut out) = (PfcCounters::default(), [0; PfcFrame::LEN]);
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let mut poll = |p: &mut Pausing, ns| {
            p.poll_frame(Time::from_ns(ns), mac, &mut out, &mut c)
                .then(|| PfcFrame::parse(&out).unwrap())
        };
        assert_eq!(poll(&mut p, 0), None);
        p.handle_signal(3, Signal::Pause);
        let frame = poll(&mut p, 10).unwrap();
        assert_eq!((frame.enabled, frame.quanta[3]), (0b1000, 1_000));
        // 1000 quanta last 5120 ns; renewed after half.
        assert_eq!(p.refresh_at(), Some(Time::from_ns(2_570)));
        assert_eq!(poll(&mut p, 2_569), None);
        assert!(poll(&mut p, 2_570).is_some());
        p.handle_signal(4, Signal::Pause);
        assert_eq!(poll(&mut p, 2_600).unwrap().enabled, 0b1_1000);
        p.handle_signal(3, Signal::Resume);
        let frame = poll(&mut p, 2_700).unwrap();
        assert_eq!((frame.enabled, frame.quanta[3], frame.quanta[4]), (0b1_1000, 0, 1_000));
        p.handle_signal(4, Signal::Resume);
        let frame = poll(&mut p, 2_800).unwrap();
        assert_eq!((frame.enabled, frame.quanta[4], p.refresh_at()), (0b1_0000, 0, None));
        assert_eq!((c.pause_tx, c.resume_tx), (4, 1));
    }
}
