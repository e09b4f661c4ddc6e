//! Networks with several workers.
#![expect(non_snake_case, reason = "tests are named function__case")]

#[path = "../../host/src/runner/probe/tests/mesh.rs"]
mod mesh;

/// That of [`mesh`].
mod fabric {
    pub(crate) use spanwire_stream::fabric::{Attachment, Link, Wrap};
}

use mesh::{Steering, mesh};
use spanwire_base::{RxMeta, TxMeta};
use spanwire_io::clock::TimeSource;
use spanwire_io::port::{Port, SlotToken, slots_of_inner};
use spanwire_stream::fabric::{Attachment, FabricChoice, Link, Wrap, link_of_inner};
use spanwire_stream::{
    Cause, Config, ConnectOptions, Connection, Error, Listener, Network, NetworkOptions, Progress,
    SetupError,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);

/// A busy machine may have no core for seconds.
fn options() -> NetworkOptions {
    let handshake_timeout = Duration::from_secs(60);
    let config = Config { handshake_timeout, timeout: 20, ..Config::default() };
    NetworkOptions { config: config.validate().unwrap(), ..NetworkOptions::default() }
}

/// Networks of `workers` workers: one of each are joined by a pipe, as queues of a veth pair are.
fn over_pipes(workers: [usize; 2]) -> [Network; 2] {
    let mut ports = [Vec::new(), Vec::new()];
    for worker in 0..workers[0].max(workers[1]) {
        let (a, b) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
        for (end, port) in [a, b].into_iter().enumerate() {
            if worker < workers[end] {
                ports[end].push(port);
            }
        }
    }
    ports.map(|ports| Network::over_workers(ports, "lo", options()).unwrap())
}

/// Networks of `workers` workers over UDP sockets of the loopback.
fn over_udp(net: u8, workers: [u32; 2]) -> [Network; 2] {
    let mut last = 0;
    workers.map(|workers| {
        last += 1;
        let address = Some(IpAddr::from([127, 83, net, last]));
        let fabric = FabricChoice::Udp;
        Network::open("lo", NetworkOptions { fabric, address, workers, ..options() }).unwrap()
    })
}

fn at(worker: Option<u32>) -> ConnectOptions {
    ConnectOptions { worker, ..ConnectOptions::default() }
}

fn pair(
    listener: &Listener<Connection>,
    caller: &Network,
    worker: Option<u32>,
) -> Result<[Connection; 2], SetupError> {
    let called = caller.connect(address(listener), &at(worker))?;
    Ok([listener.accept_timeout(LATE)?.expect("it called"), called])
}

fn address(listener: &Listener<Connection>) -> SocketAddr {
    match listener.local_addr() {
        all if all.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, all.port()).into(),
        one => one,
    }
}

/// Sends messages in both directions, of which some have many packets.
fn exchange(ends: &mut [Connection; 2]) {
    for (from, to) in [(0, 1), (1, 0)] {
        for bytes in [1, 100_000, 64] {
            let message: Vec<u8> = (0..251).cycle().take(bytes).collect();
            ends[from].send(&message).unwrap();
            assert_eq!(ends[to].recv().unwrap().as_ref(), Some(&message));
        }
    }
}

fn workers(connections: &[[Connection; 2]]) -> Vec<[u32; 2]> {
    connections.iter().map(|ends| [0, 1].map(|end| ends[end].about().worker)).collect()
}

fn counter(network: &Network, name: &str) -> u64 {
    network.counters().iter().find(|(known, _)| known == name).expect("it is known").1
}

#[test]
fn connect__connections_spread_over_workers_and_both_ends_have_the_same() {
    let [a, b] = over_pipes([2, 2]);
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let mut pairs: Vec<_> = (0..4).map(|_| pair(&listener, &b, None).unwrap()).collect();
    let mut spread = workers(&pairs);
    spread.sort_unstable();
    assert_eq!(spread, [[0, 0], [0, 0], [1, 1], [1, 1]]);
    pairs.iter_mut().for_each(exchange);
    assert!([&a, &b].into_iter().all(|network| counter(network, "steer_handed") == 0));
    // The place of a connection that has ended is free.
    let left = pairs.swap_remove(0);
    let free = left[1].about().worker;
    let qpns = |network: &Network| network.congestion().len();
    drop(left);
    while qpns(&b) != 3 + 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(pair(&listener, &b, None).unwrap()[1].about().worker, free);
}

#[test]
fn connect__an_end_with_fewer_workers_meets_all_of_its_own() {
    for counts in [[1, 3], [3, 2], [2, 3]] {
        let [a, b] = over_pipes(counts);
        let listener = a.listen(0, ConnectOptions::default()).unwrap();
        let mut pairs: Vec<_> = (0..6).map(|_| pair(&listener, &b, None).unwrap()).collect();
        pairs.iter_mut().for_each(exchange);
        let mut met = BTreeMap::new();
        workers(&pairs).into_iter().for_each(|ends| *met.entry(ends).or_insert(0) += 1);
        let few = u32::try_from(counts[0].min(counts[1])).unwrap();
        let expected: Vec<_> = (0..few).map(|worker| [worker, worker]).collect();
        assert_eq!(met.keys().copied().collect::<Vec<_>>(), expected, "{counts:?}: {met:?}");
    }
}

#[test]
fn connect__names_its_worker_and_a_listener_names_its_own() {
    let [a, b] = over_pipes([2, 2]);
    let listener = a.listen(0, at(Some(1))).unwrap();
    assert_eq!(workers(&[pair(&listener, &b, None).unwrap()]), [[1, 1]]);
    let other = pair(&listener, &b, Some(0)).unwrap_err();
    assert!(matches!(other, SetupError::Worker(0, 1)), "{other}");
    let none = pair(&listener, &b, Some(2)).unwrap_err();
    assert!(none.to_string().contains("worker is 2, and the network has 2"), "{none}");
}

#[test]
fn connect__over_sockets_any_two_workers_meet_and_nothing_is_handed_over() {
    let [a, b] = over_udp(21, [2, 2]);
    let mut met = Vec::new();
    for listening in 0..2 {
        let listener = a.listen(0, at(Some(listening))).unwrap();
        for calling in 0..2 {
            let mut ends = pair(&listener, &b, Some(calling)).unwrap();
            exchange(&mut ends);
            met.extend(workers(&[ends]));
        }
    }
    assert_eq!(met, [[0, 0], [0, 1], [1, 0], [1, 1]]);
    for network in [&a, &b] {
        assert_eq!(counter(network, "steer_handed"), 0);
        let received = |worker| {
            let counters = network.counters_of(worker);
            counters.iter().find(|(name, _)| name == "rx_packets").map(|(_, n)| *n)
        };
        assert!([0, 1].into_iter().all(|worker| received(worker) > Some(0)));
    }
}

#[test]
fn listen__over_sockets_the_listener_has_the_least_load_whatever_the_caller_has() {
    let [a, b] = over_udp(22, [3, 1]);
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let mut pairs: Vec<_> = (0..6).map(|_| pair(&listener, &b, None).unwrap()).collect();
    pairs.iter_mut().for_each(exchange);
    let mut listening: Vec<u32> = workers(&pairs).iter().map(|[a, _]| *a).collect();
    listening.sort_unstable();
    assert_eq!(listening, [0, 0, 1, 1, 2, 2]);
    assert_eq!(counter(&a, "steer_handed"), 0);
}

#[test]
fn connect__the_limit_of_connections_is_that_of_all_workers() {
    let mut ports = Vec::new();
    for _ in 0..2 {
        ports.push(Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap());
    }
    let (far, near): (Vec<_>, Vec<_>) = ports.into_iter().unzip();
    let a = Network::over_workers(far, "lo", options()).unwrap();
    let config = Config { max_connections: 3, ..Config::clone(&options().config) };
    let config = config.validate().unwrap();
    let b = Network::over_workers(near, "lo", NetworkOptions { config, ..options() }).unwrap();
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let pairs: Vec<_> = (0..3).map(|_| pair(&listener, &b, None).unwrap()).collect();
    let full = pair(&listener, &b, None).unwrap_err();
    assert!(matches!(full, SetupError::Limit("max_connections")), "{full}");
    drop(pairs);
}

#[test]
fn open__says_what_is_wrong_with_its_workers() {
    let open = |options| {
        let [a, b] =
            [0, 1].map(|_| Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap());
        Network::over_workers(vec![a.0, b.0], "lo", options).unwrap_err().to_string()
    };
    let cores = open(NetworkOptions { cores: vec![0], ..options() });
    assert!(cores.contains("1 cores for 2 workers"), "{cores}");
    let inline = open(NetworkOptions { progress: Progress::Inline, ..options() });
    assert!(inline.contains("threads of their own"), "{inline}");
    let none = Network::over_workers(Vec::new(), "lo", options()).unwrap_err().to_string();
    assert!(none.contains("needs a worker"), "{none}");
    for workers in [0, 17] {
        let wrong = Network::open("lo", NetworkOptions { workers, ..options() }).unwrap_err();
        assert!(wrong.to_string().contains("workers is"), "{wrong}");
    }
}

/// Whether packets of connections at workers 0 and 1 are handed over, if the adapters of both ends
/// steer by these functions of the source port.
fn handed_over(steering: [Steering; 2]) -> [bool; 2] {
    let networks =
        mesh::<2>(steering, None).map(|ports| Network::over_workers(ports, "lo", options()));
    let networks = networks.map(Result::unwrap);
    let listener = networks[0].listen(0, ConnectOptions::default()).unwrap();
    // Packets of a closed connection would be counted with the probes.
    let mut open = Vec::new();
    [0, 1].map(|worker| {
        let mut ends = pair(&listener, &networks[1], Some(worker)).unwrap();
        let count = |name: &str| networks.each_ref().map(|network| counter(network, name));
        // Late probes are handed over, too.
        let (probes, deadline) = (64 * (u64::from(worker) + 1), Instant::now() + LATE);
        while count("drop_unknown_qpn") != [probes; 2] {
            assert!(Instant::now() < deadline, "{:?} of {probes}", count("drop_unknown_qpn"));
            std::thread::sleep(Duration::from_millis(1));
        }
        let handed = || count("steer_handed");
        let before = handed();
        exchange(&mut ends);
        assert_eq!(ends.each_ref().map(|end| end.about().worker), [worker; 2]);
        open.push(ends);
        handed() != before
    })
}

#[test]
fn connect__probes_find_source_ports_that_lead_to_the_worker() {
    let by: [Steering; 3] = [
        |port| usize::from(port % 2),
        |port| usize::from(port >> 8) % 2,
        |port| ((usize::from(port) * 40_503) >> 13) % 2,
    ];
    for steering in [[by[0]; 2], [by[0], by[1]], [by[2], by[1]], [by[2]; 2]] {
        assert_eq!(handed_over(steering), [false; 2]);
    }
    // Every packet arrives at worker 0, whatever is probed.
    assert_eq!(handed_over([|_| 0, |_| 0]), [false, true]);
}

/// A port whose worker panics once it is set.
struct Trap {
    inner: Box<dyn Link + Send>,
    is_set: Arc<AtomicBool>,
}

impl Port for Trap {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        assert!(!self.is_set.load(Ordering::SeqCst), "on purpose");
        self.inner.rx_burst(clock, max, each)
    }

    slots_of_inner!();

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        self.inner.slot_commit(slot, meta);
    }

    fn wait(&mut self, timeout: Duration) -> std::io::Result<()> {
        self.inner.wait(timeout)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }
}

impl Link for Trap {
    fn counters(&self) -> Vec<(String, u64)> {
        self.inner.counters()
    }

    link_of_inner!(self, self.inner, self.inner);
}

#[test]
fn worker__that_panics_ends_its_connections_and_the_others_go_on() {
    let is_set = Arc::new(AtomicBool::new(false));
    let mut ports = [Vec::new(), Vec::new()];
    for worker in 0..2 {
        let (a, mut b) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
        if worker == 1 {
            b.port = Box::new(Trap { inner: b.port, is_set: is_set.clone() });
        }
        ports[0].push(a);
        ports[1].push(b);
    }
    // Threads of the network drive, not those of the test, of which one would panic.
    let options = || NetworkOptions { progress: Progress::Worker, ..options() };
    let [a, b] = ports.map(|ports| Network::over_workers(ports, "lo", options()).unwrap());
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let [mut stays, mut ends] = [0, 1].map(|at| pair(&listener, &b, Some(at)).unwrap());
    exchange(&mut ends);
    is_set.store(true, Ordering::SeqCst);
    // The frames of this message wake the worker.
    ends[0].send(b"spring").unwrap();
    let lost = ends[1].recv().unwrap_err();
    assert!(matches!(&lost, Error::Lost(Cause::NetworkGone(_))), "{lost}");
    assert!(matches!(ends[0].recv().unwrap_err(), Error::Lost(_)), "its side connection closes");
    exchange(&mut stays);
    let mut next = pair(&listener, &b, None).unwrap();
    assert_eq!(next.each_ref().map(|end| end.about().worker), [0, 0]);
    exchange(&mut next);
    let gone = pair(&listener, &b, Some(1)).unwrap_err();
    assert!(matches!(gone, SetupError::NetworkGone(_)), "{gone}");
    drop((stays, next, ends));
    let why = b.shutdown(LATE).unwrap_err().to_string();
    assert!(why.contains("panicked"), "{why}");
    a.shutdown(LATE).unwrap();
}
