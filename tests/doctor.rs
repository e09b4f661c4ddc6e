//! `spanwire doctor` on a veth pair in known states.
//!
//! Needs root (namespaces, BPF). Without it every test prints `SKIPPED: ...`; with
//! `SPANWIRE_REQUIRE_E2E=1` that is a failure.
#![expect(non_snake_case, reason = "tests are named function__case")]

use serde_json::Value;
use spanwire_io::net::{
    Ethtool, Host, LabConfig, NetErrorKind, NetNs, Netlink, Offloads, TwoHosts, XdpFeatures,
};
use spanwire_io::xdp::{Traffic, XdpDevice, XdpPreference};
use std::process::{Command, Stdio};
use std::time::Duration;

const SPANWIRE: &str = env!("CARGO_BIN_EXE_spanwire");

/// Two hosts, or `None` with the reason printed.
fn hosts(config: &LabConfig) -> Option<TwoHosts> {
    let Err(why) = NetNs::new_anonymous() else {
        return Some(TwoHosts::anonymous(config).expect("privileged"));
    };
    let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
    assert!(!required, "an end-to-end test cannot run: {why}");
    eprintln!("SKIPPED: {why}");
    None
}

/// Exit code and output.
fn run(command: &mut Command) -> (i32, String) {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("no signal ended it"), text + &errors)
}

/// The exit code and the report of `doctor --dev sw0` on a host.
fn doctor(host: &Host, more: &[&str]) -> (i32, Value) {
    let mut command = host.ns.command(SPANWIRE).expect("the namespace is there");
    let (code, text) = run(command.args(["doctor", "--dev", "sw0", "--json"]).args(more));
    (code, serde_json::from_str(&text).unwrap_or_else(|e| panic!("no JSON ({e}): {text}")))
}

/// A check of the interface: status, finding, and fix.
fn check(report: &Value, name: &str) -> (String, String, Option<String>) {
    let checks = report["interfaces"][0]["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == name);
    let check = check.unwrap_or_else(|| panic!("no check {name} in {report}"));
    let text = |key: &str| check[key].as_str().map(str::to_owned);
    (text("status").expect("a status"), text("found").expect("a finding"), text("fix"))
}

#[test]
fn doctor__a_lab_is_healthy() {
    let Some(hosts) = hosts(&LabConfig::default()) else { return };
    let b = hosts.b.v4.to_string();
    let (code, report) = doctor(&hosts.a, &["--peer", &b]);
    assert_eq!((code, &report["ok"]), (0, &Value::Bool(true)), "{report}");
    assert_eq!(report["interfaces"][0]["status"], "ok", "{report}");
    assert!(check(&report, "link").1.contains("driver veth"), "{report}");
    assert!(check(&report, "mtu").1.starts_with("1500: path MTU 1024"), "{report}");
    assert!(check(&report, "address").1.contains("10.77.0.1/24"), "{report}");
    match hosts.a.ns.enter().map(|_entered| XdpFeatures::read(hosts.a.ifindex)) {
        Ok(Ok(_)) => assert_eq!(check(&report, "xdp").1, "native, copying"),
        Ok(Err(e)) => assert_eq!(e.kind(), NetErrorKind::Unsupported, "{e}"),
        Err(e) => panic!("{e}"),
    }
    let (status, found, _) = check(&report, "peer");
    assert_eq!(status, "ok", "{found}");
    let (status, found, _) = check(&report, "path mtu");
    assert_eq!((&*status, &*found), ("ok", "a packet of 1500 bytes arrives"));

    // The text form, and the report on all interfaces.
    let mut command = hosts.a.ns.command(SPANWIRE).expect("the namespace is there");
    let (code, text) = run(command.args(["doctor", "--dev", "sw0"]));
    assert!(code == 0 && text.contains("\nSpanwire works here"), "{text}");
    let mut command = hosts.a.ns.command(SPANWIRE).expect("the namespace is there");
    let (code, text) = run(command.arg("doctor"));
    assert!(code == 0 && text.contains("  ok    sw0") && !text.contains(" lo "), "{text}");
}

#[test]
fn doctor__reports_changed_offloads() {
    let Some(hosts) = hosts(&LabConfig::default()) else { return };
    let ethtool = Ethtool::open_in(&hosts.a.ns).expect("privileged");
    for gro in [true, false] {
        let wanted = Offloads { gro, ..Offloads::ON };
        ethtool.set_offloads("sw0", &wanted).expect("veth can do all");
        let (code, report) = doctor(&hosts.a, &[]);
        let found = check(&report, "offloads").1;
        assert_eq!((code, found.contains("gro on")), (0, gro), "{found}");
    }
}

#[test]
fn doctor__a_link_that_is_down_or_has_no_carrier_fails() {
    let Some(hosts) = hosts(&LabConfig::default()) else { return };
    let mut netlink = Netlink::open_in(&hosts.b.ns).expect("privileged");
    netlink.set_down("sw0").expect("privileged");
    let (code, report) = doctor(&hosts.a, &[]);
    let (status, found, _) = check(&report, "link");
    assert!(code == 1 && status == "fail" && found.starts_with("no carrier"), "{report}");
    let (code, report) = doctor(&hosts.b, &[]);
    let (status, found, fix) = check(&report, "link");
    assert!(code == 1 && status == "fail" && found.starts_with("switched off"), "{report}");

    // The printed command is the one that helps.
    let fix = fix.expect("a fix");
    if Command::new("ip").arg("-V").output().is_err() {
        eprintln!("SKIPPED: iproute2 is missing: not tried: {fix}");
        return;
    }
    let mut words = fix.split(' ');
    let mut command = hosts.b.ns.command(words.next().unwrap()).expect("the namespace is there");
    let (code, text) = run(command.args(words));
    assert_eq!(code, 0, "{fix}: {text}");
    netlink.wait_running("sw0", Duration::from_secs(120)).expect("it comes back");
    let (_, report) = doctor(&hosts.b, &[]);
    assert_eq!(check(&report, "link").0, "ok", "{report}");
}

#[test]
fn doctor__another_program_is_reported_and_not_detached() {
    let Some(hosts) = hosts(&LabConfig::default()) else { return };
    let entered = hosts.a.ns.enter().expect("privileged");
    let device = XdpDevice::attach("sw0", 1, Traffic::RoceV2, XdpPreference::Native)
        .expect("veth can do it");
    drop(entered);
    let mut netlink = Netlink::open_in(&hosts.a.ns).expect("privileged");
    let before = netlink.link("sw0").expect("it is there").xdp;
    let (code, report) = doctor(&hosts.a, &[]);
    let (status, found, _) = check(&report, "program");
    assert!(code == 1 && status == "fail" && found.contains("(driver)"), "{report}");
    let after = netlink.link("sw0").expect("it is there").xdp;
    assert!(before.is_some() && before == after, "{before:?} {after:?}");
    drop(device);
    let (code, report) = doctor(&hosts.a, &[]);
    assert_eq!((code, &*check(&report, "program").0), (0, "ok"), "{report}");
}

#[test]
fn doctor__causes_of_low_speed_are_warnings() {
    let config = LabConfig { mtu: 9000, pfifo: None, queues: 2, ..LabConfig::default() };
    let Some(hosts) = hosts(&config) else { return };
    let (code, report) = doctor(&hosts.a, &[]);
    assert_eq!((code, &report["ok"]), (0, &Value::Bool(true)), "{report}");
    for (name, fix) in [
        ("mtu", "ip link set dev sw0 mtu 3506"),
        ("qdisc", "tc qdisc add dev sw0 root pfifo limit 1000"),
        ("queues", "ethtool -L sw0 "),
    ] {
        let (status, found, advice) = check(&report, name);
        assert_eq!(status, "warn", "{name}: {found}");
        assert!(
            advice.as_deref().is_some_and(|advice| advice.starts_with(fix)),
            "{name}: {advice:?}"
        );
    }
    let (code, report) = doctor(&hosts.a, &["--queue", "2"]);
    assert_eq!((code, &*check(&report, "queues").0), (1, "fail"), "{report}");

    let mut command = hosts.a.ns.command("sh").expect("the namespace is there");
    let put_off = "echo 2 >/sys/class/net/sw0/napi_defer_hard_irqs";
    let (code, text) = run(command.args(["-c", put_off]));
    assert_eq!(code, 0, "{text}");
    let (status, found, _) = check(&doctor(&hosts.a, &[]).1, "irqs");
    assert!(status == "warn" && found.contains("2 times"), "{found}");
}

#[test]
fn doctor__an_absent_peer_and_an_absent_device_fail() {
    let Some(hosts) = hosts(&LabConfig::default()) else { return };
    for peer in ["10.77.0.77", "192.0.2.1"] {
        let (code, report) = doctor(&hosts.a, &["--peer", peer]);
        let (status, found, fix) = check(&report, "peer");
        assert_eq!((code, &*status), (1, "fail"), "{found}");
        assert!(fix.is_some_and(|fix| fix.contains(peer)), "{found}");
    }
    let mut command = hosts.a.ns.command(SPANWIRE).expect("the namespace is there");
    let (code, text) = run(command.args(["doctor", "--dev", "nope0"]));
    assert!(code == 1 && text.contains("nope0") && text.contains("sw0"), "{text}");
}

#[test]
fn doctor__missing_rights_are_named() {
    let Some(hosts) = hosts(&LabConfig::default()) else { return };
    // Root without the capabilities that BPF needs.
    let mut command = hosts.a.ns.command("setpriv").expect("the namespace is there");
    command.args(["--bounding-set=-bpf,-sys_admin", "--inh-caps=-bpf,-sys_admin", SPANWIRE]);
    let (code, text) = run(command.args(["doctor", "--dev", "sw0", "--json"]));
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let host = report["host"].as_array().expect("checks");
    let rights = host.iter().find(|check| check["name"] == "rights").expect("it is checked");
    assert_eq!((code, &rights["status"]), (0, &Value::from("warn")), "{report}");
    assert_eq!(rights["found"], "without CAP_BPF; UDP sockets work");
    assert!(rights["fix"].as_str().is_some_and(|fix| fix.starts_with("setcap cap_net_raw,")));
}
