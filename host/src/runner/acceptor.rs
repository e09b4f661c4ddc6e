//! The acceptor of a server: where its clients come from, and those that are not being served. One
//! client is served at a time; a silent client must not keep others out.

use super::{ClientPoll, JobRunner, PendingClient};
use crate::dial::accept;
use crate::fabric::Error;
use crate::oob::{Oob, Request, STOP_POLL_INTERVAL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spanwire_io::event::EventFd;
use std::collections::VecDeque;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

/// The pending clients of a listener, or of one worker.
pub struct Acceptor {
    entrance: Entrance,
    /// In the order in which they are polled.
    clients: VecDeque<PendingClient>,
    address: Option<IpAddr>,
}

/// Where clients come from.
enum Entrance {
    Listener(TcpListener),
    /// From the dispatcher of a server with several workers, with its event.
    Inbox(Receiver<PendingClient>, Arc<EventFd>),
    /// It was an inbox whose dispatcher has ended.
    Closed,
}

/// An event of a pending client.
pub enum Event {
    /// The client requests a job.
    Request(PendingClient, Box<Request>),
    /// The client is gone: it closed, or was rejected because of an error.
    Closed(PendingClient, Result<(), Error>),
}

impl Acceptor {
    /// An acceptor for clients of `listener`. Our RoCE address for them is `address`, or the one
    /// that each has connected to.
    #[must_use]
    pub fn new(listener: TcpListener, address: Option<IpAddr>) -> Self {
        Self { entrance: Entrance::Listener(listener), clients: VecDeque::new(), address }
    }

    /// An acceptor for the clients that a dispatcher sends to `inbox`, with a signal of `event`.
    pub(super) fn of_worker(inbox: Receiver<PendingClient>, event: Arc<EventFd>) -> Self {
        let entrance = Entrance::Inbox(inbox, event);
        Self { entrance, clients: VecDeque::new(), address: None }
    }

    /// True if no client is left and none will come: the dispatcher has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.entrance, Entrance::Closed) && self.clients.is_empty()
    }

    /// Waits for the next event, at most [`STOP_POLL_INTERVAL`].
    ///
    /// # Errors
    /// The listener is broken, or the port is gone. A listener of a removed interface receives
    /// nothing any more, even if an interface of that name comes back.
    pub fn next(&mut self, runner: &mut JobRunner) -> Result<Option<Event>, Error> {
        runner.check_port()?;
        runner.pass_on();
        self.accept_pending()?;
        if let Some(event) = self.poll_clients(runner) {
            return Ok(Some(event));
        }
        self.wait(runner.descriptor());
        Ok(None)
    }

    /// Returns a client that was served.
    pub fn put_back(&mut self, client: PendingClient) {
        self.clients.push_back(client);
    }

    /// Accepts pending connections, a few at a time: those before them are polled in between.
    pub(super) fn accept_pending(&mut self) -> Result<(), Error> {
        for _ in 0..PENDING_PER_ADDRESS_MAX {
            let Some((client, from)) = self.enter()? else { break };
            match from.map_or(Ok(()), |from| self.make_room(from)) {
                Ok(()) => self.clients.push_back(client),
                Err(why) => client.refuse(&why),
            }
        }
        Ok(())
    }

    /// The next client, and the address that it connected from.
    fn enter(&mut self) -> Result<Option<(PendingClient, Option<IpAddr>)>, Error> {
        match &self.entrance {
            Entrance::Closed => Ok(None),
            Entrance::Listener(listener) => loop {
                let Some((stream, from)) = accept(listener)? else { return Ok(None) };
                // The addresses of a connection that was closed meanwhile are unknown.
                let Ok(client) = self.client(stream) else { continue };
                return Ok(Some((client, Some(from.ip().to_canonical()))));
            },
            Entrance::Inbox(inbox, event) => {
                event.clear();
                match inbox.try_recv() {
                    Ok(client) => {
                        let from = client.address();
                        Ok(Some((client, from)))
                    }
                    Err(TryRecvError::Empty) => Ok(None),
                    Err(TryRecvError::Disconnected) => {
                        self.entrance = Entrance::Closed;
                        Ok(None)
                    }
                }
            }
        }
    }

    fn client(&self, stream: TcpStream) -> Result<PendingClient, Error> {
        let us = self.address.unwrap_or(stream.local_addr()?.ip().to_canonical());
        Ok(PendingClient::new(Oob::tcp(stream)?, us))
    }

    /// Makes room for one more client from `address`. If a limit is reached, the client that has
    /// been silent for longest is dropped. Clients that have sent a hello stay.
    fn make_room(&mut self, address: IpAddr) -> Result<(), String> {
        let is_from = |g: &PendingClient| g.address() == Some(address);
        let from_address = self.clients.iter().filter(|g| is_from(g)).count();
        let is_address_full = from_address >= PENDING_PER_ADDRESS_MAX;
        if !is_address_full && self.clients.len() < PENDING_MAX {
            return Ok(());
        }
        let may_go = |g: &PendingClient| !g.is_known() && (!is_address_full || is_from(g));
        let silent = (0..self.clients.len()).filter(|i| may_go(&self.clients[*i]));
        match silent.min_by_key(|i| self.clients[*i].since()) {
            Some(oldest) => {
                if let Some(client) = self.clients.remove(oldest) {
                    client.refuse("too many clients connect there");
                }
                Ok(())
            }
            None => Err(format!(
                "too many clients wait here: {from_address} of {PENDING_PER_ADDRESS_MAX} from \
                 {address}, {} of {PENDING_MAX} in all",
                self.clients.len()
            )),
        }
    }

    /// Polls every client once, or until there is an event. The next call starts behind that
    /// client.
    fn poll_clients(&mut self, runner: &mut JobRunner) -> Option<Event> {
        for _ in 0..self.clients.len() {
            let mut client = self.clients.pop_front()?;
            match runner.poll_client(&mut client) {
                Ok(ClientPoll::Pending) => self.clients.push_back(client),
                Ok(ClientPoll::Request(request)) => return Some(Event::Request(client, request)),
                Ok(ClientPoll::Closed) => return Some(Event::Closed(client, Ok(()))),
                Err(why) => return Some(Event::Closed(client, Err(why))),
            }
        }
        None
    }

    /// The clients, in the order in which they are polled.
    pub(super) fn clients(&mut self) -> &mut VecDeque<PendingClient> {
        &mut self.clients
    }

    /// Waits until a client connects or sends something, or `port` is readable.
    pub(super) fn wait(&self, port: Option<BorrowedFd<'_>>) {
        let mut all: Vec<_> = match &self.entrance {
            Entrance::Listener(listener) => vec![PollFd::new(listener, PollFlags::IN)],
            Entrance::Inbox(_, event) => vec![PollFd::new(&**event, PollFlags::IN)],
            Entrance::Closed => vec![],
        };
        all.extend(self.clients.iter().map(|g| PollFd::new(g, PollFlags::IN)));
        all.extend(port.map(|port| PollFd::from_borrowed_fd(port, PollFlags::IN)));
        let intervals = self.clients.iter().map(PendingClient::poll_interval);
        let timeout = Timespec::try_from(intervals.min().unwrap_or(STOP_POLL_INTERVAL)).ok();
        // A signal is no error, and an error of a connection is reported by the following read.
        let _ = poll(&mut all, timeout.as_ref());
    }
}

/// Limit of pending clients; each may occupy up to 1 MiB with a message.
pub(super) const PENDING_MAX: usize = 64;

/// Limit for one address. A machine that runs several measurements at once has a few.
const PENDING_PER_ADDRESS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Attachment, Wrap};
    use crate::oob::{
        Hello, Job, JobKind, LINE_BYTES_MAX, Message, Modes, OobError, QpParams, VERSION, WorkerOf,
    };
    use spanwire_io::driver::Polling;
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    /// Only a hang takes so long.
    const LATE: Duration = Duration::from_secs(120);
    const US: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A server and its acceptor, with the other end of the pipe kept open.
    struct Rig {
        address: std::net::SocketAddr,
        acceptor: Acceptor,
        runner: JobRunner,
        _other_end: Attachment,
    }

    impl Rig {
        fn new() -> Self {
            let (ours, other_end) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
            let listener = TcpListener::bind((US, 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let runner = JobRunner::new(ours, US, Polling::Busy).unwrap();
            Self { address, acceptor: Acceptor::new(listener, None), runner, _other_end: other_end }
        }

        fn connect(&self) -> Oob {
            Oob::tcp(TcpStream::connect(self.address).unwrap()).unwrap()
        }

        /// Runs the acceptor until there is an event, for a limited time.
        fn event(&mut self) -> Option<Event> {
            let start = Instant::now();
            while start.elapsed() < LATE {
                if let Some(event) = self.acceptor.next(&mut self.runner).unwrap() {
                    return Some(event);
                }
            }
            None
        }

        /// The reply to `client`. Runs the acceptor, without an event, until there is one.
        fn reply_to(&mut self, client: &mut Oob) -> Result<Message, OobError> {
            let start = Instant::now();
            loop {
                assert!(self.acceptor.next(&mut self.runner).unwrap().is_none());
                if let Some(reply) = client.try_recv().transpose() {
                    return reply;
                }
                assert!(start.elapsed() < LATE, "there is no reply");
            }
        }
    }

    fn hello(ip: IpAddr) -> Message {
        let modes = Modes::default();
        let side_poll_port = None;
        Message::Hello(Hello {
            version: VERSION,
            ip,
            path_mtu: 1024,
            side_poll_port,
            modes,
            takes_fragments: false,
            worker: WorkerOf::default(),
            probe_qpn: None,
        })
    }

    fn is_refusal(reply: &Result<Message, OobError>, words: &str) -> bool {
        matches!(reply, Err(OobError::Rejected(why) | OobError::Busy(why)) if why.contains(words))
    }

    #[test]
    fn next__silent_clients_do_not_keep_others_out() {
        let mut rig = Rig::new();
        let mut silent: Vec<_> = (0..PENDING_PER_ADDRESS_MAX * 2).map(|_| rig.connect()).collect();
        let mut client = rig.connect();
        client.send(&hello(US)).unwrap();
        assert!(matches!(rig.reply_to(&mut client), Ok(Message::Hello(_))));
        assert_eq!(rig.acceptor.clients.len(), PENDING_PER_ADDRESS_MAX);
        // The oldest receives the reason.
        let dropped = silent[0].recv(LATE);
        assert!(matches!(&dropped, Err(OobError::Busy(why)) if why.contains("too many clients")));
    }

    #[test]
    fn next__clients_that_sent_a_hello_are_not_dropped() {
        let mut rig = Rig::new();
        let mut known: Vec<_> = (0..PENDING_PER_ADDRESS_MAX).map(|_| rig.connect()).collect();
        for client in &mut known {
            client.send(&hello(US)).unwrap();
            assert!(matches!(rig.reply_to(client), Ok(Message::Hello(_))));
        }
        let mut late = rig.connect();
        let reply = rig.reply_to(&mut late);
        let words = "too many clients wait here: 16 of 16 from 127.0.0.1";
        assert!(is_refusal(&reply, words), "{reply:?}");
        assert_eq!(rig.acceptor.clients.len(), PENDING_PER_ADDRESS_MAX);
    }

    #[test]
    fn next__rejects_an_unverified_address_unless_any_is_accepted() {
        let mut rig = Rig::new();
        let elsewhere = Ipv4Addr::new(10, 77, 0, 9).into();
        let mut client = rig.connect();
        client.send(&hello(elsewhere)).unwrap();
        assert!(matches!(rig.event(), Some(Event::Closed(client, Err(_))) if client.has_sent()));
        let reply = client.recv(LATE);
        let words = "connected from 127.0.0.1 wants its packets at 10.77.0.9";
        assert!(is_refusal(&reply, words), "{reply:?}");
        rig.runner.take_any_address();
        let mut client = rig.connect();
        client.send(&hello(elsewhere)).unwrap();
        assert!(matches!(rig.reply_to(&mut client), Ok(Message::Hello(_))));
    }

    #[test]
    fn next__rejects_a_path_mtu_that_does_not_exist() {
        let mut rig = Rig::new();
        for path_mtu in [0, 999, 4097] {
            let mut client = rig.connect();
            let (modes, side_poll_port) = (Modes::default(), None);
            let (version, takes_fragments) = (VERSION, false);
            let (worker, probe_qpn, ip) = (WorkerOf::default(), None, US);
            let hello = Hello {
                version,
                ip,
                path_mtu,
                side_poll_port,
                modes,
                takes_fragments,
                worker,
                probe_qpn,
            };
            client.send(&Message::Hello(hello)).unwrap();
            assert!(matches!(rig.event(), Some(Event::Closed(..))));
            let reply = client.recv(LATE);
            assert!(is_refusal(&reply, &format!("path MTU is {path_mtu}")), "{reply:?}");
        }
    }

    #[test]
    fn next__rejects_queue_pairs_whose_numbers_do_not_exist() {
        let mut rig = Rig::new();
        let job = Job::of(JobKind::Bandwidth { duration_ms: 1 });
        for (qpn, psn, words) in [
            (0, 0, "number is 0"),
            (1 << 24, 0, "number is 16777216"),
            (1, 1 << 24, "PSN is 16777216"),
        ] {
            let mut client = rig.connect();
            client.send(&hello(US)).unwrap();
            assert!(matches!(rig.reply_to(&mut client), Ok(Message::Hello(_))));
            let (qps, congestion) = (vec![QpParams { qpn, psn }], None);
            let request = Request { job, qps, congestion, erasure: None, balance: None };
            client.send(&Message::Request(request)).unwrap();
            assert!(matches!(rig.event(), Some(Event::Closed(_, Err(_)))));
            let reply = client.recv(LATE);
            assert!(is_refusal(&reply, words), "{reply:?}");
        }
    }

    #[test]
    fn next__bounds_the_memory_of_a_client_without_hello() {
        let mut rig = Rig::new();
        let mut stream = TcpStream::connect(rig.address).unwrap();
        let flood = std::thread::spawn(move || {
            // The server closes the connection meanwhile.
            let _ = std::io::Write::write_all(&mut stream, &vec![b'x'; LINE_BYTES_MAX]);
        });
        let Some(Event::Closed(client, Err(why))) = rig.event() else { panic!("not rejected") };
        assert!(why.to_string().contains("a line above 16384 bytes"), "{why}");
        assert!(client.has_sent() && !client.is_known());
        drop(client);
        flood.join().unwrap();
    }

    #[test]
    fn next__a_client_that_only_connects_has_sent_nothing() {
        let mut rig = Rig::new();
        drop(rig.connect());
        assert!(matches!(rig.event(), Some(Event::Closed(client, Err(_))) if !client.has_sent()));
    }
}
