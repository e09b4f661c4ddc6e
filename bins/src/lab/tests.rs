use super::*;
use clap::Parser;
use spanwire_io::net::LabConfig;
use spanwire_lab::{DEFAULT_NAME, DEVICE, LabHost};
use std::net::{IpAddr, Ipv4Addr};

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

#[test]
fn exec__unknown_host_lists_the_hosts() {
    let words = ["exec", "--name", "none", "c", "true"];
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
fn exit__as_a_shell() {
    let exec = |kind: io::ErrorKind| LabError::Exec {
        program: "x".to_owned(),
        namespace: "sw-a".to_owned(),
        source: kind.into(),
    };
    assert_eq!(exit(&exec(io::ErrorKind::NotFound)).code(), 127);
    assert_eq!(exit(&exec(io::ErrorKind::PermissionDenied)).code(), 126);
    for bad in [["--prefix", "127.0.0.0/8"], ["--prefix6", "ff02::/64"]] {
        let error = up(&parse_up(&bad)).expect_err("no addresses of hosts");
        assert_eq!(exit(&error).code(), 2, "{error}");
    }
    assert_eq!(exit(&LabError::NoCommand).code(), 2);
    assert_eq!(exit(&LabError::BadName { lab: String::new() }).code(), 2);
    assert_eq!(exit(&LabError::Switch(String::new())).code(), 2);
    let lab = "sw".to_owned();
    assert_eq!(exit(&LabError::AlreadyUp { lab }).code(), 1);
}
