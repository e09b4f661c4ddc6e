//! A connection that carries messages.

use crate::error::Error;
use crate::half::Half;
use crate::handshake::Established;
use crate::listener::sealed::Sealed;
use crate::receiving::Receiving;
use crate::sending::Sending;
use spanwire_base::usize_from;
use spanwire_transport::{Agreed, WireMode};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// A connection that carries messages: each arrives whole, once and in order.
///
/// Sending copies the message into the connection's memory and returns; it waits only while that is
/// full. Methods come in three kinds: those that wait, `try_*` that do not
/// ([`Error::WouldBlock`]), and `poll_*` for tasks. For an event loop, [`MessageSender::as_fd`] and
/// [`MessageReceiver::as_fd`] are readable when another `try_*` is worth it; after an
/// [`Error::WouldBlock`] they are not until then.
///
/// Dropping it delivers in the background what was sent, within
/// [`Config::linger`](crate::Config::linger); [`Connection::close`] waits until the other
/// application has taken it.
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

/// What there is to know of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// How both ends speak.
    pub mode: WireMode,
    /// On which terms; whether what is sent can be coded and take several paths.
    pub agreed: Agreed,
    /// The other end's RoCE address, and its port of the side connection.
    pub peer: SocketAddr,
    /// This end's.
    pub local: SocketAddr,
}

impl Connection {
    pub(crate) fn new(established: Established) -> Self {
        let Established { sending, receiving, agreed, peer, local } = established;
        let (sender, receiver) = (MessageSender { sending }, MessageReceiver { receiving });
        Self { sender, receiver, about: About { mode: agreed.mode(), agreed, peer, local } }
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

    /// Bytes of the longest message that both ends' limits allow.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        self.sender.max_message_bytes()
    }

    /// Sends a message; waits while there is no room for it.
    ///
    /// # Errors
    /// It is too long, or the connection is gone.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.sender.send(message)
    }

    /// The next message; waits for it. `None` when the other end has finished.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn recv(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.receiver.recv()
    }

    /// As [`Connection::recv`], for at most `timeout`.
    ///
    /// # Errors
    /// Nothing came in time ([`Error::TimedOut`]), or the connection is gone.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        self.receiver.recv_timeout(timeout)
    }

    /// Sends no more, and waits, at most for `timeout`, until the other application has taken
    /// everything.
    ///
    /// # Errors
    /// It has not in time, or never will. What it has taken is not known then.
    pub fn close(mut self, timeout: Duration) -> Result<(), Error> {
        self.sender.finish();
        self.sender.drained(timeout)
    }

    /// Gives the connection up, in both directions and at both ends. The other end is told `why`.
    pub fn abort(self, why: &str) {
        self.sender.sending.abort(why);
    }

    /// The sending half, to send without having the whole.
    pub fn sender(&mut self) -> &mut MessageSender {
        &mut self.sender
    }

    /// The receiving half, to receive without having the whole.
    pub fn receiver(&mut self) -> &mut MessageReceiver {
        &mut self.receiver
    }

    /// Both halves, for two threads or tasks.
    #[must_use]
    pub fn split(self) -> (MessageSender, MessageReceiver) {
        (self.sender, self.receiver)
    }
}

impl Sealed for Connection {
    fn from_established(established: Established) -> Self {
        Self::new(established)
    }
}

impl MessageSender {
    /// Sends a message; waits while there is no room for it.
    ///
    /// # Errors
    /// It is too long, sending was finished, or the connection is gone.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.sending.block(None, |s| s.try_message(message))
    }

    /// As [`MessageSender::send`], for at most `timeout`.
    ///
    /// # Errors
    /// As `send`, and [`Error::TimedOut`]: nothing of the message was sent then.
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

    /// Sends a message if there is room for all of it now; if not, the task is woken when there may
    /// be.
    ///
    /// # Errors
    /// As `send`.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, message: &[u8]) -> Poll<Result<(), Error>> {
        self.sending.poll(cx, |s| s.try_message(message))
    }

    /// Sends no more: the other end sees the end after everything sent before.
    pub fn finish(&mut self) {
        self.sending.finish();
    }

    /// Waits until the other application has taken everything and seen the end. Only after
    /// [`MessageSender::finish`].
    ///
    /// # Errors
    /// It has not in time, or never will.
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

    /// Gives the connection up, in both directions and at both ends. The other end is told `why`.
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
    /// The next message; waits for it. `None` when the other end has finished.
    ///
    /// # Errors
    /// The connection is gone; what came before has been given.
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

    /// The next message in place of what is in `message`, whose memory is used again. False when
    /// the other end has finished.
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

    /// The next message if there is one.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], and as `recv`.
    pub fn try_recv(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut message = Vec::new();
        let came = self.receiving.attempt(|r| r.try_message(&mut message))?;
        Ok(came.then_some(message))
    }

    /// The next message, in place of what is in `message`; false when the other end has finished.
    /// If there is none, the task is woken when there is.
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

/// Readable when [`MessageSender::try_send`] is worth a try.
impl AsFd for MessageSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sending.shared().sendable.descriptor()
    }
}

/// Readable when [`MessageReceiver::try_recv`] is worth a try.
impl AsFd for MessageReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiving.shared().receivable.descriptor()
    }
}
