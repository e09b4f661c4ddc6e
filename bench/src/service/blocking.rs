//! Connections with blocking calls, served in turn by one thread.

use super::exchange::Application;
use crate::sample::Error;
use std::time::Instant;

/// A connection with blocking calls.
pub(super) trait Blocking {
    /// Sends a message, at the next flush at the latest.
    fn send(&mut self, message: &[u8]) -> Result<(), Error>;

    /// Sends what is buffered, unless the next message is here and its reply can be sent with it.
    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Receives a message in place of the content of `message`; false at the end, and none if
    /// nothing has arrived by `until`.
    fn receive(
        &mut self,
        message: &mut Vec<u8>,
        until: Option<Instant>,
    ) -> Result<Option<bool>, Error>;
}

/// Runs `application` until it is done.
pub(super) fn run(
    connections: &mut [impl Blocking],
    application: &mut impl Application,
) -> Result<(), Error> {
    let (received_bytes, sent_bytes) = application.message_bytes();
    let (mut message, mut out) = (vec![0; received_bytes], vec![0; sent_bytes]);
    loop {
        for (n, connection) in connections.iter_mut().enumerate() {
            while application.first(n, &mut out) {
                connection.send(&out)?;
            }
            connection.flush()?;
        }
        if application.is_done() {
            return Ok(());
        }
        for (n, connection) in connections.iter_mut().enumerate() {
            if !application.expects(n) {
                continue;
            }
            match connection.receive(&mut message, application.wakes_at())? {
                Some(false) => application.on_end(n)?,
                Some(true) if application.on_message(n, &message, &mut out)? => {
                    connection.send(&out)?;
                    connection.flush()?;
                }
                Some(true) | None => {}
            }
        }
    }
}
