//! The counted workloads.

use super::engine::Pair;
use crate::erasure::work::{Task, ours};
use crate::sample::Error;
use spanwire_base::{Node, PortId, Rate, RxMeta, Time, TxMeta};
use spanwire_cc::Algorithm;
use spanwire_erasure::{Kernel, Scheme};
use spanwire_host::fabric::{Attachment, Wrap};
use spanwire_host::window;
use spanwire_io::port::{Port, reserve};
use spanwire_io::worker::{Progress, bell};
use spanwire_sim::{Scenario, Watch};
use spanwire_switch::{
    EcnConfig, ForwardingConfig, Hop, PortConfig, Prefix, Prob, QueueConfig, Route, Spread, Switch,
    SwitchConfig,
};
use spanwire_transport::{Config, ErasureCoding, Mtu, RemoteAddr, WrOp};
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, IpRepr, Opcode, Packet, Psn, Qpn, Template,
};
use std::hint::black_box;

/// A repeated operation.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// The operation.
    pub op: &'static str,
    /// Data packets of an operation by which the engine's cost is divided; 1 if they vary.
    pub packets: u32,
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

/// A message of 64 packets.
const fn bulk(name: &'static str, run: fn(u64) -> Result<(), Error>) -> Workload {
    Workload { name, op: "message of 64 packets", packets: 64, ops: 200, run }
}

/// Another operation.
const fn other(
    name: &'static str,
    op: &'static str,
    ops: u64,
    run: fn(u64) -> Result<(), Error>,
) -> Workload {
    Workload { name, op, packets: 1, ops, run }
}

/// All workloads. Both ends of a connection are counted together.
pub const ALL: &[Workload] = &[
    bulk("write-64k", |ops| rc()?.messages(ops, Pair::write, KIB_64)),
    bulk("far-write-64k", |ops| rc()?.far().messages(ops, Pair::write, KIB_64)),
    bulk("auto-write-64k", |ops| auto_rc()?.messages(ops, Pair::write, KIB_64)),
    bulk("read-64k", |ops| rc()?.messages(ops, Pair::read, KIB_64)),
    other("write-mixed", "message of 1 to 65536 bytes", 200, |ops| {
        rc()?.messages_of(ops, Pair::write, mixed)
    }),
    other("send-64", SMALL, 2000, |ops| rc()?.messages(ops, send, 64)),
    other("far-send-64", SMALL, 2000, |ops| rc()?.far().messages(ops, send, 64)),
    other("auto-send-64", SMALL, 2000, |ops| auto_rc()?.messages(ops, send, 64)),
    other("send-64-qp4", SMALL, 2000, |ops| {
        Pair::rc(Config::default(), Mtu::B1024, 4)?.messages(ops, send, 64)
    }),
    other("ping-64", "64 bytes there and back, alone", 2000, |ops| rc()?.ping_pongs(ops, 64)),
    other("fetch-add", "atomic", 2000, |ops| rc()?.messages(ops, Pair::fetch_add, 8)),
    bulk("write-elided", |ops| {
        Pair::rc(elided(), Mtu::B4096, 1)?.messages(ops, Pair::write, KIB_256)
    }),
    bulk("read-elided", |ops| {
        Pair::rc(elided(), Mtu::B4096, 1)?.messages(ops, Pair::read, KIB_256)
    }),
    bulk("sr-write-64k", |ops| sr()?.messages(ops, Pair::write, KIB_64)),
    bulk("sr-far-write-64k", |ops| sr()?.far().messages(ops, Pair::write, KIB_64)),
    bulk("sr-auto-write-64k", |ops| auto_sr()?.messages(ops, Pair::write, KIB_64)),
    bulk("sr-read-64k", |ops| sr()?.messages(ops, Pair::read, KIB_64)),
    bulk("sr-write-coded", |ops| coded()?.messages(ops, Pair::write, KIB_64)),
    other("sr-write-mixed", "message of 1 to 65536 bytes", 200, |ops| {
        sr()?.messages_of(ops, Pair::write, mixed)
    }),
    other("sr-send-64", SMALL, 2000, |ops| sr()?.messages(ops, send, 64)),
    other("sr-far-send-64", SMALL, 2000, |ops| sr()?.far().messages(ops, send, 64)),
    other("sr-auto-send-64", SMALL, 2000, |ops| auto_sr()?.messages(ops, send, 64)),
    other("sr-ping-64", "64 bytes there and back, alone", 2000, |ops| sr()?.ping_pongs(ops, 64)),
    other("sr-fetch-add", "atomic", 2000, |ops| sr()?.messages(ops, Pair::fetch_add, 8)),
    bulk("sr-write-elided", |ops| {
        Pair::sr(elided(), 4096, None)?.messages(ops, Pair::write, KIB_256)
    }),
    bulk("sr-write-unocc", |ops| {
        sr()?.paced(Algorithm::named("unocc")?)?.messages(ops, Pair::write, KIB_64)
    }),
    other(
        "sr-lossy-window",
        "message of 1024 packets, of which 10 are lost, in windows of 16384",
        32,
        |ops| {
            let config =
                Config { qp_window_pkts: 16_384, endpoint_window_pkts: 32_768, ..elided() };
            Pair::sr(config, 256, None)?.lossy(100).messages(ops, Pair::write, KIB_256)
        },
    ),
    other("switch-hop", "frame", 20_000, switch_hop),
    other("sim-incast-8", "packet of each of 8 flows", 400, |ops| simulate("incast-8", ops)),
    other("sim-permutation-128", "packet of each of 128 flows", 40, |ops| {
        simulate("permutation-128", ops)
    }),
    // So many that a pipe's clock, which spins while it calibrates, adds less than an instruction.
    other("pipe-frame", "frame sent and received", 400_000, |ops| frames(ops, 1)),
    other("steered-frame", "the same, with two workers", 400_000, |ops| frames(ops, 2)),
    other("parse-1024", "frame", 20_000, parse),
    other("emit-1024", "frame", 20_000, emit),
    other("erasure-encode", "block of 8 packets of 4096 bytes", 2000, |ops| {
        code(Task::Encode, ops)
    }),
    other("erasure-add", "block of 8 packets of 4096 bytes", 2000, |ops| code(Task::Add, ops)),
    other("erasure-recover", "block of 8 packets of 4096 bytes, 2 lost", 2000, |ops| {
        code(Task::PlanAndDecode, ops)
    }),
];

const SMALL: &str = "message of 64 bytes";
const KIB_64: u32 = 1 << 16;
const KIB_256: u32 = 1 << 18;

fn rc() -> Result<Pair, Error> {
    Pair::rc(Config::default(), Mtu::B1024, 1)
}

fn sr() -> Result<Pair, Error> {
    Pair::sr(Config::default(), 1024, None)
}

fn coded() -> Result<Pair, Error> {
    Pair::sr(Config::default(), 1024, Some(ErasureCoding::new(8, 2)))
}

/// With the window that hosts have with congestion control.
fn auto_rc() -> Result<Pair, Error> {
    Pair::rc(controlled()?, Mtu::B1024, 1)?.auto()
}

fn auto_sr() -> Result<Pair, Error> {
    Pair::sr(controlled()?, 1024, None)?.auto()
}

fn controlled() -> Result<Config, Error> {
    let line_rate = Config::default().line_rate;
    Ok(Config::clone(&*window::config(Some(window::CC_WINDOW_PKTS), line_rate, None)?))
}

fn elided() -> Config {
    Config { elide_payload: true, ..Config::default() }
}

fn send(_: RemoteAddr) -> WrOp {
    WrOp::Send
}

/// The length of message `n`, 1 to 65536 bytes: by a multiplicative hash, so that all runs have the
/// same lengths.
fn mixed(n: u64) -> u32 {
    let hash = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    u32::try_from(hash).expect("16 bits") + 1
}

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
    let len = write_frame(&mut template()?, &mut frame, 0, 1024)? - 1024;
    let meta = RxMeta { elided_bytes: 1024, ..RxMeta::whole(Time::ZERO) };
    for i in 0..ops {
        let now = Time::from_ns(i);
        switch.handle_packet(now, PortId::HOST, &frame[..len], &meta);
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
    let len = write_frame(&mut template()?, &mut frame, 0, 1024)?;
    for _ in 0..ops {
        black_box(Packet::parse(black_box(&frame[..len])).map_err(|e| format!("{e:?}"))?);
    }
    Ok(())
}

fn emit(ops: u64) -> Result<(), Error> {
    let (mut frame, mut template) = (vec![0; 2048], template()?);
    for i in 0..ops {
        black_box(write_frame(&mut template, black_box(&mut frame), u32::try_from(i)?, 1024)?);
    }
    Ok(())
}

/// Frames over a pipe, in bursts of 64, to the first of so many workers.
fn frames(ops: u64, workers: u8) -> Result<(), Error> {
    let wrap = Wrap::default();
    let pipes = (0..workers).map(|_| Attachment::pipe([&wrap, &wrap]));
    let (near, mut far): (Vec<_>, Vec<_>) =
        pipes.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let bells = (0..workers).map(|_| bell(Progress::Inline)).collect::<Result<Vec<_>, _>>()?;
    let qpns = Config { workers, ..Config::default() }.qpn_workers();
    let mut near = Attachment::steered(near, &bells, qpns);
    // A clock of the machine steers itself by the time that passes, in more or fewer instructions.
    let (mut frame, clock) = (vec![0; 2048], Time::ZERO);
    // A copy of more than 256 bytes is a loop, whose rounds depend on where the buffers lie.
    let len = write_frame(&mut template()?, &mut frame, 0, 128)?;
    for _ in 0..ops.div_ceil(64) {
        for _ in 0..64 {
            let mut slot = reserve(&mut far[0].port).ok_or("no buffer")?;
            slot.bytes()[..len].copy_from_slice(&frame[..len]);
            slot.commit(TxMeta::whole(len));
        }
        far[0].port.flush(Time::ZERO)?;
        near[0].port.rx_burst(&clock, 64, &mut |frame, _| _ = black_box(frame));
    }
    Ok(())
}

fn template() -> Result<Template, Error> {
    let ip = IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).ok_or("one IP version")?;
    Ok(Template::new(EthernetRepr::default(), ip, 0xc123))
}

/// A WRITE Middle of `payload` bytes over IPv4.
fn write_frame(
    template: &mut Template,
    frame: &mut [u8],
    psn: u32,
    payload: usize,
) -> Result<usize, Error> {
    let bth = BthRepr::new(Opcode::RcWriteMiddle, Qpn::new(17), Psn::new(psn));
    let at = template.emit(&bth, &ExtHeaders::NONE, payload, frame)?;
    template.seal(frame, at.end + 4);
    Ok(at.end + 4)
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
