//! A queue pair under packets that a forger makes with all it can know, while the application
//! posts, polls, waits and changes its mind.
//!
//! The input is a scenario: [`SETUP_LEN`] bytes that say how the queue pair is set up, then steps
//! of [`STEP_LEN`] bytes each. After every step the world is checked (`sequence/world.rs`), and at
//! the end everything posted must have ended exactly once.

mod application;
mod forge;
mod ledger;
mod memory;
mod output;
mod selective;
mod setup;
mod world;

use world::World;

/// Bytes of the setup in front of the steps.
pub const SETUP_LEN: usize = 6;
/// Bytes of a step: what it does and ten operands.
pub const STEP_LEN: usize = 11;
/// Steps taken; what is behind them is not looked at.
pub const STEPS_MAX: usize = 200;

/// Plays a scenario.
///
/// # Panics
/// When the engine breaks a promise.
pub fn run(data: &[u8]) {
    let mut setup = [0; SETUP_LEN];
    let (head, steps) = data.split_at(data.len().min(SETUP_LEN));
    setup[..head.len()].copy_from_slice(head);
    let mut world = World::new(setup);
    for step in steps.chunks(STEP_LEN).take(STEPS_MAX) {
        let mut operands = [0; STEP_LEN];
        operands[..step.len()].copy_from_slice(step);
        world.step(&operands);
    }
    world.end();
}

/// Scenarios to start from, by name: each request and each response once, in its place.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let (post_recv, transmit, poll) = (12, 13, 14);
    let recv = [post_recv, 0, 250, 0, 0, 0, 0, 0, 0, 0, 0];
    let send_out = [transmit, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds = Vec::new();
    for (i, opcode) in (0..).zip(spanwire_wire::Opcode::ALL) {
        for setup in [[0; SETUP_LEN], [1, 0x22, 1, 0xff, 0, 0]] {
            let mut data = setup.to_vec();
            data.extend(recv);
            // A request of our own of each kind, so that responses have something to answer.
            for op in 0..8 {
                data.extend([11, op, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            data.extend(send_out);
            for (base, second) in [(0, 0), (1, 0), (1, 1)] {
                data.extend([0, i, base, 0, 0, 1, 8, 0, 0, 0, second]);
                data.extend(send_out);
            }
            data.extend([poll, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            seeds.push((format!("{}-{}", opcode.props().name, setup[0]), data));
        }
    }
    seeds.extend(src_seeds());
    seeds
}

/// The same for SRC: each kind of data in and out of its place, and each kind of acknowledgement.
fn src_seeds() -> Vec<(String, Vec<u8>)> {
    let (post_recv, transmit, poll, pause) = (12, 13, 14, 9);
    let send_out = [transmit, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut seeds = Vec::new();
    for (kind, flags) in (0..8).flat_map(|kind| [(kind, 0x80), (kind, 0x81), (kind, 0xc0)]) {
        let mut data = vec![flags, 0x22, 1, 0xff, 0, 14];
        for at in 0..4 {
            data.extend([post_recv, at * 50, 50, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        for op in 0..8 {
            data.extend([11, op, 40, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        data.extend(send_out);
        // The second packet before the first, then the first, then again.
        for (distance, value) in [(1, 1), (0, 0), (0xff, 0)] {
            data.extend([0, kind, 0, distance, 0, 0, 8, 0, 0, 0, value]);
            data.extend(send_out);
        }
        // Of all that was sent: some by the bitmap, later all of it.
        data.extend([0, 0xa0, 1, 0, 0, 1, 0xf0, 1, 0, 0, 0]);
        data.extend([pause, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        data.extend(send_out);
        data.extend([0, 0xa0, 2, 0, 0, 0, 0, 1, 0, 0, kind]);
        data.extend([poll, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        seeds.push((format!("src-{kind}-{flags}"), data));
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn run__on_random_bytes() {
        testing::random(6_000, 600, run);
    }

    #[test]
    fn run__on_the_seeds() {
        for (name, data) in seeds() {
            println!("{name}");
            run(&data);
        }
    }

    #[test]
    fn run__on_what_once_found_something() {
        testing::regressions("sequence", 0, run);
    }
}
