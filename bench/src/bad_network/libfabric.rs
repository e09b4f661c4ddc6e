//! libfabric's reliable datagrams over UDP, `udp;ofi_rxd`, measured by its own program.
//!
//! A ping-pong of long messages, one direction at a time: it can reach the link's rate if a
//! message takes longer than a round trip. It is the only benchmark in Debian's `libfabric-bin`.

use crate::bed::{Bed, column};
use crate::sample::Error;
use std::path::Path;
use std::time::Duration;

/// Payload bits a second, both directions together. A run that takes longer than five times `time`
/// is killed and fails.
pub(super) fn goodput_bps(bed: &Bed, time: Duration) -> Result<f64, Error> {
    let path = Path::new("fi_pingpong");
    let server = ["-p", "udp;ofi_rxd", "-e", "rdm", "-d", "sw0", "-I", "2", "-S", MESSAGE_BYTES];
    let to = bed.address("a")?.to_string();
    let client = [&server[..], &[&to]].concat();
    let _server = bed.start("a", path, &server)?;
    // It prints nothing before it listens.
    std::thread::sleep(Duration::from_millis(300));
    let table = bed.start("b", path, &client)?.output(time * TIME_LIMIT)?;
    Ok(column(&table, "bytes", "MB/sec")? * 8e6)
}

const MESSAGE_BYTES: &str = "1048576";

/// The time limit as a multiple of a sample's duration.
const TIME_LIMIT: u32 = 5;
