//! The chunks of a copy on their way to the writer, which takes them from the connections in turn:
//! that is the order in which they were sent.

use crate::session::{End, POLL_INTERVAL, Session};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// The chunks of one connection.
#[derive(Debug)]
pub struct ChunkQueue {
    /// Those that arrived, and when, copied out of the ring, to which the sender may still write.
    pub arrived: Receiver<(Instant, Vec<u8>)>,
    /// Returns the buffers of processed ones.
    pub spare: Sender<Vec<u8>>,
}

/// The chunks of all connections.
#[derive(Debug)]
pub struct Chunks {
    queues: Vec<ChunkQueue>,
    /// The connection of the next chunk.
    next: usize,
}

impl Chunks {
    /// Those of connections in this order.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn new(queues: Vec<ChunkQueue>) -> Self {
        assert!(!queues.is_empty(), "a copy has a connection");
        Self { queues, next: 0 }
    }

    /// The next chunk, and when it arrived.
    ///
    /// # Errors
    /// The copy has ended.
    pub fn next(&mut self, session: &Session) -> Result<(Instant, Vec<u8>), End> {
        wait(&self.queues[self.next].arrived, session)
    }

    /// Returns the buffer of the chunk of the last [`Chunks::next`]. The one after it comes over
    /// the next connection.
    pub fn processed(&mut self, chunk: Vec<u8>) {
        // An error means that the receiving thread has ended with the session.
        let _ = self.queues[self.next].spare.send(chunk);
        self.next = (self.next + 1) % self.queues.len();
    }
}

/// Waits for the next item from another thread of the copy.
///
/// # Errors
/// The copy has ended.
pub(crate) fn wait<T>(from: &Receiver<T>, session: &Session) -> Result<T, End> {
    loop {
        match from.recv_timeout(POLL_INTERVAL) {
            Ok(thing) => return Ok(thing),
            // The other thread has ended and is about to set the cause, which this one does not
            // know.
            Err(RecvTimeoutError::Disconnected) if !session.is_over() => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(RecvTimeoutError::Timeout) if !session.is_over() => {}
            // The session keeps the first cause, so this error only ends the thread.
            Err(_) => return Err(End::Failed("another part of the copy has ended".into())),
        }
    }
}
