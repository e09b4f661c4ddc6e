//! Runs the engine in the place of a recorded side.

use super::capture::{Capture, Frame, Host, Link};
use super::memory::{Memory, remote_of};
use super::messages::{Message, messages};
use super::packet::{Lane, Logged, Sent};
use super::rewrite::rewrite;
use super::script::{Program, Script};
use spanwire_base::{Dur, Node, PortId, RxMeta, Time};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, Config, Counters, CqId, Endpoint, MemoryRegion, Mtu, PdId, QpAttr,
    QpCaps, QpInit, RecvRequest, Sge, Wc, WorkRequest,
};
use spanwire_wire::{DropReason, OpClass, Opcode, Packet, Psn, Qpn, Service, Syndrome};

/// What came of one side of a capture.
#[derive(Debug)]
pub struct Playback {
    /// The sequences to compare: one for each queue pair and lane in which anything was sent.
    pub lanes: Vec<LaneLog>,
    /// RoCE frames fed to the engine.
    pub fed: usize,
    /// The engine's counters at the end.
    pub counters: Counters,
    /// All completions, in order.
    pub completions: Vec<Wc>,
}

/// What was recorded and what we sent, of one queue pair and one lane.
#[derive(Debug)]
pub struct LaneLog {
    /// The queue pair and its peer's, by their recorded numbers.
    pub link: Link,
    /// Which lane.
    pub lane: Lane,
    /// The recorded side's packets.
    pub recorded: Vec<Logged>,
    /// The engine's.
    pub ours: Vec<Logged>,
}

/// Plays `host` of `capture`.
///
/// Time is the capture's. A work request is posted when its first packet was recorded, and the
/// engine may send one request packet for each recorded one, so that both met the same answers in
/// the same places; what it owes to its peer it may send after each packet that it is given. When
/// the recorded side sent again because its timer fired and ours has not yet, time goes on to our
/// timer: instants are not compared.
///
/// # Panics
/// When the capture does not fit the engine's limits, or data arrived wrong.
#[must_use]
pub fn play(capture: &Capture, host: Host) -> Playback {
    let mut player = Player::new(capture, host);
    for (index, frame) in capture.frames.iter().enumerate() {
        if frame.service != Some(Service::Rc) && frame.from == host {
            continue;
        }
        player.at = index;
        player.advance(frame.at);
        if frame.from == host {
            player.on_recorded(frame);
        } else if !frame.lost {
            player.on_frame(frame);
        }
        player.poll_completions();
    }
    player.run_out();
    player.finish()
}

struct Player<'a> {
    capture: &'a Capture,
    /// Index of our side in the capture's hosts.
    me: usize,
    script: &'a Script,
    ep: Endpoint,
    cq: CqId,
    memory: Memory,
    /// Our own buffers: what is sent from them, what READs bring.
    local: Region,
    local_mr: MemoryRegion,
    local_used: usize,
    conns: Vec<Conn>,
    now: Time,
    /// Index of the frame of the capture that is being played.
    at: usize,
    /// How far the engine's time is ahead of the capture's.
    ahead: Dur,
    fed: usize,
    completions: Vec<Wc>,
}

/// One queue pair.
struct Conn {
    link: Link,
    mtu: u32,
    qpn: Qpn,
    /// What our side asks for, and how many of it are posted.
    messages: Vec<Message>,
    posted: usize,
    /// What the peer asks for.
    peer_messages: Vec<Message>,
    /// Recorded packets of our side, by lane, and how many requests were passed.
    recorded: [Vec<Logged>; 2],
    requests_passed: usize,
    /// The PSN behind the last one of those.
    next_recorded: Psn,
    ours: [Vec<Logged>; 2],
    /// Where the payload of each of our messages is.
    buffers: Vec<Sge>,
    /// Index of the frame before which the late receive requests are posted.
    late_recvs_at: Option<usize>,
}

impl<'a> Player<'a> {
    fn new(capture: &'a Capture, host: Host) -> Self {
        let me = capture.index(host);
        let script = &capture.scripts[me];
        let mut ep = Endpoint::new(Config::default().validate().expect("defaults"), [7; 32]);
        let pd = ep.alloc_pd().expect("a protection domain");
        let cq = ep.create_cq(4096).expect("a completion queue");
        let mut all_peer = Vec::new();
        let links = capture.links();
        let mut conns: Vec<Conn> = links.iter().map(|l| Conn::new(capture, me, *l)).collect();
        for conn in &conns {
            all_peer.extend(conn.peer_messages.iter().cloned());
        }
        let memory = Memory::new(capture, me, &all_peer, &mut ep, pd);
        let local = Region::zeroed(LOCAL_BYTES);
        let local_mr = ep.reg_mr(pd, local.clone(), Access::ALL, None).expect("a region");
        for conn in &mut conns {
            conn.connect(capture, me, &mut ep, pd, cq);
        }
        let mut this = Self {
            capture,
            me,
            script,
            ep,
            cq,
            memory,
            local,
            local_mr,
            local_used: RECV_BYTES,
            conns,
            now: Time::ZERO,
            at: 0,
            ahead: Dur::ZERO,
            fed: 0,
            completions: Vec::new(),
        };
        for i in 0..this.conns.len() {
            let lens = match this.script.program {
                Program::Vprobe { .. } => this.script.recvs.clone(),
                _ => {
                    let needs = this.conns[i].peer_messages.iter().filter(|m| m.takes_recv());
                    needs.map(|m| m.len).collect()
                }
            };
            this.post_recvs(i, &lens);
        }
        this
    }

    /// Lets time pass to the instant `at` of the capture.
    fn advance(&mut self, at: Time) {
        let to = at + self.ahead;
        while let Some(due) = self.ep.poll_timeout().filter(|t| *t <= to) {
            self.now = self.now.max(due);
            self.ep.handle_timeout(self.now);
        }
        self.now = self.now.max(to);
    }

    /// Our side sent `frame` in the capture.
    fn on_recorded(&mut self, frame: &Frame) {
        let sent = frame.packet.as_ref().expect("only the hand-made side sends broken frames");
        let i = self.conn_of(|link, me| link.qpns[1 - me] == Some(frame.dest_qp));
        if sent.lane() != Some(Lane::Requests) {
            return;
        }
        let psn = sent.headers.bth.psn;
        let is_new = self.post_what_begins(i, psn);
        let conn = &mut self.conns[i];
        let goes_back = !is_new && conn.next_recorded != psn;
        conn.next_recorded = psn.plus(conn.span(sent));
        conn.requests_passed += 1;
        let passed = &conn.recorded[Lane::Requests as usize][..conn.requests_passed];
        let want = conn.times(psn, passed);
        let limit = self.now + TIMER_MAX;
        let mut may_wait = goes_back;
        loop {
            let conn = &self.conns[i];
            if conn.times(psn, &conn.ours[Lane::Requests as usize]) >= want {
                break;
            }
            if self.transmit() {
                // One wait for each time that the recorded side went back.
                may_wait &= self.now + TIMER_MAX == limit;
                continue;
            }
            match self.ep.poll_timeout().filter(|t| may_wait && *t <= limit) {
                Some(due) => self.go_to(due),
                None => break,
            }
        }
    }

    fn go_to(&mut self, due: Time) {
        if due > self.now {
            self.ahead = self.ahead + due.since(self.now);
            self.now = due;
        }
        self.ep.handle_timeout(self.now);
    }

    /// The peer sent `frame` in the capture, and it arrived.
    fn on_frame(&mut self, frame: &Frame) {
        let known = self.conns.iter().position(|c| c.link.qpns[self.me] == Some(frame.dest_qp));
        let Some(i) = known else {
            return;
        };
        if self.conns[i].late_recvs_at == Some(self.at) {
            let lens = self.script.late_recvs.clone();
            self.post_recvs(i, &lens);
        }
        let message = self.message_of(i, frame);
        if let Some(message) = &message {
            let conn = &self.conns[i];
            let answers: Vec<&Sent> =
                conn.recorded[Lane::Responses as usize].iter().map(|l| &l.sent).collect();
            if matches!(&frame.packet, Ok(p) if p.headers.bth.psn == message.first) {
                self.memory.learn(message, &answers, self.script.mtu);
            }
        }
        let good = frame.packet != Err(DropReason::BadIcrc);
        let qpn = self.conns[i].qpn;
        let bytes = rewrite(&frame.bytes, qpn, good, |rkey| self.memory.rkey(rkey));
        let messages_before = self.ep.counters().rx_messages;
        self.ep.handle_packet(self.now, PortId::HOST, &bytes, RxMeta { at: self.now });
        self.fed += 1;
        if self.ep.counters().rx_messages > messages_before {
            self.check_arrived(i, frame, &message.expect("it completed a message"));
        }
        let is_request = Opcode::from_u8(bytes[bytes.len().min(bth_offset(&bytes))])
            .is_some_and(|op| op.props().class == OpClass::Request);
        if is_request {
            while self.transmit() {}
        }
    }

    /// The message of the peer that a request packet is part of.
    fn message_of(&self, i: usize, frame: &Frame) -> Option<Message> {
        let sent = frame.packet.as_ref().ok()?;
        if sent.lane() != Some(Lane::Requests) {
            return None;
        }
        let psn = sent.headers.bth.psn;
        let holds = |m: &&Message| psn.distance_from(m.first) < m.pkts;
        self.conns[i].peer_messages.iter().find(holds).cloned()
    }

    /// The bytes of the message that `frame` completed are where they belong.
    fn check_arrived(&self, i: usize, frame: &Frame, message: &Message) {
        let name = &self.capture.name;
        let sent = frame.packet.as_ref().expect("the engine took it");
        // The hand-made requester fills what it sends again with other bytes.
        let whole = sent.headers.bth.opcode.props().first;
        let payload = if whole { &sent.payload } else { &message.payload };
        let there = match remote_of(message) {
            Some((va, rkey)) if message.len > 0 => self.memory.bytes(rkey, va, message.len),
            Some(_) => return,
            None => {
                let sge = self.recv_sge(0);
                let offset = |mr: &MemoryRegion| usize::try_from(sge.addr - mr.addr);
                let mut out = vec![0; payload.len()];
                let (region, mr) = match self.memory.exposed.first() {
                    Some(e) if sge.lkey == e.mr.lkey => (&e.region, &e.mr),
                    _ => (&self.local, &self.local_mr),
                };
                region.copy_out(offset(mr).expect("inside"), &mut out).expect("inside");
                Some(out)
            }
        };
        let psn = message.first;
        assert_eq!(there.as_ref(), Some(payload), "{name} qp {i}: message {psn}");
    }

    /// Lets the engine send one packet, and notes it.
    fn transmit(&mut self) -> bool {
        let mut frame = vec![0; 8192];
        let Some(meta) = self.ep.poll_transmit(self.now, PortId::HOST, &mut frame) else {
            return false;
        };
        let packet = Packet::parse(&frame[..meta.len]).expect("what we send is right");
        let sent = Sent::new(&packet);
        let to = packet.bth.dest_qp;
        let lane = sent.lane().expect("requests and responses only");
        let peer = |c: &&mut Conn| c.link.qpns[1 - self.me].unwrap_or(NOBODY) == to;
        let conn = self.conns.iter_mut().find(peer).expect("to a peer's queue pair");
        conn.ours[lane as usize].push(Logged { at: self.at, sent });
        true
    }

    /// Posts the messages up to the one that begins at `psn`. Returns false when none was left to
    /// post.
    fn post_what_begins(&mut self, i: usize, psn: Psn) -> bool {
        let posted = self.conns[i].posted;
        let begins = self.conns[i].messages.iter().position(|m| m.first == psn);
        while begins.is_some_and(|at| self.conns[i].posted <= at) {
            let (qpn, at) = (self.conns[i].qpn, self.conns[i].posted);
            let message = self.conns[i].messages[at].clone();
            let sge = Sge {
                addr: self.local_mr.addr + spanwire_base::u64_from(self.local_used),
                len: message.len,
                lkey: self.local_mr.lkey,
            };
            self.local.copy_in(self.local_used, &message.payload).expect("enough memory");
            self.local_used += (message.len as usize).next_multiple_of(8);
            let wr_id = spanwire_base::u64_from(at);
            let sges = [sge];
            let mut wr = WorkRequest::new(wr_id, message.op, &sges);
            wr.solicited = message.solicited;
            self.ep.post_send(qpn, &wr).expect("the recorded side could post it");
            self.conns[i].buffers.push(sge);
            self.conns[i].posted += 1;
        }
        self.conns[i].posted > posted
    }

    fn post_recvs(&mut self, i: usize, lens: &[u32]) {
        for (wr_id, len) in (0..).zip(lens) {
            let sge = self.recv_sge(*len);
            let request = RecvRequest { wr_id, sges: &[sge] };
            self.ep.post_recv(self.conns[i].qpn, &request).expect("a receive request");
        }
    }

    /// Where receive requests go: vprobe's to the start of the memory that its peer may write.
    fn recv_sge(&self, len: u32) -> Sge {
        let mr = match (self.script.program, self.memory.exposed.first()) {
            (Program::Vprobe { .. }, Some(e)) => &e.mr,
            _ => &self.local_mr,
        };
        Sge { addr: mr.addr, len, lkey: mr.lkey }
    }

    fn poll_completions(&mut self) {
        while let Some(wc) = self.ep.poll_cq(self.cq).expect("wide enough") {
            self.completions.push(wc);
        }
    }

    /// After the last frame: whatever the engine still wants to do, it does now.
    fn run_out(&mut self) {
        let end = self.now + Dur::from_secs(60);
        loop {
            while self.transmit() {}
            match self.ep.poll_timeout().filter(|t| *t <= end) {
                Some(due) => self.go_to(due),
                None => break,
            }
        }
        self.poll_completions();
    }

    fn finish(self) -> Playback {
        let mut lanes = Vec::new();
        for conn in self.conns {
            let logs = conn.recorded.into_iter().zip(conn.ours);
            for (lane, (recorded, ours)) in [Lane::Requests, Lane::Responses].into_iter().zip(logs)
            {
                if !recorded.is_empty() || !ours.is_empty() {
                    lanes.push(LaneLog { link: conn.link, lane, recorded, ours });
                }
            }
        }
        let counters = self.ep.counters().clone();
        Playback { lanes, fed: self.fed, counters, completions: self.completions }
    }

    fn conn_of(&self, is_it: impl Fn(&Link, usize) -> bool) -> usize {
        let at = self.conns.iter().position(|c| is_it(&c.link, self.me));
        at.unwrap_or_else(|| panic!("{}: a frame of no link", self.capture.name))
    }
}

impl Conn {
    fn new(capture: &Capture, me: usize, link: Link) -> Self {
        let of = |side: usize| -> Vec<(usize, &Frame)> {
            let to = link.qpns[1 - side];
            let frames = capture.frames.iter().enumerate();
            frames
                .filter(|(_, f)| capture.index(f.from) == side && Some(f.dest_qp) == to)
                .filter(|(_, f)| f.service == Some(Service::Rc))
                .collect()
        };
        let parsed = |side: usize, lane: Lane| -> Vec<(usize, &Sent)> {
            let frames =
                of(side).into_iter().filter_map(|(at, f)| Some((at, f.packet.as_ref().ok()?)));
            let in_default_partition = |s: &Sent| s.headers.bth.pkey & 0x7fff == 0x7fff;
            frames.filter(|(_, s)| s.lane() == Some(lane) && in_default_partition(s)).collect()
        };
        let requests = |side| -> Vec<&Sent> {
            parsed(side, Lane::Requests).into_iter().map(|(_, sent)| sent).collect()
        };
        let mtu = capture.scripts[me].mtu;
        let own = |lane| {
            let logged = |(at, sent): (usize, &Sent)| Logged { at, sent: sent.clone() };
            parsed(me, lane).into_iter().map(logged).collect()
        };
        Self {
            link,
            mtu,
            qpn: NOBODY,
            messages: messages(&requests(me), mtu),
            posted: 0,
            peer_messages: messages(&requests(1 - me), mtu),
            recorded: [own(Lane::Requests), own(Lane::Responses)],
            requests_passed: 0,
            next_recorded: Psn::new(0),
            ours: [Vec::new(), Vec::new()],
            buffers: Vec::new(),
            late_recvs_at: late_recvs_at(&of(me), &of(1 - me)),
        }
    }

    /// PSNs that a request packet takes.
    fn span(&self, sent: &Sent) -> u32 {
        match (sent.headers.bth.opcode, sent.headers.ext.reth) {
            (Opcode::RcReadRequest, Some(reth)) => reth.dma_len.div_ceil(self.mtu).max(1),
            _ => 1,
        }
    }

    /// How many of `requests` are, or ask for, the packet `psn`.
    fn times(&self, psn: Psn, requests: &[Logged]) -> usize {
        let is_in = |l: &&Logged| psn.distance_from(l.sent.headers.bth.psn) < self.span(&l.sent);
        requests.iter().filter(is_in).count()
    }

    /// Makes our queue pair and connects it to the recorded peer's.
    fn connect(&mut self, capture: &Capture, me: usize, ep: &mut Endpoint, pd: PdId, cq: CqId) {
        let caps = QpCaps { max_send_wr: 512, max_recv_wr: 512, ..QpCaps::default() };
        let init = QpInit::new(pd, cq, cq, caps);
        self.qpn = ep.create_qp(&init).expect("a queue pair");
        let script = &capture.scripts[me];
        let mtu = Mtu::from_bytes(script.mtu).expect("a path MTU");
        let first = |side: &[Message]| side.first().map_or(Psn::new(0), |m| m.first);
        let av = self.way(capture, me);
        let dest = self.link.qpns[1 - me].unwrap_or(NOBODY);
        let rtr = QpAttr {
            max_dest_rd_atomic: Some(script.rd_atomic),
            min_rnr_timer: Some(script.min_rnr_timer),
            ..QpAttr::rtr(dest, first(&self.peer_messages), mtu, av)
        };
        let rts = QpAttr {
            max_rd_atomic: Some(script.rd_atomic),
            timeout: Some(script.timeout),
            retry_cnt: Some(script.retry_cnt),
            rnr_retry: Some(script.rnr_retry),
            ..QpAttr::rts(first(&self.messages))
        };
        for attr in [QpAttr::init(Access::ALL), rtr, rts] {
            ep.modify_qp(self.qpn, &attr).expect("a transition");
        }
    }

    /// The way our side's packets went, or the peer's the other way round.
    fn way(&self, capture: &Capture, me: usize) -> AddressVector {
        let own = self.recorded.iter().flatten().next();
        let peer = capture.frames.iter().find(|f| capture.index(f.from) != me);
        match (own, peer) {
            (Some(logged), _) => {
                let h = &logged.sent.headers;
                AddressVector {
                    src_mac: h.eth.src,
                    dst_mac: h.eth.dst,
                    src_ip: h.ip.src(),
                    dst_ip: h.ip.dst(),
                    udp_src_port: Some(h.udp.src_port),
                    traffic_class: h.ip.dscp_ecn(),
                    hop_limit: HOP_LIMIT,
                }
            }
            (None, Some(frame)) => {
                let h = &frame.packet.as_ref().expect("a good frame").headers;
                AddressVector {
                    src_mac: h.eth.dst,
                    dst_mac: h.eth.src,
                    src_ip: h.ip.dst(),
                    dst_ip: h.ip.src(),
                    udp_src_port: None,
                    traffic_class: 0,
                    hop_limit: HOP_LIMIT,
                }
            }
            (None, None) => panic!("{}: nobody sends", capture.name),
        }
    }
}

/// The recorded side posted more receive requests after its last RNR NAK: before the frame that
/// brings the refused packet again.
fn late_recvs_at(own: &[(usize, &Frame)], peer: &[(usize, &Frame)]) -> Option<usize> {
    let rnr = own.iter().rev().find_map(|(index, frame)| {
        let sent = frame.packet.as_ref().ok()?;
        let refused = matches!(sent.syndrome(), Some(Syndrome::RnrNak { .. }));
        refused.then_some((*index, sent.headers.bth.psn))
    });
    let (after, psn) = rnr?;
    let again = |f: &Frame| f.packet.as_ref().is_ok_and(|s| s.headers.bth.psn == psn);
    peer.iter().find(|(index, f)| *index > after && again(f)).map(|(index, _)| *index)
}

fn bth_offset(frame: &[u8]) -> usize {
    14 + 8 + if frame[14] >> 4 == 4 { 20 } else { 40 }
}

/// Feeds every frame of another transport service than RC to the endpoint of `host`, once to a
/// queue pair of ours that is connected to the sender and once to the number it bears, and says
/// how many there were, and the counters.
///
/// # Panics
/// When the engine answers one of them.
#[must_use]
pub fn play_other_transport(capture: &Capture, host: Host) -> (usize, Counters) {
    let me = capture.index(host);
    let mut ep = Endpoint::new(Config::default().validate().expect("defaults"), [7; 32]);
    let pd = ep.alloc_pd().expect("a protection domain");
    let cq = ep.create_cq(16).expect("a completion queue");
    let mut conn = Conn::new(capture, me, Link { qpns: [None; 2] });
    conn.connect(capture, me, &mut ep, pd, cq);
    let others = capture
        .frames
        .iter()
        .filter(|f| f.from != host && matches!(f.service, Some(Service::Uc | Service::Ud)));
    let mut fed = 0;
    for frame in others {
        let meta = RxMeta { at: frame.at };
        for bytes in [rewrite(&frame.bytes, conn.qpn, true, |key| key), frame.bytes.clone()] {
            ep.handle_packet(frame.at, PortId::HOST, &bytes, meta);
        }
        fed += 1;
        let mut out = vec![0; 8192];
        let answer = ep.poll_transmit(frame.at, PortId::HOST, &mut out);
        assert_eq!(answer, None, "{}: an answer to another service", capture.name);
    }
    (fed, ep.counters().clone())
}

/// Bytes for our own buffers; the first of them take what is received.
const LOCAL_BYTES: usize = 4 << 20;
const RECV_BYTES: usize = 1 << 16;
/// Nobody's number: for a queue pair to which nothing was ever sent.
const NOBODY: Qpn = Qpn::new(0x3f_ffff);
/// What rxe sends (the route's).
const HOP_LIMIT: u8 = 64;
/// Longer than four timeouts of any capture but those that never wait (2^18 * 4.096 us is 1.07 s).
const TIMER_MAX: Dur = Dur::from_secs(2);
