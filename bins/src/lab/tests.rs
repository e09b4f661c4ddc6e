use super::*;
use clap::Parser;
use spanwire_io::net::{LabConfig, NetNs, Netlink};
use spanwire_lab::{CABLE_HOSTS, DEFAULT_NAME, DEVICE, LabHost, check_name, namespace};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The arguments as on the command line.
#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    lab: LabArgs,
}

fn parse(words: &[&str]) -> LabArgs {
    let words = ["lab"].iter().chain(words);
    Cli::try_parse_from(words).expect("valid arguments").lab
}

fn parse_up(words: &[&str]) -> UpArgs {
    let words: Vec<_> = ["up"].iter().chain(words).copied().collect();
    match parse(&words).command {
        LabCommand::Up(args) => args,
        other => panic!("parsed {other:?}"),
    }
}

fn exec_error(words: &[&str]) -> LabError {
    match parse(words).command {
        LabCommand::Exec(args) => exec(&args.name, &args.host, &args.command),
        other => panic!("parsed {other:?}"),
    }
}

/// A unique lab name. Its lab is removed on drop, even if the test fails.
struct Lab(String);

impl Lab {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("swt{}-{number}", std::process::id()))
    }

    fn up(&self, words: &[&str]) -> Result<UpReport, LabError> {
        let words: Vec<_> = ["--name", &self.0].iter().chain(words).copied().collect();
        up(&parse_up(&words))
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
        let report = lab.up(&["--mtu", "9000", "--prefix", "10.9.0.0/30"]).expect("privileged");
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

        let error = lab.up(&[]).expect_err("it is up");
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
fn up__bad_prefix_leaves_nothing_behind() {
    if lacks_privilege("up") {
        return;
    }
    let lab = Lab::new();
    for words in [
        ["--prefix", "fd00::/64"],
        ["--prefix", "10.0.0.0/32"],
        ["--prefix", "127.0.0.0/8"],
        ["--prefix", "224.0.0.0/4"],
        ["--prefix", "0.0.0.0/0"],
        ["--prefix6", "fe80::/64"],
        ["--prefix6", "ff02::/64"],
        ["--mtu", "100"],
        ["--queues", "0"],
    ] {
        let error = lab.up(&words).expect_err("bad");
        assert_eq!(exit(&error).code(), 2, "{error}");
        assert_eq!(lab.present().len(), 0, "{words:?}");
    }
}

#[test]
fn down__removes_an_incomplete_lab() {
    if lacks_privilege("down") {
        return;
    }
    let lab = Lab::new();
    let [a, _] = CABLE_HOSTS.map(|host| namespace(&lab.0, host));
    NetNs::create_named(&a).expect("privileged");
    let error = lab.up(&[]).expect_err("incomplete");
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
    lab.up(&[]).expect("privileged");
    let [a, _] = CABLE_HOSTS.map(|host| namespace(&lab.0, host));
    let ns = NetNs::open_named(&a).expect("made");
    spanwire_io::net::VethSpec {
        a: spanwire_io::net::VethEnd { ns: &ns, name: "mine0" },
        b: spanwire_io::net::VethEnd { ns: &other, name: "mine0" },
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
    lab.up(&[]).expect("privileged");
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
    assert!(text::down(&report).contains(&inside.id().to_string()));
}

/// `exec` replaces its process, so it needs a child process: the test runs itself with the command
/// in an environment variable.
#[test]
fn exec__process_becomes_the_command() {
    const SCRIPT: &str = "SPANWIRE_TEST_LAB_EXEC";
    const NAME: &str = "SPANWIRE_TEST_LAB_NAME";
    if let (Ok(script), Ok(name)) = (std::env::var(SCRIPT), std::env::var(NAME)) {
        let shell = ["exec", "--name", &name, "b", "--", "sh", "-c", &script];
        let program = ["exec", "--name", &name, "b", "--", &script];
        let words = if script.starts_with('/') { program.as_slice() } else { shell.as_slice() };
        let error = exec_error(words);
        println!("{error}");
        std::process::exit(i32::from(exit(&error).code()));
    }
    if lacks_privilege("exec") {
        return;
    }
    let lab = Lab::new();
    lab.up(&[]).expect("privileged");
    let run_child = |script: &str| {
        let mut child = Command::new(std::env::current_exe().expect("procfs"))
            .args(["--exact", "lab::tests::exec__process_becomes_the_command"])
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
    assert_eq!(status.code(), Some(127), "{text}");
    assert!(text.contains("cannot run /no/such/program in"), "{text}");
}

#[test]
fn exec__missing_lab_names_the_up_command() {
    let lab = Lab::new();
    let words = ["exec", "--name", &lab.0, "a", "true"];
    let error = exec_error(&words);
    assert!(matches!(error, LabError::NotUp { .. }), "{error}");
    assert!(error.to_string().contains("spanwire lab up"), "{error}");
}

#[test]
fn exec__unknown_host_lists_the_hosts() {
    let lab = Lab::new();
    let words = ["exec", "--name", &lab.0, "c", "true"];
    let error = exec_error(&words);
    assert!(error.to_string().ends_with("it has a, b"), "{error}");
    let error = run(&parse(&words)).expect_err("no host c");
    assert_eq!(Exit::of(&error).code(), 2);
}

#[test]
fn lab_args__flags_of_the_command_are_the_commands() {
    let words = ["exec", "a", "ping", "--name", "x", "-c1"];
    let LabCommand::Exec(args) = parse(&words).command else {
        panic!("not exec");
    };
    assert_eq!(args.name, DEFAULT_NAME);
    assert_eq!(args.host, "a");
    assert_eq!(args.command, ["ping", "--name", "x", "-c1"]);
}

#[test]
fn lab_args__defaults_are_the_librarys() {
    let args = parse_up(&[]);
    let config = LabConfig::default();
    assert_eq!(args.lab.name, DEFAULT_NAME);
    assert_eq!((args.prefix, args.prefix6), (config.v4, config.v6));
    assert_eq!((args.mtu, args.queues), (config.mtu, config.queues));
    assert_eq!(Some(args.queue_limit), config.pfifo);
    assert_eq!(DEVICE, config.ifname);
}

#[test]
fn lab_args__bad_prefix_is_refused_with_an_example() {
    let error = Cli::try_parse_from(["lab", "up", "--prefix", "10.0.0.0"]).expect_err("no length");
    assert!(error.to_string().contains("10.77.0.0/24"), "{error}");
    assert!(Cli::try_parse_from(["lab", "exec", "a"]).is_err(), "no command");
    let both = ["lab", "up", "--queues", "2", "--switch", "x.toml"];
    assert!(Cli::try_parse_from(both).is_err(), "a switch has one queue a port");
}

#[test]
fn up_report__text_is_ready_to_paste_and_json_is_complete() {
    let host = |name: &str, number: u16| LabHost {
        host: name.to_owned(),
        namespace: format!("x-{number}"),
        device: "sw0".to_owned(),
        mac: "02:00:00:00:00:01".to_owned(),
        v4: Ipv4Addr::new(10, 77, 0, 1),
        v6: std::net::Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number),
    };
    let hosts = vec![host("a", 1), host("b", 2)];
    let report = UpReport { name: "x".to_owned(), mtu: 1500, hosts, switch: None };
    let text = text::up(&report);
    assert!(
        text.contains("  spanwire lab exec --name x a -- spanwire perf server --dev sw0\n"),
        "{text}"
    );
    let json = serde_json::to_value(&report).expect("plain data");
    assert_eq!(json["hosts"][1]["v6"], "fd77::2");
    let addr: IpAddr =
        json["hosts"][0]["v4"].as_str().and_then(|text| text.parse().ok()).expect("an address");
    assert_eq!(addr, IpAddr::from([10, 77, 0, 1]));
}

#[test]
fn check_name__safe_in_paths_and_arguments() {
    for bad in ["", "-x", "a/b", "a b", "..", "ä", &"n".repeat(33)] {
        let error = check_name(bad).expect_err(bad);
        assert_eq!(exit(&error).code(), 2);
    }
    for good in ["sw", "my_lab-2", &"n".repeat(32)] {
        assert!(check_name(good).is_ok(), "{good}");
    }
}

#[test]
fn exit__as_a_shell() {
    let exec = |kind: io::ErrorKind| LabError::Exec {
        program: "x".to_owned(),
        namespace: "sw-a".to_owned(),
        source: kind.into(),
    };
    assert_eq!(exit(&exec(io::ErrorKind::NotFound)).code(), 127);
    assert_eq!(exit(&exec(io::ErrorKind::PermissionDenied)).code(), 126);
    assert_eq!(exit(&LabError::NoCommand).code(), 2);
    assert_eq!(exit(&LabError::Switch(String::new())).code(), 2);
    let lab = "sw".to_owned();
    assert_eq!(exit(&LabError::AlreadyUp { lab }).code(), 1);
}
