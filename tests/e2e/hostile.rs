//! A third party on the path of a running transfer. It reads the exchange of keys, then sends both
//! ends broken, forged, misplaced and unsolicited packets. The only effect must be on named
//! counters.
//!
//! Each attack runs over AF_XDP and over UDP sockets. Over sockets the kernel discards frames whose
//! outer headers are wrong, and its counters have them.
//!
//! Packets at the expected PSN are not sent: RoCE authenticates no packet, so these count as the
//! peer's (docs/PROTOCOL.md, "Security").

mod floods;
mod forge;
mod sr;

use super::lab::{HANG, Lab, dropped_frames, kernel_counters};
use forge::{ACK, Attack, BTH, Counter, Forge, counted, discarded, wrong_udp_checksum};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use spanwire_base::{Time, TxMeta};
use spanwire_host::fabric::FabricChoice;
use spanwire_io::net::Host;
use spanwire_io::packet::PacketPort;
use spanwire_io::port::Port;
use spanwire_wire::{
    AethRepr, AtomicAckEthRepr, AtomicEthRepr, ExtHeaders, NakCode, Opcode, Psn, Qpn, RethRepr,
    Syndrome,
};
use std::collections::BTreeMap;
use std::io::Read;

/// Number of times that each packet is sent, spread over the transfer.
const ROUNDS: u64 = 8;

#[test]
fn hostile__a_transfer_under_attack_ends_right_and_each_attack_is_counted() {
    under_attack(FabricChoice::Xdp, "rc", |n, lab| (n.against_server(lab), n.against_client(lab)));
}

#[test]
fn hostile__a_transfer_under_attack_ends_right_and_each_attack_is_counted_over_udp() {
    under_attack(FabricChoice::Udp, "rc", |n, lab| (n.against_server(lab), n.against_client(lab)));
}

#[test]
fn hostile__bit_errors_are_detected_over_both_fabrics() {
    for fabric in [FabricChoice::Xdp, FabricChoice::Udp] {
        let Some(lab) = Lab::over(fabric) else { return };
        let bad = ["--corrupt", "1", "--seed", "3"];
        let runs = [("rc", "write"), ("sr", "write"), ("sr", "read"), ("rc", "send")];
        for (to, (mode, op)) in
            [lab.v4(), lab.v6()].into_iter().flat_map(|to| runs.map(|r| (to, r)))
        {
            let server = lab.json_server(&[&bad[..], &["--one-off"]].concat());
            let job = ["--transfer", "4M", "--size", "64K", "--mode", mode, "--op", op, "--json"];
            let report = lab.client(to, &[&job[..], &bad].concat()).json();
            let served = server.wait().json();
            let what = format!("{} {to} {mode} {op}: {report}, {served}", fabric.as_str());
            assert_eq!(report["transfer"]["sha256_match"], true, "{what}");
            let of = |report: &Value, name: &str| report["counters"][name].as_u64().unwrap_or(0);
            let sum = |name: &str| of(&report, name) + of(&served, name);
            let detected = sum("drop_bad_icrc");
            assert!(detected > 0 && sum("fault_corrupted") >= detected, "{what}");
        }
    }
}

/// Attacks on the server, and on the client.
type Attacks = (Vec<Attack>, Vec<Attack>);

/// Arguments of a transfer of at least four seconds, because no client exceeds this rate: it lasts
/// longer than an attack. Its window fits into the rings of a host beside the frames that an attack
/// sends at once. On one core it sends in order also over UDP sockets: packets of two cores wait in
/// two queues of the kernel.
const SLOW: [&str; 17] = [
    "--transfer",
    "32M",
    "--size",
    "64K",
    "--cc",
    "fixed",
    "--cc-set",
    "rate_mbps=50",
    "--window",
    "64",
    "--timeout",
    "16",
    "--json",
    "-i",
    "0",
    "--core",
    "0",
];

/// Progress of the transfer between two parts of an attack, in bytes.
const PROGRESS: u64 = 32 << 10;

/// Runs a transfer in this wire mode over that fabric while the third party attacks both ends.
fn under_attack(fabric: FabricChoice, mode: &str, attacks: impl Fn(&Numbers, &Lab) -> Attacks) {
    let Some(lab) = Lab::over(fabric) else { return };
    let server = lab.json_server(&[]);
    let mut tap = Tap::new(&lab.hosts.b);
    let mut client = lab.start_client(lab.v4(), &[&SLOW[..], &["--mode", mode]].concat());
    let numbers = tap.capture_numbers();

    let (to_server, to_client) = attacks(&numbers, &lab);
    let before = [&lab.hosts.a, &lab.hosts.b].map(kernel_counters);
    let mut from_b = Injector::new(&lab.hosts.b);
    let mut from_a = Injector::new(&lab.hosts.a);
    for _ in 0..ROUNDS {
        for attack in &to_server {
            from_b.send(&attack.frame);
        }
        for attack in &to_client {
            from_a.send(&attack.frame);
        }
        lab.await_traffic(PROGRESS);
    }
    assert!(client.is_running(), "the transfer ended before the attack did");

    let outcome = client.wait();
    let report = outcome.json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["transfer"]["sha256_match"], true);
    let served = server.end_with(libc::SIGTERM);
    assert!(served.success, "{}", served.stderr);
    let served: Value = serde_json::from_str(&served.stdout).expect("one line per job");
    assert_eq!(served["complete"], true, "{served}");
    let lost = lost(&lab, [&served, &report]);
    let [a, b] = [&lab.hosts.a, &lab.hosts.b].map(kernel_counters);
    let [before_a, before_b] = before;
    let counts = [
        Counts { ours: &served["counters"], before: before_a, after: a },
        Counts { ours: &report["counters"], before: before_b, after: b },
    ];
    check("server", &counts[0], fabric, &to_server, lost);
    check("client", &counts[1], fabric, &to_client, lost);
}

/// The counters of an end: those of its report, and those of its kernel before and after.
struct Counts<'a> {
    ours: &'a Value,
    before: BTreeMap<String, u64>,
    after: BTreeMap<String, u64>,
}

impl Counts<'_> {
    fn of(&self, counter: Counter) -> u64 {
        match counter {
            Counter::Ours(name) => self.ours[name].as_u64().unwrap_or(0),
            Counter::Kernel(name) => self.after[name] - self.before[name],
        }
    }
}

/// An upper bound of the frames that were lost between the hosts of a lab, by the counters of the
/// interfaces and of the sockets in both reports: a frame may be counted twice.
fn lost(lab: &Lab, reports: [&Value; 2]) -> u64 {
    let names = [
        "xdp_kernel_rx_dropped",
        "xdp_kernel_rx_ring_full",
        "xdp_kernel_fill_empty",
        "xdp_tx_busy_drops",
        "udp_rx_overflow",
        "udp_rx_truncated",
        "udp_rx_malformed",
        "udp_rx_too_long",
        "udp_tx_too_long",
        "udp_tx_no_memory",
        "udp_tx_rejected",
        "udp_tx_no_source",
    ];
    let of = |report: &Value| -> u64 {
        names.iter().filter_map(|name| report["counters"][name].as_u64()).sum()
    };
    let interfaces = dropped_frames(&lab.hosts.a) + dropped_frames(&lab.hosts.b);
    interfaces + reports.into_iter().map(of).sum::<u64>()
}

/// Checks that every attack is counted by its counter, at most as often as it was sent, and has no
/// other effect. `lost` frames were lost.
fn check(side: &str, counts: &Counts, fabric: FabricChoice, attacks: &[Attack], lost: u64) {
    let ours = counts.ours;
    for attack in attacks {
        let counter = attack.counter(fabric);
        let made = attacks.iter().filter(|a| a.counter(fabric) == counter).count();
        let most = ROUNDS * u64::try_from(made).expect("a few");
        let counted = counts.of(counter);
        assert!(counted > 0, "{side}: {} is not counted as {counter:?}: {ours}", attack.name);
        // The peer also causes these: it acknowledges each old packet; and a lost packet is a gap,
        // whose NAK may arrive with nothing outstanding. A NAK for each packet after a gap would be
        // a storm, though. The kernel counts a full receive buffer like a wrong datagram.
        let natural = match counter {
            Counter::Ours("duplicate_request" | "drop_stale_response") => u64::MAX,
            Counter::Ours("out_of_sequence" | "drop_response_beyond_sent") => lost,
            Counter::Kernel("Udp InErrors") => lost,
            _ => 0,
        };
        assert!(counted <= most.saturating_add(natural), "{side}: {counter:?} {counted}: {ours}");
    }
    for harm in ["tx_fatal_naks", "req_cqe_error", "resp_cqe_error", "flushed", "cq_overrun"] {
        assert_eq!(counts.of(Counter::Ours(harm)), 0, "{side}: {harm} in {ours}");
    }
}

/// Captures frames on a host's interface.
struct Tap {
    socket: Socket,
}

/// The parameters that the exchange of keys reveals.
struct Numbers {
    server_qpn: Qpn,
    client_qpn: Qpn,
    /// The first PSN of the client, and of the server.
    client_psn: u32,
    server_psn: u32,
    va: u64,
    len: u64,
    rkey: u32,
}

impl Tap {
    fn new(host: &Host) -> Self {
        let every_protocol = Protocol::from(i32::from(3_u16.to_be()));
        let socket = host.ns.run(|| Socket::new(Domain::PACKET, Type::RAW, Some(every_protocol)));
        let socket = socket.expect("the namespace is there").expect("root may capture");
        socket.set_read_timeout(Some(HANG)).expect("a socket can wait");
        Self { socket }
    }

    fn capture_numbers(&mut self) -> Numbers {
        let (mut request, mut accept) = (Value::Null, Value::Null);
        let mut frame = vec![0; 1 << 16];
        while request.is_null() || accept.is_null() {
            let len = self.socket.read(&mut frame).expect("the exchange is visible");
            for (kind, found) in [("request", &mut request), ("accept", &mut accept)] {
                if let Some(line) = line_of(&frame[..len], kind) {
                    *found = serde_json::from_slice(line).expect("a line of JSON");
                }
            }
        }
        let number = |v: &Value| v.as_u64().expect("a number");
        let small = |v: &Value| u32::try_from(number(v)).expect("32 bits");
        let (ours, theirs, memory) = (&request["qps"][0], &accept["qps"][0], &accept["memory"]);
        Numbers {
            server_qpn: Qpn::new(small(&theirs["qpn"])),
            client_qpn: Qpn::new(small(&ours["qpn"])),
            client_psn: small(&ours["psn"]),
            server_psn: small(&theirs["psn"]),
            va: number(&memory["va"]),
            len: number(&memory["len"]),
            rkey: small(&memory["rkey"]),
        }
    }
}

/// The message of that type in a frame, without its line end.
fn line_of<'a>(frame: &'a [u8], kind: &str) -> Option<&'a [u8]> {
    let begin = format!("{{\"type\":\"{kind}\"");
    let at = frame.windows(begin.len()).position(|w| w == begin.as_bytes())?;
    frame[at..].split(|b| *b == b'\n').next()
}

/// Sends arbitrary frames from a host's interface.
struct Injector {
    port: PacketPort,
}

impl Injector {
    fn new(host: &Host) -> Self {
        let port = host.ns.run(|| PacketPort::open("sw0")).expect("the namespace is there");
        Self { port: port.expect("root may send any frame") }
    }

    fn send(&mut self, frame: &[u8]) {
        let slot = self.port.slot_take().expect("the queue was flushed");
        self.port.slot_bytes(&slot)[..frame.len()].copy_from_slice(frame);
        self.port.slot_commit(slot, TxMeta::whole(frame.len()));
        self.port.flush(Time::ZERO).expect("the interface is there");
    }
}

impl Numbers {
    /// The client sends at most 2^20 packets from `client_psn` on. This PSN is before all of them,
    /// `future` is after them, and both are always within half of the PSN space.
    fn past(&self) -> Psn {
        Psn::new(self.client_psn).minus(1000)
    }

    fn future(&self) -> Psn {
        Psn::new(self.client_psn).plus(3 << 20)
    }

    fn against_server(&self, lab: &Lab) -> Vec<Attack> {
        let forge = Forge::new(&lab.hosts.b, &lab.hosts.a, self.server_qpn);
        let mut attacks = self.broken(&forge);
        attacks.extend(self.misplaced(&forge));
        attacks.extend(self.requests(&forge));
        let past = self.past();
        let right = forge.packet(Opcode::RcSendOnly, past, ExtHeaders::NONE, 64);
        for len in 42..right.len() {
            let cut = counted("cut short", right[..len].to_vec(), "drop_ip_too_short");
            attacks.push(cut.or_kernel("IpExt InTruncatedPkts"));
        }
        attacks.extend((14..42).map(|len| {
            let counter = if len < 34 { "Ip InHdrErrors" } else { "IpExt InTruncatedPkts" };
            discarded("cut in the outer headers", right[..len].to_vec(), counter)
        }));
        attacks
    }

    fn broken(&self, forge: &Forge) -> Vec<Attack> {
        let resealed_with = |change: fn(&mut Vec<u8>)| forge.resealed_with(self.past(), change);
        let mut icrc = resealed_with(|_| {});
        icrc[BTH + 30] ^= 1;
        let mut checksum = resealed_with(|_| {});
        checksum[24] ^= 1;
        let left_to_the_kernel = [
            ("a first fragment", resealed_with(|f| f[20] = 0x20), "Ip ReasmReqds"),
            ("a later fragment", resealed_with(|f| f[21] = 0x10), "Ip ReasmReqds"),
            ("IP options", resealed_with(|f| f[14] = 0x46), "Ip InHdrErrors"),
            ("TCP", resealed_with(|f| f[23] = 6), "Tcp InErrs"),
            ("another port", resealed_with(|f| f[37] = 0xb8), "Udp NoPorts"),
        ];
        let left_to_the_kernel =
            left_to_the_kernel.map(|(name, frame, counter)| discarded(name, frame, counter));
        let total = resealed_with(|f| f[16..18].copy_from_slice(&[0, 10]));
        let outer = [
            // The kernel ignores the flag, which the ICRC covers and a socket hides.
            counted("the reserved IP flag", resealed_with(|f| f[20] = 0x80), "drop_ip_fragment")
                .or_counted("drop_bad_icrc"),
            counted("IP checksum", checksum, "drop_bad_ip_checksum").or_kernel("Ip InHdrErrors"),
            counted("total length 10", total, "drop_bad_ip_length").or_kernel("Ip InHdrErrors"),
            counted("UDP length", resealed_with(|f| f[39] ^= 1), "drop_bad_udp_length")
                .or_kernel("Udp InErrors"),
        ];
        let ours = [
            ("half a BTH", forge.datagram(&[0; 10]), "drop_bth_too_short"),
            ("garbage", forge.datagram(&[0xff; 300]), "drop_bad_tver"),
            ("version 1", resealed_with(|f| f[BTH + 1] |= 1), "drop_bad_tver"),
            ("an unknown opcode", resealed_with(|f| f[BTH] = 0xff), "drop_unknown_opcode"),
            ("an XRC opcode", resealed_with(|f| f[BTH] = 0xa4), "drop_unknown_opcode"),
            (
                "no RETH",
                forge.datagram(&[0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                "drop_ext_too_short",
            ),
            (
                "a pad of nothing",
                forge.datagram(&[4, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                "drop_bad_pad",
            ),
            ("an ACK with payload", resealed_with(|f| f[BTH] = 0x11), "drop_unexpected_payload"),
            ("ICRC", icrc, "drop_bad_icrc"),
        ];
        let ours = ours.map(|(name, frame, counter)| counted(name, frame, counter));
        left_to_the_kernel.into_iter().chain(outer).chain(ours).collect()
    }

    fn misplaced(&self, forge: &Forge) -> Vec<Attack> {
        let past = self.past();
        let resealed_with = |change: fn(&mut Vec<u8>)| forge.resealed_with(past, change);
        // Over AF_XDP a wrong UDP checksum is ignored: the ICRC decides, and the PSN.
        let mut udp_checksum = self.ack(forge, Psn::new(self.server_psn).plus(9), ACK);
        let wrong = wrong_udp_checksum(&udp_checksum);
        udp_checksum[40..42].copy_from_slice(&wrong);
        let name = "an ACK of nothing, wrong UDP checksum";
        let udp_checksum = counted(name, udp_checksum, "drop_response_beyond_sent");
        let rows = [
            (
                "the management QP",
                resealed_with(|f| f[BTH + 5..BTH + 8].copy_from_slice(&[0, 0, 1])),
                "drop_unknown_qpn",
            ),
            ("a CNP", forge.packet(Opcode::Cnp, past, ExtHeaders::NONE, 0), "rp_cnp_handled"),
        ];
        let rows = rows.map(|(name, frame, counter)| counted(name, frame, counter));
        let mut attacks = forge.misplaced(&resealed_with(|_| {}), past);
        attacks.push(udp_checksum.or_kernel("Udp InErrors"));
        attacks.extend(rows);
        attacks
    }

    /// Ranges of the server's memory: name, address, rkey.
    fn targets(&self) -> [(&'static str, u64, u32); 5] {
        [
            ("a bad rkey", self.va, self.rkey ^ 1),
            ("out of bounds", self.va + self.len, self.rkey),
            ("across the end", self.va + self.len - 63, self.rkey),
            ("a wrapping address", u64::MAX - 10, self.rkey),
            ("a right address", self.va, self.rkey),
        ]
    }

    /// Requests for memory, before and after the expected PSN.
    fn requests(&self, forge: &Forge) -> Vec<Attack> {
        let mut attacks = Vec::new();
        for (name, va, rkey) in self.targets() {
            let reth = Some(RethRepr { va, rkey, dma_len: 64 });
            let reth = ExtHeaders { reth, ..ExtHeaders::NONE };
            let atomic = AtomicEthRepr { va, rkey, swap_or_add: 1, compare: 0 };
            let atomic = ExtHeaders { atomic: Some(atomic), ..ExtHeaders::NONE };
            let past = self.past();
            let write = forge.packet(Opcode::RcWriteOnly, past, reth, 64);
            let read = forge.packet(Opcode::RcReadRequest, past, reth, 0);
            let add = forge.packet(Opcode::RcFetchAdd, past, atomic, 0);
            let early = forge.packet(Opcode::RcWriteOnly, self.future(), reth, 64);
            attacks.push(counted(name, write, "duplicate_request"));
            attacks.push(counted(name, read, "drop_duplicate_read_forgotten"));
            attacks.push(counted(name, add, "drop_duplicate_atomic_forgotten"));
            attacks.push(counted(name, early, "drop_beyond_psn_limit"));
        }
        attacks
    }

    /// Responses that the client did not request.
    fn against_client(&self, lab: &Lab) -> Vec<Attack> {
        let forge = Forge::new(&lab.hosts.a, &lab.hosts.b, self.client_qpn);
        let (past, beyond) = (self.past(), self.future());
        let aeth = Some(AethRepr { syndrome: ACK, msn: 1 });
        let read = ExtHeaders { aeth, ..ExtHeaders::NONE };
        let atomic_ack = Some(AtomicAckEthRepr { original: 1 });
        let atomic = ExtHeaders { atomic_ack, ..read };
        let mut attacks = self.broken(&forge);
        let fatal = Syndrome::Nak(NakCode::RemoteAccess);
        for syndrome in
            [ACK, fatal, Syndrome::RnrNak { timer: 0 }, Syndrome::Nak(NakCode::SequenceError)]
        {
            let (old, forged) =
                (self.ack(&forge, past, syndrome), self.ack(&forge, beyond, syndrome));
            attacks.push(counted("an old answer", old, "drop_stale_response"));
            attacks.push(counted("an answer beyond", forged, "drop_response_beyond_sent"));
        }
        for (psn, counter) in [(past, "drop_stale_response"), (beyond, "drop_response_beyond_sent")]
        {
            let response = forge.packet(Opcode::RcReadResponseOnly, psn, read, 64);
            attacks.push(counted("a READ response", response, counter));
            let response = forge.packet(Opcode::RcAtomicAck, psn, atomic, 0);
            attacks.push(counted("an atomic's answer", response, counter));
        }
        attacks
    }

    fn ack(&self, forge: &Forge, psn: Psn, syndrome: Syndrome) -> Vec<u8> {
        let aeth = Some(AethRepr { syndrome, msn: 1 });
        forge.packet(Opcode::RcAck, psn, ExtHeaders { aeth, ..ExtHeaders::NONE }, 0)
    }
}
