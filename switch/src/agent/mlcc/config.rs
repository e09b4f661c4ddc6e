//! Parameters of MLCC at a switch.

use crate::agent::api::{AgentPorts, Needs, Params, Scope};
use crate::agent::checks::{check_ports, check_time};
use crate::config::PortConfig;
use crate::error::{ConfigError, check_range};
use crate::units;
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Rate};

/// MLCC at the switch that connects a datacenter to others. Flows ask for it by telemetry stacks of
/// version 2; all others pass unchanged.
///
/// # Source
/// MLCC III.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MlccConfig {
    /// The ports that lead to other datacenters, counted from 0. All others lead inside: they need
    /// a rate, `int`, and queues by flow (`flows`) for class 0.
    pub outside: Vec<u8>,
    /// The round trip between this switch and the hosts of its datacenter without queues, 100 ns to
    /// 1 s: the telemetry of a flow goes back to its sender at most once in it. Default 22 us, for
    /// links of 1, 5 and 5 us.
    #[serde(with = "units")]
    pub rtt_d: Dur,
    /// The rate at which a flow is let in until its receiver has computed one: that of the
    /// receivers' access links. By default that of the port.
    #[serde(with = "units")]
    pub initial: Option<Rate>,
    /// Flows of the switch in both directions, 1 to 65536, in twice as many places. Default 4096.
    pub flows: u32,
}

impl Default for MlccConfig {
    fn default() -> Self {
        Self { outside: Vec::new(), rtt_d: Dur::from_us(22), initial: None, flows: 4096 }
    }
}

impl Params for MlccConfig {
    fn entry_bytes(&self) -> usize {
        super::flows::BYTES
    }

    fn side(&self) -> AgentPorts {
        AgentPorts::OutsideOfSome
    }

    fn ports(&self) -> &[u8] {
        &self.outside
    }

    fn ports_mut(&mut self) -> &mut Vec<u8> {
        &mut self.outside
    }

    fn needs(&self) -> Needs {
        let scope = Scope::Switch;
        Needs { scope, arrivals: true, feedback: true, telemetry: true, ..Needs::NONE }
    }

    fn validate(&self, all: &[PortConfig]) -> Result<(), ConfigError> {
        if self.outside.is_empty() {
            let what = "is empty; name the ports that lead to other datacenters";
            return Err(ConfigError::new("outside", what));
        }
        check_time("rtt_d", self.rtt_d, (Dur::from_ns(100), Dur::from_secs(1)))?;
        check_range("flows", self.flows, 1..=1 << 16)?;
        check_ports("outside", &self.outside, all)?;
        if self.outside.len() >= all.len() {
            let what = "names every port; leave those that lead into the datacenter";
            return Err(ConfigError::new("outside", what));
        }
        for (number, port) in (0..=u8::MAX).zip(all) {
            self.check_port(number, port)?;
        }
        Ok(())
    }
}

impl MlccConfig {
    fn check_port(&self, number: u8, port: &PortConfig) -> Result<(), ConfigError> {
        let error = |what: &str| {
            let remedy = format!("needs {what} at port {number} of the switch");
            Err(ConfigError::new("outside", remedy))
        };
        if port.rate.is_none() {
            return error("a rate (`rate`)");
        }
        if !port.int {
            return error("telemetry (`int = true`)");
        }
        let queue = &port.queues[usize::from(port.class_to_queue[0])];
        if !self.outside.contains(&number) && queue.flows.is_none() {
            return error("queues by flow (`flows`) for the queue of class 0");
        }
        Ok(())
    }
}
