//! The congestion notification packet of RoCEv2 (IBTA A17): a BTH with opcode 0x81 and BECN set,
//! then 16 reserved bytes. It is sent to the QP that sent the marked packet and consumes no PSN.

use crate::{BthRepr, Opcode, Psn, Qpn};

/// Reserved bytes after the BTH of a CNP: sent as 0, ignored on receipt.
pub(crate) const LEN: usize = 16;

impl BthRepr {
    /// The BTH of a congestion notification to `dest_qp`.
    #[must_use]
    pub const fn cnp(dest_qp: Qpn) -> Self {
        let mut bth = Self::new(Opcode::Cnp, dest_qp, Psn::new(0));
        bth.becn = true;
        bth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cnp__carries_becn_and_no_psn() {
        let mut out = [0; 12];
        BthRepr::cnp(Qpn::new(0x12)).emit(&mut out);
        assert_eq!(out, [0x81, 0, 0xff, 0xff, 0x40, 0, 0, 0x12, 0, 0, 0, 0]);
    }
}
