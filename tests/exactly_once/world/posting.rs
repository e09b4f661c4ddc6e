//! Posting: every operation, of any size that a slot takes.

use super::engines::{Engine, SidePlacement};
use super::{End, QpEnd, QpProgress, World};
use crate::model::{Kind, Message, Recv, Source};
use spanwire_base::usize_from;
use spanwire_mem::Region;
use spanwire_transport::{
    Access, Config, MemoryRegion, QpCaps, QpInit, RecvRequest, RemoteAddr, Sge, SrqInit,
    WorkRequest, WrOp,
};

impl World {
    pub(super) fn post_recv(&mut self, side: usize, q: usize) {
        let model = &self.model.sides[side].qps[q];
        // A separate receive queue gets only its share of the slots.
        let own_is_full = model.failed || model.recvs.len() >= RECVS - 1;
        if self.ends[side].srq.is_none() && own_is_full {
            return;
        }
        let end = &mut self.ends[side];
        let Some(at) = end.free_recvs.pop() else {
            return;
        };
        let wr_id = end.next_recv;
        end.next_recv += 1;
        let engine = end.srq.map_or(end.qps[q].engine, |(engine, _)| engine);
        let Engine { ep, mr, .. } = &mut end.engines[engine];
        let sges = split(mr, at, SLOT, 1 + usize_from(self.rng.below(3)));
        let (request, recv) = (RecvRequest { wr_id, sges: &sges }, Recv { wr_id, at });
        match (end.srq, &mut self.model.sides[side]) {
            (Some((_, srq)), model) => {
                ep.post_srq_recv(srq, &request).expect("there is room");
                model.srq.as_mut().expect("it has one too").push_back(recv);
            }
            (None, model) => {
                ep.post_recv(end.qps[q].qpn, &request).expect("there is room");
                model.qps[q].recvs.push_back(recv);
            }
        }
    }

    /// Posts one request of a random kind, if a slot for it is free.
    pub(super) fn post_request(&mut self, side: usize, q: usize) {
        let model = &self.model.sides[side].qps[q];
        if model.posted.len() - model.completed >= MAX_OUTSTANDING {
            return;
        }
        let kind = match self.rng.below(12) {
            0..3 => Kind::Send,
            3..5 => Kind::Write,
            5..7 => Kind::WriteImm,
            7..9 => Kind::Read,
            9..11 => Kind::FetchAdd(self.rng.next_u64()),
            _ => return self.post_mail(side, q),
        };
        let kind = match kind {
            // The comparison sometimes succeeds: few values, and unwritten words are zero.
            Kind::FetchAdd(v) if v % 4 == 0 => Kind::CmpSwap(v / 4 % 3, v / 16 % 3),
            Kind::FetchAdd(v) if v % 4 == 1 => Kind::FetchAdd(v % 3),
            kind => kind,
        };
        let Some(m) = self.draft(side, q, kind) else {
            return;
        };
        // Inline data are copied now and do not change with their source.
        let inline = m.data.len() <= INLINE_BYTES && self.rng.below(3) == 0;
        let source = m.source.filter(|_| !inline);
        self.post(side, q, Message { source, ..m }, false);
    }

    /// The last request of a queue pair: signaled, and followed by no other.
    pub(super) fn post_last(&mut self, side: usize, q: usize) {
        let remote = self.ends[side].qps[q].base + MAILBOX;
        let m = Message { remote, ..self.message(Kind::Write) };
        self.post(side, q, Message { signaled: true, ..m }, false);
    }

    /// A WRITE to the mailbox, which holds the last one's data. A WRITE after READs is fenced, so
    /// that their results are certain.
    fn post_mail(&mut self, side: usize, q: usize) {
        let remote = self.ends[side].qps[q].base + MAILBOX;
        if self.rng.below(2) == 0 {
            let data = self.source(side, q, MAILBOX_BYTES).1;
            let m = Message { remote, data, ..self.message(Kind::Write) };
            self.post(side, q, m, true);
        } else if let Some(local) = self.ends[side].qps[q].results.pop() {
            let data = vec![0; MAILBOX_BYTES];
            let m = Message { remote, local, data, ..self.message(Kind::Read) };
            self.post(side, q, m, false);
        }
    }

    fn message(&mut self, kind: Kind) -> Message {
        let (signaled, solicited) = (self.rng.below(4) > 0, self.rng.below(4) == 0);
        let (imm, invalidates) = (None, None);
        let data = Vec::new();
        let (first, pkts, remote, local, source) = (0, 0, 0, 0, None);
        Message {
            kind,
            signaled,
            solicited,
            first,
            pkts,
            data,
            source,
            remote,
            local,
            imm,
            invalidates,
        }
    }

    /// A request of `kind` with its slots and bytes; `None` if no slot is free.
    fn draft(&mut self, side: usize, q: usize, kind: Kind) -> Option<Message> {
        let len = match self.rng.below(3) {
            0 => usize_from(self.rng.below(40)),
            _ if self.small => 1 + usize_from(self.rng.below(SMALL_BYTES)),
            1 => self.model.mtu * usize_from(self.rng.below(3)),
            _ => usize_from(self.rng.below(SLOT as u64 + 1)),
        };
        let base = self.ends[side].qps[q].base;
        let mut m = self.message(kind);
        match kind {
            Kind::Send => {
                (m.source, m.data) = self.source(side, q, len);
                m.imm = (self.rng.below(3) == 0).then_some(0xfeed_0000 | 7);
                let key = &mut self.ends[1 - side].qps[q].invalidatable.1;
                if m.imm.is_none() && self.rng.below(4) == 0 {
                    m.invalidates = key.take();
                }
            }
            Kind::Write | Kind::WriteImm => {
                m.remote = self.ends[side].qps[q].targets.pop()?;
                (m.source, m.data) = self.source(side, q, len);
                m.imm = (kind == Kind::WriteImm).then_some(0xbeef_0000 | 9);
            }
            Kind::Read => {
                m.local = self.ends[side].qps[q].results.pop()?;
                m.data = vec![0; len];
                m.remote = base + usize_from(self.rng.below((SOURCE_BYTES - len + 1) as u64));
            }
            Kind::FetchAdd(_) | Kind::CmpSwap(..) => {
                m.local = self.ends[side].qps[q].results.pop()?;
                m.data = vec![0; 8];
                m.remote = 8 * usize_from(self.rng.below(WORDS as u64));
            }
        }
        Some(m)
    }

    /// `len` bytes of a source, which may change from now on: location and present value.
    fn source(&mut self, side: usize, q: usize, len: usize) -> (Option<Source>, Vec<u8>) {
        let room = (SOURCE_BYTES - len + 1) as u64;
        let at = self.ends[side].qps[q].base + usize_from(self.rng.below(room));
        let since = self.model.history[side].len();
        let data = self.model.sides[side].memory[at..at + len].to_vec();
        (Some(Source { side, at, since }), data)
    }

    /// An application overwrites a part of a source of either side's requests.
    pub(super) fn change(&mut self, side: usize) {
        let q = usize_from(self.change_rng.below(self.ends[side].qps.len() as u64));
        let len = 1 + usize_from(match self.change_rng.below(4) {
            0 => self.change_rng.below(SOURCE_BYTES as u64),
            _ => self.change_rng.below(16),
        });
        let room = (SOURCE_BYTES - len + 1) as u64;
        let at = qp_base(q) + usize_from(self.change_rng.below(room));
        let mut bytes = vec![0; len];
        self.change_rng.fill(&mut bytes);
        self.ends[side].region.copy_in(at, &bytes).expect("inside");
        self.model.change(side, at, &bytes);
    }

    /// Posts a request. One without a source carries its bytes inline.
    fn post(&mut self, side: usize, q: usize, m: Message, fence: bool) {
        let peer = &self.ends[1 - side];
        let (main, other) = (peer.engines[peer.qps[q].engine].mr, peer.qps[q].invalidatable.1);
        let rkey = match other {
            // Both keys refer to the same memory.
            Some(other) if matches!(m.kind, Kind::Write | Kind::WriteImm) && !fence => other,
            _ => main.rkey.expect("registered for remote access"),
        };
        let remote = RemoteAddr { va: main.addr + m.remote as u64, rkey };
        let op = operation(&m, remote);
        let wr_id = self.model.sides[side].qps[q].posted.len() as u64;
        let parts = 1 + usize_from(self.rng.below(4));
        let end = &mut self.ends[side];
        let expect_result = matches!(m.kind, Kind::Read | Kind::FetchAdd(_) | Kind::CmpSwap(..));
        let at = if expect_result { Some(m.local) } else { m.source.map(|s| s.at) };
        let Engine { ep, mr, .. } = &mut end.engines[end.qps[q].engine];
        let sges = at.map_or(Vec::new(), |at| split(mr, at, m.data.len(), parts));
        let mut wr = match at {
            None => WorkRequest::inline(wr_id, op, &m.data),
            Some(_) => WorkRequest::new(wr_id, op, &sges),
        };
        (wr.signaled, wr.solicited, wr.fence) = (m.signaled, m.solicited, fence);
        ep.post_send(end.qps[q].qpn, &wr).expect("there is room");
        self.model.post(side, q, m);
    }
}

impl End {
    pub(super) fn new(
        seed: u64,
        i: u8,
        config: &Config,
        shared: [bool; 2],
        place: &SidePlacement,
    ) -> Self {
        let qps = place.of_qps.len();
        let bytes = memory_bytes(qps);
        let region = Region::zeroed(bytes);
        let iova = Some(0x5000_0000 * (u64::from(i) + 1));
        let engine = |worker| {
            let mut key = [i; 32];
            key[..8].copy_from_slice(&seed.to_le_bytes());
            let config = Config { worker, workers: place.engines, ..config.clone() };
            Engine::new(config, key, &region, iova)
        };
        let mut engines: Vec<Engine> = (0..place.engines).map(engine).collect();
        let srq = shared[usize::from(i)].then(|| {
            let Engine { ep, pd, .. } = &mut engines[place.of_qps[0]];
            let max_wr = u32::try_from(RECVS * qps).expect("small");
            let init = SrqInit { pd: *pd, max_wr, max_sge: 4 };
            (place.of_qps[0], ep.create_srq(&init).expect("room for it"))
        });
        let caps = QpCaps {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: u32::try_from(INLINE_BYTES).expect("small"),
        };
        let slots = |base: usize, n| (0..n).map(|i| base + i * SLOT).collect::<Vec<_>>();
        let qp_ends: Vec<QpEnd> = (0..qps)
            .map(|q| {
                let engine = place.of_qps[q];
                let Engine { ep, pd, cq, .. } = &mut engines[engine];
                let (pd, cq, srq) = (*pd, *cq, srq.map(|(_, srq)| srq));
                let init = QpInit { srq, ..QpInit::new(pd, cq, cq, caps) };
                let access = Access::ALL.and(Access::REMOTE_INVALIDATE);
                let other = ep.reg_mr(pd, region.clone(), access, iova).expect("room for it");
                let base = qp_base(q);
                QpEnd {
                    qpn: ep.create_qp(&init).expect("room for it"),
                    engine,
                    base,
                    targets: slots(base + TARGETS_AT, TARGETS),
                    results: slots(base + RESULTS_AT, RESULTS),
                    invalidatable: (other.lkey, other.rkey),
                    draining: false,
                    rts: None,
                    progress: QpProgress::default(),
                    last_posted: false,
                }
            })
            .collect();
        let free_recvs = (0..qps).flat_map(|q| slots(qp_base(q) + RECVS_AT, RECVS)).collect();
        let (scratch, qpns) = (vec![0; bytes], engines[0].ep.config().qpn_workers());
        Self { engines, qpns, srq, region, qps: qp_ends, free_recvs, next_recv: 0, scratch }
    }
}

/// Limits that are often reached.
pub(super) fn config(pick: &mut impl FnMut(&[u64]) -> u64) -> Config {
    let mut small = |of: &[u64]| u32::try_from(pick(of)).expect("small");
    let qp_window_pkts = small(&[1, 2, 3, 4, 8, 32, 192, 192]);
    let ack_req_interval_pkts = small(&[1, 4, 16]).min(qp_window_pkts);
    let read_chunk_pkts = small(&[1, 2, 32]).min(qp_window_pkts - (ack_req_interval_pkts - 1));
    let endpoint_window_pkts = qp_window_pkts + read_chunk_pkts + small(&[0, 32]);
    Config {
        qp_window_pkts,
        ack_req_interval_pkts,
        read_chunk_pkts,
        endpoint_window_pkts,
        turn_bytes: small(&[1024, 4096, 16_384]),
        // Tables as small as possible, because a million worlds are built.
        max_qps: 4,
        max_cqs: 2,
        max_pds: 1,
        max_mrs: 8,
        max_srqs: 1,
        ..Config::default()
    }
}

pub(super) fn memory_bytes(qps: usize) -> usize {
    qp_base(qps)
}

fn operation(m: &Message, remote: RemoteAddr) -> WrOp {
    match (m.kind, m.imm, m.invalidates) {
        (Kind::Send, Some(imm), _) => WrOp::SendImm { imm },
        (Kind::Send, _, Some(rkey)) => WrOp::SendInv { rkey },
        (Kind::Send, ..) => WrOp::Send,
        (Kind::Write, ..) => WrOp::Write { remote },
        (Kind::WriteImm, imm, _) => WrOp::WriteImm { remote, imm: imm.unwrap_or(0) },
        (Kind::Read, ..) => WrOp::Read { remote },
        (Kind::FetchAdd(add), ..) => WrOp::FetchAdd { remote, add },
        (Kind::CmpSwap(compare, swap), ..) => WrOp::CmpSwap { remote, compare, swap },
    }
}

/// `len` bytes from `at` in up to `parts` SGEs, some of them empty.
fn split(mr: &MemoryRegion, at: usize, len: usize, parts: usize) -> Vec<Sge> {
    let piece = len / parts;
    (0..parts)
        .map(|i| {
            let from = i * piece;
            let n = if i + 1 == parts { len - from } else { piece };
            let (addr, len) = (mr.addr + (at + from) as u64, u32::try_from(n).expect("small"));
            Sge { addr, len, lkey: mr.lkey }
        })
        .collect()
}

fn qp_base(q: usize) -> usize {
    WORDS * 8 + q * (RECVS_AT + RECVS * SLOT)
}

/// 64-bit words at the start of each memory, for atomics of all queue pairs.
const WORDS: usize = 4;
/// Maximum size of a message.
pub(super) const SLOT: usize = 1536;
const SOURCE_BYTES: usize = 2048;
/// After the source; one WRITE wide.
pub(super) const MAILBOX: usize = SOURCE_BYTES;
const MAILBOX_BYTES: usize = 256;
const TARGETS_AT: usize = MAILBOX + MAILBOX_BYTES;
const TARGETS: usize = 3;
const RESULTS_AT: usize = TARGETS_AT + TARGETS * SLOT;
const RESULTS: usize = 3;
const RECVS_AT: usize = RESULTS_AT + RESULTS * SLOT;
pub(super) const RECVS: usize = 4;
const INLINE_BYTES: usize = 256;
/// Messages of a world with small messages.
const SMALL_BYTES: u64 = 64;
/// Below the send queue's 64.
const MAX_OUTSTANDING: usize = 60;
