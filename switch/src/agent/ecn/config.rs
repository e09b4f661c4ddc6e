//! Parameters of the agent that chooses marking thresholds.

use super::action::{Action, unit_bytes};
use super::policy::EcnModel;
use crate::agent::api::{AgentPorts, Needs, Params, Scope};
use crate::agent::checks::{check_ports, check_time};
use crate::config::{EcnConfig, PortConfig};
use crate::error::{ConfigError, check_range};
use crate::units;
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Rate};

/// The agent that chooses the marking thresholds of its ports by networks that have learned.
///
/// # Source
/// LAECN IV.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EcnAgentConfig {
    /// The ports whose thresholds it chooses, counted from 0. Each is decided by itself, and needs
    /// a rate.
    pub ports: Vec<u8>,
    /// The queue of each port, counted from 0. It needs `ecn`. Default 0.
    pub queue: u8,
    /// The networks: a name, or the path of a file. Default `laecn`.
    pub model: EcnModel,
    /// The round trip of the network, 1 us to 1 s. Thresholds are in proportion to it and to the
    /// rate. Default 8 us.
    #[serde(with = "units")]
    pub rtt: Dur,
    /// The time from one decision about a port to the next, 1 us to 10 s; by default 15 round trips
    /// while a flow of more than 100 KB passes, and otherwise 5.
    #[serde(with = "units")]
    pub interval: Option<Dur>,
    /// The time that decisions take. Default none.
    pub cpu: EcnCpu,
    /// Flows of a port whose bytes are counted, 1 to 65536, in twice as many places. Default 256.
    pub flows: u32,
    /// Thresholds do not change. Default false.
    pub hold: bool,
    /// Random choices, and a record of all, for training. Default none.
    #[serde(skip)]
    pub explore: Option<EcnExplore>,
}

/// The time that decisions take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EcnCpu {
    /// None.
    #[default]
    Zero,
    /// The switch works them off one by one at 1 GFLOP/s. A port whose decision is not finished
    /// skips the next.
    Delay,
}

/// Random choices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EcnExplore {
    /// The probability of each of a decision and of an action being random, in millionths.
    pub ppm: u32,
    /// The seed of these choices.
    pub seed: u64,
}

impl Default for EcnAgentConfig {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            queue: 0,
            model: EcnModel::default(),
            rtt: Dur::from_us(8),
            interval: None,
            cpu: EcnCpu::default(),
            flows: 256,
            hold: false,
            explore: None,
        }
    }
}

impl Params for EcnAgentConfig {
    fn entry_bytes(&self) -> usize {
        super::flows::BYTES
    }

    fn side(&self) -> AgentPorts {
        AgentPorts::Any
    }

    fn ports(&self) -> &[u8] {
        &self.ports
    }

    fn ports_mut(&mut self) -> &mut Vec<u8> {
        &mut self.ports
    }

    fn needs(&self) -> Needs {
        let (scope, queue) = (Scope::Ports, Some(self.queue));
        Needs { scope, queue, meter: true, slow_timers: true, ..Needs::NONE }
    }

    fn set_hold(&mut self, hold: bool) {
        self.hold = hold;
    }

    fn validate(&self, all: &[PortConfig]) -> Result<(), ConfigError> {
        if self.ports.is_empty() {
            return Err(ConfigError::new("ports", "is empty; name the ports to control"));
        }
        check_time("rtt", self.rtt, (Dur::from_us(1), Dur::from_secs(1)))?;
        if let Some(interval) = self.interval {
            check_time("interval", interval, (Dur::from_us(1), Dur::from_secs(10)))?;
        }
        check_range("flows", self.flows, 1..=1 << 16)?;
        if !self.model.is_known() {
            let what = format!(
                "is {:?}, which is no model; choose one of {}, or the path of a file",
                self.model.name(),
                EcnModel::NAMES.join(", ")
            );
            return Err(ConfigError::new("model", what));
        }
        check_ports("ports", &self.ports, all)?;
        for port in &self.ports {
            let config = &all[usize::from(*port)];
            let Some(queue) = config.queues.get(usize::from(self.queue)) else {
                let what = format!(
                    "is {}, but port {port} has {} queues, counted from 0",
                    self.queue,
                    config.queues.len()
                );
                return Err(ConfigError::new("queue", what));
            };
            if queue.ecn.is_none() {
                let what = format!(
                    "is {}, which at port {port} has no thresholds; add ecn to it",
                    self.queue
                );
                return Err(ConfigError::new("queue", what));
            }
            if config.rate.is_none() {
                let what = format!("has port {port}, which has no rate; add one");
                return Err(ConfigError::new("ports", what));
            }
        }
        Ok(())
    }
}

impl EcnAgentConfig {
    /// The thresholds at a place of the list among which networks choose, at a port of this rate;
    /// `None` beyond the list.
    #[must_use]
    pub fn thresholds(place: u64, rate: Rate, rtt: Dur) -> Option<EcnConfig> {
        let action = usize::try_from(place).ok().and_then(Action::new)?;
        Some(action.thresholds(unit_bytes(rate, rtt)))
    }

    /// The length of intervals, with a long flow or without.
    #[inline]
    pub(super) fn interval_of(&self, is_long: bool) -> Dur {
        self.interval.unwrap_or(self.rtt * if is_long { LONG_RTTS } else { SHORT_RTTS })
    }
}

/// Round trips of an interval with a long flow, and without.
///
/// # Source
/// LAECN IV-C.
const LONG_RTTS: u64 = 15;
const SHORT_RTTS: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::kind::AgentConfig;
    use crate::config::{QueueConfig, SwitchConfig};

    fn error(change: impl Fn(&mut EcnAgentConfig)) -> String {
        let mut ecn = EcnAgentConfig { ports: vec![0], ..EcnAgentConfig::default() };
        change(&mut ecn);
        let mut port = PortConfig::new(Rate::from_gbps(25));
        port.queues[0].ecn = Some(EcnConfig::step(1000));
        let plain = PortConfig::new(Rate::from_gbps(25));
        let no_rate = PortConfig { rate: None, ..port.clone() };
        port.queues.push(QueueConfig::default());
        let mut config = SwitchConfig::new(vec![port, plain, no_rate]);
        config.agents = vec![AgentConfig::Ecn(ecn)];
        config.validate().map_or_else(|error| error.to_string(), |()| "valid".to_owned())
    }

    #[test]
    fn validate__names_the_key_the_value_and_what_would_be_right() {
        type Change = fn(&mut EcnAgentConfig);
        let cases: [(Change, &str); 9] = [
            (|_| (), "valid"),
            (|c| c.ports.clear(), "agents[0].ports: is empty; name the ports to control"),
            (|c| c.ports = vec![3], "agents[0].ports[0]: is 3, but the switch has 3 ports"),
            (
                |c| c.interval = Some(Dur::from_ns(999)),
                "agents[0].interval: is 999ns; choose 1us to 10s",
            ),
            (|c| c.rtt = Dur::from_ns(10), "agents[0].rtt: is 10ns; choose 1us to 1s"),
            (
                |c| c.queue = 1,
                "agents[0].queue: is 1, which at port 0 has no thresholds; add ecn to it",
            ),
            (
                |c| c.ports = vec![1],
                "agents[0].queue: is 0, which at port 1 has no thresholds; add ecn to it",
            ),
            (|c| c.ports = vec![2], "agents[0].ports: has port 2, which has no rate; add one"),
            (
                |c| c.model = EcnModel::named("acc"),
                "agents[0].model: is \"acc\", which is no model; choose one of laecn, or the path \
                 of a file",
            ),
        ];
        for (change, want) in cases {
            assert_eq!(error(change), want);
        }
    }

    #[test]
    fn interval_of__is_15_or_5_round_trips_unless_it_is_set() {
        let config = EcnAgentConfig::default();
        let of = |config: &EcnAgentConfig| [true, false].map(|long| config.interval_of(long));
        assert_eq!(of(&config), [120, 40].map(Dur::from_us));
        let fixed = EcnAgentConfig { interval: Some(Dur::from_us(7)), ..config };
        assert_eq!(of(&fixed), [7, 7].map(Dur::from_us));
    }
}
