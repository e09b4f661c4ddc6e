//! Packets of many flows through a switch.

use crate::sample::Error;
use spanwire_base::{Dur, Node, PortId, Rate, RxMeta, Time, u32_from, usize_from};
use spanwire_switch::{
    AgentConfig, FlowsConfig, ForwardingConfig, Hop, MlccConfig, NdtConfig, NsfConfig, PaccConfig,
    PortConfig, Prefix, QueueConfig, Route, Spread, Switch, SwitchConfig,
};
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, Headers, IntFormat, IpRepr, MacAddr, Opcode, Psn, Qpn,
    SrAckRepr, SrCredit, SrDataRepr, SrKind, UdpRepr, int_request_credit, seal,
};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

/// The kinds of agents; MLCC with data that come in, and with data that leave.
pub(super) const KINDS: [&str; 5] = ["pacc", "nsf", "ndt", "mlcc-in", "mlcc-out"];

/// An agent that has much to do: PACC with a queue above its threshold, NSF with some packets that
/// are late, NDT and MLCC with data and acknowledgements of all flows.
pub(super) fn agent(kind: &str, flows: u32) -> AgentConfig {
    match kind {
        "pacc" => AgentConfig::Pacc(PaccConfig {
            ports: vec![OUT],
            threshold_bytes: 20_000,
            flows,
            ..PaccConfig::default()
        }),
        "nsf" => AgentConfig::Nsf(NsfConfig { outside: vec![OUT], flows, ..NsfConfig::default() }),
        "ndt" => AgentConfig::Ndt(NdtConfig { inside: vec![OUT], flows, ..NdtConfig::default() }),
        _ => {
            let outside = vec![if kind == "mlcc-in" { 0 } else { OUT }];
            AgentConfig::Mlcc(MlccConfig { outside, flows, ..MlccConfig::default() })
        }
    }
}

/// SR data of many flows that come in by port 0 and leave by port 1 behind a standing queue, and an
/// acknowledgement the other way for every eighth.
pub(super) struct Work {
    switch: Switch,
    data: Vec<Vec<u8>>,
    acks: Vec<Vec<u8>>,
    out: Vec<u8>,
    now: Time,
    next: u64,
    passed: u64,
    left: u64,
}

impl Work {
    /// A switch with this agent, or none, and packets of so many flows, which ask for credit if
    /// `has_credit`.
    pub(super) fn new(
        agent: Option<AgentConfig>,
        flows: u32,
        has_credit: bool,
    ) -> Result<Self, Error> {
        let mut queue = QueueConfig { limit_bytes: 1 << 30, ..QueueConfig::default() };
        if has_credit {
            let max_flows = (2 * flows).clamp(8, 1 << 16);
            let (rate, limit_bytes, quantum_bytes) = (None, None, 2048);
            queue.flows = Some(FlowsConfig { max_flows, rate, limit_bytes, quantum_bytes });
        }
        let port = PortConfig {
            queues: vec![queue],
            int: has_credit,
            ..PortConfig::new(Rate::from_gbps(100))
        };
        let mut config = SwitchConfig::new(vec![port; 2]);
        config.buffer_bytes = 1 << 31;
        // Both directions of each, in sets that fill unevenly.
        config.feedback_flows = (4 * flows).next_power_of_two().clamp(8, 1 << 20);
        let route = |port: u8| -> Result<Route, Error> {
            let to = Prefix::new([10, port, 0, 0].into(), 16).ok_or("a prefix")?;
            Ok(Route { to, via: vec![Hop::port(port)], spread: Spread::Hash })
        };
        config.forwarding = ForwardingConfig::routed(vec![route(0)?, route(1)?]);
        config.agents = agent.into_iter().collect();
        let mut work = Self {
            switch: Switch::new(config)?,
            data: (0..flows).map(|flow| data(flow, has_credit)).collect::<Result<_, _>>()?,
            acks: (0..flows)
                .map(|flow| acknowledgement(flow, has_credit))
                .collect::<Result<_, _>>()?,
            out: vec![0; 2048],
            now: Time::ZERO + Dur::from_ms(1),
            next: 0,
            passed: 0,
            left: 0,
        };
        // The standing queue.
        (0..QUEUED).for_each(|_| work.arrive());
        work.pass(2 * u64::from(flows));
        (work.passed, work.left) = (0, 0);
        Ok(work)
    }

    /// Passes so many packets of data.
    pub(super) fn pass(&mut self, packets: u64) {
        for _ in 0..packets {
            self.arrive();
            if self.switch.poll_timeout().is_some_and(|due| due <= self.now) {
                self.switch.handle_timeout(self.now);
            }
            black_box(self.switch.poll_transmit(self.now, port(OUT), &mut self.out));
            while self.switch.poll_transmit(self.now, port(0), &mut self.out).is_some() {
                self.left += 1;
            }
        }
        self.passed += packets;
    }

    /// Frames of feedback for a packet of data.
    pub(super) fn feedback_per_packet(&self) -> f64 {
        let agents = self.switch.agents(self.now);
        let all = agents.iter().flat_map(|agent| &agent.counters);
        let made: u64 = all.filter(|(name, _)| *name == "feedback_tx").map(|(_, n)| n).sum();
        made as f64 / self.passed.max(1) as f64
    }

    /// The next packet of data, and perhaps an acknowledgement.
    fn arrive(&mut self) {
        let flows = self.data.len();
        let at = usize_from(self.next) % flows;
        let psn = u32_from(usize_from(self.next / flows as u64));
        let meta = RxMeta { elided_bytes: PAYLOAD, ..RxMeta::whole(self.now) };
        let data = &mut self.data[at];
        data[PSN..PSN + 3].copy_from_slice(&psn.to_be_bytes()[1..]);
        // Every sixty-fourth is late.
        let delay = Dur::from_us(if self.next % 64 == 63 { 6 } else { 4 });
        data[SENT..SENT + 8].copy_from_slice(&(self.now - delay).as_ps().to_be_bytes());
        self.switch.handle_packet(self.now, port(0), data, &meta);
        if self.next % 8 == 7 {
            let ack = &mut self.acks[at];
            ack[NEWEST..NEWEST + 4].copy_from_slice(&psn.saturating_sub(1).to_be_bytes());
            self.switch.handle_packet(self.now, port(OUT), ack, &RxMeta::whole(self.now));
        }
        self.next += 1;
        // 1 KiB at 100 Gbit/s.
        self.now += Dur::from_ns(90);
    }
}

/// SR data of a flow, without payload, from 10.0.0.0/16 to 10.1.0.0/16.
fn data(flow: u32, has_credit: bool) -> Result<Vec<u8>, Error> {
    let header = SrDataRepr {
        receive: Some(0),
        source_qpn: Some(Qpn::new(flow)),
        ..SrDataRepr::new(SrKind::Send, 0, 0)
    };
    let emit = |out: &mut [u8]| header.emit(out).is_ok();
    if !has_credit {
        return frame(flow, [0, 1], Opcode::SrData, header.header_len(), emit);
    }
    // Telemetry is behind the IP packet, whose length counts the elided payload.
    let payload = usize::try_from(PAYLOAD)?;
    let mut made = frame(flow, [0, 1], Opcode::SrData, header.header_len() + payload, emit)?;
    let len = made.len() - payload;
    made.truncate(len);
    made.resize(len + STACK, 0);
    int_request_credit(&mut made, len, 6, IntFormat::Compact).ok_or("no room for telemetry")?;
    Ok(made)
}

fn acknowledgement(flow: u32, has_credit: bool) -> Result<Vec<u8>, Error> {
    let credit = SrCredit { credit: 1, rate_kbps: 100_000_000, suggested_kbps: 1 };
    let header = SrAckRepr { credit: has_credit.then_some(credit), ..SrAckRepr::default() };
    frame(flow, [1, 0], Opcode::SrAck, header.header_len(), |out| header.emit(out).is_ok())
}

fn frame(
    flow: u32,
    [from, to]: [u8; 2],
    opcode: Opcode,
    header: usize,
    emit: impl FnOnce(&mut [u8]) -> bool,
) -> Result<Vec<u8>, Error> {
    // Sixty-four hosts on one side: PACC's flows are pairs of addresses.
    let address = |side: u8| {
        let host = if side == 0 { flow % 64 } else { flow / 64 };
        let [_, _, high, low] = host.to_be_bytes();
        IpAddr::from(Ipv4Addr::new(10, side, high, low))
    };
    let mut ip = IpRepr::new(address(from), address(to)).ok_or("addresses of one version")?;
    ip.set_dscp_ecn(2);
    let headers = Headers {
        eth: EthernetRepr {
            dst: MacAddr([2, 0, 0, 0, 0, 1]),
            src: MacAddr([2, 0, 0, 0, 0, 2]),
            ethertype: 0,
        },
        ip,
        udp: UdpRepr::new(0xc000 | u16::try_from(flow & 0x3fff)?),
        bth: BthRepr::new(opcode, Qpn::new(flow), Psn::new(0)),
        ext: ExtHeaders::NONE,
    };
    let mut frame = vec![0; headers.frame_len(header)];
    headers.emit(&mut frame, header)?;
    if !emit(&mut frame[headers.header_len()..]) {
        return Err("a header that does not fit".into());
    }
    let len = frame.len();
    seal(&mut frame, len);
    Ok(frame)
}

fn port(number: u8) -> PortId {
    PortId::new(number).expect("two ports")
}

/// The port of the agents.
const OUT: u8 = 1;
/// Packets of the standing queue.
const QUEUED: u32 = 64;
const PAYLOAD: u32 = 1024;
/// The PSN in an IPv4 frame, and `newest` in an acknowledgement.
const PSN: usize = 51;
const NEWEST: usize = 58;
/// Bytes of an empty stack that asks for credit.
const STACK: usize = 16;
/// The time sent in SR data.
const SENT: usize = 62;
