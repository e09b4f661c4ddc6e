//! Every limit of an endpoint, with its reason.

mod qpns;

pub use qpns::{QpnPrefix, QpnWorkers};

use qpns::{MAX_QPS, QpnLayout};
use spanwire_base::{Dur, Rate};
use spanwire_wire::{INT_MAX_HOPS, IntFormat, Qpn};
use std::fmt;
use std::ops::RangeInclusive;

/// Limits and defaults of one endpoint. Turn it into a [`ValidConfig`] to use it.
///
/// The effect of each limit is documented at its field: an error for a verb, a counted refusal for
/// a packet. Nothing grows beyond its limit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of queue pairs, 1..=65536. `create_qp` fails beyond. Default 1024.
    pub max_qps: u32,
    /// Top bits of all QPNs, so that packets can be steered to one of several endpoints by QPN. At
    /// least 8 bits beside it and the bits of `max_qps` stay random: 6 bits with 1024 queue pairs.
    /// Default none.
    pub qpn_prefix: Option<QpnPrefix>,
    /// Which of several endpoints of a process this is, 0..workers. Its QPNs name it, in the bits
    /// directly above those of `max_qps`, so that any of them can tell to which one a packet
    /// belongs ([`Config::qpn_workers`]). Default 0.
    pub worker: u8,
    /// The endpoints of the process, 1..=16. Those of 16 leave 10 bits of a QPN random with 1024
    /// queue pairs, and with one of them 14. Default 1.
    pub workers: u8,
    /// Completion queues, 1..=65536. `create_cq` fails beyond. Default 1024.
    pub max_cqs: u32,
    /// Protection domains, 1..=65536. `alloc_pd` fails beyond. Default 1024:
    /// one for each queue pair, so that peers need not share any.
    pub max_pds: u32,
    /// Shared receive queues, 1..=65536. `create_srq` fails beyond. Default 256.
    pub max_srqs: u32,
    /// Memory regions, 1..=1048576. `reg_mr` fails beyond. Default 65536: each rank of an MPI job
    /// registers hundreds. The tables grow with use. A peer's guess of an rkey succeeds with
    /// probability `regions / 2^32`.
    pub max_mrs: u32,
    /// Work requests a send or receive queue may hold, 1..=32768. Default 8192.
    pub max_wr: u32,
    /// Entries of a completion queue, 1..=4194304. Default 65536.
    pub max_cqe: u32,
    /// Longest message in bytes, 1..=2^30. Default 1 GiB: at path MTU 256 that is 2^22 PSNs, well
    /// inside the 2^23 that serial arithmetic can tell apart.
    pub max_msg_bytes: u32,
    /// Window of one queue pair: packets in flight, 1..=65536. Default 192: below the 256 frames
    /// that a veth ring and our receive ring hold (docs/decisions/0004).
    pub qp_window_pkts: u32,
    /// Window of the endpoint: packets in flight of all queue pairs together, at least
    /// qp_window_pkts + read_chunk_pkts, so that one queue pair never uses all of it. Default 224:
    /// one receive ring of 256 with room for ACKs. It is wide enough to fill the path on one host.
    pub endpoint_window_pkts: u32,
    /// Bytes of packets that the receive buffer of the other end has room for, if it is small as
    /// that of a UDP socket. With congestion control a queue pair's window is at most that, times
    /// the milliseconds of the least round trip if those are more than one. Default none: no limit.
    pub receive_room_bytes: Option<u32>,
    /// The port sends packets as fragments on request (`spanwire_base::TxMeta::may_fragment`), so
    /// that queue pairs discover a path MTU below the agreed one, if the peer takes fragments
    /// ([`AddressVector::takes_fragments`](crate::AddressVector::takes_fragments)). Default false.
    pub fragments: bool,
    /// The peer receives packets in batches and acknowledges the last one of each, as over UDP
    /// sockets. Congestion control takes ACKs of RC that it has coalesced for a delay of the host
    /// (`spanwire_cc::Ack::coalesced_bytes`). Default false.
    pub batches: bool,
    /// Interval of AckReq: at least one of so many request packets has it, 1..=qp_window_pkts.
    /// Default 16: an ACK costs about as much as a data packet, so 1:16 costs 6 %.
    pub ack_req_interval_pkts: u32,
    /// Packets of a READ requested at once (chunk), at least 1 and at most qp_window_pkts -
    /// ack_req_interval_pkts + 1. Default 32. A long READ becomes several READ requests on the
    /// wire. Its responses then stay inside the window above: the requester paces the responder.
    pub read_chunk_pkts: u32,
    /// Packets beyond the lowest missing one that SR accepts, 256..=1048576: the advertised PSN
    /// limit. Packets at or above it are dropped and counted. Default 65536: 100 ms at 7 Gbit/s in
    /// packets of 1400 bytes. Each takes one bit, at most 8 KiB a queue pair while packets are
    /// missing.
    pub reorder_pkts: u32,
    /// Bytes of partial parities of the FEC blocks received by one queue pair, 0..=2^30; blocks
    /// beyond are not recovered. Default 4 MiB: 500 incomplete blocks of two times 4 KiB.
    pub block_bytes_qp: u64,
    /// The same for all queue pairs of one peer address together. Default 64 MiB.
    pub block_bytes_peer: u64,
    /// Rate of the local port as congestion control knows it: the upper bound of the pacing of a
    /// queue pair. Default 100 Gbit/s.
    pub line_rate: Rate,
    /// Limit of everything that the port sends: all queue pairs together, every packet, with 24
    /// bytes of preamble, FCS and gap. What is sent in any time is the rate times it, and a burst:
    /// two of the longest packets or `catch_up`, a `pacing_quantum`, and up to 10 ms if the worker
    /// was late. Default none: a link paces itself.
    pub port_rate: Option<Rate>,
    /// Quantum of deficit round robin: bytes that one queue pair of weight 1 sends before the next
    /// one, 1024..=1048576. Default 16384: four of the longest packets, which amortises cache
    /// misses.
    pub turn_bytes: u32,
    /// How late a worker may be and still reach a paced rate: a burst of that time, at least two
    /// packets, 0..=4 ms. Default 4 us: 16 slots of the pacer's wheel, one or two passes of a
    /// spinning loop. A worker that sleeps and shares its core needs 250 us.
    pub catch_up: Dur,
    /// The longest time by which paced packets may leave early, to leave together, 0..=1 ms: those
    /// that are due within it, 64 KiB, and of a queue pair a tenth of the least round trip. Default
    /// 0: each packet leaves at its time, for which a worker that sleeps wakes up each time.
    pub pacing_quantum: Dur,
    /// Switches whose telemetry (INT) a packet requests if congestion control uses it, 1..=16. Full
    /// SR packets of such a queue pair are shorter by its room: a record for each switch, and 8.
    /// Default 8: the longest path of a data centre has five.
    pub int_hops: u8,
    /// Format of the telemetry records that packets request. Default full, 24 bytes: counters of
    /// compact ones, 8 bytes, wrap after 16.8 ms, so they suit only flows whose ACKs are at most
    /// 8.4 ms apart. A path with a longer round trip and a window of one packet has no such ACKs.
    pub int_format: IntFormat,
    /// Minimum interval between the CNPs of a queue pair (RC), 1 us..=1 s. Default 50 us: DCQCN 3.1
    /// and adapters. PACC's rivals have 4 us.
    pub cnp_interval: Dur,
    /// DSCP of CNPs, 0..=63. Default none: that of the queue pair's other packets. Adapters use 48,
    /// which switches prefer.
    pub cnp_dscp: Option<u8>,
    /// Elide payload in sent frames (`spanwire_base::TxMeta`), for simulations that do not examine
    /// it. Default false. A real port cannot send such frames.
    pub elide_payload: bool,
    /// Handle the packets that are expected next, and outer headers that were seen before, in fewer
    /// steps. Frames and completions are the same; a test compares both. Default true.
    pub fast_paths: bool,
}

/// A [`Config`] that has been validated.
#[derive(Clone, Debug)]
pub struct ValidConfig(Config);

/// A field of a configuration outside its range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// Smallest value allowed, given the other fields.
    pub min: u64,
    /// Largest value allowed, given the other fields.
    pub max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_qps: 1024,
            qpn_prefix: None,
            worker: 0,
            workers: 1,
            max_cqs: 1024,
            max_pds: 1024,
            max_srqs: 256,
            max_mrs: 65_536,
            max_wr: 8192,
            max_cqe: 65_536,
            max_msg_bytes: 1 << 30,
            qp_window_pkts: 192,
            endpoint_window_pkts: 224,
            receive_room_bytes: None,
            fragments: false,
            batches: false,
            ack_req_interval_pkts: 16,
            read_chunk_pkts: 32,
            reorder_pkts: 65_536,
            block_bytes_qp: 4 << 20,
            block_bytes_peer: 64 << 20,
            line_rate: Rate::from_gbps(100),
            port_rate: None,
            turn_bytes: 16_384,
            catch_up: Dur::from_us(4),
            pacing_quantum: Dur::ZERO,
            int_hops: 8,
            int_format: IntFormat::Full,
            cnp_interval: Dur::from_us(50),
            cnp_dscp: None,
            elide_payload: false,
            fast_paths: true,
        }
    }
}

impl Config {
    /// The [`pacing_quantum`](Config::pacing_quantum) of workers that sleep. Paced packets of a
    /// millisecond leave together, as those of kernel TCP do: a wake-up for each takes 20 times the
    /// processor time at 200 Mbit/s.
    pub const SLEEPER_QUANTUM: Dur = Dur::from_ms(1);

    /// The bits of QPNs that name a worker.
    #[must_use]
    pub fn qpn_workers(&self) -> QpnWorkers {
        self.qpns().workers()
    }

    /// The same for worker `worker` of `workers`.
    ///
    /// # Errors
    /// As [`Config::validate`]: there are too many queue pairs for so many workers.
    pub fn of_worker(&self, worker: u32, workers: u32) -> Result<ValidConfig, ConfigError> {
        let [worker, workers] = [worker, workers].map(|n| u8::try_from(n).unwrap_or(u8::MAX));
        Self { worker, workers, ..self.clone() }.validate()
    }

    pub(crate) fn qpns(&self) -> QpnLayout {
        let Self { max_qps, worker, workers, qpn_prefix: prefix, .. } = *self;
        QpnLayout { max_qps, worker, workers, prefix }
    }

    /// Checks every field against its range and its relation to the others.
    ///
    /// # Errors
    /// The first field that is outside its range.
    pub fn validate(self) -> Result<ValidConfig, ConfigError> {
        let range = |field, value: u32, min: u32, max: u32| {
            ConfigError::check(field, value.into(), min.into(), max.into())
        };
        range("max_qps", self.max_qps, 1, MAX_QPS)?;
        self.qpns().check(range)?;
        range("max_cqs", self.max_cqs, 1, 1 << 16)?;
        range("max_pds", self.max_pds, 1, 1 << 16)?;
        range("max_srqs", self.max_srqs, 1, 1 << 16)?;
        range("max_mrs", self.max_mrs, 1, 1 << 20)?;
        range("max_wr", self.max_wr, 1, 1 << 15)?;
        range("max_cqe", self.max_cqe, 1, 1 << 22)?;
        range("max_msg_bytes", self.max_msg_bytes, 1, 1 << 30)?;
        range("qp_window_pkts", self.qp_window_pkts, 1, 1 << 16)?;
        range("ack_req_interval_pkts", self.ack_req_interval_pkts, 1, self.qp_window_pkts)?;
        // Packets without AckReq stay in the window until a later one has it. They must leave room
        // for a chunk, or only a timeout would free the window.
        let chunk_max = self.qp_window_pkts - (self.ack_req_interval_pkts - 1);
        range("read_chunk_pkts", self.read_chunk_pkts, 1, chunk_max)?;
        // A queue pair whose peer does not respond must leave room for the others.
        let endpoint_min = self.qp_window_pkts + self.read_chunk_pkts;
        range("endpoint_window_pkts", self.endpoint_window_pkts, endpoint_min, 1 << 24)?;
        range("reorder_pkts", self.reorder_pkts, MIN_REORDER_PKTS, 1 << 20)?;
        let block_bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        range("block_bytes_qp", block_bytes(self.block_bytes_qp), 0, 1 << 30)?;
        range("block_bytes_peer", block_bytes(self.block_bytes_peer), 0, 1 << 30)?;
        range("turn_bytes", self.turn_bytes, 1024, 1 << 20)?;
        let catch_up_us = u32::try_from(self.catch_up.as_us()).unwrap_or(u32::MAX);
        range("catch_up", catch_up_us, 0, 4000)?;
        let quantum_us = u32::try_from(self.pacing_quantum.as_us()).unwrap_or(u32::MAX);
        range("pacing_quantum", quantum_us, 0, 1000)?;
        range("int_hops", self.int_hops.into(), 1, INT_MAX_HOPS.into())?;
        ConfigError::check("cnp_interval", self.cnp_interval.as_us(), 1, 1_000_000)?;
        range("cnp_dscp", self.cnp_dscp.unwrap_or(0).into(), 0, 63)?;
        Ok(ValidConfig(self))
    }

    /// The slot of a queue pair, of its QPN's value.
    #[inline]
    pub(crate) fn slot_of(&self, qpn: Qpn) -> u32 {
        qpn.get() & (self.max_qps.next_power_of_two() - 1)
    }
}

impl std::ops::Deref for ValidConfig {
    type Target = Config;
    fn deref(&self) -> &Config {
        &self.0
    }
}

impl Default for ValidConfig {
    fn default() -> Self {
        Config::default().validate().expect("the defaults are inside their ranges, tested below")
    }
}

impl ConfigError {
    /// Checks that `value` is in `min..=max`.
    ///
    /// # Errors
    /// It is not.
    pub fn check(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), Self> {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(Self { field, value, min, max })
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, min, max } = self;
        write!(f, "{field} is {value}, but must be between {min} and {max}")
    }
}

impl std::error::Error for ConfigError {}

/// PSN limit of every SR peer before its first ACK: packets beyond a gap.
pub(crate) const MIN_REORDER_PKTS: u32 = 256;

/// Scatter-gather elements of one work request. IBTA leaves the number to the device; common
/// hardware and rxe offer between 16 and 32.
pub(crate) const MAX_SGE: u32 = 16;

/// Inline bytes of one work request. They are allocated for every slot of a send queue, so the
/// bound is that of adapters, about a kilobyte.
pub(crate) const MAX_INLINE_DATA: u32 = 1024;

/// Payload bytes of an SR segment. Below, headers would be most of a packet; above, the length
/// field of IP would overflow.
pub(crate) const SEGMENT_BYTES: RangeInclusive<u32> = 64..=65_280;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default__is_valid() {
        assert_eq!(ValidConfig::default().qp_window_pkts, 192);
    }

    #[test]
    fn validate__names_the_field_and_its_range() {
        let wrong = Config { ack_req_interval_pkts: 193, ..Config::default() };
        let e = wrong.validate().unwrap_err();
        assert_eq!(e.to_string(), "ack_req_interval_pkts is 193, but must be between 1 and 192");
    }

    #[test]
    fn validate__packets_without_ack_req_leave_room_for_a_read() {
        let with =
            |read_chunk_pkts| Config { qp_window_pkts: 32, read_chunk_pkts, ..Config::default() };
        assert!(with(17).validate().is_ok());
        let e = with(18).validate().unwrap_err();
        assert_eq!((e.field, e.max), ("read_chunk_pkts", 17));
    }

    #[test]
    fn validate__a_dscp_has_six_bits() {
        let with = |cnp_dscp| Config { cnp_dscp, ..Config::default() };
        assert!([None, Some(0), Some(63)].map(with).into_iter().all(|c| c.validate().is_ok()));
        assert_eq!(with(Some(64)).validate().unwrap_err().field, "cnp_dscp");
    }

    #[test]
    fn validate__refuses_zero_everywhere() {
        let zeroed: [fn(&mut Config); 6] = [
            |c| c.max_qps = 0,
            |c| c.qp_window_pkts = 0,
            |c| c.read_chunk_pkts = 0,
            |c| c.endpoint_window_pkts = 0,
            |c| c.int_hops = 0,
            |c| c.cnp_interval = Dur::ZERO,
        ];
        for zero in zeroed {
            let mut c = Config::default();
            zero(&mut c);
            assert!(c.validate().is_err());
        }
    }
}
