//! Parameters of agents that differ from those of a scheme.

use crate::setup::AgentSetup;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt;

/// Parameters of the agents of switches that were set, by name: `period=40us,spacing=8us`. The name
/// of a kind before that of a parameter sets it of that kind alone: `ndt.threshold=20us`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AgentChoice(BTreeMap<String, String>);

impl AgentChoice {
    /// The form of the text.
    pub const EXPECTED: &'static str = "NAME=VALUE, or several separated by commas";

    /// Parses its text; empty: nothing is set.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts = text.split(',').filter(|_| !text.is_empty());
        let pair = |part: &str| {
            let (name, value) = part.split_once('=')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        parts.map(pair).collect::<Option<_>>().map(Self)
    }

    /// Sets one of them. Whether there is such a parameter is known only with the agents.
    pub(super) fn set(&mut self, name: &str, text: &str) {
        self.0.insert(name.to_owned(), text.to_owned());
    }

    /// Applies them to every agent that has a parameter of this name, first those that name no
    /// kind. Thresholds in bytes are those of the rate for which the agent is given.
    ///
    /// # Errors
    /// The name of a parameter that no agent has, or that has an invalid value, and the reason.
    pub(crate) fn apply(&self, agents: &mut [AgentSetup]) -> Result<(), (String, String)> {
        let is_of_kind = |(name, _): &(&String, &String)| name.contains('.');
        let (of_kinds, of_all): (Vec<_>, Vec<_>) = self.0.iter().partition(is_of_kind);
        of_all.into_iter().chain(of_kinds).try_for_each(|(name, text)| apply(agents, name, text))
    }
}

/// Sets a parameter of the agents that have it.
fn apply(agents: &mut [AgentSetup], name: &str, text: &str) -> Result<(), (String, String)> {
    let (kind, field) = name.split_once('.').map_or((None, name), |(kind, f)| (Some(kind), f));
    let mut known: Vec<String> = Vec::new();
    let mut is_set = false;
    for agent in agents {
        let own = agent.config.kind();
        let names = agent.names();
        if kind.is_none_or(|kind| kind == own) && names.iter().any(|name| name == field) {
            is_set = true;
            agent.set(field, text).map_err(|why| (name.to_owned(), why))?;
        }
        known.extend(names.iter().map(|name| format!("{own}.{name}")));
    }
    if is_set {
        return Ok(());
    }
    let why = match known.is_empty() {
        true => "no switch has an agent; choose a scheme with one".to_owned(),
        false => format!("there is no such parameter; there are {}", known.join(", ")),
    };
    Err((name.to_owned(), why))
}

impl fmt::Display for AgentChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |(name, text)| format!("{name}={text}");
        f.write_str(&self.0.iter().map(pair).collect::<Vec<_>>().join(","))
    }
}

impl AgentSetup {
    /// The names of its parameters, but for its ports.
    fn names(&self) -> Vec<String> {
        let Ok(Json::Object(all)) = serde_json::to_value(&self.config) else { return Vec::new() };
        let others = ["kind", self.config.side().key()];
        all.into_iter().map(|(name, _)| name).filter(|name| !others.contains(&&**name)).collect()
    }

    /// Sets a parameter as a file of a switch would, or returns the reason in a sentence.
    fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let mut json = serde_json::to_value(&self.config).map_err(|e| e.to_string())?;
        let value = match serde_json::from_str(text) {
            Ok(number @ (Json::Number(_) | Json::Bool(_))) => number,
            _ => Json::String(text.to_owned()),
        };
        json[name] = value;
        self.config = serde_json::from_value(json).map_err(|e| e.to_string())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::{Dur, Rate};
    use spanwire_switch::{AgentConfig, NsfConfig, PaccConfig};

    fn agents() -> [AgentSetup; 2] {
        let (config, at) = (PaccConfig::default().into(), Some(Rate::from_gbps(25)));
        [AgentSetup { config, at }, NsfConfig::default().into()]
    }

    #[test]
    fn apply__sets_the_parameters_of_agents_that_have_them() {
        let mut choice = AgentChoice::parse("period=40us,flows=8").unwrap();
        choice.set("edge", "false");
        choice.set("threshold_bytes", "60kB");
        let mut agents = agents();
        choice.apply(&mut agents).unwrap();
        let configs = agents.map(|agent| agent.config);
        let [AgentConfig::Pacc(pacc), AgentConfig::Nsf(nsf)] = &configs else { panic!() };
        assert_eq!((pacc.period, pacc.edge, pacc.flows), (Dur::from_us(40), false, 8));
        assert_eq!((pacc.threshold_bytes, nsf.flows), (60_000, 8), "both have it");
        let shown = "edge=false,flows=8,period=40us,threshold_bytes=60kB";
        assert_eq!(choice.to_string(), shown);
        assert_eq!(AgentChoice::parse(shown), Some(choice));
    }

    #[test]
    fn apply__the_name_of_a_kind_sets_that_kind_alone() {
        let mut agents = agents();
        let choice = AgentChoice::parse("nsf.flows=16,flows=8").unwrap();
        choice.apply(&mut agents).unwrap();
        let configs = agents.map(|agent| agent.config);
        let [AgentConfig::Pacc(pacc), AgentConfig::Nsf(nsf)] = &configs else { panic!() };
        assert_eq!((pacc.flows, nsf.flows), (8, 16));
    }

    #[test]
    fn apply__errors_name_parameter_and_reason() {
        let error = |text: &str, agents: &mut [AgentSetup]| {
            AgentChoice::parse(text).unwrap().apply(agents).unwrap_err()
        };
        let (name, why) = error("perod=40us", &mut agents());
        assert!(name == "perod" && why.contains("period") && !why.contains("ports"), "{why}");
        let (name, why) = error("period=soon", &mut agents());
        assert!(name == "period" && why.contains("soon"), "{why}");
        let (name, why) = error("nsf.period=40us", &mut agents());
        assert!(name == "nsf.period" && why.contains("pacc.period"), "{why}");
        let (_, why) = error("period=40us", &mut []);
        assert!(why.contains("choose a scheme"), "{why}");
        assert_eq!(AgentChoice::parse("period"), None);
    }
}
