//! A channel whose peer is not known yet.

use super::{CONTROLS_MAX, Channel, NOTHING, remove};
use crate::config::Config;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::shared::Shared;
use spanwire_base::usize_from;
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, Agreed, Balance, CongestionControl, CqId, CreateError, Endpoint,
    ErasureCoding, MemoryRegion, ModifyError, Mtu, PdId, QpAttr, QpCaps, QpInit, RemoteAddr,
};
use spanwire_wire::{Psn, Qpn};
use std::sync::Arc;

/// A queue pair and two rings, before the peer is known.
#[derive(Debug)]
pub(crate) struct Opening {
    cq: CqId,
    qpn: Qpn,
    psn: u32,
    fragments: u32,
    retry: (u8, u8),
    congestion: Option<CongestionControl>,
    erasure: Option<ErasureCoding>,
    balance: Option<Balance>,
    rings: Rings,
    send_mr: MemoryRegion,
    receive_mr: MemoryRegion,
}

/// The memory of a connection. Making it takes a while: not on the worker.
#[derive(Clone, Debug)]
pub(crate) struct Rings {
    pub(crate) send: Region,
    pub(crate) receive: Region,
}

/// What the peer must know of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Local {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) va: u64,
    pub(crate) rkey: u32,
}

/// How the peer is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) av: AddressVector,
    pub(crate) path_mtu: Mtu,
    pub(crate) agreed: Agreed,
}

impl Rings {
    pub(crate) fn new(config: &Config) -> Self {
        let ring = || Region::zeroed(usize_from(config.ring_bytes.into()));
        Self { send: ring(), receive: ring() }
    }
}

impl Opening {
    /// A queue pair in INIT on `endpoint`.
    pub(crate) fn new(
        endpoint: &mut Endpoint,
        pd: PdId,
        config: &Config,
        rings: Rings,
    ) -> Result<Self, CreateError> {
        let requests = config.fragments + CONTROLS_MAX;
        let caps = QpCaps { max_send_wr: requests, max_recv_wr: requests, ..QpCaps::default() };
        let access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
        // The peer may write the one, and knows nothing of the other.
        let receive_mr = endpoint.reg_mr(pd, rings.receive.clone(), access, None)?;
        let undo = |endpoint: &mut Endpoint, mrs: &[MemoryRegion]| {
            for mr in mrs {
                let _ = endpoint.dereg_mr(mr.lkey);
            }
        };
        let send_mr = endpoint
            .reg_mr(pd, rings.send.clone(), Access::LOCAL_WRITE, None)
            .inspect_err(|_| undo(endpoint, &[receive_mr]))?;
        let mrs = [receive_mr, send_mr];
        let cq = endpoint.create_cq(2 * requests).inspect_err(|_| undo(endpoint, &mrs))?;
        let made = endpoint.create_qp(&QpInit::new(pd, cq, cq, caps));
        let qpn = made.inspect_err(|_| {
            endpoint.destroy_cq(cq);
            undo(endpoint, &mrs);
        })?;
        endpoint.modify_qp(qpn, &QpAttr::init(access)).expect("a new queue pair goes to INIT");
        let psn = u32::try_from(endpoint.random() & u64::from(Psn::MASK)).unwrap_or_default();
        let (fragments, retry) = (config.fragments, (config.timeout, config.retry_cnt));
        let Config { congestion, erasure, balance, .. } = *config;
        Ok(Self {
            cq,
            qpn,
            psn,
            fragments,
            retry,
            congestion,
            erasure,
            balance,
            rings,
            send_mr,
            receive_mr,
        })
    }

    /// What the peer must know.
    pub(crate) fn local(&self) -> Local {
        let MemoryRegion { addr, rkey, .. } = self.receive_mr;
        Local { qpn: self.qpn.get(), psn: self.psn, va: addr, rkey: rkey.unwrap_or_default() }
    }

    /// The memory, for the application's halves.
    pub(crate) fn rings(&self) -> &Rings {
        &self.rings
    }

    /// Brings the queue pair to RTS, ready for what the peer sends.
    ///
    /// # Errors
    /// What the peer says of itself is not possible.
    pub(crate) fn connect(
        &self,
        endpoint: &mut Endpoint,
        route: &Route,
        theirs: &Local,
        shared: Arc<Shared>,
    ) -> Result<Channel, ModifyError> {
        let psn = Psn::new(theirs.psn);
        let rtr = QpAttr::rtr(Qpn::new(theirs.qpn), psn, route.path_mtu, route.av);
        let rtr = route.agreed.apply_to(rtr);
        let (timeout, retry_cnt) = self.retry;
        let rts = QpAttr {
            timeout: Some(timeout),
            retry_cnt: Some(retry_cnt),
            congestion: self.congestion,
            erasure: self.erasure,
            balance: self.balance,
            ..QpAttr::rts(Psn::new(self.psn))
        };
        self.warn_of_unused(&route.agreed);
        let rts = route.agreed.apply_to_rts(rts);
        for _ in 0..self.fragments + CONTROLS_MAX {
            let posted = endpoint.post_recv(self.qpn, &NOTHING);
            posted.expect("the receive queue was made for as many, and takes them from INIT on");
        }
        endpoint.modify_qp(self.qpn, &rtr)?;
        endpoint.modify_qp(self.qpn, &rts)?;
        let (kind, shape) = (shared.kind, shared.shape);
        Ok(Channel {
            shared,
            cq: self.cq,
            qpn: self.qpn,
            send_mr: self.send_mr,
            receive_mr: self.receive_mr,
            theirs: RemoteAddr { va: theirs.va, rkey: theirs.rkey },
            out: Outgoing::new(kind, shape),
            inn: Incoming::new(kind, shape),
            controls: 0,
            finish_said: false,
            drained_said: false,
            flushed: false,
        })
    }

    /// What is configured and cannot be must not go unnoticed.
    fn warn_of_unused(&self, agreed: &Agreed) {
        if let Some(why) = agreed.why_no_erasure().filter(|_| self.erasure.is_some()) {
            tracing::warn!("nothing is coded: {why}");
        }
        if let Some(why) = agreed.why_no_balance().filter(|_| self.balance.is_some()) {
            tracing::warn!("all packets take one path: {why}");
        }
    }

    /// Takes everything from the endpoint again.
    pub(crate) fn discard(&self, endpoint: &mut Endpoint) {
        remove(endpoint, self.qpn, self.cq, [self.send_mr.lkey, self.receive_mr.lkey]);
    }
}
