//! Messages over four paths that lose packets.

use super::stage::{Stage, name, number};
use crate::bed::Bed;
use crate::sample::Error;
use crate::tcp;
use crate::untuned::{Line, four_paths};
use std::net::SocketAddr;
use std::time::Duration;

/// The 99th percentile of the time of a message of 64 KiB, in milliseconds, one at a time over
/// links that lose 1 %: WRITEs in SR, coded, and coded over all paths, and messages over kernel TCP
/// until a reply of one byte.
pub(super) fn lossy(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let line = Line { loss_ppm: 10_000, ..Line::new(200, 5_000) };
    let (bed, _paths) = four_paths(stage.command(), &name(), line)?;
    let _server = stage.server(&bed, "b", &[])?;
    let seconds = TIME.as_secs().to_string();
    let all = ["--lat", "--op", "write", "--size", "64K", "--mode", "sr", "-t", &seconds];
    let ways: [&[&str]; 3] = [&[], &["--ec", "8,2"], &["--ec", "8,2", "--lb", "unolb"]];
    let mut p99_ms = Vec::new();
    for way in ways {
        let report = stage.client(&bed, "a", bed.address("b")?, &[&all[..], way].concat())?;
        p99_ms.push(number(&report, "/perf/0/p99_us")? / 1e3);
    }
    p99_ms.push(kernel_tcp(stage, &bed)?);
    Ok(p99_ms)
}

fn kernel_tcp(stage: &Stage<'_>, bed: &Bed) -> Result<f64, Error> {
    let at = SocketAddr::new(bed.address("b")?, PORT);
    let [client, server] = stage.connect(bed, at, SILENCE)?;
    let trips = std::thread::scope(|scope| {
        let replies = scope.spawn(|| tcp::run_server(server, MESSAGE_BYTES, 1));
        let trips = tcp::run_client(client, MESSAGE_BYTES, 1, TIME);
        replies.join().expect("it does not panic").and(trips)
    })?;
    Ok(trips.latency()?.rtt_p99_us / 1e3)
}

const TIME: Duration = Duration::from_secs(6);
const MESSAGE_BYTES: usize = 64 << 10;
const PORT: u16 = 7_780;
/// A retransmission timeout may have backed off a few times.
const SILENCE: Duration = Duration::from_secs(20);
