//! `--file`: the scenario file.

use super::args::RunArgs;
use crate::toml_text::toml_error;
use serde::Deserialize;
use spanwire_host::fabric::Error;
use spanwire_host::file::{CONFIG_BYTES_MAX, read_text};
use std::collections::BTreeMap;
use std::path::Path;

/// A scenario file.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    /// The scenario's name.
    scenario: String,
    /// Seed of all randomness. Default 1.
    seed: Option<u64>,
    /// Parameters that differ from their defaults.
    #[serde(default)]
    set: BTreeMap<String, Setting>,
}

/// A parameter's value in TOML: text with a unit, a number or a flag.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged, expecting = "text, a number or a flag; quote a name with a dot: \"cc.alpha\"")]
enum Setting {
    Text(String),
    Integer(i64),
    Real(f64),
    Flag(bool),
}

/// The scenario to run. The command line overrides the file.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Chosen {
    /// The scenario's name.
    pub(super) name: String,
    /// Seed of all randomness.
    pub(super) seed: u64,
    /// Parameters in the order in which they are set: those of the file first.
    pub(super) set: Vec<(String, String)>,
}

impl Chosen {
    /// Combines the arguments with their file, if given.
    ///
    /// # Errors
    /// The file cannot be read or parsed. There is neither a name nor a file, or both.
    pub(super) fn of(args: &RunArgs) -> Result<Self, Error> {
        let file = match (&args.name, &args.file) {
            (Some(name), None) => {
                ScenarioFile { scenario: name.clone(), ..ScenarioFile::default() }
            }
            (None, Some(path)) => read(path)?,
            // The argument parser rejects this.
            _ => return Err("either the name of a scenario or --file".into()),
        };
        let seed = args.seed.or(file.seed).unwrap_or(DEFAULT_SEED);
        let of_file = file.set.into_iter().map(|(name, value)| (name, value.into_text()));
        let set = of_file.chain(args.set.iter().cloned()).collect();
        Ok(Self { name: file.scenario, seed, set })
    }

    /// The same from another seed.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        Self { seed, ..self.clone() }
    }

    /// The command that repeats it.
    pub(super) fn command(&self) -> String {
        let set: String = self.set().map(|(key, value)| format!(" --set {key}={value}")).collect();
        format!("spanwire sim run {}{set} --seed {}", self.name, self.seed)
    }

    /// The parameters as pairs of name and text.
    pub(super) fn set(&self) -> impl Iterator<Item = (&str, &str)> {
        self.set.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl Setting {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Integer(n) => n.to_string(),
            Self::Real(x) => x.to_string(),
            Self::Flag(flag) => flag.to_string(),
        }
    }
}

fn read(path: &Path) -> Result<ScenarioFile, Error> {
    let text = read_text(path, "scenarios", CONFIG_BYTES_MAX);
    let text = text.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    // The parser's message shows the line and marks the position.
    Ok(toml::from_str(&text).map_err(|e| format!("{}: {}", path.display(), toml_error(&e)))?)
}

/// The seed of a run without `--seed`.
pub(super) const DEFAULT_SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read__a_device_without_an_end_is_an_error() {
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /dev/zero: "), "{error}");
        assert!(error.ends_with("scenarios have at most 1 MiB"), "{error}");
    }

    #[test]
    fn scenario_file__is_strict_and_takes_plain_values() {
        let text = "scenario = 'pair'\nseed = 7\n[set]\nrate = '25Gbit'\nmtu = 1024\npfc = true\n\
                    'cc.beta' = 0.5\n";
        let file: ScenarioFile = toml::from_str(text).unwrap();
        assert_eq!((file.scenario.as_str(), file.seed), ("pair", Some(7)));
        let set: Vec<_> =
            file.set.into_iter().map(|(k, v)| format!("{k}={}", v.into_text())).collect();
        assert_eq!(set, ["cc.beta=0.5", "mtu=1024", "pfc=true", "rate=25Gbit"]);
        for (bad, says) in [
            ("seed = 1", "scenario"),
            ("scenario = 'pair'\nsets = 1", "sets"),
            ("scenario = 'pair'\nseed = -1", "u64"),
            ("scenario = 'pair'\n[set]\ncc.beta = 1", "quote"),
            ("scenario = 'pair'\n[set]\nrate = [1]", "a number"),
        ] {
            let error = toml::from_str::<ScenarioFile>(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }
}
