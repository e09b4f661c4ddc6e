//! Tables of agents after hostile traffic: no entry stays.

use super::*;
use crate::agent::ecn::config::EcnAgentConfig;
use crate::agent::mlcc::config::MlccConfig;
use crate::agent::ndt::config::NdtConfig;
use crate::agent::nsf::config::NsfClock;
use crate::config::{EcnConfig, FlowsConfig, QueueConfig, StaticMac};
use proptest::prelude::*;
use spanwire_base::Rate;
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, Headers, IntFormat, IpRepr, MacAddr, Psn, SrAckRepr,
    SrCredit, UdpRepr, int_request_credit, seal,
};

/// The ports lead to 10.0.n.0/24: one has LAECN, one PACC, one NSF, and two NDT.
const PORTS: u8 = 5;
/// The port that leads outside, of NSF and of MLCC.
const OUTSIDE: u8 = 2;
/// Honest flows of each direction.
const HONEST: u8 = 40;

/// Packets of a forger, who knows every address and queue pair.
#[derive(Clone, Copy, Debug)]
struct Burst {
    opcode: u8,
    ingress: u8,
    /// The port of the destination's MAC address, by which only the switch with MLCC forwards.
    towards: u8,
    /// Ports of the source's and the destination's IP addresses.
    ends: [u8; 2],
    host: u8,
    qpn: u8,
    /// Packets, of as many flows if `is_spread`.
    pkts: u16,
    is_spread: bool,
    asks_credit: bool,
    psn: u32,
    /// How long ago they were sent; in the future if it is negative.
    age_us: i16,
    wait_us: u16,
    /// Frames that each port sends then.
    sends: u16,
}

fn burst() -> impl Strategy<Value = Burst> {
    let opcode = prop_oneof![
        4 => Just(Opcode::SrData.to_u8()),
        2 => Just(Opcode::SrAck.to_u8()),
        1 => Just(Opcode::SrParity.to_u8()),
        1 => any::<u8>(),
    ];
    let flow = ([0..PORTS, 0..PORTS], [0..PORTS, 0..PORTS], 0..HONEST, 0_u8..4);
    let pkts = (1_u16..600, any::<bool>(), any::<bool>());
    let psn = prop_oneof![any::<u32>(), 0_u32..100];
    (opcode, flow, pkts, (psn, -9_i16..40, 0_u16..200, 0_u16..400)).prop_map(
        |(opcode, ([ingress, towards], ends, host, qpn), (pkts, is_spread, asks_credit), rest)| {
            let (psn, age_us, wait_us, sends) = rest;
            Burst {
                opcode,
                ingress,
                towards,
                ends,
                host,
                qpn,
                pkts,
                is_spread,
                asks_credit,
                psn,
                age_us,
                wait_us,
                sends,
            }
        },
    )
}

/// A packet of opcode `opcode` from `source` to `dest`, each the port and the number of a host,
/// with the MAC address of port `towards`.
fn packet(
    opcode: u8,
    towards: u8,
    [source, dest]: [[u8; 2]; 2],
    qpn: u8,
    psn: u32,
    sent: Time,
) -> Vec<u8> {
    let data = SrDataRepr {
        sent_ps: sent.as_ps(),
        receive: Some(0),
        source_qpn: Some(Qpn::new(qpn.into())),
        ..SrDataRepr::new(SrKind::Send, psn, 0)
    };
    let credit = Some(SrCredit { credit: psn, rate_kbps: psn, suggested_kbps: 1 });
    let ack = SrAckRepr { credit, newest: psn, ack_delay_ns: 0, ..SrAckRepr::default() };
    let address = |[port, host]: [u8; 2]| IpAddr::from([10, 0, port, host]);
    let mut ip = IpRepr::new(address(source), address(dest)).unwrap();
    ip.set_dscp_ecn(2);
    let [src, dst] = [MacAddr([2, 0, 0, 1, source[0], source[1]]), mac(towards)];
    let bth = BthRepr::new(Opcode::SrData, Qpn::new(qpn.into()), Psn::new(psn & Psn::MASK));
    let udp = UdpRepr::new(0xc000 | u16::from(qpn));
    let eth = EthernetRepr { dst, src, ethertype: 0 };
    let headers = Headers { eth, ip, udp, bth, ext: ExtHeaders::NONE };
    let len = data.header_len().max(ack.header_len()) + 200;
    let mut frame = vec![0; headers.frame_len(len)];
    let at = headers.emit(&mut frame, len).unwrap().start;
    frame[42] = opcode;
    if opcode == Opcode::SrAck.to_u8() {
        ack.emit(&mut frame[at..]).unwrap();
    } else {
        data.emit(&mut frame[at..]).unwrap();
    }
    let len = frame.len();
    seal(&mut frame, len);
    frame
}

/// The address to which the switch with MLCC sends by `port`.
fn mac(port: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, port, 0])
}

/// With telemetry of version 2.
fn asking(mut frame: Vec<u8>) -> Vec<u8> {
    let len = frame.len();
    frame.resize(len + 200, 0);
    let end = int_request_credit(&mut frame, len, 6, IntFormat::Compact).unwrap();
    frame.truncate(end);
    frame
}

/// A switch with these agents, whose tables have their default sizes.
fn hostile_switch(
    agents: Vec<AgentConfig>,
    flows: Option<FlowsConfig>,
    forwarding: ForwardingConfig,
) -> Switch {
    let ecn = Some(EcnConfig::step(9_000));
    let queue = QueueConfig { limit_bytes: 300_000, ecn, flows, ..QueueConfig::default() };
    let int = flows.is_some();
    let of = PortConfig { queues: vec![queue], int, ..PortConfig::new(Rate::from_gbps(100)) };
    let ports = vec![of; PORTS.into()];
    Switch::new(SwitchConfig { forwarding, agents, ..SwitchConfig::new(ports) }).unwrap()
}

fn all_but_mlcc() -> Switch {
    let route = |n: u8| Route {
        to: Prefix::parse(&format!("10.0.{n}.0/24")).unwrap(),
        via: vec![Hop::port(n)],
        spread: Spread::Hash,
    };
    let forwarding = ForwardingConfig::routed((0..PORTS).map(route).collect());
    let clock = NsfClock::Relative;
    hostile_switch(
        vec![
            AgentConfig::Ecn(EcnAgentConfig { ports: vec![0], ..EcnAgentConfig::default() }),
            AgentConfig::Pacc(PaccConfig {
                ports: vec![1],
                threshold_bytes: 20_000,
                ..PaccConfig::default()
            }),
            AgentConfig::Nsf(NsfConfig { outside: vec![OUTSIDE], clock, ..NsfConfig::default() }),
            AgentConfig::Ndt(NdtConfig { inside: vec![3, 4], ..NdtConfig::default() }),
        ],
        None,
        forwarding,
    )
}

/// Forwards by MAC addresses: a forger chooses the port, whatever the IP addresses are.
fn with_mlcc() -> Switch {
    let of = |n: u8| StaticMac { mac: mac(n), ports: vec![n], spread: Spread::Hash };
    let macs = (0..PORTS).map(of).collect();
    let forwarding =
        ForwardingConfig { macs, learning: false, flood: false, ..ForwardingConfig::default() };
    let mlcc = MlccConfig { outside: vec![OUTSIDE], ..MlccConfig::default() };
    let flows = FlowsConfig { max_flows: 4096, rate: None, limit_bytes: None, quantum_bytes: 2048 };
    hostile_switch(vec![AgentConfig::Mlcc(mlcc)], Some(flows), forwarding)
}

/// Handles the timers until `until`.
fn elapse(s: &mut Switch, until: Time) {
    while let Some(due) = s.poll_timeout().filter(|due| *due <= until) {
        s.handle_timeout(due);
    }
}

/// Each port sends at most so many frames.
fn send(s: &mut Switch, now: Time, most: usize) {
    let mut buffer = [0; 10_000];
    for out in (0..PORTS).map(port) {
        (0..most).take_while(|_| s.poll_transmit(now, out, &mut buffer).is_some()).for_each(drop);
    }
}

/// The bursts, then silence until all frames have left and for a second; the time then.
fn attack(s: &mut Switch, bursts: &[Burst]) -> Time {
    let mut now = at(1_000);
    for burst in bursts {
        let Burst { opcode, ingress, towards, ends: [source, dest], host, qpn, psn, .. } = *burst;
        let sent =
            Time::from_ps(now.as_ps().saturating_add_signed(-i64::from(burst.age_us) * 1_000_000));
        for n in 0..burst.pkts {
            let [far, near] = if burst.is_spread { n.to_be_bytes() } else { [0; 2] };
            let (host, qpn) = (host.wrapping_add(near), qpn.wrapping_add(far));
            let ends = [[source, host], [dest, host]];
            let psn = psn.wrapping_add(n.into());
            let mut frame = packet(opcode, towards, ends, qpn, psn, sent);
            if burst.asks_credit {
                frame = asking(frame);
            }
            s.handle_packet(now, port(ingress), &frame, &RxMeta::whole(now));
        }
        send(s, now, burst.sends.into());
        now += Dur::from_us(burst.wait_us.into());
        elapse(s, now);
    }
    while s.used_pkts() > 0 {
        send(s, now, usize::MAX);
        now += Dur::from_us(100);
        elapse(s, now);
        assert!(now < at(10_000_000), "frames stay");
    }
    now += Dur::from_secs(1);
    elapse(s, now);
    now
}

/// Counters, or gauges that are no settings, by kind and name.
fn values(s: &Switch, now: Time, gauges: bool) -> BTreeMap<(&'static str, &'static str), u64> {
    let mut all = BTreeMap::new();
    for agent in s.agents(now) {
        for (name, value) in if gauges { agent.gauges } else { agent.counters } {
            if !["kmin_bytes", "kmax_bytes", "pmax_ppm"].contains(&name) {
                *all.entry((agent.kind, name)).or_default() += value;
            }
        }
    }
    all
}

/// Data of each honest flow, from one port to another, and their acknowledgement by the receiver;
/// what the counters gained, and the gauges then.
fn honest(
    s: &mut Switch,
    now: Time,
    [from, to]: [u8; 2],
) -> [BTreeMap<(&'static str, &'static str), u64>; 2] {
    let before = values(s, now, false);
    for n in 0..HONEST {
        let data = packet(Opcode::SrData.to_u8(), to, [[from, n], [to, n]], n % 4, 0, now);
        s.handle_packet(now, port(from), &asking(data), &RxMeta::whole(now));
        send(s, now, usize::MAX);
        let ack = packet(Opcode::SrAck.to_u8(), from, [[to, n], [from, n]], n % 4, 0, now);
        s.handle_packet(now, port(to), &ack, &RxMeta::whole(now));
        send(s, now, usize::MAX);
    }
    let mut gained = values(s, now, false);
    gained.iter_mut().for_each(|(name, value)| *value -= before[name]);
    [gained, values(s, now, true)]
}

/// MLCC has a place, and credit, for each honest flow of both directions.
fn serves_honest_flows(s: &mut Switch, now: Time) {
    let flows = u64::from(HONEST);
    for (ends, name, credits) in
        [([OUTSIDE, 0], "data_in_pkts", flows), ([0, OUTSIDE], "data_out_pkts", 0)]
    {
        let [gained, _] = honest(s, now, ends);
        let of = |name| gained[&("mlcc", name)];
        assert_eq!((of(name), of("flow_collisions")), (flows, 0));
        assert_eq!((of("credits"), of("credits_unknown")), (credits, 0));
    }
    let gauges = values(s, now, true);
    assert_eq!(gauges[&("mlcc", "flows")], 2 * flows, "each direction has its own");
    assert_eq!(gauges[&("mlcc", "waiting_bytes")], 0);
    assert_eq!(s.mlcc_flows(now).count(), usize::from(HONEST));
}

/// Data with the addresses of each honest flow that comes in, sent outward, and then inward as the
/// flow itself sends them.
#[test]
fn mlcc__a_flow_whose_addresses_a_forger_sent_outward_is_served() {
    let burst = |ingress, towards| Burst {
        opcode: Opcode::SrData.to_u8(),
        ingress,
        towards,
        ends: [OUTSIDE, 0],
        host: 0,
        qpn: 0,
        pkts: 1,
        is_spread: false,
        asks_credit: true,
        psn: 0,
        age_us: 0,
        wait_us: 0,
        sends: 0,
    };
    let forged: Vec<_> = (0..HONEST)
        .flat_map(|n| [burst(1, OUTSIDE), burst(OUTSIDE, 0)].map(|b| (n, b)))
        .map(|(n, burst)| Burst { host: n, qpn: n % 4, ..burst })
        .collect();
    let mut s = with_mlcc();
    let now = attack(&mut s, &forged);
    serves_honest_flows(&mut s, now);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn agents__forget_what_a_forger_sent(bursts in prop::collection::vec(burst(), 1..60)) {
        let mut s = all_but_mlcc();
        let now = attack(&mut s, &bursts);
        let left: Vec<_> = values(&s, now, true).into_iter().filter(|(_, n)| *n > 0).collect();
        prop_assert_eq!(left, []);
        let flows = u64::from(HONEST);
        for (ends, kind, rest) in [
            ([3, 0], "ecn", &[][..]),
            ([3, 1], "pacc", &[]),
            ([3, OUTSIDE], "nsf", &[("late_pkts", 0)]),
            ([0, 3], "ndt", &[("data_no_place", 0), ("controlled_pkts", 0)]),
        ] {
            let [gained, gauges] = honest(&mut s, now, ends);
            prop_assert_eq!(gauges[&(kind, "flows")], flows, "{}", kind);
            for (name, want) in rest {
                prop_assert_eq!(gained[&(kind, *name)], *want, "{} {}", kind, name);
            }
        }
    }

    #[test]
    fn mlcc__forgets_what_a_forger_sent(bursts in prop::collection::vec(burst(), 1..60)) {
        let mut s = with_mlcc();
        let now = attack(&mut s, &bursts);
        let left: Vec<_> = values(&s, now, true).into_iter().filter(|(_, n)| *n > 0).collect();
        prop_assert_eq!(left, []);
        serves_honest_flows(&mut s, now);
    }
}
