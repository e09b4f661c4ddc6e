//! RC compared with SR on a lossy or reordering path. Each cell of the sweep is a world of its own
//! with one flow, measured in its steady state.

mod cell;
mod row;

pub use cell::Cell;
pub use row::{Bar, SweepRow};

use crate::check::check_now;
use crate::network::{Network, NetworkError};
use crate::params::{ParamError, Params, Value};
use crate::setup::Setup;
use crate::topology::Topology;
use crate::workload::Flow;
use cell::MESSAGE_BYTES;
use row::{Sending, Snapshot};
use spanwire_base::{Dur, Rate, Time, u32_from, usize_from};
use spanwire_switch::{Impairments, Prob, Reorder};
use spanwire_transport::{Config, Mtu, Offer, WireMode};

/// A sweep over modes, round trips, losses and reordering.
///
/// Two hosts and a cable carry one endless flow of elided WRITEs, with a window as long as the
/// path: see [`LossSweep::window_pkts`]. Loss and reordering apply to both directions.
#[derive(Clone, Debug)]
pub struct LossSweep {
    seed: u64,
    params: Params,
}

/// The result of a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct CellOutcome {
    /// Its row of the table.
    pub row: SweepRow,
    /// Events of its world.
    pub events: u64,
    /// Frames that left a host.
    pub packet_hops: u64,
    /// Violations, one sentence each.
    pub violations: Vec<String>,
}

impl LossSweep {
    /// Its name, as in `spanwire sim run NAME`.
    pub const NAME: &'static str = "loss-sweep";
    /// One sentence for users.
    pub const ABOUT: &'static str =
        "RC and SR compared: goodput over random loss, round trip and reordering";

    /// The parameters with their defaults.
    #[must_use]
    pub fn params() -> Params {
        let mtus = vec!["256", "512", "1024", "2048", "4096"];
        let percent = [0, 100, 1_000, 10_000, 50_000, 200_000].map(Prob::from_ppm);
        let rtts = [Dur::from_us(20), Dur::from_ms(2), Dur::from_ms(40)];
        let late = [10, 100, 1_000].map(Dur::from_us);
        let overtaken = Value::Chance(Prob::from_ppm(50_000));
        let segment = Value::Count { n: 8_192, min: 64, max: 65_280 };
        Params::default()
            .with("rate", Value::Rate(Rate::from_gbps(25)), "rate of the link")
            .with("loss", Value::Chances(percent.to_vec()), "frames lost, each way")
            .with("rtt", Value::Times(rtts.to_vec()), "twice the propagation delay")
            .with(
                "late",
                Value::Times(late.to_vec()),
                "extra delay of reordered frames, without loss",
            )
            .with("overtaken", overtaken, "frames that are reordered then, each way")
            .with(
                "mtu",
                Value::Word { word: "4096".to_owned(), of: mtus },
                "RC's path MTU in bytes",
            )
            .with("segment", segment, "bytes of a full SR packet")
            .with("warmup", Value::count(20, 10_000), "round trips before the measurement")
            .with("trips", Value::count(50, 100_000), "minimum round trips measured")
            .with("time", Value::Time(Dur::from_ms(500)), "minimum time measured")
    }

    /// The sweep for a seed, with parameters set by `set`: pairs of name and value.
    ///
    /// # Errors
    /// The first parameter that cannot be set.
    pub fn new<'a>(
        seed: u64,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParamError> {
        let mut params = Self::params();
        for (name, value) in set {
            params.set(name, value)?;
        }
        Ok(Self { seed, params })
    }

    /// The parameters of this sweep.
    #[must_use]
    pub fn parameters(&self) -> &Params {
        &self.params
    }

    /// The cells of the sweep: for each round trip every loss, then every reordering without loss,
    /// RC and SR in turn.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for rtt in self.params.times("rtt") {
            let lossy = self.params.chances("loss").iter().map(|loss| (*loss, Dur::ZERO));
            let reordered = self.params.times("late").iter().map(|late| (Prob::ZERO, *late));
            for (loss, reorder) in lossy.chain(reordered) {
                let of = |mode| Cell { mode, loss, rtt: *rtt, reorder };
                cells.extend([WireMode::Rc, WireMode::Sr].map(of));
            }
        }
        cells
    }

    /// Runs a cell to its end.
    ///
    /// # Errors
    /// See [`NetworkError`]: the parameters contradict each other.
    pub fn run(&self, cell: &Cell) -> Result<CellOutcome, NetworkError> {
        let rate = self.params.rate("rate");
        let from = Time::ZERO + cell.rtt * u64::from(self.params.count("warmup"));
        let trips = cell.rtt * u64::from(self.params.count("trips"));
        let to = from + trips.max(self.params.time("time"));
        // More than the link can carry, so that the flow never ends.
        let bytes = rate.bytes_in(to.since(Time::ZERO)) * 2 + (1 << 30);
        let flows = vec![Flow::new(0, 1, Time::ZERO, bytes)];
        let setup = self.setup(cell);
        let mut network = Network::new(Topology::pair(rate, cell.rtt / 2), flows, setup)?;
        let held =
            Reorder { probability: self.params.chance("overtaken"), extra_delay: cell.reorder };
        let reorder = (cell.reorder > Dur::ZERO).then_some(held);
        for direction in network.directions(0) {
            let impairments = Impairments { loss: cell.loss, reorder, ..Impairments::default() };
            network.impair(direction, impairments)?;
        }
        let seen = [from, to].map(|until| {
            network.world.run(until, u64::MAX, &mut ());
            Snapshot::of(&network)
        });
        let world = network.world.counters();
        let (events, packet_hops) = (world.events, world.packet_hops);
        let (payload_bytes, window_pkts) = (self.payload_bytes(cell.mode), self.window_pkts(cell));
        let sending = Sending { rate, payload_bytes, window_pkts };
        let row = SweepRow::new(cell, sending, &network, to.since(from), &seen);
        Ok(CellOutcome { row, events, packet_hops, violations: check_now(&network) })
    }

    /// Payload of a full packet in bytes.
    #[must_use]
    pub fn payload_bytes(&self, mode: WireMode) -> u32 {
        match mode {
            WireMode::Rc => self.mtu().bytes(),
            WireMode::Sr => self.params.count("segment"),
        }
    }

    /// The window of a cell. It is the sum of three terms: the packets that fill the path for a
    /// round trip and the reordering delay; the packets that the receiver may leave unacknowledged,
    /// a quarter of the path and at most 16; and the packet being serialised.
    #[must_use]
    pub fn window_pkts(&self, cell: &Cell) -> u32 {
        let path = self.path_pkts(cell);
        (path + (path + 1).div_ceil(3).clamp(1, ACK_PKTS) + 1).min(WINDOW_MAX)
    }

    /// Full packets that the link carries in a round trip plus the reordering delay.
    fn path_pkts(&self, cell: &Cell) -> u32 {
        let frame = self.payload_bytes(cell.mode) + row::header_bytes(cell.mode);
        let bytes = self.params.rate("rate").bytes_in(cell.rtt + cell.reorder);
        u32::try_from(bytes.div_ceil(frame.into())).unwrap_or(WINDOW_MAX).clamp(1, WINDOW_MAX)
    }

    fn setup(&self, cell: &Cell) -> Setup {
        let path = self.path_pkts(cell);
        // Packets that queue behind one that is lost several times in a row. Of 10,000 packets at
        // 20 % loss the unluckiest takes about eight round trips.
        let behind = u64::from(path) * BEHIND;
        let outstanding =
            behind * u64::from(self.payload_bytes(cell.mode)) / u64::from(MESSAGE_BYTES);
        let reorder_pkts = u32_from(usize_from(behind.next_power_of_two().clamp(1 << 12, 1 << 20)));
        let limits = Config { reorder_pkts, ..Config::default() };
        let is_sr = cell.mode == WireMode::Sr;
        let segment = is_sr.then_some(self.payload_bytes(WireMode::Sr));
        Setup {
            seed: self.seed,
            mtu: self.mtu(),
            offer: Offer::of(&limits, segment),
            elided: true,
            message_bytes: MESSAGE_BYTES,
            outstanding: u32_from(usize_from(outstanding.clamp(16, 8_192))),
            window_pkts: self.window_pkts(cell),
            ack_interval_pkts: (path / 4).clamp(1, ACK_PKTS),
            timeout: (cell.rtt + cell.reorder) * 4,
            ..Setup::default()
        }
    }

    fn mtu(&self) -> Mtu {
        let mtu = self.params.word("mtu").parse().ok().and_then(Mtu::from_bytes);
        mtu.expect("the parameter allows only these")
    }
}

/// Maximum packets per acknowledgement, in both modes.
const ACK_PKTS: u32 = 16;
/// The engine's limit of a window.
const WINDOW_MAX: u32 = 1 << 16;
/// Windows that may have arrived, or be posted, behind a missing packet.
const BEHIND: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn short(set: &[(&str, &str)]) -> LossSweep {
        let all = [("time", "20ms"), ("trips", "20"), ("late", ""), ("rtt", "200us")];
        LossSweep::new(7, all.iter().chain(set).copied()).unwrap()
    }

    fn rows(sweep: &LossSweep) -> Vec<SweepRow> {
        let run = |cell: &Cell| {
            let outcome = sweep.run(cell).unwrap();
            assert_eq!(outcome.violations, [] as [&str; 0], "{cell:?}");
            assert!(outcome.packet_hops > 0 && outcome.events >= outcome.packet_hops);
            outcome.row
        };
        sweep.cells().iter().map(run).collect()
    }

    #[test]
    fn new__an_unknown_parameter_is_named_in_the_error() {
        let wrong = LossSweep::new(1, [("losses", "1%")]);
        assert!(matches!(wrong, Err(ParamError::Unknown { .. })));
    }

    #[test]
    fn cells__every_loss_and_every_reordering_at_every_round_trip_in_both_modes() {
        let sweep = LossSweep::new(1, []).unwrap();
        let cells = sweep.cells();
        assert_eq!(cells.len(), 3 * (6 + 3) * 2);
        let both = cells.chunks(2).all(|pair| {
            [pair[0].mode, pair[1].mode] == [WireMode::Rc, WireMode::Sr]
                && Cell { mode: WireMode::Sr, ..pair[0] } == pair[1]
        });
        assert!(both, "RC and SR of the same path are adjacent");
        assert!(cells.iter().all(|c| c.loss.is_zero() || c.reorder == Dur::ZERO));
    }

    #[test]
    fn run__a_cell_is_reproducible_and_differs_by_seed() {
        let cell = |sweep: &LossSweep| sweep.run(&sweep.cells()[1]).unwrap();
        let sweep = short(&[("loss", "1%")]);
        assert_eq!(cell(&sweep), cell(&sweep));
        let other = LossSweep { seed: 8, ..sweep.clone() };
        assert_ne!(cell(&sweep).row.event_hash, cell(&other).row.event_hash);
    }

    #[test]
    fn run__without_loss_only_headers_reduce_goodput() {
        for (set, rc, sr) in [
            ([("mtu", "4096"), ("segment", "8192")], 4096.0 / 4178.0, 8192.0 / 8314.0),
            ([("mtu", "1024"), ("segment", "1416")], 1024.0 / 1106.0, 1416.0 / 1538.0),
        ] {
            let rows = rows(&short(&[&[("loss", "0")], &set[..]].concat()));
            let got = [&rows[0], &rows[1]].map(|r| r.goodput_fraction);
            assert!((got[0] - rc).abs() < 0.002 && (got[1] - sr).abs() < 0.002, "{got:?}");
            assert!(rows.iter().all(|r| r.retransmitted_pkts + r.lost_pkts == 0));
            assert!(rows.iter().all(|r| (r.completed_fraction - r.goodput_fraction).abs() < 0.02));
        }
    }

    #[test]
    fn run__lost_frames_are_neither_goodput_nor_spurious() {
        let rows = rows(&short(&[("loss", "0,10%")]));
        let [rc, sr] = [&rows[2], &rows[3]];
        assert_eq!((rc.loss, sr.loss, sr.rtt_us), (0.1, 0.1, 200.0));
        let arrived = (sr.sent_pkts - sr.lost_pkts) as f64 / sr.sent_pkts as f64;
        assert!((arrived - 0.9).abs() < 0.02 && sr.goodput_fraction < 0.9, "{sr:?}");
        assert!(sr.spurious_retx_fraction < 0.001 && rc.spurious_retx_fraction > 0.1, "{rc:?}");
        assert!(sr.goodput_fraction > 5.0 * rc.goodput_fraction, "{rc:?}");
    }

    #[test]
    fn window_pkts__is_the_path_and_the_ack_interval() {
        let sweep = LossSweep::new(1, [("rate", "10Gbit")]).unwrap();
        let cell = |mode, rtt, reorder| Cell { mode, loss: Prob::ZERO, rtt, reorder };
        // 50 MB in frames of 8314 bytes, plus 16 and 1.
        let long = cell(WireMode::Sr, Dur::from_ms(40), Dur::ZERO);
        assert_eq!(sweep.window_pkts(&long), 6_014 + 17);
        // 25 kB are four frames; one acknowledgement covers a quarter of seven.
        let short = cell(WireMode::Sr, Dur::from_us(20), Dur::ZERO);
        assert_eq!(sweep.window_pkts(&short), 4 + 3);
        assert_eq!(sweep.window_pkts(&Cell { reorder: Dur::from_us(20), ..short }), 7 + 4);
        assert_eq!(sweep.window_pkts(&Cell { mode: WireMode::Rc, ..long }), 11_968 + 17);
        let endless = cell(WireMode::Rc, Dur::from_secs(10), Dur::ZERO);
        assert_eq!(sweep.window_pkts(&endless), WINDOW_MAX);
    }
}
