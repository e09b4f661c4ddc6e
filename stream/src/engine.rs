//! The engine of a network, which the threads of its applications drive.

use crate::channels::Channels;
use spanwire_host::fabric::Link;
use spanwire_io::worker::Worker;
use spanwire_transport::Host;

/// The engine of a network with all channels.
pub(crate) type Engine = Worker<Host<Channels>, Box<dyn Link + Send>>;
