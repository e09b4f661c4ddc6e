//! Kernel TCP with blocking calls, without Nagle's delay.
//!
//! Several outstanding messages share a read. With a buffer for writes they share a write too,
//! before the next read that may block; a plain service writes each message.

use super::blocking::{self, Blocking};
use super::exchange::Application;
use super::schedule::wait;
use super::task::{End, SILENCE};
use crate::sample::Error;
use rustix::event::{PollFd, PollFlags};
use socket2::SockRef;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// Runs this end of kernel TCP until `application` is done.
pub(super) fn run(
    end: &End,
    buffers_writes: bool,
    application: &mut impl Application,
) -> Result<(), Error> {
    let (received_bytes, _) = application.message_bytes();
    let connections = sockets(end)?
        .into_iter()
        .map(|socket| Connection::new(socket, received_bytes, buffers_writes));
    let mut connections = connections.collect::<Result<Vec<_>, _>>()?;
    blocking::run(&mut connections, application)
}

/// The sockets of this end. A call that blocks for longer than [`SILENCE`] fails.
pub(super) fn sockets(end: &End) -> Result<Vec<TcpStream>, Error> {
    let mut sockets = Vec::new();
    match end.server {
        Some(server) => {
            for _ in 0..end.connections() {
                let socket = TcpStream::connect_timeout(&server, SILENCE);
                sockets.push(socket.map_err(|e| format!("connect to {server}: {e}"))?);
            }
        }
        None => {
            let listener = listen(end)?;
            for _ in 0..end.connections() {
                sockets.push(listener.accept().map_err(|e| format!("no client: {}", silent(e)))?.0);
            }
        }
    }
    for socket in &sockets {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SILENCE))?;
        socket.set_write_timeout(Some(SILENCE))?;
    }
    Ok(sockets)
}

/// Listens and announces the address. Accepting for longer than [`SILENCE`] fails.
pub(super) fn listen(end: &End) -> Result<TcpListener, Error> {
    let listener = TcpListener::bind((end.ip, 0)).map_err(|e| format!("listen: {e}"))?;
    SockRef::from(&listener).set_read_timeout(Some(SILENCE))?;
    end.announce(listener.local_addr()?.port());
    Ok(listener)
}

/// The error of a socket with its time limit named.
pub(super) fn silent(e: std::io::Error) -> Error {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("the other end was silent for {SILENCE:?}").into()
        }
        _ => e.into(),
    }
}

/// A connection whose messages received have `received_bytes`.
struct Connection {
    reader: BufReader<TcpStream>,
    writer: BufWriter<TcpStream>,
    received_bytes: usize,
    buffers_writes: bool,
}

impl Connection {
    fn new(socket: TcpStream, received_bytes: usize, buffers_writes: bool) -> Result<Self, Error> {
        let reader = BufReader::with_capacity(BUFFER_BYTES, socket.try_clone()?);
        let writer = BufWriter::with_capacity(BUFFER_BYTES, socket);
        Ok(Self { reader, writer, received_bytes, buffers_writes })
    }
}

impl Blocking for Connection {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.writer.write_all(message).map_err(silent)?;
        if self.buffers_writes { Ok(()) } else { self.writer.flush().map_err(silent) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let is_next_here = self.reader.buffer().len() >= self.received_bytes;
        if is_next_here { Ok(()) } else { self.writer.flush().map_err(silent) }
    }

    fn receive(
        &mut self,
        message: &mut Vec<u8>,
        until: Option<Instant>,
    ) -> Result<Option<bool>, Error> {
        self.flush()?;
        if let Some(until) = until.filter(|_| self.reader.buffer().is_empty())
            && !wait(&mut [PollFd::new(self.reader.get_ref(), PollFlags::IN)], until)?
        {
            return Ok(None);
        }
        if self.reader.fill_buf().map_err(silent)?.is_empty() {
            return Ok(Some(false));
        }
        message.resize(self.received_bytes, 0);
        self.reader.read_exact(message).map_err(silent)?;
        Ok(Some(true))
    }
}

/// Bytes of the buffer of each direction.
pub(super) const BUFFER_BYTES: usize = 64 << 10;
