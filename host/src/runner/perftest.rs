//! The job runner against perftest, in either role.

mod session;
mod steps;
mod traffic;

use super::client::JobReport;
use super::{HELLO_TIMEOUT, JobRunner, Needs, Peer, RD_ATOMIC, Setup, access, check};
use crate::fabric::Error;
use crate::initiator::{Initiator, PING_PONG_SENDS};
use crate::oob::perftest::{
    Exchange, Keys, PerftestError, Report, Round, Test, cycle_buffer_from, cycle_buffer_to_bytes,
    gid_of, mtu_from, mtu_to_bytes, version_from, version_to_bytes,
};
use crate::oob::{Job, JobKind, MemoryParams, Op, QpParams, REPLY_TIMEOUT};
use crate::target::Target;
use crate::write_ping_pong::{PingPongLane, WritePingPong};
use serde::Serialize;
use session::{AwaitedStep, Session};
use spanwire_base::Time;
use spanwire_transport::{Access, Agreed, MemoryRegion, Mtu, QpCaps};
use std::net::IpAddr;
use std::time::Duration;
use traffic::Traffic;

/// The result of a run against perftest.
pub struct PerftestOutcome {
    /// Our measurement; `None` if only the peer was active.
    pub report: Option<JobReport>,
    /// The peer.
    pub peer: PerftestPeer,
    /// Path MTU in payload bytes: the smaller of both ends'.
    pub path_mtu: u32,
    /// Messages received (SEND).
    pub messages: u64,
    /// True if the run and the exchange after it completed.
    pub complete: bool,
}

/// The peer and its report.
#[derive(Clone, Debug, Serialize)]
pub struct PerftestPeer {
    /// The version that it sent.
    pub version: String,
    /// Its RoCE address.
    pub ip: IpAddr,
    /// READs and atomics that it can respond to at a time.
    pub out_reads: u16,
    /// Its measurement; `None` if it was passive: perftest's passive end sends an uninitialised
    /// report.
    pub report: Option<Report>,
}

/// The parameters known before queue pairs are created.
struct Greeting {
    version: String,
    mtu: Mtu,
    /// Bytes of each queue pair's memory that the peer may access: a message, and at least the
    /// cycle buffer.
    window: u64,
}

impl JobRunner {
    /// Runs `test` with the perftest peer at the other end of `exchange`, in the role that
    /// `exchange` has. `watch` is called with the progress of our messages; `stop` ends the run.
    ///
    /// # Errors
    /// The exchange fails, the test is out of bounds, or the port is gone. A failed request is in
    /// the outcome's report.
    pub fn perftest(
        &mut self,
        exchange: Exchange,
        test: Test,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(Time, &Initiator),
    ) -> Result<PerftestOutcome, Error> {
        test.check()?;
        let (traffic, quiet_max) = (Traffic::default(), Duration::MAX);
        let mut session = Session { exchange, test, traffic, stop, watch, quiet_max };
        let greeting = self.greet_perftest(&mut session)?;
        let (job, needs) = self.plan(&session, &greeting)?;
        let setup = self.set_up(job, needs)?;
        let outcome = self.run_perftest(&mut session, &setup, greeting);
        self.tear_down(&setup);
        outcome
    }

    /// Exchanges version, sizes and path MTU.
    fn greet_perftest(&mut self, s: &mut Session<'_>) -> Result<Greeting, Error> {
        let largest = self.attachment.packet_sizes().to(s.exchange.peer_ip)?.path_mtu;
        let ours = match s.test.path_mtu {
            None => largest,
            Some(bytes) => {
                let wanted = Mtu::from_bytes(bytes).ok_or_else(|| {
                    format!("{bytes} is no path MTU (256, 512, 1024, 2048, 4096)")
                })?;
                if wanted > largest {
                    let largest = largest.bytes();
                    return Err(PerftestError::Mtu { wanted: bytes, largest }.into());
                }
                wanted
            }
        };
        // As a server, a shorter timeout applies, because other clients wait. A client may be one
        // of those, so it waits longer.
        let first = if s.exchange.is_client() { REPLY_TIMEOUT } else { HELLO_TIMEOUT };
        let first = AwaitedStep { step: "the version", quiet: first };
        let version = version_from(&self.exchange_message(s, first, &version_to_bytes())?)?;
        let cycle = cycle_buffer_to_bytes(CYCLE_BUFFER_BYTES);
        let cycle = self.exchange_message(s, AwaitedStep::of("the cycle buffer's size"), &cycle)?;
        let cycle = cycle_buffer_from(&cycle)?;
        let line = CACHE_LINE_BYTES.to_be_bytes();
        self.exchange_message(s, AwaitedStep::of("the cache line's size"), &line)?;
        let theirs =
            self.exchange_message(s, AwaitedStep::of("the path MTU"), &mtu_to_bytes(ours))?;
        let mtu = ours.min(mtu_from(&theirs)?);
        let window = s.test.size.max(CYCLE_BUFFER_BYTES).max(cycle);
        Ok(Greeting { version, mtu, window: window.into() })
    }

    /// The test as a job, and the resources for it.
    fn plan(&self, s: &Session<'_>, greeting: &Greeting) -> Result<(Job, Needs), Error> {
        let Test { op, latency, size, qps, depth, timeout, retry_cnt, .. } = s.test;
        // The job ends by count, not by time.
        let duration_ms = 0;
        let kind = match latency {
            true => JobKind::Latency { duration_ms },
            false => JobKind::Bandwidth { duration_ms },
        };
        let depth = if latency { 1 } else { depth };
        let path_mtu = greeting.mtu.bytes();
        let job = Job { kind, op, size, qps, depth, path_mtu, timeout, retry_cnt };
        check(&job, self.attachment.path_mtu)?;
        // Source of our messages and target of the peer's, for every queue pair.
        let bytes = greeting.window * u64::from(qps) * 2;
        if bytes > self.transfer_bytes_max {
            let max = self.transfer_bytes_max;
            let why = format!("this test takes {bytes} bytes of memory, above the {max} allowed");
            return Err(why.into());
        }
        let caps = QpCaps {
            max_send_wr: (depth * 2).max(PING_PONG_SENDS),
            max_recv_wr: Target::receives(&job),
            ..QpCaps::default()
        };
        let peer_acts = !s.exchange.is_client() || s.test.is_active(false);
        let access = if peer_acts { access(op) } else { Access::LOCAL_WRITE };
        let receives_apart = op == Op::Send && s.test.bidirectional;
        Ok((job, Needs { bytes, caps, access, receives_apart }))
    }

    fn run_perftest(
        &mut self,
        s: &mut Session<'_>,
        setup: &Setup,
        greeting: Greeting,
    ) -> Result<PerftestOutcome, Error> {
        let ours = self.keys(s, setup, greeting.window);
        let theirs = self.exchange_keys(s, setup, &ours, greeting.window)?;
        s.traffic.start();
        self.run_traffic(s)?;
        let mut outcome = PerftestOutcome {
            report: s.traffic.report(setup.job),
            peer: PerftestPeer {
                version: greeting.version,
                ip: theirs.ip()?,
                out_reads: theirs.out_reads,
                report: None,
            },
            path_mtu: setup.job.path_mtu,
            messages: 0,
            complete: false,
        };
        let failed = outcome.report.as_ref().is_some_and(|r| r.progress.failure.is_some());
        if !failed {
            s.quiet_max = CONCLUSION_TIMEOUT;
            let concluded = self.conclude(s, &ours[0], &mut outcome);
            outcome.complete = concluded.is_ok();
            match (concluded, &mut outcome.report) {
                (Ok(()), _) => {}
                // What we measured does not depend on the rest of the exchange.
                (Err(why), Some(report)) => report.missing = Some(why),
                (Err(why), None) => return Err(why),
            }
        }
        outcome.messages = s.traffic.messages();
        Ok(outcome)
    }

    /// The keys of our queue pairs.
    fn keys(&self, s: &Session<'_>, setup: &Setup, window: u64) -> Vec<Keys> {
        let out_reads = if s.test.op.is_rd_atomic() { RD_ATOMIC.into() } else { 1 };
        // The second half of the memory is the target of the peer's messages.
        let memory = setup.memory();
        let sink = memory.va + memory.len / 2;
        let key = |(params, n): (&QpParams, u64)| Keys {
            lid: 0,
            out_reads,
            qpn: params.qpn,
            psn: params.psn,
            rkey: memory.rkey,
            va: sink + n * window,
            gid: Some(gid_of(self.ip)),
            srqn: 0,
        };
        setup.params.iter().zip(0..).map(key).collect()
    }

    /// Exchanges all rounds of keys, connecting the queue pairs and posting receives between them.
    /// Returns the first queue pair's.
    fn exchange_keys(
        &mut self,
        s: &mut Session<'_>,
        setup: &Setup,
        ours: &[Keys],
        window: u64,
    ) -> Result<Keys, Error> {
        let mut connected = None;
        for round in s.test.rounds() {
            let said = match round {
                Round::One => &ours[..1],
                Round::All => ours,
            };
            let mut theirs = Vec::new();
            for keys in said {
                theirs.push(self.exchange_key_message(s, keys)?);
            }
            if *round == Round::All && connected.is_none() {
                self.connect_perftest(s, setup, &theirs)?;
                s.traffic = self.traffic(s, setup, &theirs, window)?;
                connected = theirs.first().copied();
            }
        }
        connected.ok_or_else(|| "no queue pairs".into())
    }

    fn connect_perftest(
        &mut self,
        s: &Session<'_>,
        setup: &Setup,
        theirs: &[Keys],
    ) -> Result<(), Error> {
        let ip = theirs[0].ip()?;
        if ip.is_ipv4() != self.ip.is_ipv4() {
            let why = format!(
                "the peer's RoCE address is {ip} and ours {}: give --address, or the peer \
                 another -x",
                self.ip
            );
            return Err(why.into());
        }
        let av = self.address_vector_to(ip, s.test.traffic_class)?;
        let (path_mtu, agreed) = (setup.job.path_mtu, Agreed::Rc);
        self.peer = Some(Peer { path_mtu, av, agreed, src_port: None });
        let params: Vec<_> = theirs.iter().map(|k| QpParams { qpn: k.qpn, psn: k.psn }).collect();
        let rd_atomic = u8::try_from(theirs[0].out_reads).unwrap_or(u8::MAX).min(RD_ATOMIC);
        if rd_atomic == 0 && s.test.op.is_rd_atomic() {
            return Err("the peer answers no READs and no atomics (its -o is 0)".into());
        }
        self.connect(setup, &params, rd_atomic, None).map(|_| ())
    }

    /// The applications of our role, with receives posted.
    fn traffic(
        &mut self,
        s: &Session<'_>,
        setup: &Setup,
        theirs: &[Keys],
        window: u64,
    ) -> Result<Traffic, Error> {
        let Test { op, latency, iterations, bidirectional, .. } = s.test;
        let is_client = s.exchange.is_client();
        let half = setup.mr.len / 2;
        let source = MemoryRegion { len: half, ..setup.mr };
        let sink = MemoryRegion { addr: setup.mr.addr + half, ..source };
        let lanes: Vec<_> =
            setup.qpns.iter().zip(theirs).map(|(qpn, keys)| (*qpn, memory(keys, window))).collect();
        let mut traffic = Traffic::default();
        if op == Op::Write && latency {
            let (qpn, remote) = lanes[0];
            let lane = PingPongLane {
                qpn,
                cq: setup.cq,
                size: setup.job.size,
                region: setup.region.clone(),
                source,
                watch_offset: half,
                remote,
            };
            traffic.ping_pong = Some(WritePingPong::new(lane, iterations, !is_client));
            return Ok(traffic);
        }
        if s.test.is_active(is_client) {
            let initiator = Initiator::new(setup.job, setup.cq, &lanes, source);
            traffic.active = Some(initiator.limited(iterations));
        }
        if op == Op::Send && (bidirectional || !is_client) {
            let mut target = Target::new(setup.job, setup.recv_cq, &setup.qpns, sink);
            let ep = &mut self.core()?.node;
            target.post_receives(ep);
            traffic.passive = Some(target);
        }
        Ok(traffic)
    }

    /// The exchange after the run.
    fn conclude(
        &mut self,
        s: &mut Session<'_>,
        ours: &Keys,
        outcome: &mut PerftestOutcome,
    ) -> Result<(), Error> {
        if s.test.has_barrier_after_run() {
            self.exchange_key_message(s, ours)?;
        }
        if s.test.has_reports() {
            let said = outcome.report.as_ref().map(perftest_report).unwrap_or_default();
            let mut fields = said.to_fields();
            for field in &mut fields {
                let theirs = self.exchange_message(s, AwaitedStep::of("the report"), field)?;
                *field = theirs.try_into().map_err(|_| "as many bytes come as went")?;
            }
            let measured = s.test.is_active(!s.exchange.is_client());
            outcome.peer.report = measured.then(|| Report::from_fields(fields));
        }
        if s.test.has_farewell() {
            self.exchange_key_message(s, ours)?;
        }
        self.close_exchange(s)
    }
}

/// The peer's memory of one queue pair.
fn memory(keys: &Keys, window: u64) -> MemoryParams {
    MemoryParams { va: keys.va, rkey: keys.rkey, len: window }
}

/// Our measurement in the tools' units: MiB/s and millions of messages per second. The peak is not
/// measured and therefore zero, as perftest's is in long runs.
fn perftest_report(r: &JobReport) -> Report {
    Report {
        size: r.job.size.into(),
        iterations: r.progress.messages,
        peak: 0.0,
        average: r.gbps() * 1e9 / 8.0 / f64::from(1 << 20),
        message_rate_mpps: r.messages_per_s() / 1e6,
    }
}

/// Idle timeout of the exchange after a run. The peer may run on for longer, but then it sends
/// packets.
const CONCLUSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Our cycle buffer, in bytes; perftest uses its page size.
const CYCLE_BUFFER_BYTES: u32 = 4096;

/// Our cache line, in bytes.
const CACHE_LINE_BYTES: u32 = 64;

#[cfg(test)]
mod tests;
