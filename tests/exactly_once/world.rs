//! Engines on both sides of a virtual wire with loss, duplication, delay and corruption, an
//! application on each side, and the model that is compared after every step. A side with several
//! engines hands frames over to them in any order. One seed decides everything.

mod drawn;
mod engines;
mod liveness;
mod posting;
mod wire;

use crate::model::{Finished, Kind, Model, Recv};
use engines::{Engine, Placement};
use liveness::{LivenessBounds, QpProgress};
use posting::{MAILBOX, RECVS, SLOT, config, memory_bytes};
use spanwire_base::{Dur, Node, PortId, Rng, Time, usize_from};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, AsyncEvent, Mtu, QpAttr, QpState, QpnWorkers, SrOptions, SrqId, Wire,
    WireMode,
};
use spanwire_wire::{MacAddr, OpClass, Packet, Psn, Qpn};
use std::collections::BTreeMap;
use wire::Faults;
pub(crate) use wire::Tamper;

/// Two sides, the wire between them and the model.
pub(crate) struct World {
    pub(crate) now: Time,
    rng: Rng,
    wire: Rng,
    /// Draws of erasure coding and load balancing, separate from all others.
    uno: Rng,
    /// Draws of when and which source memory changes.
    change_rng: Rng,
    /// Draws of how long hand-over between engines takes.
    handover_rng: Rng,
    faults: Faults,
    bounds: LivenessBounds,
    /// Messages are small.
    small: bool,
    /// Congestion control sends few packets, slowly.
    is_slow: bool,
    pub(crate) ends: Vec<End>,
    pub(crate) model: Model,
    /// Frames in flight by time of arrival and order of sending.
    flight: BTreeMap<(Time, u64), wire::InFlight>,
    /// Ports compute checksums before bit errors are emulated, as UDP sockets do with `--corrupt`.
    has_checking_ports: bool,
    sent: u64,
    /// Frames that arrived at the queue of another engine.
    pub(crate) handed: u64,
    /// Requests still to be posted.
    budget: u64,
    next_action: Option<Time>,
    /// When a source changes next, and the maximum interval of changes; zero disables them.
    next_change: Time,
    change_every: Dur,
    /// When queue pairs in RTR may go to RTS.
    rts_at: Time,
    /// Until then only receives are posted.
    quiet_until: Time,
    /// Prints each frame.
    pub(crate) is_traced: bool,
    /// A deliberate error that tests expect to be detected.
    pub(crate) tamper: Option<Tamper>,
    /// A deliberate change that tests expect to be detected; called before each comparison.
    pub(crate) sabotage: Option<fn(&mut World)>,
}

/// One side.
pub(crate) struct End {
    /// Several share the memory, as the workers of a process do.
    pub(crate) engines: Vec<Engine>,
    qpns: QpnWorkers,
    /// The shared receive queue, and its engine.
    srq: Option<(usize, SrqId)>,
    pub(crate) region: Region,
    qps: Vec<QpEnd>,
    /// Receive slots not posted.
    free_recvs: Vec<usize>,
    next_recv: u64,
    scratch: Vec<u8>,
}

/// The application of one queue pair.
struct QpEnd {
    qpn: Qpn,
    /// Its engine.
    engine: usize,
    /// Offset of this queue pair's areas in both memories.
    base: usize,
    /// Free slots of the peer's memory for WRITEs, and of the local memory for READ results.
    targets: Vec<usize>,
    results: Vec<usize>,
    /// A region that the peer may invalidate: lkey, and the rkey while the peer has one.
    invalidatable: (u32, Option<u32>),
    draining: bool,
    /// In RTR: the attributes for the transition to RTS.
    rts: Option<QpAttr>,
    progress: QpProgress,
    /// The last request of all is posted.
    last_posted: bool,
}

impl World {
    /// Builds the world of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let [mut rng, mut uno, mut wide] = [0, UNO, WIDE].map(|of| Rng::new(seed ^ of));
        let dead = drawn::dead_paths(&mut uno);
        let is_slow = wide.below(5) == 0;
        // An end in RTR may send few bytes for small messages, so SACK words are truncated.
        let cuts_words = !is_slow && wide.below(20) == 0;
        let mut faults = Faults::drawn(&mut wide, dead, is_slow);
        let mut pick = |of: &[u64]| of[usize_from(rng.below(of.len() as u64))];
        let mtu = [Mtu::B256, Mtu::B256, Mtu::B512][usize_from(pick(&[0, 1, 2]))];
        let qps = usize_from(pick(&[1, 1, 2, 3]));
        let shared = [pick(&[0, 0, 1]) == 1, pick(&[0, 0, 1]) == 1];
        let mut config = config(&mut pick);
        drawn::block_memory(&mut uno, &mut config);
        config.fast_paths = seed.is_multiple_of(2);
        let rd_atomic = u8::try_from(pick(&[1, 2, 4, 16])).expect("small");
        let retry_cnt = u8::try_from(pick(&[7, 7, 7, 1])).expect("small");
        let is_stocked = pick(&[0, 1]) == 1 || cuts_words;
        let rnr_retry =
            if is_stocked { pick(&[7, 7, 0, 0, 1, 3]) } else { pick(&[7, 7, 7, 7, 1, 3]) };
        let rnr_retry = if cuts_words { 0 } else { rnr_retry };
        let rnr_retry = u8::try_from(rnr_retry).expect("small");
        let psns = [pick(&[0, 0xff_fff0, 0x7f_fffc]), pick(&[0, 0xff_fffd, 77])];
        let budget = pick(&[8, 16, 40]) * qps as u64;
        let mode = [WireMode::Rc, WireMode::Sr][usize_from(pick(&[0, 1]).max(cuts_words.into()))];
        let segment = u32::try_from(pick(&[0, 64, 200, 700])).expect("small");
        let bytes = memory_bytes(qps);
        let places = Placement::drawn(seed, qps, shared);
        faults.handover = places.handover(faults.delay);
        let place = |i: u8| End::new(seed, i, &config, shared, &places.sides[usize::from(i)]);
        let ends: Vec<End> = [0, 1].into_iter().map(place).collect();
        let memory = [0, 1].map(|i: usize| {
            let mut bytes = vec![0; bytes];
            rng.fill(&mut bytes);
            ends[i].region.copy_in(0, &bytes).expect("as long as the region");
            bytes
        });
        let is_sr = mode == WireMode::Sr;
        let model = Model::new(mtu.bytes() as usize, is_sr, memory, qps, shared, rnr_retry);
        let (wire, now) = (rng.fork(), Time::ZERO);
        let (flight, sent, next_action) = (BTreeMap::new(), 0, Some(now));
        let sabotage = None;
        let bounds = LivenessBounds {
            mode,
            timeout: faults.timeout(),
            retry_cnt,
            rnr_retry,
            qps: qps as u64,
            has_part_windows: false,
            rtt: faults.longest_rtt(),
            fault_free_rtt: faults.fault_free_rtt(),
        };
        let mut pick = |of: &[u64]| of[usize_from(wide.below(of.len() as u64))];
        let small = pick(&[0, 1]) == 1 && !is_slow || cuts_words;
        let change_every = faults.delay * pick(&[0, 1, 4, 20]);
        let rts_at = now + faults.delay * pick(&[0, 0, 10, 100]).max(100 * u64::from(cuts_words));
        let mut world = Self {
            now,
            rng,
            wire,
            uno,
            change_rng: wide,
            handover_rng: Rng::new(seed ^ HANDOVER),
            faults,
            bounds,
            small,
            is_slow,
            ends,
            model,
            flight,
            // Whether a seed has faults is unchanged by it.
            has_checking_ports: seed.is_multiple_of(2),
            sent,
            handed: 0,
            budget,
            next_action,
            next_change: now,
            change_every,
            rts_at,
            quiet_until: now,
            is_traced: false,
            tamper: None,
            sabotage,
        };
        for q in 0..qps {
            world.connect(q, (mode, mtu, segment), rd_atomic, psns);
        }
        for n in 0..if is_stocked { qps * RECVS } else { 0 } {
            for side in [0, 1] {
                world.post_recv(side, n % qps);
            }
        }
        world
    }

    /// ACKs of an end in RTR may lack SACK words, and one RNR NAK ends a queue pair.
    pub(crate) fn may_lack_sack_words(&self) -> bool {
        let LivenessBounds { mode, rnr_retry, .. } = self.bounds;
        mode == WireMode::Sr && rnr_retry == 0 && self.small && self.rts_at > self.now
    }

    fn connect(&mut self, q: usize, wire: (WireMode, Mtu, u32), rd_atomic: u8, psns: [u64; 2]) {
        let (mode, mtu, segment) = wire;
        let LivenessBounds { timeout, retry_cnt, rnr_retry, .. } = self.bounds;
        let qpns = [self.ends[0].qps[q].qpn, self.ends[1].qps[q].qpn];
        let psns = psns.map(|p| u32::try_from(p).expect("24 bits"));
        let mut mlcc = None;
        for me in [0, 1] {
            let peer = 1 - me;
            self.model.sides[me].qps[q].first_psn = psns[me];
            let ip = |i: usize| [10, 0, 0, u8::try_from(i + 1).expect("two sides")].into();
            let av =
                AddressVector::new(MacAddr::new([2; 6]), MacAddr::new([2; 6]), ip(me), ip(peer));
            let QpAttr { congestion, weight, .. } = drawn::shares(&mut self.rng, self.is_slow);
            self.bounds.has_part_windows |= drawn::has_part_windows(congestion.as_ref());
            let is_sr = mode == WireMode::Sr;
            // Both ends need it, and agree on it.
            let congestion = mlcc.or(congestion);
            mlcc = congestion.filter(|choice| is_sr && choice.wants_credit());
            let (near, credit) = (mlcc.is_some(), mlcc.is_some());
            let erasure = drawn::erasure(&mut self.uno);
            let balance = drawn::balance(&mut self.uno);
            let segment_bytes = (segment > 0).then_some(segment);
            let plain = SrOptions::default();
            let options = SrOptions { segment_bytes, erasure, balance, near, credit, ..plain };
            let rtr = QpAttr {
                max_dest_rd_atomic: Some(rd_atomic),
                min_rnr_timer: Some(3),
                wire: is_sr.then_some(Wire::Sr(options)),
                ..QpAttr::rtr(qpns[peer], Psn::new(psns[peer]), mtu, av)
            };
            let rts = QpAttr {
                max_rd_atomic: Some(rd_atomic),
                timeout: Some(timeout),
                retry_cnt: Some(retry_cnt),
                rnr_retry: Some(rnr_retry),
                congestion,
                weight,
                ..QpAttr::rts(Psn::new(psns[me]))
            };
            for attr in [QpAttr::init(Access::ALL), rtr] {
                self.ends[me].modify_qp(q, &attr);
            }
            self.ends[me].qps[q].rts = Some(rts);
            // In some worlds one side only receives at first.
            if me == 0 || self.rts_at <= self.now {
                self.begin_to_send(me, q);
            }
        }
    }

    /// Moves a queue pair in RTR to RTS, unless it has failed.
    fn begin_to_send(&mut self, side: usize, q: usize) {
        let has_failed = self.model.sides[side].qps[q].failed;
        let end = &mut self.ends[side];
        if let Some(rts) = end.qps[q].rts.take().filter(|_| !has_failed) {
            end.modify_qp(q, &rts);
        }
    }

    /// Runs until all requests have completed.
    ///
    /// # Panics
    /// If an engine violates the model, or the run does not terminate.
    pub(crate) fn run(&mut self) {
        let limit = Time::ZERO + Dur::from_secs(600);
        loop {
            let is_more = [0, 1].map(|side| self.step(side)).contains(&true);
            self.check_alive();
            if self.next_action.is_some_and(|at| at <= self.now) {
                self.act();
                continue;
            }
            let timers = self.ends.iter().flat_map(|end| &end.engines);
            let timers = timers.filter_map(|engine| engine.ep.poll_timeout()).min();
            let timers = match self.tamper {
                Some(Tamper::IgnoreTimers) => timers.map(|at| at.max(self.now + Dur::from_ms(1))),
                _ => timers,
            };
            let frame = self.flight.keys().next().map(|k| k.0);
            let burst = is_more.then(|| self.now + BURST_GAP);
            let next = [timers, frame, self.next_action, burst].into_iter().flatten().min();
            let Some(next) = next else { break };
            assert!(next < limit, "the run does not terminate");
            self.now = self.now.max(next);
            self.change_sources();
        }
        for (side, model) in self.model.sides.iter().enumerate() {
            for (q, qp) in model.qps.iter().enumerate() {
                let all = qp.posted.len();
                assert_eq!(qp.completed, all, "queue pair {q} of side {side} is stuck");
            }
        }
    }

    /// Overwrites sources at the drawn intervals.
    fn change_sources(&mut self) {
        if self.change_every == Dur::ZERO || self.now < self.next_change || !self.needs_finish() {
            return;
        }
        let side = usize_from(self.change_rng.below(2));
        self.change(side);
        let wait = Dur::from_ps(self.change_rng.below(self.change_every.as_ps()));
        self.next_change = self.now + wait;
    }

    /// One driver step: receive one frame, time out, transmit; compares after each. Returns true if
    /// more frames may be sent a little later.
    fn step(&mut self, side: usize) -> bool {
        while let Some((frame, meta)) = self.arrive(side) {
            let end = &mut self.ends[side];
            let whole = Packet::parse(&frame).ok().map(|p| {
                let q = end.qps.iter().position(|q| q.qpn == p.bth.dest_qp);
                (q.expect("sent to one of them"), p)
            });
            if let Some((q, p)) = &whole {
                self.note_received(side, *q);
                self.trace(side, "gets", p);
            }
            let request = whole.filter(|(_, p)| is_request(p));
            if let Some((q, p)) = &request {
                self.model.deliver(side, *q, p);
            }
            let ep = self.ends[side].engine_of(&frame);
            let recovered = ep.counters().ec_rebuilt_packets;
            ep.handle_packet(self.now, PortId::HOST, &frame, &meta);
            let recovered = ep.counters().ec_rebuilt_packets - recovered;
            match &request {
                Some((q, p)) => self.model.recover_sr(side, *q, p, recovered),
                None => assert_eq!(recovered, 0, "no frame arrived"),
            }
            self.settle(side);
        }
        let engines = 0..self.ends[side].engines.len();
        engines.map(|engine| self.step_engine(side, engine)).fold(false, |is_more, of| is_more | of)
    }

    /// The part of a step after the frames: times out and transmits.
    fn step_engine(&mut self, side: usize, engine: usize) -> bool {
        let is_deaf = self.tamper == Some(Tamper::IgnoreTimers);
        let ep = &mut self.ends[side].engines[engine].ep;
        if !is_deaf && ep.poll_timeout().is_some_and(|t| t <= self.now) {
            ep.handle_timeout(self.now);
            self.settle(side);
        }
        let mut frame = [0; 1024];
        let ep = &mut self.ends[side].engines[engine].ep;
        let mut out = Vec::new();
        while out.len() < self.faults.burst
            && let Some(meta) = ep.poll_transmit(self.now, PortId::HOST, &mut frame)
        {
            out.push(frame[..meta.len].to_vec());
        }
        let (sent, is_more) = (!out.is_empty(), out.len() == self.faults.burst);
        for frame in out {
            self.transmit(side, frame);
        }
        if sent {
            self.settle(side);
        }
        is_more
    }

    /// Processes the completions and events of one side, and compares.
    fn settle(&mut self, side: usize) {
        self.poll_completions(side);
        if let Some(sabotage) = self.sabotage {
            sabotage(self);
        }
        self.compare(side);
        self.model.check_deliveries(side);
    }

    fn poll_completions(&mut self, side: usize) {
        while let Some(wc) = self.ends[side].engines.iter_mut().find_map(Engine::poll_cq) {
            let q = self.ends[side].qps.iter().position(|q| q.qpn == wc.qpn);
            let q = q.expect("a completion of one of them");
            if self.is_traced {
                eprintln!("{:?}: {side} completes {wc:?}", self.now);
            }
            self.check_failure(side, q, wc.status);
            let finished = self.model.complete(side, q, &wc);
            // Before any memory is overwritten.
            self.compare(side);
            match finished {
                Finished::Sent { from, to } => self.requests_completed(side, q, from, to),
                Finished::Received { recv, invalidated } => {
                    self.received(side, q, recv, invalidated);
                }
                Finished::Flushed { recv } => self.ends[side].free_recvs.push(recv.at),
                Finished::Failed => {}
            }
        }
        let next = |end: &mut End| end.engines.iter_mut().find_map(|of| of.ep.poll_async_event());
        while let Some(event) = next(&mut self.ends[side]) {
            if self.is_traced {
                eprintln!("{:?}: {side} gets {event:?}", self.now);
            }
            self.on_event(side, event);
        }
    }

    fn compare(&mut self, side: usize) {
        let end = &mut self.ends[side];
        end.region.copy_out(0, &mut end.scratch).expect("as long as the region");
        self.model.check_memory(side, &end.scratch);
    }

    fn on_event(&mut self, side: usize, event: AsyncEvent) {
        match event {
            AsyncEvent::SqDrained(qpn) => {
                let q = self.ends[side].qps.iter().position(|q| q.qpn == qpn);
                let q = q.expect("an event of one of them");
                assert!(std::mem::replace(&mut self.ends[side].qps[q].draining, false));
                self.modify(side, q, QpState::Rts);
            }
            AsyncEvent::LastWqeReached(_) | AsyncEvent::CommEst(_) => {}
            AsyncEvent::QpFatal(qpn) => {
                let q = self.ends[side].qps.iter().position(|q| q.qpn == qpn);
                let q = q.expect("an event of one of them");
                if !self.model.sides[side].qps[q].failed {
                    self.model.fail_responder(side, q);
                }
            }
            other => panic!("side {side}: {other:?}"),
        }
    }

    fn modify(&mut self, side: usize, q: usize, state: QpState) {
        let attr = QpAttr { state: Some(state), ..QpAttr::default() };
        self.ends[side].modify_qp(q, &attr);
    }

    /// Requests have completed: overwrites and frees their slots.
    fn requests_completed(&mut self, side: usize, q: usize, from: usize, to: usize) {
        for i in from..to {
            let m = &self.model.sides[side].qps[q].posted[i];
            let (kind, remote, local, len) = (m.kind, m.remote, m.local, m.data.len());
            let ours = &mut self.ends[side].qps[q];
            match kind {
                Kind::Write | Kind::WriteImm if remote != ours.base + MAILBOX => {
                    ours.targets.push(remote);
                    self.overwrite(1 - side, remote, len);
                }
                Kind::Read | Kind::FetchAdd(_) | Kind::CmpSwap(..) => {
                    ours.results.push(local);
                    self.overwrite(side, local, len);
                }
                _ => {}
            }
        }
    }

    fn received(&mut self, side: usize, q: usize, recv: Recv, invalidated: Option<u32>) {
        self.overwrite(side, recv.at, SLOT);
        let end = &mut self.ends[side];
        end.free_recvs.push(recv.at);
        if invalidated.is_some() {
            let QpEnd { engine, invalidatable: (lkey, rkey), .. } = &mut end.qps[q];
            let ep = &mut end.engines[*engine].ep;
            *rkey = Some(ep.renew_rkey(*lkey).expect("a region of ours"));
        }
    }

    fn overwrite(&mut self, side: usize, at: usize, len: usize) {
        let mut bytes = vec![0; len];
        self.rng.fill(&mut bytes);
        self.ends[side].region.copy_in(at, &bytes).expect("inside");
        self.model.sides[side].overwrite(at, &bytes);
    }

    /// The applications act at random intervals; after the budget is used up, they finish.
    fn act(&mut self) {
        if self.rts_at <= self.now || self.budget == 0 {
            for q in 0..self.ends[1].qps.len() {
                self.begin_to_send(1, q);
            }
        }
        let side = usize_from(self.rng.below(2));
        let q = usize_from(self.rng.below(self.ends[side].qps.len() as u64));
        let alive = !self.model.sides[side].qps[q].failed;
        let alive = alive && self.ends[side].qps[q].rts.is_none();
        match self.rng.below(10) {
            _ if self.budget == 0 => self.finish(),
            _ if self.now < self.quiet_until => self.post_recvs(),
            0..2 => self.post_recv(side, q),
            2 if alive && !self.ends[side].qps[q].draining => {
                self.ends[side].qps[q].draining = true;
                self.modify(side, q, QpState::Sqd);
            }
            // Often several at once.
            _ => {
                for _ in 0..(1 + self.rng.below(4)).min(self.budget) {
                    self.budget -= 1;
                    if alive {
                        self.post_request(side, q);
                    }
                }
            }
        }
        let open = self.budget > 0 || self.needs_finish();
        let is_quiet = self.now < self.quiet_until;
        if self.is_slow && self.budget > 0 && !is_quiet && self.rng.below(12) == 0 {
            // A request that hangs until another is posted is thus detected.
            self.quiet_until = self.now + self.bounds.failure_detection_max() * 2;
        }
        let is_busy = self.budget > 0 && self.quiet_until <= self.now;
        let pause = self.faults.delay * if is_busy { 4 } else { 40 };
        let pause = Dur::from_ps(self.rng.below(pause.as_ps()));
        self.next_action = open.then(|| self.now + pause);
        for side in [0, 1] {
            self.poll_completions(side);
        }
    }

    /// True until every living queue pair has posted its last request and all have completed.
    fn needs_finish(&self) -> bool {
        (0..2).any(|side| {
            let pairs = self.ends[side].qps.iter().zip(&self.model.sides[side].qps);
            pairs
                .into_iter()
                .any(|(e, m)| !m.failed && (!e.last_posted || m.completed < m.posted.len()))
        })
    }

    fn post_recvs(&mut self) {
        for side in [0, 1] {
            for q in 0..self.ends[side].qps.len() {
                self.post_recv(side, q);
            }
        }
    }

    fn finish(&mut self) {
        self.post_recvs();
        for side in [0, 1] {
            for q in 0..self.ends[side].qps.len() {
                let failed = self.model.sides[side].qps[q].failed;
                if !failed && !self.ends[side].qps[q].last_posted {
                    self.ends[side].qps[q].last_posted = true;
                    // Signaled, so that preceding unsignaled ones are known to have completed.
                    self.post_last(side, q);
                }
            }
        }
    }
}

fn is_request(p: &Packet<'_>) -> bool {
    p.bth.opcode.props().class == OpClass::Request
}

/// Separates the draws of erasure coding and load balancing from all others, those of the wire, and
/// those of hand-over.
const UNO: u64 = 0x756e_6f5f_756e_6f5f;
const WIDE: u64 = 0x7769_6465_7769_6465;
const HANDOVER: u64 = 0x6861_6e64_6f76_6572;
/// Interval between bursts of frames.
const BURST_GAP: Dur = Dur::from_ns(100);
