//! Kernel TCP between two hosts of its own, which never get an XDP program: attaching one to a
//! veth disables the segmentation offload of its peer, which TCP needs.

use crate::raw::{both_sides, watched};
use crate::rtt::Trips;
use crate::sample::{Error, Rate, Reading, Sample};
use af_xdp::sockopt;
use spanwire_base::u64_from;
use spanwire_io::net::{Ethtool, Host, Offloads, TwoHosts};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How a ping-pong waits for the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Polls, as the engine does.
    Spin,
    /// Sleeps in `read`, as most programs do.
    Block,
}

/// Bulk data.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    /// Bytes of a write.
    pub bytes: usize,
    /// The rate at which the kernel sends, in bits a second; none for no limit.
    pub bps: Option<u64>,
    /// The time in which writes begin.
    pub time: Duration,
}

/// Measures a bulk stream from host `a` on the first core to `b` on the second.
///
/// # Errors
/// The offloads cannot be set, or the connection fails.
pub fn stream(
    hosts: &TwoHosts,
    cores: [usize; 2],
    offloads: &Offloads,
    bulk: Bulk,
) -> Result<Sample, Error> {
    let [client, server] = connect(hosts, offloads)?;
    if let Some(bps) = bulk.bps {
        sockopt::set(&client, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &(bps / 8))?;
    }
    let (written, read) = both_sides(
        || watched(cores[0], || write(client, bulk)),
        || watched(cores[1], || read_all(server)),
    );
    let ((), use_a) = written?;
    let (rate, use_b) = read?;
    Ok(Sample::rate(rate, [use_a, use_b]))
}

/// Measures round trips of `bytes` bytes for `time`, offloads on, without Nagle's delay.
///
/// # Errors
/// The offloads cannot be set, or the connection fails.
pub fn ping_pong(
    hosts: &TwoHosts,
    cores: [usize; 2],
    bytes: usize,
    wait: Wait,
    time: Duration,
) -> Result<Sample, Error> {
    let [client, server] = connect(hosts, &Offloads::ON)?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
        end.set_nonblocking(wait == Wait::Spin)?;
    }
    let (client_result, server_result) = both_sides(
        || watched(cores[0], || run_client(client, bytes, bytes, time)),
        || watched(cores[1], || run_server(server, bytes, bytes)),
    );
    let (trips, use_a) = client_result?;
    let ((), use_b) = server_result?;
    Ok(Sample { reading: Reading::Latency(trips.latency()?), stolen: [use_a.stolen, use_b.stolen] })
}

/// Sets the offloads of both interfaces.
pub(crate) fn set_offloads(hosts: &TwoHosts, offloads: &Offloads) -> Result<(), Error> {
    let switch = |host: &Host| Ethtool::open_in(&host.ns)?.set_offloads(&host.ifname, offloads);
    switch(&hosts.a)?;
    Ok(switch(&hosts.b)?)
}

/// Both ends of a connection from `a` to `b`, with these offloads on both interfaces.
fn connect(hosts: &TwoHosts, offloads: &Offloads) -> Result<[TcpStream; 2], Error> {
    set_offloads(hosts, offloads)?;
    let listener = hosts.b.ns.run(|| TcpListener::bind((hosts.b.v4, 0)))??;
    let address = SocketAddr::new(hosts.b.v4.into(), listener.local_addr()?.port());
    let client = hosts.a.ns.run(|| TcpStream::connect_timeout(&address, SILENCE))??;
    let (server, _) = listener.accept()?;
    for end in [&client, &server] {
        end.set_read_timeout(Some(SILENCE))?;
        end.set_write_timeout(Some(SILENCE))?;
    }
    Ok([client, server])
}

fn write(mut stream: TcpStream, bulk: Bulk) -> Result<(), Error> {
    let bytes = vec![0x5a; bulk.bytes];
    let start = Instant::now();
    // At least once, however late this thread is.
    loop {
        stream.write_all(&bytes)?;
        if start.elapsed() >= bulk.time {
            return Ok(());
        }
    }
}

/// Reads to the end; the rate is that from the first byte to the last.
fn read_all(mut stream: TcpStream) -> Result<Rate, Error> {
    let mut bytes = vec![0; CHUNK_BYTES];
    stream.read_exact(&mut bytes[..1])?;
    let start = Instant::now();
    let mut count = 0;
    loop {
        match stream.read(&mut bytes)? {
            0 => break,
            n => count += n,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let goodput_gbps = count as f64 * 8.0 / seconds / 1e9;
    Ok(Rate { goodput_gbps, bytes: u64_from(count) + 1, ..Rate::default() })
}

/// Sends messages for `time`, each after the reply of `reply` bytes, at most as many, to the one
/// before.
pub(crate) fn run_client(
    mut stream: TcpStream,
    bytes: usize,
    reply: usize,
    time: Duration,
) -> Result<Trips, Error> {
    let mut message = vec![0x5a; bytes];
    let mut trips = Trips::default();
    let start = Instant::now();
    loop {
        let sent_at = Instant::now();
        // One message is in flight at most: a small one always fits the socket's buffer.
        stream.write_all(&message)?;
        if !read_small(&mut stream, &mut message[..reply])? {
            return Err("the other end has closed".into());
        }
        trips.record(sent_at.elapsed());
        if start.elapsed() >= time {
            return Ok(trips);
        }
    }
}

/// Replies to messages of `bytes` bytes with the first `reply` of them.
pub(crate) fn run_server(mut stream: TcpStream, bytes: usize, reply: usize) -> Result<(), Error> {
    let mut message = vec![0; bytes];
    while read_small(&mut stream, &mut message)? {
        stream.write_all(&message[..reply])?;
    }
    Ok(())
}

/// Fills `message`, spinning if the socket does not block; false at the end of the stream.
fn read_small(stream: &mut TcpStream, message: &mut [u8]) -> Result<bool, Error> {
    let mut filled = 0;
    let mut looks = 0u32;
    let mut since = None;
    while filled < message.len() {
        match stream.read(&mut message[filled..]) {
            Ok(0) => return Ok(false),
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock && looks < LOOKS_PER_CLOCK => looks += 1,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                looks = 0;
                if since.get_or_insert_with(Instant::now).elapsed() > SILENCE {
                    return Err(e.into());
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
}

/// The usual write size of a program that moves bulk data.
pub const CHUNK_BYTES: usize = 128 << 10;
const SILENCE: Duration = Duration::from_secs(5);
const LOOKS_PER_CLOCK: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connected;

    #[test]
    fn read_all__counts_what_was_written_until_the_end() {
        let [client, server] = connected();
        let bulk = Bulk { bytes: CHUNK_BYTES, bps: None, time: Duration::from_millis(50) };
        let writer = std::thread::spawn(move || write(client, bulk));
        let rate = read_all(server).unwrap();
        writer.join().unwrap().unwrap();
        let gbps = rate.goodput_gbps;
        assert!(gbps > 0.0 && gbps.is_finite(), "{gbps}");
        assert!(rate.bytes >= CHUNK_BYTES as u64 && rate.bytes.is_multiple_of(CHUNK_BYTES as u64));
    }

    #[test]
    fn run_client__every_request_is_answered_spinning_or_not() {
        for spin in [false, true] {
            let [client, server] = connected();
            client.set_nonblocking(spin).unwrap();
            server.set_nonblocking(spin).unwrap();
            let server_thread = std::thread::spawn(|| run_server(server, 64, 64));
            let trips = run_client(client, 64, 64, Duration::from_millis(20)).unwrap();
            server_thread.join().unwrap().unwrap();
            assert!(trips.latency().unwrap().rtt_p50_us > 0.0);
        }
    }

    #[test]
    fn read_small__an_end_within_a_message_ends_it() {
        let [mut client, mut server] = connected();
        client.write_all(&[1, 2, 3]).unwrap();
        drop(client);
        assert!(!read_small(&mut server, &mut [0; 4]).unwrap());
    }
}
