//! Send options of the job runner: the configured ones, and those that a client requests.

use super::{JobRunner, Setup};
use crate::fabric::Error;
use crate::oob::{Coding, Congestion, Request, read_balance};
use crate::paths::{ConnectionPaths, SentPaths};
use crate::queue_pair::Sending;
use crate::text::printable;
use spanwire_transport::{Agreed, Balance};
use spanwire_wire::Qpn;

impl JobRunner {
    /// Sets the send options of all queue pairs from now on. Where they are unset, a client's
    /// request applies.
    pub fn set_sending(&mut self, sending: Sending) {
        self.sending = sending;
    }

    /// The configured send options.
    #[must_use]
    pub fn sending(&self) -> &Sending {
        &self.sending
    }

    /// The send options, with those of `wanted` where unset.
    pub(super) fn sending_for(&mut self, wanted: Option<&Request>) -> Result<Sending, Error> {
        let Some(Request { congestion, erasure, balance, .. }) = wanted else {
            return Ok(self.sending);
        };
        // Errors quote names of the client's request.
        let quoted = |e: Error| printable(e.to_string());
        let congestion = congestion.as_ref().map(Congestion::read).transpose().map_err(quoted)?;
        let erasure = erasure.as_ref().map(Coding::read).transpose().map_err(quoted)?;
        let choice = balance.as_deref().map(read_balance).transpose().map_err(quoted)?;
        let seed = self.core()?.node.random();
        let balance = choice.map(|choice| Balance { choice, seed });
        Ok(Sending {
            congestion: self.sending.congestion.or(congestion),
            erasure: self.sending.erasure.or(erasure),
            balance: self.sending.balance.or(balance),
        })
    }

    /// The paths of a job's packets, sent with the options `sending`.
    pub(super) fn paths(&self, setup: &Setup, sending: &Sending) -> SentPaths {
        let now = self.attachment.clock.now();
        let look = |qpn: &Qpn| self.look(|core| ConnectionPaths::look(&core.node, *qpn, now))?;
        SentPaths {
            agreed: self.agreed().unwrap_or(Agreed::Rc),
            erasure: sending.erasure,
            balance: sending.balance,
            qps: setup.qpns.iter().filter_map(look).collect(),
        }
    }
}
