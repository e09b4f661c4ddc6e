//! A connection that carries bytes.

use crate::connection::About;
use crate::error::Error;
use crate::half::Half;
use crate::handshake::Established;
use crate::listener::sealed::Sealed;
use crate::receiving::Receiving;
use crate::sending::Sending;
use spanwire_transport::WireMode;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// A connection that carries bytes each way, as a TCP stream does: [`Read`] and [`Write`], a half
/// that can be finished, and waiting where the other application does not take what comes.
///
/// Small writes that find others under way travel together; [`Write::flush`] does nothing, since
/// nothing waits without something under way. Dropping it delivers in the background what was
/// written; [`ByteStream::close`] waits until the other application has read it.
#[derive(Debug)]
pub struct ByteStream {
    writer: ByteWriter,
    reader: ByteReader,
    about: About,
}

/// The writing half of a [`ByteStream`].
#[derive(Debug)]
pub struct ByteWriter {
    sending: Sending,
    timeout: Option<Duration>,
}

/// The reading half of a [`ByteStream`].
#[derive(Debug)]
pub struct ByteReader {
    receiving: Receiving,
    timeout: Option<Duration>,
}

impl ByteStream {
    pub(crate) fn new(established: Established) -> Self {
        let Established { sending, receiving, agreed, peer, local } = established;
        Self {
            writer: ByteWriter { sending, timeout: None },
            reader: ByteReader { receiving, timeout: None },
            about: About { mode: agreed.mode(), agreed, peer, local },
        }
    }

    /// How both ends speak: RC or SR.
    #[must_use]
    pub fn mode(&self) -> WireMode {
        self.about.mode
    }

    /// Mode and addresses.
    #[must_use]
    pub fn about(&self) -> About {
        self.about
    }

    /// How long a read waits before it fails with `TimedOut`; `None`, the default, for ever.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.reader.timeout = timeout;
    }

    /// How long a write waits before it fails with `TimedOut`; `None`, the default, for ever.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.writer.timeout = timeout;
    }

    /// Writes no more: the other end reads the end after everything written before.
    pub fn finish(&mut self) {
        self.writer.finish();
    }

    /// Writes no more, and waits, at most for `timeout`, until the other application has read
    /// everything and the end.
    ///
    /// # Errors
    /// It has not in time, or never will. What it has read is not known then.
    pub fn close(mut self, timeout: Duration) -> Result<(), Error> {
        self.writer.finish();
        self.writer.drained(timeout)
    }

    /// Gives the connection up, in both directions and at both ends. The other end is told `why`.
    pub fn abort(self, why: &str) {
        self.writer.sending.abort(why);
    }

    /// The writing half, to write without having the whole.
    pub fn writer(&mut self) -> &mut ByteWriter {
        &mut self.writer
    }

    /// The reading half, to read without having the whole.
    pub fn reader(&mut self) -> &mut ByteReader {
        &mut self.reader
    }

    /// Both halves, for two threads or tasks.
    #[must_use]
    pub fn split(self) -> (ByteWriter, ByteReader) {
        (self.writer, self.reader)
    }
}

impl Sealed for ByteStream {
    fn from_established(established: Established) -> Self {
        Self::new(established)
    }
}

impl ByteWriter {
    /// Writes as much as there is room for now; says how much that was.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is none; writing was finished, or the connection is gone.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.sending.attempt(|s| s.try_bytes(bytes))
    }

    /// As [`ByteWriter::try_write`]; without room the task is woken when there may be some.
    ///
    /// # Errors
    /// Writing was finished, or the connection is gone.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        self.sending.poll(cx, |s| s.try_bytes(bytes))
    }

    /// Writes no more: the other end reads the end after everything written before.
    pub fn finish(&mut self) {
        self.sending.finish();
    }

    /// Waits until the other application has read everything and the end. Only after
    /// [`ByteWriter::finish`].
    ///
    /// # Errors
    /// It has not in time, or never will.
    pub fn drained(&mut self, timeout: Duration) -> Result<(), Error> {
        self.sending.block(Some(timeout), |s| s.check_drained())
    }

    /// As [`ByteWriter::drained`], for a task.
    ///
    /// # Errors
    /// It never will.
    pub fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.sending.poll(cx, |s| s.check_drained())
    }

    /// Gives the connection up, in both directions and at both ends. The other end is told `why`.
    pub fn abort(&self, why: &str) {
        self.sending.abort(why);
    }
}

impl ByteReader {
    /// Reads what there is now; 0 at the end.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if nothing has come, or the connection is gone.
    pub fn try_read(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        self.receiving.attempt(|r| r.try_bytes(into))
    }

    /// As [`ByteReader::try_read`]; if nothing has come the task is woken when something does.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<Result<usize, Error>> {
        self.receiving.poll(cx, |r| r.try_bytes(into))
    }
}

impl Write for ByteWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.sending.block(self.timeout, |s| s.try_bytes(bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for ByteReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.receiving.block(self.timeout, |r| r.try_bytes(into))?)
    }
}

impl Write for ByteStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for ByteStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

/// Readable when [`ByteWriter::try_write`] is worth a try.
impl AsFd for ByteWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sending.shared().sendable.descriptor()
    }
}

/// Readable when [`ByteReader::try_read`] is worth a try.
impl AsFd for ByteReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiving.shared().receivable.descriptor()
    }
}
