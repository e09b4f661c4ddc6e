//! The header and payload of a packet.

use super::Tx;
use super::plan::{Contents, PlannedPacket, ReadSegment, Segment, TransmissionKind};
use super::requester::Requester;
use crate::drop::DropReason;
use crate::mr::{MrTable, PdId};
use crate::payload::{Payload, PayloadMut};
use crate::sr::number::wrap;
use spanwire_base::Time;
use spanwire_wire::{SrDataRepr, SrKind};

impl Tx {
    /// The header of a packet, its payload bytes, and whether it is solicited.
    #[inline]
    pub(in crate::sr) fn header(
        &self,
        now: Time,
        planned: &PlannedPacket,
    ) -> Option<(SrDataRepr, u32, bool)> {
        let psn = wrap(planned.number);
        let mut solicited = false;
        let (mut header, len) = match &planned.contents {
            Contents::Request(segment) => {
                let header = self.requester.header(segment, psn)?;
                let carries = matches!(header.kind, SrKind::Send | SrKind::Write);
                solicited = self.requester.is_solicited(segment);
                (header, if carries { segment.len } else { 0 })
            }
            Contents::Read(segment) => (segment.header(psn), segment.len),
            Contents::Parity => {
                let new = planned.kind == TransmissionKind::First;
                let encoder = self.encoder.as_ref().filter(|_| new);
                match encoder.and_then(|encoder| encoder.parity_header(psn)) {
                    Some((header, is_solicited, len)) => {
                        solicited = is_solicited;
                        (header, len)
                    }
                    // Its payload is not kept: an empty packet completes its number.
                    None => (SrDataRepr::new(SrKind::Send, psn, 0), 0),
                }
            }
            &Contents::Atomic { response_to, original } => {
                let header = SrDataRepr::new(SrKind::AtomicResponse, psn, response_to);
                let (response_to, original) = (Some(response_to), Some(original));
                (SrDataRepr { response_to, original, ..header }, 0)
            }
        };
        header.sent_ps = now.as_ps();
        header.block = planned.position.repr();
        header.source_qpn = self.source_qpn.filter(|_| planned.contents != Contents::Parity);
        Some((header, len, solicited))
    }

    /// Opens the encoder's block, if the packet is the first of one.
    #[inline]
    pub(in crate::sr) fn begin_block_of(&mut self, planned: &PlannedPacket) {
        if planned.kind == TransmissionKind::First && planned.position.begins_block() {
            self.open_block(planned);
        }
    }

    #[inline(never)]
    fn open_block(&mut self, planned: &PlannedPacket) {
        let Some(block) = planned.position.repr() else { return };
        let Some(encoder) = &mut self.encoder else { return };
        let psn = wrap(planned.number);
        let segment_bytes = self.segment_bytes;
        let of = |left: u32| left.min(u32::from(block.data) * segment_bytes);
        match &planned.contents {
            Contents::Request(segment) => {
                let bytes = of(self.requester.remaining_data(segment));
                let block_segment = Segment { len: bytes, ..*segment };
                let solicited = self.requester.is_solicited(&block_segment);
                if let Some(header) = self.requester.header(&block_segment, psn) {
                    encoder.open(block, (header, solicited), bytes, (false, segment_bytes));
                }
            }
            Contents::Read(segment) => {
                let bytes = of(segment.left);
                let block_segment =
                    ReadSegment { len: bytes, last: bytes == segment.left, ..*segment };
                encoder.open(
                    block,
                    (block_segment.header(psn), false),
                    bytes,
                    (true, segment_bytes),
                );
            }
            Contents::Atomic { .. } | Contents::Parity => {}
        }
    }

    /// Copies the payload of a packet; false if its memory is no longer registered. Source packets
    /// of a block are added to its parity.
    #[inline]
    pub(in crate::sr) fn fill(
        &mut self,
        planned: &PlannedPacket,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        let Self { requester, encoder, .. } = self;
        let is_new = planned.kind == TransmissionKind::First;
        let is_parity = planned.contents == Contents::Parity;
        let Some(encoder) = encoder.as_mut().filter(|_| planned.position.is_coded()) else {
            return copy(requester, &planned.contents, payload, mrs);
        };
        match payload {
            PayloadMut::Bytes(out) if is_parity && is_new => encoder.copy_parity(out),
            PayloadMut::Bytes(out) => {
                let copied = PayloadMut::Bytes(&mut *out);
                let is_there = copy(requester, &planned.contents, copied, mrs);
                encoder.on_filled(out, is_new);
                is_there
            }
            payload => {
                encoder.on_filled(&[], false);
                copy(requester, &planned.contents, payload, mrs)
            }
        }
    }

    /// Whether the packet whose payload was filled in last is marked as a retransmission: its
    /// payload may differ from that of the first transmission.
    #[inline]
    pub(in crate::sr) fn is_marked(&mut self, planned: &PlannedPacket) -> bool {
        match planned.kind {
            TransmissionKind::First => false,
            TransmissionKind::Retransmission if planned.position.is_coded() => {
                let digest = self.encoder.as_ref().and_then(|encoder| encoder.digest());
                !self.sent.repeats(planned.number, digest)
            }
            TransmissionKind::Retransmission | TransmissionKind::Probe => true,
        }
    }

    /// Places a response, as [`Requester::place_response`].
    ///
    /// # Errors
    /// As there.
    pub(in crate::sr) fn place_response(
        &mut self,
        header: &SrDataRepr,
        data: Payload<'_>,
        mrs: (PdId, &MrTable),
    ) -> Result<Result<(), u32>, DropReason> {
        let message = header.response_to.ok_or(DropReason::ResponseToNothing)?;
        let range = (header.offset, data.len(), header.last);
        // Verbs deliver the word of an atomic in host byte order.
        let word = header.original.unwrap_or_default().to_ne_bytes();
        let data = match header.kind {
            SrKind::AtomicResponse => Payload::Bytes(&word),
            _ => data,
        };
        self.requester.place_response((message, header.kind), range, data, mrs)
    }
}

/// Copies a packet's contents; false if their memory is no longer registered.
#[inline]
fn copy(
    requester: &Requester,
    contents: &Contents,
    payload: PayloadMut<'_>,
    mrs: (PdId, &MrTable),
) -> bool {
    match contents {
        Contents::Request(segment) => requester.gather(segment, payload, mrs),
        Contents::Read(segment) => segment.fetch(payload, mrs),
        Contents::Atomic { .. } | Contents::Parity => true,
    }
}
