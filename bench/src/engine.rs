//! The engine: two hosts, as `spanwire demo` runs them, each on its core.

use crate::connect::ACK_TIMEOUT;
use crate::quiet::{StealWatch, ThreadUse};
use crate::raw::both_sides;
use crate::sample::{Error, Latency, Rate, Reading, Sample};
use spanwire_host::fabric::{Attachment, Wrap};
use spanwire_host::oob::{Job, JobKind, ModeChoice, Oob, Op};
use spanwire_host::runner::{JobReport, JobRunner};
use spanwire_io::affinity;
use spanwire_io::driver::Polling;
use spanwire_io::net::{Host, TwoHosts};
use spanwire_io::xdp::XdpPreference;
use std::time::Duration;

/// A bandwidth job: 64 KiB messages, 16 outstanding on one queue pair.
#[must_use]
pub fn bandwidth(op: Op, path_mtu: u32, time: Duration) -> Job {
    let duration_ms = millis(time);
    job(JobKind::Bandwidth { duration_ms }, op, MESSAGE_BYTES, DEPTH, path_mtu)
}

/// A latency job: one message of `bytes` at a time. The peer replies to a SEND with a SEND.
#[must_use]
pub fn latency(op: Op, bytes: u32, path_mtu: u32, time: Duration) -> Job {
    let duration_ms = millis(time);
    job(JobKind::Latency { duration_ms }, op, bytes, 1, path_mtu)
}

/// Runs `job` from host `a` on the first core against `b` on the second, both spinning.
///
/// # Errors
/// A port cannot be opened, the exchange fails, or a request fails.
pub fn run(hosts: &TwoHosts, cores: [usize; 2], job: Job) -> Result<Sample, Error> {
    let (report, retransmitted, ends) = exchange(hosts, Some(cores), job, runner, runner)?;
    Ok(match reading(&report, retransmitted) {
        Reading::Rate(rate) => Sample::rate(rate, ends),
        reading @ Reading::Latency(_) => Sample { reading, stolen: ends.map(|end| end.stolen) },
    })
}

/// Like [`run`], with `client` applied to host `a` and `server` to `b`, and without `cores` on any.
/// Returns the report, the retransmissions, and the use of their cores by the two threads.
pub(crate) fn exchange(
    hosts: &TwoHosts,
    cores: Option<[usize; 2]>,
    job: Job,
    client: impl FnOnce(&Host) -> Result<JobRunner, Error> + Send,
    server: impl FnOnce(&Host) -> Result<JobRunner, Error> + Send,
) -> Result<(JobReport, u64, [ThreadUse; 2]), Error> {
    let (mut client_oob, server_oob) = Oob::pair()?;
    let pin = move |side: usize| cores.map_or(Ok(()), |cores| affinity::pin(cores[side]));
    let serve = move || -> Result<ThreadUse, Error> {
        pin(1)?;
        // Sockets belong to the namespace they are created in; the thread stays in it.
        let _entered = hosts.b.ns.enter()?;
        let mut runner = server(&hosts.b)?;
        let watch = StealWatch::start()?;
        runner.serve(server_oob, || false, |_| {})?;
        watch.thread_use()
    };
    let run = move || -> Result<(JobReport, u64, ThreadUse), Error> {
        pin(0)?;
        let _entered = hosts.a.ns.enter()?;
        let mut runner = client(&hosts.a)?;
        runner.handshake(&mut client_oob)?;
        let watch = StealWatch::start()?;
        let report = runner.run(&mut client_oob, job, &|| false, |_| {})?;
        let thread_use = watch.thread_use()?;
        Ok((report, retransmitted(&runner), thread_use))
    };
    let (client_result, server_result) = both_sides(run, serve);
    // The server's own error explains more than the client's "the peer went away".
    let use_b = server_result?;
    let (report, retransmitted, use_a) = client_result?;
    if let Some(failure) = report.progress.failure {
        return Err(format!("{job:?}: {failure}").into());
    }
    Ok((report, retransmitted, [use_a, use_b]))
}

/// The attachment of `host`: queue 0 of its interface.
pub(crate) fn attachment(host: &Host) -> Result<Attachment, Error> {
    Attachment::xdp(&host.ifname, 0, XdpPreference::Auto, &Wrap::default())
}

/// A runner on `host` as in `spanwire demo`, but busy-polling and in RC mode.
pub(crate) fn runner(host: &Host) -> Result<JobRunner, Error> {
    runner_on(attachment(host)?, host)
}

/// A runner on `host` that busy-polls, in RC mode.
pub(crate) fn runner_on(attachment: Attachment, host: &Host) -> Result<JobRunner, Error> {
    let mut runner = JobRunner::new(attachment, host.v4.into(), Polling::Busy)?;
    // RC, for comparison with raw packets of the same payload.
    runner.set_mode(ModeChoice::Rc, None);
    Ok(runner)
}

/// Packets are the goodput over the path MTU: retransmissions, and packets of messages that did not
/// complete, do not count.
fn reading(report: &JobReport, retransmitted: u64) -> Reading {
    if let JobKind::Latency { .. } = report.job.kind {
        let halves = if report.is_ping_pong() { 2.0 } else { 1.0 };
        return Reading::Latency(Latency {
            rtt_p50_us: report.latency_us(0.5) * halves,
            rtt_p99_us: report.latency_us(0.99) * halves,
        });
    }
    let goodput_gbps = report.gbps();
    Reading::Rate(Rate {
        goodput_gbps,
        packets_per_s: goodput_gbps * 1e9 / 8.0 / f64::from(report.job.path_mtu),
        lost: retransmitted,
        payload: report.job.path_mtu,
        bytes: report.progress.bytes,
        ..Rate::default()
    })
}

fn retransmitted(runner: &JobRunner) -> u64 {
    counter(&runner.counters(), RETRANSMITTED)
}

/// The counter of this name; zero if there is none.
pub(crate) fn counter(counters: &[(String, u64)], wanted: &str) -> u64 {
    counters.iter().find(|(name, _)| name == wanted).map_or(0, |(_, n)| *n)
}

/// A bandwidth job of messages of one packet each, on `qps` queue pairs.
pub(crate) fn packets(qps: u32, path_mtu: u32, time: Duration) -> Job {
    let kind = JobKind::Bandwidth { duration_ms: millis(time) };
    Job { qps, ..job(kind, Op::Write, path_mtu, DEPTH, path_mtu) }
}

fn job(kind: JobKind, op: Op, size: u32, depth: u32, path_mtu: u32) -> Job {
    Job { kind, op, size, qps: 1, depth, path_mtu, timeout: ACK_TIMEOUT, retry_cnt: 7 }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes of a message of a bandwidth job.
pub const MESSAGE_BYTES: u32 = 1 << 16;
/// Messages outstanding in a bandwidth job.
pub const DEPTH: u32 = 16;
const RETRANSMITTED: &str = "retransmitted_packets";

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_transport::Counters;

    #[test]
    fn retransmitted__is_a_counter_of_the_engine() {
        let names = Counters::default().list();
        assert!(names.iter().any(|(name, _)| name == RETRANSMITTED));
    }

    #[test]
    fn bandwidth__messages_are_whole_packets() {
        for path_mtu in [1024, 2048, 4096] {
            assert_eq!(MESSAGE_BYTES % path_mtu, 0);
        }
        let job = bandwidth(Op::Write, 1024, Duration::from_millis(300));
        assert_eq!((job.size, job.depth, job.qps), (65536, 16, 1));
        assert_eq!(job.kind, JobKind::Bandwidth { duration_ms: 300 });
    }
}
