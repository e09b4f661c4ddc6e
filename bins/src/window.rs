//! `--window`: how much may be under way when the path is longer than a cable.

use crate::fabric::Error;
use spanwire_transport::{Config, ValidConfig};

/// The engine's parameters with a window of `packets` for each queue pair, and hardly more for all
/// of them together; the defaults for `None`.
///
/// Rate times round-trip time, over the bytes of a frame, is the window that fills a path: 2,275
/// frames of 1,098 bytes at 1 Gbit/s and 20 ms.
///
/// # Errors
/// The window is not within 1 and [`WINDOW_MAX`].
pub(crate) fn config(packets: Option<u32>) -> Result<ValidConfig, Error> {
    let Some(qp_window_pkts) = packets else { return Ok(ValidConfig::default()) };
    let default = Config::default();
    let ack_req_interval_pkts = default.ack_req_interval_pkts.min(qp_window_pkts);
    // A chunk must fit beside the packets that have not asked for an acknowledgement.
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

/// The widest window, in packets: the engine's `qp_window_pkts`.
pub(crate) const WINDOW_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config__every_window_in_range_is_sound() {
        for packets in [1, 2, 15, 16, 17, 46, 47, 48, 192, 2_400, WINDOW_MAX] {
            let config = config(Some(packets)).expect("sound");
            assert_eq!(config.qp_window_pkts, packets);
        }
        let default = config(None).expect("sound");
        assert_eq!(default.qp_window_pkts, Config::default().qp_window_pkts);
    }

    #[test]
    fn config__says_the_range() {
        for packets in [0, WINDOW_MAX + 1, u32::MAX] {
            let text = config(Some(packets)).expect_err("out of range").to_string();
            assert!(text.contains("--window") && text.contains("65536"), "{text}");
        }
    }
}
