//! Which way frames go.

use crate::error::{ConfigError, check_range};
use crate::lpm::Prefix;
use crate::units;
use serde::{Deserialize, Serialize};
use spanwire_base::Dur;
use spanwire_wire::MacAddr;

/// Which way frames go. The questions in order:
///
/// 1. Addressed to a group of stations: flooded, if `flood`.
/// 2. IP, and a route of `routes` holds its destination: routed (TTL less one, addresses of the
///    next hop if it has one).
/// 3. The destination's MAC address in `macs`, or learned: there.
/// 4. Flooded, if `flood`. Else dropped, counted as `drop_no_route`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardingConfig {
    /// Routes by longest prefix. Default none.
    pub routes: Vec<Route>,
    /// Stations whose place is known. Default none.
    pub macs: Vec<StaticMac>,
    /// Learns where stations are from the frames they send. Default true.
    pub learning: bool,
    /// Frames to everyone, to groups and to unknown stations go to every other port. Default true.
    pub flood: bool,
    /// Learned stations, 4..=1048576, rounded up to a power of two. Default 4096.
    pub max_macs: u32,
    /// How long a learned station is believed after it was last heard. Default 300 s (IEEE 802.1Q).
    #[serde(with = "units")]
    pub ageing: Dur,
}

/// Where packets to a network go.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The network.
    #[serde(with = "units")]
    pub to: Prefix,
    /// Next hops, 1..=128; naming one twice doubles its share.
    pub via: Vec<Hop>,
    /// How packets choose among them. Default by hash.
    #[serde(default)]
    pub spread: Spread,
}

/// Where a station is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticMac {
    /// Its address, not a group's.
    #[serde(with = "units")]
    pub mac: MacAddr,
    /// The ports that lead to it, 1..=128.
    pub ports: Vec<u8>,
    /// How frames choose among them. Default by hash.
    #[serde(default)]
    pub spread: Spread,
}

/// One way on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hop {
    /// The port.
    pub port: u8,
    /// The next station's address. None: MAC addresses stay as they are, which networks of point to
    /// point links can do. Default none.
    #[serde(with = "units", default)]
    pub mac: Option<MacAddr>,
}

/// How frames choose among ways of equal cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// A flow (5-tuple) keeps its way: ECMP.
    #[default]
    Hash,
    /// Each frame by itself, at random.
    Random,
    /// Each frame by itself, in turn.
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
    /// Routes only: nothing is learned, nothing flooded. What simulated fabrics use.
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
        for (i, station) in self.macs.iter().enumerate() {
            check_ports(format!("macs[{i}].ports"), &mut station.ports.iter().copied())?;
            let twice = self.macs[..i].iter().any(|s| s.mac == station.mac);
            if twice || station.mac.is_multicast() {
                let what = format!("{} repeats another entry or is a group's", station.mac);
                return Err(ConfigError::new(format!("macs[{i}].mac"), what));
            }
        }
        Ok(())
    }
}

impl Hop {
    /// A way on that leaves the MAC addresses as they are.
    #[must_use]
    pub const fn port(port: u8) -> Self {
        Self { port, mac: None }
    }
}
