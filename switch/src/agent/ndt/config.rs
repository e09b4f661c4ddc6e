//! Parameters of NDT.

use crate::agent::api::{AgentPorts, Needs, Params, Scope};
use crate::agent::checks::{check_ports, check_time, ratio};
use crate::config::{MAX_QUEUES, PortConfig};
use crate::error::{ConfigError, check_range};
use crate::units::{self, Ratio};
use serde::{Deserialize, Serialize};
use spanwire_base::Dur;

/// NDT, Reflex's near-destination throttling: a switch at the border of a datacenter measures the
/// round trip from itself to the receivers of SR data and back. The packets of flows for which it
/// is too long go to a queue of their own, the controlled one, with a small share of the port.
///
/// # Source
/// Reflex III-D.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NdtConfig {
    /// The ports that lead into the datacenter, counted from 0: data that came in by other ports
    /// and leave by these are watched.
    pub inside: Vec<u8>,
    /// The queue of data at each of them, counted from 0. Default 0. The controlled queue is added
    /// beside it, with the same limits and marks, and pauses of its classes apply to both.
    pub queue: u8,
    /// The round trip above which a flow is congested, without the time that the receiver took to
    /// acknowledge; 1 ns to 1 s. Default 10 us, of which 6.5 us are those of six links at 100
    /// Gbit/s.
    #[serde(with = "units")]
    pub threshold: Dur,
    /// Packets of the normal queue for each of the controlled one while both have packets, 1 to
    /// 1000. Default 8.
    pub weight: u32,
    /// The controlled queues pause if more than this part of the active flows is congested, at most
    /// 1. Default 7/10.
    pub ratio: Ratio,
    /// The ports whose flows are counted for `ratio`, and whose controlled queues pause. Default
    /// all inner ports.
    pub pause_scope: PauseScope,
    /// The packets that leave after a pause before the next one. Default all that it has held.
    pub pause_round: PauseRound,
    /// While a controlled queue pauses, one packet of it leaves in each `threshold`, whose
    /// acknowledgement can show that its flow has recovered. Default false: the paper's queue
    /// "suspends transmission entirely".
    pub pause_probe: bool,
    /// A flow is active for this time after each of its packets, 1 us to 1 s. Default 100 us.
    #[serde(with = "units")]
    pub active: Dur,
    /// A pause ends when a flow recovers, or after this time, 1 us to 1 s. Default 500 us.
    #[serde(with = "units")]
    pub max_pause: Dur,
    /// Flows of all ports together, 1 to 65536, in twice as many places. Default 4096.
    pub flows: u32,
}

/// The ports that pause together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseScope {
    /// Each port by itself, by the flows that pass it.
    Port,
    /// All inner ports of the switch, by the flows of all.
    #[default]
    Switch,
}

/// The packets of a port that leave before its next pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseRound {
    /// One of the controlled queue.
    Packet,
    /// All that the last pause has held, and a full turn of both queues: a packet waits for one
    /// pause at most.
    #[default]
    Held,
}

impl Default for NdtConfig {
    fn default() -> Self {
        Self {
            inside: Vec::new(),
            queue: 0,
            threshold: Dur::from_us(10),
            weight: 8,
            ratio: ratio(7, 10),
            pause_scope: PauseScope::default(),
            pause_round: PauseRound::default(),
            pause_probe: false,
            active: Dur::from_us(100),
            max_pause: Dur::from_us(500),
            flows: 4096,
        }
    }
}

impl Params for NdtConfig {
    fn entry_bytes(&self) -> usize {
        super::flows::BYTES
    }

    fn side(&self) -> AgentPorts {
        AgentPorts::Inside
    }

    fn ports(&self) -> &[u8] {
        &self.inside
    }

    fn ports_mut(&mut self) -> &mut Vec<u8> {
        &mut self.inside
    }

    fn needs(&self) -> Needs {
        let controlled = Some((self.queue, self.weight));
        Needs { scope: Scope::Ports, arrivals: true, feedback: true, controlled, ..Needs::NONE }
    }

    fn validate(&self, all: &[PortConfig]) -> Result<(), ConfigError> {
        if self.inside.is_empty() {
            let what = "is empty; name the ports that lead into the datacenter";
            return Err(ConfigError::new("inside", what));
        }
        let second = Dur::from_secs(1);
        check_time("threshold", self.threshold, (Dur::from_ns(1), second))?;
        check_range("weight", self.weight, 1..=1000)?;
        if self.ratio.of(1 << 20) > 1 << 20 {
            let what = "is above 1; choose a fraction such as \"7/10\"";
            return Err(ConfigError::new("ratio", what));
        }
        check_time("active", self.active, (Dur::from_us(1), second))?;
        check_time("max_pause", self.max_pause, (Dur::from_us(1), second))?;
        check_range("flows", self.flows, 1..=1 << 16)?;
        check_ports("inside", &self.inside, all)?;
        let each = |port: &u8| self.check_port(*port, &all[usize::from(*port)]);
        self.inside.iter().try_for_each(each)
    }
}

impl NdtConfig {
    fn check_port(&self, number: u8, port: &PortConfig) -> Result<(), ConfigError> {
        let error = |what| Err(ConfigError::new("queue", what));
        let queues = &port.queues;
        let Some(normal) = queues.get(usize::from(self.queue)) else {
            return error(format!(
                "is {}, but port {number} has {} queues, counted from 0",
                self.queue,
                queues.len()
            ));
        };
        if normal.flows.is_some() {
            return error(format!(
                "is {}, but that queue of port {number} has queues for each flow; choose another",
                self.queue
            ));
        }
        let shares = queues.iter().filter(|other| other.priority == normal.priority).count();
        if shares > 1 {
            return error(format!(
                "is {}, but port {number} has another queue of the same priority; choose different \
                 priorities, since both halves of this queue share by packets",
                self.queue
            ));
        }
        let needed = queues.len() + 1 + port.feedback_queues();
        if needed > MAX_QUEUES {
            return error(format!(
                "needs one more queue at port {number}, which would have {needed} with those of \
                 agents; at most {MAX_QUEUES} are possible"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::kind::AgentConfig;
    use crate::config::{QueueConfig, SwitchConfig};

    fn error(ports: Vec<PortConfig>, change: impl Fn(&mut NdtConfig)) -> Result<(), String> {
        let mut ndt = NdtConfig { inside: vec![1], ..NdtConfig::default() };
        change(&mut ndt);
        let mut config = SwitchConfig::new(ports);
        config.agents = vec![AgentConfig::Ndt(ndt)];
        config.validate().map_err(|error| error.to_string())
    }

    fn two() -> Vec<PortConfig> {
        vec![PortConfig::default(); 2]
    }

    #[test]
    fn validate__names_key_value_and_what_would_be_right() {
        assert_eq!(error(two(), |_| ()), Ok(()));
        let none = error(two(), |ndt| ndt.inside.clear()).unwrap_err();
        assert_eq!(
            none,
            "agents[0].inside: is empty; name the ports that lead into the datacenter"
        );
        let far = error(two(), |ndt| ndt.inside = vec![2]).unwrap_err();
        assert_eq!(far, "agents[0].inside[0]: is 2, but the switch has 2 ports");
        let zero = error(two(), |ndt| ndt.weight = 0).unwrap_err();
        assert!(zero.starts_with("agents[0].weight: is 0"), "{zero}");
        let above = error(two(), |ndt| ndt.ratio = ratio(3, 2)).unwrap_err();
        assert!(above.starts_with("agents[0].ratio: is above 1"), "{above}");
        let queue = error(two(), |ndt| ndt.queue = 1).unwrap_err();
        assert_eq!(queue, "agents[0].queue: is 1, but port 1 has 1 queues, counted from 0");
    }

    #[test]
    fn validate__the_queue_shares_its_priority_with_no_other() {
        let mut ports = two();
        ports[1].queues = vec![QueueConfig::default(); 2];
        let same = error(ports.clone(), |_| ()).unwrap_err();
        assert!(same.contains("another queue of the same priority"), "{same}");
        ports[1].queues[1].priority = 1;
        assert_eq!(error(ports.clone(), |_| ()), Ok(()));
        ports[1].queues =
            (0..7).map(|priority| QueueConfig { priority, ..QueueConfig::default() }).collect();
        let many = error(ports, |_| ()).unwrap_err();
        assert!(many.contains("would have 9 with those of agents"), "{many}");
    }
}
