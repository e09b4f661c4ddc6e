//! The shared packet buffer: admission and accounting.

use crate::config::{CLASSES, PfcConfig, SwitchConfig};
use crate::counters::{Drop, QueueDrop};
use crate::pfc::Signal;
use crate::units::Ratio;

/// The account of the shared buffer. A frame's bytes are charged on admission and released, to the
/// same account, when it leaves.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Bytes that are neither reserve nor headroom.
    shared_bytes: u64,
    shared_used: u64,
    /// Bytes of all frames, in every account.
    used: u64,
    /// By ingress port and class; ports without PFC have no lossless class.
    groups: Vec<[Option<Group>; CLASSES]>,
}

/// Frames of one lossless priority that arrived on one port.
#[derive(Clone, Copy, Debug)]
struct Group {
    alpha: Ratio,
    reserve_bytes: u64,
    headroom_bytes: u64,
    resume_offset_bytes: u64,
    /// In the reserve, then in the shared part.
    used: u64,
    headroom_used: u64,
    is_paused: bool,
}

impl Buffer {
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        let groups = |pfc: &Option<PfcConfig>| match pfc {
            None => [None; CLASSES],
            Some(pfc) => {
                let mut groups = [None; CLASSES];
                for priority in &pfc.priorities {
                    groups[usize::from(*priority)] = Some(Group::new(pfc));
                }
                groups
            }
        };
        Self {
            shared_bytes: config.buffer_bytes - config.set_aside_bytes(),
            shared_used: 0,
            used: 0,
            groups: config.ports.iter().map(|p| groups(&p.pfc)).collect(),
        }
    }

    /// Bytes of all frames.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of the shared part that are free.
    pub(crate) fn shared_free(&self) -> u64 {
        self.shared_bytes - self.shared_used
    }

    /// True if frames of this class from this port are lossless.
    #[inline]
    pub(crate) fn is_lossless(&self, ingress: u8, class: u8) -> bool {
        // Frames of agents have no ingress port.
        let group = self.groups.get(usize::from(ingress));
        group.is_some_and(|classes| classes[usize::from(class)].is_some())
    }

    /// Charges a lossy frame that would join `queue_bytes` in a queue with this dynamic threshold.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        queue_bytes: u64,
        alpha: Option<Ratio>,
        bytes: u64,
    ) -> Result<(), QueueDrop> {
        let free = self.shared_free();
        if bytes > free || alpha.is_some_and(|a| queue_bytes + bytes > a.of(free)) {
            return Err(QueueDrop::Buffer);
        }
        self.shared_used += bytes;
        self.used += bytes;
        Ok(())
    }

    /// Charges a lossless frame to its ingress port. It is lost only if the headroom cannot hold
    /// what arrives after the pause.
    #[inline]
    pub(crate) fn admit_lossless(
        &mut self,
        ingress: u8,
        class: u8,
        bytes: u64,
    ) -> Result<Option<Signal>, Drop> {
        let free = self.shared_free();
        let group = self.groups[usize::from(ingress)][usize::from(class)].as_mut();
        let group = group.expect("the caller has checked that the class is lossless");
        let before = group.shared();
        let shared = group.shared_with(bytes);
        if shared <= group.alpha.of(free) && shared - before <= free {
            group.used += bytes;
            self.shared_used += shared - before;
        } else if group.headroom_used + bytes <= group.headroom_bytes {
            group.headroom_used += bytes;
        } else {
            return Err(Drop::HeadroomFull);
        }
        self.used += bytes;
        let is_over = group.headroom_used > 0
            || group.shared() > 0
                && group.shared() >= group.alpha.of(self.shared_bytes - self.shared_used);
        if is_over && !group.is_paused {
            group.is_paused = true;
            return Ok(Some(Signal::Pause));
        }
        Ok(None)
    }

    /// Releases a frame that was admitted as lossy.
    #[inline]
    pub(crate) fn release(&mut self, bytes: u64) {
        self.shared_used -= bytes;
        self.used -= bytes;
    }

    /// Releases a frame that was admitted as lossless.
    #[inline]
    pub(crate) fn release_lossless(
        &mut self,
        ingress: u8,
        class: u8,
        bytes: u64,
    ) -> Option<Signal> {
        let group = self.groups[usize::from(ingress)][usize::from(class)].as_mut()?;
        let before = group.shared();
        // Release from the headroom first, so that it is free again soonest.
        let from_headroom = bytes.min(group.headroom_used);
        group.headroom_used -= from_headroom;
        group.used -= bytes - from_headroom;
        let after = group.shared();
        self.shared_used -= before - after;
        self.used -= bytes;
        let threshold = group.alpha.of(self.shared_bytes - self.shared_used);
        let is_clear = group.headroom_used == 0
            && (after == 0 || after + group.resume_offset_bytes <= threshold);
        if group.is_paused && is_clear {
            group.is_paused = false;
            return Some(Signal::Resume);
        }
        None
    }
}

impl Group {
    fn new(pfc: &PfcConfig) -> Self {
        Self {
            alpha: pfc.alpha,
            reserve_bytes: pfc.reserve_bytes,
            headroom_bytes: pfc.headroom_bytes,
            resume_offset_bytes: pfc.resume_offset_bytes,
            used: 0,
            headroom_used: 0,
            is_paused: false,
        }
    }

    /// Bytes of the group in the shared part.
    fn shared(&self) -> u64 {
        self.shared_with(0)
    }

    fn shared_with(&self, more: u64) -> u64 {
        (self.used + more).saturating_sub(self.reserve_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortConfig;
    use spanwire_base::{Rate, Rng, usize_from};

    fn config(pfc: PfcConfig) -> SwitchConfig {
        let port = PortConfig { pfc: Some(pfc), ..PortConfig::new(Rate::from_gbps(25)) };
        let ports = vec![port, PortConfig::default()];
        SwitchConfig { buffer_bytes: 1_000_000, ..SwitchConfig::new(ports) }
    }

    fn pfc() -> PfcConfig {
        PfcConfig { headroom_bytes: 50_000, ..PfcConfig::default() }
    }

    #[test]
    fn admit__stops_at_the_dynamic_threshold_and_when_the_buffer_is_full() {
        let mut b = Buffer::new(&config(pfc()));
        let shared = 1_000_000 - 50_000 - 4_096;
        assert_eq!(b.shared_free(), shared);
        // One queue with alpha 1 takes half: q = free - q.
        let mut q = 0;
        while b.admit(q, Ratio::new(1, 1), 1_000).is_ok() {
            q += 1_000;
        }
        assert!(q.abs_diff(shared / 2) <= 1_000, "{q}");
        // A second queue takes half of the rest, and without a threshold all of it.
        let mut second = 0;
        while b.admit(second, Ratio::new(1, 1), 1_000).is_ok() {
            second += 1_000;
        }
        assert!(second.abs_diff((shared - q) / 2) <= 1_000, "{second}");
        while b.admit(0, None, 1_000).is_ok() {}
        assert!(b.shared_free() < 1_000);
        assert_eq!(b.used() + b.shared_free(), shared);
    }

    #[test]
    fn admit_lossless__pauses_at_the_threshold_and_loses_only_past_the_headroom() {
        let mut b = Buffer::new(&config(pfc()));
        let mut held = 0;
        let paused_at = loop {
            held += 1_000;
            if b.admit_lossless(0, 3, 1_000) == Ok(Some(Signal::Pause)) {
                break held;
            }
        };
        // The rule: (used - reserve) = (shared - (used - reserve)) / 8, so used = 4096 + 945904 /
        // 9.
        let want = 4_096 + 945_904 / 9;
        assert!((want..=want + 2_000).contains(&paused_at), "{paused_at}, not {want}");
        let mut after = 0;
        while let Ok(signal) = b.admit_lossless(0, 3, 1_000) {
            assert_eq!(signal, None, "signalled once");
            after += 1_000;
        }
        assert!((48_000..=51_000).contains(&after), "{after}");
        assert_eq!(b.admit_lossless(0, 3, 1_000), Err(Drop::HeadroomFull));
        let mut left = held + after;
        let resumed_at = loop {
            left -= 1_000;
            if b.release_lossless(0, 3, 1_000).is_some() {
                break left;
            }
        };
        assert!((want - 6_000..want - 2_000).contains(&resumed_at), "{resumed_at}");
        while left > 0 {
            assert_eq!(b.release_lossless(0, 3, 1_000), None);
            left -= 1_000;
        }
        assert_eq!((b.used(), b.shared_free()), (0, 945_904));
    }

    #[test]
    fn admit_lossless__pauses_when_others_have_taken_the_buffer() {
        let mut b = Buffer::new(&config(pfc()));
        while b.admit(0, None, 1_000).is_ok() {}
        for _ in 0..4 {
            assert_eq!(b.admit_lossless(0, 3, 1_000), Ok(None), "the reserve is exclusive");
        }
        assert_eq!(b.admit_lossless(0, 3, 1_000), Ok(Some(Signal::Pause)));
        assert_eq!(b.release_lossless(0, 3, 1_000), Some(Signal::Resume));
    }

    #[test]
    fn admit_lossless__takes_no_more_of_the_shared_part_than_there_is() {
        let alpha = Ratio::new(16, 1).unwrap();
        let mut b = Buffer::new(&config(PfcConfig { alpha, reserve_bytes: 0, ..pfc() }));
        while b.admit(0, None, 1_000).is_ok() {}
        assert_eq!(b.shared_free(), 0);
        b.release(1_000);
        // The threshold is 16000; a frame of 1001 is below it and still does not fit.
        assert_eq!(b.admit_lossless(0, 3, 1_001), Ok(Some(Signal::Pause)), "to the headroom");
        assert_eq!(b.shared_free(), 1_000);
    }

    #[test]
    fn accounts__add_up_under_random_traffic() {
        let mut rng = Rng::new(12);
        let alphas = [(1, 8), (1, 1), (16, 1)];
        for (num, den) in alphas {
            let pfc =
                PfcConfig { priorities: vec![2, 3], alpha: Ratio::new(num, den).unwrap(), ..pfc() };
            let mut b = Buffer::new(&config(pfc));
            let mut held: Vec<(u8, u64)> = Vec::new();
            let mut paused = [false; CLASSES];
            for _ in 0..50_000 {
                let class = u8::try_from(rng.below(5)).unwrap();
                let bytes = 60 + rng.below(9_000);
                if rng.below(100) < 55 {
                    let taken = if b.is_lossless(0, class) {
                        let got = b.admit_lossless(0, class, bytes);
                        if got == Ok(Some(Signal::Pause)) {
                            assert!(!std::mem::replace(&mut paused[usize::from(class)], true));
                        }
                        got.is_ok()
                    } else {
                        b.admit(0, None, bytes).is_ok()
                    };
                    if taken {
                        held.push((class, bytes));
                    }
                } else if !held.is_empty() {
                    let at = usize_from(rng.below(spanwire_base::u64_from(held.len())));
                    let (class, bytes) = held.swap_remove(at);
                    if !b.is_lossless(0, class) {
                        b.release(bytes);
                    } else if b.release_lossless(0, class, bytes) == Some(Signal::Resume) {
                        assert!(std::mem::replace(&mut paused[usize::from(class)], false));
                    }
                }
                let sum: u64 = held.iter().map(|(_, bytes)| bytes).sum();
                assert_eq!(b.used(), sum);
                assert!(sum <= 1_000_000 && b.shared_used <= b.shared_bytes);
            }
        }
    }
}
