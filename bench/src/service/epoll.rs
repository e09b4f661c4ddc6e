//! Kernel TCP with non-blocking sockets and level-triggered epoll, without Nagle's delay.

use super::exchange::Application;
use super::schedule::wait;
use super::task::{End, SILENCE};
use super::tcp::{BUFFER_BYTES, sockets};
use crate::sample::Error;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

/// Runs this end of kernel TCP until `application` is done.
pub(super) fn run(end: &End, application: &mut impl Application) -> Result<(), Error> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let (received_bytes, sent_bytes) = application.message_bytes();
    let mut out = vec![0; sent_bytes];
    let mut connections = Vec::new();
    for (n, socket) in (0..).zip(sockets(end)?) {
        socket.set_nonblocking(true)?;
        epoll::add(&epoll, &socket, EventData::new_u64(n), EventFlags::IN)?;
        connections.push(Connection::new(socket, received_bytes));
    }
    let mut events: Vec<Event> = Vec::with_capacity(connections.len());
    let silence = Timespec::try_from(SILENCE)?;
    loop {
        for (n, connection) in connections.iter_mut().enumerate() {
            while application.first(n, &mut out) {
                connection.unsent.extend_from_slice(&out);
            }
            connection.write(&epoll, n)?;
        }
        if application.is_done() {
            return Ok(());
        }
        events.clear();
        // epoll_wait has milliseconds.
        if let Some(due) = application.wakes_at()
            && !wait(&mut [PollFd::new(&epoll, PollFlags::IN)], due)?
        {
            continue;
        }
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&silence)) {
            Ok(0) => return Err(format!("the other end was silent for {SILENCE:?}").into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            let n = usize::try_from(event.data.u64())?;
            let connection = &mut connections[n];
            // The fields of a packed struct are copied, not borrowed.
            let flags = event.flags;
            let is_readable = flags.intersects(EventFlags::IN.union(EventFlags::HUP));
            if is_readable && !connection.read()? {
                epoll::delete(&epoll, &connection.socket)?;
                application.on_end(n)?;
                continue;
            }
            let mut whole = connection.received.chunks_exact(received_bytes);
            for message in whole.by_ref() {
                if application.on_message(n, message, &mut out)? {
                    connection.unsent.extend_from_slice(&out);
                }
            }
            let rest = whole.remainder().len();
            connection.received.drain(..connection.received.len() - rest);
            connection.write(&epoll, n)?;
        }
    }
}

/// A non-blocking connection.
struct Connection {
    socket: TcpStream,
    /// Bytes received that are not yet a message.
    received: Vec<u8>,
    buffer: Vec<u8>,
    unsent: Vec<u8>,
    /// Events are requested when the socket can be written.
    waits_for_room: bool,
}

impl Connection {
    fn new(socket: TcpStream, received_bytes: usize) -> Self {
        Self {
            socket,
            received: Vec::with_capacity(BUFFER_BYTES + received_bytes),
            buffer: vec![0; BUFFER_BYTES],
            unsent: Vec::new(),
            waits_for_room: false,
        }
    }

    /// Reads once; false at the end.
    fn read(&mut self) -> Result<bool, Error> {
        match self.socket.read(&mut self.buffer) {
            Ok(0) => Ok(false),
            Ok(n) => {
                self.received.extend_from_slice(&self.buffer[..n]);
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// Writes as much as fits.
    fn write(&mut self, epoll: &OwnedFd, n: usize) -> Result<(), Error> {
        let mut written = 0;
        while written < self.unsent.len() {
            match self.socket.write(&self.unsent[written..]) {
                Ok(bytes) => written += bytes,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.into()),
            }
        }
        self.unsent.drain(..written);
        let waits = !self.unsent.is_empty();
        if waits != self.waits_for_room {
            self.waits_for_room = waits;
            let room = if waits { EventFlags::OUT } else { EventFlags::empty() };
            epoll::modify(
                epoll,
                &self.socket,
                EventData::new_u64(n as u64),
                EventFlags::IN | room,
            )?;
        }
        Ok(())
    }
}
