use super::*;
use crate::fabric::Wrap;
use crate::initiator::Progress;
use crate::oob::{JobKind, Oob, Op};
use spanwire_base::Dur;
use spanwire_io::fault::FaultConfig;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn job(kind: JobKind, op: Op, size: u32, depth: u32) -> Job {
    // A thread may have no core for seconds.
    Job { op, size, qps: 2, depth, timeout: 16, ..Job::of(kind) }
}

fn runner(attachment: Attachment, ip: IpAddr, mode: ModeChoice) -> JobRunner {
    let spin = spanwire_base::Dur::from_us(50);
    let mut runner = JobRunner::new(attachment, ip, Polling::Spin(spin)).unwrap();
    runner.set_mode(mode, None);
    runner
}

/// Runs `client` against a server over a pipe with these faults in both directions.
fn with_server<T>(
    mode: ModeChoice,
    faults: Option<FaultConfig>,
    client: impl FnOnce(&mut JobRunner, &mut Oob) -> T,
) -> T {
    with_server_that(|| false, mode, faults, client)
}

/// As [`with_server`], with a server that calls `stop` in every step.
fn with_server_that<T>(
    stop: impl Fn() -> bool + Send + 'static,
    mode: ModeChoice,
    faults: Option<FaultConfig>,
    client: impl FnOnce(&mut JobRunner, &mut Oob) -> T,
) -> T {
    let wrap = Wrap { faults, pcap: None };
    let (near, far) = Attachment::pipe([&wrap, &wrap]).unwrap();
    let (mut oob, theirs) = Oob::pair().unwrap();
    let serve = thread::spawn(move || {
        runner(far, SERVER, mode).serve(theirs, stop, |_| {}).map_err(|e| e.to_string())
    });
    let mut near = runner(near, CLIENT, mode);
    near.handshake(&mut oob).unwrap();
    let outcome = client(&mut near, &mut oob);
    drop(oob);
    serve.join().unwrap().unwrap();
    outcome
}

#[test]
fn run__a_ping_pong_follows_a_bandwidth_run() {
    let bandwidth = JobKind::Bandwidth { duration_ms: 50 };
    let latency = JobKind::Latency { duration_ms: 50 };
    for mode in [ModeChoice::Rc, ModeChoice::Sr] {
        with_server(mode, None, |runner, oob| {
            for op in [Op::Write, Op::Send] {
                for job in [job(bandwidth, op, 1 << 16, 16), job(latency, Op::Send, 64, 1)] {
                    let report = runner.run(oob, job, &|| false, |_| {}).unwrap();
                    assert!(report.is_ok(), "{mode:?} {job:?}: {:?}", report.progress.failure);
                    assert!(report.progress.messages > 0, "{job:?}");
                }
            }
        });
    }
}

/// Several pings, or several pongs, stay without a completion while ACKs are lost.
#[test]
fn run__a_ping_pong_survives_loss_of_acks() {
    let faults = FaultConfig { seed: 3, loss_ppm: 50_000, ..FaultConfig::default() };
    // 67 ms for each loss, and 1.8 s until the peer counts as gone.
    let (latency, timeout) = (JobKind::Latency { duration_ms: 1500 }, 14);
    for mode in [ModeChoice::Rc, ModeChoice::Sr] {
        with_server(mode, Some(faults), |runner, oob| {
            let report = runner
                .run(oob, Job { timeout, ..job(latency, Op::Send, 64, 1) }, &|| false, |_| {})
                .unwrap();
            assert!(report.is_ok(), "{mode:?}: {:?}", report.progress.failure);
            let received = report.peer.map(|peer| peer.messages);
            assert_eq!(received, Some(report.progress.messages), "{mode:?}");
        });
    }
}

#[test]
fn run__an_unreachable_peer_is_reported() {
    let faults = FaultConfig { loss_ppm: 1_000_000, ..FaultConfig::default() };
    let transfer = JobKind::Transfer { bytes: 1 << 20, seed: 1 };
    let bandwidth = JobKind::Bandwidth { duration_ms: 10 };
    for (mode, kind) in [(ModeChoice::Rc, transfer), (ModeChoice::Sr, bandwidth)] {
        with_server(mode, Some(faults), |runner, oob| {
            // Retries end within the test; with the default parameters the outcome is the same.
            let job = Job { retry_cnt: 0, timeout: 6, ..job(kind, Op::Write, 1024, 4) };
            let failure = runner.run(oob, job, &|| false, |_| {}).unwrap().progress.failure;
            let error = failure.expect("nothing arrives").to_string();
            for words in ["not one packet came back", "spanwire doctor", "queue"] {
                assert!(error.contains(words), "{mode:?}: {error}");
            }
        });
    }
}

/// A server's `stop` that does not return while `suspended`.
fn while_suspended(suspended: &Arc<AtomicBool>) -> impl Fn() -> bool + Send + 'static {
    let suspended = Arc::clone(suspended);
    move || {
        while suspended.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

/// Runs `job` with a server that is suspended from the first completion to the end of the client.
fn run_with_suspended_server(mode: ModeChoice, job: Job) -> JobReport {
    let suspended = Arc::new(AtomicBool::new(false));
    with_server_that(while_suspended(&suspended), mode, None, |runner, oob| {
        let report = runner.run(oob, job, &|| false, |watch| {
            let has_begun = watch.app().progress().messages > 0;
            suspended.fetch_or(has_begun, Ordering::AcqRel);
        });
        suspended.store(false, Ordering::Release);
        report.unwrap()
    })
}

#[test]
fn run__a_suspended_server_changes_neither_the_time_nor_the_measurement() {
    const MS: u64 = 2500;
    let bandwidth = JobKind::Bandwidth { duration_ms: MS };
    let latency = JobKind::Latency { duration_ms: MS };
    // Retries for longer than the run.
    let patient = |job| Job { timeout: 18, ..job };
    let jobs = [
        (ModeChoice::Rc, patient(job(bandwidth, Op::Write, 1 << 16, 16))),
        (ModeChoice::Sr, patient(job(bandwidth, Op::Read, 1 << 16, 16))),
        (ModeChoice::Sr, patient(job(bandwidth, Op::FetchAdd, 8, 16))),
        (ModeChoice::Rc, patient(job(latency, Op::Send, 64, 1))),
    ];
    thread::scope(|scope| {
        for (mode, job) in jobs {
            scope.spawn(move || {
                let report = run_with_suspended_server(mode, job);
                let Progress { messages, unfinished, failure, .. } = report.progress;
                assert!(messages > 0 && unfinished > 0 && failure.is_none(), "{job:?} {failure:?}");
                assert!(report.duration() >= Dur::from_ms(MS), "{job:?}: {:?}", report.duration());
                let most = messages as f64 / (MS as f64 / 1e3);
                assert!(report.messages_per_s() <= most, "{job:?}: {}", report.messages_per_s());
                let error = report.error().expect("the result is missing");
                let words = "the peer's result is missing: the peer said nothing for 1s";
                assert!(error.starts_with(words), "{error}");
                assert!(report.peer.is_none() && !report.is_ok());
            });
        }
    });
}

#[test]
fn run__a_suspended_client_completes_its_messages() {
    let job = job(JobKind::Bandwidth { duration_ms: 300 }, Op::Write, 64, 4);
    let away = Duration::from_millis(2000);
    with_server(ModeChoice::Rc, None, |runner, oob| {
        let mut has_slept = false;
        let report = runner.run(oob, job, &|| false, |watch| {
            if watch.app().progress().messages > 0 && !has_slept {
                has_slept = true;
                thread::sleep(away);
            }
        });
        let report = report.unwrap();
        assert!(has_slept && report.is_ok(), "{:?}", report.error());
        assert_eq!(report.progress.unfinished, 0);
        assert!(report.duration() >= Dur::from_ms(2000), "{:?}", report.duration());
        assert_eq!(report.peer.map(|peer| peer.messages), Some(0));
    });
}

#[test]
fn run__a_wait_for_the_result_can_be_stopped() {
    let suspended = Arc::new(AtomicBool::new(false));
    with_server_that(while_suspended(&suspended), ModeChoice::Rc, None, |runner, oob| {
        let job = job(JobKind::Transfer { bytes: 1 << 20, seed: 1 }, Op::Write, 1 << 16, 16);
        let stop = || suspended.load(Ordering::Acquire);
        let report = runner.run(oob, job, &stop, |watch| {
            suspended.fetch_or(watch.app().is_done(), Ordering::AcqRel);
        });
        suspended.store(false, Ordering::Release);
        let report = report.unwrap();
        assert_eq!(report.error().as_deref(), Some("the peer's result is missing: interrupted"));
        assert_eq!((report.sha256.is_some(), report.sha256_match()), (true, None));
        assert!(!report.is_ok());
    });
}

#[test]
fn check_request__max_transfer_bounds_every_kind_of_job() {
    let (_near, far) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
    let mut server = runner(far, SERVER, ModeChoice::Auto);
    server.set_transfer_bytes_max(1 << 20);
    let (seed, duration_ms) = (1, 5);
    let bandwidth = JobKind::Bandwidth { duration_ms };
    let latency = JobKind::Latency { duration_ms };
    let transfer = |bytes| JobKind::Transfer { bytes, seed };
    for (kind, size, depth, is_taken) in [
        (transfer(1 << 20), 1 << 16, 16, true),
        (transfer((1 << 20) + 1), 1 << 16, 16, false),
        (bandwidth, 1 << 15, 16, true),
        (bandwidth, 1 << 16, 16, false),
        (bandwidth, 1 << 30, 1, false),
        (latency, 1 << 19, 1, true),
        (latency, 1 << 30, 1, false),
    ] {
        let checked = server.check_request(&job(kind, Op::Write, size, depth));
        assert_eq!(checked.is_ok(), is_taken, "{kind:?} of {size}: {checked:?}");
        let names_it = checked.err().is_none_or(|why| why.contains("--max-transfer"));
        assert!(names_it, "{kind:?}");
    }
}

#[test]
fn check__a_run_has_at_most_a_day() {
    for (duration_ms, is_taken) in [(86_400_000, true), (86_400_001, false), (u64::MAX, false)] {
        let job = job(JobKind::Latency { duration_ms }, Op::Send, 64, 1);
        assert_eq!(check(&job, Mtu::B1024).is_ok(), is_taken, "{duration_ms}");
    }
}
