//! RTT measurement of RC, on one packet at a time: its ACKs echo no timestamp.

use spanwire_base::{Dur, Time};

/// The timed packet and the smoothed RTT.
#[derive(Debug, Default)]
pub(super) struct RttTimer {
    /// The packet being timed: its unwrapped PSN, and when it left.
    timed: Option<(u64, Time)>,
    srtt: Option<Dur>,
}

impl RttTimer {
    /// A packet that requests an ACK was sent for the first time. True if it becomes the timed
    /// packet.
    pub(super) fn on_sent(&mut self, now: Time, number: u64) -> bool {
        let is_timed = self.timed.is_none();
        if is_timed {
            self.timed = Some((number, now));
        }
        is_timed
    }

    /// Everything before `upto` was acknowledged. Returns the send time of the timed packet, if it
    /// is acknowledged.
    pub(super) fn on_acked(&mut self, now: Time, upto: u64) -> Option<Time> {
        let (_, at) = self.timed.filter(|(number, _)| *number < upto)?;
        self.timed = None;
        let sample = now.since(at);
        // RFC 6298 2: SRTT moves an eighth of the way to each sample.
        self.srtt = Some(self.srtt.map_or(sample, |s| (s * 7 + sample) / 8));
        Some(at)
    }

    /// Packets are retransmitted, so an ACK would be ambiguous (RFC 6298 3, Karn's algorithm).
    pub(super) fn on_rewind(&mut self) {
        self.timed = None;
    }

    /// The smoothed RTT, once measured.
    pub(super) fn srtt(&self) -> Option<Dur> {
        self.srtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_acked__smooths_by_an_eighth() {
        let mut rtt = RttTimer::default();
        rtt.on_sent(Time::from_ns(0), 4);
        rtt.on_sent(Time::from_ns(50), 5);
        rtt.on_acked(Time::from_ns(60), 4);
        assert_eq!(rtt.srtt(), None, "4 itself is not acknowledged by upto 4");
        rtt.on_acked(Time::from_ns(80), 6);
        assert_eq!(rtt.srtt(), Some(Dur::from_ns(80)));
        rtt.on_sent(Time::from_ns(100), 6);
        rtt.on_acked(Time::from_ns(260), 7);
        assert_eq!(rtt.srtt(), Some(Dur::from_ns(90)));
    }

    #[test]
    fn on_rewind__abandons_the_sample() {
        let mut rtt = RttTimer::default();
        rtt.on_sent(Time::from_ns(0), 0);
        rtt.on_rewind();
        rtt.on_acked(Time::from_ns(500), 9);
        assert_eq!(rtt.srtt(), None);
    }
}
