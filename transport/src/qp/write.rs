//! Writing of a packet: headers, payload, ICRC.

use super::common::{Common, DEFAULT_PKEY, Shared, Transmit};
use super::path::Path;
use crate::lending::{ICRC_BYTES, Lending, Treatment, clear_icrc};
use crate::payload::PayloadMut;
use spanwire_base::{TxBurst, TxMeta, u32_from};
use spanwire_wire::{BthRepr, ExtHeaders, Opcode, PlainBth, Psn};
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
        Draft::new(placed.map_err(|_| NotWritten::NoRoom)?, len).fill(self, payload, frame, fill)
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
        self.begin(bth, (0, payload.0), payload.1, frame)?.fill(self, payload, frame, fill)
    }

    /// Writes the outer headers and the BTH of a packet with `header_len` bytes of SR's header and
    /// `len` of payload.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        bth: PlainBth,
        (header_len, len): (usize, u32),
        treatment: Treatment,
        frame: &mut [u8],
    ) -> Result<Draft, NotWritten> {
        let total_len = header_len + len as usize;
        let kept = if treatment == Treatment::Elide { header_len } else { total_len };
        let placed = self.template_mut().emit_plain(bth, total_len, kept, frame);
        Ok(Draft::new(placed.map_err(|_| NotWritten::NoRoom)?, total_len))
    }

    #[inline]
    pub(crate) fn bth(&self, opcode: Opcode, psn: Psn) -> BthRepr {
        BthRepr { pkey: DEFAULT_PKEY, ..BthRepr::new(opcode, self.dest_qpn, psn) }
    }
}

/// A packet whose outer headers and BTH are written.
pub(crate) struct Draft {
    /// The place of SR's header and the payload.
    pub(crate) at: Range<usize>,
    frame_len: usize,
    elided_bytes: u32,
}

impl Draft {
    /// `placed` are the place of `len` bytes behind the headers, and the elided ones of them, which
    /// have no pad.
    #[inline(always)]
    fn new(placed: (Range<usize>, usize), len: usize) -> Self {
        let (at, elided) = placed;
        let pad = if elided == 0 { len.wrapping_neg() % 4 } else { 0 };
        Self { frame_len: at.end + pad + ICRC_BYTES, at, elided_bytes: u32_from(elided) }
    }

    #[inline(always)]
    fn fill(
        self,
        path: &mut Path,
        (len, treatment, lending): (u32, Treatment, &mut Lending),
        frame: &mut [u8],
        fill: impl FnOnce(PayloadMut<'_>) -> bool,
    ) -> Result<TxMeta, NotWritten> {
        if !fill(lending.place(treatment, &mut frame[self.at.clone()], len)) {
            return Err(NotWritten::NoPayload);
        }
        Ok(self.seal((path, true), 0, (treatment, lending), frame))
    }

    /// Sets the ICRC of a packet, if packets have one. SR's header of `header_len` bytes and the
    /// payload are written, or the payload is lent.
    #[inline(always)]
    pub(crate) fn seal(
        self,
        (path, has_icrc): (&mut Path, bool),
        header_len: usize,
        (treatment, lending): (Treatment, &mut Lending),
        frame: &mut [u8],
    ) -> TxMeta {
        let Self { at, frame_len, elided_bytes } = self;
        let template = path.template_mut();
        match (treatment, has_icrc) {
            (Treatment::Lend, has_icrc) => {
                let place = at.start + header_len..at.end;
                lending.seal(template, (frame, frame_len), place, has_icrc);
            }
            (Treatment::Copy | Treatment::Elide, true) => template.seal(frame, frame_len),
            (Treatment::Copy | Treatment::Elide, false) => clear_icrc(frame, frame_len),
        }
        TxMeta { elided_bytes, ..TxMeta::whole(frame_len) }
    }
}
