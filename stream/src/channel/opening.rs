//! A channel whose peer is not known yet.

use super::Channel;
use super::objects::{CONTROLS_MAX, NOTHING, Objects};
use super::rings::Rings;
use crate::config::{Config, Shape};
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::shared::Shared;
use spanwire_host::queue_pair::{self, Connect, QpParams, RD_ATOMIC, Route, Sending};
use spanwire_transport::{
    Agreed, CongestionControl, CreateError, Endpoint, ModifyError, RemoteAddr,
};
use std::sync::Arc;

/// A queue pair and two rings, before the peer is known.
#[derive(Debug)]
pub(crate) struct Opening {
    objects: Objects,
    fragments: u32,
    retry: (u8, u8),
    sending: Sending,
    rings: Rings,
}

/// Parameters of a channel for the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Local {
    pub(crate) qp: QpParams,
    pub(crate) va: u64,
    pub(crate) rkey: u32,
}

impl Opening {
    /// A queue pair in INIT on `endpoint`, for at most `shape`; with `congestion` instead of the
    /// network's, if it is given.
    pub(crate) fn new(
        endpoint: &mut Endpoint,
        config: &Config,
        congestion: Option<CongestionControl>,
        shape: Shape,
        rings: Rings,
    ) -> Result<Self, CreateError> {
        let objects = Objects::new(endpoint, shape, &rings)?;
        let (fragments, retry) = (shape.fragments, (config.timeout, config.retry_cnt));
        let Config { erasure, balance, .. } = *config;
        let congestion = congestion.or(config.congestion);
        let sending = Sending { congestion, erasure, balance };
        Ok(Self { objects, fragments, retry, sending, rings })
    }

    /// The parameters for the peer.
    pub(crate) fn local(&self) -> Local {
        let Objects { qp, receive_mr, .. } = self.objects;
        let rkey = receive_mr.rkey.unwrap_or_default();
        Local { qp, va: receive_mr.addr, rkey }
    }

    /// The rings, for the application's halves.
    pub(crate) fn rings(&self) -> &Rings {
        &self.rings
    }

    /// Connects the queue pair (RTS) and posts its receives.
    ///
    /// # Errors
    /// A parameter of the peer is invalid.
    pub(crate) fn connect(
        &self,
        endpoint: &mut Endpoint,
        route: &Route,
        theirs: &Local,
        shared: Arc<Shared>,
    ) -> Result<Channel, ModifyError> {
        let (timeout, retry_cnt) = self.retry;
        let (route, sending) = (*route, self.sending);
        let max_rd_atomic = RD_ATOMIC;
        let how = Connect { route, timeout, retry_cnt, max_rd_atomic, sending };
        self.warn_of_unused(&route.agreed);
        let qpn = self.objects.qpn;
        for _ in 0..self.fragments + CONTROLS_MAX {
            let posted = endpoint.post_recv(qpn, &NOTHING);
            posted.expect("the receive queue was made for as many, and takes them from INIT on");
        }
        queue_pair::connect(endpoint, self.objects.qp, theirs.qp, &how)?;
        let (kind, shape) = (shared.kind, shared.shape);
        Ok(Channel {
            shared,
            objects: self.objects,
            theirs: RemoteAddr { va: theirs.va, rkey: theirs.rkey },
            out: Outgoing::new(kind, shape),
            inn: Incoming::new(shape),
            controls: 0,
            finish_said: false,
            drained_sent: false,
            flushed: false,
        })
    }

    /// Warns of configured options that the agreed wire mode does not support.
    fn warn_of_unused(&self, agreed: &Agreed) {
        if let Some(why) = self.sending.why_no_erasure(agreed) {
            tracing::warn!("nothing is coded: {why}");
        }
        if let Some(why) = self.sending.why_no_balance(agreed) {
            tracing::warn!("all packets take one path: {why}");
        }
    }

    /// Destroys the objects.
    pub(crate) fn discard(&self, endpoint: &mut Endpoint) {
        self.objects.remove(endpoint);
    }
}
