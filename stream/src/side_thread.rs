//! The thread of the side connections: it detects their end, and sends the reason when a channel
//! closes.

use crate::channel::ChannelId;
use crate::side::{Polled, Side, SideMessage};
use rustix::event::{PollFd, PollFlags, poll};
use spanwire_host::text::printable;
use spanwire_io::event::EventFd;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// A task for the thread, from the worker.
#[derive(Debug)]
enum Task {
    /// Watch the side connection of a channel.
    Keep(ChannelId, Side),
    /// The channel is closed; the reason is sent to the peer.
    Close(ChannelId, Option<String>),
}

/// Called when the side connection of a channel has ended.
type PeerLeft = dyn Fn(ChannelId, Option<String>);

/// The worker's handle of the thread. When it is dropped, the thread closes all side connections
/// and ends.
#[derive(Debug)]
pub(crate) struct SideThreadHandle {
    tasks: Option<Sender<Task>>,
    news: Arc<EventFd>,
}

/// The state of the thread.
#[derive(Debug)]
pub(crate) struct SideThread {
    tasks: Receiver<Task>,
    news: Arc<EventFd>,
    kept: Vec<(ChannelId, Side)>,
}

impl SideThreadHandle {
    pub(crate) fn keep(&self, id: ChannelId, side: Side) {
        self.push(Task::Keep(id, side));
    }

    pub(crate) fn close(&self, id: ChannelId, abort_reason: Option<String>) {
        self.push(Task::Close(id, abort_reason));
    }

    fn push(&self, task: Task) {
        if let Some(tasks) = &self.tasks {
            // If the thread has ended, its sockets are closed already.
            let _ = tasks.send(task);
            self.news.signal();
        }
    }
}

impl Drop for SideThreadHandle {
    fn drop(&mut self) {
        self.tasks = None;
        self.news.signal();
    }
}

impl SideThread {
    /// The state of a thread, and its handle.
    pub(crate) fn new() -> io::Result<(SideThreadHandle, Self)> {
        let (send, tasks) = channel();
        let news = Arc::new(EventFd::new()?);
        let handle = SideThreadHandle { tasks: Some(send), news: news.clone() };
        Ok((handle, Self { tasks, news, kept: Vec::new() }))
    }

    /// Runs until the handle is dropped. `peer_left` is called when a side connection has ended,
    /// with the peer's reason.
    pub(crate) fn run(mut self, peer_left: &PeerLeft) {
        loop {
            self.news.clear();
            if !self.do_tasks(peer_left) {
                return;
            }
            let ready = self.wait();
            // In reverse order, so that a removal does not change the indices still to be visited.
            for i in ready.into_iter().rev() {
                self.listen(i, peer_left);
            }
        }
    }

    /// Executes pending tasks. False once the handle was dropped.
    fn do_tasks(&mut self, peer_left: &PeerLeft) -> bool {
        loop {
            match self.tasks.try_recv() {
                Ok(Task::Keep(id, side)) => {
                    // A socket that cannot be made non-blocking is closed, because it would block
                    // the others.
                    match side.socket().set_nonblocking(true) {
                        Ok(()) => self.kept.push((id, side)),
                        Err(_) => peer_left(id, None),
                    }
                }
                Ok(Task::Close(id, abort_reason)) => self.close(id, abort_reason),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn close(&mut self, id: ChannelId, abort_reason: Option<String>) {
        let Some(i) = self.kept.iter().position(|(kept, _)| *kept == id) else { return };
        let (_, side) = self.kept.swap_remove(i);
        if let Some(reason) = abort_reason {
            side.send_last(&SideMessage::Abort { reason });
        }
    }

    /// Waits until a side connection is readable, or a task arrives. Returns the readable ones.
    fn wait(&self) -> Vec<usize> {
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&*self.news, PollFlags::IN)];
        let streams = self.kept.iter().map(|(_, side)| side.as_fd());
        fds.extend(streams.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if poll(&mut fds, None).is_err() {
            // Interrupted by a signal, or out of kernel memory: the caller tries again.
            return Vec::new();
        }
        let ready = fds[1..].iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(i, _)| i).collect()
    }

    fn listen(&mut self, i: usize, peer_left: &PeerLeft) {
        let (id, side) = &mut self.kept[i];
        let why = match side.look() {
            Polled::Nothing => return,
            Polled::Message(SideMessage::Abort { reason }) => Some(printable(reason)),
            // No message but an abort is valid now. A peer that sends another one violates the
            // protocol.
            Polled::Message(_) | Polled::End => None,
        };
        peer_left(*id, why);
        self.kept.swap_remove(i);
    }
}
