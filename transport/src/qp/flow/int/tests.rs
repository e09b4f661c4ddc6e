use super::*;
use proptest::prelude::*;
use spanwire_base::{Dur, Rng};

/// The echo of these ports in compact records.
fn echo(hops: &[IntHop]) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(hops.len()).unwrap(), 1, 0, 0];
    for hop in hops {
        let mut record = [0; 8];
        IntCompactHop::from(hop).emit(&mut record);
        bytes.extend(record);
    }
    bytes
}

fn unwrap(u: &mut Unwrapped, now: Time, hops: &[IntHop]) -> (bool, Records) {
    let mut out = Records::default();
    let continues = u.unwrap(now, IntRecords::parse(&echo(hops)), &mut out);
    (continues, out)
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Dur::from_ms(ms)
}

/// A port of `gbps` that is always busy, at `us`.
fn busy(us: u64, gbps: u32) -> IntHop {
    IntHop {
        time_ps: us * 1_000_000,
        tx_bytes: us * u64::from(gbps) * 125,
        queue_bytes: 700,
        link_rate_mbps: gbps * 1_000,
    }
}

/// Differences of time in ps and of bytes sent.
fn difference(a: &IntHop, b: &IntHop) -> (i128, i128) {
    let of = |a: u64, b: u64| i128::from(b) - i128::from(a);
    (of(a.time_ps, b.time_ps), of(a.tx_bytes, b.tx_bytes))
}

#[test]
fn unwrap__differences_are_those_of_the_port_across_wraps() {
    let mut u = Unwrapped::default();
    let (mut first, mut continued) = (None, 0);
    for i in 0..20 {
        let hop = busy(i * 8_000, 100);
        let (continues, out) = unwrap(&mut u, ms(100 + i * 8), &[hop]);
        assert_eq!(continues, i > 0, "{i}");
        continued += u64::from(continues);
        let first = first.get_or_insert(out[0]);
        let at = i128::from(i);
        assert_eq!(difference(first, &out[0]), (at * 8_000_000_000, at * 100_000_000));
        assert_eq!((out[0].queue_bytes, out[0].link_rate_mbps), (768, 100_000));
    }
    assert_eq!(continued, 19);
}

#[test]
fn unwrap__an_older_record_is_older() {
    let mut u = Unwrapped::default();
    let (_, newer) = unwrap(&mut u, ms(9), &[busy(5_000, 100)]);
    let (continues, older) = unwrap(&mut u, ms(9), &[busy(4_996, 100)]);
    assert!(continues);
    assert_eq!(difference(&newer[0], &older[0]), (-4_000_000, -50_048), "391 units of 128 bytes");
    // Within one unit of time, whatever the order.
    let at = |tx_bytes| IntHop { tx_bytes, ..busy(5_000, 100) };
    let (_, newer) = unwrap(&mut u, ms(9), &[at(12_800_000)]);
    let (continues, older) = unwrap(&mut u, ms(9), &[at(12_798_720)]);
    assert!(continues);
    assert_eq!(difference(&newer[0], &older[0]), (0, -1_280));
}

#[test]
fn unwrap__restarts_if_counters_are_ambiguous() {
    // Half of the wrap of the time has 8.388608 ms.
    let after = |us: u64, gbps: u32| {
        let mut u = Unwrapped::default();
        let at = |us| Time::ZERO + Dur::from_us(us);
        unwrap(&mut u, at(1_000), &[busy(1_000, gbps)]);
        unwrap(&mut u, at(1_000 + us), &[busy(1_000 + us, gbps)]).0
    };
    assert_eq!([8_388, 8_389].map(|us| after(us, 10)), [true, false]);
    // Four fifths of the wrap of the bytes are 107 MB: 4.29 ms at 200 Gbit/s.
    assert_eq!([4_290, 4_300].map(|us| after(us, 200)), [true, false]);
    assert_eq!([536, 538].map(|us| after(us, 1_600)), [true, false]);
    let mut u = Unwrapped::default();
    assert!(!unwrap(&mut u, ms(1), &[busy(1, 1), busy(1, 1)]).0, "the first ones");
    assert!(unwrap(&mut u, ms(1), &[busy(1, 1), busy(1, 1)]).0);
    assert!(!unwrap(&mut u, ms(1), &[busy(1, 1)]).0, "another path");
    assert!(unwrap(&mut u, ms(1), &[busy(1, 1)]).0);
    u.restart();
    assert!(!unwrap(&mut u, ms(1), &[busy(1, 1)]).0);
}

/// The oracle: a switch port with counters that do not wrap.
#[derive(Clone, Copy, Debug)]
struct Oracle {
    clock_ps: u64,
    tx_bytes: u64,
    mbps: u32,
    load_percent: u64,
}

impl Oracle {
    fn at(&self, ps: u64) -> IntHop {
        let bits = u128::from(ps) * u128::from(self.mbps) * u128::from(self.load_percent);
        let sent = u64::try_from(bits / 8_000_000 / 100).unwrap();
        IntHop {
            time_ps: self.clock_ps + ps,
            tx_bytes: self.tx_bytes + sent,
            queue_bytes: 0,
            link_rate_mbps: self.mbps,
        }
    }
}

/// The counters in whole units, unwrapped.
fn units(hop: &IntHop) -> [i64; 2] {
    [hop.time_ps / 16_000, hop.tx_bytes / 128].map(u64::cast_signed)
}

/// An ACK that passed the switches at `stamped_ps` and arrived at `arrives_ps`.
#[derive(Clone, Copy, Debug)]
struct Acked {
    stamped_ps: u64,
    arrives_ps: u64,
}

/// ACKs of packets each `gap_ns` at most, delayed by up to `jitter_ns` and overtaken; a part of
/// them is lost, sometimes for up to `outage_ns`.
fn acks(rng: &mut Rng, [gap_ns, jitter_ns, outage_ns]: [u64; 3]) -> Vec<Acked> {
    let mut stamped_ps = 0;
    let mut all = Vec::new();
    for _ in 0..300 {
        stamped_ps += 1000 * rng.below(gap_ns + 1);
        if rng.below(20) == 0 {
            stamped_ps += 1000 * rng.below(outage_ns + 1);
        }
        let arrives_ps = stamped_ps + 1000 * rng.below(jitter_ns + 1);
        if rng.below(3) > 0 {
            all.push(Acked { stamped_ps, arrives_ps });
        }
    }
    all.sort_by_key(|ack| ack.arrives_ps);
    all
}

proptest! {
    /// Every difference between two ACKs without a restart between them is that of the ports, and
    /// there is no restart without a reason.
    #[test]
    fn unwrap__matches_counters_that_do_not_wrap(
        seed: u64,
        gap_ns in prop::sample::select(vec![100u64, 10_000, 1_000_000]),
        // Less than half of the wrap of the time.
        jitter_ns in prop::sample::select(vec![0u64, 5_000, 1_000_000, 8_300_000]),
        outage_ns in prop::sample::select(vec![0u64, 8_000_000, 60_000_000]),
        ports in prop::collection::vec(
            (any::<u64>(), any::<u64>(), prop::sample::select(
                vec![1u32, 39, 10_000, 29_999, 100_000, 400_000, 1_600_000]), 0u64..=100),
            1..=5,
        ),
    ) {
        let oracle: Vec<Oracle> = ports.into_iter().map(|(clock, tx, mbps, load_percent)| Oracle {
            clock_ps: clock >> 2, tx_bytes: tx >> 2, mbps, load_percent,
        }).collect();
        let mut u = Unwrapped::default();
        let mut last: Option<(Acked, Vec<IntHop>, Records)> = None;
        for ack in acks(&mut Rng::new(seed), [gap_ns, jitter_ns, outage_ns]) {
            let now = Time::from_ps(1 << 50) + Dur::from_ps(ack.arrives_ps);
            let hops: Vec<IntHop> = oracle.iter().map(|port| port.at(ack.stamped_ps)).collect();
            let (continues, out) = unwrap(&mut u, now, &hops);
            if let Some((before, known, unwrapped)) = &last {
                let elapsed_ps = ack.arrives_ps - before.arrives_ps;
                let span_ps = ack.stamped_ps.abs_diff(before.stamped_ps);
                let most = oracle.iter().map(|port| u128::from(port.mbps)).max().unwrap();
                let may_send = most * u128::from(span_ps) / 8_000_000;
                // The rates in records are up to a fifteenth too low, and times are whole units.
                let is_short = elapsed_ps < 8_388_600_000 && may_send < 107_000_000;
                let is_long = elapsed_ps > 8_389_000_000 || may_send * 14 / 15 > 107_500_000;
                prop_assert!(continues || !is_short, "{elapsed_ps} {may_send}");
                prop_assert!(!continues || !is_long, "{elapsed_ps} {may_send}");
                for (i, (old, new)) in known.iter().zip(&hops).enumerate().filter(|_| continues) {
                    for (at, want) in units(new).into_iter().zip(units(old)).enumerate() {
                        let got = units(&out[i])[at] - units(&unwrapped[i])[at];
                        prop_assert_eq!(got, want.0 - want.1, "hop {}, counter {}", i, at);
                    }
                }
            }
            last = Some((ack, hops, out));
        }
    }

    /// Any records at any times: no panic, and counters in their range.
    #[test]
    fn unwrap__of_hostile_records_does_not_overflow(
        acks in prop::collection::vec(
            (any::<u64>(), any::<bool>(), 1u8..=16, any::<[u8; 128]>()), 1..60),
    ) {
        let mut u = Unwrapped::default();
        let mut now = Time::ZERO;
        for (time, is_near, hops, bytes) in acks {
            // Mostly within the time in which counters continue; time may also go backwards.
            now = if is_near { now + Dur::from_ps(time % (9 << 30)) } else { Time::from_ps(time) };
            let echo = [&[hops, 1, 0, 0], &bytes[..usize::from(hops) * 8]].concat();
            let mut out = Records::default();
            u.unwrap(now, IntRecords::parse(&echo), &mut out);
            for hop in &out[..usize::from(hops)] {
                prop_assert!(hop.time_ps < 1 << 63 && hop.tx_bytes < 1 << 56);
            }
        }
    }
}

#[test]
fn unwrap__restarts_at_the_ends_of_the_counters() {
    // Records of a forger that go back by almost half of a wrap each time.
    for step in [(1 << 19) - 1, (1 << 19) + 1] {
        let mut u = Unwrapped::default();
        let mut restarts = 0;
        let mut time = 0;
        for _ in 0..3_000_000 {
            time = (time + step) % (1 << 20);
            let hop = IntCompactHop { time, tx: time, queue: 0, rate: 0 };
            let mut echo = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            hop.emit(echo.last_chunk_mut().unwrap());
            let mut out = Records::default();
            restarts += u32::from(!u.unwrap(ms(1), IntRecords::parse(&echo), &mut out));
        }
        // 2^40 units are 2^21 steps back; the way up is longer.
        assert_eq!(restarts, if step > 1 << 19 { 2 } else { 1 });
    }
}
