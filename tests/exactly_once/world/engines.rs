//! Several engines on one side, as the workers of a process: each queue pair is of one of them, and
//! its frames may arrive at the queue of another.

use super::{End, World};
use spanwire_base::{Dur, Rng, usize_from};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, Config, CqId, Endpoint, MemoryRegion, PdId, QpAttr, Wc, WireMode,
};
use spanwire_wire::peek_dest_qp;

/// An engine and its memory region.
pub(crate) struct Engine {
    pub(crate) ep: Endpoint,
    pub(super) pd: PdId,
    pub(super) cq: CqId,
    pub(super) mr: MemoryRegion,
}

/// The engines of the queue pairs of both sides.
pub(super) struct Placement {
    pub(super) sides: [SidePlacement; 2],
    /// Hand-over takes up to this many delays of the wire.
    delays: u64,
}

/// The engines of a side.
pub(super) struct SidePlacement {
    pub(super) engines: u8,
    /// The place of each queue pair's engine.
    pub(super) of_qps: Vec<usize>,
}

impl Placement {
    /// The engines of a seed: one on both sides in half of the worlds. Queue pairs with a shared
    /// receive queue are of one.
    pub(super) fn drawn(seed: u64, qps: usize, shared: [bool; 2]) -> Self {
        let mut rng = Rng::new(seed ^ ENGINES);
        let is_one = rng.below(2) == 0;
        let sides = shared.map(|is_shared| {
            let engines = if is_one { 1 } else { [1, 2, 2, 3][usize_from(rng.below(4))] };
            let first = usize_from(rng.below(engines.into()));
            let mut drawn = || usize_from(rng.below(engines.into()));
            let of_qps = (0..qps).map(|_| if is_shared { first } else { drawn() }).collect();
            SidePlacement { engines, of_qps }
        });
        Self { sides, delays: [0, 1, 1, 4][usize_from(rng.below(4))] }
    }

    /// The longest time that hand-over takes.
    pub(super) fn handover(&self, delay: Dur) -> Dur {
        let has_several = self.sides.iter().any(|side| side.engines > 1);
        if has_several { delay * self.delays } else { Dur::ZERO }
    }
}

impl Engine {
    pub(super) fn new(config: Config, key: [u8; 32], region: &Region, iova: Option<u64>) -> Self {
        let mut ep = Endpoint::new(config.validate().expect("within the limits"), key);
        let pd = ep.alloc_pd().expect("the first");
        let cq = ep.create_cq(4096).expect("the first");
        let mr = ep.reg_mr(pd, region.clone(), Access::ALL, iova).expect("room for it");
        Self { ep, pd, cq, mr }
    }

    pub(super) fn poll_cq(&mut self) -> Option<Wc> {
        self.ep.poll_cq(self.cq).expect("no overrun")
    }
}

impl End {
    pub(super) fn modify_qp(&mut self, q: usize, attr: &QpAttr) {
        let ep = &mut self.engines[self.qps[q].engine].ep;
        ep.modify_qp(self.qps[q].qpn, attr).expect("a transition that exists");
    }

    /// The place of the engine that a frame's QPN names; the first one if it names none, as after a
    /// bit error.
    fn place_of(&self, frame: &[u8]) -> usize {
        let named = peek_dest_qp(frame).map(|qpn| usize_from(self.qpns.worker_of(qpn).into()));
        named.filter(|place| *place < self.engines.len()).unwrap_or(0)
    }

    /// The engine to which a frame is handed over.
    pub(super) fn engine_of(&mut self, frame: &[u8]) -> &mut Endpoint {
        let place = self.place_of(frame);
        &mut self.engines[place].ep
    }
}

impl World {
    pub(crate) fn is_sr(&self) -> bool {
        self.bounds.mode == WireMode::Sr
    }

    /// The time that hand-over of a frame takes that arrives at `side` from UDP port `path`. It is
    /// none if the port selects the queue of its engine. While the wire has faults, each frame has
    /// its own; afterwards those of a path stay in order.
    pub(super) fn handover(&mut self, side: usize, path: u16, frame: &[u8]) -> Dur {
        let end = &self.ends[side];
        if usize::from(path) % end.engines.len() == end.place_of(frame) {
            return Dur::ZERO;
        }
        self.handed += 1;
        let longest = self.faults.handover;
        match self.now < self.faults.until && longest > Dur::ZERO {
            true => Dur::from_ps(self.handover_rng.below(longest.as_ps())),
            false => longest,
        }
    }
}

/// Separates the draws of engines from all others.
const ENGINES: u64 = 0x656e_6769_6e65_735f;
