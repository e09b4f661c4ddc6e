//! Processes, each on a host of its own, that share a bottleneck of the switch.
//!
//! The servers share the port behind the bottleneck. Rates are so low that two cores do not limit
//! them. Only the algorithm is set: path and hosts calibrate it.

use super::stage::{Stage, counter};
use crate::bed::{self, Bed, Goodput, Running, Servers};
use crate::sample::Error;
use serde_json::Value;
use std::time::Duration;

/// A bottleneck of 50 Mbit/s with a round trip of 8 ms, and its traffic.
#[derive(Clone, Copy)]
struct Bottleneck<'a> {
    clients: u32,
    /// The queue of the bottleneck, as keys of port a.
    queue: &'a str,
    /// Further tables of the switch's file.
    tables: &'a str,
    seconds: u32,
    /// Options of each client.
    args: &'a [&'a str],
}

/// The result of a run.
struct Outcome {
    /// Each client's rate over the last half of the common time, in Mbit/s.
    mbps: Vec<f64>,
    /// Samples of the bottleneck's queue in that time, sorted.
    queue_bytes: Vec<f64>,
    reports: Vec<Value>,
    /// The state of the switch after the run.
    switch: Value,
}

pub(super) fn auto_two(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let outcome = Bottleneck::PLAIN.run(stage)?;
    Ok(outcome.shares())
}

pub(super) fn auto_four(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let outcome = Bottleneck { clients: 4, ..Bottleneck::PLAIN }.run(stage)?;
    Ok(outcome.shares())
}

/// Also the 90th percentile of the queue: the phantom queue drains nine tenths of the rate.
pub(super) fn unocc_two(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let args = &["--cc", "unocc"];
    let outcome = Bottleneck { queue: PHANTOM, args, ..Bottleneck::PLAIN }.run(stage)?;
    let queue = &outcome.queue_bytes;
    Ok([outcome.shares(), vec![queue[queue.len() * 9 / 10]]].concat())
}

/// A flow has 13 packets in flight, and a mark takes a part of them: over 3 s of a round trip of 8
/// ms Jain's index is 0.95 give or take 0.02, over 8 s 0.97.
pub(super) fn unocc_four(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let args = &["--cc", "unocc"];
    let plain = Bottleneck { clients: 4, seconds: 16, ..Bottleneck::PLAIN };
    Ok(Bottleneck { queue: PHANTOM, args, ..plain }.run(stage)?.shares())
}

pub(super) fn swift_two(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    Ok(Bottleneck { args: &["--cc", "swift"], ..Bottleneck::PLAIN }.run(stage)?.shares())
}

/// By CNPs.
pub(super) fn dcqcn_rc(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let args = &["--cc", "dcqcn", "--mode", "rc"];
    Ok(Bottleneck { queue: RED, args, ..Bottleneck::PLAIN }.run(stage)?.shares())
}

/// By counts of marks.
pub(super) fn dcqcn_sr(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let args = &["--cc", "dcqcn", "--mode", "sr"];
    Ok(Bottleneck { queue: RED, args, ..Bottleneck::PLAIN }.run(stage)?.shares())
}

/// Three clients of an agent that sends CNPs: shares, mean queue, CNPs that were ignored because
/// several arrived at once, and CNPs that did not arrive.
pub(super) fn pacc(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let outcome = of_dcqcn(stage, PACC)?;
    let agents = outcome.switch["agents"].as_array().ok_or("the switch reports no agents")?;
    let feedback = |agent: &Value| agent["counters"]["feedback_tx"].as_u64();
    let made: u64 = agents.iter().filter_map(feedback).sum();
    let sum = |name| -> u64 { outcome.reports.iter().map(|report| counter(report, name)).sum() };
    let (handled, ignored) = (sum("rp_cnp_handled"), sum("drop_ignored_cnp"));
    let ignored_percent = ignored as f64 / made as f64 * 100.0;
    let not_received = made.abs_diff(handled + ignored) as f64;
    Ok([outcome.shares(), vec![outcome.mean_queue(), ignored_percent, not_received]].concat())
}

/// The same clients without the agent, and without marks: shares and mean queue.
pub(super) fn without_pacc(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let outcome = of_dcqcn(stage, "")?;
    Ok([outcome.shares(), vec![outcome.mean_queue()]].concat())
}

/// Three clients with DCQCN of adapters, and these tables in the switch's file.
fn of_dcqcn(stage: &Stage<'_>, tables: &str) -> Result<Outcome, Error> {
    // A host's port is as fast as the bottleneck, as in the paper. All CNPs count: a late host
    // finds some together that were sent 2 ms apart, and by default one in a round trip counts. The
    // defaults of the timers are those of 25 Gbit/s. At another rate a user scales them.
    let cc =
        ["--mode", "rc", "--line-rate", "50Mbit", "--cc", "dcqcn-rnic", "--cnp-spacing", "75us"];
    let set = DCQCN.iter().flat_map(|set| ["--cc-set", *set]);
    let args: Vec<&str> = cc.into_iter().chain(set).collect();
    Bottleneck { clients: 3, seconds: 12, tables, args: &args, ..Bottleneck::PLAIN }.run(stage)
}

impl Bottleneck<'_> {
    /// Two clients with the default algorithm for 6 s.
    const PLAIN: Self = Self { clients: 2, queue: "", tables: "", seconds: 6, args: &[] };

    /// The switch's file.
    fn config(&self) -> String {
        let line = "delay = '4ms'\nqueue.limit_bytes = '1MB'\n";
        let bottleneck = format!("seed = 3\n[port.a]\nrate = '50Mbit'\n{line}{}", self.queue);
        let client = |n: u32| format!("[port.c{n}]\nrate = '10Gbit'\n{line}");
        let clients: String = (1..=self.clients).map(client).collect();
        format!("{bottleneck}{clients}{}", self.tables)
    }

    /// Runs all clients at the same time.
    fn run(&self, stage: &Stage<'_>) -> Result<Outcome, Error> {
        let bed = stage.switched(&self.config())?;
        let _macvlans = Servers::new(&bed, self.clients)?;
        let all = 1..=self.clients;
        let servers: Result<Vec<Running>, Error> =
            all.clone().map(|n| stage.server(&bed, &Servers::host(n), &[])).collect();
        let servers = servers?;
        let show = ["switch", "ctl", "--lab", bed.name(), "--json", "show", "--interval", "0.05"];
        let sampler = bed.spanwire_here(&show)?;
        let clients: Result<Vec<Running>, Error> =
            all.map(|n| self.start(stage, &bed, n)).collect();
        let reports: Result<Vec<Value>, Error> =
            clients?.into_iter().map(|client| stage.report(client)).collect();
        let samples = sampler.kill();
        drop(servers);
        Outcome::of(reports?, self.seconds, &samples, bed.show()?)
    }

    fn start(&self, stage: &Stage<'_>, bed: &Bed, n: u32) -> Result<Running, Error> {
        let seconds = self.seconds.to_string();
        let timed = ["-i", "0.1", "-t", &seconds];
        let args = [&timed[..], self.args].concat();
        stage.start_client(bed, &format!("c{n}"), Servers::address(n), &args)
    }
}

impl Outcome {
    fn of(
        reports: Vec<Value>,
        seconds: u32,
        samples: &[String],
        switch: Value,
    ) -> Result<Self, Error> {
        let flows: Result<Vec<Goodput>, Error> =
            reports.iter().map(|report| bed::parse_perf(&report.to_string())).collect();
        let mut flows = flows?;
        for flow in &mut flows {
            flow.end_at(Duration::from_secs(seconds.into()));
        }
        let half = bed::common_half(flows.iter());
        let mbps = flows.iter().map(|flow| flow.mean_bps(half.0, half.1) / 1e6).collect();
        let mut queue_bytes = bed::queue_bytes(samples, "a", half);
        queue_bytes.sort_by(f64::total_cmp);
        if queue_bytes.len() < SAMPLES_MIN {
            return Err(format!("{} samples of the switch only", queue_bytes.len()).into());
        }
        Ok(Self { mbps, queue_bytes, reports, switch })
    }

    /// Jain's index, which is 1 if all rates are equal, and the total.
    fn shares(&self) -> Vec<f64> {
        vec![spanwire_sim::jain(&self.mbps).unwrap_or(0.0), self.mbps.iter().sum()]
    }

    fn mean_queue(&self) -> f64 {
        bed::mean(&self.queue_bytes).unwrap_or(f64::NAN)
    }
}

const SAMPLES_MIN: usize = 5;

const PHANTOM: &str =
    "[port.a.queue.phantom]\nsize_bytes = '80kB'\nkmin_bytes = '15kB'\nkmax_bytes = '40kB'\n";

const RED: &str = "[port.a.queue.ecn]\nkmin_bytes = '10kB'\nkmax_bytes = '50kB'\npmax = '20%'\n";

/// PACC at 50 Mbit/s: times are 500 times those of 25 Gbit/s, and the reference queue is half a
/// period of the line, as in the paper.
const PACC: &str = "[[agent]]\nkind = 'pacc'\nports = ['a']\nperiod = '40ms'\nspacing = '2ms'\n\
                    threshold_bytes = '125kB'\n";

/// Adapters' timers, also 500 times as long; an increase that adds a hundredth of the link.
const DCQCN: [&str; 8] = [
    "preset=paper",
    "alpha_us=500",
    "decrease_us=100",
    "increase_us=150000",
    "cnp_us=2000",
    "additive_mbps=0.5",
    "hyper_mbps=5",
    "min_mbps=0.5",
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(start: f64, mbit: u32) -> Value {
        let interval = |n: u32| {
            let (start_s, end_s) = (f64::from(n) / 10.0, f64::from(n + 1) / 10.0);
            json!({"start_s": start_s, "end_s": end_s, "bytes": mbit * 12_500})
        };
        let intervals: Vec<Value> = (0..10).map(interval).collect();
        json!({"error": null, "start_unix_s": start, "perf": [{"gbps": 0}],
               "intervals": intervals})
    }

    fn line(at: f64, bytes: u64) -> String {
        json!({"at_unix_s": at, "ports": [{"name": "a", "queue_bytes": bytes}]}).to_string()
    }

    #[test]
    fn of__is_the_last_half_of_the_common_time() {
        // Common: 100.2 to 101.0; half of it begins at 100.6.
        let reports = vec![report(100.0, 30), report(100.2, 10)];
        let mut lines: Vec<String> =
            (0..8).map(|n| line(100.65 + 0.04 * f64::from(n), 90)).collect();
        lines.extend([line(100.3, 7), line(101.1, 7), "{\"at_un".to_owned()]);
        let outcome = Outcome::of(reports, 1, &lines, Value::Null).unwrap();
        assert_eq!(outcome.queue_bytes, [90.0; 8]);
        let shares = outcome.shares();
        assert!((shares[0] - 0.8).abs() < 1e-6 && (shares[1] - 40.0).abs() < 1e-3, "{shares:?}");
    }

    #[test]
    fn of__a_switch_that_was_not_sampled_is_an_error() {
        let reports = vec![report(100.0, 30), report(100.0, 10)];
        assert!(Outcome::of(reports, 1, &[line(100.9, 1)], Value::Null).is_err());
    }

    #[test]
    fn config__has_the_queue_in_its_port_and_a_port_for_each_client() {
        let config = Bottleneck { clients: 3, queue: PHANTOM, ..Bottleneck::PLAIN }.config();
        let at = |part: &str| config.find(part).expect(part);
        assert!(at("[port.a]") < at("[port.a.queue.phantom]"));
        assert!(at("kmax_bytes") < at("[port.c1]") && at("[port.c1]") < at("[port.c3]"));
    }
}
