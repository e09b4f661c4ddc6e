//! Packets for tests of agents.

use super::api::Site;
use super::passing::{FlowEnds, Passing, pair_hash};
use crate::config::PortConfig;
use spanwire_base::{Dur, Rate, Time};
use spanwire_wire::Qpn;

/// An agent at these ports of a switch with four ports of 100 Gbit/s, whose controlled queue is 2.
pub(crate) fn at_ports<T>(ports: &[u8], new: impl FnOnce(&Site<'_>) -> T) -> T {
    let all = vec![PortConfig::new(Rate::from_gbps(100)); 4];
    new(&Site { ports, all: &all, controlled: &[Some((0, 2)); 4] })
}

/// `us` microseconds.
pub(crate) fn at(us: u64) -> Time {
    Time::ZERO + Dur::from_us(us)
}

/// A data packet of `bytes` from host `source` to host `dest` over IPv4.
pub(crate) fn passing(source: u8, dest: u8, bytes: u64) -> Passing {
    let address = |n: u8| u128::from(u32::from_be_bytes([10, 0, 0, n])) << 96;
    let ends = FlowEnds {
        source: address(source),
        dest: address(dest),
        source_port: 0xc000,
        dest_qpn: Qpn::new(17),
        ..FlowEnds::default()
    };
    Passing {
        ends,
        pair: pair_hash(ends.source, ends.dest),
        is_data: true,
        source_qpn: None,
        sr: None,
        is_parity: false,
        ack: None,
        asks_credit: false,
        hop_limit: 64,
        wire_bytes: bytes,
    }
}
