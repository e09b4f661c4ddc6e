//! Several workers in one process: a queue, an engine and a thread each.

use super::copy::{
    TempDir, noise, partial_bytes, receiver, send_well, start_sender, wait_for_partial,
};
use super::lab::{Lab, Outcome, PERF_PORT, Running, SPANWIRE, piped};
use serde_json::Value;
use spanwire_host::cores::on_each;
use spanwire_host::fabric::{Attachment, FabricChoice, Wrap};
use spanwire_host::oob::{
    Hello, Job, JobKind, Message, Modes, Oob, Op, REPLY_TIMEOUT, VERSION, WorkerOf,
};
use spanwire_host::runner::{JobReport, JobRunner, counters_of};
use spanwire_io::driver::Polling;
use spanwire_io::net::LabConfig;
use spanwire_io::udp::UdpConfig;
use spanwire_io::xdp::XdpConfig;
use spanwire_transport::ValidConfig;
use std::fs;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Two hosts whose interfaces have so many queues.
fn lab(queues: u32) -> Option<Lab> {
    let mut lab = Lab::with(&LabConfig { queues, ..LabConfig::default() })?;
    lab.fabric = FabricChoice::Xdp;
    Some(lab)
}

/// Two hosts whose workers have a socket each.
fn udp_lab() -> Option<Lab> {
    Lab::over(FabricChoice::Udp)
}

/// A machine with one core can run two workers, too.
const TWO: [&str; 3] = ["--workers", "2", "--oversubscribe"];

fn of_workers<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    report["workers"].as_array().expect("an array").iter().map(|worker| &worker[name]).collect()
}

fn is_refused(outcome: &Outcome, words: &[&str]) {
    assert!(!outcome.success, "{}", outcome.stdout);
    for word in words {
        assert!(outcome.stderr.contains(word), "{word} in {}", outcome.stderr);
    }
}

#[test]
fn perf__every_worker_has_a_queue_and_the_report_is_their_sum() {
    lab(2).iter().for_each(check_sums);
}

#[test]
fn perf__every_worker_has_a_socket_and_its_own_packets() {
    udp_lab().iter().for_each(check_sums);
}

fn check_sums(lab: &Lab) {
    let server = lab.json_server(&TWO);
    for mode in ["rc", "sr"] {
        let run = ["--mode", mode, "-t", "0.5", "-i", "0.2", "--json"];
        let report = lab.client(lab.v4(), &[&TWO[..], &run].concat()).json();
        assert_eq!((&report["ok"], &report["error"]), (&true.into(), &Value::Null), "{report}");
        let messages = of_workers(&report, "messages");
        let counts: Vec<u64> = messages.iter().map(|n| n.as_u64().expect("a count")).collect();
        assert_eq!(counts.len(), 2, "{report}");
        assert!(counts.iter().all(|n| *n > 0), "{report}");
        let sum: u64 = counts.iter().sum();
        assert_eq!(report["perf"][0]["messages"], sum, "{report}");
        assert_eq!(report["perf"][0]["qps"], 2);
        assert_eq!(report["counters"]["steer_handed"], Value::Null, "workers are paired");
        let intervals = report["intervals"].as_array().expect("an array");
        let bytes = intervals.iter().map(|part| part["bytes"].as_u64().expect("a count"));
        assert_eq!(bytes.sum::<u64>(), sum * 65_536, "{report}");
    }
    // Parts of a transfer differ, and each is compared.
    for op in ["write", "read", "send"] {
        let transfer = ["--op", op, "--transfer", "8M", "--json"];
        let report = lab.client(lab.v4(), &[&TWO[..], &transfer].concat()).json();
        assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
        assert_eq!(report["transfer"]["bytes"], 8 << 20, "{report}");
    }
    // A client with one worker meets the first one of the server, beside another client.
    let alone = ["-t", "0.3", "--json"];
    let report = lab.client(lab.v4(), &alone).json();
    assert_eq!((&report["ok"], of_workers(&report, "worker")), (&true.into(), vec![&0.into()]));
    let served = server.end_with(libc::SIGTERM);
    for worker in ["\"worker\":0", "\"worker\":1"] {
        assert!(served.stdout.contains(worker), "{}", served.stdout);
    }
}

/// A transfer by two workers, of which each meets the other one's partner, and their counters.
fn transfer_crossed(lab: &Lab, op: Op) -> (JobReport, Vec<(String, u64)>) {
    run_job(lab, TRANSFER, op, [1, 0], false)
}

const TRANSFER: JobKind = JobKind::Transfer { bytes: 4 << 20, seed: 3 };

/// A job by two workers, of which each meets one of `partners`, and their counters. With `rss` the
/// server is to probe its source ports, as if it were an adapter that hashes them.
fn run_job(
    lab: &Lab,
    kind: JobKind,
    op: Op,
    partners: [u32; 2],
    rss: bool,
) -> (JobReport, Vec<(String, u64)>) {
    let (server, never) = ((lab.v4(), PERF_PORT), || false);
    let (us, config) = (lab.hosts.b.v4.into(), ValidConfig::default());
    let (xdp, udp, wrap) = (XdpConfig::new("sw0"), UdpConfig::new("sw0"), Wrap::default());
    let of = (2, config.of_worker(0, 2).unwrap().qpn_workers());
    let mut ports = Attachment::open_workers(lab.fabric, &xdp, &udp, &wrap, of).unwrap();
    ports.iter_mut().for_each(|port| port.terms.rss = rss);
    let mut runners = JobRunner::workers(ports, us, Polling::Adaptive, &config).unwrap();
    let connect = |(runner, index): (&mut JobRunner, u32)| {
        runner.set_worker(WorkerOf { index, workers: 2 });
        let mut oob = Oob::tcp(TcpStream::connect(server).unwrap()).unwrap();
        runner.handshake(&mut oob).unwrap();
        oob
    };
    let mut oobs: Vec<Oob> = runners.iter_mut().zip(partners).map(connect).collect();
    let (size, qps, depth, path_mtu, timeout, retry_cnt) = (1 << 16, 2, 8, 1024, 16, 7);
    let job = Job { kind, op, size, qps, depth, path_mtu, timeout, retry_cnt };
    let (running, items) = (AtomicUsize::new(2), runners.iter_mut().zip(&mut oobs));
    let reports = on_each(&[None; 2], items, &never, |worker, (runner, oob), _| {
        let part = job.part(u32::try_from(worker)?, 2)?;
        let report = runner.run(oob, part, &never, |_| {});
        running.fetch_sub(1, Ordering::Relaxed);
        runner.stand_by(|| running.load(Ordering::Relaxed) == 0);
        report
    });
    (JobReport::sum(reports.unwrap()).unwrap(), counters_of(&runners))
}

#[test]
fn workers__of_crossed_pairs_hand_every_frame_over() {
    let Some(lab) = lab(2) else { return };
    let server = lab.json_server(&TWO);
    for op in [Op::Write, Op::Read, Op::Send] {
        let (report, counters) = lab.hosts.b.ns.run(|| transfer_crossed(&lab, op)).unwrap();
        assert_eq!(report.sha256_match(), Some(true), "{op:?}: {:?}", report.error());
        let count = |name: &str| counters.iter().find(|(own, _)| own == name).map(|(_, n)| *n);
        let [handed, received] = ["steer_handed", "steer_received"].map(count);
        assert!(received > Some(50) && handed == received, "{op:?}: {counters:?}");
    }
    let served = server.end_with(libc::SIGTERM).stdout;
    assert!(served.contains("steer_handed") && served.contains("steer_received"), "{served}");
}

/// Prints the goodput of both, too: `SPANWIRE_MS=1000 cargo test --release -p spanwire-bins --test
/// e2e workers__with_and_without -- --nocapture`.
#[test]
fn workers__with_and_without_frames_handed_over() {
    let Some(lab) = lab(2) else { return };
    let server = lab.json_server(&TWO);
    let ms = std::env::var("SPANWIRE_MS").map_or(100, |ms| ms.parse().expect("milliseconds"));
    let kind = JobKind::Bandwidth { duration_ms: ms };
    for op in [Op::Write, Op::Send, Op::Write, Op::Send] {
        let [paired, crossed] = [[0, 1], [1, 0]].map(|partners| {
            let run = || run_job(&lab, kind, op, partners, false);
            let (report, counters) = lab.hosts.b.ns.run(run).unwrap();
            assert!(report.is_ok(), "{op:?}: {:?}", report.error());
            let handed =
                counters.iter().find(|(name, _)| name == "steer_handed").expect("is there");
            assert_eq!(handed.1 > 0, partners == [1, 0], "{counters:?}");
            report.gbps()
        });
        eprintln!("{op:?}: {paired:.2} Gbit/s, handed over {crossed:.2}, {:.2}", crossed / paired);
    }
    server.end_with(libc::SIGTERM);
}

/// On a veth every source port leads to the queue that it is sent from.
#[test]
fn workers__the_server_probes_its_source_ports_and_warns_if_none_leads_to_the_worker() {
    for (partners, is_paired) in [([0, 1], true), ([1, 0], false)] {
        let Some(lab) = lab(2) else { return };
        let server = lab.json_server(&TWO);
        let run = || run_job(&lab, TRANSFER, Op::Read, partners, true);
        let (report, counters) = lab.hosts.b.ns.run(run).unwrap();
        assert_eq!(report.sha256_match(), Some(true), "{:?}", report.error());
        let count = |name: &str| counters.iter().find(|(own, _)| own == name).map(|(_, n)| *n);
        // Each worker once. A packet that is repeated after its job has an unknown number, too.
        let unknown = count("drop_unknown_qpn").unwrap_or(0);
        assert!((2 * 64..3 * 64).contains(&unknown), "{counters:?}");
        assert_eq!(count("steer_handed") == Some(0), is_paired, "{counters:?}");
        let said = server.end_with(libc::SIGTERM).stderr;
        assert_eq!(said.matches("none of 64 source ports").count(), if is_paired { 0 } else { 2 });
    }
}

#[test]
fn workers__of_crossed_pairs_have_their_own_packets_over_sockets() {
    let Some(lab) = udp_lab() else { return };
    let server = lab.json_server(&TWO);
    for op in [Op::Write, Op::Read, Op::Send] {
        let (report, counters) = lab.hosts.b.ns.run(|| transfer_crossed(&lab, op)).unwrap();
        assert_eq!(report.sha256_match(), Some(true), "{op:?}: {:?}", report.error());
        let handed = counters.iter().filter(|(name, _)| name.starts_with("steer_"));
        assert!(
            handed.clone().count() == 3 && handed.clone().all(|(_, n)| *n == 0),
            "{counters:?}"
        );
    }
    let served = server.end_with(libc::SIGTERM).stdout;
    assert!(served.contains("complete") && !served.contains("steer_"), "{served}");
}

#[test]
fn perf__one_off_ends_after_all_workers_of_a_client() {
    let Some(lab) = lab(2) else { return };
    let server = lab.server(&[&TWO[..], &["--one-off"]].concat());
    let report = lab.client(lab.v4(), &[&TWO[..], &["-t", "0.2", "--json"]].concat()).json();
    assert_eq!(report["ok"], true, "{report}");
    let outcome = server.wait();
    assert!(outcome.success, "{}", outcome.stderr);
}

#[test]
fn perf__one_off_does_not_wait_for_a_worker_that_never_comes() {
    let Some(lab) = udp_lab() else { return };
    let server = lab.server(&[&TWO[..], &["--one-off"]].concat());
    let (to, ip) = ((lab.v4(), PERF_PORT), lab.hosts.b.v4.into());
    lab.hosts
        .b
        .ns
        .run(|| {
            let (side_poll_port, modes) = (None, Modes::default());
            let (version, path_mtu, takes_fragments) = (VERSION, 1024, false);
            let (worker, probe_qpn) = (WorkerOf { index: 0, workers: u32::MAX }, None);
            let hello = Hello {
                version,
                ip,
                path_mtu,
                side_poll_port,
                modes,
                takes_fragments,
                worker,
                probe_qpn,
            };
            let mut oob = Oob::tcp(TcpStream::connect(to).unwrap()).unwrap();
            oob.send(&Message::Hello(hello)).unwrap();
            assert!(matches!(oob.recv(REPLY_TIMEOUT), Ok(Message::Hello(_))));
        })
        .unwrap();
    let outcome = server.wait();
    assert!(outcome.success, "{}", outcome.stderr);
}

#[test]
fn perf__errors_name_what_is_missing_for_several_workers() {
    let Some(lab) = lab(1) else { return };
    let server = |args: &[&str]| {
        let args = [&["perf", "server", "--dev", "sw0"], args].concat();
        lab.run(&lab.hosts.a.ns, &args)
    };
    is_refused(&server(&TWO), &["2 workers need a queue each (0 to 1)", "sw0 has 1"]);
    let cores = server(&["--workers", "2", "--cores", "0"]);
    is_refused(&cores, &["2 workers need a core each", "--cores names 1 core (0)"]);
    is_refused(&server(&["--workers", "16", "--cores", "0-1,1"]), &["core 1 twice"]);
    drop(lab);
    for make in [|| self::lab(2), udp_lab] {
        let Some(lab) = make() else { return };
        let one = lab.server(&[]);
        let client = lab.client(lab.v4(), &TWO);
        is_refused(&client, &["worker 1 here would meet worker 0 of 1", "--workers 2"]);
        one.terminate();
    }
}

#[test]
fn perf__workers_share_the_limit_of_locked_memory() {
    let Some(lab) = lab(2) else { return };
    // Root may lock any memory, and raise its limit, unless these capabilities are gone.
    let with_limit = |kib: u32| {
        let limit = format!("--memlock={}", kib << 10);
        let capabilities = ["setpriv", "--bounding-set", "-ipc_lock,-sys_resource"];
        let server = [SPANWIRE, "perf", "server", "--dev", "sw0", "--one-off"];
        let args = [&[&*limit][..], &capabilities, &server, &TWO].concat();
        let mut command = lab.hosts.a.ns.command("prlimit").expect("the namespace is there");
        Running::spawn(piped(&mut command, &args))
    };
    let mut server = with_limit(8 << 10);
    server.await_output(|text| text.contains("2 workers"));
    let report = lab.client(lab.v4(), &[&TWO[..], &["-t", "0.2", "--json"]].concat()).json();
    assert_eq!(report["ok"], true, "{report}");
    assert!(server.wait().success);
    is_refused(&with_limit(1 << 10).wait(), &["locked memory", "2 workers share", "1024 KiB"]);
}

#[test]
fn demo__workers_have_both_ends_of_a_pipe_each() {
    let args = ["demo", "--fabric", "pipe", "--mib", "4", "--ms", "20", "--json"];
    let outcome = super::lab::run_here(&[&args[..], &TWO].concat());
    let report = outcome.json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["transfer"]["bytes"], 4 << 20);
    assert_eq!(of_workers(&report, "worker").len(), 2 * 6, "{report}");
}

#[test]
fn workers__of_a_copy_have_a_connection_each() {
    // One after the other: tests share the labs that there may be at a time.
    lab(2).iter().for_each(check_connections);
    udp_lab().iter().for_each(check_connections);
}

fn check_connections(lab: &Lab) {
    let (from, into) = (TempDir::new(), TempDir::new());
    let (path, bytes) = (from.join("big"), noise(32 << 20, 7));
    fs::write(&path, &bytes).unwrap();
    let receiver = receiver(lab, &into, &[&TWO[..], &["--loss", "1"]].concat());
    for (workers, connections) in [(&TWO[..], 2), (&[], 1)] {
        let report = send_well(lab, &[&path], &[workers, &["--loss", "1"]].concat());
        assert_eq!(report["connections"], connections, "{report}");
        assert_eq!(report["counters"]["steer_handed"], Value::Null, "{report}");
        assert!(report["counters"]["retransmitted_packets"].as_u64() > Some(0), "{report}");
        assert!(fs::read(into.join("big")).unwrap() == bytes, "bytes differ");
        fs::remove_file(into.join("big")).unwrap();
    }
    receiver.terminate();
}

#[test]
fn workers__of_a_killed_copy_resume_with_another_number() {
    let Some(lab) = lab(2) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let (path, bytes) = (from.join("big"), noise(64 << 20, 9));
    fs::write(&path, &bytes).unwrap();
    let receiver = receiver(&lab, &into, &TWO);
    // Beside other work a signal may be many seconds late: at this rate two workers take 54.
    let slow = ["--cc", "fixed", "--cc-set", "rate_mbps=5"];
    for (workers, signal) in [(&TWO[..], libc::SIGKILL), (&[], libc::SIGINT)] {
        let before = partial_bytes(&into, "big");
        let sender = start_sender(&lab, &[&path], &[workers, &slow].concat());
        // It has connected and sends: programs that a script runs in the background ignore SIGINT
        // until they have a handler.
        wait_for_partial(&into, "big", before + (4 << 20));
        assert!(!sender.end_with(signal).success);
    }
    let report = send_well(&lab, &[&path], &TWO);
    assert_eq!(report["connections"], 2);
    assert!(report["resumed_bytes"].as_u64() >= Some(4 << 20), "{report}");
    assert!(fs::read(into.join("big")).unwrap() == bytes, "bytes differ");
    receiver.terminate();
}
