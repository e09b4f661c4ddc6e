//! The thread that keeps the side connections: it hears when one ends, and says last words.

use crate::commands::{ChannelId, Command, Commands};
use crate::side::{Heard, Side, Word, printable};
use rustix::event::{PollFd, PollFlags, poll};
use spanwire_io::doorbell::EventFd;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// What the worker tells the keeper.
#[derive(Debug)]
enum Task {
    /// Keep the side connection of a channel.
    Keep(ChannelId, Side),
    /// The channel is gone; what the other end is to be told.
    Close(ChannelId, Option<String>),
}

/// The worker's end of the keeper. When it is dropped, the keeper closes everything and ends.
#[derive(Debug)]
pub(crate) struct KeeperHandle {
    tasks: Option<Sender<Task>>,
    news: Arc<EventFd>,
}

/// The keeper.
#[derive(Debug)]
pub(crate) struct Keeper {
    tasks: Receiver<Task>,
    news: Arc<EventFd>,
    kept: Vec<(ChannelId, Side)>,
    commands: Commands,
}

impl KeeperHandle {
    pub(crate) fn keep(&self, id: ChannelId, side: Side) {
        self.tell(Task::Keep(id, side));
    }

    pub(crate) fn close(&self, id: ChannelId, last_word: Option<String>) {
        self.tell(Task::Close(id, last_word));
    }

    fn tell(&self, task: Task) {
        if let Some(tasks) = &self.tasks {
            // A keeper that is gone keeps nothing: its sockets are closed.
            let _ = tasks.send(task);
            self.news.signal();
        }
    }
}

impl Drop for KeeperHandle {
    fn drop(&mut self) {
        self.tasks = None;
        self.news.signal();
    }
}

impl Keeper {
    /// A keeper that tells the worker by `commands`.
    pub(crate) fn new(commands: Commands) -> io::Result<(KeeperHandle, Self)> {
        let (send, tasks) = channel();
        let news = Arc::new(EventFd::new()?);
        let handle = KeeperHandle { tasks: Some(send), news: news.clone() };
        Ok((handle, Self { tasks, news, kept: Vec::new(), commands }))
    }

    /// Works until the handle is dropped.
    pub(crate) fn run(mut self) {
        loop {
            self.news.clear();
            if !self.do_tasks() {
                return;
            }
            let ready = self.wait();
            // From the back: what is removed moves nothing that is still to be looked at.
            for i in ready.into_iter().rev() {
                self.listen(i);
            }
        }
    }

    /// False when there will be no more.
    fn do_tasks(&mut self) -> bool {
        loop {
            match self.tasks.try_recv() {
                Ok(Task::Keep(id, side)) => {
                    // One that cannot be made not to block would block all others.
                    match side.socket().set_nonblocking(true) {
                        Ok(()) => self.kept.push((id, side)),
                        Err(_) => self.commands.send(Command::PeerLeft(id, None)),
                    }
                }
                Ok(Task::Close(id, last_word)) => self.close(id, last_word),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn close(&mut self, id: ChannelId, last_word: Option<String>) {
        let Some(i) = self.kept.iter().position(|(kept, _)| *kept == id) else { return };
        let (_, side) = self.kept.swap_remove(i);
        if let Some(reason) = last_word {
            side.send_last(&Word::Abort { reason });
        }
    }

    /// Sleeps until something can be read; says of which. Tasks end the sleep, too.
    fn wait(&self) -> Vec<usize> {
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&*self.news, PollFlags::IN)];
        let streams = self.kept.iter().map(|(_, side)| side.as_fd());
        fds.extend(streams.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if poll(&mut fds, None).is_err() {
            // A signal; or the kernel is short of memory, and the next time is better.
            return Vec::new();
        }
        let ready = fds[1..].iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(i, _)| i).collect()
    }

    fn listen(&mut self, i: usize) {
        let (id, side) = &mut self.kept[i];
        let why = match side.look() {
            Heard::Nothing => return,
            Heard::Word(Word::Abort { reason }) => Some(printable(&reason)),
            // Nothing else is said any more; whoever talks on is no peer.
            Heard::Word(_) | Heard::End => None,
        };
        self.commands.send(Command::PeerLeft(*id, why));
        self.kept.swap_remove(i);
    }
}
