//! A client that has connected and is not being served: what it says is heard without waiting for
//! it, so that one that says nothing costs nobody but itself.

use super::{HELLO_WITHIN, Peer, Station};
use crate::fabric::Error;
use crate::oob::{HELLO_BYTES_MAX, Hello, LINE_BYTES_MAX, Message, Oob, OobError, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A client at the other end of a side connection, before or between its jobs.
pub struct Guest {
    pub(super) oob: Oob,
    /// Our RoCE address for it.
    pub(super) us: IpAddr,
    /// Who it is, once it has said hello.
    pub(super) peer: Option<Peer>,
    has_spoken: bool,
    /// Since when it is waited for.
    since: Instant,
}

/// What became of looking at a guest.
pub enum Attended {
    /// It has nothing to say that would be a request.
    Waits,
    /// It asks for a job that this station takes.
    Asks(Request),
    /// It has left, in good order.
    Left,
}

impl Guest {
    /// A client that has just connected over `oob`, to which we are `us`.
    #[must_use]
    pub fn new(mut oob: Oob, us: IpAddr) -> Self {
        // Until it is known it gets no more memory than a hello takes.
        oob.set_line_max(HELLO_BYTES_MAX);
        Self { oob, us, peer: None, has_spoken: false, since: Instant::now() }
    }

    /// It has said hello, and something could be agreed on.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.peer.is_some()
    }

    /// It has said anything at all.
    #[must_use]
    pub fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    /// Its address on the side connection; `None` inside one process.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.oob.peer_ip()
    }

    /// Since when it is waited for.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Tells it why it is sent away. A connection that takes no more is left alone.
    pub fn refuse(mut self, reason: &str) {
        let _ = self.oob.send(&Message::Reject { reason: reason.to_owned() });
    }

    /// Waits until it says something, at most `time`.
    pub(super) fn wait(&self, time: Duration) {
        let timeout = Timespec::try_from(time).ok();
        // If this fails, whoever reads from the connection is told why.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], timeout.as_ref());
    }

    /// It is waited for anew.
    pub(super) fn wait_anew(&mut self) {
        self.since = Instant::now();
    }

    fn patience(&self) -> Duration {
        if self.is_known() { REQUEST_WITHIN } else { HELLO_WITHIN }
    }
}

impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.oob.as_fd()
    }
}

impl Station {
    /// Hears what `guest` has to say, without waiting for it. A hello is answered.
    ///
    /// # Errors
    /// It says what it must not or has said nothing for too long; it was told why.
    pub fn listen_to(&mut self, guest: &mut Guest) -> Result<Attended, Error> {
        let heard = self.take_word(guest);
        if let Err(why) = &heard {
            // Whoever is there should know why; if nobody is, nobody does.
            let _ = guest.oob.send(&Message::Reject { reason: why.to_string() });
        }
        heard
    }

    fn take_word(&mut self, guest: &mut Guest) -> Result<Attended, Error> {
        let message = match guest.oob.try_recv() {
            Ok(Some(message)) => message,
            Ok(None) if guest.since.elapsed() < guest.patience() => return Ok(Attended::Waits),
            Ok(None) => return Err(OobError::Silent(guest.patience()).into()),
            Err(e) if guest.is_known() && is_gone(&e) => return Ok(Attended::Left),
            Err(e) => {
                guest.has_spoken |= !is_gone(&e);
                return Err(e.into());
            }
        };
        guest.has_spoken = true;
        match message {
            Message::Hello(hello) if !guest.is_known() => {
                self.welcome(guest, &hello)?;
                Ok(Attended::Waits)
            }
            Message::Request(request) if guest.is_known() => {
                self.check_request(&request.job)?;
                self.sending_for(Some(&request))?;
                Ok(Attended::Asks(request))
            }
            other if guest.is_known() => Err(OobError::unexpected("a request", other).into()),
            other => Err(OobError::unexpected("a hello", other).into()),
        }
    }

    fn welcome(&mut self, guest: &mut Guest, theirs: &Hello) -> Result<(), Error> {
        self.set_ip(guest.us);
        let hello = self.hello();
        guest.peer = Some(self.check_hello(&guest.oob, theirs, false)?);
        guest.oob.set_line_max(LINE_BYTES_MAX);
        guest.oob.send(&Message::Hello(hello))?;
        self.greet_side_poll(theirs);
        guest.wait_anew();
        Ok(())
    }
}

/// The peer closed the connection, in whatever manner.
pub(super) fn is_gone(e: &OobError) -> bool {
    match e {
        OobError::Closed => true,
        OobError::Io(e) => e.kind() == ErrorKind::ConnectionReset,
        _ => false,
    }
}

/// How long a client may take to ask for its next job: its own filling and hashing of a few
/// gigabytes fits.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);
