//! Listeners: they accept connections of peers.

mod ordered;

use crate::accepted::Accepted;
use crate::error::SetupError;
use crate::handshake::{Established, answer, dismiss, reject};
use crate::network::options::ConnectOptions;
use crate::network::shared::NetworkShared;
use crate::peers::{ConnectionCount, HalfOpenCount};
use crate::shared::Kind;
use crate::side::Side;
use crate::threads::start;
use ordered::Ordered;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spanwire_host::dial::{accept, listen};
use spanwire_io::event::EventFd;
use spanwire_io::worker::Signal;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Accepts connections: [`Connection`](crate::Connection)s or [`ByteStream`](crate::ByteStream)s.
///
/// If the network ends, because its interface was removed, calls return
/// [`SetupError::NetworkGone`](crate::SetupError::NetworkGone).
///
/// Handshakes run concurrently, at most the configured number at a time, so that a silent or
/// hostile client delays no other. Beyond that number the one that has been silent for longest is
/// dropped; a caller of this crate then tries again for about a second. Accepted connections are
/// connected at both ends. Those that a peer sets up one after another are accepted in this order.
/// Dropping the listener ends it and aborts connections that were not accepted.
#[derive(Debug)]
pub struct Listener<C> {
    accept_queue: Arc<AcceptQueue>,
    address: SocketAddr,
    carries: PhantomData<fn() -> C>,
}

/// The queue of connections to be accepted, and the state of the accepting thread.
#[derive(Debug)]
struct AcceptQueue {
    network: Arc<NetworkShared>,
    options: ConnectOptions,
    kind: Kind,
    /// In the order of the answers to their callers.
    waiting: Mutex<Ordered<Waiting>>,
    acceptable: Signal,
    closing: AtomicBool,
    /// Wakes the accepting thread: the listener was dropped, or another connection is the first.
    news: EventFd,
}

/// A connection in the queue.
#[derive(Debug)]
struct Waiting {
    established: Established,
    /// When it is aborted.
    until: Instant,
}

/// A position in the queue for a connection whose caller gets its answer next.
struct Reservation<'a> {
    accept_queue: &'a AcceptQueue,
    position: u64,
}

impl<C: Accepted> Listener<C> {
    pub(crate) fn new(
        network: Arc<NetworkShared>,
        port: u16,
        options: ConnectOptions,
        kind: Kind,
    ) -> Result<Self, SetupError> {
        network.check()?;
        let listener = listen(&network.ifname, network.address, port)
            .map_err(|e| SetupError::Io("listen", e))?;
        let address = listener.local_addr().map_err(|e| SetupError::Io("listen", e))?;
        let descriptors = |e| SetupError::Io("make descriptors", e);
        let accept_queue = Arc::new(AcceptQueue {
            network,
            options,
            kind,
            waiting: Mutex::default(),
            acceptable: Signal::new(EventFd::new().map_err(descriptors)?, None),
            closing: AtomicBool::new(false),
            news: EventFd::new().map_err(descriptors)?,
        });
        let at_work = accept_queue.clone();
        start("spanwire-accept", move || at_work.run(&listener))?;
        Ok(Self { accept_queue, address, carries: PhantomData })
    }

    /// Accepts the next connection; blocks until there is one.
    ///
    /// # Errors
    /// The network is gone.
    pub fn accept(&self) -> Result<C, SetupError> {
        self.accept_queue
            .acceptable
            .wait(None, || self.look())
            .unwrap_or_else(|| Err(self.accept_queue.network.gone()))
    }

    /// As [`Listener::accept`], for at most `timeout`; `None` if no connection arrived.
    ///
    /// # Errors
    /// The network is gone.
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<C>, SetupError> {
        let deadline = Instant::now().checked_add(timeout);
        self.accept_queue.acceptable.wait(deadline, || self.look()).transpose()
    }

    /// Accepts the next connection, if there is one.
    ///
    /// # Errors
    /// The network is gone.
    pub fn try_accept(&self) -> Result<Option<C>, SetupError> {
        if let Some(found) = self.look() {
            return found.map(Some);
        }
        self.accept_queue.acceptable.arm(None);
        self.look().transpose()
    }

    /// Accepts the next connection. If there is none, the task is woken when one arrives.
    ///
    /// # Errors
    /// The network is gone.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<C, SetupError>> {
        if let Some(found) = self.look() {
            return Poll::Ready(found);
        }
        self.accept_queue.acceptable.arm(Some(cx.waker()));
        self.look().map_or(Poll::Pending, Poll::Ready)
    }

    fn look(&self) -> Option<Result<C, SetupError>> {
        if self.accept_queue.is_forked() {
            return Some(Err(self.accept_queue.closed()));
        }
        if let Some(waiting) = self.accept_queue.waiting().pop_front() {
            return Some(Ok(C::from_established(waiting.established)));
        }
        self.accept_queue.closing.load(Ordering::SeqCst).then(|| Err(self.accept_queue.closed()))
    }
}

impl<C> Listener<C> {
    /// A handle that closes the listener from another thread, for an orderly end.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer { accept_queue: self.accept_queue.clone() }
    }

    /// The local TCP address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

/// Closes a [`Listener`] from any thread: a blocked [`Listener::accept`] ends, and no further
/// connection is accepted.
#[derive(Clone, Debug)]
pub struct Closer {
    accept_queue: Arc<AcceptQueue>,
}

impl Closer {
    /// Closes the listener. Connections that were not accepted are aborted; accepted ones remain.
    pub fn close(&self) {
        self.accept_queue.close();
    }
}

/// Readable when [`Listener::try_accept`] may succeed.
impl<C> AsFd for Listener<C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.accept_queue.acceptable.descriptor()
    }
}

impl<C> Drop for Listener<C> {
    fn drop(&mut self) {
        self.accept_queue.close();
    }
}

impl AcceptQueue {
    /// True in a process that was forked from the one that listens.
    fn is_forked(&self) -> bool {
        self.network.is_forked()
    }

    fn close(&self) {
        if self.is_forked() {
            return;
        }
        self.closing.store(true, Ordering::SeqCst);
        self.news.signal();
        self.acceptable.raise();
    }

    /// The error of an accept after the end.
    fn closed(&self) -> SetupError {
        match self.network.has_ended() {
            true => self.network.gone(),
            false => SetupError::ListenerClosed,
        }
    }

    /// Accepts TCP connections until the listener is dropped, or the network has ended.
    fn run(self: Arc<Self>, listener: &TcpListener) {
        while !self.closing.load(Ordering::SeqCst) {
            let within = self.abort_expired(Instant::now());
            let at_work = self.network.workers.iter().map(|worker| &worker.engine);
            let at_work = at_work.filter(|engine| !engine.has_ended());
            let mut fds: Vec<_> =
                at_work.map(|it| PollFd::new(it.ended(), PollFlags::IN)).collect();
            fds.push(PollFd::new(listener, PollFlags::IN));
            fds.push(PollFd::new(&self.news, PollFlags::IN));
            // A signal ends the wait early; the loop then polls again.
            let _ = poll(&mut fds, within.as_ref());
            if self.network.has_ended() {
                self.closing.store(true, Ordering::SeqCst);
                self.acceptable.raise();
                break;
            }
            self.news.clear();
            loop {
                match accept(listener) {
                    Ok(Some((stream, from))) => self.take(stream, from),
                    Ok(None) => break,
                    Err(e) => {
                        // Usually no descriptors are left. Some may be freed during the pause.
                        tracing::warn!("cannot take a connection: {e}");
                        std::thread::sleep(PAUSE);
                        break;
                    }
                }
            }
        }
        // Aborts the connections in the queue; their peers receive the reason.
        for waiting in self.waiting().drain() {
            waiting.established.sending.abort("the listener was closed");
        }
    }

    /// Aborts connections past `accept_timeout`. Returns the time until the next one expires.
    fn abort_expired(&self, now: Instant) -> Option<Timespec> {
        let mut waiting = self.waiting();
        let within = self.network.config.accept_timeout;
        while waiting.front().is_some_and(|first| first.until <= now)
            && let Some(Waiting { established, .. }) = waiting.pop_front()
        {
            established.sending.abort(&format!("it was not accepted within {within:?}"));
        }
        let left = waiting.front()?.until.saturating_duration_since(now);
        Timespec::try_from(left).ok()
    }

    fn take(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let Ok(socket) = stream.try_clone() else { return };
        let Ok(side) = Side::new(stream) else { return };
        let peer = from.ip().to_canonical();
        let entered = self.network.peers.enter(&self.network.config, peer, Some((socket, dismiss)));
        let (half_open, count) = match entered {
            Ok(places) => places,
            Err(why) => return reject(&side, &why),
        };
        let accept_queue = self.clone();
        let started = start("spanwire-handshake", move || {
            accept_queue.set_up(side, (&half_open, count), from);
        });
        if let Err(e) = started {
            tracing::warn!("{from} is turned away: {e}");
        }
    }

    fn set_up(&self, side: Side, counts: (&HalfOpenCount, ConnectionCount), from: SocketAddr) {
        let deadline = Instant::now() + self.network.config.handshake_timeout;
        let half_open = counts.0;
        let answered = answer(&self.network, side, counts, &self.options, self.kind, deadline);
        let queued = answered.and_then(|answered| {
            // Before the caller can begin its next connection.
            let reservation = self.reserve();
            reservation.fill(answered.confirm()?);
            Ok(())
        });
        if let Err(e) = queued {
            tracing::info!("no connection with {from}: {}", half_open.cause(e));
        }
    }

    /// The last position of the queue. The limits of connections bound it.
    fn reserve(&self) -> Reservation<'_> {
        Reservation { accept_queue: self, position: self.waiting().reserve() }
    }

    fn waiting(&self) -> MutexGuard<'_, Ordered<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// Queues a connection to be accepted.
    fn fill(self, established: Established) {
        let Self { accept_queue, position } = self;
        let mut waiting = accept_queue.waiting();
        if accept_queue.closing.load(Ordering::SeqCst) {
            return established.sending.abort("the listener was closed");
        }
        let until = Instant::now() + accept_queue.network.config.accept_timeout;
        waiting.fill(position, Waiting { established, until });
    }
}

/// Without a connection the position is given up, so that those behind it can be accepted.
impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let is_first = self.accept_queue.waiting().settle(self.position);
        if is_first {
            self.accept_queue.news.signal();
        }
        self.accept_queue.acceptable.raise();
    }
}

/// Pause of the accepting thread after an error of the system.
const PAUSE: Duration = Duration::from_millis(50);
