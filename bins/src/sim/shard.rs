//! `--shard I/N`: the part of the work that one of several machines does.

use super::report::write_checks;
use crate::exit::Exit;
use crate::report::print_report;
use spanwire_host::fabric::Error;

/// One of several machines: its place, from 0, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shard {
    pub(super) place: u64,
    pub(super) of: u64,
}

impl Shard {
    /// True if it has the unit of this number, where all take about as long.
    pub(super) fn takes(self, unit: u64) -> bool {
        unit % self.of == self.place
    }

    /// Parses `I/N`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').map(|(place, of)| (place.parse(), of.parse()));
        match numbers {
            Some((Ok(place), Ok(of))) if place < of && of <= SHARDS_MAX => Ok(Self { place, of }),
            _ => Err(format!("not I/N, with I from 0 to N - 1 and N of at most {SHARDS_MAX}")),
        }
    }
}

/// Prints the report of a part of the runs, which has no results.
///
/// # Returns
/// 1 if a checker has failed, or a run was not possible.
pub(super) fn print_part(
    json: bool,
    runs: usize,
    violations: &[String],
    errors: &[String],
) -> Result<Exit, Error> {
    let report = serde_json::json!({
        "runs": runs,
        "checkers_ok": violations.is_empty(),
        "violations": violations,
        "errors": errors,
    });
    print_report(json, &report, |_| {
        let mut out = errors.iter().map(|error| format!("{error}\n")).collect();
        write_checks(&mut out, violations, usize::MAX);
        out
    })?;
    let ok = violations.is_empty() && errors.is_empty();
    Ok(if ok { Exit::Success } else { Exit::Failure })
}

/// More than there are units.
const SHARDS_MAX: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__is_a_place_below_a_number() {
        assert_eq!(Shard::parse("3/4"), Ok(Shard { place: 3, of: 4 }));
        for wrong in ["", "4/4", "1", "a/b", "-1/4", "0/0", "0/1000000"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn takes__each_unit_is_of_one_shard() {
        let all: Vec<Shard> = (0..3).map(|place| Shard { place, of: 3 }).collect();
        for unit in 0..10 {
            assert_eq!(all.iter().filter(|shard| shard.takes(unit)).count(), 1, "{unit}");
        }
    }
}
