//! The same in SRC: what its packets may change, and what it may send.

use super::forge::Forged;
use super::memory::Reach;
use super::setup::REORDER_PKTS;
use super::world::{Tally, World};
use spanwire_base::{u32_from, u64_from};
use spanwire_transport::{Access, QpState};
use spanwire_wire::{AtomicEthRepr, OpClass, Packet, SrcAckRepr, SrcDataRepr, SrcKind};
use std::collections::{BTreeMap, BTreeSet};

/// What is behind the BTH of a packet of SRC, read once more from the frame.
pub(super) enum Inside {
    Data(Box<SrcDataRepr>, u32),
    /// Without its telemetry, which changes nothing that is known here.
    Ack(Box<SrcAckRepr<'static>>),
}

/// Both streams of a connection, as they must be.
pub(super) struct Streams {
    /// The lowest number of the peer's that has not arrived.
    next: u64,
    /// Those above that have.
    ahead: BTreeSet<u64>,
    /// What is done when everything before it has arrived.
    atomics: BTreeMap<u64, AtomicEthRepr>,
    invalidations: BTreeMap<u64, u32>,
    /// The queue pair has failed, by a refusal or by itself: what came last may not count.
    has_refused: bool,
    /// Our next new packet.
    snd_nxt: u32,
    /// Answers that may still leave for the first time.
    answers_left: u64,
    /// Payload of a full packet of ours.
    segment_bytes: u32,
    /// Until it is told to send: bytes that came and were not answered.
    unproven: Option<u64>,
}

impl Inside {
    pub(super) fn of(packet: &Packet<'_>) -> Option<Self> {
        let psn = packet.bth.psn.get();
        match packet.bth.opcode {
            spanwire_wire::Opcode::SrcData => {
                let (header, data) = SrcDataRepr::parse(psn, packet.payload).ok()?;
                Some(Self::Data(Box::new(header), u32_from(data.len())))
            }
            spanwire_wire::Opcode::SrcAck => {
                let ack = SrcAckRepr::parse(psn, packet.payload).ok()?;
                Some(Self::Ack(Box::new(SrcAckRepr { int: &[], ..ack })))
            }
            _ => None,
        }
    }
}

impl Streams {
    pub(super) fn new(rq_psn: u32, sq_psn: u32, segment_bytes: u32) -> Self {
        Self {
            // A turn ahead, so that nothing underflows.
            next: u64::from(rq_psn) + (1 << 32),
            ahead: BTreeSet::new(),
            atomics: BTreeMap::new(),
            invalidations: BTreeMap::new(),
            has_refused: false,
            snd_nxt: sq_psn,
            answers_left: 0,
            segment_bytes,
            unproven: None,
        }
    }

    /// No more may leave than comes, until [`Streams::prove`].
    pub(super) fn unproven(self, is_unproven: bool) -> Self {
        Self { unproven: is_unproven.then_some(0), ..self }
    }

    pub(super) fn prove(&mut self) {
        self.unproven = None;
    }

    /// A frame was handed in.
    pub(super) fn came(&mut self, frame_len: usize) {
        self.unproven = self.unproven.map(|bytes| bytes + u64_from(frame_len));
    }

    /// A frame left.
    pub(super) fn left(&mut self, frame_len: usize) {
        if let Some(bytes) = &mut self.unproven {
            let left = bytes.checked_sub(u64_from(frame_len));
            *bytes = left.expect("more bytes leave than came, before it was told to send");
        }
    }

    pub(super) fn next(&self) -> u32 {
        low(self.next)
    }

    pub(super) fn snd_nxt(&self) -> u32 {
        self.snd_nxt
    }

    /// The number nearest to `next` that has these bits on the wire.
    fn number(&self, psn: u32) -> u64 {
        self.next.wrapping_add_signed(i64::from(psn.wrapping_sub(self.next()).cast_signed()))
    }

    fn is_new(&self, number: u64) -> bool {
        let limit = self.next + u64::from(REORDER_PKTS);
        (self.next..limit).contains(&number) && !self.ahead.contains(&number)
    }

    fn arrive(&mut self, number: u64) {
        self.ahead.insert(number);
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
    }
}

impl World {
    /// Checks a packet that was counted as taken, or not; what it changed in memory.
    pub(super) fn judge_src(&mut self, forged: &Forged, state: QpState, change: [&Tally; 2]) {
        let [before, after] = change;
        let explained = if after.taken == before.taken {
            Vec::new()
        } else {
            assert!(forged.is_sound, "taken: {:?}", forged.bth);
            match &forged.inside {
                Some(Inside::Data(header, len)) => {
                    let receives = [QpState::Rtr, QpState::Rts, QpState::Sqd];
                    assert!(receives.contains(&state), "{state:?}");
                    self.judge_data(header, *len, change)
                }
                Some(Inside::Ack(ack)) => {
                    self.judge_ack(ack);
                    Vec::new()
                }
                None => {
                    let class = forged.bth.opcode.props().class;
                    assert_eq!(class, OpClass::Notification, "{:?}", forged.bth);
                    Vec::new()
                }
            }
        };
        // A response whose own memory is gone ends the queue pair as well, and has not come.
        let left = self.ep.query_qp(self.qpn).expect("it was not destroyed").state;
        self.streams.has_refused |= left == QpState::Err;
        if let Some(reach) = self.memory.changed_outside(&explained) {
            panic!("{:?} changed {reach:?}", forged.bth);
        }
    }

    /// What a data packet that was taken explains.
    fn judge_data(&mut self, h: &SrcDataRepr, len: u32, change: [&Tally; 2]) -> Vec<Reach> {
        let [before, after] = change;
        let number = self.streams.number(h.psn);
        let is_new = self.streams.is_new(number);
        if after.duplicates != before.duplicates {
            assert!(!is_new, "{h:?} has not come before");
            return Vec::new();
        }
        assert!(is_new, "{h:?} has come before, or is beyond the window");
        let uses_receive = h.receive.is_some();
        if after.not_ready != before.not_ready {
            assert!(uses_receive, "{h:?} needs no receive request");
            return Vec::new();
        }
        let mut explained = Vec::new();
        match h.kind {
            SrcKind::Write => {
                let reth = h.reth.expect("the parser wants it");
                let need = Access::REMOTE_WRITE;
                let may = self.setup.access.allows(need);
                let reach = self.memory.reach(reth.rkey, reth.va, len, need).filter(|_| may);
                explained.extend(reach.filter(|_| reth.dma_len == len));
            }
            SrcKind::Send => explained.extend(self.recvs.lands()),
            SrcKind::ReadResponse | SrcKind::AtomicResponse => {
                explained.extend(self.sends.lands());
            }
            SrcKind::ReadRequest => {
                let asked = h.reth.map_or(0, |r| r.dma_len);
                let parts = asked.div_ceil(self.streams.segment_bytes).max(1);
                self.streams.answers_left += u64::from(parts);
            }
            SrcKind::FetchAdd | SrcKind::CmpSwap => self.streams.answers_left += 1,
        }
        // An answer whose own memory is gone fails the queue pair: it came, and has not arrived.
        let failed = self.ep.query_qp(self.qpn).is_some_and(|qp| qp.state == QpState::Err);
        if after.fatal != before.fatal || failed && h.answers.is_some() {
            self.streams.has_refused = true;
        }
        self.streams.atomics.extend(h.atomic.map(|a| (number, a)));
        self.streams.invalidations.extend(h.ieth.map(|rkey| (number, rkey)));
        self.streams.arrive(number);
        explained.extend(self.carry_out());
        explained
    }

    /// What atomics may change whose turn has come.
    fn carry_out(&mut self) -> Vec<Reach> {
        let next = self.streams.next;
        let mut explained = Vec::new();
        while let Some(first) = self.streams.atomics.first_entry().filter(|e| *e.key() < next) {
            let a = first.remove();
            let may = self.setup.access.allows(Access::REMOTE_ATOMIC) && a.va.is_multiple_of(8);
            let reach = self.memory.reach(a.rkey, a.va, 8, Access::REMOTE_ATOMIC);
            explained.extend(reach.filter(|_| may));
        }
        while let Some(first) = self.streams.invalidations.first_entry().filter(|e| *e.key() < next)
        {
            let rkey = first.remove();
            if !self.streams.has_refused {
                self.check_invalidated(rkey);
            }
        }
        explained
    }

    /// An acknowledgement that was taken names only what was sent, and no time to come.
    fn judge_ack(&self, ack: &SrcAckRepr<'_>) {
        let nxt = self.streams.snd_nxt;
        let before_nxt = |psn: u32| nxt.wrapping_sub(psn).cast_signed();
        // Nor what was sent long ago.
        let recent = 0..=(1 << 16) + i32::try_from(REORDER_PKTS).expect("a few");
        assert!(recent.contains(&before_nxt(ack.next)), "{ack:?} before {nxt}");
        assert!(recent.contains(&(before_nxt(ack.newest) - 1)), "{ack:?} before {nxt}");
        for word in ack.words.as_slice().iter().filter(|w| w.bits != 0) {
            let last = word.base.wrapping_add(63 - word.bits.leading_zeros());
            assert!(before_nxt(last) > 0, "{ack:?} before {nxt}");
        }
        assert!(ack.echo_ps <= self.now.as_ps(), "{ack:?} from the future");
    }

    /// Checks a packet that left while the queue pair was in `state`.
    pub(super) fn check_src_output(&mut self, packet: &Packet<'_>, state: QpState) {
        match Inside::of(packet) {
            Some(Inside::Data(header, len)) => self.check_data_sent(packet, &header, len, state),
            Some(Inside::Ack(ack)) => self.check_ack_sent(&ack),
            None => panic!("{:?} is not of SRC", packet.bth),
        }
    }

    fn check_data_sent(&mut self, p: &Packet<'_>, h: &SrcDataRepr, len: u32, state: QpState) {
        assert!(len <= self.streams.segment_bytes, "{h:?} carries {len} bytes");
        let is_answer = h.answers.is_some();
        let sends = matches!(state, QpState::Rts | QpState::Sqd);
        let ahead = h.psn.wrapping_sub(self.streams.snd_nxt).cast_signed();
        assert!(ahead <= 0, "{h:?} leaves a gap");
        assert!(sends || is_answer && state == QpState::Err, "{h:?} while {state:?}");
        if ahead == 0 {
            self.streams.snd_nxt = self.streams.snd_nxt.wrapping_add(1);
            if is_answer {
                let left = self.streams.answers_left.checked_sub(1);
                self.streams.answers_left = left.expect("an answer that nothing asked for");
            }
        }
        assert_eq!(h.sent_ps, self.now.as_ps());
        if h.kind == SrcKind::ReadResponse {
            super::output::check_secret(p.payload);
        }
    }

    fn check_ack_sent(&self, ack: &SrcAckRepr<'_>) {
        let streams = &self.streams;
        let next = streams.number(ack.next);
        if !streams.has_refused {
            assert_eq!(ack.next, streams.next(), "{ack:?}");
            assert_eq!(ack.psn_limit, ack.next.wrapping_add(REORDER_PKTS));
        }
        assert!(next <= streams.next, "{ack:?} is ahead of {:#x}", streams.next);
        for word in ack.words.as_slice() {
            let base = streams.number(word.base);
            for number in (0..64).filter(|i| word.bits >> i & 1 != 0).map(|i| base + i) {
                let has = number < streams.next || streams.ahead.contains(&number);
                assert!(has, "{ack:?} tells of {number:#x}");
            }
        }
    }
}

fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("masked")
}
