//! Simulations: every directed scenario twice, with all checks.
#![forbid(unsafe_code)]
#![expect(non_snake_case, reason = "tests are named function__case")]

mod after_faults;
mod batches;
mod calibrated;
mod cc;
mod directed;
mod late_hosts;
mod loss_sweep;
mod losses;
mod near;
mod outsider;
mod pacc_fluid;
mod papers;
mod sharing;
mod soak;
mod swarm;
mod uno;
mod untuned;
