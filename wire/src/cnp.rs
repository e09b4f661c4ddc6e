//! The congestion notification packet of RoCEv2 (IBTA A17): a BTH with opcode 0x81 and BECN set,
//! then 16 reserved bytes. It is sent to the QP that sent the marked packet and consumes no PSN.

/// Reserved bytes after the BTH of a CNP: sent as 0, ignored on receipt.
pub(crate) const LEN: usize = 16;
