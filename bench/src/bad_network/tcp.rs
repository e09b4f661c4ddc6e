//! Kernel TCP from host b to host a, with a selected congestion control.

use super::bed::Bed;
use crate::sample::Error;
use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Payload bits a second that arrive within `time` of the connection.
pub(super) fn goodput_bps(bed: &Bed, algorithm: &str, time: Duration) -> Result<f64, Error> {
    let listener = bed.ns("a")?.run(|| TcpListener::bind((bed.a, 0)))??;
    let address = listener.local_addr()?;
    let client = bed.ns("b")?.run(|| TcpStream::connect_timeout(&address, CONNECT_WITHIN))??;
    let socket = SockRef::from(&client);
    socket.set_tcp_congestion(algorithm.as_bytes()).map_err(|e| format!("{algorithm}: {e}"))?;
    // Unsent data are discarded on close.
    socket.set_linger(Some(Duration::ZERO))?;
    client.set_write_timeout(Some(time))?;
    // The handshake's last segment may have been lost: the first data segment replaces it.
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + time;
    let received = std::thread::scope(|scope| {
        let writer = scope.spawn(move || write_until(client, deadline));
        let received = receive_until(&listener, deadline);
        writer.join().expect("the writer does not panic");
        received
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a report's figure, of three digits")]
    let bits = received as f64 * 8.0;
    Ok(bits / time.as_secs_f64())
}

fn write_until(mut stream: TcpStream, deadline: Instant) {
    let bytes = vec![0x5a; CHUNK_BYTES];
    // An error ends it as the deadline does: all bytes that arrived by then count.
    while Instant::now() < deadline && stream.write(&bytes).is_ok() {}
}

/// Bytes that arrive until `deadline`.
fn receive_until(listener: &TcpListener, deadline: Instant) -> Result<u64, Error> {
    let left = || deadline.saturating_duration_since(Instant::now());
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(e) if e.kind() == ErrorKind::WouldBlock && !left().is_zero() => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(e) => return Err(e.into()),
        }
    };
    stream.set_nonblocking(false)?;
    let mut bytes = vec![0; CHUNK_BYTES];
    let mut received = 0;
    while !left().is_zero() {
        stream.set_read_timeout(Some(left().max(Duration::from_millis(1))))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => received += n as u64,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(received)
}

/// The usual write size of a program that moves bulk data.
const CHUNK_BYTES: usize = 128 << 10;

/// Five connection attempts of the kernel.
const CONNECT_WITHIN: Duration = Duration::from_secs(32);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn receive_until__counts_what_arrives_in_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        client.write_all(&[7; 1000]).unwrap();
        let deadline = Instant::now() + Duration::from_millis(100);
        assert_eq!(receive_until(&listener, deadline).unwrap(), 1000);
        assert!(Instant::now() >= deadline);
        assert_eq!(receive_until(&listener, Instant::now()).unwrap(), 0);
    }
}
