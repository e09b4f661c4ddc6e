//! Test support: two endpoints on a virtual wire in virtual time.

use crate::{
    Access, AddressVector, Balance, Config, CongestionControl, CqId, Endpoint, ErasureCoding,
    MemoryRegion, Mtu, PdId, QpAttr, QpCaps, QpInit, QpState, RecvRequest, RemoteAddr, Sge,
    SrOptions, SrqId, SrqInit, Wc, Wire, WireMode, WorkRequest, WrOp,
};
use spanwire_base::{Dur, LentPayload, Node, PortId, RxMeta, Time, TxBurst, TxMeta};
use spanwire_mem::Region;
use spanwire_wire::{INT_FULL_LEN, IntHop, MacAddr, Packet, Psn, Qpn, Unverified, int_push};
use std::cell::Cell;
use std::net::IpAddr;

/// The fate of one frame on the wire.
pub(crate) enum Fate {
    Pass,
    Drop,
    Twice,
    Late(Dur),
    /// Marked CE (congestion experienced).
    Marked,
    /// INT records of these switches are added, if requested.
    Stamped(Vec<IntHop>),
}

/// One side.
pub(crate) struct End {
    pub(crate) ep: Endpoint,
    pub(crate) pd: PdId,
    pub(crate) cq: CqId,
    pub(crate) qpns: Vec<Qpn>,
    pub(crate) region: Region,
    pub(crate) mr: MemoryRegion,
    pub(crate) srq: Option<SrqId>,
    /// All completions polled so far.
    pub(crate) wcs: Vec<Wc>,
    /// Completions are polled in each step.
    pub(crate) polls: bool,
    inbox: Vec<(Time, u64, Vec<u8>, u32)>,
}

pub(crate) type Filter = Box<dyn FnMut(usize, &Packet<'_>) -> Fate>;
pub(crate) type OnSent = Box<dyn FnMut(usize, Time, u64)>;
pub(crate) type Edit = Box<dyn FnMut(usize, &mut Vec<u8>)>;

/// Two sides, 0 and 1, with connected queue pairs.
pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) ends: [End; 2],
    /// Decides the fate of every frame that side `usize` sends.
    pub(crate) filter: Filter,
    /// Called for every frame that side `usize` sends, with the time and its bytes.
    pub(crate) on_sent: OnSent,
    /// Changes every frame that side `usize` sends and that is not dropped.
    pub(crate) edit: Edit,
    /// Frames that the path carries; the others are lost.
    pub(crate) carries: fn(&TxMeta) -> bool,
    /// Every packet sent: side, opcode name, PSN.
    pub(crate) log: Vec<(usize, &'static str, u32)>,
    /// Both ends may lend payload, which is copied into the frame when the step ends.
    pub(crate) lends: bool,
    /// The payload bytes that were lent.
    pub(crate) lent_bytes: usize,
    /// Bursts have one frame.
    pub(crate) is_single: bool,
    sent: u64,
}

/// The frames of a step, at most `left` more.
struct Frames {
    buffer: Vec<u8>,
    left: usize,
    lends: bool,
    /// Bursts have one frame; this one has it.
    is_single: bool,
    has_sent: bool,
    /// Each with its lent bytes.
    sent: Vec<(Vec<u8>, TxMeta, usize)>,
}

impl Frames {
    fn new(left: usize, lends: bool, is_single: bool) -> Self {
        let (buffer, sent) = (vec![0; 8192], Vec::new());
        Self { buffer, left, lends, is_single, has_sent: false, sent }
    }

    /// Begins another burst, if frames are left.
    fn go_on(&mut self) -> bool {
        self.has_sent = false;
        self.left > 0
    }
}

impl TxBurst for Frames {
    fn buffer(&mut self) -> Option<&mut [u8]> {
        let ends = self.left == 0 || self.is_single && self.has_sent;
        (!ends).then_some(&mut self.buffer)
    }

    fn commit(&mut self, meta: TxMeta, lent: Option<LentPayload>) {
        let mut lent_bytes = 0;
        if let Some(LentPayload { at, bytes }) = lent {
            lent_bytes = bytes.len();
            bytes.copy_out(0, &mut self.buffer[at..at + lent_bytes]);
        }
        self.sent.push((self.buffer[..meta.len].to_vec(), meta, lent_bytes));
        (self.left, self.has_sent) = (self.left - 1, true);
    }

    fn lends(&self) -> bool {
        self.lends
    }
}

/// Configuration of a [`Pair`].
#[derive(Clone)]
pub(crate) struct PairConfig {
    pub(crate) config: Config,
    pub(crate) mtu: Mtu,
    pub(crate) mode: WireMode,
    pub(crate) qps: usize,
    pub(crate) psns: [u32; 2],
    pub(crate) bytes: usize,
    pub(crate) cqe: u32,
    pub(crate) caps: QpCaps,
    /// Side 1's queue pairs share a receive queue of this many requests.
    pub(crate) srq_max_wr: Option<u32>,
    pub(crate) places_until_polled: bool,
    /// Changes to the common attributes.
    pub(crate) rtr: fn(&mut QpAttr),
    pub(crate) rts: fn(&mut QpAttr),
    /// The options of SR, beside the next two.
    pub(crate) options: SrOptions,
    pub(crate) erasure: Option<ErasureCoding>,
    pub(crate) balance: Option<Balance>,
    pub(crate) congestion: Option<CongestionControl>,
    pub(crate) ips: [IpAddr; 2],
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            config: Config::default(),
            mtu: Mtu::B256,
            mode: MODE.get(),
            qps: 1,
            psns: [1000, 0xff_fff0],
            bytes: 1 << 16,
            cqe: 4096,
            caps: QpCaps {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 600,
            },
            srq_max_wr: None,
            places_until_polled: false,
            rtr: |_| {},
            rts: |_| {},
            options: SrOptions::default(),
            erasure: None,
            balance: None,
            congestion: Some(CongestionControl::NONE),
            ips: [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
        }
    }
}

pub(crate) const LATENCY: Dur = Dur::from_us(5);

thread_local! {
    /// The wire mode of pairs whose configuration does not set one.
    static MODE: Cell<WireMode> = const { Cell::new(WireMode::Rc) };
}

/// Runs a test twice. Pairs without a wire mode of their own use RC the first time, SR the second.
pub(crate) fn in_both_modes(test: impl Fn(WireMode)) {
    for mode in [WireMode::Rc, WireMode::Sr] {
        MODE.set(mode);
        test(mode);
    }
    MODE.set(WireMode::Rc);
}

impl PairConfig {
    /// One queue pair of SR.
    pub(crate) fn sr() -> Self {
        Self { mode: WireMode::Sr, ..Self::default() }
    }
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(&PairConfig::default())
    }

    pub(crate) fn with(c: &PairConfig) -> Self {
        let ends = [0, 1].map(|i| End::new(i, c));
        let filter: Filter = Box::new(|_, _| Fate::Pass);
        let edit: Edit = Box::new(|_, _| {});
        let on_sent: OnSent = Box::new(|_, _, _| {});
        let (now, log) = (Time::ZERO, Vec::new());
        let (lends, lent_bytes, is_single) = (false, 0, false);
        let carries = |_: &TxMeta| true;
        let mut pair = Self {
            now,
            ends,
            filter,
            on_sent,
            edit,
            carries,
            log,
            lends,
            lent_bytes,
            is_single,
            sent: 0,
        };
        for q in 0..c.qps {
            pair.connect(q, c);
        }
        pair
    }

    fn connect(&mut self, q: usize, c: &PairConfig) {
        let qpns = [self.ends[0].qpns[q], self.ends[1].qpns[q]];
        for (me, peer) in [(0, 1), (1, 0)] {
            let takes_fragments = true;
            let av = AddressVector::new(mac(me), mac(peer), c.ips[me], c.ips[peer]);
            let av = AddressVector { takes_fragments, ..av };
            let mut rtr = QpAttr::rtr(qpns[peer], Psn::new(c.psns[peer]), c.mtu, av);
            let (erasure, balance) = (c.erasure, c.balance);
            rtr.wire = Some(match c.mode {
                WireMode::Rc => Wire::Rc,
                WireMode::Sr => Wire::Sr(SrOptions { erasure, balance, ..c.options }),
            });
            (c.rtr)(&mut rtr);
            let mut rts = QpAttr::rts(Psn::new(c.psns[me]));
            rts.congestion = c.congestion;
            (c.rts)(&mut rts);
            for attr in [QpAttr::init(Access::ALL), rtr, rts] {
                self.ends[me].ep.modify_qp(qpns[me], &attr).unwrap();
            }
        }
    }

    /// Resets the queue pairs `q` and connects them with the configuration `c`.
    pub(crate) fn reconnect(&mut self, q: usize, c: &PairConfig) {
        for end in &mut self.ends {
            let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
            end.ep.modify_qp(end.qpns[q], &reset).unwrap();
        }
        self.connect(q, c);
    }

    /// Runs until no frame is in flight and no timer is armed, or for `limit` of virtual time.
    /// Returns false if it stopped at the limit.
    pub(crate) fn run(&mut self, limit: Dur) -> bool {
        let end = self.now + limit;
        loop {
            for side in [0, 1] {
                self.step(side);
            }
            let next = self.ends.iter().filter_map(End::next_event).min();
            match next {
                None => return true,
                Some(at) if at > end => {
                    self.now = end;
                    return false;
                }
                Some(at) => self.now = self.now.max(at),
            }
        }
    }

    /// One step of a driver: receive, time out, transmit.
    pub(crate) fn step(&mut self, side: usize) {
        self.step_at_most(side, usize::MAX);
    }

    /// As [`Pair::step`] with a port that accepts at most `packets` frames.
    pub(crate) fn step_at_most(&mut self, side: usize, packets: usize) {
        self.receive(side);
        let now = self.now;
        let end = &mut self.ends[side];
        if end.ep.poll_timeout().is_some_and(|t| t <= now) {
            end.ep.handle_timeout(now);
        }
        let mut frames = Frames::new(packets, self.lends, self.is_single);
        while !self.ends[side].ep.transmit_burst(now, PortId::HOST, &mut frames) && frames.go_on() {
        }
        for (frame, meta, lent_bytes) in frames.sent {
            self.lent_bytes += lent_bytes;
            if (self.carries)(&meta) {
                self.transmit(side, &frame, meta.elided_bytes);
            }
        }
        self.ends[side].poll();
        assert_eq!(self.ends[side].ep.stuck_qps(), [], "side {side} waits without a timer");
    }

    /// Handles the frames that have arrived, without sending.
    pub(crate) fn receive(&mut self, side: usize) {
        let now = self.now;
        while let Some((frame, elided_bytes)) = self.ends[side].pop_due(now) {
            let meta = RxMeta { elided_bytes, ..RxMeta::whole(now) };
            self.ends[side].ep.handle_packet(now, PortId::HOST, &frame, &meta);
        }
    }

    /// Removes the frames that have arrived, unhandled.
    pub(crate) fn take_inbox(&mut self, side: usize) -> Vec<Vec<u8>> {
        let now = self.now;
        std::iter::from_fn(|| self.ends[side].pop_due(now)).map(|(frame, _)| frame).collect()
    }

    fn transmit(&mut self, side: usize, frame: &[u8], elided_bytes: u32) {
        let frame_bytes = spanwire_base::u64_from(frame.len()) + u64::from(elided_bytes);
        (self.on_sent)(side, self.now, frame_bytes);
        let unverified = Unverified::parse(frame, elided_bytes as usize);
        let unverified = unverified.expect("what we send parses");
        let packet = match frame.ends_with(&[0; 4]) {
            true => unverified.trusted(),
            false => unverified.verify().expect("its ICRC is right"),
        };
        self.log.push((side, packet.bth.opcode.props().name, packet.bth.psn.get()));
        let fate = (self.filter)(side, packet);
        let mut frame = frame.to_vec();
        if matches!(fate, Fate::Marked) {
            spanwire_wire::mark_ce(&mut frame);
        }
        if let Fate::Stamped(hops) = &fate {
            stamp(&mut frame, elided_bytes, hops);
        }
        let (copies, late) = match fate {
            Fate::Pass | Fate::Marked | Fate::Stamped(_) => (1, Dur::ZERO),
            Fate::Drop => (0, Dur::ZERO),
            Fate::Twice => (2, Dur::ZERO),
            Fate::Late(by) => (1, by),
        };
        if copies > 0 {
            (self.edit)(side, &mut frame);
        }
        for _ in 0..copies {
            self.sent += 1;
            let at = self.now + LATENCY + late;
            self.ends[1 - side].inbox.push((at, self.sent, frame.clone(), elided_bytes));
        }
    }

    /// Delivers a frame to a side now, as if from the wire.
    pub(crate) fn inject(&mut self, side: usize, frame: &[u8]) {
        let meta = RxMeta::whole(self.now);
        self.ends[side].ep.handle_packet(self.now, PortId::HOST, frame, &meta);
    }

    /// Posts a signaled request of `len` bytes at local and remote offset `at` from `side`, with
    /// `wr_id` as its identifier.
    pub(crate) fn post(&mut self, side: usize, wr_id: u64, op: Op, at: usize, len: usize) {
        let remote = self.ends[1 - side].remote(at);
        let op = match op {
            Op::Send => WrOp::Send,
            Op::SendImm => WrOp::SendImm { imm: 0x1234_5678 },
            Op::Write => WrOp::Write { remote },
            Op::WriteImm => WrOp::WriteImm { remote, imm: 0x9abc_def0 },
            Op::Read => WrOp::Read { remote },
        };
        let sge = self.ends[side].sge(at, len);
        let qpn = self.ends[side].qpns[0];
        self.ends[side].ep.post_send(qpn, &WorkRequest::new(wr_id, op, &[sge])).unwrap();
    }

    pub(crate) fn post_recv(&mut self, side: usize, wr_id: u64, at: usize, len: usize) {
        let sge = self.ends[side].sge(at, len);
        let qpn = self.ends[side].qpns[0];
        self.ends[side].ep.post_recv(qpn, &RecvRequest { wr_id, sges: &[sge] }).unwrap();
    }
}

/// The operations, without their operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

impl Op {
    pub(crate) const ALL: [Self; 5] =
        [Self::Send, Self::SendImm, Self::Write, Self::WriteImm, Self::Read];

    pub(crate) fn needs_recv(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::WriteImm)
    }
}

impl End {
    fn new(i: u8, c: &PairConfig) -> Self {
        let mut ep = Endpoint::new(c.config.clone().validate().unwrap(), [i + 1; 32]);
        let pd = ep.alloc_pd().unwrap();
        let cq = ep.create_cq(c.cqe).unwrap();
        let region = Region::zeroed(c.bytes);
        let iova = Some(0x10_0000_0000 * (u64::from(i) + 1));
        let mr = ep.reg_mr(pd, region.clone(), Access::ALL, iova).unwrap();
        let srq = c.srq_max_wr.filter(|_| i == 1).map(|max_wr| {
            ep.create_srq(&SrqInit { pd, max_wr, max_sge: 4 }).expect("within the limits")
        });
        let places_until_polled = c.places_until_polled;
        let init = QpInit { srq, places_until_polled, ..QpInit::new(pd, cq, cq, c.caps) };
        let qpns = (0..c.qps).map(|_| ep.create_qp(&init).unwrap()).collect();
        let (wcs, polls, inbox) = (Vec::new(), true, Vec::new());
        Self { ep, pd, cq, qpns, region, mr, srq, wcs, polls, inbox }
    }

    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        let (addr, len) = (self.mr.addr + at as u64, u32::try_from(len).unwrap());
        Sge { addr, len, lkey: self.mr.lkey }
    }

    pub(crate) fn remote(&self, at: usize) -> RemoteAddr {
        RemoteAddr { va: self.mr.addr + at as u64, rkey: self.mr.rkey.unwrap() }
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.region.copy_out(at, &mut out).unwrap();
        out
    }

    pub(crate) fn fill(&self, at: usize, len: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; len];
        spanwire_base::Rng::new(seed).fill(&mut bytes);
        self.region.copy_in(at, &bytes).unwrap();
        bytes
    }

    fn poll(&mut self) {
        while self.polls
            && let Ok(Some(wc)) = self.ep.poll_cq(self.cq)
        {
            self.wcs.push(wc);
        }
    }

    fn pop_due(&mut self, now: Time) -> Option<(Vec<u8>, u32)> {
        let (at, i) = self.inbox.iter().enumerate().map(|(i, f)| ((f.0, f.1), i)).min()?;
        (at.0 <= now).then(|| {
            let (_, _, frame, elided_bytes) = self.inbox.swap_remove(i);
            (frame, elided_bytes)
        })
    }

    /// The time of the next frame or timer.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let frame = self.inbox.iter().map(|f| f.0).min();
        [frame, self.ep.poll_timeout()].into_iter().flatten().min()
    }
}

/// Adds the INT records of switches to a frame that requests them.
fn stamp(frame: &mut Vec<u8>, elided_bytes: u32, hops: &[IntHop]) {
    for hop in hops {
        let len = frame.len();
        frame.resize(len + INT_FULL_LEN, 0);
        let stamped = int_push(frame, len, elided_bytes, hop);
        frame.truncate(stamped.unwrap_or(len));
    }
}

fn mac(i: usize) -> MacAddr {
    MacAddr::new([2, 0, 0, 0, 0, u8::try_from(i).unwrap()])
}
