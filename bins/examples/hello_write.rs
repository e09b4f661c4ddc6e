//! A minimal program: an RDMA WRITE between two endpoints in one process.
//!
//! On real interfaces the ports are `spanwire_io::xdp::XdpPort`s and the addresses come from
//! `spanwire_io::net::resolve`. Each side then has a `spanwire_io::worker::Worker`.
//!
//! `cargo run --release -p spanwire-bins --example hello_write`

use spanwire_base::PortMask;
use spanwire_io::clock::Clock;
use spanwire_io::driver::{Budget, step};
use spanwire_io::pipe::{PipeConfig, pipe};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, CqId, Endpoint, MemoryRegion, Mtu, QpAttr, QpCaps, QpInit, RemoteAddr,
    Sge, ValidConfig, WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::{MacAddr, Psn, Qpn};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

/// One side: an endpoint with a queue pair, a completion queue and a page of memory.
struct Side {
    endpoint: Endpoint,
    cq: CqId,
    qpn: Qpn,
    memory: Region,
    mr: MemoryRegion,
    number: u8,
}

impl Side {
    fn new(number: u8) -> Result<Self, Box<dyn Error>> {
        // A real program passes 32 random bytes of the system, because all keys derive from them.
        let mut endpoint = Endpoint::new(ValidConfig::default(), [number; 32]);
        let pd = endpoint.alloc_pd()?;
        let cq = endpoint.create_cq(16)?;
        let memory = Region::zeroed(4096);
        let mr = endpoint.reg_mr(pd, memory.clone(), Access::ALL, None)?;
        let caps = QpCaps::default();
        let qpn = endpoint.create_qp(&QpInit::new(pd, cq, cq, caps))?;
        endpoint.modify_qp(qpn, &QpAttr::init(Access::ALL))?;
        Ok(Self { endpoint, cq, qpn, memory, mr, number })
    }

    /// Connects to the other side. Between machines a side connection carries these numbers.
    fn connect(&mut self, peer_number: u8, peer: Qpn) -> Result<(), Box<dyn Error>> {
        let mac = |n| MacAddr::new([2, 0, 0, 0, 0, n]);
        let ip = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let av = AddressVector::new(
            mac(self.number),
            mac(peer_number),
            ip(self.number),
            ip(peer_number),
        );
        let start = Psn::new(0);
        self.endpoint.modify_qp(self.qpn, &QpAttr::rtr(peer, start, Mtu::B1024, av))?;
        self.endpoint.modify_qp(self.qpn, &QpAttr::rts(start))?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut alice, mut bob) = (Side::new(1)?, Side::new(2)?);
    alice.connect(bob.number, bob.qpn)?;
    bob.connect(alice.number, alice.qpn)?;

    alice.memory.copy_in(0, b"written by another host")?;
    let sge = Sge { addr: alice.mr.addr, len: 23, lkey: alice.mr.lkey };
    let rkey = bob.mr.rkey.ok_or("bob's memory is not shared")?;
    let remote = RemoteAddr { va: bob.mr.addr + 100, rkey };
    let write = WorkRequest::new(7, WrOp::Write { remote }, std::slice::from_ref(&sge));
    alice.endpoint.post_send(alice.qpn, &write)?;

    let (mut port_a, mut port_b) = pipe(PipeConfig::default());
    let (mut left_a, mut left_b) = (PortMask::EMPTY, PortMask::EMPTY);
    let clock = Clock::start();
    let wc = loop {
        let budget = Budget::default();
        step(&clock, &mut alice.endpoint, &mut port_a, &mut left_a, budget)?;
        step(&clock, &mut bob.endpoint, &mut port_b, &mut left_b, budget)?;
        if let Some(wc) = alice.endpoint.poll_cq(alice.cq)? {
            break wc;
        }
    };

    let mut seen = [0; 23];
    bob.memory.copy_out(100, &mut seen)?;
    println!("request {}: {}; bob reads {:?}", wc.wr_id, wc.status.name(), str::from_utf8(&seen)?);
    assert_eq!((wc.status, &seen), (WcStatus::Success, b"written by another host"));
    Ok(())
}
