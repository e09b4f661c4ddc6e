//! `spanwire sim train`: networks that choose marking thresholds learn in simulations.

use super::args::TrainArgs;
use crate::exit::{Exit, usage};
use spanwire_host::fabric::Error;

/// Trains the networks of a scheme.
///
/// # Errors
/// An unknown scheme, a seed that is not of trainings, a program without the feature `train`, or a
/// file that cannot be written.
pub(super) fn run(args: &TrainArgs) -> Result<Exit, Error> {
    if args.scheme != "laecn" {
        let what = format!("there is no scheme {:?} to train; choose laecn", args.scheme);
        return Err(usage(what));
    }
    learn(args)
}

#[cfg(not(feature = "train"))]
fn learn(_: &TrainArgs) -> Result<Exit, Error> {
    Err(usage(
        "this program was built without training; build it with: cargo build --release \
         -p spanwire-bins --features train",
    ))
}

#[cfg(feature = "train")]
use learning::learn;

#[cfg(feature = "train")]
mod learning;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run__errors_are_of_usage() {
        let args = |scheme: &str, seed| TrainArgs {
            scheme: scheme.to_owned(),
            seed,
            iterations: std::num::NonZero::<u32>::MIN,
            out: "unused".into(),
            set: Vec::new(),
            threads: None,
            json: true,
        };
        let error = run(&args("acc", 1_000_000)).expect_err("no such scheme");
        assert_eq!(
            (Exit::of(&error), error.to_string().contains("choose laecn")),
            (Exit::Usage, true)
        );
        let error = run(&args("laecn", 999_999)).expect_err("a seed of evaluations");
        assert_eq!(Exit::of(&error), Exit::Usage);
        let word = if cfg!(feature = "train") { "1000000" } else { "--features train" };
        assert!(error.to_string().contains(word), "{error}");
    }
}
