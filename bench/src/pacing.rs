//! Deviation of each packet of paced queue pairs from its time.
//!
//! The engine writes from one namespace to another over a veth pair, with AF_XDP at both ends, at a
//! constant rate. The time of a packet is that at which the sender rings the doorbell of its ring.
//! Its nominal time is that of the previous packet of the same queue pair plus that packet's
//! transmission time at the rate. Both late and early packets are deviations: a late queue pair may
//! catch up.

pub mod tap;

use crate::ends::fixed_rate;
use crate::engine;
use crate::machine::Machine;
use crate::rounds::interleaved;
use crate::sample::Error;
use crate::stats::{Spread, cell};
use serde::Serialize;
use spanwire_base::{Rate, Time};
use spanwire_host::quantity::number;
use spanwire_host::runner::Sending;
use spanwire_io::net::{Host, LabConfig, TwoHosts};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tap::{Log, Submitted, Tap};

/// The plan of a run.
#[derive(Clone, PartialEq, Debug, Serialize, clap::Args)]
pub struct Plan {
    /// Samples of each
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Milliseconds of a sample
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub ms: u64,
    /// Rate of all queue pairs together, 10^6 bits a second
    #[arg(long, default_value_t = 200.0, value_parser = |text: &str| number(text, 0.001..=1e5))]
    pub mbit: f64,
    /// Numbers of paced queue pairs
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 1000],
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub qps: Vec<u32>,
    /// Cores of the sender and the receiver
    #[arg(long, num_args = 2, value_names = ["SENDER", "RECEIVER"], default_values_t = [0, 1])]
    pub cores: Vec<usize>,
    /// Print JSON instead of tables
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

/// The report of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The plan.
    pub plan: Plan,
    /// A row for each number of queue pairs.
    pub rows: Vec<Row>,
    /// The largest share of a sample that other programs took of a core, 0..=1.
    pub stolen_max: f64,
}

/// The result for a number of queue pairs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The number of queue pairs.
    pub qps: u32,
    /// The nominal time between two packets of one queue pair, in microseconds.
    pub gap_us: f64,
    /// Bytes sent over the nominal bytes, by sample.
    pub achieved: Option<Spread>,
    /// Median of the absolute deviation of a gap, in microseconds, by sample.
    pub error_p50_us: Option<Spread>,
    /// 99th percentile of the absolute deviation.
    pub error_p99_us: Option<Spread>,
    /// Gaps of all samples by deviation: below each of [`EDGES_US`], and above.
    pub histogram: Vec<u64>,
}

/// Upper edges of the histogram, in microseconds.
pub const EDGES_US: [f64; 10] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0, 10_000.0];

/// Gaps of one sample.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Gaps {
    /// The absolute deviation of each, in microseconds, in ascending order.
    errors_us: Vec<f64>,
    achieved: f64,
    /// The most by which a queue pair was ahead of its rate over any period, in microseconds.
    ahead_us: f64,
}

/// Measures all of `plan`. `watch` receives the round and the number of queue pairs before each
/// sample and cancels the run by returning true.
///
/// # Errors
/// No privilege, a sample fails or has no gap, or the run was cancelled.
pub fn run(plan: &Plan, mut watch: impl FnMut(u32, &str) -> bool) -> Result<Report, Error> {
    let hosts = TwoHosts::anonymous(&LabConfig::default())?;
    let mut samples: Vec<Vec<Gaps>> = vec![Vec::new(); plan.qps.len()];
    let mut stolen_max: f64 = 0.0;
    for (round, i) in interleaved(plan.rounds, plan.qps.len()) {
        if watch(round, &format!("{} queue pairs", plan.qps[i])) {
            return Err("interrupted".into());
        }
        let (gaps, stolen) = sample(&hosts, plan, plan.qps[i])?;
        stolen_max = stolen_max.max(stolen);
        samples[i].push(gaps);
    }
    let rows = plan.qps.iter().zip(&samples);
    Ok(Report {
        machine: Machine::this(),
        plan: plan.clone(),
        rows: rows.map(|(qps, samples)| Row::new(plan, *qps, samples)).collect(),
        stolen_max,
    })
}

fn sample(hosts: &TwoHosts, plan: &Plan, qps: u32) -> Result<(Gaps, f64), Error> {
    let mbit = plan.mbit / f64::from(qps);
    let congestion = Some(fixed_rate(Some(mbit), None)?);
    let cores = <[usize; 2]>::try_from(&*plan.cores)?;
    let log = Log::default();
    let (notes, time) = (log.clone(), Duration::from_millis(plan.ms));
    let job = engine::packets(qps, PATH_MTU, time);
    let client = move |host: &Host| {
        let mut attachment = engine::attachment(host)?;
        let clock = attachment.clock;
        attachment.port = Box::new(Tap::new(attachment.port, clock, notes));
        let mut runner = engine::runner_on(attachment, host)?;
        runner.set_sending(Sending { congestion, ..Sending::default() });
        Ok(runner)
    };
    let (_, _, ends) = engine::exchange(hosts, Some(cores), job, client, engine::runner)?;
    let gaps = Gaps::of(&log.take(), rate_of(mbit)).ok_or("too short for two packets each")?;
    Ok((gaps, ends[0].stolen.0.max(ends[1].stolen.0)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number of bits a second below 2^40"
)]
fn rate_of(mbit: f64) -> Rate {
    Rate::from_bps(((mbit * 1e6) as u64).max(1))
}

impl Gaps {
    /// The gaps of queue pairs that are paced to `rate` each. The first tenth of the time does
    /// not count: queue pairs begin with a burst. `None` if there is no gap.
    fn of(packets: &[Submitted], rate: Rate) -> Option<Self> {
        let (first, last) = (packets.first()?.at, packets.last()?.at);
        let begin = first + last.since(first) / 10;
        let mut before: BTreeMap<u32, (Time, u32)> = BTreeMap::new();
        let (mut errors_us, mut sent_ps, mut took_ps) = (Vec::new(), 0.0, 0.0);
        let (mut ahead_ps, mut ahead_max_ps) = (BTreeMap::new(), 0.0_f64);
        for p in packets.iter().filter(|p| p.at >= begin) {
            if let Some((at, bytes)) = before.insert(p.qpn.get(), (p.at, p.wire_bytes)) {
                let (gap, want) = (p.at.since(at).as_ps(), rate.time_for(bytes.into()).as_ps());
                errors_us.push(gap.abs_diff(want) as f64 / 1e6);
                sent_ps += want as f64;
                took_ps += gap as f64;
                let ahead: &mut f64 = ahead_ps.entry(p.qpn.get()).or_default();
                *ahead = (*ahead + want as f64 - gap as f64).max(0.0);
                ahead_max_ps = ahead_max_ps.max(*ahead);
            }
        }
        errors_us.sort_by(f64::total_cmp);
        let (achieved, ahead_us) = (sent_ps / took_ps, ahead_max_ps / 1e6);
        (!errors_us.is_empty()).then_some(Self { errors_us, achieved, ahead_us })
    }

    fn quantile(&self, q: f64) -> f64 {
        let n = self.errors_us.len();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and a length"
        )]
        let i = (q * n as f64) as usize;
        self.errors_us[i.min(n - 1)]
    }
}

impl Row {
    fn new(plan: &Plan, qps: u32, samples: &[Gaps]) -> Self {
        let spread =
            |of: &dyn Fn(&Gaps) -> f64| Spread::of(&samples.iter().map(of).collect::<Vec<f64>>());
        let mut histogram = vec![0; EDGES_US.len() + 1];
        for error in samples.iter().flat_map(|s| &s.errors_us) {
            histogram[EDGES_US.partition_point(|edge| edge <= error)] += 1;
        }
        let rate = rate_of(plan.mbit / f64::from(qps));
        Self {
            qps,
            gap_us: rate.time_for(WIRE_BYTES).as_ps() as f64 / 1e6,
            achieved: spread(&|s| s.achieved),
            error_p50_us: spread(&|s| s.quantile(0.5)),
            error_p99_us: spread(&|s| s.quantile(0.99)),
            histogram,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rounds, ms, mbit, .. } = self.plan;
        let stolen = self.stolen_max * 100.0;
        writeln!(out, "{}", self.machine)?;
        writeln!(
            out,
            "{mbit} Mbit/s in all, packets of {PATH_MTU} bytes; median [least..most] of {rounds} \
             samples of {ms} ms; others had a core for up to {stolen:.0} % of a sample\n"
        )?;
        writeln!(
            out,
            "paced QPs   gap, us    achieved                gap error p50, us       \
             gap error p99, us"
        )?;
        for row in &self.rows {
            writeln!(
                out,
                "{:>9}   {:<8.1}   {:<22}  {:<22}  {}",
                row.qps,
                row.gap_us,
                cell(row.achieved, 4),
                cell(row.error_p50_us, 2),
                cell(row.error_p99_us, 1),
            )?;
        }
        write!(out, "\nshare of gaps off by less than, us:\npaced QPs")?;
        for edge in EDGES_US {
            write!(out, " {edge:>7}")?;
        }
        writeln!(out, "    more")?;
        for row in &self.rows {
            write!(out, "{:>9}", row.qps)?;
            let total = row.histogram.iter().sum::<u64>().max(1) as f64;
            for n in &row.histogram {
                write!(out, " {:>6.2}%", *n as f64 / total * 100.0)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Payload of a packet.
const PATH_MTU: u32 = 1024;
/// The bytes on the wire: a WRITE of one packet, which has a RETH, over IPv4.
const WIRE_BYTES: u64 = 1024 + 14 + 20 + 8 + 12 + 16 + 4 + 24;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_wire::Qpn;

    fn packet(us: u64, qpn: u32) -> Submitted {
        let qpn = Qpn::new(qpn);
        Submitted { at: Time::from_ns(us * 1000), qpn, wire_bytes: 1250 }
    }

    #[test]
    fn gaps__are_of_one_queue_pair_after_the_beginning() {
        // 1250 bytes at 100 Mbit/s: 100 us.
        let packets = [(0, 1), (1, 1), (400, 1), (450, 2), (501, 1), (549, 2), (4000, 3)]
            .map(|(us, qpn)| packet(us, qpn));
        let gaps = Gaps::of(&packets, Rate::from_bps(100_000_000)).unwrap();
        assert_eq!(gaps.errors_us, [1.0, 1.0]);
        assert!((gaps.achieved - 1.0).abs() < 1e-9);
        assert!((gaps.ahead_us - 1.0).abs() < 1e-9, "99 us after the packet before");
        assert!(Gaps::of(&packets[..1], Rate::from_gbps(1)).is_none());
    }

    #[test]
    fn row__quantiles_and_histogram() {
        let plan =
            Plan { rounds: 1, ms: 1, mbit: 100.0, qps: vec![2], cores: vec![0, 1], json: false };
        let errors_us = (0..1000).map(|i| f64::from(i) / 100.0).collect();
        let row = Row::new(&plan, 2, &[Gaps { errors_us, achieved: 0.999, ahead_us: 0.0 }]);
        assert_eq!(row.histogram, [50, 50, 100, 300, 500, 0, 0, 0, 0, 0, 0]);
        assert!((row.error_p50_us.unwrap().median - 5.0).abs() < 1e-9);
        assert!((row.error_p99_us.unwrap().median - 9.9).abs() < 1e-9);
        assert!((row.gap_us - 179.52).abs() < 1e-9);
        let (machine, rows) = (Machine::this(), vec![row]);
        let text = Report { machine, plan, rows, stolen_max: 0.0 }.to_string();
        assert!(text.contains("0.9990") && text.contains("50.00%"), "{text}");
    }

    #[test]
    fn run__over_a_veth_pair() {
        if spanwire_io::affinity::usable_cores().len() < 2 || !rustix::process::geteuid().is_root()
        {
            eprintln!("SKIPPED: needs root and two cores");
            return;
        }
        let words = ["--rounds", "1", "--ms", "300", "--mbit", "20", "--qps", "1,5"];
        let plan: Plan = crate::testing::options(&words).unwrap();
        let rows = run(&plan, |_, _| false).unwrap().rows;
        for row in &rows {
            assert!(row.achieved.unwrap().median > 0.0, "{rows:?}");
            assert!(row.histogram.iter().sum::<u64>() > 0, "{rows:?}");
        }
        // `virtual_time` tests the precision of the rate: here a core may be preempted for any
        // time. No queue pair is ever faster than its rate. Its token bucket lets it catch up on a
        // delay of 10 ms and send two packets at once: before a period begins, and within it.
        const CATCH_UP_US: f64 = 2.0 * 10_000.0;
        let plan = Plan { ms: 600, ..plan };
        let hosts = TwoHosts::anonymous(&LabConfig::default()).unwrap();
        for row in &rows {
            let (gaps, _) = sample(&hosts, &plan, row.qps).unwrap();
            let ahead_max_us = CATCH_UP_US + 5.0 * row.gap_us;
            assert!(gaps.ahead_us < ahead_max_us, "{} of {ahead_max_us}", gaps.ahead_us);
        }
    }
}

#[cfg(test)]
mod virtual_time;
