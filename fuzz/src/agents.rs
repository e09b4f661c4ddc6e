//! A switch with every agent, or with MLCC, which allows no other, and hostile frames: a forger who
//! knows the formats, all addresses and queue pairs, and any bytes.

use spanwire_base::{Dur, Node, PortId, Rate, RxMeta, Time};
use spanwire_switch::{
    AgentConfig, EcnAgentConfig, EcnConfig, EcnCpu, FlowsConfig, ForwardingConfig, Hop, MlccConfig,
    NdtConfig, NsfClock, NsfConfig, PaccConfig, PauseRound, PauseScope, PfcConfig, PortConfig,
    Prefix, QueueConfig, Route, Spread, Switch, SwitchConfig,
};
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, Headers, IntFormat, IntHop, IpRepr, MacAddr, Opcode,
    PfcFrame, Psn, Qpn, SrAckRepr, SrCredit, SrDataRepr, SrKind, UdpRepr, int_push,
    int_request_credit, seal,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Interprets `data` as a setup of two bytes and steps of eight, some of which take further bytes
/// as a frame or as changes of one.
///
/// # Panics
/// If the switch violates its contract: a frame is not accounted for, feedback exceeds an eighth of
/// what came in, a timer stays due, a queue is held for ever, or an agent's entry is.
pub fn run(data: &[u8]) {
    let [first, second, steps @ ..] = data else { return };
    let mut world = World::new([*first, *second]);
    let mut rest = steps;
    while let Some((step, behind)) = rest.split_first_chunk::<8>() {
        rest = world.step(*step, behind);
        world.check();
    }
    world.drain();
    world.check_forgotten();
}

struct World {
    switch: Switch,
    now: Time,
    out: Vec<u8>,
    seen_bytes: u64,
}

impl World {
    fn new([options, sizes]: [u8; 2]) -> Self {
        let is_set = |bit: u8| options >> bit & 1 != 0;
        let flows = 8 << (sizes & 3);
        let pacc = PaccConfig {
            ports: vec![1],
            threshold_bytes: 5_000,
            edge: is_set(0),
            every: is_set(1),
            carry: is_set(2),
            q_avg_every: is_set(3).then(|| Dur::from_us(9)),
            flows,
            ..PaccConfig::default()
        };
        let clock = if is_set(4) { NsfClock::Relative } else { NsfClock::Synced };
        let cool = u32::from(sizes >> 2 & 7);
        let nsf = NsfConfig { outside: vec![2], clock, cool, flows, ..NsfConfig::default() };
        let ndt = ndt(options, flows);
        let ecn = EcnAgentConfig {
            ports: vec![0],
            interval: is_set(7).then(|| Dur::from_us(3)),
            cpu: if is_set(0) { EcnCpu::Delay } else { EcnCpu::Zero },
            flows,
            ..EcnAgentConfig::default()
        };
        let marks = Some(EcnConfig::step(9_000));
        let queue = QueueConfig { limit_bytes: 40_000, ecn: marks, ..QueueConfig::default() };
        let pfc = is_set(5).then(|| PfcConfig { priorities: vec![0], ..PfcConfig::default() });
        let port = PortConfig { queues: vec![queue], pfc, ..PortConfig::new(Rate::from_gbps(100)) };
        let mut config = SwitchConfig::new(vec![port; PORTS.into()]);
        config.agents = vec![
            AgentConfig::Pacc(pacc),
            AgentConfig::Nsf(nsf),
            AgentConfig::Ndt(ndt),
            AgentConfig::Ecn(ecn),
        ];
        config.feedback_flows = 8 << (sizes >> 5 & 3);
        if sizes & MLCC != 0 {
            let (max_flows, quantum_bytes) = (flows, 2048);
            let shaped = FlowsConfig { max_flows, rate: None, limit_bytes: None, quantum_bytes };
            for port in &mut config.ports {
                port.int = true;
                port.queues[0].flows = Some(shaped);
            }
            let initial = is_set(0).then(|| Rate::from_gbps(10));
            let mlcc = MlccConfig { outside: vec![2], initial, flows, ..MlccConfig::default() };
            config.agents = vec![AgentConfig::Mlcc(mlcc)];
        }
        let route = |port: u8| {
            let via = vec![Hop::port(port)];
            let to = match port < PORTS {
                true => Prefix::new([10, 0, port, 0].into(), 24),
                false => Prefix::new(v6(port - PORTS, 0).into(), 112),
            };
            let via = if port < PORTS { via } else { vec![Hop::port(port - PORTS)] };
            Route { to: to.expect("a prefix"), via, spread: Spread::Hash }
        };
        // Otherwise the switch learns, and floods what it does not know.
        if !is_set(6) {
            config.forwarding = ForwardingConfig::routed((0..2 * PORTS).map(route).collect());
        }
        let switch = Switch::new(config).expect("valid");
        Self { switch, now: Time::ZERO, out: vec![0; 10_000], seen_bytes: 0 }
    }

    /// One step; returns what it left of the bytes behind it.
    fn step<'a>(&mut self, step: [u8; 8], behind: &'a [u8]) -> &'a [u8] {
        let [kind, ports, flow, psn, wait, trip, more, changes] = step;
        self.now += Dur::from_ns(u64::from(wait) * u64::from(wait));
        let (from, to) = (ports & 15, ports >> 4);
        match kind % 8 {
            0 => {
                let count = usize::from(more).min(behind.len());
                let (frame, rest) = behind.split_at(count);
                self.receive(from, frame);
                return rest;
            }
            1 => self.drive(from, usize::from(more)),
            2 => self.elapse(Dur::from_us(u64::from(more) * 8)),
            3 => {
                let mut pause = [0; PfcFrame::LEN];
                let quanta = [u16::from_be_bytes([more, trip]); 8];
                PfcFrame { enabled: psn, quanta }.emit(MacAddr::default(), &mut pause);
                self.receive(from, &pause);
            }
            4 => {
                let [source, dest] = [from, to].map(|port| address(port, flow, more & 1 != 0));
                self.switch.bind_flow(source, dest, Qpn::new(flow.into()), Qpn::new(psn.into()));
            }
            _ => {
                let wide = u32::from_be_bytes([more & 0xc0, 0, 0, psn]);
                let back = Dur::from_us(u64::from(trip));
                let mut frame =
                    forge(kind, [from, to], flow, wide, self.now.since(Time::ZERO + back));
                let count = usize::from(changes & 7).min(behind.len() / 2);
                let (pairs, rest) = behind.split_at(2 * count);
                for pair in pairs.chunks_exact(2) {
                    let at = usize::from(pair[0]) % frame.len();
                    frame[at] ^= pair[1];
                }
                self.receive(from, &frame);
                return rest;
            }
        }
        behind
    }

    fn receive(&mut self, from: u8, frame: &[u8]) {
        self.seen_bytes += u64::try_from(frame.len()).expect("short").max(60) + 24;
        self.switch.handle_packet(self.now, port(from), frame, &RxMeta::whole(self.now));
    }

    /// Sends at most so many frames of a port.
    fn drive(&mut self, from: u8, most: usize) {
        for _ in 0..most {
            if self.switch.poll_transmit(self.now, port(from), &mut self.out).is_none() {
                break;
            }
        }
    }

    /// Handles what is due in the next `time`.
    fn elapse(&mut self, time: Dur) {
        let until = self.now + time;
        let mut last = None;
        while let Some(due) = self.switch.poll_timeout().filter(|due| *due <= until) {
            // More feedback than fits a turn leaves the timer due, but not without end.
            let again = last.map_or(0, |(at, count)| if at == due { count + 1 } else { 0 });
            assert!(again < 10_000, "the timer of {due:?} stays due");
            last = Some((due, again));
            self.now = self.now.max(due);
            self.switch.handle_timeout(self.now);
        }
        self.now = until;
    }

    fn check(&self) {
        self.switch.check_accounts().expect("every frame is accounted for");
        let made: u64 = self.switch.counters().ports.iter().map(|port| port.agent_made).sum();
        assert!(made * FEEDBACK_BYTES * 8 <= self.seen_bytes * u64::from(PORTS), "{made} frames");
    }

    /// Everything leaves in the end: pauses and holds are finite.
    fn drain(&mut self) {
        for _ in 0..400 {
            (0..PORTS).for_each(|from| self.drive(from, usize::MAX));
            if self.switch.used_pkts() == 0 {
                return;
            }
            self.elapse(Dur::from_us(100));
        }
        panic!("{} frames stay", self.switch.used_pkts());
    }

    /// After a second of silence no flow is known, and nothing waits.
    fn check_forgotten(&mut self) {
        self.elapse(Dur::from_secs(1));
        for agent in self.switch.agents(self.now) {
            let left = agent.gauges.iter().find(|(name, n)| *n > 0 && !SETTINGS.contains(name));
            assert_eq!(left, None, "{}", agent.kind);
        }
    }
}

/// NDT at two ports, with the choices of its pauses by bits.
fn ndt(options: u8, flows: u32) -> NdtConfig {
    let is_set = |bit: u8| options >> bit & 1 != 0;
    NdtConfig {
        inside: vec![3, 4],
        flows,
        pause_scope: if is_set(0) { PauseScope::Port } else { PauseScope::Switch },
        pause_round: if is_set(1) { PauseRound::Held } else { PauseRound::Packet },
        pause_probe: is_set(2),
        ..NdtConfig::default()
    }
}

/// A frame of the transport, as one of its ends would send it.
fn forge(kind: u8, [from, to]: [u8; 2], flow: u8, psn: u32, sent: Dur) -> Vec<u8> {
    let is_v6 = kind & 0x40 != 0;
    let sr = SrDataRepr {
        sent_ps: sent.as_ps(),
        receive: Some(0),
        source_qpn: (kind & 0x20 == 0).then(|| Qpn::new(flow.into())),
        ..SrDataRepr::new(SrKind::Send, psn, 0)
    };
    let has_credit = kind & 0x10 != 0;
    let credit =
        SrCredit { credit: psn, rate_kbps: u32::from(flow) << 20, suggested_kbps: u32::from(kind) };
    let ack = SrAckRepr {
        credit: has_credit.then_some(credit),
        newest: psn,
        ack_delay_ns: u32::from(kind) << 5,
        rx_delay_ns: u32::from(flow),
        ..SrAckRepr::default()
    };
    // Half of the data are long, so that queues grow.
    let tail = if kind & 0x80 == 0 { 900 } else { 0 };
    let (opcode, len) = match kind % 8 {
        5 => (Opcode::SrData, sr.header_len() + tail),
        6 => (Opcode::SrAck, ack.header_len()),
        _ => (Opcode::RcSendOnly, tail),
    };
    let [source, dest] = [from, to].map(|port| address(port, flow, is_v6));
    let mut ip = IpRepr::new(source, dest).expect("of one version");
    ip.set_dscp_ecn(2);
    let headers = Headers {
        eth: EthernetRepr { dst: mac(to), src: mac(from), ethertype: 0 },
        ip,
        udp: UdpRepr::new(0xc000 | u16::from(flow)),
        bth: BthRepr::new(opcode, Qpn::new(flow.into()), Psn::new(psn)),
        ext: ExtHeaders::NONE,
    };
    let mut frame = vec![0; headers.frame_len(len)];
    headers.emit(&mut frame, len).expect("it fits");
    let payload = &mut frame[headers.header_len()..];
    match opcode {
        Opcode::SrData => sr.emit(payload).expect("it fits"),
        Opcode::SrAck => ack.emit(payload).expect("it fits"),
        _ => {}
    }
    let len = frame.len();
    seal(&mut frame, len);
    if has_credit && opcode == Opcode::SrData {
        ask_credit(&mut frame, flow);
    }
    frame
}

/// Appends telemetry of version 2, with the records of some switches.
fn ask_credit(frame: &mut Vec<u8>, flow: u8) {
    let len = frame.len();
    frame.resize(len + 500, 0);
    let format = if flow & 1 == 0 { IntFormat::Full } else { IntFormat::Compact };
    let end = int_request_credit(frame, len, flow & 15, format);
    let mut end = end.expect("there is room");
    for _ in 0..flow >> 4 {
        end = int_push(frame, end, 0, &IntHop::default()).unwrap_or(end);
    }
    frame.truncate(end);
}

/// The seed corpus: each agent with something to do.
///
/// # Panics
/// Never.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    // A long queue, and timers; late data; a round trip that is too long, and data behind it.
    let pacc = [vec![[7, 0x10, 1, 0, 1, 0, 0, 0]; 30], vec![[2, 0, 0, 0, 0, 0, 40, 0]]].concat();
    let nsf = vec![[5, 0x20, 1, 1, 80, 9, 0, 0]; 20];
    let trip =
        vec![[5, 0x30, 1, 1, 80, 0, 0, 0], [1, 3, 0, 0, 0, 0, 9, 0], [6, 0x03, 1, 1, 200, 0, 0, 0]];
    let ndt = [trip, vec![[5, 0x30, 1, 2, 1, 0, 0, 0]; 9], vec![[1, 3, 0, 0, 0, 0, 4, 0]]].concat();
    let ecn = [vec![[7, 0x02, 1, 0, 1, 0, 0, 0]; 30], vec![[2, 0, 0, 0, 0, 0, 99, 0]]].concat();
    // Data that come in, then their credit, and data that leave.
    let mlcc = [
        vec![[0x15, 0x02, 7, 1, 1, 9, 0, 0]; 20],
        vec![[0x16, 0x20, 7, 1, 1, 0, 0, 0]; 2],
        [[0x15, 0x20, 7, 1, 80, 9, 0, 0], [1, 2, 0, 0, 0, 0, 9, 0]].repeat(9),
    ];
    let seed = |(name, sizes, steps): (&str, u8, Vec<[u8; 8]>)| {
        (name.to_owned(), [&[7, sizes][..], steps.as_flattened()].concat())
    };
    [
        ("pacc", 4, pacc),
        ("nsf", 4, nsf),
        ("ndt", 4, ndt),
        ("ecn", 4, ecn),
        ("mlcc", 4 | MLCC, mlcc.concat()),
    ]
    .into_iter()
    .map(seed)
    .collect()
}

fn address(port: u8, flow: u8, is_v6: bool) -> IpAddr {
    match is_v6 {
        false => Ipv4Addr::new(10, 0, port, flow).into(),
        true => v6(port, flow).into(),
    }
}

fn v6(port: u8, flow: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, u16::from(port), u16::from(flow))
}

fn mac(port: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, port])
}

/// One of the switch's ports.
fn port(number: u8) -> PortId {
    PortId::new(number % PORTS).expect("few ports")
}

/// Ports of the switch: thresholds by LAECN, PACC, NSF, and two of NDT.
const PORTS: u8 = 5;
/// Bit of the sizes: the only agent is MLCC's.
const MLCC: u8 = 1 << 7;
/// Gauges that are settings.
const SETTINGS: [&str; 3] = ["kmin_bytes", "kmax_bytes", "pmax_ppm"];
/// The least bytes of a frame of feedback on the wire.
const FEEDBACK_BYTES: u64 = 74;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{random, regressions};

    fn counters(data: &[u8]) -> Vec<(&'static str, u64)> {
        let [first, second, steps @ ..] = data else { panic!("too short") };
        let mut world = World::new([*first, *second]);
        let mut rest = steps;
        while let Some((step, behind)) = rest.split_first_chunk::<8>() {
            rest = world.step(*step, behind);
            world.check();
        }
        let agents = world.switch.agents(world.now);
        agents.into_iter().flat_map(|agent| agent.counters).filter(|(_, n)| *n > 0).collect()
    }

    #[test]
    fn run__random_steps() {
        random(3_000, 3_000, run);
    }

    #[test]
    fn run__regressions() {
        regressions("agents", 1, run);
    }

    #[test]
    fn seeds__make_every_agent_act() {
        let seeds = seeds();
        for ((name, data), what) in seeds.iter().zip([
            "cnps_due",
            "pseudo_acks_due",
            "controlled_pkts",
            "decisions",
            "near_due",
        ]) {
            let all = counters(data);
            assert!(all.iter().any(|(counter, _)| *counter == what), "{name}: {all:?}");
            if name == "mlcc" {
                let has = |what| all.iter().any(|(counter, _)| *counter == what);
                assert!(["credits", "data_in_pkts", "feedback_tx"].into_iter().all(has), "{all:?}");
            }
            run(data);
        }
        assert_eq!(seeds.len(), 5);
    }
}
