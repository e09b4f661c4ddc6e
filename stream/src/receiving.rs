//! The receiving half of a connection at its application: it copies data out of the ring. The other
//! end may still write to the ring, so data are copied first and checked in the copy.

use crate::drive::{Drive, Signal};
use crate::error::Error;
use crate::half::Half;
use crate::shared::{Arrived, Kind, Milestone, Shared};
use spanwire_base::{u32_from, u64_from, usize_from};
use spanwire_mem::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The common part of both kinds of receiving halves.
#[derive(Debug)]
pub(crate) struct Receiving {
    shared: Arc<Shared>,
    engine: Option<Arc<dyn Drive>>,
    ring: Region,
    /// Bytes taken from the ring so far.
    bytes: u64,
    fragments: u64,
    /// The counts of bytes and fragments at the last notification of the worker.
    notified: (u64, u64),
    /// The rest of a byte stream's fragment that was taken in part.
    rest: Option<Arrived>,
}

impl Half for Receiving {
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn engine(&self) -> Option<&Arc<dyn Drive>> {
        self.engine.as_ref()
    }

    fn signal(shared: &Shared) -> &Signal {
        &shared.receivable
    }
}

impl Receiving {
    pub(crate) fn new(shared: Arc<Shared>, ring: Region) -> Self {
        Self { shared, engine: None, ring, bytes: 0, fragments: 0, notified: (0, 0), rest: None }
    }

    /// The same, whose threads drive `engine` while they wait.
    pub(crate) fn driven_by(mut self, engine: Arc<dyn Drive>) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Copies the next message into `into`. False at the orderly end.
    pub(crate) fn try_message(&mut self, into: &mut Vec<u8>) -> Result<bool, Error> {
        debug_assert_eq!(self.shared.kind, Kind::Messages, "a byte stream has no messages");
        let Some(message) = self.pop()? else { return Ok(false) };
        // `resize` only truncates or extends, so that no byte is cleared unnecessarily.
        into.resize(usize_from(message.bytes.into()), 0);
        self.copy_out(into);
        self.fragments += u64::from(message.fragments);
        self.publish();
        Ok(true)
    }

    /// Copies the available bytes into `into`; 0 at the orderly end.
    pub(crate) fn try_bytes(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        debug_assert_eq!(self.shared.kind, Kind::Bytes, "messages come as a whole");
        let mut count = 0;
        while count < into.len() {
            let next = match self.rest.take() {
                Some(rest) => rest,
                // Data received before an error are returned first.
                None if count > 0 => match self.shared.arrived.pop() {
                    Some(next) => next,
                    None => break,
                },
                None => match self.pop()? {
                    Some(next) => next,
                    None => return Ok(0),
                },
            };
            let len = usize_from(next.bytes.into()).min(into.len() - count);
            self.copy_out(&mut into[count..count + len]);
            count += len;
            let left = next.bytes - u32_from(len);
            if left > 0 {
                self.rest = Some(Arrived { bytes: left, ..next });
            } else {
                self.fragments += u64::from(next.fragments);
            }
        }
        self.publish();
        Ok(count)
    }

    /// The next entry of the ring; `None` at the orderly end.
    fn pop(&mut self) -> Result<Option<Arrived>, Error> {
        if let Some(arrived) = self.shared.arrived.pop() {
            return Ok(Some(arrived));
        }
        let ended = self.shared.has(Milestone::PeerFinished);
        let cause = self.shared.cause();
        if !ended && cause.is_none() {
            return Err(Error::WouldBlock);
        }
        // Data received before the end were pushed before the end was marked.
        match (self.shared.arrived.pop(), cause) {
            (Some(arrived), _) => Ok(Some(arrived)),
            (None, _) if ended => Ok(None),
            (None, Some(cause)) => Err(cause.clone().into()),
            (None, None) => Err(Error::WouldBlock),
        }
    }

    fn copy_out(&mut self, into: &mut [u8]) {
        let shape = self.shared.shape;
        let (offset, to_end) = (shape.offset(self.bytes), shape.to_end(self.bytes));
        self.bytes += u64_from(into.len());
        let (head, tail) = into.split_at_mut(into.len().min(usize_from(to_end)));
        let copied = self.ring.copy_out(usize_from(offset), head);
        copied.and_then(|()| self.ring.copy_out(0, tail)).expect("offsets stay within the ring");
    }

    /// Frees the space of taken data, and notifies the worker if credit is due.
    fn publish(&mut self) {
        self.shared.taken_bytes.store(self.bytes, Ordering::SeqCst);
        self.shared.taken.store(self.fragments, Ordering::SeqCst);
        let (bytes, fragments) = self.shared.shape.credit_after();
        let is_due =
            self.bytes - self.notified.0 >= bytes || self.fragments - self.notified.1 >= fragments;
        // The worker marks the end before it reads the counts, so one of both sees the other's
        // change.
        let ends = self.shared.has(Milestone::PeerFinished) || self.shared.has(Milestone::Finished);
        if is_due || ends {
            self.notified = (self.bytes, self.fragments);
            self.notify_engine();
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.shared.set(Milestone::ReceiveClosed);
        self.notify_engine();
    }
}
