//! Received frames: those with known outer headers take a shorter way to the same result.

use super::QueuePair;
use super::common::Shared;
use super::engine::Engine;
use crate::drop::DropReason;
use spanwire_base::{RxMeta, Time, usize_from};
use spanwire_wire::Unverified;

impl QueuePair {
    /// Handles a frame to this queue pair with the outer headers of packets before. `None`, and
    /// nothing has changed, for any other.
    #[inline]
    pub(crate) fn handle_known(
        &mut self,
        now: Time,
        frame: &[u8],
        arrival: &RxMeta,
        sh: &mut Shared,
    ) -> Option<()> {
        let must_verify = self.must_verify(frame, arrival);
        let Self { common: qp, engine, heads, .. } = self;
        let known = heads.find(frame, usize_from(arrival.elided_bytes.into()))?;
        let is_handled = match engine {
            Engine::Rc(rc) => match known.is_only() {
                Some(false) => rc.on_plain::<false>(qp, now, (&known, must_verify), arrival, sh),
                Some(true) => rc.on_plain::<true>(qp, now, (&known, must_verify), arrival, sh),
                None => false,
            },
            Engine::Sr(sr) => sr.on_expected(qp, now, (&known, must_verify), arrival, sh),
            Engine::Unconnected => false,
        };
        if is_handled {
            self.check_invariants();
            return Some(());
        }
        // A packet with a fault in another header belongs to no queue pair.
        let packet = known.parse().ok()?;
        if must_verify && let Err(reason) = known.verify(&packet) {
            sh.counters.drop(DropReason::Wire(reason));
        } else {
            self.handle_packet(now, *arrival, packet.trusted(), sh);
        }
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
        sh: &mut Shared,
    ) {
        if self.must_verify(frame, &arrival)
            && let Err(reason) = packet.verify()
        {
            return sh.counters.drop(DropReason::Wire(reason));
        }
        if sh.config.fast_paths && self.engine.is_from_peer(&packet.trusted().ip) {
            self.heads.learn(frame, usize_from(arrival.elided_bytes.into()), packet);
        }
        self.handle_packet(now, arrival, packet.trusted(), sh);
    }

    /// The ICRC of the packet must be right, and was not checked yet.
    #[inline]
    fn must_verify(&self, frame: &[u8], arrival: &RxMeta) -> bool {
        self.has_icrc() && !arrival.checked.is_of(frame)
    }
}
