//! The agents of one switch: their ports, and checks of all.

use super::api::{AgentPorts, Scope};
use super::kind::AgentConfig;
use crate::config::PortConfig;
use crate::error::ConfigError;
use spanwire_base::Rate;

impl AgentConfig {
    /// Bytes of a flow in its table.
    #[must_use]
    pub fn entry_bytes(&self) -> usize {
        self.params().entry_bytes()
    }

    /// Which ports it names.
    #[must_use]
    pub fn side(&self) -> AgentPorts {
        self.params().side()
    }

    /// The ports that it names.
    #[must_use]
    pub fn ports(&self) -> &[u8] {
        self.params().ports()
    }

    /// The same agent at other ports.
    #[must_use]
    pub fn with_ports(mut self, ports: Vec<u8>) -> Self {
        *self.params_mut().ports_mut() = ports;
        self
    }

    /// The same agent with thresholds for ports of the rate `to`, if they are for the rate `from`
    /// now and depend on it.
    #[must_use]
    pub fn scaled(mut self, from: Rate, to: Rate) -> Self {
        self.params_mut().scale(from, to);
        self
    }

    /// As [`Agent::set_hold`](super::api::Agent::set_hold).
    pub(crate) fn set_hold(&mut self, hold: bool) {
        self.params_mut().set_hold(hold);
    }

    /// True if it originates feedback.
    pub(crate) fn has_feedback(&self) -> bool {
        self.params().needs().feedback
    }

    /// The ports at which it needs a controlled queue, and beside which queue of which weight.
    pub(crate) fn controlled(&self) -> Option<(&[u8], u8, u32)> {
        let (queue, weight) = self.params().needs().controlled?;
        Some((self.ports(), queue, weight))
    }

    /// Validates the agents of a switch with these ports.
    pub(crate) fn validate_all(agents: &[Self], all: &[PortConfig]) -> Result<(), ConfigError> {
        if agents.len() > AGENTS_MAX {
            let what = format!("has {} entries; choose at most {AGENTS_MAX}", agents.len());
            return Err(ConfigError::new("agents", what));
        }
        let alone = agents.iter().position(|agent| agent.params().needs().scope == Scope::Switch);
        if let Some(n) = alone.filter(|_| agents.len() > 1) {
            let what = "watches every port of its switch, which can have no other agent";
            return Err(ConfigError::new(format!("agents[{n}]"), what));
        }
        for (n, agent) in agents.iter().enumerate() {
            agent.params().validate(all).map_err(|e| e.within(&format!("agents[{n}]")))?;
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
}

/// Agents of a switch.
const AGENTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::checks::ratio;
    use crate::agent::nsf::config::NsfConfig;
    use crate::agent::pacc::config::PaccConfig;
    use crate::config::{QueueConfig, SwitchConfig};
    use spanwire_base::Dur;

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
