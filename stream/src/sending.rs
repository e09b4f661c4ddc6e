//! The sending half of a connection at its application: it copies data into the ring and lengths to
//! the worker.

use crate::config::LENGTH_BYTES;
use crate::engine::Engine;
use crate::error::{Cause, Error};
use crate::half::Half;
use crate::shared::{Kind, Milestone, Shared};
use spanwire_base::{u32_from, u64_from, usize_from};
use spanwire_io::worker::Signal;
use spanwire_mem::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The common part of both kinds of sending halves.
#[derive(Debug)]
pub(crate) struct Sending {
    shared: Arc<Shared>,
    engine: Option<Arc<Engine>>,
    ring: Region,
    /// Bytes written to the ring so far.
    written: u64,
}

impl Half for Sending {
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn engine(&self) -> Option<&Arc<Engine>> {
        self.engine.as_ref()
    }

    fn signal(shared: &Shared) -> &Signal {
        &shared.sendable
    }
}

impl Sending {
    pub(crate) fn new(shared: Arc<Shared>, ring: Region) -> Self {
        Self { shared, engine: None, ring, written: 0 }
    }

    /// The same, whose threads drive `engine` while they wait.
    pub(crate) fn driven_by(mut self, engine: Arc<Engine>) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Sends a whole message, or no part of it.
    pub(crate) fn try_message(&mut self, message: &[u8]) -> Result<(), Error> {
        debug_assert_eq!(self.shared.kind, Kind::Messages, "a byte stream has no messages");
        let max = usize_from(self.shared.shape.max_message_bytes.into());
        if message.len() > max {
            return Err(Error::TooLong { bytes: message.len(), max });
        }
        self.check_open()?;
        if message.len() + LENGTH_BYTES > self.room() {
            return Err(Error::WouldBlock);
        }
        self.copy_in(&u32_from(message.len()).to_be_bytes());
        self.copy_in(message);
        self.shared.written.store(self.written, Ordering::Release);
        self.notify_of_message();
        Ok(())
    }

    /// Sends as much of `bytes` as fits, at least one byte.
    pub(crate) fn try_bytes(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        debug_assert_eq!(self.shared.kind, Kind::Bytes, "messages go as a whole");
        self.check_open()?;
        let count = bytes.len().min(self.room());
        if count == 0 && !bytes.is_empty() {
            return Err(Error::WouldBlock);
        }
        self.copy_in(&bytes[..count]);
        self.shared.written.store(self.written, Ordering::Release);
        self.notify_engine();
        Ok(count)
    }

    /// Finishes sending.
    pub(crate) fn finish(&mut self) {
        if !self.shared.has(Milestone::Finished) {
            self.shared.set(Milestone::Finished);
            self.notify_engine();
        }
    }

    /// True if the other application has taken everything; an error if it never will.
    pub(crate) fn check_drained(&self) -> Result<(), Error> {
        if self.shared.has(Milestone::Drained) {
            return Ok(());
        }
        match self.shared.cause() {
            Some(cause) => Err(cause.clone().into()),
            None => Err(Error::WouldBlock),
        }
    }

    /// Aborts the whole connection.
    pub(crate) fn abort(&self, why: &str) {
        if self.shared.is_forked() {
            return;
        }
        self.shared.fail(Cause::Aborted(why.to_owned()));
        self.shared.set(Milestone::Aborted);
        self.notify_engine();
    }

    fn check_open(&self) -> Result<(), Error> {
        if let Some(cause) = self.shared.cause() {
            return Err(cause.clone().into());
        }
        match self.shared.has(Milestone::Finished) {
            true => Err(Error::Finished),
            false => Ok(()),
        }
    }

    fn room(&self) -> usize {
        let used = self.written - self.shared.freed.load(Ordering::Acquire);
        usize_from(u64::from(self.shared.shape.ring_bytes) - used)
    }

    fn copy_in(&mut self, bytes: &[u8]) {
        let shape = self.shared.shape;
        let (offset, to_end) = (shape.offset(self.written), shape.to_end(self.written));
        let (head, tail) = bytes.split_at(bytes.len().min(usize_from(to_end)));
        let copied = self.ring.copy_in(usize_from(offset), head);
        copied.and_then(|()| self.ring.copy_in(0, tail)).expect("offsets stay within the ring");
        self.written += u64_from(bytes.len());
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.finish();
    }
}
