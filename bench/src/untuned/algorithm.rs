//! Congestion control by name, of Spanwire and of kernel TCP.

use crate::sample::Error;
use serde::Serialize;
use spanwire_base::Rate;
use spanwire_cc::{Algorithm as Choice, Controller, Path};
use std::str::FromStr;

/// A transport with a congestion control, all of whose parameters have their defaults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(into = "&'static str")]
pub enum Algorithm {
    /// `spanwire perf --cc auto`.
    Auto,
    /// `spanwire perf` with a static window.
    None,
    /// `spanwire perf` with another congestion control.
    Other(&'static str),
    /// `spanwire perf --fabric udp` with `auto` or `none`: UDP sockets instead of AF_XDP.
    Udp(&'static str),
    /// Kernel TCP.
    Tcp(&'static str),
}

impl Algorithm {
    /// The algorithm under test, and its references.
    pub const MAIN: [Self; 4] = [Self::Auto, Self::None, Self::Tcp("cubic"), Self::Tcp("bbr")];

    /// The same over UDP sockets, measured only if they are named.
    pub const UDP: [Self; 2] = [Self::Udp("auto"), Self::Udp("none")];

    /// Spanwire's other congestion controls that need no telemetry, which the matrix has not.
    pub fn others() -> impl Iterator<Item = Self> {
        let path = Path { mtu_bytes: 1024, line_rate: Rate::from_gbps(1), base_rtt: None };
        let is_other = move |name: &&str| {
            let choice = Choice::named(name).expect("each name is known");
            let is_main = matches!(choice, Choice::Auto(_) | Choice::Fixed(_));
            !is_main && !choice.start(&path).wants_int()
        };
        Choice::NAMES.iter().copied().filter(is_other).map(Self::Other)
    }

    /// All of them but those over UDP sockets, in the order of tables.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::MAIN.into_iter().chain(Self::others())
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Other(name) => name,
            Self::Udp("none") => "none-udp",
            Self::Udp(_) => "auto-udp",
            Self::Tcp("bbr") => "tcp-bbr",
            Self::Tcp(_) => "tcp-cubic",
        }
    }

    /// The reference for the goodput where no line limits it: a static window over the same fabric.
    pub(super) fn reference(self) -> Self {
        match self {
            Self::Udp(_) => Self::Udp("none"),
            _ => Self::None,
        }
    }

    /// True of kernel TCP.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp(_))
    }
}

impl From<Algorithm> for &'static str {
    fn from(algorithm: Algorithm) -> Self {
        algorithm.name()
    }
}

impl FromStr for Algorithm {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let all = || Self::all().chain(Self::UDP);
        all().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            let names: Vec<&str> = all().map(Self::name).collect();
            format!("there is no {name}; there are {}", names.join(", ")).into()
        })
    }
}

/// The options of `spanwire perf` for a congestion control and a fabric; none for its defaults,
/// which are `auto` and AF_XDP.
pub(super) fn perf_args(algorithm: Algorithm) -> Vec<&'static str> {
    match algorithm {
        Algorithm::Auto | Algorithm::Tcp(_) => Vec::new(),
        Algorithm::Udp("none") => vec!["--fabric", "udp", "--cc", "none"],
        Algorithm::Udp(_) => vec!["--fabric", "udp"],
        Algorithm::None | Algorithm::Other(_) => vec!["--cc", algorithm.name()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_str__is_the_inverse_of_name() {
        for algorithm in Algorithm::all().chain(Algorithm::UDP) {
            assert_eq!(algorithm.name().parse::<Algorithm>().unwrap(), algorithm);
        }
        let why = "reno".parse::<Algorithm>().unwrap_err().to_string();
        assert!(why.contains("no reno") && why.contains("tcp-cubic, tcp-bbr, unocc"), "{why}");
    }

    #[test]
    fn others__are_all_that_need_no_telemetry() {
        let names: Vec<&str> = Algorithm::others().map(Algorithm::name).collect();
        let has = |name| names.contains(&name);
        assert!(has("swift") && has("dcqcn-rnic") && has("dctcp"), "{names:?}");
        assert!(!has("hpcc") && !has("auto") && !has("fixed"), "{names:?}");
    }

    #[test]
    fn perf_args__auto_over_af_xdp_is_the_default() {
        assert!(perf_args(Algorithm::Auto).is_empty());
        assert_eq!(perf_args(Algorithm::Other("swift")), ["--cc", "swift"]);
        assert_eq!(perf_args(Algorithm::None), ["--cc", "none"]);
        let [auto, none] = Algorithm::UDP.map(perf_args);
        assert_eq!(auto, ["--fabric", "udp"]);
        assert_eq!(none, ["--fabric", "udp", "--cc", "none"]);
    }
}
