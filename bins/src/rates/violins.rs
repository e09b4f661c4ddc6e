//! `spanwire plot --violin`: distributions over many seeds, several runs side by side.

use serde::Deserialize;
use spanwire_host::fabric::Error;
use spanwire_host::text::printable;
use spanwire_plot::{AxisSpec, Group, Quantity, ViolinFigure};

/// The values of which a violin shows the distribution.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    /// Every completion time
    Fct,
    /// The mean completion time of each seed
    Mean,
    /// The last completion time of each seed
    Last,
    /// The mean completion time of each seed over the ideal
    MeanRatio,
    /// The last completion time of each seed over the ideal
    LastRatio,
}

/// The output of `spanwire sim run NAME --seeds N --json`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(super) struct SeedsRun {
    scenario: String,
    ideal_us: Option<f64>,
    seeds: Vec<Seed>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Seed {
    fct_us: Vec<Option<f64>>,
    mean_us: Option<f64>,
    max_us: Option<f64>,
}

impl SeedsRun {
    /// Parses the output of a run.
    ///
    /// # Errors
    /// The text has another format.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let run: Self = serde_json::from_str(text).map_err(|e| {
            format!("{e}; expected the output of `spanwire sim run NAME --seeds N --json`")
        })?;
        // The name is part of the figure and of errors.
        Ok(Self { scenario: printable(run.scenario), ..run })
    }

    /// Times in seconds, or ratios. Failed flows are left out.
    fn values(&self, of: Of) -> Result<Vec<f64>, Error> {
        let ideal = || self.ideal_us.ok_or_else(|| format!("{} has no ideal", self.scenario));
        let unit_us = match of {
            Of::Fct | Of::Mean | Of::Last => 1e6,
            Of::MeanRatio | Of::LastRatio => ideal()?,
        };
        let of_seed = |seed: &Seed| match of {
            Of::Fct => seed.fct_us.clone(),
            Of::Mean | Of::MeanRatio => vec![seed.mean_us],
            Of::Last | Of::LastRatio => vec![seed.max_us],
        };
        Ok(self.seeds.iter().flat_map(of_seed).flatten().map(|us| us / unit_us).collect())
    }
}

/// The figure: a violin for each run, with its name.
///
/// # Errors
/// Ratios are requested for a scenario without an ideal.
pub(super) fn violins(
    title: &str,
    of: Of,
    log: bool,
    runs: &[(String, SeedsRun)],
) -> Result<String, Error> {
    let (label, quantity) = match of {
        Of::Fct => ("completion time", Quantity::Seconds),
        Of::Mean => ("mean completion time of a seed", Quantity::Seconds),
        Of::Last => ("last completion of a seed", Quantity::Seconds),
        Of::MeanRatio => ("mean completion time over ideal", Quantity::Number),
        Of::LastRatio => ("last completion over ideal", Quantity::Number),
    };
    let axis = if log { AxisSpec::log } else { AxisSpec::linear };
    let group = |(name, run): &(String, SeedsRun)| -> Result<Group, Error> {
        Ok(Group { name: name.clone(), values: run.values(of)? })
    };
    let mut scenarios: Vec<&str> = runs.iter().map(|(_, run)| run.scenario.as_str()).collect();
    scenarios.dedup();
    let seeds = runs.iter().map(|(_, run)| run.seeds.len()).max().unwrap_or(0);
    let figure = ViolinFigure {
        title: title.to_owned(),
        subtitle: format!("{}, {seeds} seeds", scenarios.join(", ")),
        y: axis(label, quantity),
        groups: runs.iter().map(group).collect::<Result<_, _>>()?,
    };
    Ok(figure.to_svg())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"scenario": "uno-fig13a", "ideal_us": 2000.0, "more": 1, "seeds": [
        {"seed": 1, "fct_us": [2000.0, null], "mean_us": 2000.0, "max_us": 2000.0},
        {"seed": 2, "fct_us": [3000.0, 5000.0], "mean_us": 4000.0, "max_us": 5000.0}]}"#;

    #[test]
    fn values__are_in_base_units() {
        let run = SeedsRun::parse(TEXT).unwrap();
        for (of, want) in [
            (Of::Fct, &[2e-3, 3e-3, 5e-3][..]),
            (Of::Mean, &[2e-3, 4e-3]),
            (Of::Last, &[2e-3, 5e-3]),
            (Of::MeanRatio, &[1.0, 2.0]),
            (Of::LastRatio, &[1.0, 2.5]),
        ] {
            assert_eq!(run.values(of).unwrap(), want, "{of:?}");
        }
        let plain = SeedsRun { ideal_us: None, ..run };
        assert!(plain.values(Of::LastRatio).unwrap_err().to_string().contains("no ideal"));
    }

    #[test]
    fn parse__error_names_the_expected_input() {
        let error = SeedsRun::parse(r#"{"scenario": "pair"}"#).unwrap_err().to_string();
        assert!(error.contains("--seeds N --json"), "{error}");
    }

    #[test]
    fn violins__have_names_and_counts() {
        let run = SeedsRun::parse(TEXT).unwrap();
        let runs = [("spray".to_owned(), run.clone()), ("unolb".to_owned(), run)];
        let svg = violins("A border link is dead", Of::Fct, true, &runs).unwrap();
        for part in ["spray", "unolb", "n = 3", "uno-fig13a, 2 seeds", "A border link is dead"] {
            assert!(svg.contains(part), "{part}");
        }
    }
}
