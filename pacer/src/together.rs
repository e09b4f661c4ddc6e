//! Tests of buckets, wheel and round robin together, in simulated time.

use crate::{Drr, TokenBucket, Wheel, WheelConfig};
use proptest::prelude::*;
use spanwire_base::{Dur, Rate, Time};

/// Queue pairs that always have data to send, scheduled as in an endpoint.
struct Host {
    wheel: Wheel,
    drr: Drr,
    qps: Vec<Qp>,
}

struct Qp {
    bucket: TokenBucket,
    packet_bytes: u32,
    sent_bytes: u64,
    first: Option<Time>,
    last: Time,
}

impl Host {
    fn new(quantum: u32) -> Self {
        Self { wheel: Wheel::new(WheelConfig::default()), drr: Drr::new(quantum), qps: Vec::new() }
    }

    /// Adds a queue pair of `packet_bytes`, with the burst limit of endpoints.
    fn add(&mut self, now: Time, rate: Rate, packet_bytes: u32) {
        let mut bucket = TokenBucket::new(2 * packet_bytes, CATCH_UP);
        bucket.set_rate(now, Some(rate));
        // Spend the burst accumulated before it was added.
        while bucket.is_due(now) {
            bucket.on_sent(now, packet_bytes);
        }
        let slot = u32::try_from(self.qps.len()).unwrap();
        self.wheel.insert(slot, bucket.next());
        self.qps.push(Qp { bucket, packet_bytes, sent_bytes: 0, first: None, last: now });
    }

    fn set_rate(&mut self, now: Time, slot: u32, rate: Rate) {
        let bucket = &mut self.qps[slot as usize].bucket;
        bucket.set_rate(now, Some(rate));
        if !self.drr.is_active(slot) {
            self.wheel.insert(slot, bucket.next());
        }
    }

    /// Sends one packet, if one may leave now; returns its slot.
    fn send(&mut self, now: Time) -> Option<u32> {
        while let Some(slot) = self.wheel.pop_due(now) {
            assert!(
                !self.drr.is_active(slot),
                "a slot is in the wheel or active in the round robin, never both"
            );
            self.drr.activate(slot);
        }
        while let Some(slot) = self.drr.head() {
            let qp = &mut self.qps[slot as usize];
            if !qp.bucket.is_due(now) {
                self.drr.deactivate(slot);
                self.wheel.insert(slot, qp.bucket.next());
                continue;
            }
            qp.bucket.on_sent(now, qp.packet_bytes);
            qp.sent_bytes += u64::from(qp.packet_bytes);
            qp.first = qp.first.or(Some(now));
            qp.last = now;
            self.drr.charge(qp.packet_bytes);
            return Some(slot);
        }
        None
    }

    /// Sends all packets that may leave until `end`, polling at the times of the wheel.
    fn run_to(&mut self, mut now: Time, end: Time) {
        while now < end {
            while self.send(now).is_some() {}
            now = self.wheel.next().unwrap().max(now);
        }
    }

    /// The rate of a queue pair between its first packet and its last, one of which does not
    /// count.
    fn achieved(&self, slot: usize) -> f64 {
        let qp = &self.qps[slot];
        let bytes = qp.sent_bytes - u64::from(qp.packet_bytes);
        let span = qp.last.since(qp.first.unwrap());
        float(bytes) * 8e12 / float(span.as_ps())
    }
}

/// The value of endpoints.
const CATCH_UP: Dur = Dur::from_us(4);

fn float(n: u64) -> f64 {
    f64::from(u32::try_from(n >> 32).unwrap()) * 4_294_967_296.0
        + f64::from(u32::try_from(n & 0xffff_ffff).unwrap())
}

fn at_us(us: u64) -> Time {
    Time::ZERO + Dur::from_us(us)
}

#[test]
fn rate__within_a_thousandth_from_1_mbit_to_400_gbit() {
    let mut worst: f64 = 0.0;
    for mbps in [1, 3, 10, 100, 997, 10_000, 25_000, 100_000, 200_000, 399_989, 400_000] {
        for packet_bytes in [84, 512, 1538, 4190, 9038] {
            let mut host = Host::new(9038);
            let (rate, begin) = (Rate::from_bps(mbps * 1_000_000), at_us(777));
            host.add(begin, rate, packet_bytes);
            // Long enough for 5000 packets and for 5 ms, so that one slot of the wheel at the ends
            // is a twentieth of the tolerance.
            let span = rate.time_for(u64::from(packet_bytes) * 5000).max(Dur::from_ms(5));
            host.run_to(begin, begin + span);
            let error = host.achieved(0) / float(rate.as_bps()) - 1.0;
            assert!(error.abs() < 1e-3, "{mbps} Mbit/s of {packet_bytes} bytes: {error:e}");
            worst = worst.max(error.abs());
        }
    }
    // A slot of 250 ns at each end of 5 ms.
    assert!(worst <= 1.01e-4, "{worst:e}");
}

#[test]
fn rate__a_change_applies_at_once_and_is_exact() {
    let mut host = Host::new(1538);
    let mut now = at_us(1);
    host.add(now, Rate::from_bps(1_000_000), 1538);
    let mut before = 0;
    for (mbps, ms) in [(1, 100), (400_000, 1), (10, 50), (100_000, 2), (1, 100), (25_000, 5)] {
        let rate = Rate::from_bps(mbps * 1_000_000);
        host.set_rate(now, 0, rate);
        host.run_to(now, now + Dur::from_ms(ms));
        now += Dur::from_ms(ms);
        let sent = host.qps[0].sent_bytes - before;
        before += sent;
        let want = rate.bytes_in(Dur::from_ms(ms));
        // A packet at each end, a slot of the wheel, and a burst accumulated before.
        let slack = 4 * 1538 + rate.bytes_in(Dur::from_ns(250));
        assert!(sent.abs_diff(want) <= slack, "{mbps}: {sent} of {want}");
    }
}

#[test]
fn rate__of_a_thousand_queue_pairs_is_independent() {
    let mut host = Host::new(4190);
    let begin = at_us(50);
    let mut total = 0;
    for n in 0..1000_u64 {
        // From 1 Mbit/s to 400 Mbit/s: more than 100 Gbit/s in all.
        let rate = Rate::from_bps(1_000_000 + n * n * 400);
        total += rate.as_bps();
        host.add(begin, rate, 300 + u32::try_from(n % 7).unwrap() * 600);
    }
    let span = Dur::from_ms(40);
    host.run_to(begin, begin + span);
    let mut sent_in_all = 0;
    for (n, qp) in (0..).zip(&host.qps) {
        let rate: u64 = 1_000_000 + n * n * 400;
        let want = Rate::from_bps(rate).bytes_in(span);
        let slack = u64::from(qp.packet_bytes) + Rate::from_bps(rate).bytes_in(Dur::from_ns(250));
        assert!(qp.sent_bytes.abs_diff(want) <= slack + 1, "{n}: {} of {want}", qp.sent_bytes);
        sent_in_all += qp.sent_bytes;
    }
    let want = float(Rate::from_bps(total).bytes_in(span));
    assert!((float(sent_in_all) / want - 1.0).abs() < 5e-3, "{sent_in_all} of {want}");
}

#[test]
fn port__a_scarce_rate_is_shared_max_min_fairly() {
    // 40 Gbit/s for 1 + 5 + 50 + 100 and a weight of two: 1, 5, then 34 in three parts.
    let port = Rate::from_gbps(40);
    let mut host = Host::new(4190);
    let mut now = at_us(3);
    for (gbps, packet_bytes) in [(1, 4190), (5, 600), (50, 1538), (100, 4190)] {
        host.add(now, Rate::from_gbps(gbps), packet_bytes);
    }
    host.drr.set_weight(3, 2);
    let end = now + Dur::from_ms(20);
    while now < end {
        match host.send(now) {
            Some(slot) => now += port.time_for(u64::from(host.qps[slot as usize].packet_bytes)),
            None => now = host.wheel.next().unwrap().max(now),
        }
    }
    for (slot, want) in [(0, 1.0), (1, 5.0), (2, 34.0 / 3.0), (3, 68.0 / 3.0)] {
        let gbps = host.achieved(slot) / 1e9;
        assert!((gbps / want - 1.0).abs() < 0.01, "{slot}: {gbps} of {want}");
    }
}

/// Intervals between polls of a worker: mostly short, sometimes long because of preemption.
fn looks() -> impl Strategy<Value = Vec<Dur>> {
    let gap = prop_oneof![
        8 => 1..3_000_000_u64,
        1 => 3_000_000..50_000_000_u64,
        1 => 50_000_000..2_000_000_000_000_u64,
    ];
    proptest::collection::vec(gap.prop_map(Dur::from_ps), 1..200)
}

proptest! {
    /// Preemption: whatever the intervals between polls, no packet is early and no poll sends more
    /// than the limit. At most the part of an interval that exceeds the limit is lost.
    #[test]
    fn stolen_core__bursts_and_losses_are_bounded(
        gaps in looks(),
        bps in 1_000_000..400_000_000_000_u64,
        packet_bytes in 84..9038_u32,
    ) {
        let (rate, begin) = (Rate::from_bps(bps), at_us(1));
        let packet = u64::from(packet_bytes);
        let depth = (2 * packet).max(rate.bytes_in(CATCH_UP));
        let slot = Dur::from_ns(250);
        let mut host = Host::new(9038);
        host.add(begin, rate, packet_bytes);
        let (mut now, mut lost) = (begin, 0);
        for gap in gaps {
            now += gap;
            let before = host.qps[0].sent_bytes;
            while host.send(now).is_some() {}
            let sent = host.qps[0].sent_bytes;
            prop_assert!(sent - before <= depth + packet, "at once: {}", sent - before);
            let most = rate.bytes_in(now.since(begin));
            prop_assert!(sent <= most + 1, "early: {sent} of {most}");
            // Due since the last poll, one packet that was not due then, and the wheel's delay.
            lost += (rate.bytes_in(gap + slot) + 2 * packet).saturating_sub(depth);
            let least = most.saturating_sub(lost + packet + rate.bytes_in(slot) + 1);
            prop_assert!(sent >= least, "lost: {sent} of {most}, {least} at the least");
        }
    }

    /// For any insertions, changes and removals, each slot is popped once, within a slot of its
    /// time, and memory is that of the largest number.
    #[test]
    fn wheel__pops_each_once_late_by_at_most_a_slot(
        entries in proptest::collection::vec((0..200_u32, 0..3_000_000_000_000_u64), 1..300),
    ) {
        let mut wheel = Wheel::new(WheelConfig::default());
        let mut due = std::collections::BTreeMap::new();
        for (slot, ps) in entries {
            wheel.insert(slot, Time::from_ps(ps));
            due.insert(slot, ps);
        }
        prop_assert_eq!(wheel.len() as usize, due.len());
        let mut now = Time::ZERO;
        while let Some(next) = wheel.next() {
            now = now.max(next);
            while let Some(slot) = wheel.pop_due(now) {
                let ps = due.remove(&slot);
                let late = ps.map(|ps| i128::from(now.as_ps()) - i128::from(ps));
                let allowed = 0..250_000;
                prop_assert!(late.is_some_and(|l| allowed.contains(&l)), "{slot}: {late:?}");
            }
        }
        prop_assert!(due.is_empty() && wheel.is_empty());
    }
}
