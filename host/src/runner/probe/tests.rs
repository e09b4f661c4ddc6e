mod mesh;

use super::super::client::JobReport;
use super::super::{ClientPoll, PendingClient};
use super::*;
use crate::oob::{Job, JobKind, ModeChoice, Modes, Op, Request, VERSION, WorkerOf};
use crate::probe::PROBES;
use crate::queue_pair::{QpParams, Sending};
use mesh::{Steering, mesh};
use spanwire_io::driver::Polling;
use spanwire_io::fault::FaultConfig;
use spanwire_loadbalance::Choice;
use spanwire_transport::{Balance, CongestionControl, SourcePort, ValidConfig};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// The lines of a test.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Lines {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{value:?}"));
    }
}

/// The workers of two hosts.
struct Rig {
    clients: Vec<JobRunner>,
    servers: Vec<JobRunner>,
    lines: Lines,
}

impl Rig {
    fn new(steering: [Steering; 2], mode: ModeChoice, faults: Option<FaultConfig>) -> Self {
        let hosts = mesh::<2>(steering, faults).into_iter().zip([CLIENT, SERVER]);
        let mut runners = hosts.map(|(ports, ip)| {
            let polling = Polling::Spin(spanwire_base::Dur::from_us(50));
            let config = ValidConfig::default();
            let mut runners = JobRunner::workers(ports, ip, polling, &config).unwrap();
            for runner in &mut runners {
                runner.set_mode(mode, None);
                // A loaded machine delays frames that are handed over, which is no congestion.
                let congestion = Some(CongestionControl::NONE);
                runner.set_sending(Sending { congestion, ..Sending::default() });
            }
            runners
        });
        let (clients, servers) = (runners.next().unwrap(), runners.next().unwrap());
        Self { clients, servers, lines: Lines::default() }
    }

    /// The handshake of a client's worker with the one of index `server`.
    fn meet(&mut self, client: usize, server: usize) -> (Oob, PendingClient) {
        let (mut near, far) = Oob::pair().unwrap();
        let mut pending = PendingClient::new(far, SERVER);
        let (client, server) = (&mut self.clients[client], &mut self.servers[server]);
        client.set_worker(server.worker_of);
        let lines = Dispatch::new(self.lines.clone());
        thread::scope(|scope| {
            let shaking = scope.spawn(|| {
                dispatcher::with_default(&lines, || {
                    client.handshake(&mut near).map_err(|e| e.to_string())
                })
            });
            dispatcher::with_default(&lines, || {
                while !shaking.is_finished() || pending.probing.sent_from.is_some() {
                    let polled = server.poll_client(&mut pending).map_err(|e| e.to_string());
                    assert!(matches!(polled, Ok(ClientPoll::Pending)), "{:?}", polled.err());
                    pending.wait();
                }
            });
            shaking.join().unwrap().unwrap();
        });
        (near, pending)
    }

    /// No probe is under way or waits for its worker.
    fn drain(&mut self) {
        for _ in 0..2 {
            for runner in self.clients.iter().chain(&self.servers) {
                while runner.pass_on() {}
            }
        }
    }

    /// Frames that the workers of the clients and of the servers have handed over.
    fn handed(&self) -> [u64; 2] {
        [&self.clients, &self.servers]
            .map(|side| side.iter().map(|r| count(r, "steer_handed")).sum())
    }

    /// A transfer of each client's worker with the server's of the index in `pairing`. Returns the
    /// frames handed over meanwhile, as [`Rig::handed`].
    fn transfer(&mut self, pairing: [usize; 2], op: Op, is_lossy: bool) -> [u64; 2] {
        let met: Vec<_> = (0..2).map(|client| self.meet(client, pairing[client])).collect();
        self.drain();
        let before = self.handed();
        let (running, never) = (AtomicUsize::new(4), || false);
        let is_over = || running.load(Ordering::Relaxed) == 0;
        let Self { clients, servers, .. } = self;
        let mut servers: Vec<_> = servers.iter_mut().map(Some).collect();
        thread::scope(|scope| {
            for ((client, (mut oob, mut pending)), to) in clients.iter_mut().zip(met).zip(pairing) {
                let server = servers[to].take().unwrap();
                let (is_over, never) = (&is_over, &never);
                let [of_client, of_server] = [(); 2].map(|()| Running(&running));
                scope.spawn(move || {
                    let request = loop {
                        server.pass_on();
                        match server.poll_client(&mut pending).unwrap() {
                            ClientPoll::Request(request) => break request,
                            ClientPoll::Pending => pending.wait(),
                            ClientPoll::Closed => panic!("it requests a job"),
                        }
                    };
                    let served = server.serve_request(&mut pending, &request, never).unwrap();
                    assert!(served.complete);
                    drop(of_server);
                    server.stand_by(is_over);
                });
                scope.spawn(move || {
                    let kind = JobKind::Transfer { bytes: 1 << 18, seed: to as u64 };
                    let timeout = if is_lossy { 12 } else { 17 };
                    let job = Job { op, size: 1 << 15, qps: 2, depth: 8, timeout, ..Job::of(kind) };
                    let report: JobReport = client.run(&mut oob, job, never, |_| {}).unwrap();
                    assert_eq!(report.sha256_match(), Some(true), "{:?}", report.error());
                    drop(of_client);
                    client.stand_by(is_over);
                });
            }
        });
        let after = self.handed();
        [0, 1].map(|side| after[side] - before[side])
    }

    fn src_ports(&self) -> Vec<Option<u16>> {
        let all = self.clients.iter().chain(&self.servers);
        all.map(|runner| runner.peer.and_then(|peer| peer.src_port)).collect()
    }
}

fn count(runner: &JobRunner, name: &str) -> u64 {
    runner.counters().into_iter().filter(|(own, _)| own == name).map(|(_, n)| n).sum()
}

/// One end of a job that runs, or has panicked meanwhile.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Hashes of two adapters that have nothing in common.
const HASHES: [Steering; 2] = [
    |port| usize::from(port.wrapping_mul(0x9e37) >> 15),
    |port| (port ^ port >> 3 ^ port >> 9).count_ones() as usize % 2,
];

#[test]
fn handshake__probes_find_ports_that_lead_to_the_worker_in_both_directions() {
    for (mode, op) in [
        (ModeChoice::Rc, Op::Write),
        (ModeChoice::Rc, Op::Read),
        (ModeChoice::Sr, Op::Read),
        (ModeChoice::Sr, Op::Send),
    ] {
        let mut rig = Rig::new(HASHES, mode, None);
        for pairing in [[0, 1], [1, 0]] {
            assert_eq!(rig.transfer(pairing, op, false), [0, 0], "{mode:?} {op:?} {pairing:?}");
            assert!(rig.src_ports().iter().all(|port| *port >= Some(0xc000)));
        }
        assert!(rig.lines.0.lock().unwrap().is_empty(), "{:?}", rig.lines.0);
        let probed: u64 = rig.clients.iter().map(|r| count(r, "drop_unknown_qpn")).sum();
        assert_eq!(probed, 4 * u64::from(PROBES), "in four handshakes");
    }
}

#[test]
fn handshake__one_port_of_sixteen_is_found() {
    let few: Steering = |port| usize::from(port % 16 == 3);
    let mut rig = Rig::new([few; 2], ModeChoice::Sr, None);
    assert_eq!(rig.transfer([0, 1], Op::Write, false), [0, 0]);
    assert!(rig.lines.0.lock().unwrap().is_empty());
}

#[test]
fn handshake__without_a_port_frames_are_handed_over_and_a_line_says_so() {
    for mode in [ModeChoice::Rc, ModeChoice::Sr] {
        let mut rig = Rig::new([|_| 0; 2], mode, None);
        let handed = rig.transfer([0, 1], Op::Write, false);
        assert!(handed.iter().all(|frames| *frames > 0), "{mode:?}: {handed:?}");
        let is_found: Vec<bool> = rig.src_ports().iter().map(Option::is_some).collect();
        assert_eq!(is_found, [true, false, true, false]);
        let lines = rig.lines.0.lock().unwrap();
        assert_eq!(lines.len(), 2, "of either end: {lines:?}");
        for (line, peer) in lines.iter().zip([SERVER, CLIENT]) {
            let words = format!("worker 1: none of 64 source ports leads to its peer's at {peer}");
            assert!(line.contains(&words) && line.contains("steer_handed"), "{line}");
        }
    }
}

#[test]
fn handshake__lost_probes_leave_the_others() {
    let loss = |loss_ppm| Some(FaultConfig { seed: 7, loss_ppm, ..FaultConfig::default() });
    let mut rig = Rig::new(HASHES, ModeChoice::Rc, loss(20_000));
    assert_eq!(rig.transfer([0, 1], Op::Write, true), [0, 0]);
    let mut rig = Rig::new(HASHES, ModeChoice::Rc, loss(700_000));
    for (client, server) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (_, pending) = rig.meet(client, server);
        let ports = [pending.peer, rig.clients[client].peer].map(|peer| peer?.src_port);
        let [Some(to_client), Some(to_server)] = ports else { panic!("{ports:?}") };
        assert_eq!([HASHES[0](to_client), HASHES[1](to_server)], [client, server]);
    }
    // None arrives.
    let mut rig = Rig::new(HASHES, ModeChoice::Rc, loss(1_000_000));
    let (_, pending) = rig.meet(1, 1);
    assert_eq!([pending.peer, rig.clients[1].peer].map(|peer| peer?.src_port), [None; 2]);
}

/// The hello of a worker of two.
fn hello(ip: IpAddr, index: u32, probe_qpn: Option<u32>) -> Message {
    let (version, path_mtu, side_poll_port, modes) = (VERSION, 1024, None, Modes::default());
    let (takes_fragments, worker) = (false, WorkerOf { index, workers: 2 });
    let hello =
        Hello { version, ip, path_mtu, side_poll_port, modes, takes_fragments, worker, probe_qpn };
    Message::Hello(hello)
}

/// The handshake of a client with a server that sends `messages`, and the messages of the client.
fn shake(messages: &[Message]) -> (Result<Rig, String>, Vec<Message>) {
    let mut rig = Rig::new(HASHES, ModeChoice::Auto, None);
    let (mut near, mut far) = Oob::pair().unwrap();
    messages.iter().for_each(|message| far.send(message).unwrap());
    let shaken = rig.clients[0].handshake(&mut near).map_err(|e| e.to_string());
    let sent = std::iter::from_fn(|| far.try_recv().unwrap()).collect();
    (shaken.map(|()| rig), sent)
}

/// The same for a server and a client. The server is polled until the client has `replies`.
fn serve(messages: &[Message], replies: usize) -> (Result<Rig, String>, Vec<Message>) {
    let mut rig = Rig::new(HASHES, ModeChoice::Auto, None);
    let (mut far, near) = Oob::pair().unwrap();
    messages.iter().for_each(|message| far.send(message).unwrap());
    let mut client = PendingClient::new(near, SERVER);
    let mut sent = Vec::new();
    while sent.len() < replies {
        match rig.servers[0].poll_client(&mut client) {
            Ok(ClientPoll::Request(_)) => return (Ok(rig), sent),
            Ok(_) => sent.extend(far.try_recv().unwrap()),
            Err(why) => {
                sent.extend(std::iter::from_fn(|| far.try_recv().ok()?));
                return (Err(why.to_string()), sent);
            }
        }
    }
    (Ok(rig), sent)
}

fn request() -> Message {
    let (job, qps) =
        (Job::of(JobKind::Bandwidth { duration_ms: 1 }), vec![QpParams { qpn: 9, psn: 1 }]);
    let (congestion, erasure, balance) = (None, None, None);
    Message::Request(Request { job, qps, congestion, erasure, balance })
}

fn arrived(probes: impl Into<Vec<u32>>) -> Message {
    Message::Arrived { probes: probes.into() }
}

#[test]
fn handshake__a_server_that_does_not_know_probes_gets_and_sends_none() {
    let (shaken, sent) = shake(&[hello(SERVER, 0, None)]);
    let rig = shaken.unwrap();
    assert!(matches!(&sent[..], [Message::Hello(Hello { probe_qpn: Some(1..), .. })]), "{sent:?}");
    assert_eq!(rig.src_ports()[0], None);
    rig.servers.iter().for_each(|server| while server.pass_on() {});
    assert!(rig.servers.iter().all(|server| count(server, "mesh_received") == 0));
}

#[test]
fn poll_client__a_client_that_does_not_know_probes_is_served() {
    let (served, sent) = serve(&[hello(CLIENT, 0, None), request()], 2);
    assert!(served.is_ok());
    assert!(matches!(&sent[..], [Message::Hello(Hello { probe_qpn: Some(1..), .. })]), "{sent:?}");
}

#[test]
fn hello__only_workers_behind_a_hash_ask_for_probes() {
    for (workers, rss, asks) in [(2, true, true), (2, false, false), (1, true, false)] {
        let mut rig = Rig::new(HASHES, ModeChoice::Auto, None);
        rig.clients[0].set_worker(WorkerOf { index: 0, workers });
        rig.clients[0].attachment.rss = rss;
        assert_eq!(rig.clients[0].count_probes().is_some(), asks, "{workers} {rss}");
    }
}

#[test]
fn handle_probing__wrong_answers_are_refused_by_either_end() {
    let probes = "it was sent 0 to 63";
    for (answer, words) in [
        (arrived([3, 64]), ["probe 64", probes]),
        (arrived([5, u32::MAX]), ["probe 4294967295", probes]),
        (arrived([0; 65]), ["65 probes", probes]),
        (Message::Ready, ["ready", "the probes that arrived"]),
        (request(), ["a request", "the probes that arrived"]),
    ] {
        let (shaken, _) = shake(&[hello(SERVER, 0, Some(77)), answer.clone()]);
        // The server has asked for probes, which the client does not send.
        let (served, _) = serve(&[hello(CLIENT, 0, Some(77)), Message::Probed, answer], 9);
        for why in [shaken.err(), served.err()] {
            let why = why.expect("it is refused");
            assert!(words.iter().all(|word| why.contains(word)), "{why}");
        }
    }
    let (served, _) = serve(&[hello(CLIENT, 0, None), arrived([0])], 9);
    assert!(served.err().unwrap().contains("sent the probes that arrived where a request"));
    let (served, _) = serve(&[hello(CLIENT, 0, Some(1 << 24))], 9);
    assert!(served.err().unwrap().contains("its number for probes is 16777216"));
}

#[test]
fn send_probes__a_client_gets_64_frames_once() {
    let messages =
        [hello(CLIENT, 0, Some(77)), Message::Probed, arrived([]), hello(CLIENT, 0, Some(78))];
    let (served, sent) = serve(&messages, 9);
    assert!(served.err().unwrap().contains("sent a hello where a request was due"));
    assert!(
        matches!(&sent[..], [Message::Hello(_), Message::Arrived { probes }, Message::Probed]
        if probes.is_empty()),
        "{sent:?}"
    );
    // Of a server that needs no probes, they come at once.
    let mut rig = Rig::new(HASHES, ModeChoice::Auto, None);
    rig.servers[0].attachment.rss = false;
    let (mut far, near) = Oob::pair().unwrap();
    far.send(&hello(CLIENT, 0, Some(77))).unwrap();
    rig.servers[0].poll_client(&mut PendingClient::new(near, SERVER)).unwrap();
    assert!(matches!(far.try_recv(), Ok(Some(Message::Hello(Hello { probe_qpn: Some(0), .. })))));
    assert!(matches!(far.try_recv(), Ok(Some(Message::Probed))));
    rig.clients.iter().for_each(|client| while client.pass_on() {});
    let received: u64 = rig.clients.iter().map(|client| count(client, "mesh_received")).sum();
    assert_eq!(received, u64::from(PROBES));
}

#[test]
fn path__a_load_balancer_has_all_ports() {
    let mut rig = Rig::new(HASHES, ModeChoice::Sr, None);
    rig.meet(0, 0);
    let peer = rig.clients[0].peer.unwrap();
    let port = SourcePort::Fixed(peer.src_port.unwrap());
    let choice = Choice::parse("unolb").unwrap();
    let balanced = Sending { balance: Some(Balance { choice, seed: 1 }), ..Sending::default() };
    assert_eq!(peer.path(&Sending::default()).udp_src_port, port);
    assert_eq!(peer.path(&balanced).udp_src_port, SourcePort::Derived);
    // Packets of RC have one path.
    let rc = Peer { agreed: spanwire_transport::Agreed::Rc, ..peer };
    assert_eq!(rc.path(&balanced).udp_src_port, port);
}
