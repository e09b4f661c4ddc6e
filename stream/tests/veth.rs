//! Networks on a veth pair: AF_XDP, processes, loss, pulled cables. Needs privileges.
#![expect(non_snake_case, reason = "tests are named function__case")]

use spanwire_io::fault::FaultConfig;
use spanwire_io::net::{LabConfig, NetNs, Netlink, TwoHosts};
use spanwire_io::xdp::XdpConfig;
use spanwire_stream::fabric::{Attachment, Wrap};
use spanwire_stream::{
    Cause, Config, ConnectOptions, Connection, Error, Listener, ModeChoice, Network, NetworkOptions,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);

/// Two hosts, for one test at a time.
struct Lab {
    hosts: TwoHosts,
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// `None`, with a message, without the privilege.
    fn new() -> Option<Self> {
        Self::with(&LabConfig::default())
    }

    fn with(config: &LabConfig) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        if let Err(why) = NetNs::new_anonymous() {
            let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
            assert!(!required, "an end-to-end test cannot run: {why}");
            eprintln!("SKIPPED: {why}");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = TwoHosts::anonymous(config).expect("two hosts");
        Some(Self { hosts, _turn: turn })
    }

    /// A network on each host, with a receive loss probability in millionths.
    fn networks(&self, loss_ppm: u32) -> [Network; 2] {
        let open = |ns: &NetNs, seed| {
            let faults = FaultConfig { seed, loss_ppm, ..FaultConfig::default() };
            let wrap = Wrap { faults: Some(faults), pcap: None };
            let opened = ns.run(|| {
                let attachment = Attachment::xdp_with(&XdpConfig::new("sw0"), &wrap).unwrap();
                // A worker may have no core for seconds; a cut link is detected after 7 s.
                let config = Config {
                    handshake_timeout: Duration::from_secs(60),
                    timeout: 16,
                    ..Config::default()
                };
                let config = config.validate().unwrap();
                let options = NetworkOptions { config, ..NetworkOptions::default() };
                Network::over(attachment, "sw0", options).unwrap()
            });
            opened.expect("the namespace is there")
        };
        [open(&self.hosts.a.ns, 1), open(&self.hosts.b.ns, 2)]
    }

    /// A connection from b to a.
    fn connect(&self, [a, b]: &[Network; 2], mode: ModeChoice) -> (Connection, Connection) {
        let options = ConnectOptions { mode, ..ConnectOptions::default() };
        let in_a = &self.hosts.a.ns;
        let listener: Listener<Connection> =
            in_a.run(|| a.listen(0, ConnectOptions::default()).unwrap()).unwrap();
        let address = SocketAddr::new(self.hosts.a.v4.into(), listener.local_addr().port());
        let caller = self.hosts.b.ns.run(|| b.connect(address, &options).unwrap()).unwrap();
        (listener.accept_timeout(LATE).unwrap().expect("it called"), caller)
    }
}

/// The command of an example of this package, as Cargo built it beside this test.
fn example(ns: &NetNs, name: &str, args: &[&str]) -> Command {
    let test = std::env::current_exe().expect("Linux knows");
    let target: PathBuf = test.ancestors().nth(2).expect("target/PROFILE/deps/test").into();
    let path = target.join("examples").join(name);
    assert!(path.exists(), "build the examples: cargo build -p spanwire-stream --examples");
    let mut command = ns.command(path).expect("the namespace is there");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a listening example and reads its port.
fn listening(ns: &NetNs, name: &str) -> (Child, String, BufReader<ChildStderr>) {
    let mut child = example(ns, name, &["sw0", "listen", "0"]).spawn().expect("it starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("it speaks");
    let port = line.trim_end().rsplit(':').next().expect("an address").to_owned();
    assert!(line.starts_with("listening on"), "{line}");
    (child, port, stderr)
}

#[test]
fn example_echo__answers_over_both_ip_versions() {
    let Some(lab) = Lab::new() else { return };
    let (mut server, port, _stderr) = listening(&lab.hosts.a.ns, "echo");
    for address in [format!("{}:{port}", lab.hosts.a.v4), format!("[{}]:{port}", lab.hosts.a.v6)] {
        let args = ["sw0", "call", &address, "hello", "", "Größe"];
        let out = example(&lab.hosts.b.ns, "echo", &args).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{stderr}");
        assert_eq!(String::from_utf8_lossy(&out.stdout), "hello\n\nGröße\n");
        assert!(stderr.contains("connected by Sr"), "{stderr}");
    }
    server.kill().expect("our child");
    server.wait().expect("our child");
}

#[test]
fn example_pour__carries_standard_input_whole() {
    let Some(lab) = Lab::new() else { return };
    let mut data = vec![0; 20_000_003];
    spanwire_base::Rng::new(1).fill(&mut data);
    let (mut taker, port, mut said) = listening(&lab.hosts.a.ns, "pour");
    let address = format!("{}:{port}", lab.hosts.a.v4);
    let mut giver = example(&lab.hosts.b.ns, "pour", &["sw0", "call", &address]).spawn().unwrap();
    let (mut input, mut output) = (giver.stdin.take().unwrap(), taker.stdout.take().unwrap());
    let mut got = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            input.write_all(&data).unwrap();
            drop(input);
        });
        output.read_to_end(&mut got).unwrap();
    });
    assert!(giver.wait().unwrap().success());
    assert!(taker.wait().unwrap().success());
    let mut last = String::new();
    said.read_to_string(&mut last).unwrap();
    assert!(last.contains("20000003 bytes with"), "{last}");
    assert!(got == data, "bytes differ");
}

#[test]
fn send__every_message_arrives_when_packets_are_lost() {
    let Some(lab) = Lab::new() else { return };
    for mode in [ModeChoice::Rc, ModeChoice::Sr] {
        let networks = lab.networks(10_000);
        let (mut taker, mut giver) = lab.connect(&networks, mode);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut message = Vec::new();
                let mut rng = spanwire_base::Rng::new(9);
                while taker.receiver().recv_into(&mut message).unwrap() {
                    let mut expected = vec![0; message.len()];
                    rng.fill(&mut expected);
                    assert!(message == expected);
                }
            });
            let mut rng = spanwire_base::Rng::new(9);
            for n in 0..60 {
                let mut message = vec![0; n * 1777];
                rng.fill(&mut message);
                giver.send(&message).unwrap();
            }
            giver.close(LATE).unwrap();
        });
        let [a, b] = networks;
        let counters = a.counters();
        // The previous network ends first, because an interface can have only one.
        b.shutdown(LATE).unwrap();
        a.shutdown(LATE).unwrap();
        let lost = counters.iter().find(|(name, _)| name == "fault_lost").expect("a fault port");
        assert!(lost.1 > 0, "{counters:?}");
    }
}

#[test]
fn open__several_workers_have_a_queue_each() {
    let Some(lab) = Lab::with(&LabConfig { queues: 2, ..LabConfig::default() }) else { return };
    let [in_a, in_b] = [&lab.hosts.a.ns, &lab.hosts.b.ns];
    let open = |ns: &NetNs, workers| {
        let options = NetworkOptions { workers, ..NetworkOptions::default() };
        ns.run(|| Network::open("sw0", options)).expect("the namespace is there")
    };
    let more = open(in_a, 3).unwrap_err();
    assert!(more.to_string().contains("3 workers need a queue each"), "{more}");
    let [a, b] = [in_a, in_b].map(|ns| open(ns, 2).unwrap());
    let listener: Listener<Connection> =
        in_a.run(|| a.listen(0, ConnectOptions::default()).unwrap()).unwrap();
    let address = SocketAddr::new(lab.hosts.a.v4.into(), listener.local_addr().port());
    let mut met = Vec::new();
    let mut pairs: Vec<_> = (0..4)
        .map(|_| {
            let options = ConnectOptions::default();
            let caller = in_b.run(|| b.connect(address, &options).unwrap()).unwrap();
            let accepted = listener.accept_timeout(LATE).unwrap().expect("it called");
            met.push([&accepted, &caller].map(|end| end.about().worker));
            (accepted, caller)
        })
        .collect();
    met.sort_unstable();
    assert_eq!(met, [[0, 0], [0, 0], [1, 1], [1, 1]]);
    let message = vec![7; 300_000];
    for (accepted, caller) in &mut pairs {
        caller.send(&message).unwrap();
        assert!(accepted.recv_timeout(LATE).unwrap() == Some(message.clone()));
    }
    for network in [&a, &b] {
        let counters = network.counters();
        let handed = counters.iter().find(|(name, _)| name == "steer_handed");
        assert_eq!(handed.map(|(_, n)| *n), Some(0), "{counters:?}");
    }
}

#[test]
fn recv__detects_a_killed_process_by_its_side_connection() {
    let Some(lab) = Lab::new() else { return };
    let (mut server, port, _stderr) = listening(&lab.hosts.a.ns, "echo");
    let address = SocketAddr::new(lab.hosts.a.v4.into(), port.parse().unwrap());
    let mut connection = lab
        .hosts
        .b
        .ns
        .run(|| {
            let network = Network::open("sw0", NetworkOptions::default()).unwrap();
            network.connect(address, &ConnectOptions::default()).unwrap()
        })
        .unwrap();
    connection.send(b"still there?").unwrap();
    assert!(connection.recv_timeout(LATE).unwrap().is_some());
    server.kill().expect("our child");
    server.wait().expect("our child");
    // Not by a timeout of the queue pair: the kernel has closed the side connection.
    let lost = connection.recv_timeout(LATE);
    let expected = Cause::PeerGone("its side connection closed");
    assert_eq!(lost, Err(Error::Lost(expected)));
}

#[test]
fn recv__both_ends_detect_a_pulled_cable() {
    let Some(lab) = Lab::new() else { return };
    let networks = lab.networks(0);
    let (taker, giver) = lab.connect(&networks, ModeChoice::Auto);
    Netlink::open_in(&lab.hosts.b.ns).unwrap().set_down("sw0").unwrap();
    thread::scope(|scope| {
        for mut end in [taker, giver] {
            scope.spawn(move || {
                let lost = end.recv_timeout(LATE);
                assert!(matches!(lost, Err(Error::Lost(Cause::PeerGone(_)))), "{lost:?}");
            });
        }
    });
}

#[test]
fn recv__a_waiting_worker_sleeps() {
    let Some(lab) = Lab::new() else { return };
    let networks = lab.networks(0);
    let (mut taker, mut giver) = lab.connect(&networks, ModeChoice::Auto);
    // Steps are counted instead of time: a spinning worker takes millions a second, a sleeping one
    // a few per wake-up.
    let steps = || {
        let counted = |n: &Network| {
            let counters = n.counters();
            counters.iter().find(|(name, _)| name == "worker_steps").unwrap().1
        };
        networks.iter().map(counted).sum::<u64>()
    };
    thread::sleep(Duration::from_millis(200));
    let before = steps();
    assert!(matches!(taker.recv_timeout(Duration::from_secs(2)), Err(Error::TimedOut(_))));
    let taken = steps() - before;
    assert!(taken < 500_000, "{taken} steps in two seconds");
    giver.send(b"awake").unwrap();
    assert!(taker.recv_timeout(LATE).unwrap().is_some());
}
