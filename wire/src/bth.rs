//! The base transport header, 12 bytes, first after UDP.
//!
//! ```text
//!  0      opcode
//!  1      SE 1 | MigReq 1 | pad count 2 | TVer 4
//!  2..4   P_Key
//!  4      FECN 1 | BECN 1 | reserved 6      (masked in the ICRC)
//!  5..8   destination QP
//!  8      AckReq 1 | reserved 7
//!  9..12  PSN
//! ```

use crate::be;
use crate::{DropReason, Opcode, Psn, Qpn};

/// Bytes of a BTH.
pub(crate) const LEN: usize = 12;

/// A BTH in a received packet. Its length is checked; nothing else is.
#[derive(Clone, Copy, Debug)]
pub struct Bth<'a>(&'a [u8; LEN]);

/// A BTH's fields.
///
/// The reserved bits are kept so that a parsed BTH is emitted unchanged; both are 0 in
/// [`BthRepr::new`] and receivers ignore them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BthRepr {
    /// The operation.
    pub opcode: Opcode,
    /// The solicited event bit.
    pub solicited: bool,
    /// The migration request bit. ConnectX sends 1, rdma_rxe 0; receivers ignore it.
    pub mig_req: bool,
    /// Pad bytes after the payload, 0..=3. Emitting a packet computes it from the payload.
    pub pad: u8,
    /// The partition key. The transport checks it.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// The six reserved bits after BECN.
    pub resv6: u8,
    /// The destination queue pair.
    pub dest_qp: Qpn,
    /// The acknowledge request bit.
    pub ack_req: bool,
    /// The seven reserved bits after AckReq.
    pub resv7: u8,
    /// The packet sequence number.
    pub psn: Psn,
}

impl<'a> Bth<'a> {
    /// The view of the first 12 bytes of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::BthTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        bytes.first_chunk().map(Self).ok_or(DropReason::BthTooShort)
    }

    /// The opcode byte, whether known or not.
    #[must_use]
    pub const fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// The solicited event bit.
    #[must_use]
    pub const fn solicited(&self) -> bool {
        self.0[1] & SE != 0
    }

    /// The migration request bit.
    #[must_use]
    pub const fn mig_req(&self) -> bool {
        self.0[1] & MIG_REQ != 0
    }

    /// The pad count, 0..=3.
    #[must_use]
    pub const fn pad(&self) -> u8 {
        (self.0[1] >> PAD_SHIFT) & PAD_MASK
    }

    /// The transport header version, 0..=15; 0 is the only version.
    #[must_use]
    pub const fn tver(&self) -> u8 {
        self.0[1] & TVER_MASK
    }

    /// The partition key.
    #[must_use]
    pub const fn pkey(&self) -> u16 {
        be::u16_at(self.0, 2)
    }

    /// Forward congestion notification.
    #[must_use]
    pub const fn fecn(&self) -> bool {
        self.0[4] & FECN != 0
    }

    /// Backward congestion notification.
    #[must_use]
    pub const fn becn(&self) -> bool {
        self.0[4] & BECN != 0
    }

    /// The destination queue pair.
    #[must_use]
    pub const fn dest_qp(&self) -> Qpn {
        Qpn::new(be::u24_at(self.0, 5))
    }

    /// The acknowledge request bit.
    #[must_use]
    pub const fn ack_req(&self) -> bool {
        self.0[8] & ACK_REQ != 0
    }

    /// The packet sequence number.
    #[must_use]
    pub const fn psn(&self) -> Psn {
        Psn::new(be::u24_at(self.0, 9))
    }
}

impl BthRepr {
    /// A BTH with the default partition key and every flag clear.
    #[must_use]
    #[inline]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: false,
            pad: 0,
            pkey: Self::DEFAULT_PKEY,
            fecn: false,
            becn: false,
            resv6: 0,
            dest_qp,
            ack_req: false,
            resv7: 0,
            psn,
        }
    }

    /// The BTH of a congestion notification to `dest_qp`.
    #[must_use]
    pub const fn cnp(dest_qp: Qpn) -> Self {
        let mut bth = Self::new(Opcode::Cnp, dest_qp, Psn::new(0));
        bth.becn = true;
        bth
    }

    /// The default partition, full membership.
    pub const DEFAULT_PKEY: u16 = 0xffff;

    /// The fields of a BTH.
    ///
    /// # Errors
    /// [`DropReason::BadTver`], [`DropReason::UnknownOpcode`], in this order.
    #[inline]
    pub fn parse(bth: &Bth<'_>) -> Result<Self, DropReason> {
        if bth.tver() != 0 {
            return Err(DropReason::BadTver);
        }
        let opcode = Opcode::from_u8(bth.opcode()).ok_or(DropReason::UnknownOpcode)?;
        Ok(Self {
            opcode,
            solicited: bth.solicited(),
            mig_req: bth.mig_req(),
            pad: bth.pad(),
            pkey: bth.pkey(),
            fecn: bth.fecn(),
            becn: bth.becn(),
            resv6: bth.0[4] & RESV6_MASK,
            dest_qp: bth.dest_qp(),
            ack_req: bth.ack_req(),
            resv7: bth.0[8] & RESV7_MASK,
            psn: bth.psn(),
        })
    }

    /// Writes all 12 bytes. Fields wider than their bits are cut to them.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        out[0] = self.opcode.to_u8();
        out[1] = flag(self.solicited, SE)
            | flag(self.mig_req, MIG_REQ)
            | (self.pad & PAD_MASK) << PAD_SHIFT;
        be::put(out, 2, self.pkey.to_be_bytes());
        out[4] = flag(self.fecn, FECN) | flag(self.becn, BECN) | self.resv6 & RESV6_MASK;
        be::put_u24(out, 5, self.dest_qp.get());
        out[8] = flag(self.ack_req, ACK_REQ) | self.resv7 & RESV7_MASK;
        be::put_u24(out, 9, self.psn.get());
    }

    /// Changes what differs between packets with the same other fields.
    #[inline]
    pub(crate) fn set_flow(psn: Psn, ack_req: bool, out: &mut [u8; LEN]) {
        out[8] = if ack_req { ACK_REQ } else { 0 };
        be::put_u24(out, 9, psn.get());
    }
}

const SE: u8 = 0x80;
const MIG_REQ: u8 = 0x40;
const PAD_SHIFT: u8 = 4;
const PAD_MASK: u8 = 0x03;
const TVER_MASK: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const RESV6_MASK: u8 = 0x3f;
const ACK_REQ: u8 = 0x80;
const RESV7_MASK: u8 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: [u8; 12] = [0x0a, 0xf0, 0x12, 0x34, 0xbf, 1, 2, 3, 0x81, 4, 5, 6];

    #[test]
    fn bth_new__requires_12_bytes() {
        assert_eq!(Bth::new(&WIRE[..11]).unwrap_err(), DropReason::BthTooShort);
    }

    #[test]
    fn cnp__carries_becn_and_no_psn() {
        let mut out = [0; 12];
        BthRepr::cnp(Qpn::new(0x12)).emit(&mut out);
        assert_eq!(out, [0x81, 0, 0xff, 0xff, 0x40, 0, 0, 0x12, 0, 0, 0, 0]);
    }

    #[test]
    fn parse__reads_each_field() {
        let r = BthRepr::parse(&Bth::new(&WIRE).unwrap()).unwrap();
        let want = BthRepr {
            solicited: true,
            mig_req: true,
            pad: 3,
            pkey: 0x1234,
            fecn: true,
            becn: false,
            resv6: 0x3f,
            ack_req: true,
            resv7: 1,
            ..BthRepr::new(Opcode::RcWriteOnly, Qpn::new(0x01_0203), Psn::new(0x04_0506))
        };
        assert_eq!(r, want);
    }

    #[test]
    fn parse__rejects_versions_and_opcodes() {
        let mut w = WIRE;
        w[0] = 0x15;
        assert_eq!(BthRepr::parse(&Bth::new(&w).unwrap()), Err(DropReason::UnknownOpcode));
        w[1] |= 1;
        assert_eq!(BthRepr::parse(&Bth::new(&w).unwrap()), Err(DropReason::BadTver));
    }

    #[test]
    fn emit__writes_what_was_parsed() {
        let mut out = [0xaa; 12];
        BthRepr::parse(&Bth::new(&WIRE).unwrap()).unwrap().emit(&mut out);
        assert_eq!(out, WIRE);
    }

    #[test]
    fn emit__masks_fields_to_their_width() {
        let mut r = BthRepr::new(Opcode::RcAck, Qpn::GSI, Psn::new(0));
        (r.pad, r.resv6, r.resv7) = (0xff, 0xff, 0xff);
        let mut out = [0; 12];
        r.emit(&mut out);
        assert_eq!((out[1], out[4], out[8]), (0x30, 0x3f, 0x7f));
    }
}
