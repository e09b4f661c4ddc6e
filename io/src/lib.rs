//! Ports, clock and driver: the machine's side of Spanwire.
//!
//! An engine is a [`spanwire_base::Node`]: bytes and time in, bytes and deadlines out. This crate
//! gives it the bytes and the time, and knows nothing of what they mean.
//!
//! | module | what it is |
//! |---|---|
//! | [`port`] | the seam: [`port::Port`], where frames come from and go to |
//! | [`driver`] | the loop around one node and its ports, and how it waits |
//! | [`doorbell`] | how another thread wakes a worker |
//! | [`clock`] | the only clock |
//! | [`pipe`] | two ports back to back in one process |
//! | [`fault`] | a bad network around any port, decided by a seed |
//! | [`hotplug`] | a port whose interface may go and come back |
//! | [`pcap`] | a capture of what any port carries |
//! | [`affinity`] | pinning a worker to its core |
//! | [`xdp`] | an AF_XDP socket on one queue of an interface |
//! | [`packet`] | an AF_PACKET socket: slower, on any interface, frames as long as its MTU |
//! | [`net`] | the kernel's side of addressing: interfaces, routes, neighbours, namespaces |
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod affinity;
pub mod clock;
pub mod doorbell;
pub mod driver;
pub mod fault;
pub mod hotplug;
pub mod net;
pub mod packet;
pub mod pcap;
pub mod pipe;
mod poll;
pub mod port;
mod tsc;
pub mod xdp;
