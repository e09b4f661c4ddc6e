//! The receiving half of a connection at its application: it copies data out of the ring. The other
//! end may still write to the ring, so data are copied first and checked in the copy.

use crate::config::LENGTH_BYTES;
use crate::engine::Engine;
use crate::error::{Cause, Error};
use crate::half::Half;
use crate::incoming::Taken;
use crate::shared::{Kind, Milestone, Shared};
use spanwire_base::{u64_from, usize_from};
use spanwire_io::worker::Signal;
use spanwire_mem::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The common part of both kinds of receiving halves.
#[derive(Debug)]
pub(crate) struct Receiving {
    shared: Arc<Shared>,
    engine: Option<Arc<Engine>>,
    ring: Region,
    /// Bytes taken from the ring so far.
    bytes: u64,
    /// Of those, in fragments that were taken as a whole.
    whole: Taken,
    /// The length of the fragment after those.
    fragment: Option<u32>,
    /// `whole` at the last notification of the worker.
    notified: Taken,
    /// The message of which a part was taken.
    message: Option<Partial>,
}

/// A message that has not arrived as a whole.
#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    /// Bytes that it will have.
    len: usize,
}

impl Half for Receiving {
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn engine(&self) -> Option<&Arc<Engine>> {
        self.engine.as_ref()
    }

    fn signal(shared: &Shared) -> &Signal {
        &shared.receivable
    }
}

impl Receiving {
    pub(crate) fn new(shared: Arc<Shared>, ring: Region) -> Self {
        Self {
            shared,
            engine: None,
            ring,
            bytes: 0,
            whole: Taken::default(),
            fragment: None,
            notified: Taken::default(),
            message: None,
        }
    }

    /// The same, whose threads drive `engine` while they wait.
    pub(crate) fn driven_by(mut self, engine: Arc<Engine>) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Copies the next message into `into`. False at the orderly end.
    pub(crate) fn try_message(&mut self, into: &mut Vec<u8>) -> Result<bool, Error> {
        debug_assert_eq!(self.shared.kind, Kind::Messages, "a byte stream has no messages");
        let message = match self.message.take() {
            Some(message) => message,
            None => match self.begin_message()? {
                Some(len) => {
                    into.clear();
                    Partial { bytes: std::mem::take(into), len }
                }
                None => return Ok(false),
            },
        };
        *into = self.grow_message(message)?;
        Ok(true)
    }

    /// Copies the available bytes into `into`; 0 at the orderly end.
    pub(crate) fn try_bytes(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        debug_assert_eq!(self.shared.kind, Kind::Bytes, "messages come as a whole");
        if into.is_empty() || !self.has_at_least(1)? {
            return Ok(0);
        }
        let count = into.len().min(self.available());
        self.copy_out(&mut into[..count]);
        self.publish();
        Ok(count)
    }

    /// The length of the next message; `None` at the orderly end.
    fn begin_message(&mut self) -> Result<Option<usize>, Error> {
        if !self.has_at_least(LENGTH_BYTES)? {
            return Ok(None);
        }
        let mut len = [0; LENGTH_BYTES];
        self.copy_out(&mut len);
        let len = u32::from_be_bytes(len);
        if len > self.shared.shape.max_message_bytes {
            return Err(self.violated("a message longer than agreed"));
        }
        Ok(Some(usize_from(len.into())))
    }

    /// Copies what has arrived of `message`, and returns it once it is whole.
    fn grow_message(&mut self, mut message: Partial) -> Result<Vec<u8>, Error> {
        loop {
            let have = message.bytes.len();
            let count = (message.len - have).min(self.available());
            message.bytes.resize(have + count, 0);
            self.copy_out(&mut message.bytes[have..]);
            self.publish();
            if message.bytes.len() == message.len {
                return Ok(message.bytes);
            }
            self.message = Some(message);
            self.has_at_least(1)?;
            message = self.message.take().expect("it was just stored");
        }
    }

    /// True if that many bytes have arrived; false at the orderly end.
    fn has_at_least(&self, count: usize) -> Result<bool, Error> {
        if self.available() >= count {
            return Ok(true);
        }
        let ended = self.shared.has(Milestone::PeerFinished);
        let cause = self.shared.cause();
        if !ended && cause.is_none() {
            return Err(Error::WouldBlock);
        }
        // Data received before the end were announced before the end was marked.
        match (self.available(), cause) {
            (available, _) if available >= count => Ok(true),
            (0, _) if ended && self.message.is_none() => Ok(false),
            (_, Some(cause)) => Err(cause.clone().into()),
            (_, None) => Err(self.violated("an end inside a message")),
        }
    }

    /// Ends the connection because of what the other end has sent.
    fn violated(&self, how: &'static str) -> Error {
        let cause = Cause::Protocol(how);
        self.shared.fail(cause.clone());
        self.shared.set(Milestone::Aborted);
        self.notify_engine();
        cause.into()
    }

    /// Bytes that have arrived and were not taken.
    fn available(&self) -> usize {
        usize_from(self.shared.arrived_bytes.load(Ordering::SeqCst) - self.bytes)
    }

    fn copy_out(&mut self, into: &mut [u8]) {
        let shape = self.shared.shape;
        let (offset, to_end) = (shape.offset(self.bytes), shape.to_end(self.bytes));
        self.bytes += u64_from(into.len());
        let (head, tail) = into.split_at_mut(into.len().min(usize_from(to_end)));
        let copied = self.ring.copy_out(usize_from(offset), head);
        copied.and_then(|()| self.ring.copy_out(0, tail)).expect("offsets stay within the ring");
    }

    /// Frees the space of fragments that were taken as a whole, and notifies the worker if credit
    /// is due.
    fn publish(&mut self) {
        while let Some(len) = self.fragment.take().or_else(|| self.shared.arrived.pop()) {
            let bytes = self.whole.bytes + u64::from(len);
            if bytes > self.bytes {
                self.fragment = Some(len);
                break;
            }
            self.whole = Taken { bytes, fragments: self.whole.fragments + 1 };
        }
        self.shared.take(self.whole);
        let (bytes, fragments) = self.shared.shape.credit_after();
        let is_due = self.whole.bytes - self.notified.bytes >= bytes
            || self.whole.fragments - self.notified.fragments >= fragments;
        // The worker marks the end before it reads the counts, so one of both sees the other's
        // change.
        let ends = self.shared.has(Milestone::PeerFinished) || self.shared.has(Milestone::Finished);
        if is_due || ends {
            self.notified = self.whole;
            self.notify_engine();
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        self.shared.close_receiving();
        self.notify_engine();
    }
}
