//! Waiting for a program that listens, for those that print nothing by then.

use crate::sample::Error;
use spanwire_io::net::NetNs;
use std::time::{Duration, Instant};

/// Waits until a TCP socket in the namespace listens at `port`, at most `time`.
pub(crate) fn wait_for_listener(ns: &NetNs, port: u16, time: Duration) -> Result<(), Error> {
    let deadline = Instant::now() + time;
    loop {
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/thread-self/net/{table}"));
        let read = || tables.each_ref().map(std::fs::read_to_string);
        match ns.run(read)?.iter().flatten().any(|table| listens(table, port)) {
            true => return Ok(()),
            false if Instant::now() > deadline => {
                return Err(format!("nothing listens at port {port}").into());
            }
            false => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// True if `/proc/net/tcp` has a socket in state LISTEN at `port`.
fn listens(table: &str, port: u16) -> bool {
    let is_it = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
        let port_text = local.rsplit_once(':')?.1;
        Some(state == "0A" && u16::from_str_radix(port_text, 16) == Ok(port))
    };
    table.lines().any(|line| is_it(line).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listens__finds_the_port_in_state_listen() {
        let table = "  sl  local_address rem_address   st tx_queue\n   \
                     0: 00000000:4855 00000000:0000 0A 00000000:00000000\n   \
                     1: 0100007F:1F90 0200007F:4855 01 00000000:00000000\n";
        assert!(listens(table, 18_517));
        assert!(!listens(table, 8_080) && !listens("", 18_517));
    }
}
