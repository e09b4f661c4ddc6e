//! Messages of `stream` with blocking calls, as an application uses it: all options have their
//! defaults, or those of a thread with a core of its own.

use super::blocking::{self, Blocking};
use super::exchange::Application;
use super::task::{End, SILENCE};
use crate::sample::Error;
use spanwire_stream::{ConnectOptions, Connection, Network, NetworkOptions, Polling, Progress};
use std::time::Instant;

/// The options of an application whose thread has a core of its own: for the lowest latency.
pub(super) fn inline_options() -> NetworkOptions {
    let (progress, polling) = (Progress::Inline, Polling::Busy);
    NetworkOptions { progress, polling, ..NetworkOptions::default() }
}

/// Runs this end of `stream` until `application` is done.
pub(super) fn run(
    end: &End,
    options: NetworkOptions,
    application: &mut impl Application,
) -> Result<(), Error> {
    let network = Network::open(&end.dev, options)?;
    let mut connections = connections(&network, end)?;
    blocking::run(&mut connections, application)?;
    // All of them first: the other end serves them in turn, and waits for any of their ends.
    for connection in &mut connections {
        connection.sender().finish();
    }
    for mut connection in connections {
        connection.sender().drained(SILENCE)?;
    }
    network.shutdown(SILENCE)?;
    Ok(())
}

fn connections(network: &Network, end: &End) -> Result<Vec<Connection>, Error> {
    let options = ConnectOptions::default();
    let each = 0..end.connections();
    if let Some(server) = end.server {
        return each.map(|_| Ok(network.connect(server, &options)?)).collect();
    }
    let listener = network.listen(0, options)?;
    end.announce(listener.local_addr().port());
    let accept = |_| {
        let accepted = listener.accept_timeout(SILENCE)?;
        Ok(accepted.ok_or_else(|| format!("no client within {SILENCE:?}"))?)
    };
    each.map(accept).collect()
}

impl Blocking for Connection {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        Ok(self.sender().send_timeout(message, SILENCE)?)
    }

    fn receive(
        &mut self,
        message: &mut Vec<u8>,
        until: Option<Instant>,
    ) -> Result<Option<bool>, Error> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match self.receiver().recv_into_timeout(message, left.unwrap_or(SILENCE)) {
            Err(spanwire_stream::Error::TimedOut(_)) if left.is_some() => Ok(None),
            received => Ok(Some(received?)),
        }
    }
}
