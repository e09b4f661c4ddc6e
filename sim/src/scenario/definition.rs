//! The definition of a scenario, and parts that several scenarios share.

use crate::params::{AgentChoice, Params, Value};
use crate::plan::Plan;
use crate::setup::Setup;
use crate::workload::Flow;
use spanwire_base::Dur;

/// A named simulation with parameters.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name, as in `spanwire sim run NAME`.
    pub name: &'static str,
    /// Its description, one sentence.
    pub about: &'static str,
    /// Adds its own parameters, or other defaults, to the common ones.
    pub(super) params: fn(Params) -> Params,
    pub(super) plan: fn(&Params, Setup) -> Plan,
}

/// Defaults of runs without payload.
pub(super) fn large(p: Params) -> Params {
    let of = vec!["real", "elided"];
    p.with("payload", Value::Word { word: "elided".to_owned(), of }, "elided: headers only")
        .with("message", Value::Bytes(1 << 20), "longest message, at least 8 bytes")
        .with("pfc", Value::Flag(true), "lossless: switches pause, hosts obey")
        .with("timeout", Value::Time(Dur::from_ms(67)), "local ACK timeout")
        .with("sample", Value::Time(Dur::from_us(100)), "time from one sample to the next")
}

/// With the parameters of agents.
pub(super) fn with_agents(p: Params) -> Params {
    let about = "agents of switches; `agent.NAME` sets one of their parameters";
    let qpns = Value::Word { word: "told".to_owned(), of: vec!["told", "learned"] };
    p.with(AGENT, Value::Agents(AgentChoice::default()), about).with(
        QPNS,
        qpns,
        "how switches know the queue pairs that send: from the simulation, or from packets",
    )
}

/// Sets messages of `bytes`, one outstanding at a time: no limit of messages applies to a flow that
/// is one.
pub(super) fn one_message(setup: &mut Setup, bytes: u64) {
    setup.message_bytes = u32::try_from(bytes.clamp(8, 1 << 30)).expect("at most 2^30");
    setup.outstanding = 1;
}

/// The bytes of the longest flow.
pub(super) fn longest(flows: &[Flow]) -> u64 {
    flows.iter().map(|flow| flow.bytes).max().unwrap_or(0)
}

/// The parameters of agents.
pub(super) const AGENT: &str = "agent";
pub(super) const QPNS: &str = "qpns";
