//! Two hosts whose adapters steer by the source port: a pipe from each worker to each queue.

use crate::fabric::{Attachment, Link, Wrap};
use spanwire_base::{RxMeta, Time, TxMeta};
use spanwire_io::clock::TimeSource;
use spanwire_io::fault::{FaultConfig, FaultPort};
use spanwire_io::pipe::{PipeConfig, PipePort, WhenFull, pipe};
use spanwire_io::port::{Port, SlotToken};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// The queue of an adapter that a source port leads to.
pub(super) type Steering = fn(u16) -> usize;

/// A queue of each worker of the peer's host, of which the peer's adapter chooses one.
struct MeshPort {
    pipes: Vec<PipePort>,
    steering: Steering,
    /// A buffer of each pipe for each slot, by its number.
    taken: BTreeMap<u64, Vec<SlotToken>>,
    slots: u64,
    received: u64,
}

/// Ports of `N` workers of a client and of its server. `steering` is that of the client's adapter
/// and of the server's.
pub(super) fn mesh<const N: usize>(
    steering: [Steering; 2],
    faults: Option<FaultConfig>,
) -> [Vec<Attachment>; 2] {
    let config = PipeConfig { when_full: WhenFull::Drop, ..PipeConfig::default() };
    let mut ends: [Vec<Vec<PipePort>>; 2] = [const { Vec::new() }; 2];
    ends.iter_mut().for_each(|end| end.resize_with(N, Vec::new));
    for (near, far) in (0..N).flat_map(|near| (0..N).map(move |far| (near, far))) {
        let (a, b) = pipe(config);
        ends[0][near].push(a);
        ends[1][far].push(b);
    }
    let attach = |pipes, (Attachment { mut terms, .. }, steering): (Attachment, Steering)| {
        terms.rss = true;
        let port = MeshPort { pipes, steering, taken: BTreeMap::new(), slots: 0, received: 0 };
        let port: Box<dyn Link + Send> = match faults {
            Some(faults) => Box::new(FaultPort::new(port, faults).unwrap()),
            None => Box::new(port),
        };
        Attachment { port, terms }
    };
    let [near, far] = ends;
    let sides = near.into_iter().zip(far).map(|(near, far)| {
        let (client, server) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
        // Packets are steered by the adapter that receives them.
        (attach(near, (client, steering[1])), attach(far, (server, steering[0])))
    });
    let (clients, servers) = sides.unzip();
    [clients, servers]
}

impl Link for MeshPort {
    fn counters(&self) -> Vec<(String, u64)> {
        vec![("mesh_received".to_owned(), self.received)]
    }
}

impl Port for MeshPort {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        let mut count = 0;
        for pipe in &mut self.pipes {
            count += pipe.rx_burst(clock, max - count, each);
        }
        self.received += spanwire_base::u64_from(count);
        count
    }

    fn slot_take(&mut self) -> Option<SlotToken> {
        // A pipe that drops always has a buffer: one that is not dropped takes the scrap.
        let tokens: Vec<_> = self.pipes.iter_mut().map(Port::slot_take).collect();
        self.slots += 1;
        if tokens.iter().any(Option::is_none) {
            for (pipe, token) in self.pipes.iter_mut().zip(tokens) {
                token.into_iter().for_each(|token| pipe.slot_release(token));
            }
            return None;
        }
        self.taken.insert(self.slots, tokens.into_iter().flatten().collect());
        Some(SlotToken::new(self.slots))
    }

    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        self.pipes[0].slot_bytes(&self.taken[&slot.id()][0])
    }

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        let frame = self.slot_bytes(&slot)[..meta.len].to_vec();
        let to = (self.steering)(u16::from_be_bytes([frame[SRC_PORT], frame[SRC_PORT + 1]]));
        let tokens = self.taken.remove(&slot.id()).expect("it is taken");
        for (index, (pipe, token)) in self.pipes.iter_mut().zip(tokens).enumerate() {
            if index == to {
                pipe.slot_bytes(&token)[..meta.len].copy_from_slice(&frame);
                pipe.slot_commit(token, meta);
            } else {
                pipe.slot_release(token);
            }
        }
    }

    fn slot_release(&mut self, slot: SlotToken) {
        let tokens = self.taken.remove(&slot.id()).expect("it is taken");
        self.pipes.iter_mut().zip(tokens).for_each(|(pipe, token)| pipe.slot_release(token));
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.pipes.iter_mut().try_for_each(|pipe| pipe.flush(now))
    }

    fn frame_room(&self) -> usize {
        self.pipes[0].frame_room()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.pipes[0].wait(timeout.min(Duration::from_micros(100)))
    }
}

/// The source port's place in a frame over IPv4.
const SRC_PORT: usize = 34;
