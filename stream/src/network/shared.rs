//! State shared by the threads of a network.

use super::worker::NetworkWorker;
use crate::config::ValidConfig;
use crate::error::SetupError;
use crate::peers::Peers;
use crate::place::Place;
use spanwire_base::usize_from;
use spanwire_host::fabric::{Fabric, HopResolver, PacketSizes};
use spanwire_host::modes::ModeChoice;
use spanwire_host::oob::WorkerOf;
use spanwire_transport::Offer;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// State shared by the threads of a network.
#[derive(Debug)]
pub(crate) struct NetworkShared {
    pub(crate) config: ValidConfig,
    pub(super) engine: spanwire_transport::ValidConfig,
    /// At least one.
    pub(crate) workers: Box<[NetworkWorker]>,
    /// Held while a connection gets its worker.
    pub(super) placing: Mutex<()>,
    pub(super) fabric: Fabric,
    /// The adapter divides received packets among its queues by their source port.
    pub(super) rss: bool,
    pub(crate) hop_resolver: HopResolver,
    /// The largest packets; those to a peer may be smaller.
    pub(crate) sizes: PacketSizes,
    /// The port receives packets that were sent as fragments.
    pub(crate) takes_fragments: bool,
    pub(super) icrc: bool,
    pub(crate) ifname: String,
    /// The local address of connections, if it is given.
    pub(crate) address: Option<IpAddr>,
    pub(crate) peers: Arc<Peers>,
}

impl NetworkShared {
    /// The wire modes offered by an end with address `ip`, for IP packets of `ip_bytes`.
    pub(crate) fn offer(&self, ip: IpAddr, ip_bytes: u32, mode: ModeChoice) -> Offer {
        let offer = mode.offer(&self.engine, ip_bytes, ip, u32::MAX);
        if self.icrc { offer } else { offer.without_icrc() }
    }

    /// A place for one more connection at worker `wanted`, or at the one with the fewest that has
    /// not ended.
    pub(crate) fn place(&self, wanted: Option<u32>) -> Result<(&NetworkWorker, Place), SetupError> {
        let placing = self.placing.lock().unwrap_or_else(PoisonError::into_inner);
        let count: usize = self.workers.iter().map(NetworkWorker::load).sum();
        if count >= usize_from(self.config.max_connections.into()) {
            return Err(SetupError::Limit("max_connections"));
        }
        let worker = match wanted {
            Some(wanted) => self.worker(wanted)?,
            None => {
                let workers = self.workers.iter().filter(|worker| !worker.engine.has_ended());
                workers.min_by_key(|worker| worker.load()).ok_or_else(|| self.gone())?
            }
        };
        let place = worker.place();
        drop(placing);
        Ok((worker, place))
    }

    fn worker(&self, index: u32) -> Result<&NetworkWorker, SetupError> {
        self.workers.get(usize_from(index.into())).ok_or_else(|| {
            let workers = self.workers.len();
            SetupError::Config(format!("worker is {index}, and the network has {workers}"))
        })
    }

    pub(super) fn has_worker(&self, index: u32) -> bool {
        usize_from(index.into()) < self.workers.len()
    }

    /// True if the worker that receives a packet is that of the queue on which the peer's worker
    /// sends: both ends of a connection then are at workers of one index. Over UDP sockets it is
    /// the worker of the packet's QPN.
    pub(crate) fn pairs_workers(&self) -> bool {
        self.fabric != Fabric::Udp
    }

    /// Probes of source ports may be needed, by this end or by its peer.
    pub(crate) fn probes(&self) -> bool {
        self.rss || self.fabric == Fabric::AfXdp
    }

    /// Packets for one worker may arrive at the queue of another.
    pub(crate) fn needs_probes(&self) -> bool {
        self.rss && self.workers.len() > 1
    }

    /// The worker that a listener's connection must have because the caller's is `theirs`.
    pub(crate) fn partner_of(&self, theirs: WorkerOf) -> Option<u32> {
        let ours = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        self.pairs_workers().then_some(theirs.index % ours)
    }

    /// Fails after all engines have ended.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        if self.has_ended() { Err(self.gone()) } else { Ok(()) }
    }

    /// True once all engines have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.engine.has_ended())
    }

    /// True in a process that was forked from the one of the network.
    pub(crate) fn is_forked(&self) -> bool {
        self.workers[0].engine.is_forked()
    }

    /// The error after the engines have ended.
    pub(crate) fn gone(&self) -> SetupError {
        let failed = self.workers.iter().find(|worker| worker.engine.why().is_some());
        failed.unwrap_or(&self.workers[0]).gone()
    }
}
