//! Kernel TCP through the switch.

use super::stage::{Fault, Stage, number};
use super::switch::{least_trip_ms, two};
use crate::bed::{Goodput, Interval, unix_s, wait_for_listener};
use crate::sample::Error;
use spanwire_base::u64_from;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Goodput at 100 Mbit/s and, once the file has changed, at 50 Mbit/s, with the round-trip time
/// then. Over IPv6, so that neighbour discovery passes the switch as well.
pub(super) fn kernel(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.switched(&two("100Mbit", "1ms", ""))?;
    let at = SocketAddr::new(bed.address_v6("b")?, PORT);
    let [client, server] = stage.connect(&bed, at, SILENCE)?;
    let (goodput, changed) = thread::scope(|scope| {
        let sending = scope.spawn(move || send(stage, client));
        let receiving = scope.spawn(move || receive(stage, server));
        stage.sleep(Duration::from_millis(1_200));
        let set = bed.set(&["port.b.rate=50Mbit", "port.b.delay=2ms"].map(str::to_owned));
        let changed = unix_s()?;
        let sent = sending.join().expect("the sender does not panic");
        let goodput = receiving.join().expect("the receiver does not panic");
        // The receiver's error first: the sender's may be its consequence.
        let goodput = goodput?;
        set.and(sent).map(|()| (goodput, changed))
    })?;
    // Slow start, and bytes in flight at the change, are left out.
    let before = goodput.mean_bps(goodput.start_unix_s + 0.2, changed) / 1e6;
    let after = goodput.mean_bps(changed + 0.3, goodput.end_unix_s()) / 1e6;
    Ok(vec![before, after, least_trip_ms(&bed, bed.address("b")?, 20)?])
}

fn send(stage: &Stage<'_>, mut stream: TcpStream) -> Result<(), Error> {
    let data: Vec<u8> = (0..BYTES).map(pattern).collect();
    data.chunks(CHUNK_BYTES).try_for_each(|chunk| {
        stage.check_time()?;
        Ok(stream.write_all(chunk)?)
    })
}

/// Receives all; the first read only starts the clock.
fn receive(stage: &Stage<'_>, mut stream: TcpStream) -> Result<Goodput, Error> {
    let (mut bytes, mut position) = (vec![0; CHUNK_BYTES], 0);
    let mut goodput = Goodput { start_unix_s: 0.0, bps: 0.0, intervals: Vec::new() };
    loop {
        stage.check_time()?;
        let len = stream.read(&mut bytes)?;
        if len == 0 {
            break;
        }
        if let Some(n) = (0..len).find(|n| bytes[*n] != pattern(position + n)) {
            return Err(Fault::WrongData(format!("byte {} differs", position + n)).into());
        }
        if position == 0 {
            goodput.start_unix_s = unix_s()?;
        } else {
            let end_s = unix_s()? - goodput.start_unix_s;
            let start_s = goodput.intervals.last().map_or(0.0, |last| last.end_s);
            goodput.intervals.push(Interval { start_s, end_s, bytes: u64_from(len) });
        }
        position += len;
    }
    match position {
        BYTES => Ok(goodput),
        _ => Err(Fault::WrongData(format!("{position} bytes of {BYTES} arrived")).into()),
    }
}

fn pattern(position: usize) -> u8 {
    u8::try_from(position * 31 % 251).expect("below 251")
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
