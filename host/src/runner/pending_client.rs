//! A connected client that is not being served. Its messages are polled without waiting, so that a
//! silent client delays no other.

use super::probe::Probing;
use super::{HELLO_TIMEOUT, JobRunner, Peer, check_queue_pairs};
use crate::fabric::Error;
use crate::oob::{
    HELLO_BYTES_MAX, Hello, LINE_BYTES_MAX, Message, Oob, OobError, Request, STOP_POLL_INTERVAL,
};
use crate::probe::COUNT_INTERVAL;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A client on a side connection, before or between its jobs.
pub struct PendingClient {
    pub(super) oob: Oob,
    /// Our RoCE address on its network.
    pub(super) us: IpAddr,
    /// The peer, once its hello has been accepted.
    pub(super) peer: Option<Peer>,
    pub(super) probing: Probing,
    has_sent: bool,
    /// The message or error that [`PendingClient::has_arrived`] has read.
    first: Option<Result<Message, OobError>>,
    /// Start of the current wait.
    since: Instant,
}

/// The result of polling a client.
pub enum ClientPoll {
    /// No request has arrived.
    Pending,
    /// The client requests a job within the limits of this server.
    Request(Box<Request>),
    /// The client has closed the connection.
    Closed,
}

impl PendingClient {
    /// A client that has just connected over `oob`, with `us` as our RoCE address.
    #[must_use]
    pub fn new(mut oob: Oob, us: IpAddr) -> Self {
        // Before its hello, a client can occupy only the memory of a hello.
        oob.set_line_max(HELLO_BYTES_MAX);
        let (peer, probing, first) = (None, Probing::default(), None);
        Self { oob, us, peer, probing, has_sent: false, first, since: Instant::now() }
    }

    /// True once its hello has been accepted.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.peer.is_some()
    }

    /// True once it has sent anything.
    #[must_use]
    pub fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// Its address on the side connection; `None` inside one process.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.oob.peer_ip()
    }

    /// Start of the current wait.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// True once it is worth polling: a message or an error has arrived, or its time is up. The
    /// message stays for [`JobRunner::poll_client`].
    pub(super) fn has_arrived(&mut self) -> bool {
        if self.first.is_none() {
            self.first = self.oob.try_recv().transpose();
        }
        self.first.is_some() || self.since.elapsed() >= self.timeout()
    }

    /// The hello that has arrived and has not been answered.
    pub(super) fn hello(&self) -> Option<&Hello> {
        match &self.first {
            Some(Ok(Message::Hello(hello))) => Some(hello),
            _ => None,
        }
    }

    /// Rejects the client, because there are too many for now, with `reason`. A connection that
    /// cannot be written to is ignored.
    pub fn refuse(self, reason: &str) {
        self.oob.send_last(&Message::Reject { reason: reason.to_owned(), busy: true });
    }

    /// The time after which it is polled, if it sends nothing.
    pub(super) fn poll_interval(&self) -> Duration {
        if self.probing.is_counting() { COUNT_INTERVAL } else { STOP_POLL_INTERVAL }
    }

    /// Waits until it sends something, or is to be polled.
    pub(super) fn wait(&self) {
        let timeout = Timespec::try_from(self.poll_interval()).ok();
        // An error is ignored here, because the following read reports it.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], timeout.as_ref());
    }

    /// Restarts the wait.
    pub(super) fn restart_wait(&mut self) {
        self.since = Instant::now();
    }

    fn timeout(&self) -> Duration {
        if self.is_known() { REQUEST_TIMEOUT } else { HELLO_TIMEOUT }
    }
}

impl AsFd for PendingClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.oob.as_fd()
    }
}

impl JobRunner {
    /// Polls `client` for a message without waiting. A hello is answered.
    ///
    /// # Errors
    /// The client violates the exchange or has exceeded its time limit. It was sent the reason.
    pub fn poll_client(&mut self, client: &mut PendingClient) -> Result<ClientPoll, Error> {
        let polled = self.poll_message(client);
        if let Err(why) = &polled {
            // The reason is sent in any case; it fails if the client has gone.
            let _ = client.oob.send(&Message::reject(why.to_string()));
        }
        polled
    }

    fn poll_message(&mut self, client: &mut PendingClient) -> Result<ClientPoll, Error> {
        if client.probing.is_counting()
            && !self.answer_probes(&mut client.oob, &mut client.probing, client.peer.as_ref())?
        {
            return Ok(ClientPoll::Pending);
        }
        let first = client.first.take().transpose();
        let received =
            first.and_then(|first| first.map_or_else(|| client.oob.try_recv(), |m| Ok(Some(m))));
        let message = match received {
            Ok(Some(message)) => message,
            Ok(None) if client.since.elapsed() < client.timeout() => {
                return Ok(ClientPoll::Pending);
            }
            Ok(None) => return Err(OobError::Silent(client.timeout()).into()),
            Err(e) if client.is_known() && is_gone(&e) => return Ok(ClientPoll::Closed),
            Err(e) => {
                client.has_sent |= !is_gone(&e);
                return Err(e.into());
            }
        };
        client.has_sent = true;
        let probed = self.handle_probing(&mut client.probing, &mut client.peer, message)?;
        let Some(message) = probed else { return Ok(ClientPoll::Pending) };
        match message {
            Message::Hello(hello) if !client.is_known() => {
                self.answer_hello(client, &hello)?;
                Ok(ClientPoll::Pending)
            }
            Message::Request(request) if client.is_known() => {
                self.check_request(&request.job)?;
                check_queue_pairs(&request.qps, request.job.qps)?;
                self.sending_for(Some(&request))?;
                Ok(ClientPoll::Request(Box::new(request)))
            }
            other if client.is_known() => Err(OobError::unexpected("a request", &other).into()),
            other => Err(OobError::unexpected("a hello", &other).into()),
        }
    }

    fn answer_hello(&mut self, client: &mut PendingClient, theirs: &Hello) -> Result<(), Error> {
        self.set_ip(client.us);
        let sizes = self.attachment.packet_sizes().to(client.address())?;
        client.probing = Probing::new(self.count_probes(), theirs.probe_qpn);
        let hello = Hello { probe_qpn: client.probing.qpn(), ..self.hello(sizes) };
        client.peer = Some(self.check_hello(client.address(), theirs, sizes, false)?);
        client.oob.set_line_max(LINE_BYTES_MAX);
        client.oob.send(&Message::Hello(hello))?;
        self.greet_side_poll(theirs);
        client.restart_wait();
        if client.probing.awaits_probes() {
            return Ok(());
        }
        self.send_probes(&mut client.oob, &mut client.probing, client.peer.as_ref())
    }
}

/// True if the peer has closed or reset the connection.
pub(super) fn is_gone(e: &OobError) -> bool {
    match e {
        OobError::Closed => true,
        OobError::Io(e) => e.kind() == ErrorKind::ConnectionReset,
        _ => false,
    }
}

/// How long a client may take to request its next job. It may fill and hash a few gigabytes
/// meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
