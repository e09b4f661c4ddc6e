//! `spanwire perf`: WRITEs from host b to host a.

use super::{Conditions, Plan};
use crate::bed::{self, Bed};
use crate::sample::Error;
use spanwire_transport::WireMode;
use std::time::Duration;

/// Payload bits a second in `time`.
///
/// Both modes have the same window. Connection setup runs over TCP on the same lossy links, and
/// is retried a few times.
pub(super) fn goodput_bps(
    bed: &Bed,
    plan: &Plan,
    mode: WireMode,
    conditions: Conditions,
    time: Duration,
) -> Result<f64, Error> {
    let (window, depth) = window(plan.rate_bps, conditions.rtt_us);
    let (window, depth) = (window.to_string(), depth.to_string());
    let (to, seconds) = (bed.address("a")?.to_string(), time.as_secs_f64().to_string());
    let server = ["perf", "server", "--dev", "sw0", "--window", &window];
    let client = [
        &["perf", "client", "--dev", "sw0", &to, "--window", &window, "--depth", &depth][..],
        &["--mode", mode.name(), "--seconds", &seconds, "--interval", "0", "--json"],
    ];
    let mut running = bed.spanwire("a", &server)?;
    running.first_line(bed::CONNECT_WITHIN)?;
    let mut last: Error = "never tried".into();
    for _ in 0..TRIES {
        match bed.spanwire("b", &client.concat())?.output(time + bed::CONNECT_WITHIN) {
            Ok(report) => return Ok(bed::parse_perf(&report)?.bps),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Packets in flight, and posted messages of 64 KiB. The packets are the bandwidth-delay product, a
/// queue of 2 ms, a quarter more, and the packets inside two hosts. Four times as many bytes are
/// posted, for messages that wait for retransmissions.
fn window(rate_bps: u64, rtt_us: u64) -> (u64, u64) {
    let product = rate_bps * (rtt_us + 2_000) / 8 / 1_000_000 / FRAME_BYTES;
    let window = product * 5 / 4 + 32;
    (window, (window * FRAME_BYTES * 4 / MESSAGE_BYTES).max(16))
}

/// The longer of both modes' frames.
const FRAME_BYTES: u64 = 1530;
const MESSAGE_BYTES: u64 = 64 << 10;

/// At 20 % loss in each direction, three attempts all fail once in a few hundred runs.
const TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window__holds_the_product_of_rate_and_round_trip() {
        assert_eq!(window(100_000_000, 0), (52, 16));
        let (window, depth) = window(100_000_000, 40_000);
        assert!(window * FRAME_BYTES * 8 > 100_000_000 / 25, "{window}");
        assert!(depth * MESSAGE_BYTES >= 3 * window * FRAME_BYTES, "{depth}");
    }
}
