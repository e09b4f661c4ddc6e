//! Two networks that are connected by a pipe.

use spanwire_stream::fabric::{Attachment, Wrap};
use spanwire_stream::{Config, Connection, Listener, Network, NetworkOptions, Progress};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

pub(crate) fn networks(progress: Progress) -> [Network; 2] {
    let wrap = Wrap::default();
    let (a, b) = Attachment::pipe([&wrap, &wrap]).expect("a pipe needs only memory");
    [a, b].map(|attachment| {
        // A busy machine may have no core for seconds.
        let handshake_timeout = Duration::from_secs(60);
        let config = Config { handshake_timeout, timeout: 20, ..Config::default() };
        let config = config.validate().expect("within the limits");
        let options = NetworkOptions { config, progress, ..NetworkOptions::default() };
        Network::over(attachment, "lo", options).expect("threads and descriptors")
    })
}

pub(crate) fn address(listener: &Listener<Connection>) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.local_addr().port())
}
