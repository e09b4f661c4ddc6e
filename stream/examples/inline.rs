//! One thread and no other: `inline eth0 7000` echoes the messages of all its clients. The engine
//! runs in the calls of this thread (`Progress::Inline`), as in an event loop or with one thread
//! for each core. A client is `echo eth0 call 10.0.0.1:7000 hello`.
#![forbid(unsafe_code)]

use spanwire_stream::{
    ConnectOptions, Connection, Error as StreamError, Listener, Network, NetworkOptions, Progress,
};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, interface, port] = &args[..] else {
        return Err("usage: inline INTERFACE PORT".into());
    };
    let mut network = Network::open(interface, options())?;
    let listener = network.listen(port.parse()?, ConnectOptions::default())?;
    eprintln!("listening on {}", listener.local_addr());
    serve(&mut network, &listener, || false)
}

/// The options of such a network.
pub(crate) fn options() -> NetworkOptions {
    NetworkOptions { progress: Progress::Inline, ..NetworkOptions::default() }
}

/// Serves clients until `is_over` returns true, which is called between rounds.
///
/// # Errors
/// The network is gone.
pub(crate) fn serve(
    network: &mut Network,
    listener: &Listener<Connection>,
    mut is_over: impl FnMut() -> bool,
) -> Result<(), Box<dyn Error>> {
    let mut clients: Vec<Client> = Vec::new();
    while !is_over() {
        while let Some(connection) = listener.try_accept()? {
            clients.push(Client { connection, unsent: None });
        }
        let mut moved = network.turn()?;
        clients.retain_mut(|client| match client.answer_all() {
            Ok(Served::Some) => {
                moved = true;
                true
            }
            Ok(Served::None) => true,
            Ok(Served::Finished) => false,
            Err(e) => {
                eprintln!("{}: {e}", client.connection.about().peer);
                false
            }
        });
        if !moved {
            // Sleeps at the port. New clients come by TCP, so not for ever.
            network.wait(Duration::from_millis(10))?;
        }
    }
    Ok(())
}

/// A client, and the echo for which there was no room.
struct Client {
    connection: Connection,
    unsent: Option<Vec<u8>>,
}

/// The result of a visit to a client.
enum Served {
    None,
    Some,
    Finished,
}

impl Client {
    /// Echoes everything that has arrived, as far as there is room.
    fn answer_all(&mut self) -> Result<Served, StreamError> {
        let mut served = Served::None;
        loop {
            let echo = match self.unsent.take() {
                Some(echo) => echo,
                None => match self.connection.receiver().try_recv() {
                    Ok(Some(message)) => message,
                    // What was sent is delivered after the drop too, by later turns.
                    Ok(None) => return Ok(Served::Finished),
                    Err(StreamError::WouldBlock) => return Ok(served),
                    Err(e) => return Err(e),
                },
            };
            match self.connection.sender().try_send(&echo) {
                Ok(()) => served = Served::Some,
                Err(StreamError::WouldBlock) => {
                    self.unsent = Some(echo);
                    return Ok(served);
                }
                Err(e) => return Err(e),
            }
        }
    }
}
