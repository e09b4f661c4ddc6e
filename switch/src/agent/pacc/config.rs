//! Parameters of PACC.

use crate::agent::api::{AgentPorts, Needs, Params};
use crate::agent::checks::{check_ports, check_time, ratio};
use crate::config::PortConfig;
use crate::error::{ConfigError, check_range};
use crate::units::{self, Human, Ratio};
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Rate};

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

impl Params for PaccConfig {
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
        Needs { queue: Some(self.queue), feedback: true, ..Needs::NONE }
    }

    fn scale(&mut self, from: Rate, to: Rate) {
        let scaled = |bytes: u64| {
            let product = u128::from(bytes) * u128::from(to.as_bps());
            u64::try_from(product / u128::from(from.as_bps())).unwrap_or(u64::MAX)
        };
        self.threshold_bytes = scaled(self.threshold_bytes);
        self.burst_bytes = scaled(self.burst_bytes);
        self.flow_bytes = scaled(self.flow_bytes);
    }

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
