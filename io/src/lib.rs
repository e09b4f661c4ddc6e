//! Ports, clock and driver: the machine's side of Spanwire.

pub mod port;
