//! The line of the switch beside its file: rate, round-trip time and loss.

use super::stage::{Stage, counter, number};
use crate::bed::Bed;
use crate::sample::Error;
use spanwire_io::net::NetNs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Two hosts with a line of this rate and delay each way; `b` are further keys of host b's port.
pub(super) fn two(rate: &str, delay: &str, b: &str) -> String {
    let line = format!("rate = '{rate}'\ndelay = '{delay}'\nqueue.limit_bytes = '2MB'\n");
    format!("seed = 3\n[port.a]\n{line}[port.b]\n{line}{b}\n")
}

/// Round-trip times and goodput at 100 Mbit/s with 1 ms each way.
pub(super) fn short_path(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.switched(&two("100Mbit", "1ms", ""))?;
    let v4 = least_trip_ms(&bed, bed.address("b")?, 40)?;
    let v6 = least_trip_ms(&bed, bed.address_v6("b")?, 20)?;
    let _server = stage.server(&bed, "a", &["--window", "200"])?;
    let seconds = if stage.is_quick() { "1" } else { "2" };
    // A window that fills the path: this measures the switch, not congestion control.
    let fixed = ["--cc", "none", "--window", "200", "-t", seconds, "--depth", "16", "--mode"];
    let mut values = vec![v4, v6];
    let mut retransmitted = 0;
    for mode in ["rc", "sr"] {
        let report = stage.client(&bed, "b", bed.address("a")?, &[&fixed[..], &[mode]].concat())?;
        values.push(number(&report, "/perf/0/gbps")? * 1e3);
        retransmitted += counter(&report, "retransmitted_packets");
    }
    values.push(retransmitted as f64);
    Ok(values)
}

/// The same with 10 ms each way, and goodput of transfers that are compared by hash.
pub(super) fn long_path(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.switched(&two("100Mbit", "10ms", ""))?;
    let mut values = vec![least_trip_ms(&bed, bed.address("b")?, 20)?];
    let _server = stage.server(&bed, "a", &["--window", "400"])?;
    let fixed = ["--cc", "none", "--window", "400", "--transfer", "16M", "--depth", "32", "--mode"];
    for mode in ["rc", "sr"] {
        let report = stage.client(&bed, "b", bed.address("a")?, &[&fixed[..], &[mode]].concat())?;
        values.push(number(&report, "/transfer/gbps")? * 1e3);
    }
    Ok(values)
}

/// Datagrams that the line with 1 % loss drops, and those that are missing without having been
/// dropped.
pub(super) fn loss(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.switched(&two("100Mbit", "1ms", "loss = '1%'"))?;
    let lost = || number(&bed.show()?, "/ports/1/line_counters/drop_loss");
    let to = SocketAddr::new(bed.address("b")?, UDP_PORT);
    let (source, sink) = (bind(&bed.ns("a")?, any(to))?, bind(&bed.ns("b")?, to)?);
    sink.set_read_timeout(Some(SILENCE))?;
    let before = lost()?;
    let has_sent = AtomicBool::new(false);
    let received = thread::scope(|scope| {
        let counting = scope.spawn(|| count_datagrams(&sink, &has_sent));
        let sent = send_datagrams(stage, &source, to);
        has_sent.store(true, Ordering::Release);
        let received = counting.join().expect("the sink does not panic");
        sent.map(|()| received)
    })?;
    let lost = lost()? - before;
    let missing = (DATAGRAMS - received) as f64;
    Ok(vec![lost, (missing - lost).abs()])
}

/// Sends all datagrams, 20 a millisecond at most.
fn send_datagrams(stage: &Stage<'_>, source: &UdpSocket, to: SocketAddr) -> Result<(), Error> {
    for n in 0..DATAGRAMS {
        while let Err(e) = source.send_to(&[7; 100], to) {
            if e.kind() != ErrorKind::WouldBlock {
                return Err(e.into());
            }
        }
        if n % 20 == 0 {
            stage.check_time()?;
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Datagrams that arrive until the sender has finished and none arrives for [`SILENCE`].
fn count_datagrams(sink: &UdpSocket, has_sent: &AtomicBool) -> u64 {
    let (mut bytes, mut count) = ([0; 256], 0);
    loop {
        let is_last = has_sent.load(Ordering::Acquire);
        match sink.recv(&mut bytes) {
            Ok(_) => count += 1,
            Err(_) if is_last => return count,
            Err(_) => {}
        }
    }
}

/// The least round-trip time of `count` datagrams from host a to host b at `to`, in milliseconds.
pub(super) fn least_trip_ms(bed: &Bed, to: IpAddr, count: u32) -> Result<f64, Error> {
    let to = SocketAddr::new(to, ECHO_PORT);
    let (asking, echo) = (bind(&bed.ns("a")?, any(to))?, bind(&bed.ns("b")?, to)?);
    for socket in [&asking, &echo] {
        socket.set_read_timeout(Some(SILENCE * 4))?;
    }
    asking.connect(to)?;
    let times: Result<Vec<Duration>, Error> = thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 64];
            // An error here is one of the asking side too.
            (0..count).try_for_each(|_| {
                let (len, from) = echo.recv_from(&mut bytes)?;
                echo.send_to(&bytes[..len], from).map(|_| ())
            })
        });
        (0..count).map(|n| trip(&asking, n)).collect()
    });
    let least = times?.into_iter().min().ok_or("no round trip")?;
    Ok(least.as_secs_f64() * 1e3)
}

/// The round trip of datagram `n`.
fn trip(asking: &UdpSocket, n: u32) -> Result<Duration, Error> {
    let sent = Instant::now();
    asking.send(&n.to_be_bytes())?;
    let mut bytes = [0; 64];
    let len = asking.recv(&mut bytes).map_err(|e| format!("datagram {n}: {e}"))?;
    let took = sent.elapsed();
    match bytes[..len] == n.to_be_bytes() {
        true => Ok(took),
        false => Err(format!("another reply than that to datagram {n}").into()),
    }
}

fn bind(ns: &NetNs, at: SocketAddr) -> Result<UdpSocket, Error> {
    Ok(ns.run(|| UdpSocket::bind(at))??)
}

/// Any address and port of the family of `to`.
fn any(to: SocketAddr) -> SocketAddr {
    let text = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    text.parse().expect("an address")
}

const DATAGRAMS: u64 = 20_000;
const ECHO_PORT: u16 = 7_777;
const UDP_PORT: u16 = 7_778;
const SILENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn count_datagrams__ends_after_the_sender() {
        let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sink.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let source = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for _ in 0..3 {
            source.send_to(&[1], sink.local_addr().unwrap()).unwrap();
        }
        assert_eq!(count_datagrams(&sink, &AtomicBool::new(true)), 3);
    }
}
