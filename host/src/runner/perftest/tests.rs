use super::*;
use crate::fabric::{Attachment, Wrap};
use crate::oob::perftest::PerftestError;
use spanwire_io::driver::Polling;
use spanwire_io::fault::FaultConfig;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn test(op: Op, latency: bool, bidirectional: bool) -> Test {
    Test {
        op,
        latency,
        bidirectional,
        size: if op.is_atomic() { 8 } else { 5001 },
        iterations: 300,
        qps: if latency { 1 } else { 3 },
        depth: 16,
        path_mtu: Some(1024),
        traffic_class: 0,
        // A thread may have no core for seconds.
        timeout: 16,
        retry_cnt: 7,
    }
}

/// Both ends of a TCP connection inside this machine.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn runner(attachment: Attachment, ip: IpAddr) -> JobRunner {
    let spin = spanwire_base::Dur::from_us(50);
    JobRunner::new(attachment, ip, Polling::Spin(spin)).unwrap()
}

/// Runs a test between two job runners over a pipe.
fn run(client: Test, server: Test, wrap: &Wrap) -> [Result<PerftestOutcome, Error>; 2] {
    let (near, far) = Attachment::pipe([wrap, wrap]).unwrap();
    let (to_server, to_client) = connection();
    let serve = thread::spawn(move || {
        let exchange = Exchange::tcp(to_client, false).unwrap();
        runner(far, SERVER).perftest(exchange, server, &|| false, &mut |_, _| {})
    });
    let exchange = Exchange::tcp(to_server, true).unwrap();
    let ran = runner(near, CLIENT).perftest(exchange, client, &|| false, &mut |_, _| {});
    [ran, serve.join().unwrap()]
}

/// Every tool in every direction.
fn every_test() -> Vec<Test> {
    let ops = [Op::Send, Op::Write, Op::Read, Op::FetchAdd, Op::CmpSwap];
    let modes = [(false, false), (false, true), (true, false)];
    let of = |op| modes.map(|(latency, bidirectional)| test(op, latency, bidirectional));
    ops.into_iter().flat_map(of).collect()
}

fn check_outcomes(test: &Test, outcomes: [Result<PerftestOutcome, Error>; 2]) {
    let messages = test.iterations * u64::from(test.qps);
    for (outcome, is_client) in outcomes.into_iter().zip([true, false]) {
        let outcome = outcome.unwrap_or_else(|e| panic!("{test:?}: {e}"));
        let PerftestOutcome { report, peer, path_mtu, complete, messages: received } = outcome;
        assert!(complete);
        assert_eq!((path_mtu, peer.version.as_str()), (1024, "6.06"));
        assert_eq!(peer.ip, if is_client { SERVER } else { CLIENT });
        assert_eq!(report.is_some(), test.is_active(is_client), "{test:?}");
        if let Some(report) = report {
            assert!(report.is_ok());
            assert_eq!(report.progress.messages, messages);
            assert_eq!(report.progress.bytes, messages * u64::from(test.size));
            assert!(report.latency_us(0.5) > 0.0);
            let half_rtt = test.latency && matches!(test.op, Op::Send | Op::Write);
            assert_eq!(report.is_ping_pong(), half_rtt);
        }
        let has_report = test.has_reports() && test.is_active(!is_client);
        assert_eq!(peer.report.map(|r| r.iterations), has_report.then_some(messages), "{test:?}");
        let receives = test.op == Op::Send && (test.bidirectional || !is_client);
        assert_eq!(received, if receives { messages } else { 0 }, "{test:?}");
    }
}

#[test]
fn perftest__every_tool_in_every_direction() {
    for test in every_test() {
        check_outcomes(&test, run(test, test, &Wrap::default()));
    }
}

/// 67 ms, after which a lost packet is sent again, and 1.8 s until the peer counts as gone.
const TIMEOUT_LOSSY: u8 = 14;

#[test]
fn perftest__completes_despite_loss() {
    let faults = FaultConfig { seed: 5, loss_ppm: 20_000, ..FaultConfig::default() };
    let wrap = Wrap { faults: Some(faults), pcap: None };
    for op in [Op::Send, Op::Write, Op::FetchAdd] {
        for latency in [false, true] {
            let test = Test { iterations: 100, timeout: TIMEOUT_LOSSY, ..test(op, latency, false) };
            check_outcomes(&test, run(test, test, &wrap));
        }
    }
}

#[test]
fn perftest__a_measurement_does_not_depend_on_a_peer_that_is_suspended_after_it() {
    let suspended = Arc::new(AtomicBool::new(false));
    let test = test(Op::Write, false, false);
    let (near, far) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
    let (to_server, to_client) = connection();
    let server = Arc::clone(&suspended);
    let serve = thread::spawn(move || {
        let stop = || {
            while server.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(1));
            }
            false
        };
        let exchange = Exchange::tcp(to_client, false).unwrap();
        runner(far, SERVER).perftest(exchange, test, &stop, &mut |_, _| {}).is_ok()
    });
    let exchange = Exchange::tcp(to_server, true).unwrap();
    let ran = runner(near, CLIENT).perftest(exchange, test, &|| false, &mut |_, app| {
        suspended.fetch_or(app.is_done(), Ordering::AcqRel);
    });
    suspended.store(false, Ordering::Release);
    // The client has closed the connection.
    assert!(!serve.join().unwrap());
    let PerftestOutcome { report, complete, .. } = ran.unwrap();
    let report = report.expect("it measured");
    assert_eq!(report.progress.messages, test.iterations * u64::from(test.qps));
    assert!(!complete && !report.is_ok());
    let error = report.error().expect("the exchange has no end");
    assert!(error.starts_with("the peer's result is missing: "), "{error}");
}

#[test]
fn perftest__different_tests_are_an_error() {
    let (write, read) = (test(Op::Write, false, false), test(Op::Read, false, false));
    let [client, _] = run(read, write, &Wrap::default());
    // The server's queue pairs permit no READ.
    let failure = client.unwrap().report.unwrap().progress.failure.unwrap();
    assert!(failure.to_string().starts_with("REM_INV_REQ_ERR"), "{failure}");
    let shorter = Test { iterations: 50, ..test(Op::Write, true, false) };
    let longer = Test { iterations: 300, ..shorter };
    let [client, served] = run(longer, shorter, &Wrap::default());
    assert!(served.unwrap().complete);
    let failed = match client {
        Err(e) => e.to_string(),
        Ok(outcome) => outcome.report.unwrap().progress.failure.unwrap().to_string(),
    };
    assert!(failed.contains("started") || failed.contains("RETRY_EXC_ERR"), "{failed}");
}

#[test]
fn perftest__rejects_a_test_out_of_bounds() {
    let good = test(Op::Write, false, false);
    for (bad, word) in [
        (Test { iterations: 0, ..good }, "iteration"),
        (Test { path_mtu: Some(1000), ..good }, "is no path MTU"),
        (Test { op: Op::FetchAdd, ..good }, "size of an atomic"),
        (Test { size: 1 << 30, ..good }, "bytes of memory"),
    ] {
        let [client, served] = run(bad, good, &Wrap::default());
        let why = client.err().expect("it is refused").to_string();
        assert!(why.contains(word), "{bad:?}: {why}");
        assert!(served.is_err());
    }
}

/// The server's error for a client that sends `words`, one after the other, and then closes.
fn error_of(words: &[&[u8]]) -> String {
    let (mut client, to_client) = connection();
    let (_near, far) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
    for word in words {
        client.write_all(word).unwrap();
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let exchange = Exchange::tcp(to_client, false).unwrap();
    let test = test(Op::Write, false, false);
    let outcome = runner(far, SERVER).perftest(exchange, test, &|| false, &mut |_, _| {});
    let mut answer = Vec::new();
    // The server may have closed the connection.
    let _ = client.read_to_end(&mut answer);
    outcome.err().expect("such a client is not served").to_string()
}

#[test]
fn perftest__distinguishes_errors_of_the_peer() {
    let version: &[u8] = &version_to_bytes();
    let (cycle, line): (&[u8], &[u8]) = (&4096_u32.to_be_bytes(), &64_u32.to_be_bytes());
    let keys = Keys {
        lid: 0,
        out_reads: 1,
        qpn: 0x11,
        psn: 1,
        rkey: 1,
        va: u64::MAX,
        gid: Some(gid_of("fd77::1".parse().unwrap())),
        srqn: 0,
    };
    let (v6, short) = (keys.to_bytes(), Keys { gid: None, ..keys }.to_bytes());
    let garbage = [b'x'; 200];
    for (words, expected) in [
        (&[][..], "where the version was due"),
        (&[b"GET / HTTP/1.1\r\n\r\n".as_slice()][..], "is it perftest?"),
        (&[b"5.60\0\0\0\0\0\0\0\0\0\0\0\0".as_slice()], "5.70"),
        (&[version, b"\xff\xff\xff\xff"], "cycle buffer"),
        (&[version, cycle, line, b"9\0"], "path MTU"),
        (&[version, cycle, line, b"3\0", &garbage], "where the line of keys was due"),
        (&[version, cycle, line, b"3\0", &short], "no GID"),
        (&[version, cycle, line, b"3\0", &v6, &v6, &v6], "--address"),
    ] {
        let error = error_of(words);
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
    }
}

#[test]
fn perftest__can_be_stopped_while_waiting() {
    let (_client, to_client) = connection();
    let (_near, far) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
    let exchange = Exchange::tcp(to_client, false).unwrap();
    let test = test(Op::Write, false, false);
    let outcome = runner(far, SERVER).perftest(exchange, test, &|| true, &mut |_, _| {});
    let why = outcome.err().expect("it stopped");
    assert!(matches!(why.downcast_ref(), Some(PerftestError::Stopped)), "{why}");
}
