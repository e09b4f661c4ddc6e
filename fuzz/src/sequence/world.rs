//! The endpoint, the model of its state, and the effects of a step on both.

use super::forge::{Forged, View};
use super::layout::{SETUP_LEN, STEP_LEN};
use super::ledger::Ledger;
use super::memory::{Memory, Plot, Reach};
use super::output::{Output, packets};
use super::setup::{Made, Setup, WINDOW_PKTS};
use super::streams::Streams;
use spanwire_base::{Node, PortId, RxMeta, Time};
use spanwire_transport::{Access, Counters, CqId, DropReason, Endpoint, QpAttr, QpState, SrqId};
use spanwire_wire::{
    self as wire, AtomicEthRepr, NakCode, OpClass, OpKind, Opcode, Psn, Qpn, RethRepr, Syndrome,
};

/// A queue pair and its application.
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) ep: Endpoint,
    pub(super) now: Time,
    pub(super) qpn: Qpn,
    pub(super) send_cq: CqId,
    pub(super) recv_cq: CqId,
    pub(super) srq: Option<SrqId>,
    pub(super) memory: Memory,
    pub(super) sends: Ledger,
    pub(super) recvs: Ledger,
    pub(super) wr_id: u64,
    pub(super) output: Output,
    /// The PSN that the responder must expect, from the packets it accepted.
    pub(super) epsn: Psn,
    /// The WRITE in progress and the bytes received of it.
    pub(super) inbound: Option<(RethRepr, u32)>,
    /// The same for SR.
    pub(super) streams: Streams,
    /// The counters at the last check.
    pub(super) counted: Vec<u64>,
}

impl World {
    pub(super) fn new(setup: [u8; SETUP_LEN]) -> Self {
        let setup = Setup::of(setup);
        let Made { ep, qpn, send_cq, recv_cq, srq, memory } = setup.make();
        Self {
            output: Output { snd_nxt: setup.sq_psn, replies_left: 0 },
            epsn: setup.rq_psn,
            now: Time::ZERO,
            sends: Ledger::default(),
            recvs: Ledger::default(),
            wr_id: 0,
            inbound: None,
            streams: setup.streams(),
            setup,
            ep,
            qpn,
            send_cq,
            recv_cq,
            srq,
            memory,
            counted: Vec::new(),
        }
    }

    pub(super) fn step(&mut self, step: &[u8; STEP_LEN]) {
        match step[0] % 16 {
            0..=8 => return self.packet(step),
            9 | 10 => self.pause(step[1], step[2]),
            11 => self.post_send(step),
            12 => self.post_recv(step[1], step[2]),
            13 => self.transmit(step[1], step[2]),
            14 => self.poll(),
            _ => self.control(step[1], step[2], step[3]),
        }
        assert_eq!(self.memory.changed(), None, "only packets change memory");
    }

    /// Checks that every posted request completes once, and the queue pair leaves nothing behind.
    /// Returns the counters.
    pub(super) fn end(mut self) -> Counters {
        let error = QpAttr { state: Some(QpState::Err), ..QpAttr::default() };
        self.ep.modify_qp(self.qpn, &error).expect("every state leads to ERR");
        self.transmit(0, 0);
        self.poll();
        if self.ep.counters().cq_overrun == 0 {
            assert_eq!(self.sends.unfinished(), None, "a send request does not complete");
            if self.srq.is_none() {
                assert_eq!(self.recvs.unfinished(), None, "a receive request does not complete");
            }
        }
        assert_eq!(self.ep.poll_timeout().filter(|t| *t <= self.now), None);
        assert!(self.ep.destroy_qp(self.qpn));
        self.packet_to_unknown_qp();
        assert!(self.ep.destroy_cq(self.send_cq) && self.ep.destroy_cq(self.recv_cq));
        assert_eq!(self.ep.poll_timeout(), None, "a timer without a queue pair");
        assert_eq!(self.memory.changed(), None);
        self.check_counters();
        self.ep.counters().clone()
    }

    /// Checks that counters only grow.
    pub(super) fn check_counters(&mut self) {
        let counted = values(self.ep.counters());
        let shrunk = counted.iter().zip(&self.counted).position(|(now, then)| now < then);
        assert_eq!(shrunk, None, "a counter decreased");
        self.counted = counted;
    }

    fn packet_to_unknown_qp(&mut self) {
        let before = self.ep.counters().dropped(DropReason::UnknownQpn);
        let forged = Forged::new(&[0; STEP_LEN], &self.view(0));
        self.ep.handle_packet(self.now, PortId::HOST, &forged.frame, &RxMeta::whole(self.now));
        assert_eq!(self.ep.counters().dropped(DropReason::UnknownQpn), before + 1);
    }

    fn view(&self, in_flight: u64) -> View<'_> {
        let in_flight = u32::try_from(in_flight).unwrap_or(0);
        View {
            qpn: self.qpn,
            epsn: self.epsn,
            snd_una: self.output.snd_nxt.minus(in_flight),
            snd_nxt: self.output.snd_nxt,
            memory: &self.memory,
            is_sr: self.setup.is_sr,
            sr_first: self.setup.rq_psn.get() << 8,
            sr_next: self.streams.expected(),
            sr_snd_una: self.streams.snd_nxt.wrapping_sub(in_flight),
            sr_snd_nxt: self.streams.snd_nxt,
            outgoing: &self.streams.outgoing,
            credit: self.streams.credit.unwrap_or(0),
            now_ps: self.now.as_ps(),
        }
    }

    fn packet(&mut self, step: &[u8; STEP_LEN]) {
        let info = self.ep.query_qp(self.qpn).expect("the queue pair exists");
        // A probe leaves whatever the window is, and may use room reserved for parity.
        let probe = u64::from(self.setup.erasure.is_some());
        assert!(info.in_flight_pkts <= u64::from(WINDOW_PKTS) + probe, "{info:?}");
        let forged = Forged::new(step, &self.view(info.in_flight_pkts));
        let before = Tally::of(self.ep.counters());
        let atomic = forged.ext.atomic.map(|a| RethRepr { va: a.va, rkey: a.rkey, dma_len: 8 });
        let word = atomic.and_then(|r| self.memory.reach(r.rkey, r.va, 8, Access::REMOTE_ATOMIC));
        let word = word.map(|reach| self.memory.word(&reach));
        self.streams.on_received(forged.frame.len());
        self.ep.handle_packet(self.now, PortId::HOST, &forged.frame, &RxMeta::whole(self.now));
        let after = Tally::of(self.ep.counters());
        let taken = after.taken - before.taken;
        assert_eq!(taken + after.dropped - before.dropped, 1, "each packet is counted once");
        if self.setup.is_sr {
            return self.check_sr(&forged, info.state, [&before, &after]);
        }
        let changed = self.memory.changed();
        if taken == 0 {
            assert_eq!(changed, None, "a dropped packet changed memory");
            return;
        }
        assert!(forged.is_acceptable, "taken: {:?}", forged.bth);
        match forged.bth.opcode.props().class {
            OpClass::Request => {
                assert!(matches!(info.state, QpState::Rts | QpState::Sqd), "{info:?}");
                self.output.replies_left += match forged.ext.reth {
                    Some(r) if forged.bth.opcode == Opcode::RcReadRequest => {
                        u64::from(packets(r.dma_len)) + 1
                    }
                    _ => 1,
                };
                // A message whose completion finds no room is executed, and rejected.
                let complete = after.messages != before.messages;
                let refused = after.refused != before.refused && !complete;
                self.check_request(&forged, refused, word, changed);
            }
            OpClass::Response => self.check_response(&forged, changed),
            OpClass::Notification => assert_eq!(changed, None, "a notification changed memory"),
        }
    }

    fn check_response(&self, forged: &Forged, changed: Option<Reach>) {
        // A sequence NAK may name the next one.
        let sequence_error = Syndrome::Nak(NakCode::SequenceError);
        let naks = forged.ext.aeth.is_some_and(|a| a.syndrome == sequence_error);
        let was_sent = forged.bth.psn.is_before(self.output.snd_nxt)
            || naks && forged.bth.psn == self.output.snd_nxt;
        assert!(was_sent, "{:?} acknowledges an unsent PSN", forged.bth);
        if let Some(changed) = changed {
            let kind = forged.bth.opcode.props().kind;
            assert!(kind != OpKind::Ack, "an ACK changed {changed:?}");
            assert!(self.sends.explains(&changed), "no outstanding request explains {changed:?}");
        }
    }

    /// Checks an accepted request: executed unless `refused`, answered as a duplicate or NAKed.
    /// `word` is the old value that an atomic would return.
    fn check_request(
        &mut self,
        forged: &Forged,
        refused: bool,
        word: Option<u64>,
        changed: Option<Reach>,
    ) {
        let Forged { bth, ext, payload_len, .. } = forged;
        let props = bth.opcode.props();
        if refused {
            assert_eq!(changed, None, "a rejected request changed memory");
            return;
        }
        assert_eq!(bth.psn, self.epsn, "executed out of order");
        let mut took = 1;
        match props.kind {
            OpKind::Send => {
                let explained = changed.is_none_or(|c| self.recvs.explains(&c));
                assert!(explained, "a SEND outside its receive buffer");
                if let Some(rkey) = ext.ieth {
                    self.check_invalidated(rkey);
                }
            }
            OpKind::Write => self.check_write(ext.reth, props.last, *payload_len, changed),
            OpKind::ReadRequest => {
                assert_eq!(changed, None);
                let reth = ext.reth.expect("a READ has one");
                self.check_reach(&reth, Access::REMOTE_READ);
                took = packets(reth.dma_len);
            }
            _ => {
                assert!(word.is_some(), "an atomic without access");
                self.check_atomic(bth.opcode, ext.atomic.zip(word), changed);
            }
        }
        self.epsn = self.epsn.plus(took);
    }

    fn check_atomic(
        &self,
        opcode: Opcode,
        done: Option<(AtomicEthRepr, u64)>,
        changed: Option<Reach>,
    ) {
        let (a, found) = done.expect("an atomic has a header and a word");
        let reth = RethRepr { va: a.va, rkey: a.rkey, dma_len: 8 };
        let reach = self.check_reach(&reth, Access::REMOTE_ATOMIC).expect("eight bytes");
        assert!(a.va.is_multiple_of(8));
        assert!(
            changed.is_none_or(|c| reach.contains(&c)),
            "an atomic changed bytes beside its word"
        );
        let left = match opcode {
            Opcode::RcFetchAdd => found.wrapping_add(a.swap_or_add),
            _ if found == a.compare => a.swap_or_add,
            _ => found,
        };
        assert_eq!(self.memory.word(&reach), left, "{opcode:?} of {found:#x}");
    }

    fn check_write(
        &mut self,
        reth: Option<RethRepr>,
        last: bool,
        len: usize,
        changed: Option<Reach>,
    ) {
        let (message, received) = match (reth, self.inbound) {
            (Some(reth), _) => (reth, 0),
            (None, Some(inbound)) => inbound,
            (None, None) => panic!("a WRITE without a beginning"),
        };
        self.check_reach(&message, Access::REMOTE_WRITE);
        let len = spanwire_base::u32_from(len);
        let part =
            RethRepr { va: message.va.wrapping_add(received.into()), dma_len: len, ..message };
        let reach = self.check_reach(&part, Access::REMOTE_WRITE);
        let inside = changed.is_none_or(|c| reach.is_some_and(|r| r.contains(&c)));
        assert!(inside, "a WRITE outside its range");
        self.inbound = (!last).then_some((message, received + len));
    }

    /// The range that a request names, none if it names none. Access must have been granted.
    fn check_reach(&self, reth: &RethRepr, need: Access) -> Option<Reach> {
        assert!(self.setup.access.allows(need), "{need:?} through this queue pair");
        if reth.dma_len == 0 {
            return None;
        }
        let reach = self.memory.reach(reth.rkey, reth.va, reth.dma_len, need);
        assert!(reach.is_some(), "{need:?} of {reth:x?} was not granted");
        reach
    }

    pub(super) fn check_invalidated(&mut self, rkey: u32) {
        let own = self.memory.mr(Plot::Granted).rkey == Some(rkey);
        assert!(own, "only one region may lose its key to the peer");
        self.memory.set_rkey(Plot::Granted, None);
    }
}

/// The counters of the fate of a packet.
pub(super) struct Tally {
    pub(super) taken: u64,
    dropped: u64,
    pub(super) duplicates: u64,
    pub(super) not_ready: u64,
    pub(super) fatal: u64,
    pub(super) recovered: u64,
    /// Requests accepted but not executed: these three, and those out of sequence.
    refused: u64,
    messages: u64,
}

impl Tally {
    fn of(c: &Counters) -> Self {
        let own = DropReason::OWN.into_iter();
        let wire = wire::DropReason::ALL.iter().map(|r| DropReason::Wire(*r));
        let dropped = own.chain(wire).map(|r| c.dropped(r)).sum();
        let (duplicates, not_ready) = (c.duplicate_request, c.out_of_buffer);
        let (fatal, recovered) = (c.tx_fatal_naks, c.ec_rebuilt_packets);
        let refused = duplicates + c.out_of_sequence + not_ready + fatal;
        let (taken, messages) = (c.rx_packets, c.rx_messages);
        Self { taken, dropped, duplicates, not_ready, fatal, recovered, refused, messages }
    }
}

fn values(counters: &Counters) -> Vec<u64> {
    counters.list().into_iter().map(|(_, n)| n).collect()
}
