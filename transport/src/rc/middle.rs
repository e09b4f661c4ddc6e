//! Plain packets that are expected next: middle ones of messages, and the only one of a SEND. All
//! but their PSN, AckReq and payload is known from the packet before, so they are neither described
//! nor checked step by step. `ONLY` is true for the only packet of a SEND.
//!
//! A packet that is not as expected in any way is left, unchanged, to the general functions: this
//! module decides nothing that they would decide otherwise. [`Config::fast_paths`] turns it off,
//! and tests compare frames and completions with and without it.
//!
//! [`Config::fast_paths`]: crate::Config::fast_paths

use super::requester::Allowance;
use super::requester::middle::NextPlain;
use super::responder::Context;
use super::{RESPONSES_IN_A_ROW_MAX, Rc};
use crate::payload::Payload;
use crate::qp::common::{Common, Shared, Transmit};
use crate::schedule::WindowSpace;
use spanwire_base::{RxMeta, Time, TxBurst, TxMeta, u32_from};
use spanwire_wire::{Known, Opcode, PlainBth};

impl Rc {
    /// Writes the next packet of a request, if it is a plain one, was never sent, and waits for
    /// nothing but the pacer.
    // Not inlined, as Rc::on_plain: the general functions would have to save registers for it.
    #[inline(never)]
    pub(super) fn send_plain<const ONLY: bool>(
        &mut self,
        qp: &mut Common,
        now: Time,
        space: WindowSpace,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Option<Transmit> {
        if !qp.state.sends() || self.loss.is_rnr_waiting() {
            return None;
        }
        let plain = self.requester.next_plain::<ONLY>(&self.allowance(qp, space, &sh.config))?;
        if let Some(at) = qp.paced_until(now) {
            return Some(Transmit::Paced(at));
        }
        let meta = self.write_expected::<ONLY>(qp, now, &plain, frame, sh)?;
        Some(qp.sent(meta, plain.len, sh))
    }

    /// The next packet may be one that [`Rc::send_run`] writes.
    #[inline]
    pub(crate) fn is_at_run(&self) -> bool {
        match self.responder.resources.is_idle() {
            true => self.requester.is_at_only().is_some(),
            false => self.responder.resources.is_at_middle(),
        }
    }

    /// Writes plain packets in a row, as [`Rc::poll_transmit`] would, until they are `turn_bytes`
    /// or more. Returns their bytes as frames.
    pub(crate) fn send_run(
        &mut self,
        qp: &mut Common,
        (now, turn_bytes): (Time, i64),
        space: WindowSpace,
        burst: &mut dyn TxBurst,
        sh: &mut Shared,
    ) -> u32 {
        if !self.responder.resources.is_idle() {
            return self.send_responses(qp, turn_bytes, burst, sh);
        }
        if !qp.state.sends() || self.loss.is_rnr_waiting() {
            return 0;
        }
        let (mut frames_bytes, mut may) = (0, self.allowance(qp, space, &sh.config));
        // The space without the packets of this queue pair that an AckReq covers from then on.
        let covered = u32::try_from(self.requester.no_ack_req_pkts()).ok();
        let covered = covered.and_then(|pkts| space.no_ack_req_pkts.checked_add(pkts));
        let covered = covered.filter(|_| space.no_ack_req_pkts > 0);
        while i64::from(frames_bytes) < turn_bytes
            && let Some(is_only) = self.requester.is_at_only()
        {
            let written = match is_only {
                false => self.send_next::<false>(qp, now, &may, burst, sh),
                true => self.send_next::<true>(qp, now, &may, burst, sh),
            };
            let Some((bytes, ack_req)) = written else { break };
            frames_bytes += bytes;
            may.qp_pkts = may.qp_pkts.saturating_sub(1);
            may.endpoint_pkts = may.endpoint_pkts.saturating_sub(1);
            may.no_ack_req_pkts = match (ack_req, covered) {
                (false, _) => may.no_ack_req_pkts.saturating_sub(1),
                (true, Some(space)) => space,
                (true, None) => break,
            };
        }
        frames_bytes
    }

    /// Writes the next packet of a run. Returns its bytes as a frame and whether it has AckReq.
    #[inline(always)]
    fn send_next<const ONLY: bool>(
        &mut self,
        qp: &mut Common,
        now: Time,
        may: &Allowance,
        burst: &mut dyn TxBurst,
        sh: &mut Shared,
    ) -> Option<(u32, bool)> {
        let plain = self.requester.next_plain::<ONLY>(may)?;
        if qp.paced_until(now).is_some() {
            return None;
        }
        let frame = sh.begin(burst)?;
        let written = self.write_expected::<ONLY>(qp, now, &plain, frame, sh);
        let meta = sh.commit(burst, written)?;
        qp.sent(meta, plain.len, sh);
        Some((u32_from(meta.len) + meta.elided_bytes, plain.ack_req))
    }

    fn send_responses(
        &mut self,
        qp: &Common,
        turn_bytes: i64,
        burst: &mut dyn TxBurst,
        sh: &mut Shared,
    ) -> u32 {
        let mut frames_bytes = 0;
        while i64::from(frames_bytes) < turn_bytes
            && self.responses_in_a_row < RESPONSES_IN_A_ROW_MAX
            && let Some(response) = self.responder.resources.next(qp.mtu)
            && response.opcode == Opcode::RcReadResponseMiddle
        {
            let Some(frame) = sh.begin(burst) else { break };
            let written = self.write_response_middle(qp, &response, frame, sh).ok();
            let Some(meta) = sh.commit(burst, written) else { break };
            self.responder.resources.advance(qp.mtu);
            self.responses_in_a_row += 1;
            qp.sent(meta, qp.mtu.bytes(), sh);
            frames_bytes += u32_from(meta.len) + meta.elided_bytes;
        }
        frames_bytes
    }

    #[inline(always)]
    fn write_expected<const ONLY: bool>(
        &mut self,
        qp: &mut Common,
        now: Time,
        plain: &NextPlain,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Option<TxMeta> {
        let len = plain.len;
        let treatment = sh.lending.treatment(len, sh.config.elide_payload, true);
        let (ack_req, solicited) = (plain.ack_req, plain.solicited);
        let bth = PlainBth::new(plain.opcode, self.path.dest_qpn, plain.psn);
        let bth = PlainBth { ack_req, solicited, ..bth };
        let draft = self.path.begin(bth, (0, len), treatment, frame).ok()?;
        let payload = sh.lending.place(treatment, &mut frame[draft.at.clone()], len);
        if !self.requester.gather_plain::<ONLY>(plain, payload, (qp.pd, &sh.mrs)) {
            return None;
        }
        let sealed = (&mut self.path, true);
        let mut meta = draft.seal(sealed, 0, (treatment, &mut sh.lending), frame);
        let number = self.requester.snd_nxt();
        qp.on_path_sent(now, (number, len, true), &mut meta);
        self.requester.advance_plain::<ONLY>(plain);
        self.loss.on_sent(now);
        let is_timed = ack_req && self.rtt.on_sent(now, number);
        self.report_plain(qp, now, len, &meta, is_timed);
        Some(meta)
    }

    /// Handles a packet, if it is a plain one and the expected one, and has no fault; its ICRC need
    /// not be right unless `must_verify`. False, and nothing has changed, for any other packet.
    #[inline(never)]
    pub(crate) fn on_plain<const ONLY: bool>(
        &mut self,
        qp: &mut Common,
        now: Time,
        (known, must_verify): (&Known<'_, '_>, bool),
        arrival: &RxMeta,
        sh: &mut Shared,
    ) -> bool {
        let Some(plain) = known.plain_rc(ONLY).filter(|_| !known.is_ce()) else { return false };
        let is_valid = || !must_verify || known.is_right();
        let payload = Payload::of_plain(&plain);
        let is_handled = match plain.opcode {
            Opcode::RcReadResponseMiddle if !ONLY => {
                let bytes = payload.len();
                let offset = self.requester.expected_response(plain.psn, bytes, qp.mtu);
                let Some(offset) = offset.filter(|_| qp.state.sends() && is_valid()) else {
                    return false;
                };
                if !self.requester.scatter(0, offset, payload, (qp.pd, &sh.mrs)) {
                    return false;
                }
                qp.arrival = *arrival;
                self.acknowledge(qp, now, self.requester.snd_una() + 1, sh);
                true
            }
            _ if !qp.state.receives() || !qp.is_established => false,
            _ if ONLY => {
                let context = &mut Context::new(qp, sh);
                match self.responder.on_only(&plain, payload, context, is_valid) {
                    Some((reply, message)) => {
                        qp.arrival = *arrival;
                        self.on_done(qp, plain.psn, (reply, Some(message)), sh);
                        true
                    }
                    None => false,
                }
            }
            _ => {
                let context = &mut Context::new(qp, sh);
                match self.responder.on_middle(&plain, payload, context, is_valid) {
                    Some(reply) => {
                        reply.into_iter().for_each(|ack| self.acks.schedule(ack));
                        qp.arrival = *arrival;
                        true
                    }
                    None => false,
                }
            }
        };
        if is_handled {
            sh.counters.rx_packets += 1;
            sh.counters.rx_payload_bytes += u64::from(payload.len());
        }
        is_handled
    }
}
