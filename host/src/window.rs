//! `--window`: engine and port parameters for a path with a large bandwidth-delay product.

use crate::fabric::Error;
use spanwire_base::{Dur, Rate};
use spanwire_io::driver::Polling;
use spanwire_io::net::Ethtool;
use spanwire_io::xdp::{XdpConfig, XdpPreference};
use spanwire_transport::{Config, CongestionControl, ValidConfig};

/// Engine parameters for a port of `line_rate` with a window of `packets` per queue pair, and a
/// slightly larger window for the endpoint; the defaults for `None`. What the port sends is limited
/// to `port_rate`, if given.
///
/// The window that fills a path is the bandwidth-delay product divided by the bytes of a frame:
/// 2,275 frames of 1,098 bytes at 1 Gbit/s and 20 ms.
///
/// # Errors
/// The window is not within 1 and [`WINDOW_MAX`].
pub fn config(
    packets: Option<u32>,
    line_rate: Rate,
    port_rate: Option<Rate>,
) -> Result<ValidConfig, Error> {
    let (catch_up, pacing_quantum) = (CATCH_UP, Config::SLEEPER_QUANTUM);
    let default = Config { line_rate, port_rate, catch_up, pacing_quantum, ..Config::default() };
    let Some(qp_window_pkts) = packets else { return Ok(default.validate()?) };
    let ack_req_interval_pkts = default.ack_req_interval_pkts.min(qp_window_pkts);
    // A READ chunk must fit the window beside the packets since the last AckReq.
    let chunk_max = qp_window_pkts.saturating_sub(ack_req_interval_pkts) + 1;
    let read_chunk_pkts = default.read_chunk_pkts.min(chunk_max);
    let endpoint_window_pkts = qp_window_pkts.saturating_add(read_chunk_pkts);
    let config = Config {
        qp_window_pkts,
        ack_req_interval_pkts,
        read_chunk_pkts,
        endpoint_window_pkts,
        ..default
    };
    config
        .validate()
        .map_err(|_| format!("--window {qp_window_pkts} is not within 1 and {WINDOW_MAX}").into())
}

/// `config` for a worker that waits so: packets leave at their time if it never sleeps, and share
/// its wake-ups otherwise.
#[must_use]
pub fn for_polling(config: ValidConfig, polling: Polling) -> ValidConfig {
    if polling != Polling::Busy {
        return config;
    }
    let config = Config { pacing_quantum: Dur::ZERO, ..Config::clone(&config) };
    config.validate().expect("a quantum of zero is valid with any other value")
}

/// The origin of the window of a [`Config`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowChoice {
    /// The user.
    Explicit,
    /// The default with congestion control, which finds a shorter window by itself.
    Controlled,
    /// The default without congestion control: all of it is in flight.
    Static,
}

impl WindowChoice {
    /// The choice of a queue pair with this congestion control, where `None` is the default
    /// algorithm.
    #[must_use]
    pub fn of(congestion: Option<&CongestionControl>) -> Self {
        match congestion.is_none_or(|choice| choice.algorithm.is_some()) {
            true => Self::Controlled,
            false => Self::Static,
        }
    }
}

/// `config` for UDP sockets at both ends whose receive buffers hold `packets` packets in
/// `room_bytes` bytes. Turns have whole runs of segments. A static window is at most as long as the
/// buffer, and so is that of the endpoint, since the buffer is all that queue pairs share. With
/// congestion control the window follows the round trip, see [`Config::receive_room_bytes`].
pub(crate) fn over_sockets(
    config: &Config,
    choice: WindowChoice,
    packets: u32,
    room_bytes: u32,
) -> ValidConfig {
    let turn_bytes = config.turn_bytes.max(TURN_BYTES);
    let config = Config { turn_bytes, fragments: true, batches: true, ..config.clone() };
    let config = match choice {
        WindowChoice::Explicit => config,
        WindowChoice::Controlled => Config { receive_room_bytes: Some(room_bytes), ..config },
        WindowChoice::Static => fitting(&config, packets),
    };
    config.validate().expect("every relation of the windows holds, tested below")
}

fn fitting(config: &Config, packets: u32) -> Config {
    let qp_window_pkts = config.qp_window_pkts.min(packets.max(1));
    let ack_req_interval_pkts = config.ack_req_interval_pkts.min(qp_window_pkts);
    let chunk_max = qp_window_pkts - ack_req_interval_pkts + 1;
    let read_chunk_pkts = config.read_chunk_pkts.min(chunk_max);
    let endpoint_window_pkts = packets.clamp(qp_window_pkts + read_chunk_pkts, WINDOW_MAX * 2);
    Config {
        qp_window_pkts,
        ack_req_interval_pkts,
        read_chunk_pkts,
        endpoint_window_pkts,
        reorder_pkts: config.reorder_pkts.min(packets.max(REORDER_PKTS_MIN)),
        ..config.clone()
    }
}

/// The rate of interface `ifname`: that of the link as ethtool reports it, else the engine's
/// default.
#[must_use]
pub fn link_rate(ifname: &str) -> Rate {
    let mbps = Ethtool::open().and_then(|ethtool| ethtool.speed_mbps(ifname)).ok().flatten();
    let rate = |mbps| Rate::from_bps(u64::from(mbps) * 1_000_000);
    mbps.map_or(Config::default().line_rate, rate)
}

/// A port for a window of `packets`: its receive ring holds the whole window, so that a burst is
/// not dropped while the receiver's core does other work. The defaults for `None` or less.
///
/// The ring is limited to `RING_MAX`: packets in flight over milliseconds do not arrive at once.
#[must_use]
pub fn port(
    ifname: &str,
    queue: u32,
    preference: XdpPreference,
    packets: Option<u32>,
) -> XdpConfig {
    let config = XdpConfig { queue, preference, ..XdpConfig::new(ifname) };
    let beyond_window = config.fill_size - Config::default().qp_window_pkts;
    let wanted = packets.unwrap_or(0).clamp(1, WINDOW_MAX) + beyond_window;
    let ring = wanted.next_power_of_two().clamp(config.fill_size, RING_MAX);
    XdpConfig {
        fill_size: ring,
        rx_size: ring,
        frames: config.frames - config.fill_size + ring,
        ..config
    }
}

/// Window in packets with congestion control: above what an algorithm should use, and bounded by
/// memory. It is 23 MB in packets of 1400 bytes, which is 10 Gbit/s over 18 ms.
pub const CC_WINDOW_PKTS: u32 = 16_384;

/// Every end of SR accepts packets that far beyond a missing one.
const REORDER_PKTS_MIN: u32 = 256;
/// The longest payload of a send with segments.
const TURN_BYTES: u32 = 1 << 16;

/// The longest receive ring made for a window: 16 MiB of chunks.
const RING_MAX: u32 = 4096;

/// Catch-up limit of the pacer: several times the wake-up latency of a virtual machine, because
/// workers sleep between packets and share cores.
const CATCH_UP: Dur = Dur::from_us(250);

/// The widest window, in packets: the engine's `qp_window_pkts`.
pub const WINDOW_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_gbps(7);

    #[test]
    fn config__every_window_in_range_is_valid() {
        for packets in [1, 2, 15, 16, 17, 46, 47, 48, 192, 2_400, WINDOW_MAX] {
            let config = config(Some(packets), RATE, Some(RATE)).expect("sound");
            assert_eq!((config.qp_window_pkts, config.line_rate), (packets, RATE));
            assert_eq!(config.port_rate, Some(RATE));
        }
        let default = config(None, RATE, None).expect("sound");
        assert_eq!(default.qp_window_pkts, Config::default().qp_window_pkts);
        assert_eq!(default.line_rate, RATE);
    }

    #[test]
    fn for_polling__a_worker_that_never_sleeps_paces_each_packet() {
        let quantum = |polling| {
            let config = config(None, RATE, None).expect("sound");
            for_polling(config, polling).pacing_quantum
        };
        assert_eq!(quantum(Polling::Busy), Dur::ZERO);
        assert_eq!(quantum(Polling::Adaptive), Config::SLEEPER_QUANTUM);
    }

    #[test]
    fn over_sockets__bounds_static_windows_by_the_buffer() {
        let fitting = |config: &Config, packets| {
            over_sockets(config, WindowChoice::Static, packets, packets.saturating_mul(1_500))
        };
        let default = ValidConfig::default();
        for packets in [0, 1, 2, 5, 16, 17, 142, 192, 224, 2_796, u32::MAX] {
            for window in [None, Some(1), Some(CC_WINDOW_PKTS), Some(WINDOW_MAX)] {
                let config = config(window, RATE, None).expect("sound");
                let fits = fitting(&config, packets);
                assert!(fits.qp_window_pkts <= config.qp_window_pkts.min(packets.max(1)));
                assert!(fits.endpoint_window_pkts >= packets.min(WINDOW_MAX * 2));
                assert!((256..=packets.max(256)).contains(&fits.reorder_pkts));
                assert_eq!(fits.turn_bytes, 1 << 16);
            }
        }
        assert_eq!(fitting(&default, 142).qp_window_pkts, 142);
        assert_eq!(fitting(&default, 500).qp_window_pkts, default.qp_window_pkts);
    }

    #[test]
    fn over_sockets__congestion_control_has_room_in_bytes() {
        let wide = config(Some(CC_WINDOW_PKTS), RATE, None).expect("sound");
        for (choice, room) in
            [(WindowChoice::Controlled, Some(9_000)), (WindowChoice::Explicit, None)]
        {
            let fits = over_sockets(&wide, choice, 6, 9_000);
            assert_eq!((fits.qp_window_pkts, fits.receive_room_bytes), (CC_WINDOW_PKTS, room));
            assert_eq!(fits.turn_bytes, 1 << 16);
        }
    }

    #[test]
    fn choice__follows_the_algorithm() {
        assert_eq!(WindowChoice::of(None), WindowChoice::Controlled, "auto");
        let none = WindowChoice::of(Some(&CongestionControl::NONE));
        assert_eq!(none, WindowChoice::Static);
    }

    #[test]
    fn port__holds_the_window() {
        let of = |packets| port("sw0", 0, XdpPreference::Auto, packets);
        let default = XdpConfig::new("sw0");
        assert_eq!(of(None), default);
        assert_eq!(of(Some(192)), default);
        for packets in [0, 1, 193, 1_000, 2_400, 4_000, WINDOW_MAX, u32::MAX] {
            let config = of(Some(packets));
            config.validate().expect("sound");
            assert!(config.fill_size >= packets.min(RING_MAX), "{packets}: {config:?}");
            let to_send = |config: &XdpConfig| config.frames - config.fill_size;
            assert_eq!(to_send(&config), to_send(&default));
        }
    }

    #[test]
    fn config__the_error_names_the_range() {
        for packets in [0, WINDOW_MAX + 1, u32::MAX] {
            let text = config(Some(packets), RATE, None).expect_err("out of range").to_string();
            assert!(text.contains("--window") && text.contains("65536"), "{text}");
        }
    }
}
