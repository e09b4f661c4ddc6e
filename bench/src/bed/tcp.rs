//! Kernel TCP from one host to another, with a selected congestion control.

use super::Bed;
use super::goodput::{Goodput, Interval, unix_s};
use crate::sample::Error;
use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Sends as fast as TCP can; returns the payload that arrives within `time` of the connection, from
/// host `from` to host `to`.
pub(crate) fn transfer(
    bed: &Bed,
    (from, to): (&str, &str),
    algorithm: &str,
    time: Duration,
) -> Result<Goodput, Error> {
    let address = bed.address(to)?;
    let listener = bed.ns(to)?.run(|| TcpListener::bind((address, 0)))??;
    let address = listener.local_addr()?;
    let client = bed.ns(from)?.run(|| TcpStream::connect_timeout(&address, CONNECT_WITHIN))??;
    let socket = SockRef::from(&client);
    socket.set_tcp_congestion(algorithm.as_bytes()).map_err(|e| format!("{algorithm}: {e}"))?;
    // Unsent data are discarded on close.
    socket.set_linger(Some(Duration::ZERO))?;
    client.set_write_timeout(Some(time))?;
    // The handshake's last segment may have been lost: the first data segment replaces it.
    listener.set_nonblocking(true)?;
    let start_unix_s = unix_s()?;
    let deadline = Instant::now() + time;
    let intervals = std::thread::scope(|scope| {
        let writer = scope.spawn(move || write_until(client, deadline));
        let received = receive_for(&listener, time);
        writer.join().expect("the writer does not panic");
        received
    })?;
    let bytes: u64 = intervals.iter().map(|i| i.bytes).sum();
    #[expect(clippy::cast_precision_loss, reason = "a report's figure, of three digits")]
    let bps = bytes as f64 * 8.0 / time.as_secs_f64();
    Ok(Goodput { start_unix_s, bps, intervals })
}

fn write_until(mut stream: TcpStream, deadline: Instant) {
    let bytes = vec![0x5a; CHUNK_BYTES];
    // An error ends it as the deadline does: all bytes that arrived by then count.
    while Instant::now() < deadline && stream.write(&bytes).is_ok() {}
}

/// Bytes that arrive within `time`, in intervals that cover it.
fn receive_for(listener: &TcpListener, time: Duration) -> Result<Vec<Interval>, Error> {
    let start = Instant::now();
    let left = || (start + time).saturating_duration_since(Instant::now());
    let mut received = intervals(time);
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(e) if e.kind() == ErrorKind::WouldBlock && !left().is_zero() => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(received),
            Err(e) => return Err(e.into()),
        }
    };
    stream.set_nonblocking(false)?;
    let mut bytes = vec![0; CHUNK_BYTES];
    while !left().is_zero() {
        stream.set_read_timeout(Some(left().max(Duration::from_millis(1))))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => {
                let at = start.elapsed().as_secs_f64();
                // Bytes read after the last interval arrived too late.
                if let Some(interval) = received.iter_mut().find(|i| at < i.end_s) {
                    interval.bytes += n as u64;
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(received)
}

/// Empty intervals of a tenth of a second that cover `time`.
fn intervals(time: Duration) -> Vec<Interval> {
    let time = time.as_secs_f64();
    let ends = (1..).map(|n| f64::from(n) * INTERVAL_S).take_while(|end| *end < time - 1e-9);
    let mut start_s = 0.0;
    let interval =
        |end_s| Interval { start_s: std::mem::replace(&mut start_s, end_s), end_s, bytes: 0 };
    ends.chain([time]).map(interval).collect()
}

const INTERVAL_S: f64 = 0.1;

/// The usual write size of a program that moves bulk data.
const CHUNK_BYTES: usize = 128 << 10;

/// Five connection attempts of the kernel.
const CONNECT_WITHIN: Duration = Duration::from_secs(32);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn bytes(intervals: &[Interval]) -> u64 {
        intervals.iter().map(|i| i.bytes).sum()
    }

    #[test]
    fn receive_for__counts_what_arrives_in_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(&[7; 1000]).unwrap();
        drop(client);
        // The connection ends long before the time.
        let received = receive_for(&listener, Duration::from_secs(600)).unwrap();
        assert_eq!((bytes(&received), received.len()), (1000, 6000));
        assert_eq!(bytes(&receive_for(&listener, Duration::ZERO).unwrap()), 0);
    }

    #[test]
    fn receive_for__ends_after_its_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(&[7; 1000]).unwrap();
        let (time, start) = (Duration::from_millis(150), Instant::now());
        // Nothing, if this thread gets no core in time.
        let received = receive_for(&listener, time).unwrap();
        assert!(start.elapsed() >= time);
        assert_eq!(received.len(), 2);
        assert!([0, 1000].contains(&bytes(&received)), "{received:?}");
        drop(client);
    }

    #[test]
    fn intervals__cover_the_time() {
        let cut = intervals(Duration::from_millis(250));
        let ends: Vec<f64> = cut.iter().map(|i| i.end_s).collect();
        assert_eq!((ends.len(), ends[2]), (3, 0.25));
        assert!(cut.windows(2).all(|pair| pair[0].end_s == pair[1].start_s));
        assert_eq!(intervals(Duration::from_secs(2)).len(), 20);
    }
}
