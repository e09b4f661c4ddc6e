//! The counted workloads.

use super::engine::Pair;
use crate::erasure::work::{Task, ours};
use crate::sample::Error;
use spanwire_base::{Node, PortId, Rate, RxMeta, Time};
use spanwire_cc::Algorithm;
use spanwire_erasure::{Kernel, Scheme};
use spanwire_sim::{Scenario, Watch};
use spanwire_switch::{
    EcnConfig, ForwardingConfig, Hop, PortConfig, Prefix, Prob, QueueConfig, Route, Spread, Switch,
    SwitchConfig,
};
use spanwire_transport::{Config, Mtu, WrOp};
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, IpRepr, Opcode, Packet, Psn, Qpn, Template, seal,
};
use std::hint::black_box;

/// A repeated operation.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// The operation.
    pub op: &'static str,
    /// Operations of the shorter of the two runs.
    pub ops: u64,
    run: fn(u64) -> Result<(), Error>,
}

impl Workload {
    /// The workload of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|w| w.name == name)
    }

    /// Does `ops` operations.
    ///
    /// # Errors
    /// The engine rejects the configuration, or a request fails.
    pub fn run(&self, ops: u64) -> Result<(), Error> {
        (self.run)(ops)
    }
}

/// All workloads. Both ends of a connection are counted together.
pub const ALL: &[Workload] = &[
    Workload {
        name: "write-64k",
        op: "message of 64 packets",
        ops: 200,
        run: |ops| Pair::rc(Config::default(), Mtu::B1024)?.messages(ops, Pair::write, 1 << 16),
    },
    Workload {
        name: "read-64k",
        op: "message of 64 packets",
        ops: 200,
        run: |ops| Pair::rc(Config::default(), Mtu::B1024)?.messages(ops, Pair::read, 1 << 16),
    },
    Workload {
        name: "send-64",
        op: "message of 64 bytes",
        ops: 2000,
        run: |ops| Pair::rc(Config::default(), Mtu::B1024)?.messages(ops, |_| WrOp::Send, 64),
    },
    Workload {
        name: "fetch-add",
        op: "atomic",
        ops: 2000,
        run: |ops| Pair::rc(Config::default(), Mtu::B1024)?.messages(ops, Pair::fetch_add, 8),
    },
    Workload {
        name: "write-elided",
        op: "message of 64 packets",
        ops: 200,
        run: |ops| {
            let config = Config { elide_payload: true, ..Config::default() };
            Pair::rc(config, Mtu::B4096)?.messages(ops, Pair::write, 1 << 18)
        },
    },
    Workload {
        name: "sr-write-64k",
        op: "message of 64 packets",
        ops: 200,
        run: |ops| Pair::sr(Config::default(), 1024)?.messages(ops, Pair::write, 1 << 16),
    },
    Workload {
        name: "sr-read-64k",
        op: "message of 64 packets",
        ops: 200,
        run: |ops| Pair::sr(Config::default(), 1024)?.messages(ops, Pair::read, 1 << 16),
    },
    Workload {
        name: "sr-send-64",
        op: "message of 64 bytes",
        ops: 2000,
        run: |ops| Pair::sr(Config::default(), 1024)?.messages(ops, |_| WrOp::Send, 64),
    },
    Workload {
        name: "sr-fetch-add",
        op: "atomic",
        ops: 2000,
        run: |ops| Pair::sr(Config::default(), 1024)?.messages(ops, Pair::fetch_add, 8),
    },
    Workload {
        name: "sr-write-elided",
        op: "message of 64 packets",
        ops: 200,
        run: |ops| {
            let config = Config { elide_payload: true, ..Config::default() };
            Pair::sr(config, 4096)?.messages(ops, Pair::write, 1 << 18)
        },
    },
    Workload {
        name: "sr-write-unocc",
        op: "message of 64 packets, paced",
        ops: 200,
        run: |ops| {
            let pair = Pair::sr(Config::default(), 1024)?;
            pair.paced(Algorithm::named("unocc")?)?.messages(ops, Pair::write, 1 << 16)
        },
    },
    Workload {
        name: "sr-lossy-window",
        op: "message of 1024 packets, of which 10 are lost, in windows of 16384",
        ops: 32,
        run: |ops| {
            let config = Config {
                elide_payload: true,
                qp_window_pkts: 16_384,
                endpoint_window_pkts: 32_768,
                ..Config::default()
            };
            Pair::sr(config, 256)?.lossy(100).messages(ops, Pair::write, 1 << 18)
        },
    },
    Workload { name: "switch-hop", op: "frame", ops: 20_000, run: switch_hop },
    Workload {
        name: "sim-incast-8",
        op: "packet of each of 8 flows",
        ops: 400,
        run: |ops| simulate("incast-8", ops),
    },
    Workload {
        name: "sim-permutation-128",
        op: "packet of each of 128 flows",
        ops: 40,
        run: |ops| simulate("permutation-128", ops),
    },
    Workload { name: "parse-1024", op: "frame", ops: 20_000, run: parse },
    Workload { name: "emit-1024", op: "frame", ops: 20_000, run: emit },
    Workload {
        name: "erasure-encode",
        op: "block of 8 packets of 4096 bytes",
        ops: 2000,
        run: |ops| code(Task::Encode, ops),
    },
    Workload {
        name: "erasure-add",
        op: "block of 8 packets of 4096 bytes",
        ops: 2000,
        run: |ops| code(Task::Add, ops),
    },
    Workload {
        name: "erasure-recover",
        op: "block of 8 packets of 4096 bytes, 2 lost",
        ops: 2000,
        run: |ops| code(Task::PlanAndDecode, ops),
    },
];

/// Forwards an elided frame through a switch with RED.
fn switch_hop(ops: u64) -> Result<(), Error> {
    let red = QueueConfig {
        ecn: Some(EcnConfig::red(100_000, 400_000, Prob::from_ppm(200_000))),
        ..QueueConfig::default()
    };
    let port = PortConfig { queues: vec![red], ..PortConfig::new(Rate::from_gbps(100)) };
    let mut config = SwitchConfig::new(vec![port; 16]);
    let to = Prefix::new([10, 0, 0, 2].into(), 32).ok_or("a prefix")?;
    let via = (8..16).map(Hop::port).collect();
    let routes = vec![Route { to, via, spread: Spread::Hash }];
    config.forwarding = ForwardingConfig::routed(routes);
    let mut switch = Switch::new(config)?;
    let (mut frame, mut out) = (vec![0; 2048], vec![0; 2048]);
    let len = write_frame(&mut frame, 0)? - 1024;
    let meta = RxMeta { elided_bytes: 1024, ..RxMeta::whole(Time::ZERO) };
    for i in 0..ops {
        let now = Time::from_ns(i);
        switch.handle_packet(now, PortId::HOST, &frame[..len], meta);
        let mut ready = switch.take_ready();
        while let Some(port) = ready.pop() {
            while let Some(sent) = switch.poll_transmit(now, port, &mut out) {
                black_box(sent);
            }
        }
    }
    Ok(())
}

/// A scenario whose flows carry `ops` packets of 4096 bytes each.
fn simulate(name: &str, ops: u64) -> Result<(), Error> {
    let scenario = Scenario::find(name).ok_or("the simulator has this scenario")?;
    let bytes = format!("{}B", ops * 4096);
    let plan = scenario.plan(1, [("bytes", &*bytes)])?;
    let report = plan.run(Watch::default(), &mut ())?;
    if report.checkers_ok { Ok(()) } else { Err(report.violations.join("; ").into()) }
}

/// By P and Q on AVX2, which valgrind supports.
fn code(task: Task, ops: u64) -> Result<(), Error> {
    let kernel =
        Kernel::named("avx2").ok_or("the counts are of AVX2, which this processor lacks")?;
    let mut work = ours(task, Scheme::PQ, kernel, 4096);
    (0..ops).for_each(|_| work());
    Ok(())
}

fn parse(ops: u64) -> Result<(), Error> {
    let mut frame = vec![0; 2048];
    let len = write_frame(&mut frame, 0)?;
    for _ in 0..ops {
        black_box(Packet::parse(black_box(&frame[..len])).map_err(|e| format!("{e:?}"))?);
    }
    Ok(())
}

fn emit(ops: u64) -> Result<(), Error> {
    let mut frame = vec![0; 2048];
    for i in 0..ops {
        black_box(write_frame(black_box(&mut frame), u32::try_from(i)?)?);
    }
    Ok(())
}

/// A WRITE Middle of 1024 bytes over IPv4.
fn write_frame(frame: &mut [u8], psn: u32) -> Result<usize, Error> {
    let ip = IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).ok_or("one IP version")?;
    let template = Template::new(EthernetRepr::default(), ip, 0xc123);
    let bth = BthRepr::new(Opcode::RcWriteMiddle, Qpn::new(17), Psn::new(psn));
    let at = template.emit(&bth, &ExtHeaders::NONE, 1024, frame)?;
    let len = at.end + 4;
    seal(frame, len);
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run__every_workload_succeeds() {
        for w in ALL {
            w.run(3).unwrap_or_else(|e| panic!("{}: {e}", w.name));
            assert!(Workload::named(w.name).is_some());
        }
    }
}
