//! Scenarios by name.

mod catalogue;
mod definition;
mod laecn;
mod marking;
mod mlcc;
mod pacc;
mod reflex;
mod scheme;
mod sharing;
mod uno;

pub use definition::Scenario;

use crate::congestion::Congestion;
use crate::host_model::HostModel;
use crate::params::{CcChoice, EcChoice, LbChoice, ParamError, Params, Value};
use crate::plan::Plan;
use crate::setup::Setup;
#[cfg(feature = "train")]
use crate::topology::LeafSpine;
#[cfg(feature = "train")]
use crate::workload::Flow;
use crate::workload::{FLOWS_MAX, FlowFile};
use definition::{AGENT, QPNS, large};
use scheme::Scheme;
use spanwire_base::{Dur, Rate};
use spanwire_loadbalance::Choice;
use spanwire_switch::AgentConfig;
#[cfg(feature = "train")]
use spanwire_switch::EcnAgentConfig;
use spanwire_transport::{Config, Mtu, Offer, Preset};

impl Scenario {
    /// All scenarios, in the order of listings.
    #[must_use]
    pub fn all() -> &'static [Self] {
        catalogue::ALL
    }

    /// The scenario of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::all().iter().find(|s| s.name == name)
    }

    /// Its parameters with their defaults.
    #[must_use]
    pub fn params(&self) -> Params {
        (self.params)(common())
    }

    /// Its plan for a seed, with the parameters in `set`: pairs of name and value.
    ///
    /// # Errors
    /// The first parameter that cannot be set, or not beside others.
    pub fn plan<'a>(
        &self,
        seed: u64,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Plan, ParamError> {
        let mut params = self.params();
        params.set_all(set)?;
        check(&params)?;
        let mut plan = (self.plan)(&params, setup(&params, seed));
        if params.has(AGENT) {
            plan.setup.qpns_known = params.word(QPNS) == "told";
            let applied = params.agents(AGENT).apply(&mut plan.setup.agents);
            applied
                .map_err(|(name, why)| ParamError::Own { name: format!("{AGENT}.{name}"), why })?;
        }
        if plan.flows.len() > FLOWS_MAX {
            let why =
                format!("makes more than {FLOWS_MAX} flows: choose a shorter one, or less load");
            return Err(ParamError::Own { name: "time".to_owned(), why });
        }
        check_seed(&plan, seed)?;
        let sample_every = params.time("sample");
        Ok(Plan { scenario: self.name.to_owned(), sample_every, ..plan })
    }

    /// A plan that runs a flow file in the smallest fat tree with as many hosts, for a seed. The
    /// parameters are those of [`Scenario::flow_file_params`].
    ///
    /// # Errors
    /// The first parameter that cannot be set.
    pub fn of_flow_file<'a>(
        file: &FlowFile,
        seed: u64,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Plan, ParamError> {
        let mut params = Self::flow_file_params();
        params.set_all(set)?;
        let plan = catalogue::flow_file(&params, file, setup(&params, seed));
        let sample_every = params.time("sample");
        Ok(Plan { scenario: "flows".to_owned(), sample_every, ..plan })
    }

    /// The parameters of [`Scenario::of_flow_file`] with their defaults.
    #[must_use]
    pub fn flow_file_params() -> Params {
        large(common())
    }
}

/// A plan of a training of the agent `ecn`: flows in a leaf-spine network of LAECN.
#[cfg(feature = "train")]
pub(crate) fn training_plan(
    shape: &LeafSpine,
    flows: Vec<Flow>,
    seed: u64,
    ecn: EcnAgentConfig,
) -> Plan {
    let params = laecn::BURST.params();
    laecn::training_plan(&params, shape, flows, setup(&params, seed), ecn)
}

/// Networks are not evaluated on what they have learned from.
fn check_seed(plan: &Plan, seed: u64) -> Result<(), ParamError> {
    let has_learned =
        plan.setup.agents.iter().any(|agent| matches!(agent.config, AgentConfig::Ecn(_)));
    if !has_learned || seed < TRAINING_SEEDS {
        return Ok(());
    }
    let why = format!(
        "is {seed}, but seeds from {TRAINING_SEEDS} on are those of trainings, and networks are \
         not evaluated on what they have learned from: choose a lower one"
    );
    Err(ParamError::Own { name: "seed".to_owned(), why })
}

/// Checks parameters that exclude each other.
fn check(params: &Params) -> Result<(), ParamError> {
    let is_reflex = params.has("reflex") && params.word("reflex") != "off";
    if is_reflex && params.word("mode") == "rc" {
        let why = "is rc, but Reflex needs sr: packets of RC carry neither the time that they were \
                   sent nor the sender's queue pair, and RC has no pseudo-ACKs";
        return Err(ParamError::Own { name: "mode".to_owned(), why: why.to_owned() });
    }
    // Calibration replaces the constants that are compared, and measures what some signals do not
    // show.
    let is_of_paper = params.has("scheme") || params.has("reflex");
    if is_of_paper && params.flag("calibrate") {
        let why = "is true, but the scenario compares congestion controls with the constants of \
                   their papers: leave it false, and set single constants with cc.NAME";
        return Err(ParamError::Own { name: "calibrate".to_owned(), why: why.to_owned() });
    }
    Ok(())
}

/// The parameters that every scenario has.
fn common() -> Params {
    let mtus = vec!["256", "512", "1024", "2048", "4096"];
    let payloads = vec!["real", "elided"];
    let segment = Value::Count { n: 0, min: 0, max: 65_280 };
    let reorder = Value::Count { n: 65_536, min: 256, max: 1 << 20 };
    Params::default()
        .with("bytes", Value::Bytes(4 << 20), "bytes of each flow")
        .with("rate", Value::Rate(Rate::from_gbps(100)), "rate of every link")
        .with("delay", Value::Time(Dur::from_us(1)), "propagation delay of a host's link")
        .with("mtu", Value::Word { word: "4096".to_owned(), of: mtus }, "path MTU in bytes")
        .with("mode", Value::Word { word: "rc".to_owned(), of: vec!["rc", "sr"] }, "wire mode")
        .with("segment", segment, "bytes of a full SR packet, at least 64; 0: the path MTU")
        .with("reorder", reorder, "packets that an SR receiver takes ahead of a gap")
        .with("message", Value::Bytes(256 << 10), "longest message, at least 8 bytes")
        .with("outstanding", Value::count(4, 8192), "messages of a flow outstanding at once")
        .with("window", Value::count(192, 65_536), "outstanding packets of a queue pair")
        .with(
            "cc",
            Value::Cc(CcChoice::default()),
            "congestion control; `cc.NAME` sets its own parameters",
        )
        .compared_by("cc")
        .with(
            "measure_rtt",
            Value::Flag(false),
            "it measures its base RTT instead of being configured with it",
        )
        .with(
            "calibrate",
            Value::Flag(false),
            "congestion control is calibrated to the path; false: the constants of its paper",
        )
        .with(
            "lb",
            Value::Lb(LbChoice::named("ecmp").expect("there is ECMP")),
            "how SR spreads packets over paths; `lb.NAME` sets its own parameters",
        )
        .with("ec", Value::Ec(EcChoice::default()), "data and parity packets of SR's blocks")
        .with("timeout", Value::Time(Dur::from_ms(1)), "local ACK timeout")
        .with(
            "payload",
            Value::Word { word: "real".to_owned(), of: payloads },
            "real: memory is compared byte for byte; elided: headers only, for large runs",
        )
        .with("queue", Value::Bytes(1 << 20), "limit of each switch queue when not lossless")
        .with("buffer", Value::Bytes(32_000_000), "buffer that the ports of a switch share")
        .with("pfc", Value::Flag(false), "lossless: switches pause, hosts obey")
        .with(
            "host",
            Value::Word { word: "ideal".to_owned(), of: HostModel::NAMES.to_vec() },
            "timing of hosts: ideal, or as drivers on veth pairs, beside busy processes, or over \
             UDP sockets, whose receive buffer limits a static window",
        )
        .with(
            "timestamps",
            Value::Flag(true),
            "hosts date arrivals by the kernel's timestamps, if they are not ideal",
        )
        .with(
            "workers",
            Value::count(1, 16),
            "engines of each host behind its port, as workers of one process that RSS feeds and \
             that hand frames over to each other",
        )
        .with("sample", Value::Time(Dur::from_us(10)), "time from one sample to the next")
}

fn setup(params: &Params, seed: u64) -> Setup {
    let mtu = params.word("mtu").parse().ok().and_then(Mtu::from_bytes);
    let mtu = mtu.expect("only these are offered");
    let segment = Some(params.count("segment")).filter(|bytes| *bytes > 0);
    let segment = Some(segment.unwrap_or(mtu.bytes()));
    // A scheme decides congestion control and wire mode. One with a mode of its own parameters is
    // MLCC's, whose plan decides congestion control.
    let has_scheme = params.has("scheme") && !params.has("mode");
    let scheme = has_scheme.then(|| Scheme::of(params.word("scheme")));
    let own = || params.has("cc").then(|| params.cc("cc").algorithm()).flatten();
    let algorithm = scheme.map_or_else(own, Scheme::algorithm);
    let mode = scheme.map_or_else(|| params.word("mode"), |scheme| scheme.mode);
    let limits = Config { reorder_pkts: params.count("reorder"), ..Config::default() };
    let mut setup = Setup {
        seed,
        mtu,
        offer: Offer::of(&limits, segment.filter(|_| mode == "sr")),
        elided: params.word("payload") == "elided",
        window_pkts: params.count("window"),
        congestion: Congestion {
            algorithm,
            far: None,
            preset: match params.flag("calibrate") {
                true => Preset::Calibrated,
                false => Preset::Paper,
            },
            measures_rtt: params.flag("measure_rtt"),
            cnp_spacing: None,
        },
        // Without a balancer the engine sends on one path, which is ECMP.
        balance: Some(params.lb("lb").choice()).filter(|lb| !matches!(lb, Choice::Ecmp(_))),
        erasure: params.ec("ec").0,
        timeout: params.time("timeout"),
        buffer_bytes: params.bytes("buffer"),
        workers: u8::try_from(params.count("workers")).expect("the parameter's range ends at 16"),
        host: HostModel::named(params.word("host"))
            .map(|host| HostModel { timestamps: params.flag("timestamps"), ..host }),
        ..Setup::default()
    };
    // Scenarios with one message at a time set its length themselves.
    if params.has("message") {
        let message = u32::try_from(params.bytes("message"));
        setup.message_bytes = message.expect("the parameter's range ends at 2^30");
        setup.outstanding = params.count("outstanding");
    }
    if !setup.congestion.is_on() {
        let most = setup.host.as_ref().and_then(|host| host.window_pkts(setup.max_frame_bytes()));
        setup.window_pkts = setup.window_pkts.min(most.unwrap_or(u32::MAX));
    }
    setup.port.queues[0].limit_bytes = params.bytes("queue");
    if params.has("pfc") && params.flag("pfc") { setup.lossless() } else { setup }
}

/// The first seed of trainings.
pub(crate) const TRAINING_SEEDS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::params::ends;

    #[test]
    fn all__can_be_built_and_have_names_of_their_own() {
        for (i, scenario) in Scenario::all().iter().enumerate() {
            let same = Scenario::all().iter().position(|s| s.name == scenario.name);
            assert_eq!(same, Some(i), "{}", scenario.name);
            let plan = scenario.plan(1, []).unwrap();
            assert_eq!(plan.scenario, scenario.name);
            let network = Network::new(plan.topology, plan.flows, plan.setup);
            assert!(network.is_ok(), "{}: {:?}", scenario.name, network.err());
        }
        assert!(Scenario::find("nothing").is_none());
    }

    #[test]
    fn plan__every_parameter_has_a_range_and_can_be_built_at_its_ends() {
        for scenario in Scenario::all() {
            for param in scenario.params().iter() {
                let (ends, beyond) = ends(&param.value, param.name);
                for text in ends {
                    // A value may be impossible beside the others, but that is an error.
                    let Ok(plan) = scenario.plan(1, [(param.name, &*text)]) else { continue };
                    if plan.topology.hosts.len() == 2 {
                        let _ = Network::new(plan.topology, plan.flows, plan.setup);
                    }
                }
                for text in beyond {
                    let error = scenario.plan(1, [(param.name, &*text)]).err();
                    let is_range = matches!(error, Some(ParamError::Value { .. }));
                    assert!(is_range, "{} {}={text}: {error:?}", scenario.name, param.name);
                }
            }
        }
    }

    #[test]
    fn plan__messages_beyond_any_memory_are_an_error() {
        let pair = Scenario::find("pair").unwrap();
        for (set, why) in [
            ([("message", "1000000000"), ("bytes", "4MiB")], "MiB of memory"),
            ([("message", "8"), ("bytes", "64GiB")], "4 million messages"),
        ] {
            let plan = pair.plan(1, set).unwrap();
            let error = Network::new(plan.topology, plan.flows, plan.setup).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        let set = [("message", "1GiB"), ("payload", "elided")];
        let plan = pair.plan(1, set).unwrap();
        assert!(Network::new(plan.topology, plan.flows, plan.setup).is_ok());
    }

    #[test]
    fn plan__parameters_reach_it() {
        let set = [("bytes", "5KiB"), ("mtu", "1024"), ("pfc", "true"), ("payload", "elided")];
        let plan = Scenario::find("dumbbell-2").unwrap().plan(7, set).unwrap();
        assert!(plan.flows.iter().all(|f| f.bytes == 5 << 10));
        let setup = &plan.setup;
        assert_eq!((setup.seed, setup.mtu, setup.elided), (7, Mtu::B1024, true));
        assert!(setup.host_pfc && setup.port.pfc.is_some());
        let wrong = Scenario::find("pair").unwrap().plan(1, [("senders", "3")]);
        assert!(matches!(wrong, Err(ParamError::Unknown { .. })));
    }

    #[test]
    fn plan__a_scenario_of_a_paper_is_not_calibrated() {
        for scenario in Scenario::all() {
            let params = scenario.params();
            let is_of_paper = params.has("scheme") || params.has("reflex");
            let mut calibrated = params.clone();
            calibrated.set("calibrate", "true").unwrap();
            assert!(check(&params).is_ok(), "{}", scenario.name);
            assert_eq!(check(&calibrated).is_err(), is_of_paper, "{}", scenario.name);
        }
        let burst = Scenario::find("pacc-burst").unwrap();
        let error = burst.plan(1, [("scheme", "dcqcn"), ("calibrate", "true")]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("calibrate") && text.contains("leave it false"), "{text}");
    }

    #[test]
    fn plan__networks_are_not_evaluated_on_seeds_of_trainings() {
        let burst = Scenario::find("laecn-burst").unwrap();
        let error = burst.plan(1_000_000, []).unwrap_err().to_string();
        assert!(error.contains("seed") && error.contains("choose a lower one"), "{error}");
        assert!(burst.plan(999_999, []).is_ok());
        assert!(burst.plan(1_000_000, [("scheme", "dcqcn")]).is_ok());
    }

    #[test]
    fn of_flow_file__finds_a_tree_that_is_large_enough() {
        for (nodes, hosts) in [(2, 2), (3, 16), (16, 16), (17, 54), (128, 128)] {
            let text = format!("Nodes {nodes}\n0->1 id 1 start 2.5 size 700\n");
            let file = FlowFile::parse(&text).unwrap();
            let plan = Scenario::of_flow_file(&file, 1, [("rate", "25Gbit")]).unwrap();
            assert_eq!((plan.topology.hosts.len(), plan.flows.len()), (hosts, 1));
            assert_eq!(plan.topology.links[0].rate(), Rate::from_gbps(25));
        }
    }
}
