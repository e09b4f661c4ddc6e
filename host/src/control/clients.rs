//! The connections of a control socket, on a thread of their own. No client delays another: reads
//! and writes do not block, and a new client takes the place of the one that has been silent for
//! longest.

use super::request::{PendingRequest, Reply};
use crate::lines::Lines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The listener, and its clients.
pub(super) struct Clients {
    listener: UnixListener,
    clients: Vec<Client>,
    requests: SyncSender<PendingRequest>,
}

struct Client {
    stream: Arc<UnixStream>,
    /// When it connected, or took the last part of its reply.
    since: Instant,
    state: State,
}

enum State {
    /// Its request is awaited.
    Request(Lines),
    /// Its reply, and how many bytes of it are written.
    Reply(Vec<u8>, usize),
}

/// The switch has ended.
struct Ended;

impl Clients {
    pub(super) fn new(listener: UnixListener, requests: SyncSender<PendingRequest>) -> Self {
        Self { listener, clients: Vec::new(), requests }
    }

    /// Serves clients until the switch has ended.
    pub(super) fn run(mut self) {
        loop {
            let (ready, is_new) = self.wait();
            let now = Instant::now();
            let clients = std::mem::take(&mut self.clients);
            for (client, is_ready) in clients.into_iter().zip(ready) {
                let next = if is_ready { client.advance(&self.requests) } else { Ok(Some(client)) };
                let Ok(next) = next else { return };
                let is_late = |c: &Client| now.saturating_duration_since(c.since) >= SILENT_MAX;
                self.clients.extend(next.filter(|client| !is_late(client)));
            }
            if is_new {
                self.accept();
            }
        }
    }

    /// Waits until clients, or the listener, are ready, or one has been silent for too long.
    fn wait(&self) -> (Vec<bool>, bool) {
        let mut fds: Vec<PollFd<'_>> = self.clients.iter().map(Client::entry).collect();
        fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        let until = self.clients.iter().map(|client| client.since + SILENT_MAX).min();
        let within = until.map(|until| until.saturating_duration_since(Instant::now()));
        let within = within.and_then(|within| Timespec::try_from(within).ok());
        // After a signal nothing is ready.
        let count = poll(&mut fds, within.as_ref()).unwrap_or(0);
        let mut ready: Vec<bool> =
            fds.iter().map(|fd| count > 0 && !fd.revents().is_empty()).collect();
        let is_new = ready.pop().unwrap_or(false);
        (ready, is_new)
    }

    /// Accepts one client, so that those before it are served first.
    fn accept(&mut self) {
        let accepted = self.listener.accept();
        let accepted =
            accepted.and_then(|(stream, _)| stream.set_nonblocking(true).map(|()| stream));
        match accepted {
            Ok(stream) => {
                if self.clients.len() == CLIENTS_MAX
                    && let Some(oldest) = (0..CLIENTS_MAX).min_by_key(|i| self.clients[*i].since)
                {
                    self.clients.swap_remove(oldest);
                }
                let state = State::Request(Lines::new(REQUEST_BYTES_MAX));
                let (stream, since) = (Arc::new(stream), Instant::now());
                self.clients.push(Client { stream, since, state });
            }
            Err(e) => {
                // Usually no descriptors are left. Some may be freed during the pause.
                tracing::debug!("control connection: {e}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

impl Client {
    fn entry(&self) -> PollFd<'_> {
        let flags = match self.state {
            State::Request(_) => PollFlags::IN,
            State::Reply(..) => PollFlags::OUT,
        };
        PollFd::from_borrowed_fd(self.stream.as_fd(), flags)
    }

    /// Reads or writes what is possible; `None` at the end of the connection. A client without a
    /// valid line gets no reply.
    fn advance(mut self, requests: &SyncSender<PendingRequest>) -> Result<Option<Self>, Ended> {
        match &mut self.state {
            State::Request(lines) => {
                let mut bytes = [0; 4096];
                let count = match (&*self.stream).read(&mut bytes) {
                    Ok(0) => return Ok(None),
                    Ok(count) => count,
                    Err(e) => return Ok((e.kind() == ErrorKind::WouldBlock).then_some(self)),
                };
                lines.push(&bytes[..count]);
                let reply = match lines.take() {
                    Ok(None) => return Ok(Some(self)),
                    Err(_) => return Ok(None),
                    Ok(Some(line)) => reply_to(line, &self.stream, requests)?,
                };
                let Some(reply) = reply else { return Ok(None) };
                let Ok(mut line) = serde_json::to_vec(&reply) else { return Ok(None) };
                line.push(b'\n');
                self.state = State::Reply(line, 0);
            }
            State::Reply(line, sent) => match (&*self.stream).write(&line[*sent..]) {
                Ok(count) if *sent + count == line.len() => return Ok(None),
                Ok(count) => *sent += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Some(self)),
                Err(_) => return Ok(None),
            },
        }
        self.since = Instant::now();
        Ok(Some(self))
    }
}

/// The reply to a line; `None` if its client has given up.
fn reply_to(
    line: &[u8],
    stream: &Arc<UnixStream>,
    requests: &SyncSender<PendingRequest>,
) -> Result<Option<Reply>, Ended> {
    let request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(e) => {
            let error = Some(format!("no request: {e}"));
            return Ok(Some(Reply { error, ..Reply::default() }));
        }
    };
    let (reply, answer) = sync_channel(1);
    let pending = PendingRequest { request, client: stream.clone(), reply };
    requests.send(pending).map_err(|_| Ended)?;
    Ok(answer.recv().ok())
}

/// Clients at a time.
const CLIENTS_MAX: usize = 16;

/// The largest request: a few changes.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// After this time a client that has sent no request, or takes no reply, is dropped.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// Pause after an error of the system.
const PAUSE: Duration = Duration::from_millis(50);
