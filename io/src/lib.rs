//! Ports, clock and driver: the system interface of Spanwire.
//!
//! An engine is a [`spanwire_base::Node`]: bytes and time in, bytes and deadlines out. This crate
//! supplies the bytes and the time, independently of the protocol.
//!
//! | module | content |
//! |---|---|
//! | [`port`] | the interface [`port::Port`]: receive and transmit of frames |
//! | [`driver`] | the loop around one node and its ports, spinning or sleeping |
//! | [`worker`] | one lock around node, port and driver, for any number of threads |
//! | [`event`] | a descriptor by which one thread wakes another |
//! | [`fork`] | whether this process was forked from the one that opened something |
//! | [`clock`] | the only source of time |
//! | [`pipe`] | two ports back to back in one process |
//! | [`fault`] | network emulation around any port, decided by a seed |
//! | [`steered`] | hand-over of frames between the workers of a process |
//! | [`hotplug`] | a port whose interface may disappear and return |
//! | [`pcap`] | packet capture around any port |
//! | [`affinity`] | pinning a worker to its core |
//! | [`thread_time`] | the processor time of a thread |
//! | [`xdp`] | an AF_XDP socket on one queue of an interface |
//! | [`packet`] | an AF_PACKET socket: slower, for any interface and frames up to its MTU |
//! | [`udp`] | UDP sockets: for any interface, without privilege |
//! | [`net`] | kernel configuration: interfaces, routes, neighbours, namespaces |
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod affinity;
pub mod clock;
pub mod driver;
pub mod event;
pub mod fault;
pub mod fork;
pub mod hotplug;
pub mod net;
pub mod packet;
pub mod pcap;
pub mod pipe;
mod poll;
pub mod port;
pub mod steered;
pub mod thread_time;
mod tsc;
pub mod udp;
pub mod worker;
pub mod xdp;
