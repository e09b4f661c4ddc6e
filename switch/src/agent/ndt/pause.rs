//! Pauses of the controlled queues.

use super::config::PauseRound;
use spanwire_base::{Dur, Time};

/// The pause of the controlled queue of one port, or of those of all ports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    /// Its beginning and its end, while it lasts.
    lasts: Option<(Time, Time)>,
    pub(super) counters: PauseCounters,
}

/// Pauses that have begun and ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PauseCounters {
    pub(super) begun: u64,
    /// Ended because a flow recovered.
    pub(super) recovered: u64,
    /// Ended by time.
    pub(super) timed_out: u64,
    /// The time of those that have ended.
    pub(super) time: Dur,
}

/// The reason for which a pause ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Recovery,
    Timeout,
}

impl Pause {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.lasts.is_some()
    }

    /// Its end, while it lasts.
    #[inline]
    pub(super) fn until(&self) -> Option<Time> {
        self.lasts.map(|(_, until)| until)
    }

    pub(super) fn begin(&mut self, now: Time, most: Dur) {
        self.lasts = Some((now, now + most));
        self.counters.begun += 1;
    }

    /// Ends it; false if there is none.
    pub(super) fn end(&mut self, now: Time, why: End) -> bool {
        let Some((began, _)) = self.lasts.take() else { return false };
        let PauseCounters { recovered, timed_out, time, .. } = &mut self.counters;
        *time = *time + now.since(began);
        *(if why == End::Recovery { recovered } else { timed_out }) += 1;
        true
    }
}

/// The packets of a port that leave before its next pause.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    controlled: u64,
    any: u32,
}

impl Round {
    /// After a pause that held so many packets; `weight` is that of the normal queue.
    pub(super) fn new(kind: PauseRound, held: u64, weight: u32) -> Self {
        match kind {
            PauseRound::Packet => Self { controlled: 1, any: 0 },
            PauseRound::Held if held > 0 => Self { controlled: held, any: weight + 1 },
            PauseRound::Held => Self::default(),
        }
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.controlled == 0 && self.any == 0
    }

    /// A packet leaves.
    #[inline]
    pub(super) fn leave(&mut self, is_controlled: bool) {
        self.any = self.any.saturating_sub(1);
        self.controlled = self.controlled.saturating_sub(is_controlled.into());
    }
}
