//! Parameters of agents.

use super::checks::{check_ports, check_time, ratio};
use super::ecn::config::EcnAgentConfig;
use super::mlcc::config::MlccConfig;
use super::ndt::config::NdtConfig;
use crate::config::PortConfig;
use crate::error::{ConfigError, check_range};
use crate::units::{self, Human, Ratio};
use serde::{Deserialize, Serialize};
use spanwire_base::Dur;

/// An agent and its parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum AgentConfig {
    /// CNPs to the senders of a long queue, by its length and growth.
    Pacc(PaccConfig),
    /// Pseudo-ACKs to the senders of packets that are late at the border.
    Nsf(NsfConfig),
    /// A queue of their own for flows that are congested behind the switch.
    Ndt(NdtConfig),
    /// Marking thresholds by networks that have learned.
    Ecn(EcnAgentConfig),
    /// Near telemetry and credit at the border of a datacenter.
    Mlcc(MlccConfig),
}

/// NSF, Reflex's near-source feedback: a switch at the border of a datacenter sends pseudo-ACKs to
/// the senders of SR data that arrive late, so that they learn of queues nearby long before an
/// acknowledgement from far away.
///
/// # Source
/// Reflex III-B.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NsfConfig {
    /// The ports that lead out of the datacenter, counted from 0: packets that leave by them are
    /// watched.
    pub outside: Vec<u8>,
    /// The delay from the sender to this switch above which a packet is late, 1 ns to 1 s. Default
    /// 5 us, of which 3.24 us are those of three links at 100 Gbit/s.
    #[serde(with = "units")]
    pub threshold: Dur,
    /// The least interval of pseudo-ACKs of a flow, 100 ns to 1 s. Default 5 us, for TIMELY; Swift
    /// has 3 us.
    #[serde(with = "units")]
    pub interval: Dur,
    /// Pseudo-ACKs after the last late packet, 0 to 1000. Default 5. They are counted in
    /// pseudo-ACKs: so many packets may be over before an interval is.
    pub cool: u32,
    /// The clock of senders. Default that of the switch.
    pub clock: NsfClock,
    /// Added to a relative delay: that of a path without queues. Default none.
    #[serde(with = "units")]
    pub base: Dur,
    /// Flows of a port, 1 to 65536, in twice as many places. Default 4096.
    pub flows: u32,
}

/// The clock of senders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NsfClock {
    /// Is that of the switch.
    #[default]
    Synced,
    /// Is not: a delay is relative to the least one of its flow.
    Relative,
}

impl Default for NsfConfig {
    fn default() -> Self {
        Self {
            outside: Vec::new(),
            threshold: Dur::from_us(5),
            interval: Dur::from_us(5),
            cool: 5,
            clock: NsfClock::default(),
            base: Dur::ZERO,
            flows: 4096,
        }
    }
}

/// PACC: a switch that sends CNPs to the senders of a long queue, as many as its length and growth
/// require, so that unmodified DCQCN hosts keep it short and their shares equal.
///
/// # Source
/// PACC III.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaccConfig {
    /// The ports whose queues it controls, counted from 0. Each is controlled alone.
    pub ports: Vec<u8>,
    /// The queue of each port, counted from 0. Default 0.
    pub queue: u8,
    /// T: the period of the control law, 1 us to 1 s. Default 80 us.
    #[serde(with = "units")]
    pub period: Dur,
    /// The interval of CNPs to one flow, 1 us to the period. Default 4 us, in which DCQCN of
    /// adapters takes one.
    #[serde(with = "units")]
    pub spacing: Dur,
    /// The gain of the queue's length above the threshold, CNPs per kilobyte and period. Default
    /// 1/20.
    pub beta1: Ratio,
    /// The gain of its growth. Default 1/10.
    pub beta2: Ratio,
    /// `Q_th`: the reference length of the queue. Default 125 kB, half a period at 25 Gbit/s; other
    /// rates need others.
    #[serde(with = "units")]
    pub threshold_bytes: u64,
    /// `Q_burst`: a mean length up to this is a burst, and causes no CNP. Default 4 kB.
    #[serde(with = "units")]
    pub burst_bytes: u64,
    /// `B_th`: a flow that sends less in a period is forgotten. Default 4 kB.
    #[serde(with = "units")]
    pub flow_bytes: u64,
    /// w: the weight of a new sample of the mean length, at most 1. Default 9/10.
    pub weight: Ratio,
    /// The law is also computed one spacing after the queue has risen above the threshold: a burst
    /// may be over before the period is. Default true.
    pub edge: bool,
    /// It is computed again after each spacing while the queue is above the threshold. Default
    /// false.
    pub every: bool,
    /// The fraction of a CNP that a flow did not get is added in the next period; otherwise many
    /// flows get none. Default true.
    pub carry: bool,
    /// Samples of the mean length have this interval; by default the period.
    #[serde(with = "units")]
    pub q_avg_every: Option<Dur>,
    /// Flows of a port, 1 to 65536, in twice as many places. Default 4096.
    pub flows: u32,
}

impl Default for PaccConfig {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            queue: 0,
            period: Dur::from_us(80),
            spacing: Dur::from_us(4),
            beta1: ratio(1, 20),
            beta2: ratio(1, 10),
            threshold_bytes: 125_000,
            burst_bytes: 4_000,
            flow_bytes: 4_000,
            weight: ratio(9, 10),
            edge: true,
            every: false,
            carry: true,
            q_avg_every: None,
            flows: 4096,
        }
    }
}

impl AgentConfig {
    /// The ports that it watches.
    #[must_use]
    pub fn ports(&self) -> &[u8] {
        match self {
            Self::Pacc(pacc) => &pacc.ports,
            Self::Nsf(nsf) => &nsf.outside,
            Self::Ndt(ndt) => &ndt.inside,
            Self::Ecn(ecn) => &ecn.ports,
            Self::Mlcc(mlcc) => &mlcc.outside,
        }
    }

    /// True if it originates feedback.
    pub(crate) fn has_feedback(&self) -> bool {
        !matches!(self, Self::Ecn(_))
    }

    /// Validates the agents of a switch with these ports.
    pub(crate) fn validate_all(agents: &[Self], all: &[PortConfig]) -> Result<(), ConfigError> {
        if agents.len() > AGENTS_MAX {
            let what = format!("has {} entries; choose at most {AGENTS_MAX}", agents.len());
            return Err(ConfigError::new("agents", what));
        }
        let mlcc = agents.iter().position(|agent| matches!(agent, Self::Mlcc(_)));
        if let Some(n) = mlcc.filter(|_| agents.len() > 1) {
            let what = "watches every port of its switch, which can have no other agent";
            return Err(ConfigError::new(format!("agents[{n}]"), what));
        }
        for (n, agent) in agents.iter().enumerate() {
            agent.validate(all).map_err(|e| e.within(&format!("agents[{n}]")))?;
            for port in agent.ports() {
                let others = agents[..n].iter().filter(|other| other.ports().contains(port));
                if others.count() > 0 {
                    let what = format!("has port {port}, which another agent controls already");
                    return Err(ConfigError::new(format!("agents[{n}].ports"), what));
                }
            }
        }
        Ok(())
    }

    fn validate(&self, all: &[PortConfig]) -> Result<(), ConfigError> {
        match self {
            Self::Pacc(pacc) => pacc.validate(all),
            Self::Nsf(nsf) => nsf.validate(all),
            Self::Ndt(ndt) => ndt.validate(all),
            Self::Ecn(ecn) => ecn.validate(all),
            Self::Mlcc(mlcc) => mlcc.validate(all),
        }
    }
}

impl PaccConfig {
    fn validate(&self, all: &[PortConfig]) -> Result<(), ConfigError> {
        if self.ports.is_empty() {
            return Err(ConfigError::new("ports", "is empty; name the ports to control"));
        }
        check_time("period", self.period, (Dur::from_us(1), Dur::from_secs(1)))?;
        check_time("spacing", self.spacing, (Dur::from_us(1), self.period))?;
        if let Some(every) = self.q_avg_every {
            check_time("q_avg_every", every, (Dur::from_us(1), self.period))?;
        }
        if self.weight.of(1 << 20) > 1 << 20 {
            return Err(ConfigError::new(
                "weight",
                "is above 1; choose a fraction such as \"9/10\"",
            ));
        }
        check_range("flows", self.flows, 1..=1 << 16)?;
        check_ports("ports", &self.ports, all)?;
        for port in &self.ports {
            let port_config = &all[usize::from(*port)];
            let Some(queue) = port_config.queues.get(usize::from(self.queue)) else {
                let what = format!(
                    "is {}, but port {port} has {} queues, counted from 0",
                    self.queue,
                    port_config.queues.len()
                );
                return Err(ConfigError::new("queue", what));
            };
            if self.threshold_bytes >= queue.limit_bytes {
                let what = format!(
                    "is {}, but the queue of port {port} holds {}; choose less",
                    self.threshold_bytes.show(),
                    queue.limit_bytes.show()
                );
                return Err(ConfigError::new("threshold_bytes", what));
            }
        }
        Ok(())
    }
}

impl NsfConfig {
    fn validate(&self, all: &[PortConfig]) -> Result<(), ConfigError> {
        if self.outside.is_empty() {
            let what = "is empty; name the ports that lead out of the datacenter";
            return Err(ConfigError::new("outside", what));
        }
        check_time("threshold", self.threshold, (Dur::from_ns(1), Dur::from_secs(1)))?;
        check_time("interval", self.interval, (Dur::from_ns(100), Dur::from_secs(1)))?;
        check_range("cool", self.cool, 0..=1000)?;
        check_range("flows", self.flows, 1..=1 << 16)?;
        check_ports("outside", &self.outside, all)
    }
}

/// Agents of a switch.
pub(super) const AGENTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{QueueConfig, SwitchConfig};

    fn error(change: impl Fn(&mut PaccConfig)) -> String {
        let mut pacc = PaccConfig { ports: vec![0], ..PaccConfig::default() };
        change(&mut pacc);
        let mut config = SwitchConfig::new(vec![PortConfig::default(); 2]);
        config.agents = vec![AgentConfig::Pacc(pacc)];
        config.validate().map_or_else(|error| error.to_string(), |()| "valid".to_owned())
    }

    #[test]
    fn validate__names_the_key_the_value_and_what_would_be_right() {
        assert_eq!(error(|_| ()), "valid");
        type Change = fn(&mut PaccConfig);
        let cases: [(Change, &str); 8] = [
            (|c| c.ports.clear(), "agents[0].ports: is empty; name the ports to control"),
            (|c| c.ports = vec![0, 2], "agents[0].ports[1]: is 2, but the switch has 2 ports"),
            (|c| c.ports = vec![1, 1], "agents[0].ports[1]: is 1 again"),
            (|c| c.queue = 3, "agents[0].queue: is 3, but port 0 has 1 queues, counted from 0"),
            (|c| c.period = Dur::from_us(3), "agents[0].spacing: is 4us; choose 1us to 3us"),
            (
                |c| c.weight = ratio(3, 2),
                "agents[0].weight: is above 1; choose a fraction such as \"9/10\"",
            ),
            (|c| c.flows = 0, "agents[0].flows: is 0; choose 1 to 65536"),
            (
                |c| c.threshold_bytes = 2_000_000,
                "agents[0].threshold_bytes: is 2MB, but the queue of port 0 holds 1MiB; choose \
                 less",
            ),
        ];
        for (change, want) in cases {
            assert_eq!(error(change), want);
        }
    }

    #[test]
    fn validate_all__a_port_has_one_agent_and_a_switch_eight() {
        let on =
            |port| AgentConfig::Pacc(PaccConfig { ports: vec![port], ..PaccConfig::default() });
        let error = |agents: Vec<AgentConfig>| {
            let mut config = SwitchConfig::new(vec![PortConfig::default(); 9]);
            config.agents = agents;
            config.validate().map_err(|error| error.to_string())
        };
        let twice = "agents[1].ports: has port 3, which another agent controls already";
        assert_eq!(error(vec![on(3), on(3)]), Err(twice.to_owned()));
        let many = "agents: has 9 entries; choose at most 8";
        assert_eq!(error((0..9).map(on).collect()), Err(many.to_owned()));
        assert_eq!(error((0..8).map(on).collect()), Ok(()));
    }

    #[test]
    fn deserialize__defaults_and_unknown_keys() {
        let parsed = |text: &str| serde_json::from_str::<AgentConfig>(text);
        let AgentConfig::Pacc(pacc) = parsed(r#"{"kind": "pacc", "ports": [1]}"#).unwrap() else {
            panic!("PACC")
        };
        assert_eq!(pacc, PaccConfig { ports: vec![1], ..PaccConfig::default() });
        let text = r#"{"kind": "pacc", "ports": [1], "period": "2ms", "beta1": "1/8"}"#;
        let AgentConfig::Pacc(pacc) = parsed(text).unwrap() else { panic!("PACC") };
        assert_eq!((pacc.period, pacc.beta1), (Dur::from_ms(2), ratio(1, 8)));
        let unknown = parsed(r#"{"kind": "pac", "ports": [1]}"#).unwrap_err().to_string();
        assert!(unknown.contains("`pac`") && unknown.contains("`pacc`"), "{unknown}");
        let unknown = parsed(r#"{"kind": "pacc", "port": 1}"#).unwrap_err().to_string();
        assert!(unknown.contains("`port`") && unknown.contains("`ports`"), "{unknown}");
    }

    #[test]
    fn validate__nsf_needs_ports_that_lead_outside() {
        let error = |nsf: NsfConfig| {
            let mut config = SwitchConfig::new(vec![PortConfig::default(); 2]);
            config.agents = vec![AgentConfig::Nsf(nsf)];
            config.validate().map_err(|error| error.to_string())
        };
        let outside = |outside| NsfConfig { outside, ..NsfConfig::default() };
        assert_eq!(error(outside(vec![1])), Ok(()));
        let none = "agents[0].outside: is empty; name the ports that lead out of the datacenter";
        assert_eq!(error(outside(Vec::new())), Err(none.to_owned()));
        let far = "agents[0].outside[0]: is 2, but the switch has 2 ports";
        assert_eq!(error(outside(vec![2])), Err(far.to_owned()));
        let often = NsfConfig { interval: Dur::from_ns(5), ..outside(vec![0]) };
        assert_eq!(error(often), Err("agents[0].interval: is 5ns; choose 100ns to 1s".to_owned()));
    }

    #[test]
    fn validate__a_port_without_room_for_a_queue_of_feedback_is_refused() {
        let full = PortConfig { queues: vec![QueueConfig::default(); 8], ..PortConfig::default() };
        let mut config = SwitchConfig::new(vec![PortConfig::default(), full]);
        let pacc = PaccConfig { ports: vec![0], ..PaccConfig::default() };
        config.agents = vec![AgentConfig::Pacc(pacc)];
        let error = config.validate().unwrap_err().to_string();
        assert!(error.starts_with("ports[1].queues: ") && error.contains("feedback"), "{error}");
    }
}
