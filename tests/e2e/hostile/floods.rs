//! Floods by a blind third party, without knowledge of the PSNs: CNPs, requests of any PSN, and
//! datagrams of a byte.

use super::forge::Forge;
use super::{Injector, Lab, Numbers, PROGRESS, SLOW, Tap, lost};
use crate::lab::{Running, dropped_frames, udp_socket};
use crate::udp::{PEAK_KIB, ROCE_PORT};
use serde_json::Value;
use spanwire_base::Rng;
use spanwire_host::fabric::FabricChoice;
use spanwire_io::net::LabConfig;
use spanwire_transport::ValidConfig;
use spanwire_wire::{ExtHeaders, Opcode, Psn, Qpn, RethRepr};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// A server, an RC client with a transfer, and the parameters that they exchanged.
fn transfer(lab: &Lab, args: &[&str]) -> (Running, Running, Numbers) {
    transfer_by(&[], lab, args)
}

/// As [`transfer`], with these options of the server.
fn transfer_by(serve: &[&str], lab: &Lab, args: &[&str]) -> (Running, Running, Numbers) {
    let server = lab.json_server(serve);
    let mut tap = Tap::new(&lab.hosts.b);
    let client = lab.start_client(lab.v4(), &[args, &["--mode", "rc"]].concat());
    let numbers = tap.capture_numbers();
    (server, client, numbers)
}

/// The reports of a client that verified its transfer, and of its server.
fn end(server: Running, client: Running) -> (Value, Value) {
    let report = client.wait().json();
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
    let served = server.end_with(libc::SIGTERM).json();
    (report, served)
}

#[test]
fn hostile__a_flood_of_cnps_is_rate_limited() {
    flood_of_cnps(FabricChoice::Xdp);
}

#[test]
fn hostile__a_flood_of_cnps_is_rate_limited_over_udp() {
    flood_of_cnps(FabricChoice::Udp);
}

fn flood_of_cnps(fabric: FabricChoice) {
    const BURSTS: u64 = 20;
    const BURST: u64 = 64;
    /// Least time between two CNPs that count, set here so that it is known.
    const SPACING: Duration = Duration::from_millis(30);
    let Some(lab) = Lab::over(fabric) else { return };
    // The rate falls from 50 Mbit/s with each CNP that counts.
    let slow = ["--transfer", "16M", "--window", "64", "--line-rate", "50Mbit", "--json"];
    let rnic = ["--cc", "dcqcn-rnic", "--cnp-spacing", "30ms", "--timeout", "16", "-i", "0"];
    let (server, mut client, numbers) = transfer(&lab, &[&slow[..], &rnic].concat());
    let forge = Forge::new(&lab.hosts.a, &lab.hosts.b, numbers.client_qpn);
    let cnp = forge.packet(Opcode::Cnp, Psn::new(0), ExtHeaders::NONE, 0);
    let mut from_a = Injector::new(&lab.hosts.a);
    let start = Instant::now();
    for _ in 0..BURSTS {
        for _ in 0..BURST {
            from_a.send(&cnp);
        }
        lab.await_traffic(PROGRESS);
    }
    assert!(client.is_running(), "the transfer ended before the attack did");
    // The client receives the last one later, but before it has received the answers to all of the
    // next data.
    lab.await_traffic(4 * PROGRESS);
    let took = start.elapsed();
    let (report, served) = end(server, client);
    let count = |name: &str| report["counters"][name].as_u64().unwrap_or(0);
    let (handled, ignored) = (count("rp_cnp_handled"), count("drop_ignored_cnp"));
    let (sent, lost) = (BURSTS * BURST, lost(&lab, [&served, &report]));
    let all = handled + ignored;
    assert!(all <= sent && all + lost >= sent, "{handled} and {ignored}, {lost} lost: {report}");
    let most = 1 + took.as_micros() / SPACING.as_micros();
    assert!(handled > 0 && u128::from(handled) <= most, "{handled} in {took:?}: {report}");
}

/// Blind reset: requests with a wrong key at random future PSNs, except near the expected one.
#[test]
fn hostile__a_blind_spray_causes_no_reset_and_no_retransmission() {
    blind_spray(FabricChoice::Xdp);
}

#[test]
fn hostile__a_blind_spray_causes_no_reset_and_no_retransmission_over_udp() {
    blind_spray(FabricChoice::Udp);
}

fn blind_spray(fabric: FabricChoice) {
    const SPRAY: u64 = 4_000;
    const BATCH: u64 = 160;
    let Some(lab) = Lab::over(fabric) else { return };
    let (server, mut client, numbers) = transfer(&lab, &SLOW);
    let forge = Forge::new(&lab.hosts.b, &lab.hosts.a, numbers.server_qpn);
    let mut from_b = Injector::new(&lab.hosts.b);
    let mut rng = Rng::new(15);
    let reth = Some(RethRepr { va: numbers.va, rkey: numbers.rkey ^ 1, dma_len: 64 });
    let ext = ExtHeaders { reth, ..ExtHeaders::NONE };
    for n in 1..=SPRAY {
        // The transfer takes 2^15 packets; half of the PSNs are ahead of all of them.
        let away = u32::try_from(rng.below((1 << 23) - (2 << 20))).expect("24 bits");
        let psn = Psn::new(numbers.client_psn).plus(1 << 20).plus(away);
        from_b.send(&forge.packet(Opcode::RcWriteOnly, psn, ext, 64));
        if n % BATCH == 0 {
            lab.await_traffic(PROGRESS);
        }
    }
    assert!(client.is_running(), "the transfer ended before the attack did");
    let (report, served) = end(server, client);
    let lost = lost(&lab, [&served, &report]);
    let count = |name: &str| served["counters"][name].as_u64().unwrap_or(0);
    let refused = count("drop_beyond_psn_limit");
    assert!(refused <= SPRAY && refused + lost >= SPRAY, "{lost} lost: {served}");
    assert_eq!(count("tx_fatal_naks"), 0, "{served}");
    // A lost packet is a gap; each forged one used to count as one.
    assert!(count("out_of_sequence") <= lost, "{lost} lost: {served}");
}

/// Packets of no queue pair that name either worker, all of one flow and so on one queue: half of
/// them are handed over, in bursts that are longer than the ring.
#[test]
fn hostile__a_flood_for_the_ring_of_another_worker_leaves_its_transfer_right() {
    const BURSTS: u64 = 20;
    const BURST: u64 = 1_000;
    let two = ["--workers", "2", "--oversubscribe"];
    let Some(mut lab) = Lab::with(&LabConfig { queues: 2, ..LabConfig::default() }) else { return };
    lab.fabric = FabricChoice::Xdp;
    let (server, mut client, numbers) = transfer_by(&two, &lab, &[&SLOW[..], &two].concat());
    let config = ValidConfig::default().of_worker(0, 2).expect("two are few");
    let (shift, _) = config.qpn_workers().shift_and_mask();
    // Its own queue pair has another random bit.
    let unknown = numbers.server_qpn.get() ^ 1 << 23;
    let frames = [unknown, unknown ^ 1 << shift].map(|qpn| {
        let forge = Forge::new(&lab.hosts.b, &lab.hosts.a, Qpn::new(qpn));
        forge.plain(Opcode::RcSendOnly, Psn::new(0))
    });
    let mut from_b = Injector::new(&lab.hosts.b);
    for _ in 0..BURSTS {
        for _ in 0..BURST / 2 {
            frames.iter().for_each(|frame| from_b.send(frame));
        }
        lab.await_traffic(PROGRESS);
    }
    assert!(client.is_running(), "the transfer ended before the attack did");
    let report = client.wait().json();
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
    let served = server.end_with(libc::SIGTERM).stdout;
    let served: Vec<Value> =
        served.lines().map(|line| serde_json::from_str(line).expect("a line a worker")).collect();
    let of = |worker: &Value, name: &str| worker["counters"][name].as_u64().unwrap_or(0);
    let count = |name: &str| served.iter().map(|worker| of(worker, name)).sum::<u64>();
    let [handed, received] = ["steer_handed", "steer_received"].map(count);
    let [full, unknown] = ["steer_dropped", "drop_unknown_qpn"].map(count);
    let lost = lost(&lab, [&served[0], &report]) + lost(&lab, [&served[1], &report]);
    let sent = BURSTS * BURST;
    assert!(handed > 0 && handed == received, "{served:?}");
    assert!(handed + full <= sent / 2 && unknown + full <= sent, "{served:?}");
    assert!(unknown + full + lost >= sent, "{lost} lost: {served:?}");
    assert_eq!(count("tx_fatal_naks"), 0, "{served:?}");
}

/// The kernel counts about 768 bytes for a datagram of one. They fill the receive buffer of a
/// server that is stopped, and no more memory than that.
#[test]
fn hostile__small_datagrams_fill_the_receive_buffer_and_the_rest_is_counted_over_udp() {
    const FLOOD: u64 = 4_000;
    /// The kernel grants twice as much, and adds a datagram to a buffer that is not full.
    const BUFFER: u64 = 256 << 10;
    const DATAGRAM_MAX: u64 = 128 << 10;
    let Some(lab) = Lab::over(FabricChoice::Udp) else { return };
    let server = lab.json_server(&["--rcvbuf", "256K"]);
    // At 50 Mbit/s the transfer lasts for more than a second: at the default rate it could end
    // before the server is stopped. It retries for half a minute.
    let slow = ["--transfer", "8M", "--cc", "fixed", "--cc-set", "rate_mbps=50", "--window", "64"];
    let args = [&slow[..], &["--timeout", "18", "--json"]].concat();
    let client = lab.start_client(lab.v4(), &args);
    lab.await_traffic(PROGRESS);
    server.stop();
    let flood = || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("any port");
        // Those that a full queue refuses are not sent.
        let sent = |_: &u64| socket.send_to(&[7], (lab.v4(), ROCE_PORT)).is_ok();
        u64::try_from((0..FLOOD).filter(sent).count()).expect("small")
    };
    let sent = lab.hosts.b.ns.run(flood).expect("the namespace is there");
    let (queued, dropped) = udp_socket(&lab.hosts.a, ROCE_PORT);
    assert!(queued <= 2 * BUFFER + DATAGRAM_MAX, "{queued} bytes in the receive buffer");
    assert!(dropped > 0, "{sent} datagrams fit into {queued} bytes");
    server.signal(libc::SIGCONT);
    let report = client.wait().json();
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
    assert!(server.peak_kib() < PEAK_KIB, "{} KiB", server.peak_kib());
    let served = server.end_with(libc::SIGTERM).json();
    let count = |name: &str| served["counters"][name].as_u64().unwrap_or(0);
    let (delivered, overflow) = (count("drop_bth_too_short"), count("udp_rx_overflow"));
    let lost = dropped_frames(&lab.hosts.a) + dropped_frames(&lab.hosts.b);
    assert!(delivered > 0 && delivered <= sent, "{delivered} of {sent}: {served}");
    assert!(overflow >= dropped, "{overflow} of {dropped}: {served}");
    // Drops are counted with the next datagram, and the client's came after the flood.
    let reported = report["server_receive_overflows"].as_u64();
    assert!(reported >= Some(dropped) && reported <= Some(overflow), "{report}");
    assert!(delivered + overflow + lost >= sent, "of {sent} {lost} are lost: {served}");
}
