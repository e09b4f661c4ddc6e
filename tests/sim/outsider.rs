//! A simulation by a user of the library, with the public engine and world. The seed decides
//! everything in it.

use spanwire_base::{Dur, PortId, Rate, Time};
use spanwire_mem::Region;
use spanwire_sim::World;
use spanwire_switch::{Line, LineConfig};
use spanwire_transport::{
    Access, AddressVector, Endpoint, MemoryRegion, Mtu, QpAttr, QpCaps, QpInit, RemoteAddr, Sge,
    ValidConfig, WireMode, WorkRequest, WrOp,
};
use spanwire_wire::{MacAddr, Psn, Qpn};
use std::net::{IpAddr, Ipv4Addr};

struct Side {
    endpoint: Endpoint,
    qpn: Qpn,
    mr: MemoryRegion,
}

impl Side {
    fn new(seed: u8) -> Self {
        let mut endpoint = Endpoint::new(ValidConfig::default(), [seed; 32]);
        let pd = endpoint.alloc_pd().unwrap();
        let cq = endpoint.create_cq(16).unwrap();
        let mr = endpoint.reg_mr(pd, Region::zeroed(1 << 16), Access::ALL, None).unwrap();
        let qpn = endpoint.create_qp(&QpInit::new(pd, cq, cq, QpCaps::default())).unwrap();
        endpoint.modify_qp(qpn, &QpAttr::init(Access::ALL)).unwrap();
        Self { endpoint, qpn, mr }
    }

    fn connect(&mut self, [me, peer]: [u8; 2], peer_qpn: Qpn, mode: WireMode) {
        let mac = |n| MacAddr::new([2, 0, 0, 0, 0, n]);
        let ip = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let av = AddressVector::new(mac(me), mac(peer), ip(me), ip(peer));
        let mut rtr = QpAttr::rtr(peer_qpn, Psn::new(7), Mtu::B1024, av);
        rtr.wire = Some(mode.into());
        for attr in [rtr, QpAttr::rts(Psn::new(7))] {
            self.endpoint.modify_qp(self.qpn, &attr).unwrap();
        }
    }
}

/// Two hosts, a WRITE and a READ of 40,000 bytes: the event hash, and the addresses of both
/// regions.
fn run(seed: u8, mode: WireMode) -> (u64, [u64; 2]) {
    let [mut a, mut b] = [Side::new(seed), Side::new(seed + 1)];
    a.connect([1, 2], b.qpn, mode);
    b.connect([2, 1], a.qpn, mode);
    let remote = RemoteAddr { va: b.mr.addr, rkey: b.mr.rkey.unwrap() };
    let sge = Sge { addr: a.mr.addr, len: 40_000, lkey: a.mr.lkey };
    for (id, op) in [(1, WrOp::Write { remote }), (2, WrOp::Read { remote })] {
        a.endpoint.post_send(a.qpn, &WorkRequest::new(id, op, &[sge])).unwrap();
    }
    let addresses = [a.mr.addr, b.mr.addr];
    let mut world = World::new(2048);
    let ends = [a, b].map(|side| (world.add_node(side.endpoint), PortId::HOST));
    let rate = Some(Rate::from_gbps(10));
    let config = LineConfig { rate, delay: Dur::from_us(5), ..LineConfig::default() };
    let lines = [1, 2].map(|seed| Line::new(config.clone(), seed).unwrap());
    world.connect(ends[0], ends[1], lines);
    world.run(Time::from_ns(10_000_000), u64::MAX, &mut ());
    let (sender, _) = ends[0];
    assert_eq!(world.node(sender).counters().rx_payload_bytes, 40_000, "the READ has ended");
    (world.event_hash().value(), addresses)
}

#[test]
fn reg_mr__without_an_address_gives_one_that_follows_from_the_seed() {
    for mode in [WireMode::Rc, WireMode::Sr] {
        let first = run(1, mode);
        // Shifts the heap and the mappings.
        let moved: Vec<Region> = (0..50).map(|_| Region::zeroed(1 << 16)).collect();
        let held = vec![0u8; 12_345];
        assert_eq!(run(1, mode), first, "{mode:?}: one seed gave two results");
        drop((moved, held));
        assert_ne!(run(3, mode).1, first.1, "{mode:?}: the seed has no effect");
        for (addr, mapped) in first.1.into_iter().zip([Region::zeroed(1), Region::zeroed(1)]) {
            assert!(addr.is_multiple_of(4096) && addr < 1 << 47, "{addr:#x}");
            assert!(
                addr.abs_diff(mapped.addr()) > 1 << 30,
                "{addr:#x} is near this process's memory"
            );
        }
    }
}

/// Another process has other memory mappings, but the addresses must be equal.
#[test]
fn reg_mr__gives_the_same_address_in_every_process() {
    assert_eq!(run(1, WireMode::Rc).1, [ADDRESS_A, ADDRESS_B]);
}

const ADDRESS_A: u64 = 108_005_846_487_040;
const ADDRESS_B: u64 = 56_098_212_007_936;
