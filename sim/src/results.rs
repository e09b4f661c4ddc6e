//! The version of the simulator's results, and the identity of a result: stored ones are valid as
//! long as both are the same.

use crate::rows::Run;
use crate::scenario::Scenario;
use crate::setup::AgentSetup;
use spanwire_switch::AgentConfig;
use std::fmt::Write as _;

/// The version of results: it rises with each change after which a run may have other ones.
pub const RESULTS_VERSION: usize = HISTORY.len();

/// A digest of the event hashes and metrics of [`PINNED`] for each version. A change of one changes
/// the last digest: a test then says which number to append. A run that is added to the list
/// changes no result, and its digest takes the place of the last one.
const HISTORY: [u64; 1] = [0x75ab77856480e0d6];

/// Runs whose results tell versions apart: of each congestion control, wire mode, balancer,
/// code and agent that rows have, and of the faults of links. Those of NDT name what has once been
/// a default: parameters of agents are part of a run's identity, so another default is another run.
#[cfg(test)]
const PINNED: [(&str, &str); 21] = [
    ("pair", "mode=rc"),
    ("pair", "mode=sr"),
    ("loss-1", ""),
    ("reorder-5", "mode=sr"),
    ("flap", ""),
    ("incast-8", "bytes=1MB"),
    ("cc-incast", "cc=auto time=3ms"),
    ("cc-fairness", "cc=unocc time=3ms"),
    ("uno-fig13a", "lb=plb"),
    ("uno-fig13a", "lb=unolb ec=8,2"),
    ("uno-fig13b", "times=100 ec=8,2"),
    ("pacc-burst", "scheme=pacc"),
    ("pacc-burst", "scheme=timely"),
    ("pacc-burst", "scheme=hpcc"),
    ("pacc-steady", "scheme=dcqcn time=2ms"),
    ("reflex-fct", "cc=swift reflex=on time=500us agent.pause_scope=port agent.pause_round=packet"),
    (
        "reflex-fct",
        "cc=timely-classic reflex=ndt time=500us agent.pause_scope=port agent.pause_round=packet",
    ),
    ("reflex-fct", "cc=timely-vwin time=500us"),
    ("laecn-burst", "scheme=laecn bytes=100kB"),
    ("mlcc-fig9", "scheme=mlcc far=100us time=3ms"),
    ("cc-incast", "cc=powertcp time=3ms"),
];

impl Run {
    /// The [`Identity`] of its result from `seed`; `None` for a command, whose result depends on
    /// the machine.
    ///
    /// # Errors
    /// As [`Identity::of`].
    pub fn identity(&self, seed: u64) -> Result<Option<Identity>, String> {
        if !self.command.is_empty() {
            return Ok(None);
        }
        let set = self.set.iter().map(|(key, value)| (*key, value.as_str()));
        Identity::of(self.scenario, set, seed).map(Some)
    }
}

/// The identity of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The version of results, the scenario, all parameters, also those that a run does not set,
    /// those of its agents, and the seed.
    pub text: String,
    /// The files of networks that its agents have.
    pub files: Vec<Vec<u8>>,
}

impl Identity {
    /// Of a scenario with these parameters, from a seed.
    ///
    /// # Errors
    /// The scenario does not exist, or has no such parameter.
    pub fn of<'a>(
        scenario: &str,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
        seed: u64,
    ) -> Result<Self, String> {
        let found = Scenario::find(scenario);
        let found = found.ok_or_else(|| format!("there is no scenario {scenario}"))?;
        let set: Vec<_> = set.into_iter().collect();
        let mut params = found.params();
        params.set_all(set.iter().copied()).map_err(|e| e.to_string())?;
        let agents = found.plan(seed, set).map_err(|e| e.to_string())?.setup.agents;
        let mut text = format!("results {RESULTS_VERSION}\nscenario {scenario}\n");
        // Writing to a String cannot fail.
        params.iter().for_each(|p| _ = writeln!(text, "{}={}", p.name, p.value));
        for AgentSetup { config, at } in &agents {
            let config = serde_json::to_string(config).map_err(|e| e.to_string())?;
            _ = writeln!(text, "agent {config} at {at:?}");
        }
        _ = writeln!(text, "seed {seed}");
        Ok(Self { text, files: Self::files_of(&agents) })
    }

    /// The files of networks that these agents have.
    #[must_use]
    pub fn files_of(agents: &[AgentSetup]) -> Vec<Vec<u8>> {
        let file = |agent: &AgentSetup| match &agent.config {
            AgentConfig::Ecn(ecn) => ecn.model.to_file(0, ""),
            _ => None,
        };
        agents.iter().filter_map(file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Watch;

    /// The event hash of a run, and its metrics: those may change without its events.
    fn result(name: &str, set: &str) -> String {
        let pairs = set.split_whitespace().filter_map(|pair| pair.split_once('='));
        let plan = Scenario::find(name).expect(name).plan(1, pairs).expect(name);
        let report = plan.run(Watch::default(), &mut ()).expect(name);
        let metrics = serde_json::to_string(&(&report.metric, &report.groups)).expect("plain data");
        let traces: Vec<_> = report.over_time.iter().map(|trace| trace.thinned(8)).collect();
        format!("{name} {set} {} {metrics} {traces:?}", report.event_hash)
    }

    #[test]
    fn version__is_that_of_the_pinned_results() {
        let results = PINNED.map(|(name, set)| result(name, set));
        let bytes = results.iter().flat_map(|line| line.bytes());
        let digest = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        assert!(
            HISTORY.last() == Some(&digest),
            "results have changed: append {digest:#x} to HISTORY, so that stored ones are not \
             read; the runs are now\n{}",
            results.join("\n")
        );
        let mut all = HISTORY.to_vec();
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] != two[1]), "a version is in the list twice");
    }

    #[test]
    fn identity__is_of_all_parameters_the_seed_and_the_networks() {
        let of = |run: &Run, seed| run.identity(seed).expect("it exists").expect("no command");
        let burst = |scheme| Run::of("laecn-burst", 10).set("scheme", scheme);
        let one = of(&burst("laecn"), 1);
        assert!(one.text.contains("\nhosts=") && one.text.ends_with("\nseed 1\n"), "{}", one.text);
        assert_eq!((one.files.len(), of(&burst("dcqcn"), 1).files.len()), (1, 0));
        assert_ne!(one, of(&burst("laecn"), 2));
        assert_ne!(one, of(&burst("laecn").set("bytes", "1MB"), 1));
        // The same value in other words, or set to its default, is the same run.
        let default = Scenario::find("laecn-burst").expect("it exists").params();
        let hosts = default.word("hosts");
        assert_eq!(one, of(&burst("laecn").set("hosts", hosts), 1));
        // So a default of an agent that changes is another run, of those with that agent.
        let near = Run::of("reflex-fct", 1).set("reflex", "on");
        let agents = of(&near, 1).text;
        assert!(agents.contains("\nagent {\"kind\":\"nsf\""), "{agents}");
        assert!(agents.contains("\"pause_scope\":\"switch\""), "{agents}");
        assert!(!of(&Run::of("reflex-fct", 1), 1).text.contains("\nagent {"));
        let megabytes = |text: &str| of(&burst("hpcc").set("bytes", text), 1);
        assert_eq!(megabytes("1MB"), megabytes("1000kB"));
        assert_eq!(Run::command(&["echo"]).identity(1), Ok(None));
        assert!(Run::of("no-such", 1).identity(1).is_err_and(|e| e.contains("no-such")));
        assert!(burst("laecn").set("no_such", "1").identity(1).is_err());
    }
}
