use super::*;
use crate::fabric::Wrap;
use crate::oob::Oob;
use spanwire_io::fault::FaultConfig;
use std::net::Ipv4Addr;
use std::thread;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn job(kind: JobKind, op: Op, size: u32, depth: u32) -> Job {
    Job { kind, op, size, qps: 2, depth, path_mtu: 1024, timeout: 10, retry_cnt: 7 }
}

fn station(attachment: Attachment, ip: IpAddr, mode: ModeChoice) -> Station {
    let spin = spanwire_base::Dur::from_us(50);
    let mut station = Station::new(attachment, ip, Polling::Adaptive { spin }).unwrap();
    station.set_mode(mode, None);
    station
}

/// Runs `client` against a server over a pipe with these faults in both directions.
fn with_server<T>(
    mode: ModeChoice,
    faults: Option<FaultConfig>,
    client: impl FnOnce(&mut Station, &mut Oob) -> T,
) -> T {
    let wrap = Wrap { faults, pcap: None };
    let (near, far) = Attachment::pipe([&wrap, &wrap]).unwrap();
    let (mut oob, theirs) = Oob::pair().unwrap();
    let serve = thread::spawn(move || {
        station(far, SERVER, mode).serve(theirs, || false, |_| {}).map_err(|e| e.to_string())
    });
    let mut near = station(near, CLIENT, mode);
    near.meet(&mut oob).unwrap();
    let outcome = client(&mut near, &mut oob);
    drop(oob);
    serve.join().unwrap().unwrap();
    outcome
}

#[test]
fn run__a_ping_pong_follows_a_bandwidth_run() {
    let bandwidth = JobKind::Bandwidth { duration_ms: 50 };
    let latency = JobKind::Latency { duration_ms: 50 };
    for mode in [ModeChoice::Rc, ModeChoice::Src] {
        with_server(mode, None, |station, oob| {
            for op in [Op::Write, Op::Send] {
                for job in [job(bandwidth, op, 1 << 16, 16), job(latency, Op::Send, 64, 1)] {
                    let report = station.run(oob, job, |_| false).unwrap();
                    assert!(report.is_ok(), "{mode:?} {job:?}: {:?}", report.progress.failure);
                    assert!(report.progress.messages > 0, "{job:?}");
                }
            }
        });
    }
}

/// Lost ACKs leave several pings, or several pongs, without a completion.
#[test]
fn run__a_ping_pong_outlives_loss_of_acknowledgements() {
    let faults = FaultConfig { seed: 3, loss_ppm: 50_000, ..FaultConfig::default() };
    let latency = JobKind::Latency { duration_ms: 300 };
    for mode in [ModeChoice::Rc, ModeChoice::Src] {
        with_server(mode, Some(faults), |station, oob| {
            let report = station.run(oob, job(latency, Op::Send, 64, 1), |_| false).unwrap();
            assert!(report.is_ok(), "{mode:?}: {:?}", report.progress.failure);
            assert_eq!(report.progress.messages, report.peer_messages, "{mode:?}");
        });
    }
}
