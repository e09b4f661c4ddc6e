//! Congestion control as JSON, for the other end.

use crate::fabric::Error;
use crate::text::unknown;
use serde::{Deserialize, Serialize};
use spanwire_base::Dur;
use spanwire_cc::Algorithm;
use spanwire_cc::params::ParamError;
use spanwire_transport::{CongestionControl, Preset};
use std::collections::BTreeMap;

/// A congestion control algorithm by name, with the parameters that differ from their defaults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Congestion {
    /// Its name.
    pub name: String,
    /// Parameters and their values, as text that parses to the same bits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// The preset, if it is not the default: `paper`. Older peers know no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// The base RTT in nanoseconds; if absent, it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_rtt_ns: Option<u64>,
    /// The least time between two CNPs that count, in nanoseconds; if absent, a round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cnp_spacing_ns: Option<u64>,
}

/// `text` with flags as numbers, 1 and 0: older peers know no other form.
pub(crate) fn numeric_flags(text: &str) -> String {
    let flag = |value: &str| match value {
        "true" => "1".to_owned(),
        "false" => "0".to_owned(),
        other => other.to_owned(),
    };
    let part = |part: &str| match part.split_once('=') {
        Some((name, value)) => format!("{name}={}", flag(value)),
        None => flag(part),
    };
    text.split(',').map(part).collect::<Vec<_>>().join(",")
}

impl From<&CongestionControl> for Congestion {
    fn from(choice: &CongestionControl) -> Self {
        let [base_rtt_ns, cnp_spacing_ns] =
            [choice.base_rtt, choice.cnp_spacing].map(|time| time.map(Dur::as_ns));
        let Some(algorithm) = choice.algorithm else {
            let (name, set) = (NONE.to_owned(), BTreeMap::new());
            return Self { name, set, preset: None, base_rtt_ns, cnp_spacing_ns };
        };
        let preset = (choice.preset == Preset::Paper).then(|| Preset::PAPER.to_owned());
        let set = algorithm.settings().into_iter();
        Self {
            name: algorithm.name().to_owned(),
            set: set.map(|(field, text)| (field.to_owned(), numeric_flags(&text))).collect(),
            preset,
            base_rtt_ns,
            cnp_spacing_ns,
        }
    }
}

impl Congestion {
    /// The congestion control that this describes.
    ///
    /// # Errors
    /// The name is unknown, or a parameter is wrong.
    pub fn read(&self) -> Result<CongestionControl, Error> {
        let settings = self.set.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let algorithm = algorithm(&self.name, settings)?;
        let preset = self.preset.as_deref().map(preset).transpose()?.unwrap_or_default();
        let [base_rtt, cnp_spacing] =
            [self.base_rtt_ns, self.cnp_spacing_ns].map(|ns| ns.map(Dur::from_ns));
        Ok(CongestionControl { algorithm, base_rtt, preset, cnp_spacing })
    }
}

/// The congestion control `name` with these parameters, as a command line has them: the key
/// `preset` names the [`Preset`], and the last one counts.
///
/// # Errors
/// The algorithm is unknown, or a parameter is invalid. The error lists the known names and the
/// nearest one.
pub fn congestion_control(
    name: &str,
    settings: &[(&str, &str)],
) -> Result<CongestionControl, Error> {
    let (presets, settings): (Vec<_>, Vec<_>) =
        settings.iter().copied().partition(|(key, _)| *key == "preset");
    let algorithm = algorithm(name, settings)?;
    let preset = presets.last().map(|(_, name)| preset(name)).transpose()?.unwrap_or_default();
    Ok(CongestionControl { algorithm, preset, ..CongestionControl::NONE })
}

/// The preset of this name.
fn preset(name: &str) -> Result<Preset, Error> {
    let known = [Preset::CALIBRATED, Preset::PAPER];
    Preset::named(name).ok_or_else(|| unknown("preset", name, known).into())
}

/// The name of no congestion control: the static window.
const NONE: &str = "none";

/// The algorithm `name` with these parameters; `None` for `none`, the static window.
fn algorithm<'a>(
    name: &str,
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Option<Algorithm>, Error> {
    let mut settings = settings.into_iter();
    if name == NONE {
        return match settings.next() {
            None => Ok(None),
            Some((key, _)) => Err(format!("`{key}` is set, but `none` has no parameters").into()),
        };
    }
    let known = || [Algorithm::known(), vec![NONE]].concat();
    let mut algorithm =
        Algorithm::named(name).map_err(|_| unknown("congestion control", name, known()))?;
    for (key, value) in settings {
        algorithm.set(key, value).map_err(|e| match e {
            ParamError::NoField { name, known } => {
                unknown(&format!("parameter of {}", algorithm.name()), &name, known)
            }
            other => format!("{}: {other}", algorithm.name()),
        })?;
    }
    Ok(Some(algorithm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read__inverts_from_for_every_algorithm() {
        for name in Algorithm::known() {
            let mut algorithm = Algorithm::named(name).unwrap();
            let fields = algorithm.fields();
            let field = &fields[fields.len() - 1];
            let third = |(min, max): (f64, f64)| (max / 3.0).max(min).into();
            let value = field.range().map_or(false.into(), third);
            algorithm.set(field.name, &field.text(value)).unwrap();
            for base_rtt in [None, Some(Dur::from_us(4_321))] {
                let preset = if base_rtt.is_some() { Preset::Paper } else { Preset::Calibrated };
                let choice = CongestionControl {
                    algorithm: Some(algorithm),
                    base_rtt,
                    preset,
                    cnp_spacing: base_rtt.map(|rtt| rtt / 2),
                };
                let json = serde_json::to_string(&Congestion::from(&choice)).unwrap();
                let parsed: Congestion = serde_json::from_str(&json).unwrap();
                assert_eq!(parsed.read().unwrap(), choice, "{json}");
            }
        }
    }

    #[test]
    fn read__rejects_unknown_names_and_parameters() {
        let cubic: Congestion = serde_json::from_str(r#"{"name":"cubic"}"#).unwrap();
        assert!(cubic.read().unwrap_err().to_string().contains("no congestion control `cubic`"));
        let text = r#"{"name":"swift","set":{"beta":"9e9"}}"#;
        let wrong: Congestion = serde_json::from_str(text).unwrap();
        assert!(wrong.read().unwrap_err().to_string().contains("beta"));
    }
}
