//! The fabric a worker is attached to, as in [`spanwire_stream::fabric`], and what the command's
//! parts call an error.

pub use spanwire_stream::fabric::{Attachment, Error, Fabric, Hop, Link, Wrap, interface};
