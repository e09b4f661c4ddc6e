//! The connection of a copy: control messages and chunks. A control message is a JSON object, so it
//! begins with `{`; a chunk begins with a zero byte.

use crate::chunk::{ChunkHeader, HEADER_BYTES};
use crate::message::{Message, PROTOCOL};
use crate::session::{End, POLL_INTERVAL, Session};
use spanwire_host::fabric::Error;
use spanwire_host::text::printable;
use spanwire_stream::{
    Config, ConnectOptions, Error as StreamError, MessageReceiver, MessageSender, ModeChoice,
};
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The sending half, shared by all threads of a copy.
#[derive(Debug)]
pub struct SendHalf<'a> {
    sender: Mutex<MessageSender>,
    session: &'a Session,
}

/// The receiving half. By itself it accepts control messages only.
#[derive(Debug)]
pub struct ReceiveHalf {
    receiver: MessageReceiver,
    buffer: Vec<u8>,
}

/// The queues into which a receiver demultiplexes messages.
#[derive(Debug)]
pub struct Queues {
    /// Control messages.
    pub messages: SyncSender<Message>,
    /// Chunks.
    pub chunks: SyncSender<Vec<u8>>,
    /// Buffers of processed chunks, for reuse.
    pub spare: Receiver<Vec<u8>>,
}

/// Limits of the connections of copies. The ring covers a stall of the other end's disk and fits
/// into a cache; the longest message is a request with a thousand names.
#[must_use]
pub fn limits() -> Config {
    Config {
        ring_bytes: 32 * CHUNK_BYTES,
        fragment_bytes: CHUNK_BYTES,
        max_message_bytes: 1 << 20,
        max_connections: 16,
        ..Config::default()
    }
}

/// Options of the connections of copies.
#[must_use]
pub fn options(mode: ModeChoice) -> ConnectOptions {
    ConnectOptions { mode, protocol: PROTOCOL.to_owned(), ..ConnectOptions::default() }
}

impl<'a> SendHalf<'a> {
    /// A sending half for `session`. Its calls return when the session ends.
    #[must_use]
    pub fn new(sender: MessageSender, session: &'a Session) -> Self {
        Self { sender: Mutex::new(sender), session }
    }

    /// Sends a control message.
    ///
    /// # Errors
    /// The connection is gone, or the session has ended.
    pub fn send(&self, message: &Message) -> Result<(), End> {
        let json = serde_json::to_vec(message).map_err(|e| End::Failed(e.to_string()))?;
        self.send_bytes(&json)
    }

    /// Sends a chunk: `chunk` with `header` put into its first [`HEADER_BYTES`].
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    ///
    /// # Panics
    /// If `chunk` is shorter than a header.
    pub fn send_chunk(&self, header: &ChunkHeader, chunk: &mut [u8]) -> Result<(), End> {
        chunk[..HEADER_BYTES].copy_from_slice(&header.emit());
        self.send_bytes(chunk)
    }

    /// Closes the connection according to the session's end. After a complete session, this returns
    /// once the other end has received everything.
    pub fn end(&self) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = match self.session.outcome() {
            Some(End::Complete) => {
                sender.finish();
                // An error is ignored, because the other end may close as soon as it has received
                // everything.
                let _ = sender.drained(FINAL_MESSAGE_TIMEOUT);
                return;
            }
            Some(End::Interrupted) => "interrupted by its user".to_owned(),
            Some(End::Protocol(what)) => what,
            Some(End::Stalled(time)) => format!("you brought nothing for {time:?}"),
            // Paths and disk errors of this host are not disclosed.
            _ => "something failed there".to_owned(),
        };
        sender.abort(&reason);
    }

    /// Rejects the other end.
    pub fn reject(&self, why: &str) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).abort(why);
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), End> {
        loop {
            let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
            match sender.send_timeout(bytes, POLL_INTERVAL) {
                Ok(()) => return Ok(()),
                Err(StreamError::TimedOut(_)) if !self.session.is_over() => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// A copy that ended before both ends agreed on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotBegun {
    /// How it ended.
    pub end: End,
    why: String,
}

impl NotBegun {
    fn new(end: End, why: impl fmt::Display) -> Self {
        Self { end, why: why.to_string() }
    }
}

impl From<End> for NotBegun {
    fn from(end: End) -> Self {
        let why = end.to_string();
        Self { end, why }
    }
}

impl fmt::Display for NotBegun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for NotBegun {}

impl ReceiveHalf {
    /// A receiving half over `receiver`.
    #[must_use]
    pub fn new(receiver: MessageReceiver) -> Self {
        Self { receiver, buffer: Vec::new() }
    }

    /// Receives the next control message; `None` if none arrives within `timeout`.
    ///
    /// # Errors
    /// The connection is gone, or the message is no control message.
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Message>, End> {
        match self.receiver.recv_into_timeout(&mut self.buffer, timeout) {
            Ok(true) => parse(&self.buffer).map(Some),
            Ok(false) => Err(finished()),
            Err(StreamError::TimedOut(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Waits for the next control message, at most for `timeout`. Calls `watch` meanwhile, which
    /// may end the session.
    ///
    /// # Errors
    /// Nothing arrived, the connection is gone, or the session has ended.
    pub fn expect(
        &mut self,
        session: &Session,
        watch: &mut dyn FnMut(&Session),
        timeout: Duration,
    ) -> Result<Message, Error> {
        let start = Instant::now();
        while start.elapsed() < timeout {
            if let Some(message) = self.recv(POLL_INTERVAL).map_err(NotBegun::from)? {
                return Ok(message);
            }
            watch(session);
            if let Some(end) = session.outcome() {
                return Err(NotBegun::from(end).into());
            }
        }
        let why = format!("the other end said nothing for {timeout:?}");
        Err(NotBegun::new(End::Stalled(timeout), why).into())
    }

    /// Receives messages and queues them by type, until `session` has ended.
    ///
    /// # Errors
    /// How the copy ends.
    pub fn demultiplex(&mut self, queues: &Queues, session: &Session) -> Result<(), End> {
        let mut finish_received = false;
        while !session.is_over() {
            match self.receiver.recv_into_timeout(&mut self.buffer, POLL_INTERVAL) {
                Ok(true) => {}
                // A close after `finish` is valid. The writer knows whether all files are in place.
                Ok(false) if finish_received => return Ok(()),
                Ok(false) => return Err(finished()),
                Err(StreamError::TimedOut(_)) => continue,
                Err(e) => return Err(e.into()),
            }
            // An error means that the thread at the other end of the queue has ended with the
            // session.
            let _ = if self.buffer.first() == Some(&b'{') {
                let message = parse(&self.buffer)?;
                finish_received |= message == Message::Finish;
                queues.messages.send(message).map_err(drop)
            } else {
                // An invalid chunk is queued too, because the writer reports the error.
                if let Ok((header, _)) = ChunkHeader::parse(&self.buffer) {
                    session.chunk_came(Instant::now(), header.ends_file());
                }
                let spare = queues.spare.try_recv().unwrap_or_default();
                let chunk = std::mem::replace(&mut self.buffer, spare);
                queues.chunks.send(chunk).map_err(drop)
            };
        }
        Ok(())
    }
}

/// The error for the message `got` where `wanted` was required.
#[must_use]
pub fn unexpected(wanted: &'static str, got: &Message) -> End {
    End::Protocol(format!("{} where {wanted} was due", got.kind()))
}

fn parse(message: &[u8]) -> Result<Message, End> {
    serde_json::from_slice(message)
        // The parser quotes the peer's bytes.
        .map_err(|e| End::Protocol(printable(format!("what it says is no message: {e}"))))
}

fn finished() -> End {
    End::PeerGone("it finished in the middle")
}

/// Maximum bytes of a chunk, header included: few completions, and small against the ring.
pub const CHUNK_BYTES: u32 = 256 << 10;

/// Timeout of a receiver for each message before the copy, because other senders may wait.
pub const SENDER_REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a sender, longer because the receiver may count the bytes of existing files.
pub const RECEIVER_REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the other end may take to receive everything at the end.
const FINAL_MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Wire;
    use std::sync::mpsc::{channel, sync_channel};

    /// Only a hang takes so long.
    const LATE: Duration = Duration::from_secs(120);

    #[test]
    fn recv__accepts_control_messages_only() {
        let mut wire = Wire::new();
        let (session, soon) = (Session::default(), Duration::from_millis(10));
        let (a, b) = wire.pair();
        let (sender, receiver) = (a.split().0, b.split().1);
        let (send_half, mut receive_half) =
            (SendHalf::new(sender, &session), ReceiveHalf::new(receiver));
        assert_eq!(receive_half.recv(soon), Ok(None));
        send_half.send(&Message::Finish).unwrap();
        assert_eq!(receive_half.recv(LATE), Ok(Some(Message::Finish)));
        send_half.send_bytes(b"{\"type\":\"sing\"}").unwrap();
        assert!(matches!(receive_half.recv(LATE), Err(End::Protocol(_))));
        send_half.send_bytes(b"{\"type\":\"\\u001b[2J\\n\"}").unwrap();
        let Err(End::Protocol(why)) = receive_half.recv(LATE) else { panic!("no error") };
        assert!(why.contains("\\u{1b}[2J\\n") && !why.chars().any(char::is_control), "{why}");
        send_half.send_bytes(b"").unwrap();
        assert!(matches!(receive_half.recv(LATE), Err(End::Protocol(_))));
    }

    #[test]
    fn demultiplex__separates_messages_from_chunks_and_reuses_buffers() {
        let mut wire = Wire::new();
        let session = Session::default();
        let (a, b) = wire.pair();
        let (sender, receiver) = (a.split().0, b.split().1);
        let (send_half, mut receive_half) =
            (SendHalf::new(sender, &session), ReceiveHalf::new(receiver));
        let (messages, messages_out) = sync_channel(8);
        let (chunks, chunks_out) = sync_channel(8);
        let (spare_in, spare) = channel();
        spare_in.send(Vec::with_capacity(12_345)).unwrap();
        send_half.send_bytes(&[0; 100]).unwrap();
        let message = Message::GiveUp { index: 0, reason: String::new() };
        send_half.send(&message).unwrap();
        send_half.send_bytes(&[0; 200]).unwrap();
        session.end(End::Complete);
        std::thread::scope(|scope| {
            scope.spawn(|| send_half.end());
            let queues = Queues { messages, chunks, spare };
            let ended = receive_half.demultiplex(&queues, &Session::default());
            assert_eq!(ended, Err(finished()));
        });
        assert_eq!(messages_out.try_iter().collect::<Vec<_>>(), [message]);
        let chunks: Vec<_> = chunks_out.try_iter().collect();
        assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [100, 200]);
        assert!(chunks[1].capacity() >= 12_345);
    }

    #[test]
    fn demultiplex__a_sender_may_close_after_finish() {
        let mut wire = Wire::new();
        let session = Session::default();
        let (a, b) = wire.pair();
        let (sender, receiver) = (a.split().0, b.split().1);
        let (send_half, mut receive_half) =
            (SendHalf::new(sender, &session), ReceiveHalf::new(receiver));
        let ((messages, _messages), (chunks, _chunks)) = (sync_channel(8), sync_channel(8));
        send_half.send(&Message::Finish).unwrap();
        session.end(End::Complete);
        std::thread::scope(|scope| {
            scope.spawn(|| send_half.end());
            let queues = Queues { messages, chunks, spare: channel().1 };
            assert_eq!(receive_half.demultiplex(&queues, &Session::default()), Ok(()));
        });
    }

    #[test]
    fn unexpected__is_a_sentence_without_the_message() {
        let message = Message::GiveUp { index: 7, reason: "secret".into() };
        let End::Protocol(what) = unexpected("an entry", &message) else { panic!("no error") };
        assert_eq!(what, "a file given up where an entry was due");
    }

    #[test]
    fn end__sends_the_reason_without_details_of_this_host() {
        for (end, reason) in [
            (End::Interrupted, "interrupted by its user"),
            (End::Protocol("you lie".into()), "you lie"),
            (End::Failed("/secret is full".into()), "something failed there"),
        ] {
            let mut wire = Wire::new();
            let (session, (a, b)) = (Session::default(), wire.pair());
            let mut receive_half = ReceiveHalf::new(b.split().1);
            session.end(end);
            let (sender, _receiver) = a.split();
            SendHalf::new(sender, &session).end();
            let received = receive_half.recv(LATE);
            assert_eq!(received, Err(End::PeerAborted(reason.to_owned())));
        }
    }
}
