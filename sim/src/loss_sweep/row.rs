//! Rows of the sweep's table, and the bars that they are checked against.

use super::cell::{Cell, MESSAGE_BYTES};
use crate::network::Network;
use crate::record::to_f64;
use serde::Serialize;
use spanwire_base::{Dur, Rate};
use spanwire_transport::{WcStatus, WireMode};

/// One row of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepRow {
    /// `rc` or `sr`.
    pub mode: &'static str,
    /// Frame loss each way, as a fraction.
    pub loss: f64,
    /// Twice the propagation delay, in us.
    pub rtt_us: f64,
    /// Extra delay of a reordered frame, in us; 0 disables reordering.
    pub reorder_us: f64,
    /// Payload delivered, each byte once, relative to what the link can carry in that time, as a
    /// fraction. The link's capacity includes every header, preamble and inter-frame gap.
    pub goodput_fraction: f64,
    /// The same for WRITEs completed at the sender. It lags behind delivery while a retransmission
    /// is pending, so it varies by up to several round trips' worth.
    pub completed_fraction: f64,
    /// Useless data frames that arrived, as a fraction of those sent. SR counts duplicates; RC also
    /// counts frames behind a gap, which the sender retransmits. The fraction thus measures
    /// retransmissions of packets that the network did not lose.
    pub spurious_retx_fraction: f64,
    /// Data frames sent.
    pub sent_pkts: u64,
    /// Of those, retransmissions.
    pub retransmitted_pkts: u64,
    /// Of those sent, lost on the link.
    pub lost_pkts: u64,
    /// Timeouts of the sender.
    pub timeouts: u64,
    /// Maximum packets in flight.
    pub window_pkts: u32,
    /// Payload of a full packet in bytes.
    pub payload_bytes: u32,
    /// Duration of the measurement, in us.
    pub measured_us: f64,
    /// The error that ended the flow, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<&'static str>,
    /// The event hash of its world, 16 hexadecimal digits.
    pub event_hash: String,
}

/// A bar: a condition that rows of the table must meet.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bar {
    /// Its description.
    pub name: &'static str,
    /// True if every row that it applies to meets it.
    pub ok: bool,
    /// Number of rows that it applies to.
    pub rows: usize,
    /// Rows that miss it.
    pub missed: Vec<String>,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    done_bytes: u64,
    arrived: u64,
    useless: u64,
    sent: u64,
    lost: u64,
    retransmitted: u64,
    timeouts: u64,
    failed: Option<WcStatus>,
}

impl Snapshot {
    pub(super) fn of(network: &Network) -> Self {
        let there = network.directions(0)[0];
        let flow = network.progress()[0];
        let mut hosts = network.engines().map(|host| host.endpoint().counters());
        let (sender, receiver) = hosts.next().zip(hosts.next()).expect("a pair has two hosts");
        // SR accepts packets out of order.
        let is_sr = network.setup().sr_segment([0, 1]).is_some();
        let gap = if is_sr { 0 } else { receiver.out_of_sequence };
        let dropped = receiver.list().into_iter().filter(|(name, _)| name.starts_with("drop_"));
        let dropped: u64 = dropped.map(|(_, n)| n).sum();
        Self {
            done_bytes: flow.done_bytes,
            arrived: network.world.link_counters(there).arrived,
            useless: receiver.duplicate_request + gap + dropped,
            sent: network.world.link_counters(there).sent,
            lost: network.world.line(there).counters().dropped(),
            retransmitted: sender.retransmitted_packets,
            timeouts: sender.local_ack_timeout_err,
            failed: flow.failed,
        }
    }
}

/// How the flow of a cell sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    /// Rate of the link.
    pub(super) rate: Rate,
    pub(super) payload_bytes: u32,
    pub(super) window_pkts: u32,
}

impl SweepRow {
    pub(super) fn new(
        cell: &Cell,
        sending: Sending,
        network: &Network,
        measured: Dur,
        [from, to]: &[Snapshot; 2],
    ) -> Self {
        let us = |d: Dur| to_f64(d.as_ps()) / 1e6;
        let sent_pkts = to.sent - from.sent;
        let useless = to.useless - from.useless;
        let taken = (to.arrived - from.arrived).saturating_sub(useless);
        let Sending { rate, payload_bytes, window_pkts } = sending;
        // Only the last segment of a message may be shorter.
        let segments = MESSAGE_BYTES.div_ceil(payload_bytes);
        let taken_bytes = to_f64(taken) * f64::from(MESSAGE_BYTES) / f64::from(segments);
        let carried = to_f64(rate.bytes_in(measured));
        Self {
            mode: if cell.mode == WireMode::Sr { "sr" } else { "rc" },
            loss: f64::from(cell.loss.ppb()) / 1e9,
            rtt_us: us(cell.rtt),
            reorder_us: us(cell.reorder),
            goodput_fraction: taken_bytes / carried,
            completed_fraction: to_f64(to.done_bytes - from.done_bytes) / carried,
            spurious_retx_fraction: to_f64(useless) / to_f64(sent_pkts.max(1)),
            sent_pkts,
            retransmitted_pkts: to.retransmitted - from.retransmitted,
            lost_pkts: to.lost - from.lost,
            timeouts: to.timeouts - from.timeouts,
            window_pkts,
            payload_bytes,
            measured_us: us(measured),
            failed: to.failed.map(WcStatus::name),
            event_hash: format!("{:016x}", network.world.event_hash().value()),
        }
    }

    /// The row's cell, in words.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { mode, loss, rtt_us, reorder_us, .. } = self;
        let loss = loss * 100.0;
        match *reorder_us > 0.0 {
            true => format!("{mode}, {rtt_us} us, reordered by {reorder_us} us"),
            false => format!("{mode}, {rtt_us} us, {loss} % lost"),
        }
    }

    fn is_sr(&self) -> bool {
        self.mode == "sr"
    }

    fn is_reordered(&self) -> bool {
        self.reorder_us > 0.0
    }
}

impl Bar {
    /// Checks a table against every bar that SR must meet.
    #[must_use]
    pub fn all(rows: &[SweepRow]) -> Vec<Self> {
        let sr = || rows.iter().filter(|r| r.is_sr());
        let rc = |of: &SweepRow| {
            let same = |r: &&SweepRow| {
                !r.is_sr()
                    && (r.loss, r.rtt_us, r.reorder_us) == (of.loss, of.rtt_us, of.reorder_us)
            };
            rows.iter().find(same).map_or(0.0, |r| r.goodput_fraction)
        };
        vec![
            Self::new(
                "SR has 0.9 x (1 - loss) of the link up to 5 % loss",
                sr().filter(|r| !r.is_reordered() && r.loss <= LOSS_MAX),
                |r| r.goodput_fraction >= GOODPUT_MIN * (1.0 - r.loss),
            ),
            Self::new(
                "SR retransmits at most 1 % spuriously if packets are only reordered",
                sr().filter(|r| r.is_reordered()),
                |r| r.spurious_retx_fraction <= SPURIOUS_MAX,
            ),
            Self::new("SR has at least the goodput of RC", sr(), |r| r.goodput_fraction >= rc(r)),
        ]
    }

    fn new<'a>(
        name: &'static str,
        about: impl Iterator<Item = &'a SweepRow>,
        holds: impl Fn(&SweepRow) -> bool,
    ) -> Self {
        let about: Vec<&SweepRow> = about.collect();
        let missed = about.iter().filter(|r| !holds(r)).map(|r| r.name()).collect::<Vec<_>>();
        Self { name, ok: missed.is_empty(), rows: about.len(), missed }
    }
}

/// Overhead of a full WRITE packet on the wire, with preamble, FCS and inter-frame gap: Ethernet,
/// IPv4, UDP, BTH, ICRC; in SR its header with the address of each segment.
pub(super) const fn header_bytes(mode: WireMode) -> u32 {
    let plain = 14 + 20 + 8 + 12 + 4 + 24;
    match mode {
        WireMode::Rc => plain,
        WireMode::Sr => plain + 24 + 16,
    }
}

const LOSS_MAX: f64 = 0.05;
const GOODPUT_MIN: f64 = 0.9;
const SPURIOUS_MAX: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(
        mode: &'static str,
        loss: f64,
        reorder_us: f64,
        goodput: f64,
        spurious: f64,
    ) -> SweepRow {
        SweepRow {
            mode,
            loss,
            rtt_us: 20.0,
            reorder_us,
            goodput_fraction: goodput,
            completed_fraction: goodput,
            spurious_retx_fraction: spurious,
            sent_pkts: 1,
            retransmitted_pkts: 0,
            lost_pkts: 0,
            timeouts: 0,
            window_pkts: 1,
            payload_bytes: 1,
            measured_us: 1.0,
            failed: None,
            event_hash: String::new(),
        }
    }

    #[test]
    fn all__each_bar_is_about_its_rows_and_names_those_below() {
        let pair = |loss, reorder_us, sr: SweepRow, rc| {
            [row("rc", loss, reorder_us, rc, 0.9), SweepRow { loss, reorder_us, ..sr }]
        };
        let sr = |goodput, spurious| row("sr", 0.0, 0.0, goodput, spurious);
        let good = [
            pair(0.05, 0.0, sr(0.855, 0.5), 0.4),
            pair(0.2, 0.0, sr(0.1, 0.0), 0.1),
            pair(0.0, 10.0, sr(0.5, 0.01), 0.1),
        ];
        let bars = Bar::all(good.as_flattened());
        assert!(bars.iter().all(|b| b.ok && b.missed.is_empty()), "{bars:?}");
        assert_eq!(bars.iter().map(|b| b.rows).collect::<Vec<_>>(), [1, 1, 3]);
        let bad = [
            pair(0.05, 0.0, sr(0.854, 0.0), 0.4),
            pair(0.2, 0.0, sr(0.1, 0.0), 0.11),
            pair(0.0, 10.0, sr(0.5, 0.011), 0.1),
        ];
        let missed: Vec<_> = Bar::all(bad.as_flattened()).into_iter().map(|b| b.missed).collect();
        let want = ["sr, 20 us, 5 % lost", "sr, 20 us, reordered by 10 us", "sr, 20 us, 20 % lost"];
        assert_eq!(missed, want.map(|name| vec![name.to_owned()]));
    }

    #[test]
    fn serialize__has_the_promised_members() {
        let json = serde_json::to_value(row("sr", 0.0001, 0.0, 0.5, 0.0)).unwrap();
        for member in ["mode", "loss", "rtt_us", "reorder_us"] {
            assert!(json.get(member).is_some(), "{member}");
        }
        assert_eq!((&json["goodput_fraction"], &json["loss"]), (&0.5.into(), &0.0001.into()));
        assert_eq!(json["spurious_retx_fraction"], 0.0);
        assert!(json.get("failed").is_none());
    }
}
