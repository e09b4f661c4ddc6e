//! The checks for SR: permitted effects of its packets, and its output.

use super::forge::Forged;
use super::incoming::Recovered;
use super::memory::{Plot, Reach};
use super::setup::{LINE_RATE, REORDER_PKTS};
use super::streams::Inside;
use super::world::{Tally, World};
use spanwire_base::{u32_from, u64_from, usize_from};
use spanwire_transport::{Access, QpState};
use spanwire_wire::{
    AtomicEthRepr, BlockRepr, INT_CREDIT_HEADER_LEN, INT_HEADER_LEN, IntStack, OpClass, Packet,
    RethRepr, SrAckRepr, SrDataRepr, SrKind, SrNearRepr,
};

/// The permitted effects of a packet on memory.
#[derive(Default)]
struct Permitted {
    explained: Vec<Reach>,
    /// Recovered bytes, and their destinations.
    written: Vec<(Reach, Vec<u8>)>,
    /// Words that an atomic may have changed after that.
    atomics: Vec<Reach>,
}

impl World {
    /// Checks a packet that was accepted, or not, and its effects on memory.
    pub(super) fn check_sr(&mut self, forged: &Forged, state: QpState, change: [&Tally; 2]) {
        let [before, after] = change;
        let permitted = if after.taken == before.taken {
            Permitted::default()
        } else {
            assert!(forged.is_acceptable, "taken: {:?}", forged.bth);
            match &forged.inside {
                Some(Inside::Data(header, data)) => {
                    let receives = [QpState::Rtr, QpState::Rts, QpState::Sqd];
                    assert!(receives.contains(&state), "{state:?}");
                    self.check_data(header, data, change)
                }
                Some(Inside::Ack(ack)) => {
                    self.check_ack(ack);
                    Permitted::default()
                }
                Some(Inside::Near(near)) => {
                    self.check_near(near);
                    Permitted::default()
                }
                None => {
                    let class = forged.bth.opcode.props().class;
                    assert_eq!(class, OpClass::Notification, "{:?}", forged.bth);
                    Permitted::default()
                }
            }
        };
        self.follow();
        let Permitted { explained, written, atomics } = permitted;
        if let Some(reach) = self.memory.changed_outside(&[explained, atomics.clone()].concat()) {
            panic!("{:?} changed {reach:?}", forged.bth);
        }
        for (reach, bytes) in written {
            let is_as_written = !atomics.iter().any(|atomic| atomic.overlaps(&reach));
            let found = self.memory.bytes(&reach);
            assert!(!is_as_written || found == bytes, "{reach:?} was recovered as {found:x?}");
        }
    }

    /// Updates the expectations from the state of the queue pair.
    fn follow(&mut self) {
        let info = self.ep.query_qp(self.qpn).expect("the queue pair exists");
        // A response whose local memory is gone fails the queue pair as well, and does not count.
        self.streams.has_failed |= info.state == QpState::Err;
        match self.streams.has_failed {
            true => self.streams.may_expect(),
            false => self.streams.expects(info.attr.rq_psn.expect("a receiving state has rq_psn")),
        }
    }

    /// Timers have expired.
    pub(super) fn time_passed(&mut self) {
        if !self.setup.is_sr {
            return;
        }
        self.streams.time_passed();
        self.follow();
    }

    /// The effects that an accepted packet of data or parity permits.
    fn check_data(&mut self, h: &SrDataRepr, data: &[u8], change: [&Tally; 2]) -> Permitted {
        let [before, after] = change;
        self.streams.outgoing.on_received(h.path);
        let number = self.streams.number(h.psn);
        let is_new = self.streams.is_new(number);
        if after.duplicates != before.duplicates {
            if is_new {
                assert!(self.streams.incoming.was_settled(number), "{h:?} is not a duplicate");
                self.streams.arrive(number);
            }
            return Permitted::default();
        }
        assert!(is_new, "{h:?} is a duplicate, or beyond the window");
        let is_parity = h.block.is_some_and(|block| block.is_parity());
        let uses_receive = h.receive.is_some() && !is_parity;
        if after.not_ready != before.not_ready {
            assert!(uses_receive, "{h:?} needs no receive request");
            return Permitted::default();
        }
        let mut permitted = Permitted::default();
        if !is_parity {
            self.check_segment(number, h, u32_from(data.len()), &mut permitted);
        }
        self.streams.has_failed |= after.fatal != before.fatal;
        self.streams.take(number, h, data);
        let recovered = after.recovered - before.recovered;
        if recovered > 0 {
            let place = h.block.expect("only a packet of a block causes recovery");
            self.check_recovered(number, &place, recovered, &mut permitted);
        }
        self.follow();
        permitted.atomics = self.carry_out();
        permitted
    }

    /// The effects that a segment of data permits, received or recovered.
    fn check_segment(&mut self, number: u64, h: &SrDataRepr, len: u32, permitted: &mut Permitted) {
        let explained = &mut permitted.explained;
        match h.kind {
            SrKind::Write => {
                let reach = h.reth.and_then(|reth| self.granted(&reth, len));
                explained.extend(reach);
            }
            SrKind::Send => explained.extend(self.recvs.written()),
            SrKind::ReadResponse | SrKind::AtomicResponse => {
                explained.extend(self.sends.written());
            }
            SrKind::ReadRequest => {
                let dma_len = h.reth.map_or(0, |r| r.dma_len);
                let parts = dma_len.div_ceil(self.streams.segment_bytes).max(1);
                self.streams.responses_left += u64::from(parts);
            }
            SrKind::FetchAdd | SrKind::CmpSwap => self.streams.responses_left += 1,
        }
        self.streams.atomics.extend(h.atomic.map(|a| (number, a)));
        self.streams.invalidations.extend(h.ieth.map(|rkey| (number, (rkey, false))));
    }

    /// The bytes that a segment of a WRITE may change.
    fn granted(&self, reth: &RethRepr, len: u32) -> Option<Reach> {
        let need = Access::REMOTE_WRITE;
        let may = self.setup.access.allows(need) && reth.dma_len == len;
        self.memory.reach(reth.rkey, reth.va, len, need).filter(|_| may)
    }

    /// `count` segments of a block were recovered, the lowest lost ones: all, or those before one
    /// that could not be written to its destination.
    fn check_recovered(
        &mut self,
        number: u64,
        place: &BlockRepr,
        count: u64,
        permitted: &mut Permitted,
    ) {
        let recovered = self.streams.incoming.recover(number, place);
        let all = u64_from(recovered.len());
        assert!(count <= all, "{count} were recovered, but {all} were lost");
        for Recovered { number, header, bytes } in recovered.into_iter().take(usize_from(count)) {
            assert!(self.streams.is_new(number), "{number:#x} was recovered, but had arrived");
            self.check_segment(number, &header, u32_from(bytes.len()), permitted);
            if let Some(reth) = header.reth {
                let reach = self.granted(&reth, u32_from(bytes.len()));
                permitted.written.push((reach.expect("access was granted"), bytes));
            }
            self.streams.incoming.on_recovered(number);
            self.streams.arrive(number);
        }
    }

    /// The changes permitted to atomics that are due, or may be.
    fn carry_out(&mut self) -> Vec<Reach> {
        let (next, due) = (self.streams.next, self.streams.due());
        let may = self.setup.access.allows(Access::REMOTE_ATOMIC);
        let turn = self.streams.atomics.range(..due).map(|(_, a)| a);
        let turn = turn.filter(|a| may && a.va.is_multiple_of(8));
        let reach = |a: &AtomicEthRepr| self.memory.reach(a.rkey, a.va, 8, Access::REMOTE_ATOMIC);
        let explained = turn.filter_map(reach).collect();
        self.streams.atomics = self.streams.atomics.split_off(&next);
        let later = self.streams.invalidations.split_off(&next);
        for (rkey, may_be_done) in
            std::mem::replace(&mut self.streams.invalidations, later).into_values()
        {
            if self.streams.has_failed {
                continue;
            }
            if !may_be_done || self.memory.mr(Plot::Granted).rkey == Some(rkey) {
                self.check_invalidated(rkey);
            }
        }
        for (_, (_, may_be_done)) in self.streams.invalidations.range_mut(..due) {
            *may_be_done = true;
        }
        explained
    }

    /// Checks that an accepted acknowledgement names only packets sent, and no future time, and has
    /// a credit only if that was agreed on.
    fn check_ack(&self, ack: &SrAckRepr<'_>) {
        assert!(ack.credit.is_none() || self.setup.credit, "{ack:?} has a credit");
        let nxt = self.streams.snd_nxt;
        let before_nxt = |psn: u32| nxt.wrapping_sub(psn).cast_signed();
        // Nor packets sent long ago.
        let recent = 0..=(1 << 16) + i32::try_from(REORDER_PKTS).expect("the constant fits");
        // But the rest of an incomplete block may be settled before it has left.
        let left = self.streams.outgoing.left_of_block();
        let named = -left..=*recent.end();
        assert!(named.contains(&before_nxt(ack.next)), "{ack:?} before {nxt}");
        assert!(recent.contains(&(before_nxt(ack.newest) - 1)), "{ack:?} before {nxt}");
        for word in ack.words.as_slice().iter().filter(|w| w.bits != 0) {
            let last = word.base.wrapping_add(63 - word.bits.leading_zeros());
            assert!(before_nxt(last) > -left, "{ack:?} before {nxt}");
        }
        assert!(ack.echo_ps <= self.now.as_ps(), "{ack:?} from the future");
    }

    /// Checks that accepted feedback was requested, and is about the latest transmission of a
    /// packet.
    fn check_near(&self, near: &SrNearRepr<'_>) {
        assert!(self.setup.near, "{near:?} was not requested");
        assert_eq!(self.streams.outgoing.sent_ps(near.psn), Some(near.echo_ps), "{near:?}");
    }

    /// Checks a packet that left while the queue pair was in `state`.
    pub(super) fn check_sr_output(&mut self, packet: &Packet<'_>, state: QpState) {
        match Inside::of(packet) {
            Some(Inside::Data(header, data)) => {
                self.check_data_sent(packet, &header, &data, state);
            }
            Some(Inside::Ack(ack)) => {
                self.streams.outgoing.check_path(packet, ack.path);
                self.check_credit_sent(&ack);
                self.check_ack_sent(&ack);
            }
            Some(Inside::Near(_)) | None => panic!("{:?} never leaves", packet.bth),
        }
    }

    fn check_data_sent(&mut self, p: &Packet<'_>, h: &SrDataRepr, data: &[u8], state: QpState) {
        let len = u32_from(data.len());
        assert!(len <= self.streams.segment_bytes, "{h:?} carries {len} bytes");
        let is_response = h.response_to.is_some();
        let is_parity = h.block.is_some_and(|block| block.is_parity());
        let sends = matches!(state, QpState::Rts | QpState::Sqd);
        let ahead = h.psn.wrapping_sub(self.streams.snd_nxt).cast_signed();
        assert!(ahead <= 0, "{h:?} leaves a gap");
        assert!(sends || is_response && state == QpState::Err, "{h:?} while {state:?}");
        // It may have failed before this packet was written.
        let now = self.ep.query_qp(self.qpn).expect("the queue pair exists").state;
        if now == QpState::Err {
            self.streams.outgoing.failed();
        }
        self.streams.outgoing.check(p, h, data, ahead == 0);
        if ahead == 0 {
            self.streams.snd_nxt = self.streams.snd_nxt.wrapping_add(1);
            if is_response && !is_parity {
                let left = self.streams.responses_left.checked_sub(1);
                self.streams.responses_left = left.expect("a response without a request");
            }
        }
        assert_eq!(h.sent_ps, self.now.as_ps());
        let source_qpn = Some(self.qpn).filter(|_| self.setup.near && !is_parity);
        assert_eq!(h.source_qpn, source_qpn, "{h:?}");
        // Parity has no QPN, so it has no credit either.
        let version = self.setup.int_version().filter(|version| *version == 1 || !is_parity);
        // A packet that leaves no room in a narrow buffer goes without.
        let header = if version == Some(1) { INT_HEADER_LEN } else { INT_CREDIT_HEADER_LEN };
        let version = version.filter(|_| p.trailer.len() + self.streams.room >= header);
        let stack = IntStack::parse(p.trailer);
        assert_eq!(stack.map(|stack| stack.version()), version, "{h:?}");
        assert!(stack.is_none_or(|stack| stack.is_empty()), "{h:?}");
        if h.kind == SrKind::ReadResponse && !is_parity {
            super::output::check_secret(p.payload);
        }
    }

    /// Checks the credit of an acknowledgement that leaves.
    fn check_credit_sent(&mut self, ack: &SrAckRepr<'_>) {
        let Some(credit) = ack.credit else { return };
        let has_loop = self.setup.int_version() == Some(2) && self.streams.is_proven();
        assert!(has_loop, "{ack:?} has a credit");
        let last = self.streams.credit.replace(credit.credit);
        let rounds = last.map_or(1, |last| credit.credit.wrapping_sub(last));
        assert!(rounds < 1 << 31, "{last:?}, then {ack:?}");
        let line_kbps = LINE_RATE.as_bps() / 1000;
        for rate in [credit.rate_kbps, credit.suggested_kbps] {
            assert!(u64::from(rate) <= line_kbps, "{ack:?} exceeds our link");
        }
    }

    fn check_ack_sent(&self, ack: &SrAckRepr<'_>) {
        let streams = &self.streams;
        let next = streams.number(ack.next);
        if !streams.has_failed {
            assert_eq!(ack.next, streams.expected(), "{ack:?}");
            assert_eq!(ack.psn_limit, ack.next.wrapping_add(REORDER_PKTS));
        }
        assert!(next <= streams.next, "{ack:?} is ahead of {:#x}", streams.next);
        for word in ack.words.as_slice() {
            let base = streams.number(word.base);
            for number in (0..64).filter(|i| word.bits >> i & 1 != 0).map(|i| base + i) {
                let has = streams.has(number) || streams.incoming.may_be_settled(number);
                assert!(has, "{ack:?} reports {number:#x}");
            }
        }
        for report in ack.blocks.as_slice() {
            let first = streams.number(report.first);
            streams.incoming.check_report(report, first, |number| streams.has(number));
        }
    }
}
