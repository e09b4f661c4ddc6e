//! Detection of spurious tail loss probes, and the margin they add to timeouts.

use super::rtt::Rtt;
use spanwire_base::{Dur, Time};

/// The margin added to the TLP timeout and the RTO after a spurious TLP. A host whose worker
/// sleeps, or shares its core, delays ACKs, and neither srtt nor rttvar predicts that.
///
/// A TLP was spurious if the original had arrived and its ACK was only late. There are two proofs:
/// - The ACK echoes a transmission before the TLP.
/// - The ACK's received-packet count includes original and TLP, and the ACK is late itself: a late
///   host has processed both at once. A prompt ACK that counts both proves that an earlier ACK was
///   lost, so that TLP was needed.
///
/// The count has the role of the DSACK in RFC 8985 7.4.2, which widens the reordering window.
#[derive(Debug, Default)]
pub(crate) struct ProbeMargin {
    margin: Dur,
    /// The last TLP, until it is known whether it was spurious.
    probe: Option<OutstandingProbe>,
    /// Copies of acknowledged packets, which [`super::sent::Sent`] does not count as transmissions.
    extra_copies: u32,
    /// Transmissions less packets received when nothing was in flight last: all losses so far,
    /// plus a constant.
    lost: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct OutstandingProbe {
    /// The newest transmission before it.
    original_at: Time,
    at: Time,
}

/// The transmission counts at an ACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    /// The send time of the echoed transmission.
    pub(crate) echo: Time,
    /// Transmissions so far plus a constant, modulo 2^32.
    pub(crate) transmissions: u32,
    /// Packets that the peer has received, duplicates included, modulo 2^32.
    pub(crate) received: u32,
    /// The ACK acknowledges a packet, and nothing is in flight after it.
    pub(crate) is_last: bool,
}

impl ProbeMargin {
    /// The margin of both timeouts; at most [`MARGIN_MAX`].
    #[inline]
    pub(crate) fn get(&self) -> Dur {
        self.margin
    }

    /// A TLP is sent at `now`; the newest transmission before it was at `original_at`.
    pub(crate) fn on_probe(&mut self, now: Time, original_at: Time) {
        self.probe = Some(OutstandingProbe { original_at, at: now });
    }

    /// The TLP is not sent.
    pub(crate) fn cancel(&mut self) {
        self.probe = None;
    }

    /// A copy of an acknowledged packet was sent.
    pub(crate) fn on_extra_copy(&mut self) {
        self.extra_copies = self.extra_copies.wrapping_add(1);
    }

    /// An ACK arrived at `now`.
    #[inline]
    pub(crate) fn on_ack(&mut self, now: Time, rtt: &Rtt, arrivals: &Arrivals) {
        if self.margin > Dur::ZERO {
            self.margin = Dur::from_ps(self.margin.as_ps() - self.margin.as_ps() / DECAY);
        }
        let transmissions = arrivals.transmissions.wrapping_add(self.extra_copies);
        let lost = transmissions.wrapping_sub(arrivals.received);
        if self.probe.is_some() {
            self.on_probe_acked(now, rtt, arrivals.echo, lost);
        }
        if arrivals.is_last {
            self.lost = Some(lost);
        }
    }

    /// Widens the margin if the ACK proves that the last TLP was spurious. An ACK of an earlier
    /// packet leaves the question open.
    fn on_probe_acked(&mut self, now: Time, rtt: &Rtt, echo: Time, lost: u32) {
        let (Some(probe), Some(srtt)) = (self.probe, rtt.srtt()) else { return };
        if echo < probe.original_at {
            return;
        }
        self.probe = None;
        let is_late = now.since(echo) > srtt + srtt / 2;
        let is_same = |before: u32| before.wrapping_sub(lost).cast_signed() >= 0;
        if echo < probe.at || is_late && self.lost.is_some_and(is_same) {
            let late = now.since(probe.original_at).as_ps().saturating_sub(srtt.as_ps());
            let margin = Dur::from_ps(late).min(MARGIN_MAX) * 2;
            self.margin = self.margin.max(margin.min(MARGIN_MAX));
        }
    }
}

/// Two time slices of Linux's scheduler. Longer delays are not covered.
const MARGIN_MAX: Dur = Dur::from_ms(8);

/// Each ACK reduces the margin by 1/4096: by half after 2800. The margin is twice the lateness, so
/// it covers that for as long.
const DECAY: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    fn rtt() -> Rtt {
        let mut rtt = Rtt::default();
        rtt.sample(Dur::from_us(10), Dur::ZERO);
        rtt
    }

    fn ack(echo: u64, transmissions: u32, received: u32) -> Arrivals {
        Arrivals { echo: at(echo), transmissions, received, is_last: true }
    }

    /// One transmission was lost at some time, and a probe is sent.
    fn probed() -> ProbeMargin {
        let mut m = ProbeMargin::default();
        m.on_ack(at(90), &rtt(), &ack(80, 1, 0));
        m.on_probe(at(120), at(100));
        m
    }

    #[test]
    fn on_ack__an_echo_from_before_the_probe_proves_it_spurious() {
        let mut m = probed();
        m.on_ack(at(150), &rtt(), &ack(99, 3, 1));
        assert_eq!(m.get(), Dur::ZERO, "an echo of an earlier packet proves nothing");
        m.on_ack(at(160), &rtt(), &ack(100, 3, 1));
        assert_eq!(m.get(), Dur::from_us(2 * (60 - 10)));
    }

    #[test]
    fn on_ack__a_count_of_both_transmissions_proves_it_spurious() {
        let mut m = probed();
        m.on_ack(at(160), &rtt(), &ack(120, 3, 2));
        assert_eq!(m.get(), Dur::from_us(2 * (60 - 10)));
    }

    #[test]
    fn on_ack__a_probe_for_a_lost_ack_changes_nothing() {
        let mut m = probed();
        m.on_ack(at(130), &rtt(), &ack(120, 3, 2));
        assert_eq!(m.get(), Dur::ZERO, "both have arrived, and the ACK is prompt");
    }

    #[test]
    fn on_ack__a_probe_for_a_lost_packet_changes_nothing() {
        let mut m = probed();
        m.on_ack(at(160), &rtt(), &ack(120, 3, 1));
        assert_eq!(m.get(), Dur::ZERO);
        m.on_ack(at(161), &rtt(), &ack(100, 3, 2));
        assert_eq!(m.get(), Dur::ZERO, "only the first ACK counts");
        let mut unknown = ProbeMargin::default();
        unknown.on_probe(at(120), at(100));
        unknown.on_ack(at(160), &rtt(), &ack(120, 3, 2));
        assert_eq!(unknown.get(), Dur::ZERO, "without a count to compare with there is no proof");
    }

    #[test]
    fn on_ack__copies_of_acknowledged_packets_count_as_transmissions() {
        let mut m = probed();
        m.on_extra_copy();
        m.on_ack(at(160), &rtt(), &ack(120, 1, 0));
        assert_eq!(m.get(), Dur::ZERO, "the copy is lost");
        m.on_probe(at(200), at(180));
        m.on_extra_copy();
        m.on_ack(at(230), &rtt(), &ack(200, 1, 1));
        assert!(m.get() > Dur::ZERO, "this copy has arrived, and nothing else was sent");
    }

    #[test]
    fn get__is_bounded_and_decays() {
        let mut m = probed();
        m.on_ack(at(5_000_000), &rtt(), &ack(100, 3, 2));
        assert_eq!(m.get(), MARGIN_MAX);
        for _ in 0..2850 {
            m.on_ack(at(5_000_000), &rtt(), &ack(100, 3, 2));
        }
        assert!(m.get() < MARGIN_MAX / 2 && m.get() > MARGIN_MAX / 4, "{:?}", m.get());
        m.on_probe(at(20), at(10));
        m.cancel();
        let before = m.get();
        m.on_ack(at(9_000_000), &rtt(), &ack(10, 3, 2));
        assert!(m.get() < before, "the TLP was not sent");
    }
}
