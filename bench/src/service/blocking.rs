//! Connections with blocking calls, served in turn by one thread.

use super::exchange::Application;
use crate::sample::Error;

/// A connection with blocking calls.
pub(super) trait Blocking {
    /// Sends a message.
    fn send(&mut self, message: &[u8]) -> Result<(), Error>;

    /// Receives a message in place of the content of `message`; false at the end.
    fn receive(&mut self, message: &mut Vec<u8>) -> Result<bool, Error>;
}

/// Runs `application` until it is done.
pub(super) fn run(
    connections: &mut [impl Blocking],
    application: &mut impl Application,
) -> Result<(), Error> {
    let (received_bytes, sent_bytes) = application.message_bytes();
    let (mut message, mut out) = (vec![0; received_bytes], vec![0; sent_bytes]);
    for (n, connection) in connections.iter_mut().enumerate() {
        while application.first(n, &mut out) {
            connection.send(&out)?;
        }
    }
    while !application.is_done() {
        for (n, connection) in connections.iter_mut().enumerate() {
            if !application.expects(n) {
                continue;
            }
            if !connection.receive(&mut message)? {
                application.on_end(n)?;
            } else if application.on_message(n, &message, &mut out)? {
                connection.send(&out)?;
            }
        }
    }
    Ok(())
}
