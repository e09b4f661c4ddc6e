use super::*;
use spanwire_io::net::{Netlink, VethEnd, VethSpec};
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

/// A unique lab name. Its lab is removed on drop, even if the test fails.
struct Lab(String);

impl Lab {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("swl{}-{number}", std::process::id()))
    }

    fn spec(&self, mtu: u32, prefix: &str) -> Spec {
        let [prefix, prefix6] = [prefix, "fd77::/64"].map(|text| text.parse().expect("a prefix"));
        let name = self.0.clone();
        Spec { name, mtu, prefix, prefix6, queues: 1, queue_limit: 1000 }
    }

    fn up(&self, mtu: u32, prefix: &str) -> Result<UpReport, LabError> {
        up(&self.spec(mtu, prefix), None)
    }

    fn present(&self) -> Vec<String> {
        let ours = CABLE_HOSTS.map(|host| namespace(&self.0, host));
        let mut names = NetNs::list().expect("readable");
        names.retain(|name| ours.contains(name));
        names
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for namespace in CABLE_HOSTS.map(|host| namespace(&self.0, host)) {
            let _ = NetNs::delete_named(&namespace);
        }
    }
}

/// True, with a message on stderr, if this process lacks the privilege for network namespaces.
fn lacks_privilege(test: &str) -> bool {
    let Err(error) = NetNs::new_anonymous() else {
        return false;
    };
    assert_ne!(std::env::var("SPANWIRE_REQUIRE_E2E").as_deref(), Ok("1"), "{test}: {error}");
    eprintln!("SKIPPED: {test}: {error}");
    true
}

#[test]
fn up__status_down_and_again() {
    if lacks_privilege("up") {
        return;
    }
    let lab = Lab::new();
    for round in 0..2 {
        let before = LabStatus::read(&lab.0).expect("privileged");
        assert!(!before.up && before.hosts.iter().all(|host| !host.present));
        let report = lab.up(9000, "10.9.0.0/30").expect("privileged");
        assert_eq!(report.hosts[1].v4, Ipv4Addr::new(10, 9, 0, 2));
        assert_eq!(lab.present().len(), 2, "round {round}");

        let status = LabStatus::read(&lab.0).expect("privileged");
        assert!(status.up, "{status:?}");
        for (host, created) in status.hosts.iter().zip(&report.hosts) {
            let link = host.link.as_ref().expect("made");
            assert_eq!(link.mac.as_ref(), Some(&created.mac));
            assert_eq!((link.mtu, link.rx_queues), (9000, 1));
            assert_eq!(link.qdisc.as_deref(), Some("pfifo"));
            assert_eq!(link.xdp, None);
            assert!(link.addresses.contains(&format!("{}/30", created.v4)));
            assert!(link.addresses.contains(&format!("{}/64", created.v6)));
            assert_eq!(host.processes, Vec::<u32>::new());
        }

        let error = lab.up(1500, "10.77.0.0/24").expect_err("it is up");
        assert!(matches!(error, LabError::AlreadyUp { .. }), "{error}");
        assert_eq!(lab.present().len(), 2, "a refused up removes nothing");

        let report = down(&lab.0).expect("privileged");
        assert_eq!(report.removed, CABLE_HOSTS.map(|host| namespace(&lab.0, host)));
        assert_eq!(lab.present().len(), 0);
    }
    let report = down(&lab.0).expect("a missing lab is no error");
    assert_eq!(report.removed, Vec::<String>::new());
}

#[test]
fn down__removes_an_incomplete_lab() {
    if lacks_privilege("down") {
        return;
    }
    let lab = Lab::new();
    let [a, _] = CABLE_HOSTS.map(|host| namespace(&lab.0, host));
    NetNs::create_named(&a).expect("privileged");
    let error = lab.up(1500, "10.77.0.0/24").expect_err("incomplete");
    assert!(matches!(error, LabError::AlreadyUp { .. }), "{error}");
    assert_eq!(lab.present(), [a.as_str()]);
    assert_eq!(down(&lab.0).expect("privileged").removed, [a]);
}

#[test]
fn down__keeps_foreign_devices() {
    if lacks_privilege("down") {
        return;
    }
    let lab = Lab::new();
    let other = NetNs::new_anonymous().expect("privileged");
    lab.up(1500, "10.77.0.0/24").expect("privileged");
    let [a, _] = CABLE_HOSTS.map(|host| namespace(&lab.0, host));
    let ns = NetNs::open_named(&a).expect("made");
    VethSpec {
        a: VethEnd { ns: &ns, name: "mine0" },
        b: VethEnd { ns: &other, name: "mine0" },
        mtu: 1500,
        queues: 1,
    }
    .create()
    .expect("privileged");
    let error = down(&lab.0).expect_err("mine0 is not the lab's");
    assert!(matches!(&error, LabError::NotOurs { device, .. } if device == "mine0"));
    assert!(LabStatus::read(&lab.0).expect("privileged").up, "untouched");
    Netlink::open_in(&ns).and_then(|mut netlink| netlink.delete_link("mine0")).expect("privileged");
    down(&lab.0).expect("only the lab is left");
}

#[test]
fn down__names_processes_that_are_still_inside() {
    if lacks_privilege("down") {
        return;
    }
    let lab = Lab::new();
    lab.up(1500, "10.77.0.0/24").expect("privileged");
    let [a, _] = CABLE_HOSTS.map(|host| namespace(&lab.0, host));
    let ns = NetNs::open_named(&a).expect("made");
    let mut inside = ns
        .command("cat")
        .expect("a handle")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("cat exists");
    let status = LabStatus::read(&lab.0).expect("privileged");
    let report = down(&lab.0).expect("privileged");
    drop(inside.stdin.take());
    inside.wait().expect("cat ends with its input");
    assert_eq!(status.hosts[0].processes, [inside.id()]);
    assert_eq!(report.processes, [inside.id()]);
}

#[test]
fn up__bad_prefix_leaves_nothing_behind() {
    if lacks_privilege("up") {
        return;
    }
    let lab = Lab::new();
    let prefixes = ["fd00::/64", "10.0.0.0/32", "127.0.0.0/8", "224.0.0.0/4", "0.0.0.0/0"];
    let specs = prefixes.map(|prefix| lab.spec(1500, prefix));
    let prefixes6 = ["fe80::/64", "ff02::/64"].map(|text| text.parse().expect("a prefix"));
    let good = || lab.spec(1500, "10.77.0.0/24");
    let specs6 = prefixes6.map(|prefix6| Spec { prefix6, ..good() });
    let others = [Spec { mtu: 100, ..good() }, Spec { queues: 0, ..good() }];
    for spec in specs.into_iter().chain(specs6).chain(others) {
        let error = up(&spec, None).expect_err("bad");
        let invalid = NetErrorKind::Invalid;
        assert!(
            matches!(&error, LabError::Net { source, .. } if source.kind() == invalid),
            "{error}"
        );
        assert_eq!(lab.present().len(), 0, "{spec:?}");
    }
}

/// `exec` replaces its process, so it needs a child process: the test runs itself with the command
/// in an environment variable.
#[test]
fn exec__process_becomes_the_command() {
    const SCRIPT: &str = "SPANWIRE_TEST_LAB_EXEC";
    const NAME: &str = "SPANWIRE_TEST_LAB_NAME";
    const NO_COMMAND: i32 = 99;
    if let (Ok(script), Ok(name)) = (std::env::var(SCRIPT), std::env::var(NAME)) {
        let words =
            if script.starts_with('/') { vec![&*script] } else { vec!["sh", "-c", &script] };
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        println!("{}", exec(&name, "b", &words));
        std::process::exit(NO_COMMAND);
    }
    if lacks_privilege("exec") {
        return;
    }
    let lab = Lab::new();
    lab.up(1500, "10.77.0.0/24").expect("privileged");
    let run_child = |script: &str| {
        let mut child = Command::new(std::env::current_exe().expect("procfs"))
            .args(["--exact", "tests::exec__process_becomes_the_command"])
            .args(["--nocapture", "--test-threads=1"])
            .env(SCRIPT, script)
            .env(NAME, &lab.0)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program runs");
        let mut text = String::new();
        let mut stdout = child.stdout.take().expect("piped");
        stdout.read_to_string(&mut text).expect("text");
        (child.id(), child.wait().expect("it ends"), text)
    };
    let (pid, status, text) = run_child("echo pid $$; ls /sys/class/net; exit 7");
    assert_eq!(status.code(), Some(7), "{text}");
    assert!(text.contains(&format!("pid {pid}\n")), "{text}");
    assert!(text.ends_with("lo\nsw0\n"), "{text}");
    let (_, status, text) = run_child("kill -TERM $$");
    assert_eq!(status.signal(), Some(15), "{text}");
    let (_, status, text) = run_child("/no/such/program");
    assert_eq!(status.code(), Some(NO_COMMAND), "{text}");
    assert!(text.contains("cannot run /no/such/program in"), "{text}");
}

#[test]
fn exec__missing_lab_names_the_up_command() {
    let lab = Lab::new();
    let error = exec(&lab.0, "a", &["true".into()]);
    assert!(matches!(error, LabError::NotUp { .. }), "{error}");
    assert!(error.to_string().contains("spanwire lab up"), "{error}");
}
