//! Writing of a packet: headers, payload, ICRC.

use super::common::{Common, DEFAULT_PKEY, Shared, Transmit};
use crate::payload::PayloadMut;
use spanwire_base::TxMeta;
use spanwire_wire::{BthRepr, ExtHeaders, Opcode, Psn};

/// The reason why a packet could not be written.
pub(crate) enum NotWritten {
    /// The frame buffer is shorter than the packet.
    NoRoom,
    /// The payload's memory is no longer available.
    NoPayload,
}

impl Common {
    #[inline]
    pub(crate) fn sent(&self, meta: TxMeta, payload_len: u32, sh: &mut Shared<'_>) -> Transmit {
        sh.counters.tx_packets += 1;
        sh.counters.tx_payload_bytes += u64::from(payload_len);
        Transmit::Sent(meta)
    }

    /// Writes one packet. `payload` are the payload's bytes, which `fill` provides, and whether to
    /// elide them.
    pub(crate) fn write(
        &self,
        bth: &BthRepr,
        ext: &ExtHeaders,
        payload: (u32, bool),
        frame: &mut [u8],
        fill: impl FnOnce(PayloadMut<'_>) -> bool,
    ) -> Result<TxMeta, NotWritten> {
        let path = self.path.as_ref().ok_or(NotWritten::NoRoom)?;
        let template = path.template();
        let (len, elide) = payload;
        let payload_len = len as usize;
        let no_room = |_| NotWritten::NoRoom;
        let (icrc_at, elided, filled) = if elide && len > 0 {
            let (at, elided) =
                template.emit_elided(bth, ext, payload_len, 0, frame).map_err(no_room)?;
            (at.end, elided, fill(PayloadMut::Elided(len)))
        } else {
            let at = template.emit(bth, ext, payload_len, frame).map_err(no_room)?;
            let end = at.end + payload_len.wrapping_neg() % 4;
            (end, 0, fill(PayloadMut::Bytes(&mut frame[at])))
        };
        if !filled {
            return Err(NotWritten::NoPayload);
        }
        let len = icrc_at + ICRC_BYTES;
        spanwire_wire::seal(frame, len);
        Ok(TxMeta { len, elided_bytes: spanwire_base::u32_from(elided) })
    }

    #[inline]
    pub(crate) fn bth(&self, opcode: Opcode, psn: Psn) -> BthRepr {
        BthRepr { pkey: DEFAULT_PKEY, ..BthRepr::new(opcode, self.dest_qpn, psn) }
    }
}

pub(crate) const ICRC_BYTES: usize = 4;
