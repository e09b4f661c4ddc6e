//! Schemes: congestion control, wire mode and congestion signal together, as papers compare them.

use super::definition::with_agents;
use super::marking::{Marks, mark};
use crate::params::{CcChoice, Params, Value};
use crate::setup::{AgentSetup, Setup, Telemetry};
use spanwire_base::{Dur, Rate};
use spanwire_cc::Algorithm;
use spanwire_switch::PaccConfig;
use spanwire_wire::{INT_MAX_HOPS, IntFormat};

/// A scheme.
///
/// # Source
/// The settings of all are those of HPCC's artifact (SIGCOMM'19), `run.py` and `rdma-hw.cc`, with
/// which PACC compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scheme {
    /// Its name, as in `--set scheme=NAME`.
    name: &'static str,
    /// Congestion control, as in `--set cc=`.
    cc: &'static str,
    /// A parameter of it that differs, as in `--set cc.NAME=VALUE`.
    set: Option<[&'static str; 2]>,
    /// The wire mode: telemetry needs SR.
    pub(super) mode: &'static str,
    /// The congestion signal of switches.
    marks: Marks,
    /// The agent of switches.
    pacc: Option<Pacc>,
}

/// Variants of PACC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pacc {
    /// Also computed when the queue rises above the threshold.
    Edge,
    /// By the timer alone.
    Timer,
    /// As printed: by the timer alone, and shares are rounded down (line 4 of Algorithm 1).
    Printed,
    /// Computed after each spacing above the threshold.
    Every,
    /// By edge, without carrying fractions of shares.
    Floor,
}

impl Scheme {
    /// The scheme of a parameter's word.
    ///
    /// # Panics
    /// If there is none: the parameter allows only their names.
    pub(super) fn of(word: &str) -> &'static Self {
        ALL.iter().find(|s| s.name == word).expect("the parameter allows only these")
    }

    /// The names of PACC's schemes.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|scheme| scheme.name).filter(|name| *name != LAECN.name)
    }

    /// True if the thresholds of switches are chosen by LAECN's networks.
    pub(super) fn has_learned(&self) -> bool {
        self.name == LAECN.name
    }

    /// Adds the parameter, instead of those that the scheme decides, with the schemes of PACC.
    pub(super) fn param(p: Params) -> Params {
        Self::param_of(p, &Self::names().collect::<Vec<_>>())
    }

    /// Adds the parameter, with these schemes.
    pub(super) fn param_of(p: Params, names: &[&'static str]) -> Params {
        let scheme = Value::Word { word: names[0].to_owned(), of: names.to_vec() };
        let hops = Value::Count { n: INT_HOPS, min: 1, max: INT_MAX_HOPS.into() };
        with_agents(p)
            .without("cc")
            .without("mode")
            .with("scheme", scheme, "congestion control, wire mode and marks together")
            .compared_by("scheme")
            .with("int_hops", hops, "switches whose telemetry a packet has room for, if any")
    }

    /// The congestion control.
    pub(super) fn algorithm(&self) -> Option<Algorithm> {
        let choice = CcChoice::parse(self.cc).expect("a test parses each");
        let mut algorithm = choice.algorithm()?;
        if let Some([name, value]) = self.set {
            algorithm.set(name, value).expect("a test sets each");
        }
        Some(algorithm)
    }

    /// Configures the congestion signal of switches, scaled by the rate of each port, and of hosts.
    /// Telemetry is as long as HPCC's and comes on top of the payload, which is that of the other
    /// schemes.
    pub(super) fn apply(&self, p: &Params, setup: &mut Setup) {
        let hops = u8::try_from(p.count("int_hops")).expect("at most 16");
        setup.int = Telemetry { hops, format: IntFormat::Compact, on_top: true };
        mark(setup, self.marks, MARKS_AT);
        setup.marks_at = Some(MARKS_AT);
        setup.cnp_interval = CNP_INTERVAL;
        setup.congestion.cnp_spacing = Some(CNP_SPACING);
        setup.agents = self.pacc.map(Pacc::agent).into_iter().collect();
    }
}

impl Pacc {
    /// With the parameters of PACC V, for a port of [`MARKS_AT`].
    fn agent(self) -> AgentSetup {
        let config = PaccConfig {
            edge: !matches!(self, Self::Timer | Self::Printed),
            every: self == Self::Every,
            carry: !matches!(self, Self::Floor | Self::Printed),
            // Pairs of hosts that send through one port in a period.
            flows: 512,
            ..PaccConfig::default()
        };
        AgentSetup { config: config.into(), at: Some(MARKS_AT) }
    }
}

/// PACC's hosts are those of DCQCN, and no switch marks.
const fn pacc(name: &'static str, variant: Pacc) -> Scheme {
    let (cc, mode, marks) = ("dcqcn-ns3", "rc", Marks::None);
    Scheme { name, cc, set: None, mode, marks, pacc: Some(variant) }
}

const DCQCN: Scheme = Scheme {
    name: "dcqcn",
    cc: "dcqcn-ns3",
    set: None,
    mode: "rc",
    marks: Marks::Dcqcn,
    pacc: None,
};

/// LAECN's hosts are those of DCQCN, whose thresholds its agents choose.
const LAECN: Scheme = Scheme { name: "laecn", ..DCQCN };

/// DCQCN's alpha in the steady state by PACC III-D, with which its senders begin.
const STEADY_ALPHA: Option<[&str; 2]> = Some(["alpha0", "0.047"]);

const ALL: &[Scheme] = &[
    pacc("pacc", Pacc::Edge),
    pacc("pacc-timer", Pacc::Timer),
    pacc("pacc-printed", Pacc::Printed),
    pacc("pacc-every", Pacc::Every),
    pacc("pacc-floor", Pacc::Floor),
    Scheme { set: STEADY_ALPHA, ..pacc("pacc-alpha", Pacc::Edge) },
    DCQCN,
    Scheme { name: "dcqcn-alpha", set: STEADY_ALPHA, ..DCQCN },
    LAECN,
    Scheme { name: "timely", cc: "timely-ns3", marks: Marks::None, ..DCQCN },
    Scheme { name: "hpcc", cc: "hpcc", mode: "sr", marks: Marks::Telemetry, ..DCQCN },
];

/// The rate of hosts' ports in PACC's network, for which its authors give thresholds.
const MARKS_AT: Rate = Rate::from_gbps(25);
/// HPCC's artifact: a CNP of a flow at most every 4 us.
const CNP_INTERVAL: Dur = Dur::from_us(4);
/// All CNPs of that interval count, although they do not arrive evenly: a flow's own limit is that
/// of `dcqcn-ns3`, one decrease each 4 us.
const CNP_SPACING: Dur = Dur::from_us(3);
/// The switches of the longest path in PACC's fat tree, as in HPCC's packets of 42 bytes of
/// telemetry.
const INT_HOPS: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Role;
    use spanwire_switch::Prob;

    #[test]
    fn of__every_scheme_has_its_own_name_and_a_known_congestion_control() {
        for (i, scheme) in ALL.iter().enumerate() {
            assert_eq!(ALL.iter().position(|s| s.name == scheme.name), Some(i));
            assert!(Scheme::of(scheme.name).algorithm().is_some(), "{}", scheme.name);
        }
    }

    #[test]
    fn apply__dcqcn_s_marks_scale_with_the_port() {
        let setup = |name| {
            let mut setup = Setup::default();
            Scheme::of(name).apply(&Scheme::param(Params::default()), &mut setup);
            setup
        };
        let ecn = |gbps| {
            let port = setup("dcqcn").port_of(Role::Edge, Rate::from_gbps(gbps));
            port.queues[0].ecn.map(|e| (e.kmin_bytes, e.kmax_bytes, e.pmax))
        };
        let fifth = Prob::from_ppm(200_000);
        assert_eq!(ecn(25), Some((100_000, 400_000, fifth)));
        assert_eq!(ecn(100), Some((400_000, 1_600_000, fifth)));
        assert_eq!(setup("dcqcn").cnp_interval, Dur::from_us(4));
        assert!(setup("hpcc").port.int && setup("timely").port == Setup::default().port);
    }
}
