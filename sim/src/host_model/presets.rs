//! Host models by name.

use super::{HostModel, Lateness, Sockets};
use spanwire_base::Dur;
use spanwire_progress::Polling;

impl HostModel {
    /// The names of all presets.
    pub const NAMES: [&'static str; 6] = ["ideal", "veth", "busy", "udp", "adaptive", "busy-poll"];

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
            "udp" => Some(Self::udp()),
            "adaptive" => Some(Self::adaptive()),
            "busy-poll" => Some(Self::busy_poll()),
            other => panic!("{other} is none of the host models {:?}", Self::NAMES),
        }
    }

    /// Two hosts that share two cores, connected by a veth pair, and spin for 50 us before they
    /// sleep: the values of [veth.json](../../host-traces/veth.json), as `spanwire-bench host-fit`
    /// computes them.
    #[must_use]
    pub fn veth() -> Self {
        Self {
            step: Dur::from_ns(1_190),
            rx_frame: Dur::from_ns(940),
            tx_frame: Dur::from_ns(1_610),
            kibibyte: Dur::from_ns(120),
            batch: 64,
            rx_ring: 256,
            tx_ring: 256,
            polling: Polling::Spin(Dur::from_us(50)),
            wakeup: Lateness::measured(&[1, 51, 69, 78, 90, 205, 306, 655, 6_145]),
            stall_interval: Dur::from_us(9_200),
            stall: Lateness::measured(&[100, 239, 316, 403, 484, 1_075, 1_531, 2_683, 4_201]),
            timestamps: true,
            sockets: None,
        }
    }

    /// The same hosts beside two processes that spin: the values of
    /// [busy.json](../../host-traces/busy.json).
    #[must_use]
    pub fn busy() -> Self {
        Self {
            step: Dur::from_ns(1_290),
            rx_frame: Dur::from_ns(790),
            tx_frame: Dur::from_ns(2_400),
            kibibyte: Dur::from_ns(0),
            wakeup: Lateness::measured(&[3, 73, 149, 341, 415, 2_046, 3_781, 4_060, 10_354]),
            stall_interval: Dur::from_us(5_900),
            stall: Lateness::measured(&[100, 266, 373, 557, 4_051, 4_397, 4_505, 4_625, 10_760]),
            ..Self::veth()
        }
    }

    /// Two hosts on a veth pair with the default polling and pacing quantum of a worker: the values
    /// of [adaptive.json](../../host-traces/adaptive.json).
    #[must_use]
    pub fn adaptive() -> Self {
        Self {
            step: Dur::from_ns(610),
            rx_frame: Dur::from_ns(250),
            tx_frame: Dur::from_ns(1_030),
            kibibyte: Dur::from_ns(0),
            polling: Polling::Adaptive,
            wakeup: Lateness::measured(&[2, 20, 28, 35, 37, 62, 69, 224, 4_842]),
            stall_interval: Dur::from_us(4_500),
            stall: Lateness::measured(&[100, 106, 130, 145, 150, 2_205, 4_033, 4_219, 4_485]),
            ..Self::veth()
        }
    }

    /// The hosts of `adaptive` if they never sleep and have no quantum. Polling changes only the
    /// time between steps; a recording without sleeps would have no other distribution.
    #[must_use]
    pub fn busy_poll() -> Self {
        Self { polling: Polling::Busy, ..Self::adaptive() }
    }

    /// Two hosts on two cores with UDP sockets on a veth pair, as a process without privileges
    /// opens them: the values of [udp.json](../../host-traces/udp.json).
    #[must_use]
    pub fn udp() -> Self {
        Self {
            step: Dur::from_ns(660),
            rx_frame: Dur::from_ns(130),
            tx_frame: Dur::from_ns(310),
            kibibyte: Dur::from_ns(50),
            batch: 128,
            rx_ring: 512,
            tx_ring: 512,
            polling: Polling::Spin(Dur::from_us(50)),
            wakeup: Lateness::measured(&[2, 58, 67, 74, 80, 131, 173, 742, 7_711]),
            stall_interval: Dur::from_us(62_200),
            stall: Lateness::measured(&[100, 131, 249, 505, 1_299, 4_112, 4_562, 8_653, 8_653]),
            timestamps: true,
            sockets: Some(Sockets {
                rx_call: Dur::from_ns(2_760),
                tx_call: Dur::from_ns(7_150),
                run_frames: 64,
                rx_bytes: 425_984,
                tx_bytes: 425_984,
            }),
        }
    }
}
