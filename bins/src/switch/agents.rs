//! Agents of a switch: their tables in the file, and their report.

use super::keys::{KeyError, read};
use serde::Serialize;
use serde_json::{Map, Value as Json};
use spanwire_host::file;
use spanwire_switch::{AgentConfig, AgentCounters, EcnModel};
use std::path::Path;
use toml::{Table, Value};

/// The agents that the `[[agent]]` tables of a file describe; `names` are those of the ports.
pub(super) fn take_agents(
    tables: Option<Value>,
    names: &[&str],
) -> Result<Vec<AgentConfig>, KeyError> {
    let tables = match tables {
        None => return Ok(Vec::new()),
        Some(Value::Array(tables)) => tables,
        Some(_) => return Err(KeyError::new("agent", "is no list; write [[agent]]")),
    };
    (0..).zip(tables).map(|(n, table)| take_agent(n, table, names)).collect()
}

fn take_agent(n: usize, table: Value, names: &[&str]) -> Result<AgentConfig, KeyError> {
    let at = format!("agent[{n}]");
    let Value::Table(mut table) = table else {
        return Err(KeyError::new(at, "is no table; write [[agent]] above its keys"));
    };
    let kind = table.get("kind");
    let kinds = AgentConfig::kinds();
    let known = kind.and_then(|kind| kinds.iter().find(|(name, _)| Some(*name) == kind.as_str()));
    let Some((_, ports)) = known else {
        let is = match kind {
            None => "is missing".to_owned(),
            Some(Value::String(kind)) => format!("is {kind:?}"),
            Some(other) => format!("is {other:?}"),
        };
        let names: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
        let what = format!("{is}; choose one of {}", names.join(", "));
        return Err(KeyError::new(format!("{at}.kind"), what));
    };
    number_ports(&at, &mut table, ports.key(), names)?;
    let mut agent = read(&at, table)?;
    if let AgentConfig::Ecn(ecn) = &mut agent {
        read_model(&at, &mut ecn.model)?;
    }
    Ok(agent)
}

/// Reads the networks of a model that is the path of a file: it has a slash, or the ending of such
/// files.
fn read_model(at: &str, model: &mut EcnModel) -> Result<(), KeyError> {
    let path = model.name().to_owned();
    if model.is_known() || !(path.contains('/') || path.ends_with(".safetensors")) {
        return Ok(());
    }
    let at = format!("{at}.model");
    let bytes = file::read(Path::new(&path), "models", EcnModel::FILE_BYTES_MAX)
        .map_err(|e| KeyError::new(&at, format!("is {path:?}, which cannot be read: {e}")))?;
    let read = EcnModel::of_file(&path, &bytes);
    *model = read.map_err(|e| KeyError::new(&at, format!("is {path:?}, which {e}")))?;
    Ok(())
}

/// Replaces the names of ports at `key` of an agent's table by their numbers.
fn number_ports(at: &str, table: &mut Table, key: &str, names: &[&str]) -> Result<(), KeyError> {
    let at = format!("{at}.{key}");
    let ports = match table.get_mut(key) {
        Some(Value::Array(ports)) => ports,
        Some(_) => return Err(KeyError::new(at, "is no list; write [\"NAME\", ...]")),
        None => return Err(KeyError::new(at, "is missing; write [\"NAME\", ...]")),
    };
    for port in ports {
        let number = port.as_str().and_then(|name| names.iter().position(|known| *known == name));
        let Some(number) = number.and_then(|number| i64::try_from(number).ok()) else {
            let what = format!("has {port:?}; choose among {}", names.join(", "));
            return Err(KeyError::new(at, what));
        };
        *port = Value::Integer(number);
    }
    Ok(())
}

/// An agent at a port, in a report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct AgentReport {
    kind: &'static str,
    /// The name of its port.
    port: String,
    counters: Map<String, Json>,
    gauges: Map<String, Json>,
}

impl AgentReport {
    /// The report of the agents of a switch whose port n has the name `names[n]`.
    pub(super) fn all(agents: Vec<AgentCounters>, names: &[String]) -> Vec<Self> {
        let map = |values: Vec<(&'static str, u64)>| {
            values.into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect()
        };
        let of = |agent: AgentCounters| Self {
            kind: agent.kind,
            port: names.get(usize::from(agent.port)).cloned().unwrap_or_default(),
            counters: map(agent.counters),
            gauges: map(agent.gauges),
        };
        agents.into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::SwitchFile;
    use super::*;
    use spanwire_base::Dur;

    const PORTS: &str = "[port.a]\nrate = '1Gbit'\n[port.b]\nrate = '1Gbit'\n";

    fn parse(agents: &str) -> Result<Vec<AgentConfig>, String> {
        let file = SwitchFile::parse(&format!("{PORTS}{agents}"))?;
        Ok(file.config().switch.agents.clone())
    }

    #[test]
    fn parse__names_of_ports_become_numbers() {
        let agents = parse("[[agent]]\nkind = 'pacc'\nports = ['b']\nperiod = '2ms'\n").unwrap();
        let [AgentConfig::Pacc(pacc)] = &agents[..] else { panic!("{agents:?}") };
        assert_eq!((&pacc.ports[..], pacc.period), (&[1][..], Dur::from_ms(2)));
    }

    #[test]
    fn parse__errors_name_key_value_and_what_would_be_right() {
        let two = "[[agent]]\nkind = 'pacc'\nports = ['a']\n".repeat(2);
        let nine = "[[agent]]\nkind = 'pacc'\nports = ['a']\n".repeat(9);
        for (text, words) in [
            ("[agent]\nkind = 'pacc'", &["agent:", "[[agent]]"][..]),
            ("[[agent]]\nports = ['a']", &["agent[0].kind:", "missing", "pacc"]),
            ("[[agent]]\nkind = 'pac'", &["agent[0].kind:", "\"pac\"", "pacc"]),
            ("[[agent]]\nkind = 'pacc'", &["agent[0].ports:", "missing"]),
            ("[[agent]]\nkind = 'nsf'", &["agent[0].outside:", "missing"]),
            ("[[agent]]\nkind = 'nsf'\noutside = []", &["agent[0].outside:", "empty"]),
            ("[[agent]]\nkind = 'ndt'\nports = ['a']", &["agent[0].inside:", "missing"]),
            (
                "[[agent]]\nkind = 'ndt'\ninside = ['a']\n[[agent]]\nkind = 'pacc'\nports = ['a']",
                &["agent[1].ports:", "port a", "another agent"],
            ),
            ("[[agent]]\nkind = 'pacc'\nports = ['c']", &["agent[0].ports:", "\"c\"", "a, b"]),
            (
                "[[agent]]\nkind = 'pacc'\nports = ['a']\nbeta = '1/8'",
                &["agent[0]", "beta", "beta1"],
            ),
            (
                "[[agent]]\nkind = 'pacc'\nports = ['a']\nperiod = '2us'",
                &["agent[0].spacing:", "4us", "1us to 2us"],
            ),
            (
                "[[agent]]\nkind = 'pacc'\nports = ['a']\nthreshold_bytes = '2MB'",
                &["agent[0].threshold_bytes:", "2MB", "port a", "1MiB"],
            ),
            ("[[agent]]\nkind = 'ecn'\nports = ['a']", &["agent[0].queue:", "port a", "add ecn"]),
            (
                "[[agent]]\nkind = 'ecn'\nports = ['a']\nmodel = 'acc'",
                &["agent[0].model:", "\"acc\"", "laecn", "path of a file"],
            ),
            (
                "[[agent]]\nkind = 'ecn'\nports = ['a']\nmodel = '/no/such'",
                &["agent[0].model:", "\"/no/such\"", "cannot be read"],
            ),
            (
                "[[agent]]\nkind = 'ecn'\nports = ['a']\nmodel = '/dev/zero'",
                &["agent[0].model:", "\"/dev/zero\"", "cannot be read", "at most 1 MiB"],
            ),
            (
                "[[agent]]\nkind = 'ecn'\nports = ['a']\nmodel = '/proc/self/status'",
                &["agent[0].model:", "is not in the format safetensors"],
            ),
            (
                "[[agent]]\nkind = 'ecn'\nports = ['a']\ninterval = '900ns'",
                &["agent[0].interval:", "900ns", "1us to 10s"],
            ),
            (&two, &["agent[1].ports:", "port a", "another agent"]),
            (&nine, &["agent:", "9 entries", "at most 8"]),
        ] {
            let error = parse(text).expect_err(text);
            for word in words {
                assert!(error.contains(word), "{word:?} in {error:?}");
            }
        }
    }

    #[test]
    fn parse__the_examples_in_the_documentation() {
        for (text, agents) in [
            (include_str!("../../../docs/examples/pacc.toml"), 1),
            (include_str!("../../../docs/examples/reflex.toml"), 2),
        ] {
            let file = SwitchFile::parse(text).expect("valid");
            assert_eq!(file.config().switch.agents.len(), agents);
        }
    }
}
