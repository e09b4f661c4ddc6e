//! Cost of a hop: nanoseconds for a frame into a switch, out of it and into a line.
//!
//! `cargo run --release -p spanwire-switch --example hop`; no arguments. Each figure is the best of
//! five runs over two million frames, in CPU time: other load on the machine can only increase it.

use spanwire_base::{Dur, Node, PortId, Rate, RxMeta, Time};
use spanwire_switch::{
    EcnConfig, ForwardingConfig, Hop, Human, Impairments, Line, LineConfig, PfcConfig,
    PhantomConfig, PortConfig, Prefix, Prob, QueueConfig, Ratio, Route, Shaped, ShapedConfig,
    Spread, Switch, SwitchConfig,
};
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, Headers, IntFormat, IpRepr, MacAddr, Opcode, Psn, Qpn,
    UdpRepr, int_request, seal,
};

const PORTS: u8 = 16;
const FRAMES: u32 = 2_000_000;
/// Frames queued at a time.
const DEPTH: u32 = 32;

fn main() {
    let rate = Rate::from_gbps(100);
    let fifo = PortConfig::new(rate);
    report("fifo, elided 62 bytes", &mut switch(&fifo), frame(0, false), 4_096);
    report("fifo, whole 1562 bytes", &mut switch(&fifo), frame(1_500, false), 0);
    let red = QueueConfig {
        ecn: Some(EcnConfig::red(100_000, 400_000, Prob::from_ppm(200_000))),
        ..QueueConfig::default()
    };
    let ecn = PortConfig { queues: vec![red], ..fifo.clone() };
    report("red", &mut switch(&ecn), frame(0, false), 4_096);
    let phantom = QueueConfig { phantom: Some(phantom()), ..QueueConfig::default() };
    let phantom = PortConfig { queues: vec![phantom], ..fifo.clone() };
    report("phantom", &mut switch(&phantom), frame(0, false), 4_096);
    let lossless = PfcConfig { priorities: vec![0], ..PfcConfig::default() };
    let pfc = PortConfig { pfc: Some(lossless), ..ecn.clone() };
    report("red, lossless", &mut switch(&pfc), frame(0, false), 4_096);
    let int = PortConfig { int: true, ..pfc };
    report("red, lossless, telemetry", &mut switch(&int), frame(0, true), 4_096);
    let queues = vec![red; 8];
    let class_to_queue = [0, 1, 2, 3, 4, 5, 6, 7];
    let eight = PortConfig { queues, class_to_queue, ..fifo };
    report("red, eight queues", &mut switch(&eight), frame(0, false), 4_096);
    report_shaped("shaped, 4 ports, 1562 bytes");
    let perfect = LineConfig::new(rate, Dur::from_us(1));
    report_line("line, perfect", perfect.clone());
    let loss = Prob::from_ppm(10_000);
    let impairments = Impairments { loss, jitter: Dur::from_us(1), ..Impairments::default() };
    report_line("line, loss and jitter", LineConfig { impairments, ..perfect });
}

/// CPU time of this thread in nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let first = text.split(' ').next().expect("three numbers");
    first.parse().expect("the first of them is in nanoseconds")
}

/// Sixteen ports; 128 hosts behind fifteen of them, half by ECMP over four.
fn switch(port: &PortConfig) -> Switch {
    let route = |n: u8| Route {
        to: Prefix::parse(&format!("10.0.0.{n}/32")).expect("an address"),
        via: if n < 64 {
            vec![Hop::port(1 + n % (PORTS - 1))]
        } else {
            (12..16).map(Hop::port).collect()
        },
        spread: Spread::Hash,
    };
    let mut config = SwitchConfig::new(vec![port.clone(); usize::from(PORTS)]);
    config.forwarding = ForwardingConfig::routed((0..128).map(route).collect());
    Switch::new(config).expect("a valid configuration")
}

fn phantom() -> PhantomConfig {
    PhantomConfig {
        drain: Ratio::new(10, 11).expect("small"),
        size_bytes: 22_400_515,
        kmin_bytes: 448_010,
        kmax_bytes: 13_440_309,
        pmax: Prob::ONE,
        with_physical: false,
    }
}

fn frame(payload: usize, asks_for_telemetry: bool) -> Vec<u8> {
    let mut ip = IpRepr::new([10, 0, 0, 200].into(), [10, 0, 0, 1].into()).expect("IPv4");
    ip.set_dscp_ecn(2);
    let headers = Headers {
        eth: EthernetRepr { dst: MacAddr([2; 6]), src: MacAddr([4; 6]), ethertype: 0 },
        ip,
        udp: UdpRepr::new(0xc000),
        bth: BthRepr::new(Opcode::RcWriteMiddle, Qpn::new(5), Psn::new(6)),
        ext: ExtHeaders::NONE,
    };
    let len = headers.frame_len(payload);
    let mut frame = vec![0; len + 8];
    headers.emit(&mut frame, payload).expect("it fits");
    if payload == 0 {
        // Elided: the lengths count 4096 bytes that are not present.
        frame[16..18].copy_from_slice(&4_144u16.to_be_bytes());
        frame[38..40].copy_from_slice(&4_124u16.to_be_bytes());
        let (ip, checksum) = (&frame[14..34], 24);
        let words = ip.chunks(2).enumerate().filter(|(i, _)| *i != 5);
        let sum: u32 = words.map(|(_, w)| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded");
        frame[checksum..checksum + 2].copy_from_slice(&(!sum).to_be_bytes());
    }
    seal(&mut frame, len);
    let len = if asks_for_telemetry {
        int_request(&mut frame, len, 5, IntFormat::Full).expect("there is room")
    } else {
        len
    };
    frame.truncate(len);
    frame
}

fn report(name: &str, switch: &mut Switch, mut frame: Vec<u8>, elided_bytes: u32) {
    let mut out = [0; 2_048];
    let mut best = u64::MAX;
    let mut now = Time::ZERO;
    for _ in 0..5 {
        let start = cpu_ns();
        for round in 0..FRAMES / DEPTH {
            for i in 0..DEPTH {
                // Another host and flow each time; the checksum follows the address.
                let host = u16::try_from((round + i) % 128).expect("small");
                let was = u16::from(frame[33]);
                frame[33] = u8::try_from(host).expect("small");
                let sum = u16::from_be_bytes([frame[24], frame[25]]);
                frame[24..26].copy_from_slice(&checksum(sum, was, host).to_be_bytes());
                frame[35] = frame[35].wrapping_add(1);
                now += Dur::from_ps(20_000);
                switch.handle_packet(
                    now,
                    PortId::HOST,
                    &frame,
                    &RxMeta { elided_bytes, ..RxMeta::whole(now) },
                );
            }
            let mut ready = switch.take_ready();
            while let Some(port) = ready.pop() {
                while switch.poll_transmit(now, port, &mut out).is_some() {}
            }
        }
        best = best.min(cpu_ns() - start);
    }
    let c = switch.counters();
    let sent: u64 = c.ports.iter().map(|p| p.tx_pkts).sum();
    assert_eq!(sent, u64::from(FRAMES / DEPTH * DEPTH) * 5, "all of them: {c:?}");
    println!("{name:28} {:4} ns a frame in and out", best / u64::from(FRAMES));
}

fn checksum(sum: u16, was: u16, is: u16) -> u16 {
    let sum = u32::from(!sum) + u32::from(!was) + u32::from(is);
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded")
}

/// A learning switch of four ports, 10 Gbit/s and 1 ms each, driven every 32 frames.
fn report_shaped(name: &str) {
    let ports = vec![PortConfig::default(); 4];
    let line = LineConfig::new(Rate::from_gbps(10), Dur::from_ms(1));
    let lines = vec![line; 4];
    let switch = SwitchConfig::new(ports);
    let config = ShapedConfig { switch, lines, budget_bytes: 64_000_000 };
    let mut shaped = Shaped::new(config).expect("a valid configuration");
    let frame = frame(1_500, false);
    let mut back = frame.clone();
    back[..6].copy_from_slice(&frame[6..12]);
    back[6..12].copy_from_slice(&frame[..6]);
    let one = PortId::new(1).expect("a port");
    shaped.handle_packet(Time::ZERO, one, &back, &RxMeta::whole(Time::ZERO));
    let mut out = [0; 2_048];
    let mut best = u64::MAX;
    let mut now = Time::ZERO;
    let (mut sent, mut got) = (0, 0);
    for _ in 0..5 {
        let start = cpu_ns();
        for _ in 0..FRAMES / 8 / DEPTH {
            for _ in 0..DEPTH {
                // 1562 bytes and overhead take 1269 ns: a little below the line's rate.
                now += Dur::from_ns(1_300);
                shaped.handle_packet(now, PortId::HOST, &frame, &RxMeta::whole(now));
                sent += 1;
            }
            shaped.handle_timeout(now);
            let mut ready = shaped.take_ready();
            while let Some(port) = ready.pop() {
                while shaped.poll_transmit(now, port, &mut out).is_some() {
                    got += 1;
                }
            }
        }
        best = best.min(cpu_ns() - start);
    }
    assert!(got + 2_000 > sent, "{got} of {sent}: {:?}", shaped.counters());
    println!("{name:28} {:4} ns a frame in and out", best / u64::from(FRAMES / 8));
}

fn report_line(name: &str, config: LineConfig) {
    let mut line = Line::new(config, 1).expect("a valid configuration");
    let mut frame = frame(0, false);
    let mut best = u64::MAX;
    for _ in 0..5 {
        let start = cpu_ns();
        for _ in 0..FRAMES {
            let sent = line.send(line.free_at(), &mut frame, 4_096);
            assert!(!sent.fates.is_empty());
        }
        best = best.min(cpu_ns() - start);
    }
    println!("{name:28} {:4} ns a frame", best / u64::from(FRAMES));
}
