//! Two endpoints on a wire in virtual time that does not allocate in steady state.

use spanwire_base::{Dur, Node, PortId, Rng, RxMeta, Time};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, Config, CongestionControl, CqId, Endpoint, ErasureCoding, MemoryRegion,
    Mtu, QpAttr, QpCaps, QpInit, RecvRequest, RemoteAddr, Sge, SrOptions, WcStatus, Wire, WireMode,
    WorkRequest, WrOp,
};
use spanwire_wire::{MacAddr, Psn, Qpn};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// The operation that side 0 posts for each request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Send,
    Write,
    Read,
}

/// The packets that are lost, of both directions together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    None,
    /// One in so many, at random.
    OneIn(u64),
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) mode: WireMode,
    pub(crate) op: Op,
    /// Bytes of a message.
    pub(crate) bytes: u32,
    pub(crate) loss: Loss,
    /// Receive requests are posted some time after their messages arrive.
    pub(crate) late_receives: bool,
    pub(crate) code: Option<ErasureCoding>,
}

struct End {
    endpoint: Endpoint,
    cq: CqId,
    qpn: Qpn,
    mr: MemoryRegion,
    /// Frames in flight to this end: arrival time, length, bytes.
    inbox: VecDeque<(Time, usize, Box<[u8]>)>,
}

pub(crate) struct Pair {
    plan: Plan,
    now: Time,
    ends: [End; 2],
    /// Free frame buffers.
    spare: Vec<Box<[u8]>>,
    rng: Rng,
    completed: u32,
}

impl End {
    fn new(me: u8) -> Self {
        let config = Config::default().validate().expect("the default is valid");
        let mut endpoint = Endpoint::new(config, [me; 32]);
        let pd = endpoint.alloc_pd().expect("within the limits");
        let cq = endpoint.create_cq(64).expect("within the limits");
        let region = Region::zeroed(1 << 16);
        let mr = endpoint.reg_mr(pd, region, Access::ALL, None).expect("within the limits");
        let init = QpInit::new(pd, cq, cq, QpCaps::default());
        let qpn = endpoint.create_qp(&init).expect("within the limits");
        let inbox = VecDeque::with_capacity(FRAMES);
        Self { endpoint, cq, qpn, mr, inbox }
    }

    fn connect(&mut self, [me, peer]: [u8; 2], peer_qpn: Qpn, plan: &Plan) {
        let mac = |n| MacAddr::new([2, 0, 0, 0, 0, n]);
        let ip = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let av = AddressVector::new(mac(me), mac(peer), ip(me), ip(peer));
        // Short, so that timeouts and RNR waits occur within 3,000 calls.
        let mut rtr = QpAttr::rtr(peer_qpn, Psn::new(7), Mtu::B1024, av);
        let options = SrOptions { erasure: plan.code, ..SrOptions::default() };
        rtr.wire = (plan.mode == WireMode::Sr).then_some(Wire::Sr(options));
        rtr.min_rnr_timer = Some(1);
        let mut rts = QpAttr::rts(Psn::new(7));
        // A window that still grows allocates the records of more packets.
        rts.congestion = Some(CongestionControl::NONE);
        rts.timeout = Some(8);
        for attr in [QpAttr::init(Access::ALL), rtr, rts] {
            self.endpoint.modify_qp(self.qpn, &attr).expect("the usual transitions");
        }
    }

    fn sge(&self, len: u32) -> Sge {
        Sge { addr: self.mr.addr, len, lkey: self.mr.lkey }
    }

    /// Checks that all completions are successful and returns their number.
    fn poll(&mut self) -> u32 {
        let mut taken = 0;
        while let Some(wc) = self.endpoint.poll_cq(self.cq).expect("it is there") {
            assert_eq!(wc.status, WcStatus::Success);
            taken += 1;
        }
        taken
    }
}

impl Pair {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut ends = [1, 2].map(End::new);
        let qpns = [ends[1].qpn, ends[0].qpn];
        ends[0].connect([1, 2], qpns[0], &plan);
        ends[1].connect([2, 1], qpns[1], &plan);
        let spare = (0..FRAMES).map(|_| vec![0; FRAME].into_boxed_slice()).collect();
        Self { plan, now: Time::ZERO, ends, spare, rng: Rng::new(1), completed: 0 }
    }

    pub(crate) fn completed(&self) -> u32 {
        self.completed
    }

    /// Checks that the planned losses and late receives have occurred.
    pub(crate) fn check(&self, plan: Plan) {
        let [a, b] = [0, 1].map(|side| self.ends[side].endpoint.counters());
        let retransmitted = a.retransmitted_packets + b.retransmitted_packets;
        let recovered = a.ec_rebuilt_packets + b.ec_rebuilt_packets;
        if plan.loss != Loss::None {
            assert!(retransmitted + recovered > 50, "{retransmitted}, {recovered}");
        }
        assert_eq!(plan.loss != Loss::None && plan.code.is_some(), recovered > 0);
        assert_eq!(plan.late_receives, b.out_of_buffer > 0, "{}", b.out_of_buffer);
    }

    /// Runs `requests` requests, one after the other. Each run loses the same packets.
    pub(crate) fn run(&mut self, requests: u32) {
        self.rng = Rng::new(1);
        for id in 0..requests {
            let until = self.completed + 1;
            self.post(id.into());
            while self.completed < until {
                self.step();
            }
        }
    }

    fn post(&mut self, id: u64) {
        let (len, remote) = (self.plan.bytes, self.ends[1].mr);
        let remote = RemoteAddr { va: remote.addr, rkey: remote.rkey.expect("it has one") };
        let op = match self.plan.op {
            Op::Send => WrOp::Send,
            Op::Write => WrOp::Write { remote },
            Op::Read => WrOp::Read { remote },
        };
        let sge = self.ends[0].sge(len);
        let qpn = self.ends[0].qpn;
        let request = WorkRequest::new(id, op, std::slice::from_ref(&sge));
        self.ends[0].endpoint.post_send(qpn, &request).expect("there is room");
        self.step_until(self.now);
        if self.plan.op == Op::Send {
            if self.plan.late_receives {
                let late = self.now + LATENCY * 6;
                while self.now < late {
                    self.step_until(late);
                }
            }
            let sge = self.ends[1].sge(len);
            let qpn = self.ends[1].qpn;
            let request = RecvRequest { wr_id: id, sges: std::slice::from_ref(&sge) };
            self.ends[1].endpoint.post_recv(qpn, &request).expect("there is room");
            self.step_until(self.now);
        }
    }

    fn step(&mut self) {
        self.step_until(Time::MAX);
    }

    /// Advances to the next event, at most to `limit`.
    fn step_until(&mut self, limit: Time) {
        let next = self
            .ends
            .iter()
            .flat_map(|end| [end.inbox.front().map(|frame| frame.0), end.endpoint.poll_timeout()]);
        let next = next.flatten().min().unwrap_or(limit).min(limit);
        assert!(next < Time::MAX, "nothing is in flight and nothing has completed");
        self.now = self.now.max(next);
        for side in [0, 1] {
            self.turn(side);
        }
        self.completed += self.ends[0].poll();
        self.ends[1].poll();
    }

    /// One driver step: receive, time out, transmit.
    fn turn(&mut self, side: usize) {
        let (now, host) = (self.now, PortId::HOST);
        let end = &mut self.ends[side];
        while end.inbox.front().is_some_and(|frame| frame.0 <= now) {
            let (_, len, frame) = end.inbox.pop_front().expect("it was looked at");
            end.endpoint.handle_packet(now, host, &frame[..len], &RxMeta::whole(now));
            self.spare.push(frame);
        }
        if end.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            end.endpoint.handle_timeout(now);
        }
        loop {
            let mut frame = self.spare.pop().expect("as many as can be in flight");
            let Some(meta) = self.ends[side].endpoint.poll_transmit(now, host, &mut frame[..])
            else {
                self.spare.push(frame);
                break;
            };
            match self.plan.loss {
                Loss::OneIn(n) if self.rng.below(n) == 0 => self.spare.push(frame),
                _ => self.ends[1 - side].inbox.push_back((now + LATENCY, meta.len, frame)),
            }
        }
    }
}

const LATENCY: Dur = Dur::from_us(5);
const FRAME: usize = 2048;
const FRAMES: usize = 1024;
