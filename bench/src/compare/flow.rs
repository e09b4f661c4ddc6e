//! Bulk data of the engine: two ends of one queue pair, whose memory is compared afterwards.

use super::subject::Flow;
use super::writer::{DEPTH, Progress, Writer};
use crate::quiet::{StealWatch, ThreadUse};
use crate::raw::both_sides;
use crate::sample::{Error, Rate, Sample};
use spanwire_base::{Dur, Rng, Time, usize_from};
use spanwire_host::drive::drive;
use spanwire_host::fabric::{Attachment, Link, Terms};
use spanwire_host::modes::settle_between;
use spanwire_host::queue_pair::{self, Connect, QpParams, RD_ATOMIC, Route, Sending};
use spanwire_host::seed;
use spanwire_io::affinity;
use spanwire_io::driver::Polling;
use spanwire_io::net::{Host, TwoHosts};
use spanwire_io::worker::{self, Core, Worker};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, Agreed, App, Counters, CqId, Endpoint, MemoryRegion, Mtu, Offer, QpCaps, QpInit,
    RemoteAddr,
};
use spanwire_wire::Ecn;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
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
    let [to_a, to_b] = [channel(), channel()];
    let lines = [Line { to: to_b.0, from: to_a.1 }, Line { to: to_a.0, from: to_b.1 }];
    let [line_a, line_b] = lines;
    let is_over = &AtomicBool::new(false);
    // An end that fails drops its line, so that the other does not wait for it.
    let client = move || {
        let _end = SetAtEnd(is_over);
        affinity::pin(cores[0])?;
        let _entered = hosts.a.ns.enter()?;
        let mut end = End::open(&hosts.a, flow)?;
        let theirs = end.connect(&line_a, flow, true)?;
        end.write(flow, &theirs, time)
    };
    let server = move || {
        affinity::pin(cores[1])?;
        let _entered = hosts.b.ns.enter()?;
        let mut end = End::open(&hosts.b, flow)?;
        end.connect(&line_b, flow, false)?;
        end.respond(is_over)
    };
    let (sent, received): (Result<Sent, Error>, Result<Received, Error>) =
        both_sides(client, server);
    let (sent, received) = match (sent, received) {
        (Ok(sent), Ok(received)) => (sent, received),
        (Err(a), Err(b)) => return Err(format!("sender: {a}; receiver: {b}").into()),
        (Err(why), _) | (_, Err(why)) => return Err(why),
    };
    let rate = rate(flow, &sent, &received)?;
    Ok(Sample::rate(rate, [sent.thread_use, received.thread_use]))
}

/// Checks counts and bytes of both ends.
fn rate(flow: Flow, sent: &Sent, received: &Received) -> Result<Rate, Error> {
    let messages = sent.progress.messages;
    if received.counters.rx_messages != messages {
        let counted = received.counters.rx_messages;
        return Err(format!("{messages} messages completed, the receiver counted {counted}").into());
    }
    let message_bytes = u64::from(flow.message_bytes);
    let bytes = messages * message_bytes;
    let verified_bytes = sent.progress.slots * message_bytes;
    compare(&sent.region, &received.region, usize_from(verified_bytes))?;
    let goodput_gbps = bytes as f64 * 8.0 / sent.progress.seconds().max(f64::MIN_POSITIVE) / 1e9;
    Ok(Rate {
        goodput_gbps,
        packets_per_s: goodput_gbps * 1e9 / 8.0 / f64::from(sent.payload),
        lost: sent.counters.retransmitted_packets,
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

/// One end with its queue pair.
struct End {
    attachment: Terms,
    worker: Option<Worker<Endpoint, Box<dyn Link + Send>>>,
    cq: CqId,
    qp: QpParams,
    region: Region,
    mr: MemoryRegion,
    offer: Offer,
    ip: IpAddr,
    agreed: Agreed,
    path_mtu: Mtu,
}

/// Numbers, memory and capabilities of an end, for the other.
#[derive(Clone, Copy)]
struct Hello {
    qp: QpParams,
    memory: RemoteAddr,
    offer: Offer,
    ip: IpAddr,
    path_mtu: Mtu,
    side_poll: Option<u16>,
}

/// The connection between the two threads: a hello, then `None` once the end is connected.
struct Line {
    to: Sender<Option<Hello>>,
    from: Receiver<Option<Hello>>,
}

struct Sent {
    progress: Progress,
    region: Region,
    counters: Counters,
    payload: u32,
    packets_per_call: f64,
    thread_use: ThreadUse,
}

struct Received {
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
    /// Opens a port of `host`, in whose namespace the calling thread is.
    fn open(host: &Host, flow: Flow) -> Result<Self, Error> {
        let mut attachment = flow.fabric.attach(host, flow.control)?;
        if !flow.icrc {
            attachment = attachment.without_icrc()?;
        }
        let config = flow.control.config(host, &attachment)?;
        let ip = IpAddr::from(host.v4);
        let end = (ip, attachment.packet_sizes().ip_bytes);
        let offer = attachment.offer(flow.mode.choice(), &config, end, u32::MAX);
        let mut endpoint = seed::endpoint(config)?;
        let pd = endpoint.alloc_pd()?;
        let region = Region::try_zeroed(usize_from((DEPTH * flow.message_bytes).into()))?;
        let access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
        let mr = endpoint.reg_mr(pd, region.clone(), access, Some(0))?;
        let cq = endpoint.create_cq(DEPTH)?;
        let caps = QpCaps { max_send_wr: DEPTH, max_recv_wr: 0, ..QpCaps::default() };
        let qp = queue_pair::create(&mut endpoint, &QpInit::new(pd, cq, cq, caps), access)?;
        let (path_mtu, agreed) = (attachment.path_mtu, Agreed::Rc);
        let Attachment { port, terms: attachment } = attachment;
        let bell = worker::bell(worker::Progress::Inline)?;
        let worker = Some(worker::worker(bell, endpoint, port, attachment.clock, Polling::Busy)?);
        Ok(Self { attachment, worker, cq, qp, region, mr, offer, ip, agreed, path_mtu })
    }

    /// Connects the queue pair to that at the other end of `line`; both are connected afterwards.
    fn connect(&mut self, line: &Line, flow: Flow, we_called: bool) -> Result<Hello, Error> {
        let ip = self.ip;
        line.send(Some(Hello {
            qp: self.qp,
            memory: RemoteAddr { va: self.mr.addr, rkey: self.mr.rkey.ok_or("no key")? },
            offer: self.offer,
            ip: self.ip,
            path_mtu: self.path_mtu,
            side_poll: self.with(|core| core.port.open_side_poll(ip))?,
        }))?;
        let theirs = line.receive()?.ok_or("a hello is missing")?;
        self.agreed = settle_between(we_called, &self.offer, &theirs.offer)?;
        self.path_mtu = self.path_mtu.min(theirs.path_mtu);
        let hop = self.attachment.hop(theirs.ip)?;
        let av = hop.address_vector(self.ip, theirs.ip, Ecn::Ect0.bits());
        let how = Connect {
            route: Route { av, path_mtu: self.path_mtu, agreed: self.agreed },
            timeout: ACK_TIMEOUT,
            retry_cnt: 7,
            max_rd_atomic: RD_ATOMIC,
            sending: Sending { congestion: flow.control.choice(), ..Sending::default() },
        };
        self.with(|core| queue_pair::connect(&mut core.node, self.qp, theirs.qp, &how))??;
        line.send(None)?;
        line.receive()?;
        if let Some(port) = theirs.side_poll {
            self.with(|core| core.port.greet(SocketAddr::new(theirs.ip, port)))?;
        }
        Ok(theirs)
    }

    fn write(&mut self, flow: Flow, theirs: &Hello, time: Duration) -> Result<Sent, Error> {
        fill(&self.region)?;
        let time = Dur::from_ms(u64::try_from(time.as_millis())?);
        let writer = Writer {
            cq: self.cq,
            qp: self.qp,
            region: self.region.clone(),
            mr: self.mr,
            remote: theirs.memory,
            message_bytes: flow.message_bytes,
            time,
            progress: Progress::default(),
        };
        let clock = self.attachment.clock;
        let (writer, counters, thread_use) = self.drive(writer, |writer| {
            writer.progress.end_overdue(clock.now(), time);
            writer.progress.is_done()
        })?;
        if let Some(why) = writer.progress.failure {
            return Err(why.into());
        }
        let payload = match self.agreed {
            Agreed::Rc => self.path_mtu.bytes(),
            Agreed::Sr(terms) => terms.segment_bytes,
        };
        let [packets, calls] = flow.fabric.call_counters().map(|name| self.counter(name) as f64);
        Ok(Sent {
            progress: writer.progress,
            region: self.region.clone(),
            counters,
            payload,
            packets_per_call: if calls > 0.0 { packets / calls } else { 0.0 },
            thread_use,
        })
    }

    fn respond(&mut self, is_over: &AtomicBool) -> Result<Received, Error> {
        let (_, counters, thread_use) = self.drive(Passive, |_| is_over.load(Ordering::Relaxed))?;
        Ok(Received { region: self.region.clone(), counters, thread_use })
    }

    /// Drives `app` until `stop`, and returns it with the engine's counters.
    fn drive<A: App>(
        &mut self,
        app: A,
        mut stop: impl FnMut(&mut A) -> bool,
    ) -> Result<(A, Counters, ThreadUse), Error> {
        let worker = self.worker.take().ok_or("the worker is in use")?;
        let watch = StealWatch::start()?;
        let (worker, app) = drive(worker, app, |node, _| stop(node.app_mut()));
        let thread_use = watch.thread_use()?;
        self.worker = Some(worker);
        Ok((app?, self.with(|core| core.node.counters().clone())?, thread_use))
    }

    fn with<R>(
        &self,
        call: impl FnOnce(&mut Core<Endpoint, Box<dyn Link + Send>>) -> R,
    ) -> Result<R, Error> {
        let called = self.worker.as_ref().and_then(|worker| worker.with_engine(|core| call(core)));
        Ok(called.ok_or("the worker has ended")?)
    }

    fn counter(&self, wanted: &str) -> u64 {
        let counters = self.with(|core| core.port.counters()).unwrap_or_default();
        counters.into_iter().find(|(name, _)| name == wanted).map_or(0, |(_, n)| n)
    }
}

impl Line {
    fn send(&self, hello: Option<Hello>) -> Result<(), Error> {
        self.to.send(hello).map_err(|_| "the other end has failed".into())
    }

    fn receive(&self) -> Result<Option<Hello>, Error> {
        Ok(self.from.recv_timeout(SILENCE).map_err(|_| "the other end has failed")?)
    }
}

/// Sets its flag when dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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
/// 67 ms: a thread may lose its core for a while without a timeout.
const ACK_TIMEOUT: u8 = 14;
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
