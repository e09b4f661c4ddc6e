//! Bulk data from the client's memory to the server's. Every page has its position, which the
//! server checks.

use super::case::BulkTransport;
use super::exchange::{cpu_time, micros};
use super::task::{End, EndReport, SILENCE};
use super::tcp;
use crate::sample::Error;
use sha2::{Digest, Sha256};
use spanwire_stream::{ByteStream, ConnectOptions, Network, NetworkOptions};
use std::io::{Read, Write};
use std::time::Instant;

/// Moves `bytes`, whole pages, from the client to the server.
pub(super) fn run(end: &End, transport: BulkTransport, bytes: u64) -> Result<EndReport, Error> {
    match transport {
        BulkTransport::Stream => over_stream(end, bytes),
        BulkTransport::Tcp | BulkTransport::HashedTcp => {
            let hash = transport == BulkTransport::HashedTcp;
            let mut socket = tcp::sockets(end)?.pop().ok_or("no connection")?;
            if end.server.is_some() {
                send(&mut socket, bytes, hash)
            } else {
                receive(&mut socket, bytes, hash)
            }
        }
        BulkTransport::Copy => Err("copy has commands of its own".into()),
    }
}

fn over_stream(end: &End, bytes: u64) -> Result<EndReport, Error> {
    let network = Network::open(&end.dev, NetworkOptions::default())?;
    let limited = |mut stream: ByteStream| {
        stream.set_read_timeout(Some(SILENCE));
        stream.set_write_timeout(Some(SILENCE));
        stream
    };
    let options = ConnectOptions::default();
    let report = if let Some(server) = end.server {
        let mut stream = limited(network.connect_stream(server, &options)?);
        let report = send(&mut stream, bytes, false)?;
        stream.close(SILENCE)?;
        report
    } else {
        let listener = network.listen_stream(0, options)?;
        end.announce(listener.local_addr().port());
        let accepted = listener.accept_timeout(SILENCE)?;
        let mut stream = limited(accepted.ok_or_else(|| format!("no client within {SILENCE:?}"))?);
        let report = receive(&mut stream, bytes, false)?;
        stream.close(SILENCE)?;
        report
    };
    network.shutdown(SILENCE)?;
    Ok(report)
}

/// Sends `bytes`, and waits until the server has verified them.
fn send(stream: &mut (impl Read + Write), bytes: u64, hash: bool) -> Result<EndReport, Error> {
    let mut chunk = vec![0x5a; CHUNK_BYTES];
    let mut hasher = Sha256::new();
    let (start, cpu) = (Instant::now(), cpu_time());
    for at in (0..bytes).step_by(CHUNK_BYTES) {
        let chunk = part(&mut chunk, bytes - at);
        for (n, page) in (0..).zip(chunk.chunks_exact_mut(PAGE_BYTES)) {
            position(page)?.copy_from_slice(&(at + n).to_le_bytes());
        }
        if hash {
            hasher.update(&*chunk);
        }
        stream.write_all(chunk)?;
    }
    if hash {
        stream.write_all(&hasher.finalize())?;
    }
    stream.flush()?;
    let mut verified = [0; 8];
    stream.read_exact(&mut verified)?;
    let (seconds, count) = (start.elapsed().as_secs_f64(), u64::from_le_bytes(verified));
    Ok(report(count, seconds, cpu_us_since(cpu)))
}

/// Receives and verifies `bytes`.
fn receive(stream: &mut (impl Read + Write), bytes: u64, hash: bool) -> Result<EndReport, Error> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut hasher = Sha256::new();
    let mut cpu = None;
    for at in (0..bytes).step_by(CHUNK_BYTES) {
        let chunk = part(&mut chunk, bytes - at);
        stream.read_exact(chunk)?;
        cpu.get_or_insert_with(cpu_time);
        for (n, page) in (0..).zip(chunk.chunks_exact_mut(PAGE_BYTES)) {
            if *position(page)? != (at + n).to_le_bytes() {
                return Err(format!("page {n} after byte {at} is another one").into());
            }
        }
        if hash {
            hasher.update(&*chunk);
        }
    }
    if hash {
        let mut sent = [0; 32];
        stream.read_exact(&mut sent)?;
        if hasher.finalize()[..] != sent {
            return Err("the data have another hash".into());
        }
    }
    stream.write_all(&bytes.to_le_bytes())?;
    stream.flush()?;
    Ok(report(bytes, 0.0, cpu_us_since(cpu.unwrap_or_default())))
}

fn cpu_us_since(cpu: std::time::Duration) -> f64 {
    micros(cpu_time().saturating_sub(cpu))
}

/// The part of a chunk for what is left.
fn part(chunk: &mut [u8], left: u64) -> &mut [u8] {
    let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
    &mut chunk[..bytes]
}

/// The position of a page: its first word.
fn position(page: &mut [u8]) -> Result<&mut [u8; 8], Error> {
    Ok(page.first_chunk_mut().ok_or("a page is shorter than its position")?)
}

fn report(count: u64, seconds: f64, cpu_us: f64) -> EndReport {
    EndReport { count, measured: count, seconds, cpu_us, ..EndReport::default() }
}

/// The usual write size of a program that moves bulk data.
const CHUNK_BYTES: usize = 128 << 10;
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connected;

    #[test]
    fn send__the_server_verifies_every_page() {
        for hash in [false, true] {
            let [mut client, mut server] = connected();
            let bytes = 3 * CHUNK_BYTES as u64 + 8192;
            let receiver = std::thread::spawn(move || receive(&mut server, bytes, hash));
            assert_eq!(send(&mut client, bytes, hash).unwrap().count, bytes);
            assert_eq!(receiver.join().unwrap().unwrap().count, bytes);
        }
    }

    #[test]
    fn receive__another_page_or_hash_is_an_error() {
        let received = |pages: [u64; 2], hash: bool| {
            let [mut client, mut server] = connected();
            for n in pages {
                let mut page = [0; PAGE_BYTES];
                page[..8].copy_from_slice(&n.to_le_bytes());
                client.write_all(&page).unwrap();
            }
            client.write_all(&[0; 32]).unwrap();
            receive(&mut server, 2 * PAGE_BYTES as u64, hash)
        };
        assert!(received([0, 1], false).is_ok());
        let why = received([0, 0], false).unwrap_err().to_string();
        assert!(why.contains("page 1 after byte 0"), "{why}");
        assert!(received([0, 1], true).unwrap_err().to_string().contains("hash"));
    }
}
