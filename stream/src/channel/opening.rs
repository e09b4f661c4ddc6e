//! A channel whose peer is not known yet.

use super::objects::Objects;
use super::{CONTROLS_MAX, Channel, NOTHING};
use crate::config::{Config, Shape};
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::shared::Shared;
use spanwire_base::usize_from;
use spanwire_mem::{OutOfMemory, Region};
use spanwire_transport::{
    AddressVector, Agreed, Balance, CongestionControl, CreateError, Endpoint, ErasureCoding,
    ModifyError, Mtu, QpAttr, RemoteAddr,
};
use spanwire_wire::{Psn, Qpn};
use std::sync::Arc;

/// A queue pair and two rings, before the peer is known.
#[derive(Debug)]
pub(crate) struct Opening {
    objects: Objects,
    psn: u32,
    fragments: u32,
    retry: (u8, u8),
    congestion: Option<CongestionControl>,
    erasure: Option<ErasureCoding>,
    balance: Option<Balance>,
    rings: Rings,
}

/// The two rings of a connection. Untouched pages take no memory.
#[derive(Clone, Debug)]
pub(crate) struct Rings {
    pub(crate) send: Region,
    pub(crate) receive: Region,
}

/// What the peer must know of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    /// Two rings of `ring_bytes`.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn new(ring_bytes: u32) -> Result<Self, OutOfMemory> {
        let ring = || Region::try_zeroed(usize_from(ring_bytes.into()));
        Ok(Self { send: ring()?, receive: ring()? })
    }
}

impl Opening {
    /// A queue pair in INIT on `endpoint`, for at most `shape`.
    pub(crate) fn new(
        endpoint: &mut Endpoint,
        config: &Config,
        shape: Shape,
        rings: Rings,
    ) -> Result<Self, CreateError> {
        let objects = Objects::new(endpoint, shape, &rings)?;
        let psn = u32::try_from(endpoint.random() & u64::from(Psn::MASK)).unwrap_or_default();
        let (fragments, retry) = (shape.fragments, (config.timeout, config.retry_cnt));
        let Config { congestion, erasure, balance, .. } = *config;
        Ok(Self { objects, psn, fragments, retry, congestion, erasure, balance, rings })
    }

    /// What the peer must know.
    pub(crate) fn local(&self) -> Local {
        let Objects { qpn, receive_mr, .. } = self.objects;
        let rkey = receive_mr.rkey.unwrap_or_default();
        Local { qpn: qpn.get(), psn: self.psn, va: receive_mr.addr, rkey }
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
        let (qpn, psn) = (self.objects.qpn, Psn::new(theirs.psn));
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
            let posted = endpoint.post_recv(qpn, &NOTHING);
            posted.expect("the receive queue was made for as many, and takes them from INIT on");
        }
        endpoint.modify_qp(qpn, &rtr)?;
        endpoint.modify_qp(qpn, &rts)?;
        let (kind, shape) = (shared.kind, shared.shape);
        Ok(Channel {
            shared,
            objects: self.objects,
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
        self.objects.remove(endpoint);
    }
}
