//! `--shard I/N`: the part of the work that one of several machines does.

use super::report::write_checks;
use crate::exit::Exit;
use crate::report::print_report;
use spanwire_base::usize_from;
use spanwire_host::fabric::Error;

/// One of several machines: its place, from 0, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shard {
    pub(super) place: u64,
    pub(super) of: u64,
}

impl Shard {
    /// Of a single machine: all work.
    pub(super) const WHOLE: Self = Self { place: 0, of: 1 };

    /// True if it has the unit of this number.
    pub(super) fn has(self, unit: u64) -> bool {
        unit % self.of == self.place
    }

    /// How many of `units` it has.
    pub(super) fn count(self, units: u64) -> u64 {
        units.saturating_sub(self.place).div_ceil(self.of)
    }

    /// Its part of `units`, which take about as long: their numbers.
    pub(super) fn numbers(self, units: u64) -> impl Iterator<Item = u64> {
        (self.place..units).step_by(usize_from(self.of))
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
    use spanwire_base::u64_from;

    #[test]
    fn parse__is_a_place_below_a_number() {
        assert_eq!(Shard::parse("3/4"), Ok(Shard { place: 3, of: 4 }));
        for wrong in ["", "4/4", "1", "a/b", "-1/4", "0/0", "0/1000000"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers__each_unit_is_of_one_shard() {
        let of = |place| {
            let shard = Shard { place, of: 3 };
            let numbers: Vec<u64> = shard.numbers(10).collect();
            assert_eq!(shard.count(10), u64_from(numbers.len()));
            assert!(numbers.iter().all(|number| shard.has(*number)));
            numbers
        };
        assert_eq!([of(0), of(1), of(2)], [vec![0, 3, 6, 9], vec![1, 4, 7], vec![2, 5, 8]]);
        assert_eq!(Shard::WHOLE.numbers(3).collect::<Vec<u64>>(), [0, 1, 2]);
        assert_eq!(Shard { place: 2, of: 3 }.numbers(2).count(), 0);
    }
}
