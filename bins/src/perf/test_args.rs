//! The arguments that say what is measured. A client of our own server alone says it; perftest's
//! ends negotiate nothing, so there both are told.

use super::args::size;
use crate::port_args;
use clap::ValueEnum;
use spanwire_host::fabric::Error;
use spanwire_host::oob::perftest::{self, Test};
use spanwire_host::oob::{self, ModeChoice, Op};
use std::net::IpAddr;

/// How the two ends find together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum OobKind {
    /// Spanwire's own exchange: the client says what is measured
    Spanwire,
    /// That of perftest, to run against ib_write_bw and its siblings: start both ends alike
    Perftest,
}

/// `--op`: the name of an [`Op`] on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum OpArg {
    /// SEND into posted receives.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// The atomic FETCH_ADD, of 8 bytes.
    #[value(aliases = ["atomic", "FETCH_AND_ADD"])]
    FetchAdd,
    /// The atomic CMP_SWAP, of 8 bytes.
    #[value(alias = "CMP_AND_SWAP")]
    CmpSwap,
}

/// What is measured, and over which exchange. A server takes most of it with `--oob perftest` only.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct TestArgs {
    /// How the two ends find together
    #[arg(long, value_enum, default_value_t = OobKind::Spanwire)]
    pub(super) oob: OobKind,
    /// Wire mode: auto, rc or sr; the last two insist on it
    #[arg(long, default_value = "auto", value_parser = port_args::mode)]
    pub(super) mode: ModeChoice,
    /// TCP port of the side connection [default: 18516, perftest's 18515]
    #[arg(short, long)]
    pub(super) port: Option<u16>,
    /// What moves the data [default: write]
    #[arg(long, value_enum)]
    pub(super) op: Option<OpArg>,
    /// Bytes of a message; K, M and G are binary [default: 64K; --lat 64, perftest's 2; atomics 8]
    #[arg(short, long, value_parser = size)]
    pub(super) size: Option<u64>,
    /// Queue pairs [default: 1]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) qps: Option<u32>,
    /// Messages outstanding on each queue pair [default: 16, perftest's 128]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub(super) depth: Option<u32>,
    /// Path MTU in payload bytes: 256, 512, 1024, 2048 or 4096 [default: the largest that fits]
    #[arg(short, long)]
    pub(super) mtu: Option<u32>,
    /// Measure latency: one message at a time
    #[arg(long)]
    pub(super) lat: bool,
    /// Local ACK timeout: 4.096 us * 2^N [default: 14]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=31))]
    pub(super) timeout: Option<u8>,
    /// Retransmissions without progress before giving up [default: 7]
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(super) retry: Option<u8>,
    /// perftest: messages on each queue pair [default: 1000; 5000 to write without --lat]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) iters: Option<u64>,
    /// perftest: both ends send
    #[arg(short = 'b', long)]
    pub(super) bidirectional: bool,
    /// perftest: IPv4 TOS or IPv6 traffic class of what we send
    #[arg(long)]
    pub(super) tclass: Option<u8>,
    /// Our RoCE address, if not the one of the TCP connection
    #[arg(long, value_name = "IP")]
    pub(super) address: Option<IpAddr>,
    /// Take peers whose RoCE address is not the one of their TCP connection: packets then go to
    /// whatever address a peer says
    #[arg(long)]
    pub(super) any_address: bool,
}

impl From<OpArg> for Op {
    fn from(op: OpArg) -> Self {
        match op {
            OpArg::Send => Self::Send,
            OpArg::Write => Self::Write,
            OpArg::Read => Self::Read,
            OpArg::FetchAdd => Self::FetchAdd,
            OpArg::CmpSwap => Self::CmpSwap,
        }
    }
}

impl TestArgs {
    /// TCP port of the side connection.
    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or(match self.oob {
            OobKind::Spanwire => oob::DEFAULT_PORT,
            OobKind::Perftest => perftest::DEFAULT_PORT,
        })
    }

    /// What moves the data.
    pub(super) fn op(&self) -> Op {
        self.op.map_or(Op::Write, Op::from)
    }

    /// Queue pairs.
    pub(super) fn qps(&self) -> u32 {
        self.qps.unwrap_or(1)
    }

    /// Local ACK timeout exponent.
    pub(super) fn timeout(&self) -> u8 {
        self.timeout.unwrap_or(14)
    }

    /// Retransmissions without progress.
    pub(super) fn retry(&self) -> u8 {
        self.retry.unwrap_or(7)
    }

    /// Bytes of a message, or `default`.
    pub(super) fn size_or(&self, default: u32) -> Result<u32, Error> {
        let default = if self.op().is_atomic() { 8 } else { default };
        let size = self.size.unwrap_or(default.into());
        let size = u32::try_from(size).ok().filter(|s| (1..=1 << 30).contains(s));
        size.ok_or_else(|| "--size must be between 1 byte and 1 GiB".into())
    }

    /// The test that a perftest peer is told by its own arguments. What is not given is what
    /// perftest takes.
    pub(super) fn perftest(&self) -> Result<Test, Error> {
        if self.mode == ModeChoice::Sr {
            return Err("perftest speaks RC: --mode sr needs spanwire on both ends, without \
                        --oob perftest"
                .into());
        }
        if self.any_address {
            return Err("--any-address is not for --oob perftest, which takes any".into());
        }
        let op = self.op();
        let test = Test {
            op,
            latency: self.lat,
            bidirectional: self.bidirectional,
            size: self.size_or(if self.lat { 2 } else { 1 << 16 })?,
            iterations: self.iters.unwrap_or(match (op, self.lat) {
                (Op::Write, false) => 5000,
                _ => 1000,
            }),
            qps: self.qps(),
            depth: self.depth.unwrap_or(128),
            path_mtu: self.mtu,
            traffic_class: self.tclass.unwrap_or(0),
            timeout: self.timeout(),
            retry_cnt: self.retry(),
        };
        test.check()?;
        Ok(test)
    }

    /// Refuses what only perftest's exchange has use for.
    pub(super) fn check_own_client(&self) -> Result<(), Error> {
        refuse(&self.perftest_only(), "needs --oob perftest")
    }

    /// Refuses what a server of our own exchange is told by its clients.
    pub(super) fn check_own_server(&self) -> Result<(), Error> {
        let mut given = self.perftest_only();
        given.extend([
            ("--op", self.op.is_some()),
            ("--size", self.size.is_some()),
            ("--qps", self.qps.is_some()),
            ("--depth", self.depth.is_some()),
            ("--mtu", self.mtu.is_some()),
            ("--lat", self.lat),
            ("--timeout", self.timeout.is_some()),
            ("--retry", self.retry.is_some()),
        ]);
        refuse(&given, "is for the client to say, unless with --oob perftest")
    }

    fn perftest_only(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("--iters", self.iters.is_some()),
            ("--bidirectional", self.bidirectional),
            ("--tclass", self.tclass.is_some()),
        ]
    }
}

fn refuse(given: &[(&'static str, bool)], why: &str) -> Result<(), Error> {
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(format!("{name} {why}").into()),
        None => Ok(()),
    }
}
