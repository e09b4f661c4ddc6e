//! Choices that the paper leaves open: each alone, beside those of the rows.

use super::super::quantity::{Quantity, reduction};
use super::super::reading::Reading;
use super::super::run::Run;
use super::runs::{OTHER_SEEDS, at_70};

/// Another choice of what the paper leaves open.
pub(super) struct Other {
    pub(super) text: &'static str,
    set: &'static [(&'static str, &'static str)],
    of: Of,
}

/// The runs that depend on a choice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    /// Those with Reflex.
    Agents,
    /// Those without.
    Off,
}

impl Other {
    /// None.
    pub(super) const NONE: Self = Self::agents("", &[]);

    /// Of networks.
    const fn new(text: &'static str, set: &'static [(&'static str, &'static str)]) -> Self {
        Self { text, set, of: Of::All }
    }

    /// Of what Reflex does.
    const fn agents(text: &'static str, set: &'static [(&'static str, &'static str)]) -> Self {
        Self { text, set, of: Of::Agents }
    }

    /// Of hosts without feedback from nearby.
    const fn off(text: &'static str, set: &'static [(&'static str, &'static str)]) -> Self {
        Self { text, set, of: Of::Off }
    }

    pub(super) fn at_70(&self, cc: &str, reflex: &str) -> Run {
        self.of(at_70(cc, reflex))
    }

    /// A run with this choice.
    pub(super) fn of(&self, run: Run) -> Run {
        if self.set.is_empty() {
            return run;
        }
        let set = |run: Run, (key, value): &(&'static str, &str)| {
            let name = format!("{} {key}={value}", run.label());
            run.set(key, *value).named(name)
        };
        self.set.iter().fold(run.seeds(OTHER_SEEDS), set)
    }
}

pub(super) const INTER_10: Other =
    Other::new("A tenth of the load is between the data centres.", &[("inter", "10")]);
pub(super) const ALPHA_1: Other = Other::new(
    "A port pauses when it holds as much as is free, not an eighth of it.",
    &[("pfc_alpha", "1")],
);
pub(super) const BORDER_32_MB: Other = Other::new(
    "The border switches have 32 MB, as the others, and drop what exceeds them.",
    &[("border_buffer", "32MB")],
);
pub(super) const FAR_20_US: Other = Other::agents(
    "Acknowledgements from afar run the law once in 20 us, not in T_interval.",
    &[("cc.near_every_us", "20")],
);
pub(super) const FAR_LEAST: Other = Other::agents(
    "Acknowledgements from afar run the law with the least near round trip, not the last.",
    &[("cc.near_ack", "least")],
);
pub(super) const PORT: Other = Other::agents(
    "Controlled queues pause by the flows of their port, not of the switch.",
    &[("agent.pause_scope", "port")],
);
pub(super) const PORT_PACKET: Other = Other::agents(
    "Controlled queues pause by the flows of their port, and again after one packet.",
    &[("agent.pause_scope", "port"), ("agent.pause_round", "packet")],
);
/// Lowest rates of Swift.
pub(super) const LOWEST_RATES: [&Other; 3] = [
    &Other::off("Swift's lowest rate is 100 Mbit/s.", &[("inter_min_rate", "100Mbit")]),
    &Other::off("Swift's lowest rate is 300 Mbit/s.", &[("inter_min_rate", "300Mbit")]),
    &Other::off("Swift's lowest rate is 1 Gbit/s.", &[("inter_min_rate", "1Gbit")]),
];
pub(super) const NO_WINDOW: Other =
    Other::new("TIMELY has no window, and a lowest rate of 1 Gbit/s.", &[("cc", "timely-classic")]);

/// The choices of networks and agents that both controls depend on.
pub(super) const SWEEP: [&Other; 6] =
    [&INTER_10, &ALPHA_1, &BORDER_32_MB, &FAR_20_US, &FAR_LEAST, &PORT];

/// By how many percent a form of Reflex lowers a reading at 70 % with another choice.
pub(super) fn gain_with(cc: &str, reflex: &str, reading: &Reading, other: &Other) -> Quantity {
    let with = |reflex, of| {
        let run = at_70(cc, reflex);
        if other.of == of { run } else { other.of(run) }
    };
    reduction(&with(reflex, Of::Off), &with("off", Of::Agents), reading)
}
