//! Parameters of NSF.

use crate::agent::api::{AgentPorts, Needs, Params};
use crate::agent::checks::{check_ports, check_time};
use crate::config::PortConfig;
use crate::error::{ConfigError, check_range};
use crate::units;
use serde::{Deserialize, Serialize};
use spanwire_base::Dur;

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

impl Params for NsfConfig {
    fn entry_bytes(&self) -> usize {
        super::flows::BYTES
    }

    fn side(&self) -> AgentPorts {
        AgentPorts::Outside
    }

    fn ports(&self) -> &[u8] {
        &self.outside
    }

    fn ports_mut(&mut self) -> &mut Vec<u8> {
        &mut self.outside
    }

    fn needs(&self) -> Needs {
        Needs { feedback: true, ..Needs::NONE }
    }

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
