//! Connections that carry bytes.

use crate::about::About;
use crate::accepted::Accepted;
use crate::accepted::sealed::Sealed;
use crate::error::Error;
use crate::half::Half;
use crate::handshake::Established;
use crate::receiving::Receiving;
use crate::sending::Sending;
use spanwire_transport::WireMode;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// A connection that carries bytes in both directions, as a TCP stream does: [`Read`] and
/// [`Write`], a half-close, and flow control by the receiving application.
///
/// Small writes are coalesced while others are in flight, as by Nagle's algorithm. [`Write::flush`]
/// does nothing, since no byte waits unless others are in flight. After a drop, written data are
/// delivered in the background; [`ByteStream::close`] waits until the other application has read
/// them.
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
        let Established { sending, receiving, about } = established;
        Self {
            writer: ByteWriter { sending, timeout: None },
            reader: ByteReader { receiving, timeout: None },
            about,
        }
    }

    /// The wire mode: RC or SR.
    #[must_use]
    pub fn mode(&self) -> WireMode {
        self.about.mode
    }

    /// Mode and addresses.
    #[must_use]
    pub fn about(&self) -> About {
        self.about
    }

    /// Time limit of a read, which then fails with `TimedOut`; `None`, the default, for no limit.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.reader.timeout = timeout;
    }

    /// Time limit of a write, which then fails with `TimedOut`; `None`, the default, for no limit.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.writer.timeout = timeout;
    }

    /// Finishes writing: the other end reads the end of the stream after all data.
    pub fn finish(&mut self) {
        self.writer.finish();
    }

    /// Finishes writing, and waits, at most for `timeout`, until the other application has read
    /// everything, including the end.
    ///
    /// # Errors
    /// It did not in time, or never will. How much it has read is unknown then.
    pub fn close(mut self, timeout: Duration) -> Result<(), Error> {
        self.writer.finish();
        self.writer.drained(timeout)
    }

    /// As [`ByteStream::close`], if the other application has read everything now. The stream can
    /// then be dropped.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], and as `close`.
    pub fn try_close(&mut self) -> Result<(), Error> {
        self.writer.finish();
        self.writer.sending.attempt(|s| s.check_drained())
    }

    /// As [`ByteStream::try_close`]. If the other application has not read everything, the task is
    /// woken when it has.
    ///
    /// # Errors
    /// As `close`.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.writer.finish();
        self.writer.poll_drained(cx)
    }

    /// Aborts the connection, in both directions and at both ends. The other end receives `why`.
    pub fn abort(self, why: &str) {
        self.writer.sending.abort(why);
    }

    /// The writing half, borrowed.
    pub fn writer(&mut self) -> &mut ByteWriter {
        &mut self.writer
    }

    /// The reading half, borrowed.
    pub fn reader(&mut self) -> &mut ByteReader {
        &mut self.reader
    }

    /// Both halves, for two threads or tasks.
    #[must_use]
    pub fn split(self) -> (ByteWriter, ByteReader) {
        (self.writer, self.reader)
    }
}

impl Accepted for ByteStream {}

impl Sealed for ByteStream {
    fn from_established(established: Established) -> Self {
        Self::new(established)
    }
}

impl ByteWriter {
    /// Writes as much as fits now; returns the number of bytes.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no room; writing was finished, or the connection is gone.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.sending.attempt(|s| s.try_bytes(bytes))
    }

    /// As [`ByteWriter::try_write`]. Without room, the task is woken when there may be some.
    ///
    /// # Errors
    /// Writing was finished, or the connection is gone.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        self.sending.poll(cx, |s| s.try_bytes(bytes))
    }

    /// Finishes writing: the other end reads the end of the stream after all data.
    pub fn finish(&mut self) {
        self.sending.finish();
    }

    /// Waits until the other application has read everything, including the end. Only after
    /// [`ByteWriter::finish`].
    ///
    /// # Errors
    /// It did not in time, or never will.
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

    /// Aborts the connection, in both directions and at both ends. The other end receives `why`.
    pub fn abort(&self, why: &str) {
        self.sending.abort(why);
    }
}

impl ByteReader {
    /// Reads the available bytes; returns 0 at the end of the stream.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if nothing is available, or the connection is gone.
    pub fn try_read(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        self.receiving.attempt(|r| r.try_bytes(into))
    }

    /// As [`ByteReader::try_read`]. If nothing is available, the task is woken when something
    /// arrives.
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

/// Readable when [`ByteWriter::try_write`] may succeed.
impl AsFd for ByteWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sending.shared().sendable.descriptor()
    }
}

/// Readable when [`ByteReader::try_read`] may succeed.
impl AsFd for ByteReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiving.shared().receivable.descriptor()
    }
}
