//! The flows of MLCC, as a switch reports them.

use spanwire_base::Rate;
use spanwire_wire::Qpn;
use std::net::IpAddr;

/// A flow that comes in through a DCI switch with MLCC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MlccFlow {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub dest: IpAddr,
    /// The sender's queue pair.
    pub sender: Qpn,
    /// Bytes of the flow in the switch.
    pub waiting_bytes: u64,
    /// The rate at which it is let in.
    pub rate: Rate,
}
