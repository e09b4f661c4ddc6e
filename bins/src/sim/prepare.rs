//! The plan of a chosen scenario, and errors that commands share.

use super::file::Chosen;
use crate::exit::usage;
use spanwire_host::fabric::Error;
use spanwire_host::file;
use spanwire_host::text::{printable_within, unknown};
use spanwire_sim::untuned::Untuned;
use spanwire_sim::{LossSweep, ParamError, Params, Plan, Scenario};
use spanwire_switch::{AgentConfig, EcnModel};
use std::collections::BTreeMap;
use std::path::Path;

/// The plan of the chosen scenario, and the values of all parameters.
pub(super) fn prepare(chosen: &Chosen) -> Result<(Plan, BTreeMap<&'static str, String>), Error> {
    let Some(scenario) = Scenario::find(&chosen.name) else {
        let names = Scenario::all().iter().map(|s| s.name).chain([LossSweep::NAME, Untuned::NAME]);
        return Err(unknown("scenario", &chosen.name, names).into());
    };
    let mut params = scenario.params();
    params.set_all(chosen.set()).map_err(|e| explained(&e))?;
    let mut plan = scenario.plan(chosen.seed, chosen.set()).map_err(|e| explained(&e))?;
    read_models(&mut plan)?;
    Ok((plan, shown(&params)))
}

/// Reads the networks of agents whose model is the path of a file.
fn read_models(plan: &mut Plan) -> Result<(), Error> {
    for agent in &mut plan.setup.agents {
        if let AgentConfig::Ecn(ecn) = &mut agent.config
            && !ecn.model.is_known()
            && Path::new(ecn.model.name()).exists()
        {
            let path = ecn.model.name().to_owned();
            let bytes =
                file::read(Path::new(&path), "models", EcnModel::FILE_BYTES_MAX).map_err(|e| {
                    usage(printable_within(format!("cannot read {path}: {e}"), ERROR_CHARS_MAX))
                })?;
            let model = EcnModel::of_file(&path, &bytes);
            ecn.model = model
                .map_err(|e| usage(printable_within(format!("{path} {e}"), ERROR_CHARS_MAX)))?;
        }
    }
    Ok(())
}

/// The values of the parameters, by name.
pub(super) fn shown(params: &Params) -> BTreeMap<&'static str, String> {
    params.iter().map(|p| (p.name, p.value.to_string())).collect()
}

/// The text of a parameter error; for an unknown name, with the known ones.
pub(super) fn explained(error: &ParamError) -> String {
    match error {
        ParamError::Unknown { name, known } => unknown("parameter", name, known.iter().copied()),
        ParamError::Own { .. } | ParamError::Value { .. } => {
            printable_within(error.to_string(), ERROR_CHARS_MAX)
        }
    }
}

/// The message of a file that cannot be written.
pub(super) fn cannot_write(path: &Path, why: &std::io::Error) -> String {
    format!("cannot write {}: {why}", path.display())
}

/// The longest error about a parameter, which may be from a file.
const ERROR_CHARS_MAX: usize = 8000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepare__errors_have_no_control_characters_of_the_file() {
        let evil = "x\x1b[2J\r\nerror: forged";
        let file = format!("spanwire-model-{}-x\x1b[2J\r\nforged", std::process::id());
        let model = std::env::temp_dir().join(file);
        std::fs::write(&model, "no model").expect("writable");
        let of = |name: &str, key: &str, value: &str| {
            let set = vec![(key.to_owned(), value.to_owned())];
            let chosen = Chosen { name: name.to_owned(), seed: 1, set };
            prepare(&chosen).map(drop).expect_err("it is wrong").to_string()
        };
        for error in [
            of(evil, "", ""),
            of("pair", evil, "1"),
            of("pair", "mtu", evil),
            of("pair", "cc", evil),
            of("pair", &format!("cc.{evil}"), "1"),
            of("laecn-burst", "agent.model", &model.to_string_lossy()),
        ] {
            assert!(!error.chars().any(char::is_control), "{error:?}");
        }
        std::fs::remove_file(&model).expect("ours");
    }
}
