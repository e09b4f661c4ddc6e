//! Writing of a packet: headers, payload, ICRC.

use super::common::{Common, DEFAULT_PKEY, Shared, Transmit};
use super::path::Path;
use crate::lending::{ICRC_BYTES, Lending, Treatment};
use crate::payload::PayloadMut;
use spanwire_base::{TxBurst, TxMeta};
use spanwire_wire::{BthRepr, ExtHeaders, Opcode, PlainBth, Psn, Template};
use std::ops::Range;

/// The reason why a packet could not be written.
pub(crate) enum NotWritten {
    /// The frame buffer is shorter than the packet.
    NoRoom,
    /// The payload's memory is no longer available.
    NoPayload,
}

impl Common {
    #[inline]
    pub(crate) fn sent(&self, meta: TxMeta, payload_len: u32, sh: &mut Shared) -> Transmit {
        sh.counters.tx_packets += 1;
        sh.counters.tx_payload_bytes += u64::from(payload_len);
        Transmit::Sent(meta)
    }
}

impl Shared {
    /// The next buffer of `burst`, if it has one, for a frame that [`Shared::commit`] then sends.
    // Not one function that takes a closure: it would not be inlined.
    #[inline]
    pub(crate) fn begin<'b>(&mut self, burst: &'b mut dyn TxBurst) -> Option<&'b mut [u8]> {
        let lends = burst.lends();
        let frame = burst.buffer()?;
        if lends {
            self.lending.begin();
        }
        Some(frame)
    }

    /// Sends the frame written since [`Shared::begin`], if one was.
    #[inline]
    pub(crate) fn commit(
        &mut self,
        burst: &mut dyn TxBurst,
        written: Option<TxMeta>,
    ) -> Option<TxMeta> {
        // To pass a loan takes dozens of instructions, even if it may be none.
        match self.lending.end() {
            None => burst.commit(written?, None),
            lent => burst.commit(written?, lent),
        }
        written
    }
}

impl Path {
    /// Writes one packet. `payload` are the payload's bytes, which `fill` provides, and their
    /// treatment.
    pub(crate) fn write(
        &mut self,
        bth: &BthRepr,
        ext: &ExtHeaders,
        payload: (u32, Treatment, &mut Lending),
        frame: &mut [u8],
        fill: impl FnOnce(PayloadMut<'_>) -> bool,
    ) -> Result<TxMeta, NotWritten> {
        let template = self.template_mut();
        let len = payload.0 as usize;
        let placed = match payload.1 {
            Treatment::Elide => template.emit_elided(bth, ext, len, 0, frame),
            Treatment::Copy | Treatment::Lend => {
                template.emit(bth, ext, len, frame).map(|at| (at, 0))
            }
        };
        finish(template, placed.map_err(|_| NotWritten::NoRoom)?, payload, frame, fill)
    }

    /// As [`Path::write`], without extension headers.
    #[inline(always)]
    pub(crate) fn write_plain(
        &mut self,
        bth: PlainBth,
        payload: (u32, Treatment, &mut Lending),
        frame: &mut [u8],
        fill: impl FnOnce(PayloadMut<'_>) -> bool,
    ) -> Result<TxMeta, NotWritten> {
        let template = self.template_mut();
        let len = payload.0 as usize;
        let kept = if payload.1 == Treatment::Elide { 0 } else { len };
        let placed = template.emit_plain(bth, len, kept, frame);
        finish(template, placed.map_err(|_| NotWritten::NoRoom)?, payload, frame, fill)
    }

    #[inline]
    pub(crate) fn bth(&self, opcode: Opcode, psn: Psn) -> BthRepr {
        BthRepr { pkey: DEFAULT_PKEY, ..BthRepr::new(opcode, self.dest_qpn, psn) }
    }
}

/// Fills in the payload of a frame with headers and computes its ICRC. `placed` are the place of
/// the payload and its elided bytes.
#[inline(always)]
fn finish(
    template: &mut Template,
    placed: (Range<usize>, usize),
    (len, treatment, lending): (u32, Treatment, &mut Lending),
    frame: &mut [u8],
    fill: impl FnOnce(PayloadMut<'_>) -> bool,
) -> Result<TxMeta, NotWritten> {
    let (at, elided) = placed;
    let pad = if elided == 0 { len.wrapping_neg() % 4 } else { 0 };
    let frame_len = at.end + pad as usize + ICRC_BYTES;
    if !fill(lending.place(treatment, &mut frame[at.clone()], len)) {
        return Err(NotWritten::NoPayload);
    }
    match treatment {
        Treatment::Lend => lending.seal(template, (frame, frame_len), at, true),
        Treatment::Copy | Treatment::Elide => template.seal(frame, frame_len),
    }
    Ok(TxMeta { elided_bytes: spanwire_base::u32_from(elided), ..TxMeta::whole(frame_len) })
}
