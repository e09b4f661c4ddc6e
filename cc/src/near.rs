//! The near-source control loop by pseudo-ACKs, beside the end-to-end loop by ACKs (Reflex).

use crate::units::{dur, float, ns, whole};
use crate::{Ack, PseudoAck};
use spanwire_base::Time;

/// The round trips of pseudo-ACKs to the nearby switch that sends them.
///
/// A flow with a near loop learns round trips from pseudo-ACKs only, because an ACK from another
/// datacenter is too late to reflect the queues nearby. A switch without a queue sends no
/// pseudo-ACKs, so a flow that was cut would never grow again. Therefore ACKs run the law too, with
/// a near round trip in place of their own.
///
/// # Source
/// Reflex. How a flow grows while the switch is silent is open there; see [`NearAck`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Near {
    every_ns: f64,
    ack: NearAck,
    /// Round trips in nanoseconds, if the loop is in use.
    rtts: Option<Rtts>,
    /// The number of switches before the one that sends pseudo-ACKs, as of the last one.
    hops: Option<u8>,
    /// The last pseudo-ACK, and the last run of the law.
    pseudo_at: Time,
    run_at: Option<Time>,
    /// Bytes that ACKs covered since the last run of the law, and bytes sent since the last one by
    /// a pseudo-ACK.
    acked_bytes: u64,
    sent_bytes: u64,
}

/// Near round trips in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Rtts {
    smoothed: f64,
    least: f64,
    last: f64,
}

/// The round trip with which an ACK runs the law.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NearAck {
    /// The last one, for an end-to-end round trip: later the switch has no queue to report, or its
    /// pseudo-ACKs are lost. Then the least.
    Stored,
    /// The least.
    Least,
    /// ACKs do not run the law.
    Nothing,
    /// The least, after a time without a pseudo-ACK: until then a queue was there. A pseudo-ACK
    /// about a packet that left before the last run shows the queue of the rate before it.
    Silent,
}

/// A run of the law.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct NearSample {
    /// Near round trip, ns.
    pub(crate) rtt_ns: f64,
    /// Bytes sent since the last run by a pseudo-ACK, or acknowledged since the last run.
    pub(crate) bytes: f64,
}

impl Near {
    /// A near loop with the parameters `near_base_us`, `near_ack` and `near_every_us` of an
    /// algorithm. If the base is 0, it is in use from the first pseudo-ACK on.
    pub(crate) fn new(base_us: f64, ack: f64, every_us: f64) -> Self {
        let base = base_us * 1e3;
        let rtts = Rtts { smoothed: base, least: base, last: base };
        Self {
            every_ns: every_us * 1e3,
            ack: match whole(ack) {
                0 => NearAck::Stored,
                1 => NearAck::Least,
                2 => NearAck::Nothing,
                _ => NearAck::Silent,
            },
            rtts: (base > 0.0).then_some(rtts),
            hops: None,
            pseudo_at: Time::ZERO,
            run_at: None,
            acked_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// The flow learns round trips from pseudo-ACKs only.
    pub(crate) fn is_used(&self) -> bool {
        self.rtts.is_some()
    }

    /// The smoothed near round trip, ns.
    pub(crate) fn srtt_ns(&self) -> Option<f64> {
        self.rtts.map(|rtts| rtts.smoothed)
    }

    /// The least near round trip, ns: the configured base, or a smaller sample.
    pub(crate) fn base_ns(&self) -> Option<f64> {
        self.rtts.map(|rtts| rtts.least)
    }

    /// The number of switches before the one that sends pseudo-ACKs; none before the first one, or
    /// if it is unknown.
    pub(crate) fn hops(&self) -> Option<u8> {
        self.hops
    }

    /// Applies a pseudo-ACK; returns the sample with which it runs the law.
    pub(crate) fn on_pseudo_ack(&mut self, now: Time, a: &PseudoAck) -> Option<NearSample> {
        let rtt_ns = ns(a.rtt).max(1.0);
        self.hops = a.hops.or(self.hops);
        self.pseudo_at = now;
        self.sent_bytes = self.sent_bytes.saturating_add(a.sent_bytes);
        if self.ack == NearAck::Silent && self.run_at.is_some_and(|at| a.sent_at < at) {
            return None;
        }
        let bytes = float(std::mem::take(&mut self.sent_bytes));
        self.run(now, rtt_ns);
        Some(NearSample { rtt_ns, bytes })
    }

    /// Applies an ACK from far away; `far_ns` is the end-to-end base round trip. Returns the sample
    /// with which it runs the law: at most one in `near_every_us`, pseudo-ACKs included.
    pub(crate) fn on_far_ack(&mut self, now: Time, a: &Ack<'_>, far_ns: f64) -> Option<NearSample> {
        let Rtts { least, last, .. } = self.rtts?;
        if a.acked_bytes == 0 || self.ack == NearAck::Nothing {
            return None;
        }
        self.acked_bytes += a.acked_bytes;
        if self.run_at.is_some_and(|at| now.since(at) < dur(self.every_ns)) {
            return None;
        }
        let silent = now.since(self.pseudo_at);
        if self.ack == NearAck::Silent && silent < dur(self.every_ns) {
            return None;
        }
        let is_fresh = silent < dur(far_ns);
        let rtt_ns = if self.ack == NearAck::Stored && is_fresh { last } else { least };
        let bytes = float(self.acked_bytes);
        self.run(now, rtt_ns);
        Some(NearSample { rtt_ns, bytes })
    }

    /// The law runs with this round trip.
    fn run(&mut self, now: Time, rtt: f64) {
        (self.run_at, self.acked_bytes) = (Some(now), 0);
        let first = Rtts { smoothed: rtt, least: rtt, last: rtt };
        self.rtts = Some(self.rtts.map_or(first, |rtts| Rtts {
            smoothed: rtts.smoothed + (rtt - rtts.smoothed) / 8.0,
            least: rtts.least.min(rtt),
            last: rtt,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use spanwire_base::Dur;

    const FAR_NS: f64 = 1e6;

    fn acked(bytes: u64) -> Ack<'static> {
        Ack { acked_bytes: bytes, ..Ack::default() }
    }

    fn pseudo(us: u64) -> PseudoAck {
        PseudoAck { rtt: Dur::from_us(us), sent_at: at(0), sent_bytes: 0, hops: Some(2) }
    }

    fn rtt_of(near: &mut Near, us: u64) -> Option<f64> {
        near.on_far_ack(at(us), &acked(1000), FAR_NS).map(|sample| sample.rtt_ns / 1e3)
    }

    #[test]
    fn is_used__from_the_first_pseudo_ack_or_from_the_start() {
        let mut near = Near::new(0.0, 0.0, 5.0);
        assert_eq!((near.is_used(), rtt_of(&mut near, 0)), (false, None));
        near.on_pseudo_ack(at(10), &pseudo(8)).unwrap();
        near.on_pseudo_ack(at(20), &pseudo(16)).unwrap();
        assert_eq!((near.base_ns(), near.srtt_ns(), near.hops()), (Some(8e3), Some(9e3), Some(2)));
        let mut near = Near::new(6.5, 0.0, 5.0);
        assert_eq!((near.base_ns(), near.srtt_ns(), near.hops()), (Some(6.5e3), Some(6.5e3), None));
        assert_eq!(rtt_of(&mut near, 0), Some(6.5), "before the first pseudo-ACK");
    }

    #[test]
    fn on_far_ack__runs_the_law_once_in_the_interval() {
        let mut near = Near::new(6.0, 1.0, 5.0);
        assert_eq!(
            [0, 1, 4, 5, 9, 10].map(|us| rtt_of(&mut near, us).is_some()),
            [true, false, false, true, false, true]
        );
        // A pseudo-ACK runs it too.
        near.on_pseudo_ack(at(12), &pseudo(20)).unwrap();
        assert_eq!([16, 17].map(|us| rtt_of(&mut near, us).is_some()), [false, true]);
        assert_eq!(near.on_far_ack(at(100), &acked(0), FAR_NS), None, "it covers nothing");
        // The bytes are those since the last run.
        for us in [18, 19, 20] {
            assert_eq!(near.on_far_ack(at(us), &acked(1000), FAR_NS), None);
        }
        let sample = near.on_far_ack(at(22), &acked(1000), FAR_NS);
        assert_eq!(sample, Some(NearSample { rtt_ns: 6e3, bytes: 4000.0 }));
    }

    #[test]
    fn on_far_ack__uses_the_last_round_trip_until_it_is_old() {
        // After a pseudo-ACK of 30 us at 100 us: an ACK soon, and an end-to-end round trip later.
        let mut rows = Vec::new();
        for ack in [0.0, 1.0, 2.0] {
            let mut near = Near::new(6.0, ack, 5.0);
            near.on_pseudo_ack(at(100), &pseudo(30)).unwrap();
            rows.push([105, 1095, 1100].map(|us| rtt_of(&mut near, us)));
        }
        assert_eq!(
            rows,
            [
                [Some(30.0), Some(30.0), Some(6.0)],
                [Some(6.0), Some(6.0), Some(6.0)],
                [None, None, None],
            ]
        );
    }

    #[test]
    fn on_pseudo_ack__silent_runs_for_packets_since_the_last_run_and_grows_after_silence() {
        let mut near = Near::new(6.0, 3.0, 20.0);
        let of = |near: &mut Near, now: u64, sent: u64| {
            let ack = PseudoAck { sent_at: at(sent), sent_bytes: 100, ..pseudo(30) };
            near.on_pseudo_ack(at(now), &ack).map(|sample| sample.bytes)
        };
        assert_eq!(of(&mut near, 100, 70), Some(100.0));
        // It left before 100 us, as the last rate was chosen. Its bytes are not lost.
        assert_eq!(of(&mut near, 110, 80), None);
        assert_eq!(of(&mut near, 135, 105), Some(200.0));
        // Pseudo-ACKs go on, whether they run the law or not.
        assert_eq!(of(&mut near, 145, 115), None);
        assert_eq!(rtt_of(&mut near, 160), None, "15 us after the last one");
        assert_eq!(rtt_of(&mut near, 165), Some(6.0), "the least, since no queue was reported");
        // Every mode but this one runs for each.
        let mut stored = Near::new(6.0, 0.0, 20.0);
        assert_eq!(
            (of(&mut stored, 100, 70), of(&mut stored, 110, 80)),
            (Some(100.0), Some(100.0))
        );
    }
}
