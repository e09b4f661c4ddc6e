//! Every algorithm compared with a second one, written from the formulas alone.
//!
//! A file for each: straightforward `f64` in nanoseconds and bytes, with real timers and no
//! optimisation. Both receive the same random events. After each event window, rate and gap must
//! be equal to one part in 10^9 (and to the byte, or the bit a second, to which the interface is
//! rounded). Where the literature leaves something open, the file states the decision.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod bbr;
mod dcqcn;
mod dcqcn_rnic;
mod dctcp;
mod fixed;
mod gemini;
mod hpcc;
mod mprdma;
mod powertcp;
mod rules;
mod swift;
mod timely;
mod trace;
mod unocc;
