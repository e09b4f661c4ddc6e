//! Host models by name.

use super::{HostModel, Lateness};
use spanwire_base::Dur;

impl HostModel {
    /// The names of all presets.
    pub const NAMES: [&'static str; 3] = ["ideal", "veth", "busy"];

    /// The preset of this name. `ideal` is no model: frames and timers reach the engine at once.
    ///
    /// # Panics
    /// If the name is not one of [`HostModel::NAMES`].
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "ideal" => None,
            "veth" => Some(Self::veth()),
            "busy" => Some(Self::busy()),
            other => panic!("{other} is none of the host models {:?}", Self::NAMES),
        }
    }

    /// Hosts that share two cores with each other and with a switch, connected by veth pairs.
    #[must_use]
    pub fn veth() -> Self {
        Self {
            step: Dur::from_ns(400),
            rx_frame: Dur::from_ns(600),
            tx_frame: Dur::from_ns(1_200),
            kibibyte: Dur::from_ns(150),
            batch: 64,
            rx_ring: 256,
            tx_ring: 256,
            spin: Dur::from_us(20),
            wakeup: quantiles(&[5, 40, 80, 250, 1_500, 5_000]),
            stall_interval: Dur::from_ms(20),
            stall: quantiles(&[100, 200, 600, 2_000, 5_000, 10_000]),
            timestamps: true,
        }
    }

    /// The same hosts beside processes that take both cores.
    #[must_use]
    pub fn busy() -> Self {
        Self {
            wakeup: quantiles(&[5, 400, 2_500, 4_000, 7_000, 10_000]),
            stall_interval: Dur::from_ms(4),
            stall: quantiles(&[500, 2_800, 3_500, 5_000, 8_000, 10_000]),
            ..Self::veth()
        }
    }
}

/// The distribution with this minimum, median, 90th, 99th and 99.9th percentile and maximum, in
/// microseconds.
fn quantiles(us: &[u64; 6]) -> Lateness {
    let parts = [0, 500_000, 900_000, 990_000, 999_000, 1_000_000];
    let all: Vec<_> = parts.into_iter().zip(us.map(Dur::from_us)).collect();
    Lateness::new(&all)
}
