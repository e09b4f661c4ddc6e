//! Training: gradients, Adam, a replay ring, and deep Q-learning.
//!
//! All of it is in f32 with `+`, `-`, `*`, `/` and square roots, which IEEE 754 rounds alike
//! everywhere, in one order: equal seeds and samples give the same weights on every machine.

mod adam;
mod backprop;
mod dqn;
mod initial;
mod replay;

pub use adam::{Adam, AdamConfig};
pub use backprop::Backprop;
pub use dqn::{Dqn, DqnConfig, Outcome, Transition, several_steps};
pub use initial::initial;
pub use replay::Replay;
