//! How a station's queue pairs send: what it wants itself, and what its clients wish.

use super::{Setup, Station};
use crate::fabric::Error;
use crate::oob::{Coding, Congestion, Request, read_balance};
use crate::paths::{ConnectionPaths, SentPaths};
use crate::queue_pair::Sending;
use spanwire_transport::{Agreed, Balance};
use spanwire_wire::Qpn;

impl Station {
    /// Sets how all queue pairs send from now on. Of what it leaves open, a client's wish is
    /// followed.
    pub fn set_sending(&mut self, sending: Sending) {
        self.sending = sending;
    }

    /// How its queue pairs send.
    #[must_use]
    pub fn sending(&self) -> &Sending {
        &self.sending
    }

    /// How we send, with what `wanted` says where we do not care.
    pub(super) fn sending_for(&mut self, wanted: Option<&Request>) -> Result<Sending, Error> {
        let Some(Request { congestion, erasure, balance, .. }) = wanted else {
            return Ok(self.sending);
        };
        let congestion = congestion.as_ref().map(Congestion::read).transpose()?;
        let erasure = erasure.as_ref().map(Coding::read).transpose()?;
        let choice = balance.as_deref().map(read_balance).transpose()?;
        let ep = self.endpoint.as_mut().ok_or("the endpoint is lost to an earlier failure")?;
        let balance = choice.map(|choice| Balance { choice, seed: ep.random() });
        Ok(Sending {
            congestion: self.sending.congestion.or(congestion),
            erasure: self.sending.erasure.or(erasure),
            balance: self.sending.balance.or(balance),
        })
    }

    /// The paths of a job's packets, sent as `sending` says.
    pub(super) fn paths(&self, setup: &Setup, sending: &Sending) -> SentPaths {
        let now = self.attachment.clock.now();
        let look = |qpn: &Qpn| ConnectionPaths::look(self.endpoint.as_ref()?, *qpn, now);
        SentPaths {
            agreed: self.agreed().unwrap_or(Agreed::Rc),
            erasure: sending.erasure,
            balance: sending.balance,
            qps: setup.qpns.iter().filter_map(look).collect(),
        }
    }
}

/// What is wanted and cannot be must not go unnoticed.
pub(super) fn warn_of_unused(sending: &Sending, agreed: &Agreed) {
    if let Some(why) = sending.why_no_erasure(agreed) {
        tracing::warn!("nothing is coded (--ec): {why}");
    }
    if let Some(why) = sending.why_no_balance(agreed) {
        tracing::warn!("all packets take one path (--lb): {why}");
    }
}
