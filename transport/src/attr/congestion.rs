//! Congestion control as an attribute of a queue pair.

use spanwire_base::Dur;
use spanwire_cc::Algorithm;

/// Congestion control of one queue pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CongestionControl {
    /// The algorithm with its parameters; `None` for none: only the windows of
    /// [`Config`](crate::Config) limit the packets in flight.
    pub algorithm: Option<Algorithm>,
    /// Base RTT, without queues; by default the minimum RTT measured.
    pub base_rtt: Option<Dur>,
    /// The conditions for which the algorithm is set.
    pub preset: Preset,
    /// The least time between two received CNPs that count; others are dropped. By default a round
    /// trip: a reaction needs that long to have an effect, and a CNP is easily forged
    /// (docs/protocol/sr.md, "What an attacker can do"). An algorithm that limits its reactions
    /// itself can take more of a switch that sends CNPs more often. Only of
    /// [`WireMode::Rc`](crate::WireMode::Rc).
    pub cnp_spacing: Option<Dur>,
}

/// The conditions for which an algorithm is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preset {
    /// Any path, and hosts that may be late: the algorithm is calibrated to what is measured
    /// ([`Algorithm::start_calibrated`]).
    #[default]
    Calibrated,
    /// The constants and the behaviour of the algorithm's paper.
    Paper,
}

impl Preset {
    /// The name of [`Preset::Paper`].
    pub const PAPER: &str = "paper";
    /// The name of [`Preset::Calibrated`].
    pub const CALIBRATED: &str = "calibrated";

    /// The preset of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            Self::PAPER => Some(Self::Paper),
            Self::CALIBRATED => Some(Self::Calibrated),
            _ => None,
        }
    }
}

impl CongestionControl {
    /// No congestion control: only the windows of [`Config`](crate::Config) limit the packets in
    /// flight. For links that the queue pair has to itself, and for measurements.
    pub const NONE: Self =
        Self { algorithm: None, base_rtt: None, preset: Preset::Calibrated, cnp_spacing: None };

    /// It uses feedback of switches.
    #[must_use]
    pub fn wants_near(&self) -> bool {
        self.algorithm.is_some_and(|algorithm| algorithm.wants_near())
    }

    /// It uses credits of the receiver (MLCC).
    #[must_use]
    pub fn wants_credit(&self) -> bool {
        self.algorithm.is_some_and(|algorithm| algorithm.wants_credit())
    }

    /// The congestion control of a flow whose peer sends no credits: `hpcc` in place of an
    /// algorithm that uses them.
    #[must_use]
    pub fn without_credit(self) -> Self {
        let hpcc = Algorithm::Hpcc(spanwire_cc::hpcc::Params::default());
        if self.wants_credit() { Self { algorithm: Some(hpcc), ..self } } else { self }
    }
}

/// `auto` with its defaults, which suits any path, and a measured base RTT.
impl Default for CongestionControl {
    fn default() -> Self {
        Self { algorithm: Some(Algorithm::default()), ..Self::NONE }
    }
}
