//! Packets of SR that are expected next: received ones whose outer headers, partition key and form
//! of SR's header are those of nearly all packets, and plain packets to send. They are
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
use super::rx::responder::Context;
use super::send::set_path;
use super::tx::plan::Plain;
use crate::payload::Payload;
use crate::qp::common::{Common, Shared, Transmit};
use crate::schedule::WindowSpace;
use spanwire_base::{RxMeta, Time, TxBurst, TxMeta, u32_from, u64_from, usize_from};
use spanwire_wire::{Known, Opcode, PlainBth, Psn, SrKind, SrUsualPart, SrUsualRepr};

impl Sr {
    /// Writes the next packet after [`Tx::is_at_plain`], if it is a plain one that waits for
    /// nothing but the pacer.
    ///
    /// [`Tx::is_at_plain`]: super::tx::Tx::is_at_plain
    // Not inlined, as Sr::on_expected.
    #[inline(never)]
    pub(super) fn send_plain(
        &mut self,
        qp: &mut Common,
        now: Time,
        space: WindowSpace,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Option<Transmit> {
        let limits = self.limits(qp, space, sh);
        let (plain, number, ack_req) = self.tx.next_plain(&limits)?;
        let paced_until = qp.paced_until(now);
        self.tx.set_paced(paced_until.is_some());
        if let Some(at) = paced_until {
            return Some(Transmit::Paced(at));
        }
        let meta = self.write_plain(qp, now, (&plain, number, ack_req), frame, sh)?;
        Some(qp.sent(meta, plain.len, sh))
    }

    /// Writes packets as [`Sr::send_plain`] would in a row, until they are `turn_bytes` or more.
    /// Returns their bytes as frames.
    pub(crate) fn send_run(
        &mut self,
        qp: &mut Common,
        (now, turn_bytes): (Time, i64),
        mut space: WindowSpace,
        burst: &mut dyn TxBurst,
        sh: &mut Shared,
    ) -> u32 {
        if !self.tx.is_at_plain() {
            return 0;
        }
        let (mut frames_bytes, mut limits) = (0, self.limits(qp, space, sh));
        while i64::from(frames_bytes) < turn_bytes {
            if let Some(path_mtu) = &qp.path_mtu {
                self.tx.limit_segments(path_mtu.segment_bytes(now));
            }
            let Some((plain, number, ack_req)) = self.tx.next_plain(&limits) else { break };
            self.tx.set_paced(false);
            if qp.paced_until(now).is_some() {
                break;
            }
            let Some(frame) = sh.begin(burst) else { break };
            let written = self.write_plain(qp, now, (&plain, number, ack_req), frame, sh);
            let Some(meta) = sh.commit(burst, written) else { break };
            qp.sent(meta, plain.len, sh);
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

    #[inline(always)]
    fn write_plain(
        &mut self,
        qp: &mut Common,
        now: Time,
        (plain, number, ack_req): (&Plain, u64, bool),
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Option<TxMeta> {
        let (psn, path, len) = (wrap(number), self.rx.ack.echoed_path(), plain.len);
        let bth = PlainBth::new(Opcode::SrData, self.path.dest_qpn, Psn::new(psn & Psn::MASK));
        let bth = PlainBth { ack_req, solicited: plain.solicited, ..bth };
        let &Plain { message, offset, part, is_last: last, .. } = plain;
        let (sent_ps, first) = (now.as_ps(), offset == 0);
        let header = SrUsualRepr { psn, first, last, path, sent_ps, message, offset, part };
        let header_len = header.header_len();
        let treatment = sh.lending.treatment(len, sh.config.elide_payload, true);
        let draft = self.path.begin(bth, (header_len, len), treatment, frame).ok()?;
        let (head, data) = frame[draft.at.clone()].split_at_mut(header_len);
        if !self.tx.fill_plain(plain, sh.lending.place(treatment, data, len), (qp.pd, &sh.mrs)) {
            return None;
        }
        header.emit(head).ok()?;
        set_path(self.path.template(), frame, path);
        let (sealed, lending) = ((&mut self.path, qp.has_icrc), &mut sh.lending);
        let mut meta = draft.seal(sealed, header_len, (treatment, lending), frame);
        let frame_bytes = meta.len + usize_from(meta.elided_bytes.into());
        qp.on_path_sent(now, (number, len, true), &mut meta);
        let (sent, flow) = ((number, len), qp.flow.as_deref_mut());
        let state = self.tx.on_new_sent(now, &plain.contents, sent, frame_bytes, flow);
        self.tx.sent.push(now, plain.contents, len, path, state);
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
        sh: &mut Shared,
    ) -> bool {
        let Some(usual) = known.usual_sr_data() else { return false };
        let header = &usual.header;
        let Some(number) = self.rx.received.expected(header.psn) else { return false };
        if !qp.state.receives() || self.rx.credit_loop.is_some() || must_verify && !known.is_right()
        {
            return false;
        }
        let data = match usual.elided_bytes {
            0 => Payload::Bytes(usual.payload),
            n => Payload::Elided(u32_from(n + usual.payload.len())),
        };
        let mut message = None;
        let is_placed = match header.part {
            SrUsualPart::Write(reth) => {
                let context = Context::new(qp, sh);
                self.rx.responder.write(&reth, header.offset, data, &context).is_ok()
            }
            SrUsualPart::Send(receive) => {
                let part = (receive, header.offset, header.last, usual.solicited);
                let done = self.rx.responder.on_send(part, data, &mut Context::new(qp, sh));
                message = done.flatten();
                done.is_some()
            }
            SrUsualPart::ReadResponse(message) => {
                let of = (message, SrKind::ReadResponse);
                let range = (header.offset, data.len(), header.last);
                let mrs = (qp.pd, &sh.mrs);
                matches!(self.tx.requester.place_response(of, range, data, mrs), Ok(Ok(())))
            }
        };
        if !is_placed {
            return false;
        }
        qp.arrival = *arrival;
        qp.on_request_arrived(&mut sh.events);
        let outer = Outer {
            ip_bytes: u64_from(usual.ip_bytes),
            is_ce: known.is_ce(),
            hop_limit: known.ip().hop_limit(),
            ack_req: usual.ack_req,
            trailer: usual.trailer,
        };
        let echoed = (header.psn, header.path, header.sent_ps);
        let rx = &mut self.rx;
        rx.on_ip_bytes(outer.ip_bytes);
        rx.received.insert_next();
        rx.ack.on_data((now, *arrival), &outer, echoed, false, self.tx.ack_delay());
        rx.ack.track_ack_req(number, outer.ack_req, rx.received.data_next());
        match (header.part, &message) {
            (_, Some(message)) => self.deliver(qp, number, message, sh),
            (SrUsualPart::Write(_), _) => sh.counters.rx_messages += u64::from(header.last),
            (SrUsualPart::Send(_), _) => {}
            (SrUsualPart::ReadResponse(_), _) => self.after_response(qp, now, sh),
        }
        self.count(now, Ok(data.len()), outer.is_ce, sh);
        true
    }
}
