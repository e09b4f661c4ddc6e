//! The connections of a copy: control messages and chunks. A control message is a JSON object, so
//! it begins with `{`; a chunk begins with a zero byte.

use crate::chunk::{ChunkHeader, HEADER_BYTES};
use crate::message::{Message, PROTOCOL};
use crate::session::{End, POLL_INTERVAL, Session};
use spanwire_host::fabric::Error;
use spanwire_host::text::printable;
use spanwire_stream::{
    Config, ConnectOptions, Error as StreamError, MessageReceiver, MessageSender, ModeChoice,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The sending halves of a copy's connections, shared by all its threads.
#[derive(Debug)]
pub struct SendHalf<'a> {
    senders: Vec<Mutex<MessageSender>>,
    /// Chunks sent.
    chunks: AtomicUsize,
    session: &'a Session,
}

/// The receiving half of one connection. By itself it accepts control messages only.
#[derive(Debug)]
pub struct ReceiveHalf {
    receiver: MessageReceiver,
    buffer: Vec<u8>,
}

/// The queues into which a receiver demultiplexes the messages of a connection.
#[derive(Debug)]
pub struct Queues {
    /// Control messages; `None` of a further connection, which carries chunks only.
    pub messages: Option<SyncSender<Message>>,
    /// Chunks, with the time at which each arrived.
    pub chunks: SyncSender<(Instant, Vec<u8>)>,
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
        max_connections: 64,
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
        Self { senders: vec![Mutex::new(sender)], chunks: AtomicUsize::new(0), session }
    }

    /// Adds the next connection.
    pub fn add(&mut self, sender: MessageSender) {
        self.senders.push(Mutex::new(sender));
    }

    /// Sends a control message.
    ///
    /// # Errors
    /// The connection is gone, or the session has ended.
    pub fn send(&self, message: &Message) -> Result<(), End> {
        self.send_over(0, message)
    }

    /// Sends a control message over connection `index`.
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    ///
    /// # Panics
    /// If there is no such connection.
    pub(crate) fn send_over(&self, index: usize, message: &Message) -> Result<(), End> {
        let json = serde_json::to_vec(message).map_err(|e| End::Failed(e.to_string()))?;
        self.send_bytes(index, &json)
    }

    /// Sends a chunk over the next connection in turn: `chunk` with `header` put into its first
    /// [`HEADER_BYTES`]. One thread sends chunks.
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    ///
    /// # Panics
    /// If `chunk` is shorter than a header.
    pub fn send_chunk(&self, header: &ChunkHeader, chunk: &mut [u8]) -> Result<(), End> {
        chunk[..HEADER_BYTES].copy_from_slice(&header.emit());
        let sent = self.chunks.fetch_add(1, Ordering::Relaxed);
        self.send_bytes(sent % self.senders.len(), chunk)
    }

    /// Closes the connections according to the session's end. After a complete session, this
    /// returns once the other end has received everything.
    pub fn end(&self) {
        let reason = match self.session.outcome() {
            Some(End::Complete) => {
                self.each(MessageSender::finish);
                // An error is ignored, because the other end may close as soon as it has received
                // everything.
                self.each(|sender| drop(sender.drained(FINAL_MESSAGE_TIMEOUT)));
                return;
            }
            Some(End::Interrupted) => "interrupted by its user".to_owned(),
            Some(End::Protocol(what)) => what,
            Some(End::Stalled(time)) => format!("you brought nothing for {time:?}"),
            // Paths and disk errors of this host are not disclosed.
            _ => "something failed there".to_owned(),
        };
        self.reject(&reason);
    }

    /// Rejects the other end.
    pub fn reject(&self, why: &str) {
        self.each(|sender| sender.abort(why));
    }

    fn each(&self, mut act: impl FnMut(&mut MessageSender)) {
        (0..self.senders.len()).map(|index| self.lock(index)).for_each(|mut it| act(&mut it));
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, MessageSender> {
        self.senders[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_bytes(&self, index: usize, bytes: &[u8]) -> Result<(), End> {
        loop {
            let mut sender = self.lock(index);
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

    /// Receives messages and queues them by type, until `session` has ended. `finish_received` is
    /// that of all connections of the copy.
    ///
    /// # Errors
    /// How the copy ends.
    pub fn demultiplex(
        &mut self,
        queues: &Queues,
        finish_received: &AtomicBool,
        session: &Session,
    ) -> Result<(), End> {
        while !session.is_over() {
            match self.receiver.recv_into_timeout(&mut self.buffer, POLL_INTERVAL) {
                Ok(true) => {}
                // A close after `finish` is valid. The writer knows whether all files are in place.
                // A sender closes the others long after: it awaits `finished`.
                Ok(false) if finish_received.load(Ordering::Acquire) => return Ok(()),
                Ok(false) => return Err(finished()),
                Err(StreamError::TimedOut(_)) => continue,
                Err(e) => return Err(e.into()),
            }
            // An error means that the thread at the other end of the queue has ended with the
            // session.
            let _ = if self.buffer.first() == Some(&b'{') {
                let message = parse(&self.buffer)?;
                let messages = queues.messages.as_ref().ok_or_else(|| {
                    End::Protocol(format!("{} over a further connection", message.kind()))
                })?;
                finish_received.fetch_or(message == Message::Finish, Ordering::AcqRel);
                messages.send(message).map_err(drop)
            } else {
                // An invalid chunk is queued too, because the writer reports the error.
                let arrived_at = Instant::now();
                let spare = queues.spare.try_recv().unwrap_or_default();
                let chunk = std::mem::replace(&mut self.buffer, spare);
                queues.chunks.send((arrived_at, chunk)).map_err(drop)
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

    /// The two ends of a direction of a connection.
    fn halves<'a>(wire: &mut Wire, session: &'a Session) -> (SendHalf<'a>, ReceiveHalf) {
        let (a, b) = wire.pair();
        (SendHalf::new(a.split().0, session), ReceiveHalf::new(b.split().1))
    }

    #[test]
    fn recv__accepts_control_messages_only() {
        let mut wire = Wire::new();
        let (session, soon) = (Session::default(), Duration::from_millis(10));
        let (send_half, mut receive_half) = halves(&mut wire, &session);
        assert_eq!(receive_half.recv(soon), Ok(None));
        send_half.send(&Message::Finish).unwrap();
        assert_eq!(receive_half.recv(LATE), Ok(Some(Message::Finish)));
        send_half.send_bytes(0, b"{\"type\":\"sing\"}").unwrap();
        assert!(matches!(receive_half.recv(LATE), Err(End::Protocol(_))));
        send_half.send_bytes(0, b"{\"type\":\"\\u001b[2J\\n\"}").unwrap();
        let Err(End::Protocol(why)) = receive_half.recv(LATE) else { panic!("no error") };
        assert!(why.contains("\\u{1b}[2J\\n") && !why.chars().any(char::is_control), "{why}");
        send_half.send_bytes(0, b"").unwrap();
        assert!(matches!(receive_half.recv(LATE), Err(End::Protocol(_))));
    }

    #[test]
    fn demultiplex__separates_messages_from_chunks_and_reuses_buffers() {
        let mut wire = Wire::new();
        let session = Session::default();
        let (send_half, mut receive_half) = halves(&mut wire, &session);
        let (messages, messages_out) = sync_channel(8);
        let (chunks, chunks_out) = sync_channel(8);
        let (spare_in, spare) = channel();
        spare_in.send(Vec::with_capacity(12_345)).unwrap();
        send_half.send_bytes(0, &[0; 100]).unwrap();
        let message = Message::GiveUp { index: 0, reason: String::new() };
        send_half.send(&message).unwrap();
        send_half.send_bytes(0, &[0; 200]).unwrap();
        session.end(End::Complete);
        std::thread::scope(|scope| {
            scope.spawn(|| send_half.end());
            let queues = Queues { messages: Some(messages), chunks, spare };
            let (finish, session) = (AtomicBool::new(false), Session::default());
            let ended = receive_half.demultiplex(&queues, &finish, &session);
            assert_eq!(ended, Err(finished()));
        });
        assert_eq!(messages_out.try_iter().collect::<Vec<_>>(), [message]);
        let chunks: Vec<_> = chunks_out.try_iter().map(|(_, chunk)| chunk).collect();
        assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [100, 200]);
        assert!(chunks[1].capacity() >= 12_345);
    }

    #[test]
    fn demultiplex__a_sender_may_close_after_finish() {
        let mut wire = Wire::new();
        let session = Session::default();
        let (send_half, mut receive_half) = halves(&mut wire, &session);
        let ((messages, _messages), (chunks, _chunks)) = (sync_channel(8), sync_channel(8));
        send_half.send(&Message::Finish).unwrap();
        session.end(End::Complete);
        std::thread::scope(|scope| {
            scope.spawn(|| send_half.end());
            let queues = Queues { messages: Some(messages), chunks, spare: channel().1 };
            let (finish, session) = (AtomicBool::new(false), Session::default());
            assert_eq!(receive_half.demultiplex(&queues, &finish, &session), Ok(()));
            assert!(finish.into_inner());
        });
    }

    #[test]
    fn demultiplex__a_further_connection_carries_chunks_only() {
        let mut wire = Wire::new();
        let session = Session::default();
        let (send_half, mut receive_half) = halves(&mut wire, &session);
        let (chunks, chunks_out) = sync_channel(8);
        send_half.send_bytes(0, &[0; 100]).unwrap();
        send_half.send(&Message::Finish).unwrap();
        let queues = Queues { messages: None, chunks, spare: channel().1 };
        let finish = AtomicBool::new(false);
        let ended = receive_half.demultiplex(&queues, &finish, &Session::default());
        assert!(matches!(ended, Err(End::Protocol(_))), "{ended:?}");
        assert!(!finish.into_inner());
        assert_eq!(chunks_out.try_iter().count(), 1);
    }

    #[test]
    fn send_chunk__goes_over_the_connections_in_turn() {
        let mut wire = Wire::new();
        let session = Session::default();
        let ((a, b), (c, d)) = (wire.pair(), wire.pair());
        let mut send_half = SendHalf::new(a.split().0, &session);
        send_half.add(c.split().0);
        let sha256 = crate::message::Sha256Hex([0; 32]);
        for offset in 0..4 {
            let header = ChunkHeader { flags: 0, len: 0, index: 0, offset, sha256 };
            send_half.send_chunk(&header, &mut [0; HEADER_BYTES]).unwrap();
        }
        for (receiver, offsets) in [(b, [0, 2]), (d, [1, 3])] {
            let mut receiver = receiver.split().1;
            for offset in offsets {
                let chunk = receiver.recv_timeout(LATE).unwrap().expect("no end");
                assert_eq!(ChunkHeader::parse(&chunk).unwrap().0.offset, offset);
            }
        }
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
