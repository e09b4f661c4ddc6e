//! The rows of reproduction pages: claims of papers, with the checks that decide whether they hold
//! in the simulator.
//!
//! | type | is |
//! |---|---|
//! | [`Run`] | a scenario with parameters, from many seeds |
//! | [`Reading`] | a function of the result of one seed, with a name and a unit |
//! | [`Quantity`] | a number for each seed: readings of runs, their ratios and extremes |
//! | [`Check`] | a quantity and its bounds; a bar is its checks, printed |
//! | [`Row`] | a claim, its checks, what of them is ours, and a figure |
//!
//! Texts of quantities and checks are made from them, so a page cannot state a bar that is not
//! checked.
//!
//! ```
//! use spanwire_sim::rows::{Run, pfc_pauses, ratio};
//!
//! let of = |scheme| Run::of("mlcc-fig2", 6).set("scheme", scheme);
//! let check = ratio(&of("mlcc"), &of("dcqcn"), &pfc_pauses()).at_most(0.5);
//! assert_eq!(check.text(), "pause frames, mlcc over dcqcn: at most 0.500");
//! ```

mod check;
mod laecn;
mod mlcc;
mod pacc;
mod quantity;
mod reading;
mod reflex;
mod row;
mod run;
mod statistics;
#[cfg(test)]
mod tests;
mod uno;

pub use check::{Check, CheckReport};
pub use quantity::{Quantity, Results, least, middle, most, over, ratio, reduction, spread, value};
pub use reading::{Reading, SeedResult, pfc_pauses, reading};
pub use row::{Choice, Figure, Paper, Quick, Row, RowReport, Verdict};
pub use run::Run;
pub use statistics::{Ours, number};

/// The papers that have rows.
#[must_use]
pub fn papers() -> Vec<Paper> {
    vec![uno::paper(), pacc::paper(), reflex::paper(), mlcc::paper(), laecn::paper()]
}
