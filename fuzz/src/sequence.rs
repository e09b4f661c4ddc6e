//! A queue pair under packets of a forger with full knowledge of its state, while the application
//! posts, polls, waits and changes its configuration.
//!
//! The input is a scenario: [`SETUP_LEN`] bytes configure the queue pair, then steps
//! of [`STEP_LEN`] bytes follow. The world is checked after every step (`sequence/world.rs`). At
//! the end, every posted request must have completed exactly once.

mod application;
mod forge;
mod incoming;
mod layout;
mod ledger;
mod memory;
mod outgoing;
mod output;
mod seeds;
mod selective;
mod setup;
mod streams;
mod world;

pub use layout::{SETUP_LEN, STEP_LEN};
pub use seeds::seeds;
use spanwire_transport::Counters;
use world::World;

/// The most steps; further bytes are ignored.
pub const STEPS_MAX: usize = 200;

/// Plays a scenario.
///
/// # Panics
/// If the engine violates its contract.
pub fn run(data: &[u8]) {
    play(data);
}

/// Plays a scenario. Returns the engine's counters.
fn play(data: &[u8]) -> Counters {
    let mut setup = [0; SETUP_LEN];
    let (head, steps) = data.split_at(data.len().min(SETUP_LEN));
    setup[..head.len()].copy_from_slice(head);
    let mut world = World::new(setup);
    for step in steps.chunks(STEP_LEN).take(STEPS_MAX) {
        let mut operands = [0; STEP_LEN];
        operands[..step.len()].copy_from_slice(step);
        world.step(&operands);
    }
    world.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use spanwire_transport::DropReason;

    #[test]
    fn run__on_random_bytes() {
        testing::random(6_000, 600, run);
    }

    #[test]
    fn run__on_the_seeds() {
        let mut reached = [0; 9];
        for (name, data) in seeds() {
            println!("{name}");
            let c = play(&data);
            let counts = [
                c.ec_parity_packets,
                c.ec_settled_packets,
                c.ec_short_packets,
                c.ec_blocks_rebuilt,
                c.ec_rebuilt_packets,
                c.ec_blocks_plain,
                c.ec_block_nacks,
                c.rp_pseudo_acks,
                c.dropped(DropReason::NearStale),
            ];
            reached = std::array::from_fn(|i| reached[i] + counts[i]);
        }
        assert!(reached.iter().all(|n| *n >= 10), "{reached:?}");
    }

    #[test]
    fn run__on_regressions() {
        testing::regressions("sequence", 0, run);
    }
}
