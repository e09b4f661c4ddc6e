//! A replay: the engine in place of a recorded side.

use super::capture::{Capture, Frame, Host, Link};
use super::conn::{Conn, UNUSED_QPN, linux_src_port};
use super::memory::{Memory, remote_of};
use super::messages::Message;
use super::packet::{Lane, Logged, Sent};
use super::rewrite::rewrite;
use super::script::{Program, Script};
use spanwire_base::{Dur, Node, PortId, RxMeta, Time};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, Config, Counters, CqId, Endpoint, MemoryRegion, RecvRequest, Sge, Wc, WcOpcode,
    WcStatus, WorkRequest,
};
use spanwire_wire::{DropReason, Opcode, Packet, Psn, Service};

/// The result of replaying one side of a capture.
#[derive(Debug)]
pub struct Playback {
    /// The sequences to compare: one for each queue pair and lane with packets.
    pub lanes: Vec<LaneLog>,
    /// RoCE frames fed to the engine.
    pub fed: usize,
    /// Work requests posted to send queues.
    pub requests_posted: usize,
    /// How often the clock advanced to a timer of ours to match a recorded retransmission.
    pub clock_moves: usize,
    /// The engine's counters at the end.
    pub counters: Counters,
    /// All completions, in order.
    pub completions: Vec<Wc>,
}

/// The recorded packets and ours, of one queue pair and one lane.
#[derive(Debug)]
pub struct LaneLog {
    /// The queue pair and its peer's, by their recorded numbers.
    pub link: Link,
    /// The lane.
    pub lane: Lane,
    /// The recorded side's packets.
    pub recorded: Vec<Logged>,
    /// The engine's packets.
    pub ours: Vec<Logged>,
}

/// When the engine may send responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// After each received packet, as on a slow link.
    Packets,
    /// After all consecutive packets of the recorded peer, as on a busy one.
    Bursts,
}

/// Replays `host` of `capture`.
///
/// Time is the capture's. A work request is posted when its first packet was recorded. The engine
/// may send one request packet for each recorded one, so that both meet the same responses in the
/// same places; it sends responses at the `pace`. If the recorded side retransmitted by a timer
/// that has not expired in our engine, time advances to our timer: instants are not compared.
/// `fast_paths` as in [`Config::fast_paths`].
///
/// # Panics
/// If the capture does not fit the engine's limits, or data arrived wrong.
#[must_use]
pub fn play(capture: &Capture, host: Host, pace: Pace, fast_paths: bool) -> Playback {
    let mut player = Player::new(capture, host, pace, fast_paths);
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
    player.drain();
    player.finish()
}

struct Player<'a> {
    capture: &'a Capture,
    /// Index of our side in the capture's hosts.
    me: usize,
    script: &'a Script,
    pace: Pace,
    ep: Endpoint,
    cq: CqId,
    memory: Memory,
    /// Our own buffers: sources of sends, targets of READs.
    local: Region,
    local_mr: MemoryRegion,
    local_used: usize,
    conns: Vec<Conn>,
    now: Time,
    /// Index of the frame of the capture that is being replayed.
    at: usize,
    /// Difference between the engine's time and the capture's.
    ahead: Dur,
    fed: usize,
    clock_moves: usize,
    completions: Vec<Wc>,
}

impl<'a> Player<'a> {
    fn new(capture: &'a Capture, host: Host, pace: Pace, fast_paths: bool) -> Self {
        let me = capture.index(host);
        let script = &capture.scripts[me];
        let config = Config { fast_paths, ..Config::default() };
        let mut ep = Endpoint::new(config.validate().expect("defaults"), [7; 32]);
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
            pace,
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
            clock_moves: 0,
            completions: Vec::new(),
        };
        for i in 0..this.conns.len() {
            let lens = match this.script.program {
                Program::Vprobe { .. } => this.script.recvs.clone(),
                _ => {
                    let needs = this.conns[i].peer_messages.iter().filter(|m| m.consumes_recv());
                    needs.map(|m| m.len).collect()
                }
            };
            this.post_recvs(i, &lens);
        }
        this
    }

    /// Advances time to the instant `at` of the capture.
    fn advance(&mut self, at: Time) {
        let to = at + self.ahead;
        while let Some(due) = self.ep.poll_timeout().filter(|t| *t <= to) {
            self.now = self.now.max(due);
            self.ep.handle_timeout(self.now);
        }
        self.now = self.now.max(to);
    }

    /// Handles a frame that our side sent in the capture.
    fn on_recorded(&mut self, frame: &Frame) {
        let sent = frame.packet.as_ref().expect("only the hand-made side sends broken frames");
        let i = self.find_conn(|link, me| link.qpns[1 - me] == Some(frame.dest_qp));
        if sent.lane() != Some(Lane::Requests) {
            return;
        }
        let psn = sent.headers.bth.psn;
        let is_new = self.post_up_to(i, psn);
        let conn = &mut self.conns[i];
        let goes_back = !is_new && conn.next_recorded != psn;
        conn.next_recorded = psn.plus(conn.span(sent));
        conn.requests_passed += 1;
        let passed = &conn.recorded[Lane::Requests as usize][..conn.requests_passed];
        let want = conn.times(psn, passed);
        self.send(i, psn, want, goes_back);
    }

    /// Lets the engine send until it has sent `psn` for the `want`th time, or has nothing to send.
    /// If `may_wait`, time advances until its timer makes it send.
    fn send(&mut self, i: usize, psn: Psn, want: usize, mut may_wait: bool) {
        let start = self.now;
        loop {
            let conn = &self.conns[i];
            if conn.times(psn, &conn.ours[Lane::Requests as usize]) >= want {
                break;
            }
            if self.transmit() {
                self.clock_moves += usize::from(may_wait && self.now > start);
                may_wait &= self.now == start;
                continue;
            }
            match self.ep.poll_timeout().filter(|t| may_wait && *t <= start + TIMER_MAX) {
                Some(due) => self.advance_to(due),
                None => break,
            }
        }
    }

    /// Advances time to a deadline of the engine, ahead of the capture's time.
    fn advance_to(&mut self, due: Time) {
        if due > self.now {
            self.ahead = self.ahead + due.since(self.now);
            self.now = due;
        }
        self.ep.handle_timeout(self.now);
    }

    /// Handles a frame of the peer that arrived.
    fn on_frame(&mut self, frame: &Frame) {
        let known = self.conns.iter().position(|c| c.link.qpns[self.me] == Some(frame.dest_qp));
        let Some(i) = known else {
            return;
        };
        if self.conns[i].late_recvs_before == Some(self.at) {
            let lens = self.script.late_recvs.clone();
            self.post_recvs(i, &lens);
        }
        let conn = &self.conns[i];
        let message = frame.packet.as_ref().ok().and_then(|sent| conn.peer_message(sent)).cloned();
        if let Some(message) = &message {
            let answers: Vec<&Sent> =
                conn.recorded[Lane::Responses as usize].iter().map(|l| &l.sent).collect();
            if matches!(&frame.packet, Ok(sent) if sent.psn() == message.first) {
                self.memory.derive_content(message, &answers, self.script.mtu);
            }
        }
        let good = frame.packet != Err(DropReason::BadIcrc);
        let qpn = self.conns[i].qpn;
        let bytes = rewrite(&frame.bytes, qpn, good, |rkey| self.memory.rkey(rkey));
        let messages_before = self.ep.counters().rx_messages;
        self.ep.handle_packet(self.now, PortId::HOST, &bytes, &RxMeta::whole(self.now));
        self.fed += 1;
        if self.ep.counters().rx_messages > messages_before {
            self.check_arrived(i, frame, &message.expect("it completed a message"));
        }
        let is_response =
            frame.packet.as_ref().is_ok_and(|sent| sent.lane() == Some(Lane::Responses));
        let waits = self.pace == Pace::Bursts && self.peer_continues();
        if !is_response && !waits {
            while self.transmit() {}
        }
    }

    /// True if the next frame of the capture is also the peer's.
    fn peer_continues(&self) -> bool {
        let me = self.capture.hosts[self.me];
        self.capture.frames.get(self.at + 1).is_some_and(|f| f.from != me)
    }

    /// Checks that the bytes of the message that `frame` completed are in place.
    fn check_arrived(&self, i: usize, frame: &Frame, message: &Message) {
        let name = &self.capture.name;
        let sent = frame.packet.as_ref().expect("the engine took it");
        // The hand-made requester retransmits with other bytes.
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

    /// Lets the engine send one packet, and logs it.
    fn transmit(&mut self) -> bool {
        let mut frame = vec![0; 8192];
        let Some(meta) = self.ep.poll_transmit(self.now, PortId::HOST, &mut frame) else {
            return false;
        };
        let packet = Packet::parse(&frame[..meta.len]).expect("what we send is right");
        if packet.bth.opcode == Opcode::Cnp {
            // A capture's traffic class may include CE marks. rxe ignores them; our engine sends
            // CNPs.
            return true;
        }
        let mut sent = Sent::new(&packet);
        let to = packet.bth.dest_qp;
        let lane = sent.lane().expect("requests and responses only");
        let peer = |c: &&mut Conn| c.link.qpns[1 - self.me].unwrap_or(UNUSED_QPN) == to;
        let conn = self.conns.iter_mut().find(peer).expect("to a peer's queue pair");
        // Linux derives the source port from both queue pair numbers: our packets have the one of
        // our numbers, which is replaced by the recorded one.
        if sent.headers.udp.src_port == linux_src_port(conn.qpn, to) {
            sent.headers.udp.src_port =
                conn.link.qpns[self.me].map_or(0, |own| linux_src_port(own, to));
        }
        conn.ours[lane as usize].push(Logged { at: self.at, sent });
        true
    }

    /// Posts the messages up to the one that begins at `psn`. Returns false if none was left to
    /// post.
    fn post_up_to(&mut self, i: usize, psn: Psn) -> bool {
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

    /// The buffer of receive requests: vprobe's are at the start of the memory that its peer may
    /// write.
    fn recv_sge(&self, len: u32) -> Sge {
        let mr = match (self.script.program, self.memory.exposed.first()) {
            (Program::Vprobe { .. }, Some(e)) => &e.mr,
            _ => &self.local_mr,
        };
        Sge { addr: mr.addr, len, lkey: mr.lkey }
    }

    fn poll_completions(&mut self) {
        while let Some(wc) = self.ep.poll_cq(self.cq).expect("wide enough") {
            let fetched =
                matches!(wc.opcode, WcOpcode::RdmaRead | WcOpcode::FetchAdd | WcOpcode::CompSwap);
            if fetched && wc.status == WcStatus::Success {
                self.check_result(&wc);
            }
            self.completions.push(wc);
        }
    }

    /// Checks that the result of a READ or an atomic is in our buffer.
    fn check_result(&self, wc: &Wc) {
        let conn = self.conns.iter().find(|c| c.qpn == wc.qpn).expect("our queue pair");
        let at = spanwire_base::usize_from(wc.wr_id);
        let (message, sge) = (&conn.messages[at], &conn.buffers[at]);
        let offset = spanwire_base::usize_from(sge.addr - self.local_mr.addr);
        let mut there = vec![0; sge.len as usize];
        self.local.copy_out(offset, &mut there).expect("inside");
        let name = &self.capture.name;
        assert_eq!(Some(there), conn.result_of(message), "{name}: {:?}", message.op);
    }

    /// Lets the engine finish after the last frame.
    fn drain(&mut self) {
        let end = self.now + Dur::from_secs(60);
        loop {
            while self.transmit() {}
            match self.ep.poll_timeout().filter(|t| *t <= end) {
                Some(due) => self.advance_to(due),
                None => break,
            }
        }
        self.poll_completions();
    }

    fn finish(self) -> Playback {
        let Self { conns, ep, fed, clock_moves, completions, .. } = self;
        let requests_posted = conns.iter().map(|c| c.posted).sum();
        let mut lanes = Vec::new();
        for conn in conns {
            let link = conn.link;
            let logs = conn.recorded.into_iter().zip(conn.ours);
            for (lane, (recorded, ours)) in [Lane::Requests, Lane::Responses].into_iter().zip(logs)
            {
                if !recorded.is_empty() || !ours.is_empty() {
                    lanes.push(LaneLog { link, lane, recorded, ours });
                }
            }
        }
        let counters = ep.counters().clone();
        Playback { lanes, fed, requests_posted, clock_moves, counters, completions }
    }

    fn find_conn(&self, matches: impl Fn(&Link, usize) -> bool) -> usize {
        let at = self.conns.iter().position(|c| matches(&c.link, self.me));
        at.unwrap_or_else(|| panic!("{}: a frame of no link", self.capture.name))
    }
}

/// Passes every frame of a transport service other than RC to the endpoint of `host`: once to a
/// queue pair connected to the sender, once to the recorded number. Returns the number of frames,
/// and the counters.
///
/// # Panics
/// If the engine responds to one of them.
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
        let meta = RxMeta::whole(frame.at);
        for bytes in [rewrite(&frame.bytes, conn.qpn, true, |key| key), frame.bytes.clone()] {
            ep.handle_packet(frame.at, PortId::HOST, &bytes, &meta);
        }
        fed += 1;
        let mut out = vec![0; 8192];
        let answer = ep.poll_transmit(frame.at, PortId::HOST, &mut out);
        assert_eq!(answer, None, "{}: a response to another service", capture.name);
    }
    (fed, ep.counters().clone())
}

/// Bytes of our own buffers; the first of them are for receives.
const LOCAL_BYTES: usize = 4 << 20;
const RECV_BYTES: usize = 1 << 16;
/// Above four timeouts of any capture except those that never wait (2^18 * 4.096 us is 1.07 s).
const TIMER_MAX: Dur = Dur::from_secs(2);
