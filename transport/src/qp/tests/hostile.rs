//! Packets of a forger that knows addresses and numbers: no panic, no access beyond the granted
//! memory, and every request still completes.

mod blind;
mod blocks;
mod classes;
mod keys;
mod selective;

use crate::testing::{Op, Pair, PairConfig};
use crate::{Access, Config, Endpoint, QpAttr, QpState, SrOptions, Wc, WireMode};
use spanwire_base::{Dur, Node, PortId, Rng, RxMeta, Time, u32_from, usize_from};
use spanwire_mem::Region;
use spanwire_wire::{
    AckReason, AethRepr, AtomicAckEthRepr, AtomicEthRepr, BthRepr, DethRepr, EthernetRepr,
    ExtHeaders, Headers, IntRecords, IpRepr, MacAddr, NakCode, NearKind, Opcode, Psn, Qpn,
    RethRepr, SackWord, SrAckRepr, SrDataRepr, SrKind, SrNak, SrNearRepr, Syndrome, UdpRepr,
};

/// The forger's knowledge of its victim, side 0.
struct Forger {
    rng: Rng,
    qpn: Qpn,
    /// Target PSNs: the next one that the victim sends, and the one that it expects.
    psns: [u32; 2],
    /// Addresses and keys: those of the granted region, and those without access rights.
    targets: Vec<(u64, u32)>,
}

impl Forger {
    fn u32(&mut self) -> u32 {
        u32::try_from(self.rng.below(1 << 32)).unwrap()
    }

    fn u8(&mut self) -> u8 {
        u8::try_from(self.rng.below(256)).unwrap()
    }

    fn psn(&mut self) -> Psn {
        let base = self.psns[usize_from(self.rng.below(2))];
        let psn = match self.rng.below(8) {
            0 => self.u32(),
            1 => base.wrapping_sub(u32::try_from(self.rng.below(40)).unwrap()),
            _ => base.wrapping_add(u32::try_from(self.rng.below(200)).unwrap()),
        };
        Psn::new(psn & Psn::MASK)
    }

    fn reth(&mut self) -> RethRepr {
        let i = usize_from(self.rng.below(self.targets.len() as u64));
        let (addr, rkey) = self.targets[i];
        let (va, rkey) = match self.rng.below(10) {
            0 => (self.rng.next_u64(), rkey),
            1 => (addr, self.u32()),
            2 => (u64::MAX - self.rng.below(300), rkey),
            _ => (addr.wrapping_add(self.rng.below(1 << 17)), rkey),
        };
        let dma_len = match self.rng.below(6) {
            0 => self.u32(),
            1 => 1 << 31,
            2 => 0,
            _ => u32::try_from(self.rng.below(3000)).unwrap(),
        };
        RethRepr { va, rkey, dma_len }
    }

    fn frame(&mut self) -> Vec<u8> {
        let opcode = Opcode::ALL[usize_from(self.rng.below(Opcode::ALL.len() as u64))];
        let props = opcode.props();
        let syndrome = match self.rng.below(3) {
            // A random one or, so that more queue pairs survive, a plain ACK.
            0 => Syndrome::from_u8(self.u8()),
            _ => Syndrome::Ack { credits: 31 },
        };
        let msn = self.u32() & Psn::MASK;
        let reth = self.reth();
        let (swap_or_add, compare) = (self.rng.next_u64(), self.rng.next_u64());
        let ext = ExtHeaders {
            reth: props.reth.then_some(reth),
            aeth: props.aeth.then_some(AethRepr { syndrome, msn }),
            imm: props.imm.then_some(msn),
            ieth: props.ieth.then_some(reth.rkey),
            atomic: props.atomic.then_some(AtomicEthRepr {
                va: reth.va,
                rkey: reth.rkey,
                swap_or_add,
                compare,
            }),
            atomic_ack: props.atomic_ack.then_some(AtomicAckEthRepr { original: swap_or_add }),
            deth: props.deth.then_some(DethRepr { qkey: reth.rkey, src_qp: self.qpn }),
        };
        let mut bth = BthRepr::new(opcode, self.qpn, self.psn());
        bth.ack_req = self.rng.below(2) == 0;
        bth.solicited = self.rng.below(2) == 0;
        let len = match self.rng.below(4) {
            _ if !props.payload => 0,
            0 => usize_from(self.rng.below(600)),
            1 => 0,
            _ => 256,
        };
        seal(bth, ext, len, self.u8())
    }
}

impl Forger {
    /// A valid packet of SR of a random type.
    fn sr_frame(&mut self, now: Time) -> Vec<u8> {
        let psn = self.psn().get();
        match self.rng.below(12) {
            0..4 => return self.sr_ack(psn, now),
            4 => return self.sr_near(psn, now),
            _ => {}
        }
        let kind = SrKind::ALL[usize_from(self.rng.below(SrKind::ALL.len() as u64))];
        let len = match (kind, self.rng.below(4)) {
            (SrKind::Send | SrKind::Write | SrKind::ReadResponse, n) => 85 * n,
            (_, n) => n / 3,
        };
        let mut reth = self.reth();
        if kind == SrKind::Write && self.rng.below(4) > 0 {
            reth.dma_len = u32::try_from(len).unwrap();
        }
        let small = |rng: &mut Rng| match rng.below(8) {
            0 => u32::try_from(rng.below(1 << 32)).unwrap(),
            _ => u32::try_from(rng.below(6)).unwrap(),
        };
        let single = !matches!(kind, SrKind::Send | SrKind::Write | SrKind::ReadResponse);
        let last = single || self.rng.below(2) == 0;
        let imm = (last && self.rng.below(3) == 0).then_some(7);
        let receives = kind == SrKind::Send || kind == SrKind::Write && imm.is_some();
        let is_response = matches!(kind, SrKind::ReadResponse | SrKind::AtomicResponse);
        let atomic = AtomicEthRepr {
            va: reth.va,
            rkey: reth.rkey,
            swap_or_add: self.rng.next_u64(),
            compare: 0,
        };
        let header = SrDataRepr {
            first: single || self.rng.below(2) == 0,
            last,
            offset: if single { 0 } else { small(&mut self.rng).wrapping_mul(256) },
            sent_ps: self.rng.next_u64(),
            reth: matches!(kind, SrKind::Write | SrKind::ReadRequest).then_some(reth),
            atomic: matches!(kind, SrKind::FetchAdd | SrKind::CmpSwap).then_some(atomic),
            imm: imm.filter(|_| receives),
            receive: receives.then(|| small(&mut self.rng)),
            response_to: is_response.then(|| small(&mut self.rng)),
            original: (kind == SrKind::AtomicResponse).then_some(3),
            ..SrDataRepr::new(kind, psn, small(&mut self.rng))
        };
        let mut bth = BthRepr::new(Opcode::SrData, self.qpn, Psn::new(psn));
        bth.ack_req = self.rng.below(2) == 0;
        let mut frame = seal(bth, ExtHeaders::NONE, header.header_len() + usize_from(len), 7);
        header.emit(&mut frame[54..]).unwrap();
        let len = frame.len();
        spanwire_wire::seal(&mut frame, len);
        frame
    }

    /// Feedback of a switch: packets leave at few times, so some echoes are right.
    fn sr_near(&mut self, psn: u32, now: Time) -> Vec<u8> {
        let echo_ps = match self.rng.below(3) {
            0 => now.as_ps(),
            1 => 0,
            _ => self.rng.below(now.as_ps() + 2),
        };
        // The upper bits of a new connection are those of its first PSN.
        let psn = (self.psns[0] << 8).wrapping_add(psn & 0xff);
        let near = SrNearRepr {
            kind: NearKind::PseudoAck,
            psn,
            hop_limit: self.u8(),
            echo_ps,
            int: IntRecords::NONE,
        };
        let records = [1, 1, 0, 0, self.u8(), 2, 3, 4, 5, 6, 7, self.u8()];
        let near = match self.rng.below(2) {
            0 => near,
            _ => {
                let int = IntRecords::parse(&records);
                SrNearRepr { kind: NearKind::Telemetry, int, ..near }
            }
        };
        let bth = BthRepr::new(Opcode::SrNear, self.qpn, Psn::new(psn & Psn::MASK));
        let mut frame = seal(bth, ExtHeaders::NONE, near.header_len(), 0);
        near.emit(&mut frame[54..]).unwrap();
        let len = frame.len();
        spanwire_wire::seal(&mut frame, len);
        frame
    }

    fn sr_ack(&mut self, psn: u32, now: Time) -> Vec<u8> {
        let near = |rng: &mut Rng| psn.wrapping_sub(u32::try_from(rng.below(70)).unwrap());
        let code = [NakCode::RemoteAccess, NakCode::SequenceError][usize_from(self.rng.below(2))];
        let nak = (self.rng.below(20) == 0).then(|| SrNak { psn: near(&mut self.rng), code });
        let reason = if nak.is_some() { AckReason::Nak } else { AckReason::Time };
        let mut ack = SrAckRepr {
            next: psn,
            newest: near(&mut self.rng),
            reason,
            echo_ps: self.rng.below(now.as_ps() + 2),
            ack_delay_ns: self.u32(),
            rx_pkts: self.u32(),
            psn_limit: psn.wrapping_add(self.u32() >> self.rng.below(32)),
            receive_limit: self.u32() >> self.rng.below(32),
            nak,
            ..SrAckRepr::default()
        };
        for _ in 0..self.rng.below(4) {
            let (base, bits) = (near(&mut self.rng) & !63, self.rng.next_u64());
            ack.words.push(SackWord { base, bits: bits >> self.rng.below(64) });
        }
        let bth = BthRepr::new(Opcode::SrAck, self.qpn, Psn::new(psn));
        let mut frame = seal(bth, ExtHeaders::NONE, ack.header_len(), 0);
        ack.emit(&mut frame[54..]).unwrap();
        let len = frame.len();
        spanwire_wire::seal(&mut frame, len);
        frame
    }
}

/// A frame from side 1's address to side 0's.
pub(super) fn seal(bth: BthRepr, ext: ExtHeaders, len: usize, fill: u8) -> Vec<u8> {
    let headers = Headers {
        eth: EthernetRepr {
            dst: MacAddr::new([2, 0, 0, 0, 0, 0]),
            src: MacAddr::new([2, 0, 0, 0, 0, 1]),
            ethertype: EthernetRepr::IPV4,
        },
        ip: IpRepr::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into()).unwrap(),
        udp: UdpRepr::new(0xc000),
        bth,
        ext,
    };
    let mut frame = vec![0; headers.frame_len(len)];
    let at = headers.emit(&mut frame, len).unwrap();
    frame[at].fill(fill);
    let len = frame.len();
    spanwire_wire::seal(&mut frame, len);
    frame
}

fn post_everything(p: &mut Pair, round: u64) {
    for side in [0, 1] {
        for i in 0..6 {
            p.post_recv(side, 1000 * round + 100 + i, 50_000, 3000);
        }
        for (i, op) in (0..).zip(Op::ALL) {
            p.post(side, 1000 * round + i, op, 6000 * usize_from(i), 5000);
        }
    }
}

fn no_request_completes_twice(wcs: &[Wc], what: &str) {
    let mut ids: Vec<u64> = wcs.iter().map(|w| w.wr_id).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "{what}: {wcs:?}");
}

fn attack(seed: u64, mode: WireMode) -> QpState {
    let what = format!("{mode:?}, seed {seed}");
    let rts: fn(&mut QpAttr) = |a| (a.timeout, a.rnr_retry) = (Some(8), Some(3));
    let options = SrOptions { near: true, ..SrOptions::default() };
    let mut p = Pair::with(&PairConfig { mode, rts, options, ..PairConfig::default() });
    let granted = p.ends[0].remote(0);
    let pd = p.ends[0].pd;
    let other_pd = p.ends[0].ep.alloc_pd().unwrap();
    // Memory that the peer must not access, with every key that exists for it.
    let (private, foreign) = (Region::zeroed(1 << 16), Region::zeroed(1 << 16));
    let ep = &mut p.ends[0].ep;
    let local = Access::LOCAL_WRITE;
    let mr = ep.reg_mr(pd, private.clone(), local, None).unwrap();
    let far = ep.reg_mr(other_pd, foreign.clone(), Access::ALL, None);
    let far = far.unwrap();
    let mut forger = Forger {
        rng: Rng::new(seed),
        qpn: p.ends[0].qpns[0],
        psns: [1000, 0xff_fff0],
        targets: vec![
            (granted.va, granted.rkey),
            (granted.va, granted.rkey),
            (mr.addr, mr.lkey),
            (far.addr, far.rkey.unwrap()),
        ],
    };
    post_everything(&mut p, 0);
    for i in 0..60 {
        let frame = match mode {
            WireMode::Sr if forger.rng.below(8) > 0 => forger.sr_frame(p.now),
            _ => forger.frame(),
        };
        p.inject(0, &frame);
        if i % 7 == 0 {
            p.step(0);
        }
        let info = p.ends[0].ep.query_qp(forger.qpn).unwrap();
        assert!(info.in_flight_pkts <= u64::from(Config::default().qp_window_pkts), "{what}");
        if info.state == QpState::Err {
            break;
        }
    }
    let outcome = p.ends[0].ep.query_qp(forger.qpn).unwrap().state;
    assert!(p.run(Dur::from_secs(60)), "{what}: does not end");
    for end in &p.ends {
        no_request_completes_twice(&end.wcs, &what);
        // Every send request completed, with any status.
        let sends = end.wcs.iter().filter(|w| w.wr_id < 100).count();
        assert_eq!(sends, 5, "{what}: {:?}", end.wcs);
    }
    let zeros = vec![0; 1 << 16];
    for region in [private, foreign] {
        let mut bytes = zeros.clone();
        region.copy_out(0, &mut bytes).unwrap();
        assert_eq!(bytes, zeros, "{what}: memory that was not granted");
    }
    outcome
}

#[test]
fn hostile__valid_forged_packets_violate_no_guarantee() {
    for mode in [WireMode::Rc, WireMode::Sr] {
        let survivors = (0..400).filter(|s| attack(*s, mode) != QpState::Err).count();
        // Otherwise the test would only cover failing queue pairs.
        assert!(survivors > 5, "{mode:?}: {survivors} survived");
    }
}

#[test]
fn hostile__random_bytes_are_counted_and_dropped() {
    let mut rng = Rng::new(9);
    let mut p = Pair::new();
    let meta = RxMeta::whole(Time::ZERO);
    let feed = |ep: &mut Endpoint, bytes: &[u8]| {
        ep.handle_packet(Time::ZERO, PortId::HOST, bytes, &meta);
    };
    let ext = ExtHeaders::default();
    for _ in 0..20_000 {
        let qpn = p.ends[0].qpns[0];
        let mut frame = seal(BthRepr::new(Opcode::RcSendOnly, qpn, Psn::new(5)), ext, 64, 1);
        match rng.below(3) {
            0 => {
                frame.truncate(usize_from(rng.below(u64::from(u32_from(frame.len())))));
                rng.fill(&mut frame);
            }
            1 => frame.truncate(usize_from(rng.below(u64::from(u32_from(frame.len()))))),
            // One flipped bit that the ICRC or a header's own check detects.
            _ => {
                let at = 14 + usize_from(rng.below(4));
                frame[at] ^= 1 << rng.below(8);
                let at = 54 + usize_from(rng.below(60));
                frame[at] ^= 1 << rng.below(8);
            }
        }
        feed(&mut p.ends[0].ep, &frame);
    }
    assert_eq!(p.ends[0].ep.counters().rx_packets, 0);
    p.post(0, 1, Op::Write, 0, 5000);
    assert!(p.run(Dur::from_secs(1)));
    assert_eq!(p.ends[0].wcs.len(), 1);
}
