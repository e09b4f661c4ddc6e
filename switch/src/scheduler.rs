//! The scheduler of a port's queues: strict priority, then weighted shares.

use crate::config::{MAX_QUEUES, PortConfig, Share};
use arrayvec::ArrayVec;

/// The scheduler of a port's queues.
///
/// Queues of the highest priority with frames are served first. Equal priorities are served by
/// deficit round robin (Shreedhar and Varghese, SIGCOMM'95). In its turn a queue may send a quantum
/// in proportion to its weight. It carries over the deficit that its next frame did not fit into,
/// and loses it when it is empty. Counting frames instead of bytes makes it weighted round robin.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    /// Highest priority first.
    levels: ArrayVec<Level, MAX_QUEUES>,
    /// Quantum and remaining deficit of each queue.
    quanta: [u64; MAX_QUEUES],
    deficits: [u64; MAX_QUEUES],
    share: Share,
}

/// Queues of one priority.
#[derive(Clone, Debug)]
struct Level {
    queues: QueueMask,
    /// The queue that has the turn.
    turn: usize,
    /// True if it got its quantum for this turn.
    is_granted: bool,
}

/// Bit i: queue i.
pub(crate) type QueueMask = u8;

impl Scheduler {
    pub(crate) fn new(config: &PortConfig) -> Self {
        let mut quanta = [0; MAX_QUEUES];
        let mut priorities: ArrayVec<u8, MAX_QUEUES> = ArrayVec::new();
        for (quantum, queue) in quanta.iter_mut().zip(&config.queues) {
            *quantum = match config.share {
                Share::Bytes => u64::from(queue.weight) * u64::from(config.quantum_bytes),
                Share::Packets => u64::from(queue.weight),
            };
            if !priorities.contains(&queue.priority) {
                priorities.push(queue.priority);
            }
        }
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        let level = |priority: &u8| {
            let members = config.queues.iter().enumerate().filter(|(_, q)| q.priority == *priority);
            let queues = members.fold(0, |mask, (i, _)| mask | bit(i));
            Level { queues, turn: 0, is_granted: false }
        };
        Self {
            levels: priorities.iter().map(level).collect(),
            quanta,
            deficits: [0; MAX_QUEUES],
            share: config.share,
        }
    }

    /// Changes weights and priorities. Queues keep their deficits, and a level of the same queues
    /// keeps its turn. Otherwise a change in each turn would serve the first queue alone.
    pub(crate) fn set(&mut self, config: &PortConfig) {
        let before = std::mem::replace(self, Self::new(config));
        // A deficit is in bytes or in frames.
        if before.share != self.share {
            return;
        }
        self.deficits = before.deficits;
        for level in &mut self.levels {
            if let Some(old) = before.levels.iter().find(|old| old.queues == level.queues) {
                *level = old.clone();
            }
        }
    }

    /// Resets the deficit of a queue that is empty.
    #[inline]
    pub(crate) fn handle_empty(&mut self, queue: usize) {
        self.deficits[queue] = 0;
    }

    /// The next queue among those of `active`, which is charged for its frame; `None` if `active`
    /// is empty. `head_bytes` gives the bytes of an active queue's next frame.
    #[inline]
    pub(crate) fn next(
        &mut self,
        active: QueueMask,
        mut head_bytes: impl FnMut(usize) -> u64,
    ) -> Option<usize> {
        let level = self.levels.iter_mut().find(|l| l.queues & active != 0)?;
        let mask = level.queues & active;
        // A queue alone in its priority is not limited; it keeps its deficit.
        if mask.is_power_of_two() {
            return Some(index(mask));
        }
        loop {
            let queue = level.turn;
            if mask & bit(queue) != 0 {
                if !level.is_granted {
                    level.is_granted = true;
                    self.deficits[queue] += self.quanta[queue];
                }
                let cost = match self.share {
                    Share::Bytes => head_bytes(queue),
                    Share::Packets => 1,
                };
                if let Some(left) = self.deficits[queue].checked_sub(cost) {
                    self.deficits[queue] = left;
                    return Some(queue);
                }
            }
            // Every turn of an active queue adds at least 256 bytes or one frame, so the loop
            // terminates.
            level.turn = (queue + 1) % MAX_QUEUES;
            level.is_granted = false;
        }
    }
}

/// The mask of one queue.
#[inline]
pub(crate) const fn bit(queue: usize) -> QueueMask {
    1 << queue
}

/// The only queue of a mask.
fn index(mask: QueueMask) -> usize {
    spanwire_base::usize_from(u64::from(mask.trailing_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::QueueConfig;
    use spanwire_base::{Rng, usize_from};

    fn config(queues: &[(u8, u32)], share: Share) -> PortConfig {
        let queue = |(priority, weight): &(u8, u32)| QueueConfig {
            priority: *priority,
            weight: *weight,
            ..QueueConfig::default()
        };
        let queues = queues.iter().map(queue).collect();
        PortConfig { queues, share, ..PortConfig::default() }
    }

    /// Bytes that each queue sends if all always have frames of random sizes.
    fn served(config: &PortConfig, frames: usize) -> Vec<u64> {
        let mut rng = Rng::new(9);
        let mut s = Scheduler::new(config);
        let n = config.queues.len();
        let size =
            |rng: &mut Rng, queue: usize| 64 + rng.below(if queue == 0 { 100 } else { 9_000 });
        let mut heads: Vec<u64> = (0..n).map(|q| size(&mut rng, q)).collect();
        let mut sent = vec![0; n];
        for _ in 0..frames {
            let q = s.next(u8::MAX >> (8 - n), |q| heads[q]).unwrap();
            sent[q] += heads[q];
            heads[q] = size(&mut rng, q);
        }
        sent
    }

    #[test]
    fn handle_empty__resets_the_deficit() {
        let mut s = Scheduler::new(&config(&[(0, 1), (0, 1)], Share::Bytes));
        assert_eq!(s.next(0b11, |_| 100), Some(0));
        assert_eq!(s.deficits[0], 1_948);
        s.handle_empty(0);
        // It fills again during its turn, but the turn has ended.
        assert_eq!(s.next(0b11, |_| 100), Some(1));
    }

    #[test]
    fn set__between_frames_keeps_shares() {
        for share in [Share::Bytes, Share::Packets] {
            let config = config(&[(0, 1), (0, 3)], share);
            let mut s = Scheduler::new(&config);
            let mut sent = [0u32; 2];
            for _ in 0..4_000 {
                s.set(&config);
                sent[s.next(0b11, |_| 1_000).unwrap()] += 1;
            }
            assert!(sent[0].abs_diff(1_000) < 10, "{sent:?} frames of 1 : 3, by {share:?}");
        }
    }

    #[test]
    fn set__new_weights_and_priorities_apply() {
        let of = |queues: &[(u8, u32)]| config(queues, Share::Packets);
        let mut s = Scheduler::new(&of(&[(0, 1), (0, 2)]));
        let served = |s: &mut Scheduler, n: usize| {
            (0..n).map(|_| s.next(0b11, |_| 500).unwrap()).collect::<Vec<usize>>()
        };
        assert_eq!(served(&mut s, 4), [0, 1, 1, 0]);
        s.set(&of(&[(0, 1), (0, 4)]));
        assert_eq!(served(&mut s, 6), [1, 1, 1, 1, 0, 1]);
        s.set(&of(&[(1, 1), (0, 4)]));
        assert_eq!(served(&mut s, 4), [0; 4]);
        s.set(&of(&[(0, 3), (0, 1)]));
        let sent = served(&mut s, 400);
        let first = sent.iter().filter(|queue| **queue == 0).count();
        assert!((298..=302).contains(&first), "{first} of 400 at weights 3 : 1");
    }

    #[test]
    fn next__shares_bytes_by_weight_for_any_frame_sizes() {
        let weights = [1, 2, 5];
        let sent = served(&config(&weights.map(|w| (0, w)), Share::Bytes), 300_000);
        let total: u64 = sent.iter().sum();
        for (bytes, weight) in sent.iter().zip(weights) {
            let (got, want) = (*bytes as f64 / total as f64, f64::from(weight) / 8.0);
            assert!((got - want).abs() < 0.001, "{got}, not {want}");
        }
    }

    #[test]
    fn next__is_never_more_than_a_quantum_and_a_frame_from_fair() {
        // The bound of the paper: between two backlogged queues, the bytes sent per weight differ
        // by less than their quanta and the largest frame.
        let config = config(&[(0, 1), (0, 3)], Share::Bytes);
        let mut rng = Rng::new(2);
        let mut s = Scheduler::new(&config);
        let mut heads = [1_500u64, 9_000];
        let mut sent = [0.0f64; 2];
        for _ in 0..50_000 {
            let q = s.next(0b11, |q| heads[q]).unwrap();
            sent[q] += heads[q] as f64;
            heads[q] = 64 + rng.below(9_100);
            let apart = (sent[0] / 1.0 - sent[1] / 3.0).abs();
            assert!(apart <= 2_048.0 * 2.0 + 9_164.0 * 2.0, "{apart}");
        }
    }

    #[test]
    fn next__by_packets_sends_as_many_in_turn_as_the_weight() {
        let mut s = Scheduler::new(&config(&[(0, 8), (0, 1)], Share::Packets));
        let order: Vec<usize> = (0..27).map(|_| s.next(0b11, |_| 9_000).unwrap()).collect();
        let turn = [[0; 8].as_slice(), &[1]].concat();
        assert_eq!(order, turn.repeat(3));
    }

    #[test]
    fn next__strict_priority_comes_first() {
        let mut s = Scheduler::new(&config(&[(0, 1), (7, 1), (3, 1), (7, 1)], Share::Bytes));
        assert_eq!(s.next(0b0101, |_| 100), Some(2));
        assert_eq!(s.next(0b0001, |_| 100), Some(0));
        for _ in 0..1_000 {
            assert!(matches!(s.next(0b1111, |_| 100), Some(1 | 3)));
        }
        assert_eq!(s.next(0, |_| 100), None);
    }

    #[test]
    fn next__serves_any_set_of_active_queues() {
        let mut s = Scheduler::new(&config(&[(0, 1), (0, 1000), (1, 1), (0, 7)], Share::Bytes));
        let mut rng = Rng::new(3);
        for _ in 0..10_000 {
            let active = u8::try_from(rng.below(16)).unwrap();
            let got = s.next(active, |_| 65_000);
            assert_eq!(got.is_none(), active == 0);
            assert!(got.is_none_or(|q| active & bit(q) != 0));
            assert!(active & 0b100 == 0 || got == Some(usize_from(2)));
        }
    }
}
