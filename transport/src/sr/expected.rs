//! Packets of SR that are expected next: received ones whose outer headers, partition key and form
//! of SR's header are those of nearly all packets, and middle packets of requests to send. They are
//! neither described nor checked one by one.
//!
//! A packet that is not as expected in any way is left, unchanged, to the general functions: this
//! module decides nothing that they would decide otherwise. [`Config::fast_paths`] turns it off,
//! and tests compare frames and completions with and without it.
//!
//! [`Config::fast_paths`]: crate::Config::fast_paths

use super::Sr;
use super::number::wrap;
use super::rx::ack::Outer;
use super::rx::responder::ReceivedPacket;
use super::send::write_data;
use super::tx::plan::Segment;
use super::tx::requester::Middle;
use crate::payload::{Payload, PayloadMut};
use crate::qp::common::{Common, Shared, Transmit};
use crate::schedule::WindowSpace;
use spanwire_base::{RxMeta, Time, TxBurst, TxMeta, u32_from, u64_from, usize_from};
use spanwire_wire::{Known, Opcode, PlainBth, Psn, SrMiddleRepr};

impl Sr {
    /// Writes the next packet of a request, if it is a middle one, was never sent, and waits for
    /// nothing but the pacer.
    // Not inlined, as Sr::on_expected.
    #[inline(never)]
    pub(super) fn send_middle(
        &mut self,
        qp: &mut Common,
        now: Time,
        space: WindowSpace,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Option<Transmit> {
        if !sh.config.fast_paths || !self.tx.is_at_middle() {
            return None;
        }
        let limits = self.limits(qp, space, sh);
        let (middle, number, ack_req) = self.tx.next_middle(&limits)?;
        let paced_until = qp.paced_until(now);
        self.tx.set_paced(paced_until.is_some());
        if let Some(at) = paced_until {
            return Some(Transmit::Paced(at));
        }
        let meta = self.write_middle(qp, now, (&middle, number, ack_req), frame, sh)?;
        Some(qp.sent(meta, middle.segment.len, sh))
    }

    /// Writes packets as [`Sr::send_middle`] would in a row, until they are `turn_bytes` or more.
    /// Returns their bytes as frames.
    pub(crate) fn send_middles(
        &mut self,
        qp: &mut Common,
        (now, turn_bytes): (Time, i64),
        mut space: WindowSpace,
        burst: &mut dyn TxBurst,
        sh: &mut Shared<'_>,
    ) -> u32 {
        if !self.tx.is_at_middle() {
            return 0;
        }
        if let Some(path_mtu) = &qp.path_mtu {
            self.tx.limit_segments(path_mtu.segment_bytes(now));
        }
        let (lends, mut frames_bytes) = (burst.lends(), 0);
        let mut limits = self.limits(qp, space, sh);
        while i64::from(frames_bytes) < turn_bytes {
            let Some((middle, number, ack_req)) = self.tx.next_middle(&limits) else { break };
            self.tx.set_paced(false);
            if qp.paced_until(now).is_some() {
                break;
            }
            let Some(frame) = burst.buffer() else { break };
            if lends {
                sh.lending.begin();
            }
            let written = self.write_middle(qp, now, (&middle, number, ack_req), frame, sh);
            let lent = if lends { sh.lending.end() } else { None };
            let Some(meta) = written else { break };
            burst.commit(meta, lent);
            qp.sent(meta, middle.segment.len, sh);
            frames_bytes += u32_from(meta.len) + meta.elided_bytes;
            space.pkts = space.pkts.saturating_sub(1);
            match qp.flow {
                None => limits.space_pkts = space.pkts,
                // The window in packets depends on the bytes in flight.
                Some(_) => limits = self.limits(qp, space, sh),
            }
        }
        frames_bytes
    }

    #[inline]
    fn write_middle(
        &mut self,
        qp: &mut Common,
        now: Time,
        (middle, number, ack_req): (&Middle, u64, bool),
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Option<TxMeta> {
        let (psn, path, len) = (wrap(number), self.rx.ack.echoed_path(), middle.segment.len);
        let bth = PlainBth::new(Opcode::SrData, self.path.dest_qpn, Psn::new(psn & Psn::MASK));
        let Segment { message, offset, .. } = middle.segment;
        let sent_ps = now.as_ps();
        let header = SrMiddleRepr { psn, path, sent_ps, message, offset, part: middle.part };
        let (requester, mrs) = (&mut self.tx.requester, (qp.pd, &*sh.mrs));
        let fill = |payload: PayloadMut<'_>| {
            requester.gather_middle(middle, payload, mrs).then_some(false)
        };
        let treatment = sh.lending.treatment(len, sh.config.elide_payload, true);
        let written = write_data(
            (&mut self.path, qp.has_icrc),
            PlainBth { ack_req, ..bth },
            (header.header_len(), path, |_, out: &mut [u8]| header.emit(out)),
            (len, treatment),
            frame,
            fill,
        );
        let mut meta = written.ok()?;
        let frame_bytes = meta.len + usize_from(meta.elided_bytes.into());
        qp.on_path_sent(now, (number, len, true), &mut meta);
        self.tx.on_middle_sent(now, middle, path, frame_bytes, qp.flow.as_deref_mut());
        Some(meta)
    }

    /// Handles a packet, if it is a usual one, the expected one, and has no fault; its ICRC need
    /// not be right unless `must_verify`. False, and nothing has changed, for any other packet.
    // Not inlined: the general functions would have to save registers for it.
    #[inline(never)]
    pub(crate) fn on_expected(
        &mut self,
        qp: &mut Common,
        now: Time,
        (known, must_verify): (&Known<'_, '_>, bool),
        arrival: &RxMeta,
        sh: &mut Shared<'_>,
    ) -> bool {
        let Some(usual) = known.usual_sr_data() else { return false };
        let Some(number) = self.rx.received.expected(usual.header.psn) else { return false };
        if !qp.state.receives() || must_verify && !known.is_right() {
            return false;
        }
        qp.arrival = *arrival;
        let outer = Outer {
            ip_bytes: u64_from(usual.ip_bytes),
            is_ce: known.is_ce(),
            hop_limit: known.ip().hop_limit(),
            ack_req: usual.ack_req,
            trailer: usual.trailer,
        };
        self.rx.on_ip_bytes(outer.ip_bytes);
        let data = match usual.elided_bytes {
            0 => Payload::Bytes(usual.payload),
            n => Payload::Elided(u32_from(n + usual.payload.len())),
        };
        let (header, solicited) = (&usual.header, usual.solicited);
        let arrived = ReceivedPacket { number, in_order: true, header, data, solicited };
        let accepted = self.on_missing(qp, now, &arrived, &outer, sh);
        self.count(now, accepted.map(|()| data.len()), outer.is_ce, sh);
        true
    }
}
