//! The job runner: one worker with its port and endpoint, which runs jobs with a peer over a side
//! connection, as client or server.

use crate::drive::drive;
use crate::fabric::{Attachment, Error, Link, Terms};
use crate::oob::{Job, ModeChoice, OobError, Request, WorkerOf};
use crate::queue_pair::{self, Connect, QpParams, RD_ATOMIC, Route};
use crate::seed;
use crate::window::{self, WindowChoice};
use spanwire_base::usize_from;
use spanwire_io::driver::{DriverCounters, Polling};
use spanwire_io::worker::{self, Bell, Core, PortDoor, Progress, Worker, port_is_gone};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, Agreed, App, Endpoint, Host, Mtu, PdId, QpCaps, QpInit, SourcePort,
    ValidConfig,
};
use spanwire_wire::Qpn;
use std::net::IpAddr;
use std::sync::Arc;

mod acceptor;
mod bounds;
mod client;
mod data;
mod dispatcher;
mod flow;
mod handshake;
mod meter;
mod pair;
mod pending_client;
mod perftest;
mod probe;
mod rows;
mod sending;
mod server;
mod setup;
mod sum;
mod workers;

pub use crate::oob::STOP_POLL_INTERVAL;
pub use crate::queue_pair::Sending;
pub use acceptor::{Acceptor, Event};
pub use bounds::job_bytes;
use bounds::{access, check, region_bytes};
pub use client::{JobReport, Watch};
pub use dispatcher::serve_all;
pub use flow::{FlowRow, Flows, Shares};
pub use meter::{Board, Interval, Meter};
pub use pair::Pair;
pub use pending_client::{ClientPoll, PendingClient};
pub use perftest::{PerftestOutcome, PerftestPeer};
pub use rows::{PerfRow, TransferRow, WorkerRow, seconds};
pub use server::Served;
use setup::Setup;
pub use sum::counters_of;

/// A worker that runs jobs.
pub struct JobRunner {
    attachment: Terms,
    /// `None` while a job has it.
    worker: Option<Worker<Endpoint, Box<dyn Link + Send>>>,
    config: ValidConfig,
    pd: PdId,
    ip: IpAddr,
    mode: ModeChoice,
    /// Send options of all queue pairs. Where they are unset, the client's request applies.
    sending: Sending,
    /// Limit of the payload of an SR packet.
    segment_bytes_max: u32,
    peer: Option<Peer>,
    /// The address of the side poll socket and its port, if it could be opened.
    side_poll: Option<(IpAddr, Option<u16>)>,
    takes_any_address: bool,
    /// The longest transfer accepted as the server: memory that a client can request.
    transfer_bytes_max: u64,
    /// Which worker of this process it is.
    worker_of: WorkerOf,
}

type Ends = Core<Endpoint, Box<dyn Link + Send>>;

/// Default limit of a transfer at a server. It is low because clients are not authenticated.
pub const TRANSFER_BYTES_DEFAULT: u64 = 1 << 30;

/// The peer, once its hello has been checked.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// The largest that it and the path support.
    path_mtu: u32,
    av: AddressVector,
    agreed: Agreed,
    /// The source port of packets on one path, if probes have found one.
    src_port: Option<u16>,
}

impl Peer {
    /// The path of packets that are sent with the options `sending`: a load balancer chooses among
    /// all source ports.
    fn path(&self, sending: &Sending) -> AddressVector {
        let balances = sending.balance.is_some() && sending.why_no_balance(&self.agreed).is_none();
        let fixed = self.src_port.filter(|_| !balances).map(SourcePort::Fixed);
        AddressVector { udp_src_port: fixed.unwrap_or(self.av.udp_src_port), ..self.av }
    }
}

/// Resources of a job on this side.
#[derive(Clone, Copy)]
struct Needs {
    /// Bytes of memory.
    bytes: u64,
    caps: QpCaps,
    /// Access of the peer: only what the job requires.
    access: Access,
    /// Receives have a completion queue of their own.
    receives_apart: bool,
}

impl JobRunner {
    /// A job runner at address `ip` on `attachment`, with the default engine parameters that fit
    /// it.
    ///
    /// # Errors
    /// The system provides no random numbers for the keys.
    pub fn new(attachment: Attachment, ip: IpAddr, polling: Polling) -> Result<Self, Error> {
        let config = attachment.fit(ValidConfig::default(), WindowChoice::Static);
        let bell = worker::bell(Progress::Inline)?;
        Self::with_config(attachment, ip, polling, config, bell, WorkerOf::default())
    }

    fn with_config(
        attachment: Attachment,
        ip: IpAddr,
        polling: Polling,
        config: ValidConfig,
        bell: Arc<Bell>,
        worker_of: WorkerOf,
    ) -> Result<Self, Error> {
        let config = window::for_polling(config, polling);
        let mut endpoint = seed::endpoint(config.clone())
            .map_err(|e| format!("no randomness for the keys: {e}"))?;
        let pd = endpoint.alloc_pd()?;
        let Attachment { port, terms } = attachment;
        let worker = worker::worker(bell, endpoint, port, terms.clock, polling)?;
        Ok(Self {
            attachment: terms,
            worker: Some(worker),
            config,
            pd,
            ip,
            mode: ModeChoice::Auto,
            sending: Sending::default(),
            segment_bytes_max: u32::MAX,
            peer: None,
            side_poll: None,
            takes_any_address: false,
            transfer_bytes_max: TRANSFER_BYTES_DEFAULT,
            worker_of,
        })
    }

    /// The attachment.
    #[must_use]
    pub fn attachment(&self) -> &Terms {
        &self.attachment
    }

    /// The window of a queue pair in packets, above that of congestion control.
    #[must_use]
    pub fn window_pkts(&self) -> u32 {
        self.config.qp_window_pkts
    }

    /// True if a small receive buffer limits windows by the round trip, see
    /// [`Config::receive_room_bytes`](spanwire_transport::Config::receive_room_bytes).
    #[must_use]
    pub fn window_follows_rtt(&self) -> bool {
        self.config.receive_room_bytes.is_some()
    }

    /// True if the port has failed permanently. The job runner cannot be used any more.
    #[must_use]
    pub fn port_is_gone(&self) -> bool {
        self.worker.as_ref().is_none_or(Worker::has_ended)
    }

    /// Checks that the port works, while no job drives it.
    ///
    /// # Errors
    /// The port is gone: its interface was removed.
    pub fn check_port(&mut self) -> Result<(), Error> {
        let checked = self.core()?.port.check_attached();
        if checked.is_err() {
            self.worker = None;
        }
        Ok(checked.map_err(|e| port_is_gone(&e))?)
    }

    /// Sets the longest transfer that is accepted as the server, in bytes.
    pub fn set_transfer_bytes_max(&mut self, bytes: u64) {
        self.transfer_bytes_max = bytes;
    }

    /// Sets the address, for a server that learns it from each connection.
    pub fn set_ip(&mut self, ip: IpAddr) {
        self.ip = ip;
    }

    /// Sets the wire modes that are offered to peers, and the payload limit of an SR packet in
    /// bytes.
    pub fn set_mode(&mut self, mode: ModeChoice, segment_bytes_max: Option<u32>) {
        self.mode = mode;
        self.segment_bytes_max = segment_bytes_max.unwrap_or(u32::MAX);
    }

    /// Accepts peers whose RoCE address is not that of their TCP connection.
    pub fn take_any_address(&mut self) {
        self.takes_any_address = true;
    }

    /// The agreed wire mode and its terms; `None` before the peer's hello.
    #[must_use]
    pub fn agreed(&self) -> Option<Agreed> {
        self.peer.map(|p| p.agreed)
    }

    /// The path MTU for a job: the largest that both ends support, or `wanted` if that is smaller.
    #[must_use]
    pub fn path_mtu(&self, wanted: Option<u32>) -> u32 {
        let ours = self.attachment.path_mtu.bytes();
        let theirs = self.peer.map_or(ours, |p| p.path_mtu);
        ours.min(theirs).min(wanted.unwrap_or(u32::MAX))
    }

    /// The counters of engine and port.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut all = self.look(|core| core.node.counters().list()).unwrap_or_default();
        all.extend(self.port_counters());
        all
    }

    /// Times the receive buffer was full so far; `None` unless the port is over UDP sockets.
    fn receive_overflows(&self) -> Option<u64> {
        self.attachment.receive_buffer?;
        let counters = self.port_counters();
        let count = |(name, n): (String, u64)| (name == RECEIVE_OVERFLOWS).then_some(n);
        Some(counters.into_iter().find_map(count).unwrap_or(0))
    }

    /// Creates a job's queue pairs and memory.
    fn set_up(&mut self, job: Job, needs: Needs) -> Result<Setup, Error> {
        let Needs { bytes, caps, access, receives_apart } = needs;
        let pd = self.pd;
        let ep = &mut self.core()?.node;
        let region = Region::try_zeroed(usize_from(bytes))?;
        // The IOVA is 0, so that the peer learns no address of this process.
        let mr = ep.reg_mr(pd, region.clone(), access, Some(0))?;
        let completions = |n: u32| n.saturating_mul(job.qps).max(1);
        let cq = ep.create_cq(completions(caps.max_send_wr + caps.max_recv_wr))?;
        let recv_cq =
            if receives_apart { ep.create_cq(completions(caps.max_recv_wr))? } else { cq };
        let init = QpInit::new(pd, cq, recv_cq, caps);
        let mut setup =
            Setup { job, cq, recv_cq, qpns: Vec::new(), params: Vec::new(), region, mr };
        for _ in 0..job.qps {
            let params = queue_pair::create(ep, &init, access)?;
            setup.qpns.push(Qpn::new(params.qpn));
            setup.params.push(params);
        }
        Ok(setup)
    }

    /// Connects a job's queue pairs (RTS) to the peer's, with at most `rd_atomic` READs and atomics
    /// outstanding there. Returns the send options: the configured ones, and those of `wanted`
    /// where unset.
    fn connect(
        &mut self,
        setup: &Setup,
        theirs: &[QpParams],
        rd_atomic: u8,
        wanted: Option<&Request>,
    ) -> Result<Sending, Error> {
        let sending = self.sending_for(wanted)?;
        let peer = self.peer.ok_or("the peer has not said hello")?;
        sending.warn_of_unused(&peer.agreed);
        check_queue_pairs(theirs, setup.job.qps)?;
        let mtu = Mtu::from_bytes(setup.job.path_mtu)
            .ok_or_else(|| format!("{} is no path MTU", setup.job.path_mtu))?;
        let ep = &mut self.core()?.node;
        let how = Connect {
            route: Route { av: peer.path(&sending), path_mtu: mtu, agreed: peer.agreed },
            timeout: setup.job.timeout,
            retry_cnt: setup.job.retry_cnt,
            max_rd_atomic: rd_atomic,
            sending,
        };
        for (ours, theirs) in setup.params.iter().zip(theirs) {
            queue_pair::connect(ep, *ours, *theirs, &how)?;
        }
        Ok(sending)
    }

    /// Drives `app` on the endpoint until `stop` returns true.
    fn drive_host<A: App>(
        &mut self,
        app: A,
        mut stop: impl FnMut(&mut Host<A>) -> bool,
    ) -> Result<A, Error> {
        self.drive_watched(app, |host, _| stop(host))
    }

    /// As [`JobRunner::drive_host`], with a `stop` that also sees the driver's counters.
    fn drive_watched<A: App>(
        &mut self,
        app: A,
        stop: impl FnMut(&mut Host<A>, &DriverCounters) -> bool,
    ) -> Result<A, Error> {
        let (worker, app) = drive(self.worker.take().ok_or(LOST)?, app, stop);
        self.worker = Some(worker);
        Ok(app?)
    }

    /// Where it sleeps; `None` after a failure.
    #[must_use]
    pub fn door(&self) -> Option<&PortDoor> {
        self.worker.as_ref().map(Worker::door)
    }

    /// Endpoint and port, between jobs.
    fn core(&mut self) -> Result<&mut Ends, Error> {
        let core = self.worker.as_mut().and_then(Worker::get_mut);
        Ok(core.ok_or(LOST)?)
    }

    /// Looks at endpoint and port, between jobs.
    fn look<R>(&self, look: impl FnOnce(&Ends) -> R) -> Option<R> {
        self.worker.as_ref()?.with_engine(|core| look(core))
    }

    fn port_counters(&self) -> Vec<(String, u64)> {
        self.look(|core| core.port.counters()).unwrap_or_default()
    }

    /// Destroys what [`JobRunner::set_up`] created.
    fn tear_down(&mut self, setup: &Setup) {
        let Ok(core) = self.core() else {
            return;
        };
        let ep = &mut core.node;
        for qpn in &setup.qpns {
            ep.destroy_qp(*qpn);
        }
        ep.destroy_cq(setup.cq);
        if setup.recv_cq != setup.cq {
            ep.destroy_cq(setup.recv_cq);
        }
        // The key is unknown only if registration failed, and then nothing is left to deregister.
        let _ = ep.dereg_mr(setup.mr.lkey);
    }
}

/// Checks the peer's queue pairs for a job with `wanted` of them.
///
/// # Errors
/// There are more or fewer, or a number is out of its range.
fn check_queue_pairs(theirs: &[QpParams], wanted: u32) -> Result<(), OobError> {
    if u32::try_from(theirs.len()) != Ok(wanted) {
        let got = theirs.len();
        return Err(OobError::Invalid(format!("it has {got} queue pairs for a job of {wanted}")));
    }
    theirs.iter().try_for_each(|theirs| theirs.check()).map_err(OobError::Invalid)
}

/// The counter of datagrams, or runs of them, that a full receive buffer of UDP sockets lost.
pub const RECEIVE_OVERFLOWS: &str = "udp_rx_overflow";

const LOST: &str = "the endpoint is lost to an earlier failure";

/// How long a server waits for a client's hello.
const HELLO_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

#[cfg(test)]
mod tests;
