//! Kernel TCP through the switch.

use super::stage::{Fault, Stage, number};
use super::switch::{least_trip_ms, two};
use crate::bed::wait_for_listener;
use crate::sample::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Goodput at 100 Mbit/s and, once the file has changed, at 50 Mbit/s, with the round-trip time
/// then. Over IPv6, so that neighbour discovery passes the switch as well.
pub(super) fn kernel(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.switched(&two("100Mbit", "1ms", ""))?;
    let at = SocketAddr::new(bed.address_v6("b")?, PORT);
    let [client, server] = stage.connect(&bed, at, SILENCE)?;
    let (pieces, changed) = thread::scope(|scope| {
        let sending = scope.spawn(move || send(stage, client));
        let receiving = scope.spawn(move || receive(stage, server));
        stage.sleep(Duration::from_millis(1_200));
        let set = bed.set(&["port.b.rate=50Mbit", "port.b.delay=2ms"].map(str::to_owned));
        let changed = Instant::now();
        let sent = sending.join().expect("the sender does not panic");
        let pieces = receiving.join().expect("the receiver does not panic");
        // The receiver's error first: the sender's may be its consequence.
        let pieces = pieces?;
        set.and(sent).map(|()| (pieces, changed))
    })?;
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
        return Err("nothing arrived".into());
    };
    // Slow start, and bytes in flight at the change, are left out.
    let begin = first.0 + Duration::from_millis(200);
    let settled = changed + Duration::from_millis(300);
    let rates = [(begin, changed), (settled, last.0)].map(|times| mbps(&pieces, times));
    Ok(vec![rates[0], rates[1], least_trip_ms(&bed, bed.address("b")?, 20)?])
}

fn send(stage: &Stage<'_>, mut stream: TcpStream) -> Result<(), Error> {
    let data: Vec<u8> = (0..BYTES).map(pattern).collect();
    data.chunks(CHUNK_BYTES).try_for_each(|chunk| {
        stage.check_time()?;
        Ok(stream.write_all(chunk)?)
    })
}

/// Receives all, with the time of each read.
fn receive(stage: &Stage<'_>, mut stream: TcpStream) -> Result<Vec<(Instant, usize)>, Error> {
    let (mut pieces, mut bytes, mut position) = (Vec::new(), vec![0; CHUNK_BYTES], 0);
    loop {
        stage.check_time()?;
        let len = stream.read(&mut bytes)?;
        if len == 0 {
            break;
        }
        if let Some(n) = (0..len).find(|n| bytes[*n] != pattern(position + n)) {
            return Err(Fault::WrongData(format!("byte {} differs", position + n)).into());
        }
        position += len;
        pieces.push((Instant::now(), len));
    }
    match position {
        BYTES => Ok(pieces),
        _ => Err(Fault::WrongData(format!("{position} bytes of {BYTES} arrived")).into()),
    }
}

fn pattern(position: usize) -> u8 {
    u8::try_from(position * 31 % 251).expect("below 251")
}

/// Mbit/s of the pieces between two times; the first of them only starts the clock.
fn mbps(pieces: &[(Instant, usize)], (from, to): (Instant, Instant)) -> f64 {
    let within: Vec<_> = pieces.iter().filter(|(at, _)| (from..to).contains(at)).collect();
    let [(first, _), rest @ ..] = &within[..] else { return f64::NAN };
    let (Some((last, _)), bytes) = (rest.last(), rest.iter().map(|(_, len)| len).sum::<usize>())
    else {
        return f64::NAN;
    };
    bytes as f64 * 8.0 / last.duration_since(*first).as_secs_f64() / 1e6
}

/// Goodput at 200 Mbit/s as iperf3 measures it.
pub(super) fn iperf3(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    if Command::new("iperf3").arg("--version").output().is_err() {
        let why = "iperf3 is not installed (apt-get install iperf3)";
        return Err(Fault::NoTool(why.to_owned()).into());
    }
    let bed = stage.switched(&two("200Mbit", "1ms", ""))?;
    let program = Path::new("iperf3");
    let _server = bed.start("a", program, &["-s", "-1"])?;
    let to = bed.address("a")?.to_string();
    let args = ["-c", &to, "-t", "2", "-O", "1", "-C", "cubic", "-J"];
    // It prints nothing when it listens, because its output is not a terminal.
    wait_for_listener(&bed.ns("a")?, IPERF3_PORT, stage.within(Duration::from_secs(10)))?;
    let report = stage.report(bed.start("b", program, &args)?)?;
    Ok(vec![number(&report, "/end/sum_received/bits_per_second")? / 1e6])
}

const BYTES: usize = 24_000_000;
const CHUNK_BYTES: usize = 1 << 16;
const PORT: u16 = 7_779;
const IPERF3_PORT: u16 = 5_201;
const SILENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mbps__the_first_piece_starts_the_clock() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let pieces =
            [(at(0), 99), (at(100), 77), (at(200), 50_000), (at(300), 75_000), (at(400), 9)];
        assert!((mbps(&pieces, (at(50), at(350))) - 5.0).abs() < 1e-9);
        assert!(mbps(&pieces, (at(50), at(150))).is_nan());
        assert!(mbps(&pieces, (at(500), at(600))).is_nan());
    }
}
