//! Kernel TCP with blocking calls, without Nagle's delay.
//!
//! Several outstanding messages share a read. With a buffer for writes they share a write too,
//! before the next read that may block; a plain service writes each message.

use super::blocking::{self, Blocking};
use super::exchange::Application;
use super::task::{End, SILENCE};
use crate::sample::Error;
use socket2::SockRef;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

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

    /// Sends what is buffered, unless the next message is here and its reply can be sent with it.
    fn flush_before_wait(&mut self) -> Result<(), Error> {
        if !self.buffers_writes || self.reader.buffer().len() < self.received_bytes {
            self.writer.flush().map_err(silent)?;
        }
        Ok(())
    }
}

impl Blocking for Connection {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.writer.write_all(message).map_err(silent)?;
        self.flush_before_wait()
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> Result<bool, Error> {
        self.flush_before_wait()?;
        if self.reader.fill_buf().map_err(silent)?.is_empty() {
            return Ok(false);
        }
        message.resize(self.received_bytes, 0);
        self.reader.read_exact(message).map_err(silent)?;
        Ok(true)
    }
}

/// Bytes of the buffer of each direction.
pub(super) const BUFFER_BYTES: usize = 64 << 10;
