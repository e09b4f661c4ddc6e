//! The extension headers between the BTH and the payload, in the order of the wire:
//! DETH, RETH, AtomicETH, AETH, AtomicAckETH, ImmDt, IETH. The opcode determines which are present.

use crate::split::take_mut;
use crate::{
    Aeth, AethRepr, AtomicAckEth, AtomicAckEthRepr, AtomicEth, AtomicEthRepr, BufferTooShort, Deth,
    DethRepr, DropReason, Ieth, ImmDt, Opcode, Reth, RethRepr,
};

/// The extension headers of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExtHeaders {
    /// The remote range of a WRITE or READ.
    pub reth: Option<RethRepr>,
    /// The syndrome of a response.
    pub aeth: Option<AethRepr>,
    /// The operands of an atomic operation.
    pub atomic: Option<AtomicEthRepr>,
    /// The result of an atomic operation.
    pub atomic_ack: Option<AtomicAckEthRepr>,
    /// Immediate data.
    pub imm: Option<u32>,
    /// The rkey to invalidate.
    pub ieth: Option<u32>,
    /// The source of a datagram.
    pub deth: Option<DethRepr>,
}

impl ExtHeaders {
    /// No extension headers.
    pub const NONE: Self = Self {
        reth: None,
        aeth: None,
        atomic: None,
        atomic_ack: None,
        imm: None,
        ieth: None,
        deth: None,
    };

    /// The extension headers of `opcode` at the start of `bytes`, and the bytes after them.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`].
    #[inline]
    pub fn parse(opcode: Opcode, bytes: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        let props = opcode.props();
        let (mut at, payload) =
            bytes.split_at_checked(props.ext_len).ok_or(DropReason::ExtTooShort)?;
        // The views check the remaining length again: that costs little and rules out a mismatch
        // between the opcode table's lengths and the headers'.
        let mut ext = Self::NONE;
        if props.deth {
            ext.deth = Some(DethRepr::parse(&Deth::new(at)?));
            at = &at[crate::deth::LEN..];
        }
        if props.reth {
            ext.reth = Some(RethRepr::parse(&Reth::new(at)?));
            at = &at[crate::reth::LEN..];
        }
        if props.atomic {
            ext.atomic = Some(AtomicEthRepr::parse(&AtomicEth::new(at)?));
            at = &at[crate::atomic::LEN..];
        }
        if props.aeth {
            ext.aeth = Some(AethRepr::parse(&Aeth::new(at)?));
            at = &at[crate::aeth::LEN..];
        }
        if props.atomic_ack {
            ext.atomic_ack = Some(AtomicAckEthRepr::parse(&AtomicAckEth::new(at)?));
            at = &at[crate::atomic::ACK_LEN..];
        }
        if props.imm {
            ext.imm = Some(ImmDt::new(at)?.imm());
            at = &at[crate::immdt::LEN..];
        }
        if props.ieth {
            ext.ieth = Some(Ieth::new(at)?.rkey());
        }
        Ok((ext, payload))
    }

    /// True if exactly the headers that `opcode` requires are present.
    #[must_use]
    pub const fn is_for(&self, opcode: Opcode) -> bool {
        let p = opcode.props();
        self.reth.is_some() == p.reth
            && self.aeth.is_some() == p.aeth
            && self.atomic.is_some() == p.atomic
            && self.atomic_ack.is_some() == p.atomic_ack
            && self.imm.is_some() == p.imm
            && self.ieth.is_some() == p.ieth
            && self.deth.is_some() == p.deth
    }

    /// Writes the headers that are present, in the order of the wire. A CNP's reserved bytes are
    /// written too: `out` is exactly the space that the opcode gives to extension headers.
    ///
    /// # Errors
    /// [`BufferTooShort`] if the headers do not fit `out`, because they are not the opcode's.
    #[inline]
    pub(crate) fn emit(&self, mut out: &mut [u8]) -> Result<(), BufferTooShort> {
        if let Some(deth) = &self.deth {
            deth.emit(take_mut(&mut out)?);
        }
        if let Some(reth) = &self.reth {
            reth.emit(take_mut(&mut out)?);
        }
        if let Some(atomic) = &self.atomic {
            atomic.emit(take_mut(&mut out)?);
        }
        if let Some(aeth) = &self.aeth {
            aeth.emit(take_mut(&mut out)?);
        }
        if let Some(atomic_ack) = &self.atomic_ack {
            atomic_ack.emit(take_mut(&mut out)?);
        }
        if let Some(imm) = self.imm {
            ImmDt::emit(imm, take_mut(&mut out)?);
        }
        if let Some(rkey) = self.ieth {
            Ieth::emit(rkey, take_mut(&mut out)?);
        }
        out.fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__requires_all_headers_of_the_opcode() {
        let bytes = [0; 28];
        for op in Opcode::ALL {
            let need = op.ext_len();
            let (ext, rest) = ExtHeaders::parse(op, &bytes).unwrap();
            assert!(ext.is_for(op), "{op:?}");
            assert_eq!(rest.len(), 28 - need);
            if need > 0 {
                let short = ExtHeaders::parse(op, &bytes[..need - 1]);
                assert_eq!(short.unwrap_err(), DropReason::ExtTooShort);
            }
        }
    }

    #[test]
    fn emit__writes_what_was_parsed() {
        let bytes: [u8; 28] = core::array::from_fn(|i| u8::try_from(i + 1).unwrap());
        for op in Opcode::ALL {
            let len = op.ext_len();
            let mut want = bytes;
            if op.props().deth {
                want[4] = 0;
            }
            if op == Opcode::Cnp {
                want.fill(0);
            }
            let (ext, _) = ExtHeaders::parse(op, &bytes).unwrap();
            let mut out = [0xaa; 28];
            ext.emit(&mut out[..len]).unwrap();
            assert_eq!(out[..len], want[..len], "{op:?}");
        }
    }

    #[test]
    fn parse__immediate_data_follow_the_reth() {
        let mut bytes = [0; 20];
        bytes[16..].copy_from_slice(&[1, 2, 3, 4]);
        let (ext, _) = ExtHeaders::parse(Opcode::RcWriteOnlyImm, &bytes).unwrap();
        assert_eq!(ext.imm, Some(0x0102_0304));
    }

    #[test]
    fn is_for__requires_exactly_the_headers_of_the_opcode() {
        assert!(ExtHeaders::NONE.is_for(Opcode::RcSendOnly));
        assert!(!ExtHeaders::NONE.is_for(Opcode::RcSendOnlyImm));
        let imm = ExtHeaders { imm: Some(7), ..ExtHeaders::NONE };
        assert!(!imm.is_for(Opcode::RcSendOnly));
        assert_eq!(imm.emit(&mut []), Err(BufferTooShort));
    }
}
