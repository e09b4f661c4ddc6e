//! `--line-rate`: the bytes that an interface sends, against the rate.

use crate::lab::{Lab, sent_bytes};
use spanwire_base::{Dur, Rate};
use spanwire_host::fabric::FabricChoice;
use std::time::Instant;

const RATE: Rate = Rate::from_bps(100_000_000);

/// Two packets, 10 ms of a late worker, and what the kernel and the control connection send.
const BURST: u64 = 2 * 4300 + 125_000 + 64_000;

/// Runs a client at the rate. The interface of the host that sends data must not send more than the
/// rate allows in the time that the client ran, however long that was.
fn check(lab: &Lab, server: &[&str], client: &[&str]) {
    let hosts = [&lab.hosts.a, &lab.hosts.b];
    let (begun, before) = (Instant::now(), hosts.map(sent_bytes));
    let server = lab.json_server(&[&["--one-off"], server].concat());
    let report = lab.client(lab.v4(), &[&["--json"], client].concat()).json();
    server.wait();
    let time = Dur::from_ms(1 + u64::try_from(begun.elapsed().as_millis()).expect("short"));
    let sent = hosts.iter().zip(before).map(|(host, before)| sent_bytes(host) - before).max();
    let (sent, most) = (sent.expect("two hosts"), RATE.bytes_in(time) + BURST);
    assert_eq!(report["ok"], true, "{report}");
    assert!(sent <= most, "{sent} of {most} bytes: {client:?} {report}");
}

#[test]
fn line_rate__bounds_all_that_a_port_sends() {
    for fabric in [FabricChoice::Xdp, FabricChoice::Udp] {
        let Some(lab) = Lab::over(fabric) else { return };
        for (mode, cc, qps, size) in [
            ("rc", "none", "8", "64K"),
            ("sr", "auto", "8", "64K"),
            ("sr", "fixed", "64", "64K"),
            ("sr", "auto", "1", "64"),
        ] {
            let how = ["--mode", mode, "--cc", cc, "--qps", qps, "--size", size];
            let client = [&how[..], &["--line-rate", "100Mbit", "--seconds", "1.5"]].concat();
            check(&lab, &[], &client);
        }
        // The responses of a READ are the server's.
        let read = ["--op", "read", "--mode", "rc", "--cc", "none", "--seconds", "1.5"];
        check(&lab, &["--line-rate", "100Mbit"], &read);
    }
}
