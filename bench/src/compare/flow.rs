//! Bulk data of the engine: two ends of one queue pair, whose memory is compared afterwards.

use super::subject::Flow;
use super::writer::{DEPTH, Progress, Writer};
use crate::connect::{Far, Near};
use crate::engine::counter;
use crate::quiet::{StealWatch, ThreadUse};
use crate::raw::both_sides;
use crate::sample::{Error, Rate, Sample};
use spanwire_base::{Dur, Rng, Time, usize_from};
use spanwire_host::drive::drive;
use spanwire_host::fabric::{Attachment, Link, Terms};
use spanwire_host::modes::ModeChoice;
use spanwire_host::queue_pair::{self, QpParams, Sending};
use spanwire_host::seed;
use spanwire_io::affinity;
use spanwire_io::clock::Clock;
use spanwire_io::driver::Polling;
use spanwire_io::net::{Host, TwoHosts};
use spanwire_io::worker::{self, Core, Worker};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, Agreed, App, Counters, CqId, Endpoint, MemoryRegion, QpCaps, QpInit, RemoteAddr,
};
use std::io::BufReader;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Measures WRITEs from host `a` on the first core to `b` on the second for `time`, both spinning.
/// The last message in each slot is compared byte for byte, and both ends count alike.
///
/// # Errors
/// A port cannot be opened, a message fails, the counts differ, or bytes do.
pub(super) fn measure(
    hosts: &TwoHosts,
    cores: [usize; 2],
    flow: Flow,
    time: Duration,
) -> Result<Sample, Error> {
    // An end that fails drops its side of it, so that the other does not wait for it.
    let (side_a, side_b) = UnixStream::pair()?;
    let is_over = &AtomicBool::new(false);
    let write = move || {
        affinity::pin(cores[0])?;
        let _entered = hosts.a.ns.enter()?;
        End::open(&hosts.a, flow, side_a, true)?.write(flow, time)
    };
    let client = move || {
        let sent = write();
        is_over.store(true, Ordering::Relaxed);
        sent
    };
    let server = move || {
        affinity::pin(cores[1])?;
        let _entered = hosts.b.ns.enter()?;
        End::open(&hosts.b, flow, side_b, false)?.respond(is_over)
    };
    let (sent, received): (Result<Sent, Error>, Result<Ended, Error>) = both_sides(client, server);
    let (sent, received) = match (sent, received) {
        (Ok(sent), Ok(received)) => (sent, received),
        (Err(a), Err(b)) => return Err(format!("sender: {a}; receiver: {b}").into()),
        (Err(why), _) | (_, Err(why)) => return Err(why),
    };
    let rate = rate(flow, &sent, &received)?;
    Ok(Sample::rate(rate, [sent.end.thread_use, received.thread_use]))
}

/// Checks counts and bytes of both ends.
fn rate(flow: Flow, sent: &Sent, received: &Ended) -> Result<Rate, Error> {
    let messages = sent.progress.messages;
    if received.counters.rx_messages != messages {
        let counted = received.counters.rx_messages;
        return Err(format!("{messages} messages completed, the receiver counted {counted}").into());
    }
    let message_bytes = u64::from(flow.message_bytes);
    let bytes = messages * message_bytes;
    let verified_bytes = sent.progress.slots * message_bytes;
    compare(&sent.end.region, &received.region, usize_from(verified_bytes))?;
    let goodput_gbps = bytes as f64 * 8.0 / sent.progress.seconds().max(f64::MIN_POSITIVE) / 1e9;
    Ok(Rate {
        goodput_gbps,
        packets_per_s: goodput_gbps * 1e9 / 8.0 / f64::from(sent.payload),
        lost: sent.end.counters.retransmitted_packets,
        payload: sent.payload,
        bytes,
        verified_bytes,
        packets_per_call: sent.packets_per_call,
        ..Rate::default()
    })
}

/// Compares the first `bytes` of both ends.
///
/// # Errors
/// A byte differs.
fn compare(sent: &Region, received: &Region, bytes: usize) -> Result<(), Error> {
    let mut chunks = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
    for at in (0..bytes).step_by(CHUNK_BYTES) {
        let len = CHUNK_BYTES.min(bytes - at);
        let [ours, theirs] = chunks.each_mut().map(|chunk| &mut chunk[..len]);
        sent.copy_out(at, ours)?;
        received.copy_out(at, theirs)?;
        if ours != theirs {
            let same = ours.iter().zip(&*theirs).take_while(|(a, b)| a == b).count();
            return Err(format!("byte {} was received as another one", at + same).into());
        }
    }
    Ok(())
}

/// One end with its queue pair, which is connected.
struct End {
    clock: Clock,
    worker: Option<Worker<Endpoint, Box<dyn Link + Send>>>,
    cq: CqId,
    qp: QpParams,
    region: Region,
    mr: MemoryRegion,
    far: Far,
}

struct Sent {
    progress: Progress,
    payload: u32,
    packets_per_call: f64,
    end: Ended,
}

/// An end after its run.
struct Ended {
    region: Region,
    counters: Counters,
    thread_use: ThreadUse,
}

/// The application at the receiver: a WRITE needs none.
struct Passive;

impl App for Passive {
    fn poll(&mut self, _: Time, _: &mut Endpoint) {}
}

impl End {
    /// Opens a port of `host`, in whose namespace the calling thread is, and connects a queue pair
    /// to that at the other end of `side`.
    fn open(host: &Host, flow: Flow, side: UnixStream, is_client: bool) -> Result<Self, Error> {
        let mut attachment = flow.fabric.attach(host, flow.control)?;
        if !flow.icrc {
            attachment = attachment.without_icrc()?;
        }
        let config = flow.control.config(host, &attachment)?;
        let ip = IpAddr::from(host.v4);
        let end = (ip, attachment.packet_sizes().ip_bytes);
        let mode = ModeChoice::from_name(flow.mode.name()).ok_or("no such mode")?;
        let offer = attachment.offer(mode, &config, end, u32::MAX);
        let mut endpoint = seed::endpoint(config)?;
        let pd = endpoint.alloc_pd()?;
        let region = Region::try_zeroed(usize_from((DEPTH * flow.message_bytes).into()))?;
        let access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
        let mr = endpoint.reg_mr(pd, region.clone(), access, Some(0))?;
        let cq = endpoint.create_cq(DEPTH)?;
        let caps = QpCaps { max_send_wr: DEPTH, max_recv_wr: 0, ..QpCaps::default() };
        let qp = queue_pair::create(&mut endpoint, &QpInit::new(pd, cq, cq, caps), access)?;
        let memory = Some((mr.addr, mr.rkey.ok_or("no key")?));
        let sending = Sending { congestion: flow.control.choice(), ..Sending::default() };
        let near = Near { ip, is_client, offer, qps: vec![qp], memory, sending };
        side.set_read_timeout(Some(SILENCE))?;
        let far = near.connect(&mut endpoint, &mut attachment, &mut BufReader::new(side))?;
        let Attachment { port, terms: Terms { clock, .. } } = attachment;
        let bell = worker::bell(worker::Progress::Inline)?;
        let worker = Some(worker::worker(bell, endpoint, port, clock, Polling::Busy)?);
        Ok(Self { clock, worker, cq, qp, region, mr, far })
    }

    fn write(&mut self, flow: Flow, time: Duration) -> Result<Sent, Error> {
        fill(&self.region)?;
        let (va, rkey) = self.far.memory.ok_or("no memory")?;
        let time = Dur::from_ms(u64::try_from(time.as_millis())?);
        let writer = Writer {
            cq: self.cq,
            qp: self.qp,
            region: self.region.clone(),
            mr: self.mr,
            remote: RemoteAddr { va, rkey },
            message_bytes: flow.message_bytes,
            time,
            progress: Progress::default(),
        };
        let clock = self.clock;
        let (writer, end) = self.drive(writer, |writer| {
            writer.progress.end_overdue(clock.now(), time);
            writer.progress.is_done()
        })?;
        if let Some(why) = writer.progress.failure {
            return Err(why.into());
        }
        let payload = match self.far.agreed {
            Agreed::Rc => self.far.path_mtu.bytes(),
            Agreed::Sr(terms) => terms.segment_bytes,
        };
        let counters = self.with(|core| core.port.counters())?;
        let [packets, calls] =
            flow.fabric.call_counters().map(|name| counter(&counters, name) as f64);
        Ok(Sent {
            progress: writer.progress,
            end,
            payload,
            packets_per_call: if calls > 0.0 { packets / calls } else { 0.0 },
        })
    }

    fn respond(&mut self, is_over: &AtomicBool) -> Result<Ended, Error> {
        Ok(self.drive(Passive, |_| is_over.load(Ordering::Relaxed))?.1)
    }

    /// Drives `app` until `stop`, and returns it with the engine's counters.
    fn drive<A: App>(
        &mut self,
        app: A,
        mut stop: impl FnMut(&mut A) -> bool,
    ) -> Result<(A, Ended), Error> {
        let worker = self.worker.take().ok_or("the worker is in use")?;
        let watch = StealWatch::start()?;
        let (worker, app) = drive(worker, app, |node, _| stop(node.app_mut()));
        let thread_use = watch.thread_use()?;
        self.worker = Some(worker);
        let counters = self.with(|core| core.node.counters().clone())?;
        Ok((app?, Ended { region: self.region.clone(), counters, thread_use }))
    }

    fn with<R>(
        &self,
        call: impl FnOnce(&mut Core<Endpoint, Box<dyn Link + Send>>) -> R,
    ) -> Result<R, Error> {
        let called = self.worker.as_ref().and_then(|worker| worker.with_engine(|core| call(core)));
        Ok(called.ok_or("the worker has ended")?)
    }
}

/// Fills a region with random bytes.
fn fill(region: &Region) -> Result<(), Error> {
    let mut rng = Rng::new(u64::from_le_bytes(seed::random()?));
    let mut chunk = vec![0; CHUNK_BYTES];
    for at in (0..region.len()).step_by(CHUNK_BYTES) {
        let len = CHUNK_BYTES.min(region.len() - at);
        rng.fill(&mut chunk[..len]);
        region.copy_in(at, &chunk[..len])?;
    }
    Ok(())
}

const CHUNK_BYTES: usize = 1 << 16;
/// Opening a port may take seconds, if another was closed just before.
const SILENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compare__names_the_first_byte_that_differs() {
        let [a, b] = [(); 2].map(|()| Region::zeroed(CHUNK_BYTES + 100));
        fill(&a).unwrap();
        let mut all = vec![0; a.len()];
        a.copy_out(0, &mut all).unwrap();
        b.copy_in(0, &all).unwrap();
        compare(&a, &b, a.len()).unwrap();
        let at = CHUNK_BYTES + 7;
        b.copy_in(at, &[all[at] ^ 1]).unwrap();
        compare(&a, &b, at).unwrap();
        let why = compare(&a, &b, at + 1).unwrap_err().to_string();
        assert!(why.contains(&format!("byte {at} ")), "{why}");
    }
}
