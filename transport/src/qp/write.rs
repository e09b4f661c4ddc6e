//! Writing of a packet: headers, payload, ICRC.

use super::common::{Common, DEFAULT_PKEY, Shared, Transmit};
use crate::lending::{ICRC_BYTES, Treatment};
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

    /// Writes one packet. `payload` are the payload's bytes, which `fill` provides, and their
    /// treatment.
    pub(crate) fn write(
        &self,
        bth: &BthRepr,
        ext: &ExtHeaders,
        payload: (u32, Treatment<'_>),
        frame: &mut [u8],
        fill: impl FnOnce(PayloadMut<'_>) -> bool,
    ) -> Result<TxMeta, NotWritten> {
        let path = self.path.as_ref().ok_or(NotWritten::NoRoom)?;
        let template = path.template();
        let (len, treatment) = payload;
        let payload_len = len as usize;
        let no_room = |_| NotWritten::NoRoom;
        let icrc_at = |end: usize| end + payload_len.wrapping_neg() % 4;
        let (len, elided) = match treatment {
            Treatment::Copy => {
                let at = template.emit(bth, ext, payload_len, frame).map_err(no_room)?;
                let len = icrc_at(at.end) + ICRC_BYTES;
                if !fill(PayloadMut::Bytes(&mut frame[at])) {
                    return Err(NotWritten::NoPayload);
                }
                spanwire_wire::seal(frame, len);
                (len, 0)
            }
            Treatment::Elide => {
                let (at, elided) =
                    template.emit_elided(bth, ext, payload_len, 0, frame).map_err(no_room)?;
                if !fill(PayloadMut::Elided(len)) {
                    return Err(NotWritten::NoPayload);
                }
                let len = at.end + ICRC_BYTES;
                spanwire_wire::seal(frame, len);
                (len, elided)
            }
            Treatment::Lend(lending) => {
                let at = template.emit(bth, ext, payload_len, frame).map_err(no_room)?;
                let len = icrc_at(at.end) + ICRC_BYTES;
                let mut lent = None;
                if !fill(PayloadMut::Lendable(&mut frame[at.clone()], &mut lent)) {
                    return Err(NotWritten::NoPayload);
                }
                lending.seal(frame, len, at, lent, true);
                (len, 0)
            }
        };
        Ok(TxMeta { elided_bytes: spanwire_base::u32_from(elided), ..TxMeta::whole(len) })
    }

    #[inline]
    pub(crate) fn bth(&self, opcode: Opcode, psn: Psn) -> BthRepr {
        BthRepr { pkey: DEFAULT_PKEY, ..BthRepr::new(opcode, self.dest_qpn, psn) }
    }
}
