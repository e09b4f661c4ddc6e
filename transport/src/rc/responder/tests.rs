//! Every step of the responder, refused and passed.

use super::*;
use crate::qp::outcome::Message;
use crate::verbs::{RecvRequest, Sge};
use crate::wc::WcOpcode;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use spanwire_mem::Region;
use spanwire_wire::{
    AtomicEthRepr, BthRepr, EthernetRepr, ExtHeaders, Headers, IpRepr, MacAddr, Opcode, Qpn,
    Syndrome, UdpRepr,
};

const PD: PdId = PdId(0);
const VA: u64 = 0x1000;

/// A responder that expects PSN 0, with one region of 4096 bytes at `VA`.
struct World {
    responder: Responder,
    receive: Receive,
    access: Access,
    mrs: MrTable,
    srqs: SrqTable,
    events: Events,
    region: Region,
    lkey: u32,
    rkey: u32,
}

impl World {
    fn new() -> Self {
        let mut mrs = MrTable::new(4);
        let (mut rng, region) = (ChaCha20Rng::from_seed([1; 32]), Region::zeroed(4096));
        let mr = mrs.register(&mut rng, PD, region.clone(), Access::ALL, Some(VA)).unwrap();
        let (responder, receive) = (Responder::new(Psn::new(0), 2), Receive::own(PD, 8, 1));
        let access = Access::ALL;
        let (lkey, rkey) = (mr.lkey, mr.rkey.unwrap());
        let (srqs, events) = (SrqTable::new(1, 0), Events::default());
        Self { responder, receive, access, mrs, srqs, events, region, lkey, rkey }
    }

    fn post_recv(&mut self, len: u32) {
        let (addr, lkey) = (VA, self.lkey);
        let sges = [Sge { addr, len, lkey }];
        let (wr_id, sges) = (7, &sges[..]);
        assert!(self.receive.post(&RecvRequest { wr_id, sges }, len));
    }

    fn send(&mut self, opcode: Opcode, psn: u32, len: usize) -> RequestOutcome {
        self.request(opcode, psn, len, VA, self.rkey, 0)
    }

    fn write(&mut self, opcode: Opcode, psn: u32, len: usize, dma: u32) -> RequestOutcome {
        self.request(opcode, psn, len, VA, self.rkey, dma)
    }

    fn request(
        &mut self,
        opcode: Opcode,
        psn: u32,
        len: usize,
        va: u64,
        rkey: u32,
        dma_len: u32,
    ) -> RequestOutcome {
        let props = opcode.props();
        let ext = ExtHeaders {
            reth: props.reth.then_some(RethRepr { va, rkey, dma_len }),
            atomic: props.atomic.then_some(AtomicEthRepr { va, rkey, swap_or_add: 3, compare: 3 }),
            imm: props.imm.then_some(5),
            ieth: props.ieth.then_some(rkey),
            ..ExtHeaders::default()
        };
        let mac = MacAddr::new([2; 6]);
        let mut bth = BthRepr::new(opcode, Qpn::new(9), Psn::new(psn));
        bth.ack_req = true;
        let headers = Headers {
            eth: EthernetRepr { dst: mac, src: mac, ethertype: EthernetRepr::IPV4 },
            ip: IpRepr::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into()).unwrap(),
            udp: UdpRepr::new(0xc000),
            bth,
            ext,
        };
        let mut frame = vec![0; headers.frame_len(len)];
        let at = headers.emit(&mut frame, len).unwrap();
        frame[at].fill(1);
        let all = frame.len();
        spanwire_wire::seal(&mut frame, all);
        let mut ground = Context {
            mrs: &mut self.mrs,
            srqs: &mut self.srqs,
            events: &mut self.events,
            receive: &mut self.receive,
            pd: PD,
            mtu: Mtu::B256,
            access: self.access,
            attr: &QpAttr { min_rnr_timer: Some(12), ..QpAttr::default() },
        };
        let p = Packet::parse(&frame).unwrap();
        self.responder.on_request(&p, &mut ground)
    }

    fn is_untouched(&self) -> bool {
        let mut bytes = vec![1; 4096];
        self.region.copy_out(0, &mut bytes).unwrap();
        bytes == vec![0; 4096]
    }
}

fn refused(psn: u32, code: NakCode) -> RequestOutcome {
    let reply = PendingAck::nak(Psn::new(psn), code, 0);
    RequestOutcome::Refused { reply, recv: None }
}

fn is_done(outcome: RequestOutcome) -> bool {
    matches!(outcome, RequestOutcome::Done { .. })
}

#[test]
fn on_request__a_gap_causes_one_nak() {
    let mut w = World::new();
    let reply = PendingAck::nak(Psn::new(0), NakCode::SequenceError, 0);
    let after = RequestOutcome::Drop(DropReason::AfterSequenceGap);
    let write = Opcode::RcWriteOnly;
    assert_eq!(w.write(write, 2, 8, 8), RequestOutcome::Gap { reply });
    assert_eq!(w.write(write, 3, 8, 8), after);
    assert!(is_done(w.write(write, 0, 8, 8)));
    assert!(matches!(w.write(write, 3, 8, 8), RequestOutcome::Gap { .. }));
}

#[test]
fn on_request__a_duplicate_is_acknowledged_with_the_newest_psn() {
    let mut w = World::new();
    for psn in 0..3 {
        assert!(is_done(w.write(Opcode::RcWriteOnly, psn, 0, 0)));
    }
    let reply = Some(PendingAck::ack(Psn::new(2), 3));
    let got = w.write(Opcode::RcWriteOnly, 0, 8, 8);
    assert_eq!(got, RequestOutcome::Duplicate { reply });
    assert!(w.is_untouched(), "not executed");
    let read = w.write(Opcode::RcReadRequest, 0, 0, 8);
    let forgotten = RequestOutcome::Drop(DropReason::DuplicateReadForgotten);
    assert_eq!(read, forgotten);
    let read = w.write(Opcode::RcReadRequest, 3, 0, 600);
    assert_eq!(read, RequestOutcome::ReadBegun);
    let duplicate = w.write(Opcode::RcReadRequest, 3, 0, 600);
    assert_eq!(duplicate, RequestOutcome::Duplicate { reply: None });
    assert!(is_done(w.write(Opcode::RcWriteOnly, 6, 0, 0)), "three PSNs");
}

#[test]
fn on_request__no_receive_causes_one_rnr_nak() {
    for opcode in [Opcode::RcSendFirst, Opcode::RcSendOnly, Opcode::RcWriteOnlyImm] {
        let mut w = World::new();
        let got = w.write(opcode, 0, 256, 256);
        let RequestOutcome::NotReady { reply } = got else { panic!("{opcode:?}: {got:?}") };
        assert_eq!(reply.syndrome, Syndrome::RnrNak { timer: 12 });
        assert_eq!(reply.psn, Psn::new(0));
        let dropped = RequestOutcome::Drop(DropReason::AfterSequenceGap);
        assert_eq!(w.send(Opcode::RcSendLast, 1, 8), dropped);
        w.post_recv(600);
        assert!(is_done(w.write(opcode, 0, 256, 256)), "{opcode:?}");
    }
}

#[test]
fn on_request__a_message_out_of_its_order_is_invalid() {
    let invalid = |psn| refused(psn, NakCode::InvalidRequest);
    for opcode in
        [Opcode::RcSendMiddle, Opcode::RcSendLast, Opcode::RcWriteMiddle, Opcode::RcWriteLast]
    {
        let mut w = World::new();
        w.post_recv(600);
        assert_eq!(w.send(opcode, 0, 256), invalid(0), "{opcode:?}");
    }
    for opcode in [Opcode::RcWriteFirst, Opcode::RcSendMiddle, Opcode::RcReadRequest] {
        let mut w = World::new();
        assert!(is_done(w.write(Opcode::RcWriteFirst, 0, 256, 600)));
        let len = if opcode == Opcode::RcReadRequest { 0 } else { 256 };
        assert_eq!(w.write(opcode, 1, len, 600), invalid(1), "{opcode:?}");
    }
}

#[test]
fn on_request__access_not_granted_is_invalid() {
    let mut w = World::new();
    w.access = Access::LOCAL_WRITE;
    let invalid = refused(0, NakCode::InvalidRequest);
    assert_eq!(w.write(Opcode::RcWriteOnly, 0, 8, 8), invalid);
    assert_eq!(w.write(Opcode::RcReadRequest, 0, 0, 8), invalid);
    assert_eq!(w.write(Opcode::RcFetchAdd, 0, 0, 0), invalid);
}

#[test]
fn on_request__an_atomic_is_executed_once_for_any_number_of_duplicates() {
    let mut w = World::new();
    w.region.copy_in(0, &1u64.to_ne_bytes()).unwrap();
    let word = |w: &World| w.region.fetch_add(0, 0).unwrap();
    assert_eq!(w.write(Opcode::RcFetchAdd, 0, 0, 0), RequestOutcome::AtomicDone);
    assert_eq!(word(&w), 4);
    let duplicate = RequestOutcome::Duplicate { reply: None };
    for _ in 0..3 {
        assert_eq!(w.write(Opcode::RcFetchAdd, 0, 0, 0), duplicate);
    }
    assert_eq!(word(&w), 4);
    let other = w.request(Opcode::RcFetchAdd, 0, 0, VA + 8, w.rkey, 0);
    assert_eq!(other, RequestOutcome::Drop(DropReason::DuplicateAtomicForgotten));
    // The test's operands compare with 3 and swap in 3.
    w.region.copy_in(0, &3u64.to_ne_bytes()).unwrap();
    assert_eq!(w.write(Opcode::RcCmpSwap, 1, 0, 0), RequestOutcome::AtomicDone);
    assert_eq!(word(&w), 3);
}

#[test]
fn on_request__an_atomic_is_checked_for_key_then_alignment() {
    let access = refused(0, NakCode::RemoteAccess);
    let invalid = refused(0, NakCode::InvalidRequest);
    for opcode in [Opcode::RcFetchAdd, Opcode::RcCmpSwap] {
        let mut w = World::new();
        let rkey = w.rkey;
        assert_eq!(w.request(opcode, 0, 0, VA, rkey ^ 1, 0), access);
        assert_eq!(w.request(opcode, 0, 0, VA + 1, rkey ^ 1, 0), access);
        assert_eq!(w.request(opcode, 0, 0, VA + 4092, rkey, 0), access);
        assert_eq!(w.request(opcode, 0, 0, u64::MAX - 7, rkey, 0), access);
        assert_eq!(w.request(opcode, 0, 0, VA + 4, rkey, 0), invalid);
        assert!(w.is_untouched());
    }
}

#[test]
fn on_request__inconsistent_lengths_are_invalid() {
    use Opcode::{RcReadRequest, RcWriteFirst, RcWriteLast, RcWriteMiddle, RcWriteOnly};
    let cases: [(&[(Opcode, usize)], u32); 9] = [
        (&[(RcWriteFirst, 256)], 256),
        (&[(RcWriteFirst, 255)], 600),
        (&[(RcWriteFirst, 256)], (1 << 31) + 1),
        (&[(RcWriteOnly, 257)], 257),
        (&[(RcWriteOnly, 8)], 9),
        (&[(RcWriteFirst, 256), (RcWriteMiddle, 255)], 600),
        (&[(RcWriteFirst, 256), (RcWriteLast, 8)], 265),
        (&[(RcWriteFirst, 256), (RcWriteLast, 0)], 257),
        (&[(RcReadRequest, 0)], 1 << 31),
    ];
    for (packets, dma) in cases {
        let mut w = World::new();
        let last = packets.len() - 1;
        for (psn, (opcode, len)) in (0..).zip(packets) {
            let got = w.write(*opcode, psn, *len, dma);
            match psn as usize == last {
                true => assert_eq!(got, refused(psn, NakCode::InvalidRequest), "{packets:?}"),
                false => assert!(is_done(got)),
            }
        }
    }
}

#[test]
fn on_request__keys_and_bounds_are_checked_unless_the_length_is_zero() {
    let bad = refused(0, NakCode::RemoteAccess);
    for opcode in [Opcode::RcWriteOnly, Opcode::RcReadRequest] {
        let len = if opcode == Opcode::RcWriteOnly { 8 } else { 0 };
        let mut w = World::new();
        let rkey = w.rkey;
        assert_eq!(w.request(opcode, 0, len, VA, rkey ^ 1, 8), bad);
        assert_eq!(w.request(opcode, 0, len, VA + 4089, rkey, 8), bad);
        assert_eq!(w.request(opcode, 0, len, VA - 1, rkey, 8), bad);
        assert!(w.is_untouched());
        assert_ne!(w.request(opcode, 0, 0, 1, rkey ^ 1, 0), bad, "{opcode:?}");
    }
}

#[test]
fn on_request__a_receive_too_short_fails_with_it() {
    let mut w = World::new();
    w.post_recv(300);
    assert!(is_done(w.send(Opcode::RcSendFirst, 0, 256)));
    let reply = PendingAck::nak(Psn::new(1), NakCode::InvalidRequest, 0);
    let recv = Some((7, WcStatus::LocLenErr));
    let got = w.send(Opcode::RcSendLast, 1, 45);
    assert_eq!(got, RequestOutcome::Refused { reply, recv });
}

#[test]
fn on_request__immediate_data_consume_a_receive_at_the_end() {
    let mut w = World::new();
    w.post_recv(0);
    let got = w.write(Opcode::RcWriteFirst, 0, 256, 264);
    let RequestOutcome::Done { message: None, .. } = got else { panic!("{got:?}") };
    let got = w.write(Opcode::RcWriteLastImm, 1, 8, 0);
    let message = Message {
        recv: Some((7, WcOpcode::RecvRdmaWithImm)),
        len: 264,
        imm: Some(5),
        invalidated_rkey: None,
        solicited: false,
    };
    let (reply, message) = (Some(PendingAck::ack(Psn::new(1), 1)), Some(message));
    assert_eq!(got, RequestOutcome::Done { reply, message });
}

#[test]
fn on_request__more_reads_than_agreed_are_invalid() {
    let mut w = World::new();
    for psn in 0..2 {
        let got = w.write(Opcode::RcReadRequest, psn, 0, 8);
        assert_eq!(got, RequestOutcome::ReadBegun);
    }
    let reply = PendingAck::nak(Psn::new(2), NakCode::InvalidRequest, 2);
    let got = w.write(Opcode::RcReadRequest, 2, 0, 8);
    assert_eq!(got, RequestOutcome::Refused { reply, recv: None });
}
