//! Received frames: those with known outer headers take a shorter way to the same result.

use super::QueuePair;
use super::common::{Common, Shared};
use super::engine::Engine;
use crate::drop::DropReason;
use spanwire_base::{RxMeta, Time, usize_from};
use spanwire_wire::{Known, Unverified};

impl QueuePair {
    /// Handles a frame to this queue pair with the outer headers of packets before. `None`, and
    /// nothing has changed, for any other.
    #[inline]
    pub(crate) fn handle_known(
        &mut self,
        now: Time,
        frame: &[u8],
        arrival: RxMeta,
        sh: &mut Shared<'_>,
    ) -> Option<()> {
        let must_verify = self.must_verify(frame, arrival);
        let Self { common, engine, heads } = self;
        let known = heads.find(frame, usize_from(arrival.elided_bytes.into()))?;
        let is_done = match (&mut *engine, known.middle()) {
            (Engine::Rc(rc), Some(middle)) => {
                let is_valid = || !must_verify || known.is_right();
                rc.on_middle(common, (now, &arrival), known.ip(), &middle, is_valid, sh)
            }
            _ => false,
        };
        if !is_done {
            handle_known_headers(common, engine, (now, arrival), (&known, must_verify), sh)?;
        }
        self.check_invariants();
        Some(())
    }

    /// Handles a packet of which everything but the ICRC was found right in `frame`.
    #[inline]
    pub(crate) fn handle_new(
        &mut self,
        now: Time,
        frame: &[u8],
        arrival: RxMeta,
        packet: &Unverified<'_>,
        sh: &mut Shared<'_>,
    ) {
        if self.must_verify(frame, arrival)
            && let Err(reason) = packet.verify()
        {
            return sh.counters.drop(DropReason::Wire(reason));
        }
        if sh.config.fast_paths {
            self.heads.learn(frame, usize_from(arrival.elided_bytes.into()), packet);
        }
        self.handle_packet(now, arrival, packet.trusted(), sh);
    }

    /// The ICRC of the packet must be right, and was not checked yet.
    #[inline]
    fn must_verify(&self, frame: &[u8], arrival: RxMeta) -> bool {
        self.has_icrc() && !arrival.checked.is_of(frame)
    }
}

/// Handles a packet with known outer headers. `None`, and nothing has changed, if another header has
/// a fault: such a packet belongs to no queue pair.
// Not inlined: the expected packets would have to save registers for all others.
#[inline(never)]
fn handle_known_headers(
    qp: &mut Common,
    engine: &mut Engine,
    (now, arrival): (Time, RxMeta),
    (known, must_verify): (&Known<'_, '_>, bool),
    sh: &mut Shared<'_>,
) -> Option<()> {
    let packet = known.parse().ok()?;
    if must_verify && let Err(reason) = known.verify(&packet) {
        sh.counters.drop(DropReason::Wire(reason));
    } else {
        qp.arrival = arrival;
        engine.handle_packet(qp, now, packet.trusted(), sh);
    }
    Some(())
}
