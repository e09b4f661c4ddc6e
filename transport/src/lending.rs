//! Payload that is not copied into its frame, because the port sends it from where it is.
//!
//! Memory may change until the port has sent it; the packet's ICRC is then wrong, and the peer
//! discards it. A retransmission is therefore copied, as are the source packets of a block: the
//! encoder's sum and the packet must be of the same bytes.

use crate::payload::PayloadMut;
use spanwire_base::LentPayload;
use spanwire_mem::Lent;
use spanwire_wire::Template;
use std::ops::Range;

/// The loan of the packet that is being written.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    /// The caller takes a loan.
    is_possible: bool,
    lent: Option<Lent>,
    /// The offset in its frame of what is lent.
    at: usize,
    scratch: Box<[u8]>,
}

/// The treatment of a packet's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Treatment {
    Copy,
    Elide,
    Lend,
}

impl Lending {
    /// Makes a loan possible until [`Lending::end`].
    pub(crate) fn begin(&mut self) {
        if self.scratch.is_empty() {
            self.scratch = vec![0; SCRATCH_BYTES].into();
        }
        (self.is_possible, self.lent) = (true, None);
    }

    /// Makes loans impossible again. Returns the loan of the packet that was written, if any.
    #[inline]
    pub(crate) fn end(&mut self) -> Option<LentPayload> {
        let was_possible = std::mem::take(&mut self.is_possible);
        let bytes = if was_possible { self.lent.take()? } else { return None };
        Some(LentPayload { at: self.at, bytes })
    }

    /// The treatment of a payload of `len` bytes.
    #[inline]
    pub(crate) fn treatment(&self, len: u32, elide: bool, may_lend: bool) -> Treatment {
        if elide && len > 0 {
            return Treatment::Elide;
        }
        match self.is_possible && may_lend && len >= LENT_BYTES_MIN {
            true => Treatment::Lend,
            false => Treatment::Copy,
        }
    }

    /// The destination of a payload of `len` bytes with this place in its frame.
    #[inline(always)]
    pub(crate) fn place<'a>(
        &'a mut self,
        treatment: Treatment,
        place: &'a mut [u8],
        len: u32,
    ) -> PayloadMut<'a> {
        match treatment {
            Treatment::Copy => PayloadMut::Bytes(place),
            Treatment::Elide => PayloadMut::Elided(len),
            Treatment::Lend => {
                self.lent = None;
                PayloadMut::Lendable(place, &mut self.lent)
            }
        }
    }

    /// Finishes a frame of `len` bytes of `template` whose payload at `place` is lent, or was
    /// copied, after [`Lending::place`] for [`Treatment::Lend`].
    pub(crate) fn seal(
        &mut self,
        template: &mut Template,
        (frame, len): (&mut [u8], usize),
        place: Range<usize>,
        has_icrc: bool,
    ) {
        self.at = place.start;
        match &self.lent {
            _ if !has_icrc => clear_icrc(frame, len),
            Some(bytes) => {
                let scratch = &mut self.scratch;
                template.seal_around(frame, len, place, |each| bytes.copies(scratch, each));
            }
            None => template.seal(frame, len),
        }
    }
}

/// Finishes a frame of `len` bytes that has no ICRC by agreement.
pub(crate) fn clear_icrc(frame: &mut [u8], len: usize) {
    frame[len - ICRC_BYTES..len].fill(0);
}

pub(crate) const ICRC_BYTES: usize = 4;
/// Fewer bytes are copied: a loan costs about as much as copying them.
const LENT_BYTES_MIN: u32 = 512;
/// A part of a payload in the cache nearest to the processor.
const SCRATCH_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fate, LATENCY, Op, Pair, PairConfig, in_both_modes};
    use crate::{DropReason, ErasureCoding, Mtu, SrOptions, WcStatus};
    use spanwire_base::Dur;
    use std::cell::RefCell;
    use std::rc::Rc;

    const LONG: usize = 5_000;

    /// The frames of both ends, in order, of a WRITE and a READ with messages that lend and ones
    /// that are too short; and the bytes that were lent.
    fn frames(config: &PairConfig, lends: bool) -> (Vec<Vec<u8>>, usize) {
        let mut p = Pair::with(config);
        p.lends = lends;
        let sent = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&sent);
        p.edit = Box::new(move |_, frame| log.borrow_mut().push(frame.clone()));
        let written = p.ends[0].fill(0, LONG, 1);
        let read = p.ends[1].fill(8_192, LONG, 2);
        p.post(0, 1, Op::Write, 0, LONG);
        p.post(0, 2, Op::Write, 0, 100);
        p.post(0, 3, Op::Read, 8_192, LONG);
        assert!(p.run(Dur::from_secs(1)));
        assert!(p.ends[0].wcs.iter().all(|wc| wc.status == WcStatus::Success));
        assert_eq!(p.ends[1].bytes(0, LONG), written);
        assert_eq!(p.ends[0].bytes(8_192, LONG), read);
        (sent.take(), p.lent_bytes)
    }

    #[test]
    fn lending__frames_are_those_with_copied_payload() {
        in_both_modes(|mode| {
            let config = PairConfig { mtu: Mtu::B1024, ..PairConfig::default() };
            let (copied, none) = frames(&config, false);
            let (lent, bytes) = frames(&config, true);
            assert_eq!(none, 0);
            // The last packet of a message may be too short.
            assert!((2 * LONG - 2_048..=2 * LONG).contains(&bytes), "{mode:?}: {bytes}");
            assert_eq!(copied, lent, "{mode:?}");
        });
    }

    #[test]
    fn lending__without_an_icrc_its_bytes_are_zero_and_are_not_looked_at() {
        let options = SrOptions { icrc: false, ..SrOptions::default() };
        let config = PairConfig { mtu: Mtu::B1024, options, ..PairConfig::sr() };
        let (copied, _) = frames(&config, false);
        let (lent, bytes) = frames(&config, true);
        assert!(bytes > LONG && copied == lent);
        assert!(copied.iter().all(|frame| frame.ends_with(&[0; 4])));
        // One end that does not know discards such packets.
        let mut p = Pair::with(&PairConfig::sr());
        p.edit = Box::new(|_, frame| {
            let len = frame.len();
            clear_icrc(frame, len);
        });
        p.post(0, 1, Op::Write, 0, 1_000);
        p.step(0);
        p.now += LATENCY;
        p.step(1);
        let dropped = DropReason::Wire(spanwire_wire::DropReason::BadIcrc);
        assert!(p.ends[1].ep.counters().dropped(dropped) > 0);
    }

    #[test]
    fn lending__a_retransmission_is_copied() {
        in_both_modes(|mode| {
            let mut p = Pair::with(&PairConfig { mtu: Mtu::B1024, ..PairConfig::default() });
            p.lends = true;
            let mut is_first = true;
            p.filter = Box::new(move |side, _| match side == 0 && std::mem::take(&mut is_first) {
                true => Fate::Drop,
                false => Fate::Pass,
            });
            let wanted = p.ends[0].fill(0, 1_000, 3);
            p.post(0, 1, Op::Write, 0, 1_000);
            assert!(p.run(Dur::from_secs(100)));
            assert_eq!(p.ends[1].bytes(0, 1_000), wanted);
            assert_eq!(p.lent_bytes, 1_000, "{mode:?}: once, not twice");
            assert!(p.now.as_ps() > 2 * LATENCY.as_ps());
        });
    }

    #[test]
    fn lending__source_packets_of_a_block_are_copied() {
        let erasure = Some(ErasureCoding::default());
        let coded = PairConfig { mtu: Mtu::B1024, erasure, ..PairConfig::sr() };
        let (frames, bytes) = frames(&coded, true);
        assert!(frames.len() > 10);
        // READ responses of the other end have no blocks unless it codes too.
        assert!(bytes <= LONG, "{bytes}");
    }

    #[test]
    fn treatment__short_payload_is_copied_and_a_simulation_elides_all() {
        let mut lending = Lending::default();
        let of = |l: &mut Lending, len, elide, may| match l.treatment(len, elide, may) {
            Treatment::Copy => 'c',
            Treatment::Elide => 'e',
            Treatment::Lend => 'l',
        };
        assert_eq!(of(&mut lending, 5_000, false, true), 'c', "nobody takes it");
        lending.begin();
        let cases = [
            (5_000, false, true, 'l'),
            (5_000, false, false, 'c'),
            (LENT_BYTES_MIN - 1, false, true, 'c'),
            (5_000, true, true, 'e'),
            (0, true, true, 'c'),
        ];
        for (len, elide, may_lend, expected) in cases {
            assert_eq!(
                of(&mut lending, len, elide, may_lend),
                expected,
                "{len} {elide} {may_lend}"
            );
        }
        assert!(lending.end().is_none());
    }
}
