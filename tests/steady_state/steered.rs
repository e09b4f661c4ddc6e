//! Ports of two workers, which hand frames over to each other.

use spanwire_base::{Time, TxMeta};
use spanwire_io::clock::Clock;
use spanwire_io::pipe::{PipeConfig, PipePort, pipe};
use spanwire_io::port::{Port, reserve};
use spanwire_io::steered::{Handover, SteeredPort};
use spanwire_io::worker::{Progress, bell};

/// The port of a worker: the first byte of a frame names the worker that it is for.
type Steered = SteeredPort<PipePort, fn(&[u8]) -> usize>;

/// Two workers with their ports, and the far end of each.
pub(crate) struct Workers {
    clock: Clock,
    near: [Steered; 2],
    far: [PipePort; 2],
}

impl Workers {
    pub(crate) fn new() -> Self {
        let bells = (0..2).map(|_| bell(Progress::Inline).expect("descriptors")).collect();
        let handover = Handover::new(bells, 128);
        let owner: fn(&[u8]) -> usize = |frame| frame[0].into();
        let [(a, far_a), (b, far_b)] = [0, 1].map(|_| pipe(PipeConfig::default()));
        let near = [(a, 0), (b, 1)]
            .map(|(port, worker)| SteeredPort::new(port, handover.clone(), worker, owner));
        Self { clock: Clock::start(), near, far: [far_a, far_b] }
    }

    /// Sends frames for both workers to both ports, so that half of them are handed over. Returns
    /// how many arrived.
    pub(crate) fn run(&mut self, rounds: u32) -> u64 {
        let mut arrived = 0;
        for _ in 0..rounds {
            for port in &mut self.far {
                for worker in [0, 1, 1, 0] {
                    let mut slot = reserve(port).expect("the ring has room");
                    slot.bytes()[0] = worker;
                    slot.commit(TxMeta::whole(64));
                }
                port.flush(Time::ZERO).expect("a pipe");
            }
            // The first worker hands frames over before the second looks, and the other way round.
            for worker in [0, 1, 0] {
                self.near[worker].rx_burst(&self.clock, 64, &mut |frame, _| {
                    assert_eq!(usize::from(frame[0]), worker);
                    arrived += 1;
                });
            }
        }
        arrived
    }

    /// Frames handed over so far.
    pub(crate) fn handed(&self) -> u64 {
        self.near.iter().map(|port| port.counters().handed).sum()
    }
}
