//! `spanwire perf`: WRITEs from host b to host a.

use super::plan::{Conditions, Plan};
use crate::bed::{Bed, CONNECT_WITHIN, parse_perf};
use crate::sample::Error;
use spanwire_transport::WireMode;
use std::time::Duration;

/// Payload bits a second in `time`.
///
/// Both modes have the congestion control that a user gets, without any option. Connection setup
/// runs over TCP on the same lossy links, and is retried a few times.
pub(super) fn goodput_bps(
    bed: &Bed,
    plan: &Plan,
    mode: WireMode,
    conditions: Conditions,
    time: Duration,
) -> Result<f64, Error> {
    let depth = depth(plan.rate_bps, conditions.rtt_us).to_string();
    let (to, seconds) = (bed.address("a")?.to_string(), time.as_secs_f64().to_string());
    let client = [
        &["perf", "client", "--dev", "sw0", &to, "--depth", &depth][..],
        &["--mode", mode.name(), "--seconds", &seconds, "--interval", "0", "--json"],
    ];
    let _server = bed.spanwire_until("a", &["perf", "server", "--dev", "sw0"], CONNECT_WITHIN)?;
    let mut last: Error = "never tried".into();
    for _ in 0..TRIES {
        match bed.spanwire("b", &client.concat())?.output(time + CONNECT_WITHIN) {
            Ok(report) => return Ok(parse_perf(&report)?.bps),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Posted messages of 64 KiB, so that the application is no limit: six times the bandwidth-delay
/// product with a queue of 5 ms, for messages that wait for retransmissions.
fn depth(rate_bps: u64, rtt_us: u64) -> u64 {
    let product = rate_bps * (rtt_us + 5_000) / 8 / 1_000_000;
    (product * 6 / MESSAGE_BYTES).max(16)
}

const MESSAGE_BYTES: u64 = 64 << 10;

/// At 20 % loss in each direction, three attempts all fail once in a few hundred runs.
const TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth__posts_several_products_of_rate_and_round_trip() {
        assert_eq!(depth(100_000_000, 0), 16);
        let posted_bits = depth(100_000_000, 40_000) * MESSAGE_BYTES * 8;
        assert!(posted_bits >= 6 * 100_000_000 / 25, "{posted_bits}");
    }
}
