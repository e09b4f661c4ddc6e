//! How a receiver and a sender agree on a copy, and how the copy gets its further connections.

use crate::connection::{ReceiveHalf, SENDER_REPLY_TIMEOUT, SendHalf, unexpected};
use crate::dest::DestDir;
use crate::grant::WINDOW;
use crate::message::{Accept, Message, Request};
use crate::session::Session;
use spanwire_base::usize_from;
use spanwire_host::fabric::Error;
use spanwire_host::seed;
use spanwire_host::text::bytes;
use spanwire_stream::{Connection, MessageSender};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The calls of a receiver that waits for its sender.
pub(crate) struct Meanwhile<'a> {
    pub(crate) session: &'a Session,
    /// Called a few times a second; it may end the session.
    pub(crate) watch: &'a mut dyn FnMut(&Session),
    /// The next connection that was accepted since, if there is one.
    pub(crate) arrivals: &'a mut dyn FnMut() -> Option<Connection>,
}

impl Meanwhile<'_> {
    /// Calls `watch`, and rejects other senders.
    pub(crate) fn watch(&mut self) {
        (self.watch)(self.session);
        while let Some(other) = (self.arrivals)() {
            other.abort(BUSY);
        }
    }
}

/// Exchanges request and accept with the sender; returns with the further connections of the copy,
/// at most `connections` with the first one.
///
/// # Errors
/// The two ends did not agree.
pub(crate) fn agree(
    send_half: &mut SendHalf<'_>,
    first: &mut ReceiveHalf,
    root: &DestDir,
    connections: u32,
    meanwhile: &mut Meanwhile<'_>,
) -> Result<(Request, Vec<ReceiveHalf>), Error> {
    let session = meanwhile.session;
    let request = match first.expect(session, &mut |_| meanwhile.watch(), SENDER_REPLY_TIMEOUT)? {
        Message::Request(request) => request,
        other => return Err(unexpected("a request", &other).to_string().into()),
    };
    check_room(root, &request)?;
    let progress = &session.progress;
    progress.bytes_total.store(request.bytes, Ordering::Relaxed);
    progress.files_total.store(request.files, Ordering::Relaxed);
    let connections = request.connections.min(connections).max(1);
    progress.connections.store(connections, Ordering::Relaxed);
    let token = if connections > 1 { token()? } else { String::new() };
    let accept = Message::Accept(Accept { window: WINDOW, connections, token: token.clone() });
    send_half.send(&accept).map_err(|end| end.to_string())?;
    let mut further = Vec::new();
    if connections > 1 {
        for (sender, receive_half) in join(&token, connections, first, meanwhile)? {
            send_half.add(sender);
            further.push(receive_half);
        }
        send_half.send(&Message::Joined).map_err(|end| end.to_string())?;
    }
    Ok((request, further))
}

/// Waits for the further connections of a copy, in their order.
fn join(
    token: &str,
    connections: u32,
    first: &mut ReceiveHalf,
    meanwhile: &mut Meanwhile<'_>,
) -> Result<Vec<(MessageSender, ReceiveHalf)>, Error> {
    let mut joined: Vec<Option<_>> = (1..connections).map(|_| None).collect();
    // Connections that have not said anything yet: of this sender, or of others.
    let mut silent: Vec<(MessageSender, ReceiveHalf)> = Vec::new();
    let start = Instant::now();
    while joined.iter().any(Option::is_none) {
        if start.elapsed() >= SENDER_REPLY_TIMEOUT {
            let come = 1 + joined.iter().flatten().count();
            return Err(format!("{come} of {connections} connections came").into());
        }
        (meanwhile.watch)(meanwhile.session);
        if let Some(end) = meanwhile.session.outcome() {
            return Err(end.to_string().into());
        }
        while let Some(connection) = (meanwhile.arrivals)() {
            if silent.len() == SILENT_MAX {
                // The one that has been silent for longest: a sender of this copy joins at once.
                silent.remove(0).0.abort(BUSY);
            }
            let (sender, receiver) = connection.split();
            silent.push((sender, ReceiveHalf::new(receiver)));
        }
        if let Some(message) = first.recv(JOIN_INTERVAL).map_err(|end| end.to_string())? {
            return Err(unexpected("a further connection", &message).to_string().into());
        }
        for (sender, mut receive_half) in std::mem::take(&mut silent) {
            match receive_half.recv(Duration::ZERO) {
                Ok(None) => silent.push((sender, receive_half)),
                Ok(Some(message)) => match free_place(&mut joined, token, &message) {
                    Some(place) => *place = Some((sender, receive_half)),
                    None => sender.abort(BUSY),
                },
                Err(_) => sender.abort(BUSY),
            }
        }
    }
    silent.into_iter().for_each(|(sender, _)| sender.abort(BUSY));
    Ok(joined.into_iter().flatten().collect())
}

/// The place of the connection whose first message this is; `None` of another sender's.
fn free_place<'a, T>(
    joined: &'a mut [Option<T>],
    expected: &str,
    message: &Message,
) -> Option<&'a mut Option<T>> {
    let Message::Join { token, connection } = message else { return None };
    let index = usize_from((*connection).into()).checked_sub(1)?;
    joined.get_mut(index).filter(|place| token == expected && place.is_none())
}

/// A number that other senders do not guess.
fn token() -> Result<String, Error> {
    let bytes = seed::random().map_err(|e| format!("cannot draw a random number: {e}"))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Rejects a request that exceeds the disk space, existing data included.
fn check_room(root: &DestDir, request: &Request) -> Result<(), String> {
    let free = root.free_bytes()?;
    if request.bytes <= free || request.roots.is_empty() {
        return Ok(());
    }
    let there = root.bytes_there(&request.roots);
    if request.bytes.saturating_sub(there) <= free {
        return Ok(());
    }
    Err(format!("no space: {} are to come, {} are free", bytes(request.bytes), bytes(free)))
}

/// A receiver serves one sender at a time.
const BUSY: &str = "busy with another sender; try again later";

/// Connections that are asked for their first message at a time. A sender joins with one before it
/// opens the next.
const SILENT_MAX: usize = 16;

/// Interval of looks at them.
const JOIN_INTERVAL: Duration = Duration::from_millis(1);
