//! The runs of rows.

use std::collections::BTreeMap;

/// A scenario with parameters, from the seeds 1 to `seeds`; or a command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// The name of the scenario; empty for a command.
    pub scenario: &'static str,
    /// Parameters that differ from the scenario's own.
    pub set: BTreeMap<&'static str, String>,
    /// From 1; repetitions of a command.
    pub seeds: u64,
    /// A program and its arguments, which prints a JSON object.
    pub command: &'static [&'static str],
    /// How quantities name it; empty for its parameters.
    name: String,
    /// The same, smaller, for a check that is no result.
    quick: Option<(u64, BTreeMap<&'static str, String>)>,
}

impl Run {
    /// A scenario as it is, from so many seeds.
    #[must_use]
    pub fn of(scenario: &'static str, seeds: u64) -> Self {
        Self { scenario, seeds, ..Self::default() }
    }

    /// A command, run once.
    #[must_use]
    pub fn command(command: &'static [&'static str]) -> Self {
        Self { command, seeds: 1, ..Self::default() }
    }

    /// With another value of a parameter.
    #[must_use]
    pub fn set(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.set.insert(key, value.into());
        self
    }

    /// From so many seeds.
    #[must_use]
    pub fn seeds(self, seeds: u64) -> Self {
        Self { seeds, ..self }
    }

    /// With `seeds` and, if its time is not empty, that time in a quick check.
    #[must_use]
    pub fn quick(mut self, seeds: u64, time: &str) -> Self {
        let time = Some(("time", time.to_owned())).filter(|_| !time.is_empty());
        self.quick = Some((seeds, time.into_iter().collect()));
        self
    }

    /// With a name for its parameters.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The run that a quick check has in place of this one.
    #[must_use]
    pub fn smaller(&self) -> Self {
        let (seeds, set) = self.quick.clone().unwrap_or((self.seeds, BTreeMap::new()));
        Self { seeds, set: self.set.clone().into_iter().chain(set).collect(), ..self.clone() }
    }

    /// How quantities name it.
    #[must_use]
    pub fn label(&self) -> String {
        let values: Vec<&str> = self.set.values().map(String::as_str).collect();
        match (self.name.is_empty(), values.is_empty()) {
            (false, _) => self.name.clone(),
            (true, false) => values.join(" "),
            (true, true) => self.scenario.to_owned(),
        }
    }

    /// Seconds that a run of one seed takes on one core, about: work is divided by them.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let load = self.set.get("load").map_or("", String::as_str);
        let of = |(name, of_load, _): &&(&str, &str, f64)| {
            *name == self.scenario && (of_load.is_empty() || *of_load == load)
        };
        SECONDS.iter().find(of).map_or(1.0, |(_, _, seconds)| *seconds)
    }

    /// The command line that runs all seeds, or with `seed` this one.
    #[must_use]
    pub fn command_line(&self, seed: Option<u64>) -> String {
        let repetition = |seed| format!(" # {seed}");
        if !self.command.is_empty() {
            return self.command.join(" ") + &seed.map(repetition).unwrap_or_default();
        }
        let set: String =
            self.set.iter().map(|(key, value)| format!(" --set {key}={value}")).collect();
        let seeds = match seed {
            Some(seed) => format!("--seed {seed}"),
            None => format!("--seeds {} --json", self.seeds),
        };
        format!("spanwire sim run {}{set} {seeds}", self.scenario)
    }
}

/// Seconds of a seed by scenario and load: 2026-11, an AMD EPYC, two runs at once on two cores.
const SECONDS: [(&str, &str, f64); 22] = [
    ("laecn-burst", "", 1.2),
    ("laecn-small", "", 0.15),
    ("mlcc-fig10", "", 6.5),
    ("mlcc-fig2", "", 1.8),
    ("mlcc-fig3", "", 1.9),
    ("mlcc-fig4", "", 2.2),
    ("mlcc-fig7", "", 2.4),
    ("mlcc-fig8", "", 1.7),
    ("mlcc-fig9", "", 5.5),
    ("pacc-burst", "", 0.22),
    ("pacc-fct", "30", 2.5),
    ("pacc-fct", "", 10.0),
    ("pacc-join", "", 1.0),
    ("pacc-micro", "", 0.22),
    ("pacc-steady", "", 0.17),
    ("reflex-fct", "30", 6.0),
    ("reflex-fct", "50", 12.5),
    ("reflex-fct", "", 19.0),
    ("reflex-thresholds", "", 14.0),
    ("uno-fig13a", "", 0.05),
    ("uno-fig13b", "", 0.02),
    ("uno-fig13c", "", 0.3),
];
