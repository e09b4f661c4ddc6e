//! Middle packets of messages that are expected next. All but their PSN, AckReq and payload is
//! known from the packet before, so they are neither described nor checked step by step.
//!
//! A packet that is not as expected in any way is left, unchanged, to the general functions: this
//! module decides nothing that they would decide otherwise. [`Config::fast_paths`] turns it off,
//! and tests compare frames and completions with and without it.
//!
//! [`Config::fast_paths`]: crate::Config::fast_paths

use super::Rc;
use super::completer::{ResponseOutcome, check_response};
use super::responder::Context;
use crate::payload::{Payload, PayloadMut};
use crate::qp::common::{Common, Shared, Transmit};
use crate::schedule::WindowSpace;
use spanwire_base::{RxMeta, Time};
use spanwire_wire::{Ecn, Known, Opcode, PlainBth};

impl Rc {
    /// Writes the next packet of a request, if it is a middle one, was never sent, and waits for
    /// nothing but the pacer.
    // Not inlined, as Rc::on_middle: the general functions would have to save registers for it.
    #[inline(never)]
    pub(super) fn send_middle(
        &mut self,
        qp: &mut Common,
        now: Time,
        space: WindowSpace,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Option<Transmit> {
        if !qp.state.sends() || self.loss.is_rnr_waiting() {
            return None;
        }
        let middle = self.requester.next_middle(&self.allowance(qp, space, sh.config))?;
        if let Some(at) = qp.paced_until(now) {
            return Some(Transmit::Paced(at));
        }
        let mtu = qp.mtu.bytes();
        let treatment = sh.lending.treatment(mtu, sh.config.elide_payload, true);
        let bth = PlainBth::new(middle.opcode, self.path.dest_qpn, middle.psn);
        let bth = PlainBth { ack_req: middle.ack_req, ..bth };
        let (requester, mrs) = (&mut self.requester, (qp.pd, &*sh.mrs));
        let fill = |payload: PayloadMut<'_>| requester.gather_middle(&middle, payload, mrs);
        let mut meta = self.path.write_plain(bth, (mtu, treatment), frame, fill).ok()?;
        let number = self.requester.snd_nxt();
        qp.on_path_sent(now, (number, mtu, true), &mut meta);
        self.requester.advance_middle(&middle);
        self.loss.on_sent(now);
        let is_timed = middle.ack_req && self.rtt.on_sent(now, number);
        self.report_middle(qp, now, &meta, is_timed);
        Some(qp.sent(meta, mtu, sh))
    }

    /// Handles a packet, if it is a middle one and the expected one, and has no fault; its ICRC
    /// need not be right unless `must_verify`. False, and nothing has changed, for any other
    /// packet.
    #[inline(never)]
    pub(crate) fn on_middle(
        &mut self,
        qp: &mut Common,
        now: Time,
        (known, must_verify): (&Known<'_, '_>, bool),
        arrival: &RxMeta,
        sh: &mut Shared<'_>,
    ) -> bool {
        let (Some(middle), ip) = (known.middle(), known.ip()) else { return false };
        if !self.path.matches(ip) || ip.ecn() == Ecn::Ce {
            return false;
        }
        let is_valid = || !must_verify || known.is_right();
        let payload = Payload::of_middle(&middle);
        let is_handled = match middle.opcode {
            Opcode::RcReadResponseMiddle => {
                let bytes = payload.len();
                let outcome = check_response(&self.requester, middle.psn, bytes, qp.mtu);
                let is_next = matches!(outcome, ResponseOutcome::Place { .. });
                if !is_next || !qp.state.sends() || !is_valid() {
                    return false;
                }
                qp.arrival = *arrival;
                self.on_response(qp, now, outcome, payload, sh).is_ok()
            }
            _ if !qp.state.receives() || !qp.is_established => false,
            _ => {
                let context = &mut Context::new(qp, sh);
                match self.responder.on_middle(&middle, payload, context, is_valid) {
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
