//! Processor time of both ends of a flow at a rate: `spanwire perf` as a user runs it, beside paced
//! kernel TCP.

use super::subject::{Fabric, Paced};
use crate::bed::{CONNECT_WITHIN, Running, parse_perf, unix_s};
use crate::quiet::{Scheduled, Stolen, idle_time};
use crate::sample::{Error, Rate, Reading, Sample};
use crate::tcp::{self, Bulk};
use spanwire_io::affinity;
use spanwire_io::net::{Host, Offloads, TwoHosts};
use std::num::NonZero;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

impl Paced {
    /// One sample of `time`.
    ///
    /// # Errors
    /// A process fails, or its connection; or no traffic is long enough.
    pub(super) fn measure(
        self,
        spanwire: &Path,
        hosts: &TwoHosts,
        cores: [usize; 2],
        time: Duration,
    ) -> Result<Sample, Error> {
        let cores = if self.one_core { [cores[0]; 2] } else { cores };
        let sample = match self.fabric {
            Some(fabric) => self.perf(fabric, spanwire, hosts, cores, time)?,
            None => self.tcp(hosts, cores, time)?,
        };
        // Ends on one core wait for each other.
        let stolen = if self.one_core { [Stolen::default(); 2] } else { sample.stolen };
        Ok(Sample { stolen, ..sample })
    }

    fn tcp(self, hosts: &TwoHosts, cores: [usize; 2], time: Duration) -> Result<Sample, Error> {
        let bps = self.mbps.map(|mbps| mbps * 1_000_000);
        let bulk = Bulk { bytes: WRITE_BYTES, bps, time };
        let (begin, idle) = (Instant::now(), idle_time()?);
        let mut sample = tcp::stream(hosts, cores, &Offloads::ON, bulk)?;
        if let Reading::Rate(rate) = &mut sample.reading {
            let idle = idle_time()?.saturating_sub(idle);
            rate.busy_cores = busy_cores(idle, begin.elapsed().as_secs_f64());
        }
        Ok(sample)
    }

    fn perf(
        self,
        fabric: Fabric,
        spanwire: &Path,
        TwoHosts { a, b }: &TwoHosts,
        cores: [usize; 2],
        time: Duration,
    ) -> Result<Sample, Error> {
        let fabric = if fabric == Fabric::AfXdp { "xdp" } else { "udp" };
        let server = ["perf", "server", "--fabric", fabric, "--dev", &b.ifname];
        let mut server = start(b, "b", cores[1], spanwire, &server)?;
        server.first_line(CONNECT_WITHIN)?;
        let (to, seconds) = (b.v4.to_string(), (SETTLED + time + SETTLED).as_secs_f64());
        let mut client = vec!["perf", "client", &to, "--fabric", fabric, "--dev", &a.ifname];
        let (seconds, rate) = (seconds.to_string(), self.mbps.map(|mbps| format!("{mbps}Mbit")));
        client.extend(["--json", "--seconds", &seconds]);
        client.extend(rate.iter().flat_map(|rate| ["--line-rate", rate]));
        let mut client = start(a, "a", cores[0], spanwire, &client)?;
        let (mut looks, deadline) = (Vec::new(), Instant::now() + time + CONNECT_WITHIN);
        while client.is_running()? && Instant::now() < deadline {
            looks.push(Look::new([&client, &server])?);
            thread::sleep(LOOK_EVERY);
        }
        let goodput = parse_perf(&client.output(CONNECT_WITHIN)?)?;
        let from = goodput.start_unix_s + SETTLED.as_secs_f64();
        let used = between(&looks, from, from + time.as_secs_f64());
        let (seconds, used, idle) =
            used.ok_or("no two looks at the processes within their traffic")?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
        let bytes = (goodput.bps * seconds / 8.0) as u64;
        let cpu_s = used.iter().map(|end| end.ran.as_secs_f64()).sum();
        let (goodput_gbps, busy_cores) = (goodput.bps / 1e9, busy_cores(idle, seconds));
        let rate = Rate { goodput_gbps, bytes, cpu_s, busy_cores, ..Rate::default() };
        let stolen = used.map(|end| Stolen(end.waited.as_secs_f64() / seconds));
        Ok(Sample { reading: Reading::Rate(rate), stolen })
    }
}

/// Starts a process on a core: it inherits the affinity of the thread that starts it.
fn start(
    host: &Host,
    name: &str,
    core: usize,
    program: &Path,
    args: &[&str],
) -> Result<Running, Error> {
    let start = || {
        affinity::pin(core)?;
        Running::start(host.ns.command(program)?, name, program, args)
    };
    thread::scope(|scope| scope.spawn(start).join().expect("it does not panic"))
}

/// The time that the processes of both ends had so far.
struct Look {
    unix_s: f64,
    ends: [Scheduled; 2],
    idle: Duration,
}

impl Look {
    fn new([a, b]: [&Running; 2]) -> Result<Self, Error> {
        let ends = [Scheduled::of_process(a.pid())?, Scheduled::of_process(b.pid())?];
        Ok(Self { unix_s: unix_s()?, ends, idle: idle_time()? })
    }
}

/// The longest period of `looks` between two times: its seconds, what each end had in it, and the
/// idle time of all cores.
fn between(looks: &[Look], from: f64, to: f64) -> Option<(f64, [Scheduled; 2], Duration)> {
    let mut within = looks.iter().filter(|look| (from..=to).contains(&look.unix_s));
    let (first, last) = (within.next()?, within.next_back()?);
    let ends = [0, 1].map(|n| last.ends[n].since(first.ends[n]));
    Some((last.unix_s - first.unix_s, ends, last.idle.saturating_sub(first.idle)))
}

/// Cores that were not idle in so many seconds.
fn busy_cores(idle: Duration, seconds: f64) -> f64 {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    (cores as f64 - idle.as_secs_f64() / seconds).max(0.0)
}

/// The default size of a message of `perf`.
const WRITE_BYTES: usize = 64 << 10;
/// Left out after the begin of the traffic and before its end.
const SETTLED: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between__is_the_time_of_both_ends_within_the_traffic() {
        let ms = Duration::from_millis;
        let look = |n: u32| Look {
            unix_s: 1000.0 + f64::from(n),
            ends: [10, 20].map(|each| Scheduled { ran: ms(each) * n, waited: ms(1) * n }),
            idle: ms(100) * n,
        };
        let looks: Vec<Look> = (0..10).map(look).collect();
        let (seconds, [a, b], idle) = between(&looks, 1001.5, 1006.0).unwrap();
        assert!((seconds - 4.0).abs() < 1e-6);
        assert_eq!((a.ran, b.ran, b.waited), (ms(40), ms(80), ms(4)));
        assert_eq!(idle, ms(400));
        assert!(between(&looks, 1001.5, 1002.5).is_none(), "one look is no period");
    }
}
