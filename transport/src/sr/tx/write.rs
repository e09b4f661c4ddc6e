//! The header and payload of a packet.

use super::Tx;
use super::plan::{Contents, PlannedPacket};
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
                let parity = self.parity_header(planned.kind, psn);
                solicited = parity.1;
                (parity.0, parity.2)
            }
            &Contents::Atomic { response_to, original } => {
                let header = SrDataRepr::new(SrKind::AtomicResponse, psn, response_to);
                let (response_to, original) = (Some(response_to), Some(original));
                (SrDataRepr { response_to, original, ..header }, 0)
            }
        };
        header.sent_ps = now.as_ps();
        header.block = planned.position;
        header.source_qpn = self.source_qpn.filter(|_| planned.contents != Contents::Parity);
        Some((header, len, solicited))
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
        let Self { requester, coding, .. } = self;
        let copy = |payload: PayloadMut<'_>| match &planned.contents {
            Contents::Request(segment) => requester.gather(segment, payload, mrs),
            Contents::Read(segment) => segment.fetch(payload, mrs),
            _ => true,
        };
        match coding.as_mut().filter(|_| planned.position.is_some()) {
            Some(coding) => coding.fill(planned, payload, copy),
            None => copy(payload),
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
