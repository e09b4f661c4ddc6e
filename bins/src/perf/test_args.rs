//! The arguments that define the measurement.
//!
//! With Spanwire's own exchange the client sends them to the server. Perftest's exchange negotiates
//! nothing, so with it both ends need the same arguments.

use crate::port_args;
use clap::ValueEnum;
use serde::Deserialize;
use serde::de::{IntoDeserializer, value::Error as NoOp};
use spanwire_host::fabric::Error;
use spanwire_host::oob::perftest::{self, Test};
use spanwire_host::oob::{self, ModeChoice, Op};
use spanwire_host::quantity::size;
use std::net::IpAddr;

/// The exchange over the side connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum OobKind {
    /// Spanwire's own exchange: the client defines the measurement
    Spanwire,
    /// Perftest's exchange, for ib_write_bw and similar tools: both ends need the same options
    Perftest,
}

/// The measurement and the exchange. A server accepts most of these with `--oob perftest` only.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct TestArgs {
    /// Exchange over the side connection by which the ends set up queue pairs
    #[arg(long, value_enum, default_value_t = OobKind::Spanwire)]
    pub(super) oob: OobKind,
    /// Wire mode: auto (SR if both ends support it, else RC), rc, or sr
    #[arg(long, default_value = "auto", value_parser = port_args::mode)]
    pub(super) mode: ModeChoice,
    /// TCP port of the side connection [default: 18516, with perftest 18515]
    #[arg(short, long)]
    pub(super) port: Option<u16>,
    /// Operation to measure: send, write, read, fetch-add or cmp-swap; atomics have 8 bytes
    /// [default: write]
    #[arg(long, value_parser = op)]
    pub(super) op: Option<Op>,
    /// Message size in bytes; K, M and G are binary [default: 64K; with --lat 64, with --lat and
    /// perftest 2; atomics 8]
    #[arg(short, long, value_parser = size)]
    pub(super) size: Option<u64>,
    /// Queue pairs [default: 1]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) qps: Option<u32>,
    /// Messages outstanding on each queue pair [default: 16, with perftest 128]
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
    /// Retry limit: retransmissions without progress before the queue pair fails [default: 7]
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(super) retry: Option<u8>,
    /// perftest: messages on each queue pair [default: 1000; 5000 to write without --lat]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) iters: Option<u64>,
    /// perftest: both ends send
    #[arg(short = 'b', long)]
    pub(super) bidirectional: bool,
    /// perftest: IPv4 TOS or IPv6 traffic class of sent packets
    #[arg(long)]
    pub(super) tclass: Option<u8>,
    /// Local RoCE address, from which a client also makes the side connection [default: that of the
    /// side connection]
    #[arg(long, value_name = "IP")]
    pub(super) address: Option<IpAddr>,
    /// Accept peers whose RoCE address differs from that of their TCP connection. A peer can then
    /// direct packets to any address
    #[arg(long)]
    pub(super) any_address: bool,
}

impl TestArgs {
    /// TCP port of the side connection.
    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or(match self.oob {
            OobKind::Spanwire => oob::DEFAULT_PORT,
            OobKind::Perftest => perftest::DEFAULT_PORT,
        })
    }

    /// The operation.
    pub(super) fn op(&self) -> Op {
        self.op.unwrap_or(Op::Write)
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

    /// The message size in bytes: `--size`, else 8 for an atomic, else `default`.
    pub(super) fn size_or(&self, default: u32) -> Result<u32, Error> {
        let default = if self.op().is_atomic() { 8 } else { default };
        let size = self.size.unwrap_or(default.into());
        let size = u32::try_from(size).ok().filter(|s| (1..=1 << 30).contains(s));
        size.ok_or_else(|| "--size must be between 1 byte and 1 GiB".into())
    }

    /// The test for perftest's exchange, with perftest's defaults. The peer must run the same.
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

    /// Rejects options that apply to perftest's exchange only.
    pub(super) fn check_own_client(&self) -> Result<(), Error> {
        refuse(&self.perftest_only(), "needs --oob perftest")
    }

    /// Rejects options that the client sets in Spanwire's own exchange.
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

/// Parses an operation: its name, or that of the verb.
fn op(text: &str) -> Result<Op, String> {
    match text {
        "atomic" | "FETCH_AND_ADD" => Ok(Op::FetchAdd),
        "CMP_AND_SWAP" => Ok(Op::CmpSwap),
        name => Op::deserialize(name.into_deserializer()).map_err(|e: NoOp| e.to_string()),
    }
}

fn refuse(given: &[(&'static str, bool)], why: &str) -> Result<(), Error> {
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(format!("{name} {why}").into()),
        None => Ok(()),
    }
}
