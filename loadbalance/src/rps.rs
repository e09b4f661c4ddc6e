//! RPS (random packet spraying): each packet takes another path, without feedback.
//!
//! The path is random for each packet, or round-robin: a cycle visits all indices, each XORed with
//! a random mask of the cycle. Round-robin balances paths to one packet in a cycle, and the masks
//! desynchronise flows.
//!
//! # Source
//! Dixit et al., "On the Impact of Packet Spraying in Data Center Networks", INFOCOM 2013;
//! round-robin: the "oblivious" multipath of Ultra Ethernet as in htsim.

use crate::params::params;
use crate::pool::below;
use crate::{Entropy, Flow, LoadBalancer, Outgoing, Pick};
use spanwire_base::Rng;

params! {
    /// Parameters of packet spraying.
    struct Params of u64;
    /// Number of paths of the flow, as a power of two.
    ///
    /// With 256 paths each of eight links gets 32, give or take five.
    entropy_bits = 8 in 0..=14;
    /// Random for each packet, or all paths in turn.
    order = 0 of "random" | "turn";
}

impl Params {
    /// Round-robin.
    #[must_use]
    pub fn round_robin() -> Self {
        Self { order: TURN, ..Self::default() }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Rps {
    rng: Rng,
    /// The upper bits, constant for the flow.
    upper: u16,
    /// The number of paths, a power of two.
    count: u16,
    in_turn: bool,
    /// The position in the cycle.
    next: u16,
    mask: u16,
}

impl Rps {
    /// The policy of one flow.
    #[must_use]
    pub fn new(params: &Params, flow: &Flow) -> Self {
        let mut rng = Rng::new(flow.seed);
        let count = 1u16 << params.entropy_bits.min(14);
        let upper = below(&mut rng, Entropy::COUNT) & !(count - 1);
        Self { rng, upper, count, in_turn: params.order == TURN, next: 0, mask: 0 }
    }

    fn draw(&mut self) -> Entropy {
        let index = if self.in_turn { self.turn() } else { below(&mut self.rng, self.count) };
        Entropy::new(self.upper | index)
    }

    fn turn(&mut self) -> u16 {
        if self.next == 0 {
            self.mask = below(&mut self.rng, self.count);
        }
        let index = self.next ^ self.mask;
        self.next = (self.next + 1) & (self.count - 1);
        index
    }
}

impl LoadBalancer for Rps {
    fn pick(&mut self, out: &Outgoing) -> Pick {
        let mut path = self.draw();
        // A retransmission avoids the path of the loss, if there is another.
        for _ in 0..REDRAWS {
            if out.lost_on != Some(path) || self.count == 1 {
                break;
            }
            path = self.draw();
        }
        path.into()
    }

    fn is_single_path(&self) -> bool {
        self.count == 1
    }
}

const TURN: u64 = 1;
/// Draws per retransmission: with two paths, one in 2^16 ends on the path of the loss.
const REDRAWS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, data, flow, retransmission};

    fn counts(params: &Params, seed: u64, packets: u64) -> Vec<u64> {
        let mut rps = Rps::new(params, &flow(seed));
        let mut counts = vec![0; usize::from(Entropy::COUNT)];
        for psn in 0..packets {
            counts[usize::from(rps.pick(&data(at(psn), psn)).entropy.bits())] += 1;
        }
        counts
    }

    #[test]
    fn pick__is_uniform() {
        let packets = 256 * 200;
        let counts = counts(&Params::default(), 3, packets);
        let used: Vec<u64> = counts.into_iter().filter(|n| *n > 0).collect();
        assert_eq!(used.len(), 256);
        // Sum of (n - e)^2 / e with e = 200. For 255 degrees of freedom: mean 255, deviation 22.6;
        // four deviations to each side.
        let sum: u64 = used.iter().map(|n| n.abs_diff(200).pow(2)).sum();
        let chi_square = sum / 200;
        assert!((165..345).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn pick__in_turn_balances_all_paths() {
        let counts = counts(&Params::round_robin(), 3, 256 * 50);
        assert!(counts.iter().all(|n| *n == 0 || *n == 50));
        assert_eq!(counts.iter().filter(|n| **n > 0).count(), 256);
    }

    #[test]
    fn pick__in_turn_two_flows_are_desynchronised() {
        let mut a = Rps::new(&Params { entropy_bits: 4, ..Params::round_robin() }, &flow(1));
        let mut b = Rps::new(&Params { entropy_bits: 4, ..Params::round_robin() }, &flow(2));
        let same = (0..1600).filter(|psn| {
            let out = data(at(*psn), *psn);
            a.pick(&out).entropy.bits() & 15 == b.pick(&out).entropy.bits() & 15
        });
        // One in sixteen by chance, whole cycles at a time: 100 cycles, deviation 2.4 of them.
        assert!(same.count() < 16 * 16);
    }

    #[test]
    fn pick__a_retransmission_takes_another_path() {
        for params in [Params::default(), Params::round_robin()] {
            let mut rps = Rps::new(&Params { entropy_bits: 1, ..params }, &flow(1));
            for psn in 0..200 {
                let path = rps.pick(&data(at(psn), psn)).entropy;
                assert_ne!(rps.pick(&retransmission(at(psn), psn, path)).entropy, path);
            }
            let mut one = Rps::new(&Params { entropy_bits: 0, ..params }, &flow(1));
            let path = one.pick(&data(at(0), 0)).entropy;
            assert_eq!(
                one.pick(&retransmission(at(0), 0, path)).entropy,
                path,
                "there is no other"
            );
        }
    }
}
