//! Connections that carry messages.

use crate::about::About;
use crate::accepted::Accepted;
use crate::accepted::sealed::Sealed;
use crate::error::Error;
use crate::half::Half;
use crate::handshake::Established;
use crate::receiving::Receiving;
use crate::sending::Sending;
use spanwire_base::usize_from;
use spanwire_transport::WireMode;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// A connection that carries messages: each is delivered whole, once and in order.
///
/// Sending copies the message into the connection's memory and returns; it blocks only while that
/// is full. Methods have three forms: those that block, `try_*` that do not
/// ([`Error::WouldBlock`]), and `poll_*` for tasks. For an event loop, the descriptors of
/// [`MessageSender::as_fd`] and [`MessageReceiver::as_fd`] are readable when another `try_*` may
/// succeed; an [`Error::WouldBlock`] resets them.
///
/// After a drop, sent messages are delivered in the background, within
/// [`Config::linger`](crate::Config::linger); [`Connection::close`] waits until the other
/// application has taken them.
#[derive(Debug)]
pub struct Connection {
    sender: MessageSender,
    receiver: MessageReceiver,
    about: About,
}

/// The sending half of a [`Connection`].
#[derive(Debug)]
pub struct MessageSender {
    sending: Sending,
}

/// The receiving half of a [`Connection`].
#[derive(Debug)]
pub struct MessageReceiver {
    receiving: Receiving,
}

impl Connection {
    pub(crate) fn new(established: Established) -> Self {
        let Established { sending, receiving, about } = established;
        let (sender, receiver) = (MessageSender { sending }, MessageReceiver { receiving });
        Self { sender, receiver, about }
    }

    /// The wire mode: RC or SR.
    #[must_use]
    pub fn mode(&self) -> WireMode {
        self.about.mode
    }

    /// Queue pair, mode and addresses.
    #[must_use]
    pub fn about(&self) -> About {
        self.about
    }

    /// Bytes of the longest message that both ends' limits allow.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        self.sender.max_message_bytes()
    }

    /// Sends a message; blocks while there is no room for it.
    ///
    /// # Errors
    /// It is too long, or the connection is gone.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.sender.send(message)
    }

    /// Receives the next message; blocks until it arrives. `None` once the other end has finished.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn recv(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.receiver.recv()
    }

    /// As [`Connection::recv`], for at most `timeout`.
    ///
    /// # Errors
    /// No message arrived in time ([`Error::TimedOut`]), or the connection is gone.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        self.receiver.recv_timeout(timeout)
    }

    /// Finishes sending, and waits, at most for `timeout`, until the other application has taken
    /// everything.
    ///
    /// # Errors
    /// It did not in time, or never will. How much it has taken is unknown then.
    pub fn close(mut self, timeout: Duration) -> Result<(), Error> {
        self.sender.finish();
        self.sender.drained(timeout)
    }

    /// As [`Connection::close`], if the other application has taken everything now. The connection
    /// can then be dropped.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], and as `close`.
    pub fn try_close(&mut self) -> Result<(), Error> {
        self.sender.finish();
        self.sender.sending.attempt(|s| s.check_drained())
    }

    /// As [`Connection::try_close`]. If the other application has not taken everything, the task is
    /// woken when it has.
    ///
    /// # Errors
    /// As `close`.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.sender.finish();
        self.sender.poll_drained(cx)
    }

    /// Aborts the connection, in both directions and at both ends. The other end receives `why`.
    pub fn abort(self, why: &str) {
        self.sender.sending.abort(why);
    }

    /// The sending half, borrowed.
    pub fn sender(&mut self) -> &mut MessageSender {
        &mut self.sender
    }

    /// The receiving half, borrowed.
    pub fn receiver(&mut self) -> &mut MessageReceiver {
        &mut self.receiver
    }

    /// Both halves, for two threads or tasks.
    #[must_use]
    pub fn split(self) -> (MessageSender, MessageReceiver) {
        (self.sender, self.receiver)
    }
}

impl Accepted for Connection {}

impl Sealed for Connection {
    fn from_established(established: Established) -> Self {
        Self::new(established)
    }
}

impl MessageSender {
    /// Sends a message; blocks while there is no room for it.
    ///
    /// # Errors
    /// It is too long, sending was finished, or the connection is gone.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.sending.block(None, |s| s.try_message(message))
    }

    /// As [`MessageSender::send`], for at most `timeout`.
    ///
    /// # Errors
    /// As `send`, and [`Error::TimedOut`]: then no part of the message was sent.
    pub fn send_timeout(&mut self, message: &[u8], timeout: Duration) -> Result<(), Error> {
        self.sending.block(Some(timeout), |s| s.try_message(message))
    }

    /// Sends a message if there is room for all of it now.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], and as `send`.
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.sending.attempt(|s| s.try_message(message))
    }

    /// Sends a message if there is room for all of it now. If not, the task is woken when there may
    /// be.
    ///
    /// # Errors
    /// As `send`.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, message: &[u8]) -> Poll<Result<(), Error>> {
        self.sending.poll(cx, |s| s.try_message(message))
    }

    /// Finishes sending: the other end receives the end after all messages.
    pub fn finish(&mut self) {
        self.sending.finish();
    }

    /// Waits until the other application has taken everything, including the end. Only after
    /// [`MessageSender::finish`].
    ///
    /// # Errors
    /// It did not in time, or never will.
    pub fn drained(&mut self, timeout: Duration) -> Result<(), Error> {
        self.sending.block(Some(timeout), |s| s.check_drained())
    }

    /// As [`MessageSender::drained`], for a task.
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

    /// Bytes of the longest message that both ends' limits allow.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        usize_from(self.sending.shared().shape.max_message_bytes.into())
    }
}

impl MessageReceiver {
    /// Receives the next message; blocks until it arrives. `None` once the other end has finished.
    ///
    /// # Errors
    /// The connection is gone, and all messages received before were returned.
    pub fn recv(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut message = Vec::new();
        Ok(self.recv_into(&mut message)?.then_some(message))
    }

    /// As [`MessageReceiver::recv`], for at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as `recv`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        let mut message = Vec::new();
        let came = self.receiving.block(Some(timeout), |r| r.try_message(&mut message))?;
        Ok(came.then_some(message))
    }

    /// Receives the next message into `message`, whose memory is reused and whose content is
    /// replaced. False once the other end has finished.
    ///
    /// # Errors
    /// As `recv`.
    pub fn recv_into(&mut self, message: &mut Vec<u8>) -> Result<bool, Error> {
        self.receiving.block(None, |r| r.try_message(message))
    }

    /// As [`MessageReceiver::recv_into`], for at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as `recv`.
    pub fn recv_into_timeout(
        &mut self,
        message: &mut Vec<u8>,
        timeout: Duration,
    ) -> Result<bool, Error> {
        self.receiving.block(Some(timeout), |r| r.try_message(message))
    }

    /// The next message, if one has arrived.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], and as `recv`.
    pub fn try_recv(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut message = Vec::new();
        let came = self.receiving.attempt(|r| r.try_message(&mut message))?;
        Ok(came.then_some(message))
    }

    /// Receives the next message into `message`; false once the other end has finished. If none has
    /// arrived, the task is woken when one does.
    ///
    /// # Errors
    /// As `recv`.
    pub fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        message: &mut Vec<u8>,
    ) -> Poll<Result<bool, Error>> {
        self.receiving.poll(cx, |r| r.try_message(message))
    }
}

/// Readable when [`MessageSender::try_send`] may succeed.
impl AsFd for MessageSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sending.shared().sendable.descriptor()
    }
}

/// Readable when [`MessageReceiver::try_recv`] may succeed.
impl AsFd for MessageReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiving.shared().receivable.descriptor()
    }
}
