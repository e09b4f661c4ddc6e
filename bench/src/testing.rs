//! Test support.

use clap::Command;
use std::net::{TcpListener, TcpStream};

/// The options on a command line.
pub(crate) fn options<A: clap::Args>(words: &[&str]) -> Result<A, clap::Error> {
    let command = A::augment_args(Command::new("x"));
    A::from_arg_matches(&command.try_get_matches_from([&["x"], words].concat())?)
}

/// Both ends of a connection over the loopback.
pub(crate) fn connected() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    [client, listener.accept().expect("it connects").0]
}
