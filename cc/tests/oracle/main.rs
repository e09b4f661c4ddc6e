//! Every algorithm beside a second one that was written from the formulas alone.
//!
//! A file for each: straightforward `f64` in nanoseconds and bytes, with timers that are really
//! there and no care for speed. Both are told the same random events, and after each one window,
//! rate and gap must be the same to one part in 10^9 (and the byte, or the bit a second, to which
//! the outside is rounded). Where the literature leaves something open, the file says how it was
//! decided.
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
