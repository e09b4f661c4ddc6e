//! libfabric's reliable datagrams over UDP, `udp;ofi_rxd`, measured by its own program.
//!
//! A ping-pong of long messages, one direction at a time: it can reach the link's rate if a
//! message takes longer than a round trip. It is the only benchmark in Debian's `libfabric-bin`.

use crate::bed::Bed;
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
    goodput(&table)
}

/// The column `MB/sec` of its only row.
fn goodput(table: &str) -> Result<f64, Error> {
    let mut lines = table.lines();
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let head = lines.find(|l| l.starts_with("bytes")).map(columns).ok_or("no table")?;
    let row = lines.next().map(columns).ok_or("no row")?;
    let at = head.iter().position(|name| name == "MB/sec").ok_or("no MB/sec")?;
    let rate: f64 = row.get(at).ok_or("no rate")?.parse()?;
    Ok(rate * 8e6)
}

const MESSAGE_BYTES: &str = "1048576";

/// The time limit as a multiple of a sample's duration.
const TIME_LIMIT: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput__is_the_column_of_that_name() {
        let table = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer\n\
                     1m      10      =10      20m        11.01s      1.90    550497.88\n";
        assert!((goodput(table).unwrap() - 15.2e6).abs() < 1.0);
        assert!(goodput("").is_err());
        assert!(goodput("bytes MB/sec\n").is_err());
    }
}
