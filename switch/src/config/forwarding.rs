//! Configuration of forwarding.

use crate::error::{ConfigError, check_range};
use crate::lpm::Prefix;
use crate::units;
use serde::{Deserialize, Serialize};
use spanwire_base::Dur;
use spanwire_wire::MacAddr;

/// Configuration of forwarding. A frame is handled by the first rule that applies:
///
/// 1. A group address as destination: flooded, if `flood`.
/// 2. IP with a matching route in `routes`: routed (TTL decremented, MAC addresses of the next hop
///    if it has one).
/// 3. The destination's MAC address is in `macs` or learned: switched to its port.
/// 4. Flooded, if `flood`; otherwise dropped, counted as `drop_no_route`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardingConfig {
    /// Routes by longest prefix. Default none.
    pub routes: Vec<Route>,
    /// Static MAC addresses. Default none.
    pub macs: Vec<StaticMac>,
    /// Learns MAC addresses from the source addresses of frames. Default true.
    pub learning: bool,
    /// Floods broadcast, multicast and unknown unicast frames to every other port. Default true.
    pub flood: bool,
    /// Maximum learned addresses, 4..=1048576, rounded up to a power of two. Default 4096.
    pub max_macs: u32,
    /// Ageing time of a learned address since its last frame. Default 300 s (IEEE 802.1Q).
    #[serde(with = "units")]
    pub ageing: Dur,
}

/// A route to a network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The network.
    #[serde(with = "units")]
    pub to: Prefix,
    /// Next hops, 1..=128; naming one twice doubles its share.
    pub via: Vec<Hop>,
    /// How packets select a next hop. Default by hash.
    #[serde(default)]
    pub spread: Spread,
}

/// A static MAC address.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticMac {
    /// The address, not a group address.
    #[serde(with = "units")]
    pub mac: MacAddr,
    /// Its ports, 1..=128.
    pub ports: Vec<u8>,
    /// How frames select a port. Default by hash.
    #[serde(default)]
    pub spread: Spread,
}

/// A next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hop {
    /// The port.
    pub port: u8,
    /// The next hop's MAC address. None: the MAC addresses do not change, which is sufficient with
    /// point-to-point links. Default none.
    #[serde(with = "units", default)]
    pub mac: Option<MacAddr>,
}

/// How frames select among equal-cost paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// All frames of a flow (5-tuple) take one path: ECMP.
    #[default]
    Hash,
    /// Each frame takes a random path.
    Random,
    /// Frames take the paths round robin.
    RoundRobin,
}

impl Default for ForwardingConfig {
    fn default() -> Self {
        Self {
            routes: Vec::new(),
            macs: Vec::new(),
            learning: true,
            flood: true,
            max_macs: 4_096,
            ageing: Dur::from_secs(300),
        }
    }
}

impl ForwardingConfig {
    /// Routes only, without learning and flooding, as in simulated fabrics.
    #[must_use]
    pub fn routed(routes: Vec<Route>) -> Self {
        Self { routes, learning: false, flood: false, ..Self::default() }
    }

    pub(crate) fn validate(&self, ports: usize) -> Result<(), ConfigError> {
        check_range("max_macs", self.max_macs, 4..=1 << 20)?;
        let check_ports = |at: String, list: &mut dyn Iterator<Item = u8>| {
            let mut count = 0;
            for port in list {
                count += 1;
                if usize::from(port) >= ports {
                    let what = format!("names port {port}; the switch has {ports}, counted from 0");
                    return Err(ConfigError::new(at, what));
                }
            }
            check_range(&at, count, 1..=128)
                .map_err(|e| ConfigError { what: format!("its length {}", e.what), ..e })
        };
        for (i, route) in self.routes.iter().enumerate() {
            let mut list = route.via.iter().map(|hop| hop.port);
            check_ports(format!("routes[{i}].via"), &mut list)?;
            if self.routes[..i].iter().any(|r| r.to == route.to) {
                let what = format!("repeats {}; name all its next hops in one route", route.to);
                return Err(ConfigError::new(format!("routes[{i}].to"), what));
            }
        }
        for (i, entry) in self.macs.iter().enumerate() {
            check_ports(format!("macs[{i}].ports"), &mut entry.ports.iter().copied())?;
            let twice = self.macs[..i].iter().any(|s| s.mac == entry.mac);
            if twice || entry.mac.is_multicast() {
                let what = format!("{} repeats another entry or is a group's", entry.mac);
                return Err(ConfigError::new(format!("macs[{i}].mac"), what));
            }
        }
        Ok(())
    }
}

impl Hop {
    /// A next hop that does not change the MAC addresses.
    #[must_use]
    pub const fn port(port: u8) -> Self {
        Self { port, mac: None }
    }
}
