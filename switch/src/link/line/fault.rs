//! Draws of impairments for each frame.

use super::config::{BlockLoss, BurstLoss, Impairments};
use crate::units::Prob;
use spanwire_base::{Dur, Rng};

/// One generator for each kind of impairment, and the state of kinds with memory.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    loss: Rng,
    burst: Rng,
    block: Rng,
    reorder: Rng,
    duplicate: Rng,
    corrupt: Rng,
    jitter: Rng,
    /// The burst model is in its bad state.
    in_burst: bool,
    /// Frames left in the current block.
    block_left: u8,
    /// Bit i: the i-th next frame of the current block is lost.
    block_lost: u64,
}

/// The impairments of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Hits {
    pub(super) loss: bool,
    pub(super) burst: bool,
    pub(super) block: bool,
    pub(super) reorder: bool,
    pub(super) duplicate: bool,
    /// A random number that selects the bit.
    pub(super) corrupt: Option<u64>,
    pub(super) jitter: Dur,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        // The order of the forks is part of a seed's meaning: new kinds are appended.
        let mut rng = Rng::new(seed);
        Self {
            loss: rng.fork(),
            burst: rng.fork(),
            block: rng.fork(),
            reorder: rng.fork(),
            duplicate: rng.fork(),
            corrupt: rng.fork(),
            jitter: rng.fork(),
            in_burst: false,
            block_left: 0,
            block_lost: 0,
        }
    }

    /// Draws for the next frame. Every kind draws for every frame, so that the kinds are
    /// independent.
    pub(super) fn next(&mut self, config: &Impairments) -> Hits {
        let corrupt = hit(&mut self.corrupt, config.corrupt);
        Hits {
            loss: hit(&mut self.loss, config.loss),
            burst: config.burst_loss.as_ref().is_some_and(|b| self.next_burst(b)),
            block: config.block_loss.as_ref().is_some_and(|b| self.next_block(b)),
            reorder: config.reorder.is_some_and(|r| hit(&mut self.reorder, r.probability)),
            duplicate: hit(&mut self.duplicate, config.duplicate),
            corrupt: corrupt.then(|| self.corrupt.next_u64()),
            jitter: match config.jitter {
                Dur::ZERO => Dur::ZERO,
                // Validation bounds it below 2^50 ps, so the increment cannot overflow.
                most => Dur::from_ps(self.jitter.below(most.as_ps() + 1)),
            },
        }
    }

    fn next_burst(&mut self, config: &BurstLoss) -> bool {
        let change = if self.in_burst { config.leave } else { config.enter };
        self.in_burst ^= hit(&mut self.burst, change);
        hit(&mut self.burst, if self.in_burst { config.loss_bad } else { config.loss_good })
    }

    fn next_block(&mut self, config: &BlockLoss) -> bool {
        if self.block_left == 0 {
            self.block_left = config.block_pkts;
            self.block_lost = self.draw_block(config);
        }
        let lost = self.block_lost & 1 != 0;
        self.block_lost >>= 1;
        self.block_left -= 1;
        lost
    }

    /// The lost frames of the next block, bit 0 the first.
    fn draw_block(&mut self, config: &BlockLoss) -> u64 {
        let mut draw = self.block.below(u64::from(Prob::ONE.ppb()));
        let mut count = 0;
        for (losses, prob) in (1..).zip(&config.losses) {
            if draw < u64::from(prob.ppb()) {
                count = losses;
                break;
            }
            draw -= u64::from(prob.ppb());
        }
        // Each place is drawn uniformly from the free ones.
        let mut lost = 0u64;
        while lost.count_ones() < count {
            lost |= 1 << self.block.below(u64::from(config.block_pkts));
        }
        lost
    }
}

/// True with probability `p`. Draws nothing if `p` is 0.
fn hit(rng: &mut Rng, p: Prob) -> bool {
    !p.is_zero() && rng.below(u64::from(Prob::ONE.ppb())) < u64::from(p.ppb())
}

#[cfg(test)]
mod tests {
    use super::super::config::Reorder;
    use super::*;

    fn share(hits: u64, of: u64) -> f64 {
        f64::from(u32::try_from(hits).unwrap()) / f64::from(u32::try_from(of).unwrap())
    }

    #[test]
    fn next__draws_each_kind_independently() {
        let all = Impairments {
            loss: Prob::from_ppm(100_000),
            burst_loss: Some(BurstLoss {
                enter: Prob::from_ppm(50_000),
                leave: Prob::from_ppm(300_000),
                loss_good: Prob::ZERO,
                loss_bad: Prob::from_ppm(700_000),
            }),
            block_loss: Some(BlockLoss { block_pkts: 7, losses: vec![Prob::from_ppm(200_000)] }),
            reorder: Some(Reorder {
                probability: Prob::from_ppm(100_000),
                extra_delay: Dur::from_us(1),
            }),
            duplicate: Prob::from_ppm(100_000),
            corrupt: Prob::from_ppm(100_000),
            jitter: Dur::from_us(1),
            ..Impairments::default()
        };
        let run = |config: &Impairments| {
            let mut faults = Faults::new(5);
            (0..1_000).map(|_| faults.next(config)).collect::<Vec<_>>()
        };
        let base = run(&all);
        type Without = (fn(&mut Impairments), fn(&mut Hits));
        let kinds: [Without; 7] = [
            (|c| c.loss = Prob::ZERO, |h| h.loss = false),
            (|c| c.burst_loss = None, |h| h.burst = false),
            (|c| c.block_loss = None, |h| h.block = false),
            (|c| c.reorder = None, |h| h.reorder = false),
            (|c| c.duplicate = Prob::ZERO, |h| h.duplicate = false),
            (|c| c.corrupt = Prob::ZERO, |h| h.corrupt = None),
            (|c| c.jitter = Dur::ZERO, |h| h.jitter = Dur::ZERO),
        ];
        for (off, clear) in kinds {
            let mut config = all.clone();
            off(&mut config);
            let mut want = base.clone();
            want.iter_mut().for_each(clear);
            assert_ne!(want, base, "each kind hits a frame");
            assert_eq!(run(&config), want);
        }
    }

    #[test]
    fn next_burst__has_the_loss_rate_and_burst_length_of_the_model() {
        let config = BurstLoss {
            enter: Prob::from_ppm(10_000),
            leave: Prob::from_ppm(250_000),
            loss_good: Prob::ZERO,
            loss_bad: Prob::ONE,
        };
        let mut faults = Faults::new(11);
        let n = 1_000_000u64;
        let (mut lost, mut bursts, mut before) = (0, 0, false);
        for _ in 0..n {
            let now = faults.next_burst(&config);
            lost += u64::from(now);
            bursts += u64::from(now && !before);
            before = now;
        }
        // enter / (enter + leave) = 3.846 %; 1 / leave = 4 frames.
        let rate = share(lost, n);
        assert!((rate - 0.01 / 0.26).abs() < 0.001, "{rate}");
        let length = share(lost, bursts);
        assert!((length - 4.0).abs() < 0.1, "{length}");
    }

    /// Uno, table 1: the rates are per block of ten, within three standard deviations.
    #[test]
    fn next_block__has_the_loss_distribution_of_the_table() {
        let setups = [
            (BlockLoss::uno_table_1(), [3.0e-4, 7.5e-5, 1.6e-5]),
            (BlockLoss::uno_table_1_setup_2(), [4.0e-5, 2.3e-5, 4.9e-6]),
            (BlockLoss::uno_table_1().times(100), [3.0e-2, 7.5e-3, 1.6e-3]),
        ];
        for (config, table) in setups {
            let mut faults = Faults::new(3);
            let blocks = 4_000_000u64;
            let mut by_count = [0u64; 4];
            let mut by_place = [0u64; 10];
            for _ in 0..blocks {
                let mut count = 0;
                for place in &mut by_place {
                    let lost = faults.next_block(&config);
                    count += usize::from(lost);
                    *place += u64::from(lost);
                }
                by_count[count] += 1;
            }
            for (got, want) in by_count[1..].iter().zip(table) {
                let sigma = (want * (1.0 - want) / 4.0e6_f64).sqrt();
                let got = share(*got, blocks);
                assert!((got - want).abs() < 3.0 * sigma, "{got:e}, not {want:e}: {by_count:?}");
            }
            let mean = share(by_place.iter().sum(), 10);
            for place in by_place {
                let n = share(place, 1);
                assert!((n - mean).abs() < 5.0 * mean.sqrt(), "{by_place:?}");
            }
        }
    }

    #[test]
    fn next_block__can_lose_a_whole_block() {
        let mut losses = vec![Prob::ZERO; 64];
        losses[63] = Prob::ONE;
        let config = BlockLoss { block_pkts: 64, losses };
        let mut faults = Faults::new(1);
        assert!((0..200).all(|_| faults.next_block(&config)));
    }
}
