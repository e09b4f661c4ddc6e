mod oracle;

use super::*;
use crate::agent::testing::{at, at_ports, passing};
use oracle::Oracle;
use proptest::prelude::*;

/// A queue of 125 kB in a period of 80 us, with changes.
fn pacc(change: impl Fn(&mut PaccConfig)) -> Pacc {
    let mut config = PaccConfig { ports: vec![0], flows: 64, ..PaccConfig::default() };
    change(&mut config);
    at_ports(&[0], |site| Pacc::new(&config, site))
}

/// Queues a packet.
fn push(pacc: &mut Pacc, now: Time, passing: &Passing, queue_bytes: u64) {
    let queued = Queued { bytes: queue_bytes, ..Queued::default() };
    assert_eq!(pacc.on_queued(now, passing, queued), Effects::NONE, "CNPs leave by timers");
}

/// Runs the timers until `until_us` with a queue of `queue_bytes`; the times of CNPs in
/// microseconds, with the number of their host.
fn run(pacc: &mut Pacc, until_us: u64, queue_bytes: u64) -> Vec<(u64, u8)> {
    let mut sent = Vec::new();
    while let Some(now) = pacc.poll_timeout().filter(|due| *due <= at(until_us)) {
        let view = |_| QueueView { bytes: queue_bytes, ..QueueView::default() };
        let order = pacc.handle_timeout(now, view).feedback;
        sent.extend(order.map(|order| {
            let OrderTo::Place(place) = order.to else { panic!("CNPs are of flows") };
            let (ends, _) = pacc.flow_at(place).expect("it is there");
            (now.as_ns() / 1000, ends.source_number())
        }));
        assert!(pacc.poll_timeout() != Some(now) || order.is_some(), "the timer makes progress");
    }
    sent
}

#[test]
fn handle_timeout__the_timer_shares_in_proportion() {
    // Without the computation at the edge, which would set the queue of before.
    let mut pacc = pacc(|config| config.edge = false);
    let counts = |pacc: &mut Pacc, from_us: u64| {
        (0..60).for_each(|_| push(pacc, at(from_us), &passing(1, 9, 1000), 200_000));
        (0..40).for_each(|_| push(pacc, at(from_us), &passing(2, 9, 1000), 200_000));
    };
    counts(&mut pacc, 1);
    // 0.05 (200 - 125) + 0.1 (200 - 0) is 23.75: 14.25 and 9.5.
    let sent = run(&mut pacc, 159, 200_000);
    let of = |sent: &[(u64, u8)], host| {
        sent.iter().filter(|(_, to)| *to == host).map(|(us, _)| *us).collect::<Vec<u64>>()
    };
    assert_eq!(of(&sent, 1), (0..14).map(|n| 80 + 4 * n).collect::<Vec<u64>>());
    assert_eq!(of(&sent, 2).len(), 9);
    // The queue is the same: 3.75 CNPs, 2.25 and 1.5, and the fractions of before: 2.5 and 2.
    counts(&mut pacc, 159);
    let sent = run(&mut pacc, 239, 200_000);
    assert_eq!((of(&sent, 1).len(), of(&sent, 2).len()), (2, 2));
}

#[test]
fn handle_timeout__a_burst_is_answered_one_spacing_after_the_threshold() {
    let queued = |pacc: &mut Pacc| {
        for n in 0..400 {
            // From 600 us on, a kilobyte in 40 ns: above the threshold after 5 us.
            let now = at(600) + Dur::from_ns(40) * n;
            push(pacc, now, &passing(1, 9, 1000), 1000 * (n + 1));
            assert!(pacc.poll_timeout().is_some());
        }
    };
    let mut at_edge = pacc(|_| ());
    queued(&mut at_edge);
    // The threshold is exceeded with packet 126, at 605 us.
    let sent = run(&mut at_edge, 612, 230_000);
    assert_eq!(sent, [(609, 1)], "0.05 x 105 + 0.1 x 230 CNPs, the first at once");
    let mut by_timer = pacc(|config| config.edge = false);
    queued(&mut by_timer);
    assert_eq!(run(&mut by_timer, 639, 230_000), []);
    assert_eq!(run(&mut by_timer, 640, 230_000), [(640, 1)]);
    let mut every = pacc(|config| config.every = true);
    queued(&mut every);
    run(&mut every, 612, 230_000);
    assert_eq!(every.poll_timeout(), Some(at(613)), "again after each spacing");
}

#[test]
fn handle_timeout__growth_below_the_threshold_causes_none() {
    let mut pacc = pacc(|_| ());
    push(&mut pacc, at(1), &passing(1, 9, 9000), 100_000);
    assert_eq!(run(&mut pacc, 200, 100_000), [], "8.75 CNPs, but no packet was counted");
}

#[test]
fn handle_timeout__without_carry_small_shares_are_lost() {
    let cnps = |carry| {
        let mut pacc = pacc(|config| (config.edge, config.carry) = (false, carry));
        let mut sent = 0;
        for period in 1..=50 {
            for host in 0..10 {
                push(&mut pacc, at(80 * period), &passing(host, 99, 9000), 200_000);
            }
            sent += run(&mut pacc, 80 * period + 79, 200_000).len();
        }
        sent
    };
    // 3.75 CNPs for ten flows, after 23.75 in the first period: 2 each.
    assert_eq!(cnps(false), 20);
    assert!((190..=208).contains(&cnps(true)), "{}", cnps(true));
}

#[test]
fn poll_timeout__ends_when_nothing_passes() {
    let mut pacc = pacc(|config| config.q_avg_every = Some(Dur::from_us(8)));
    push(&mut pacc, at(1000), &passing(1, 9, 9000), 200_000);
    run(&mut pacc, 2000, 0);
    assert_eq!(pacc.poll_timeout(), None);
    assert_eq!(pacc.counters(at(0))[0].gauges[0], ("flows", 0));
}

proptest! {
    #[test]
    fn handle_timeout__agrees_with_real_numbers(
        // Steps of up to 30 us, the host that sends then, and the queue in kilobytes.
        steps in prop::collection::vec((0u64..30, 0u8..6, 0u64..600), 1..300),
        options in any::<[bool; 3]>(),
    ) {
        let [edge, every, carry] = options;
        let mut pacc =
            pacc(|config| (config.edge, config.every, config.carry) = (edge, every, carry));
        let mut oracle = Oracle::new(options);
        let mut now_us = 1;
        for (gap_us, host, queue_kb) in steps {
            now_us += gap_us;
            let mut sent = run(&mut pacc, now_us, queue_kb * 1000);
            let expected = oracle.run(now_us, queue_kb as f64);
            if oracle.is_ambiguous {
                return Ok(());
            }
            sent.sort_unstable();
            prop_assert_eq!(sent, expected, "until {} us", now_us);
            push(&mut pacc, at(now_us), &passing(host, 99, 1500), queue_kb * 1000);
            oracle.push(now_us, host, 1500, queue_kb as f64);
        }
    }

    #[test]
    fn handle_timeout__never_more_than_allotted_and_never_too_close(
        // Steps of up to 30 us, the host that sends then, and the queue in kilobytes.
        steps in prop::collection::vec((0u64..30, 0u8..12, 0u64..1500), 1..300),
        every in any::<bool>(),
        carry in any::<bool>(),
    ) {
        let mut pacc = pacc(|config| (config.every, config.carry) = (every, carry));
        let (mut now_us, mut sent) = (1, Vec::new());
        for (gap_us, host, queue_kb) in steps {
            now_us += gap_us;
            sent.extend(run(&mut pacc, now_us, queue_kb * 1000));
            push(&mut pacc, at(now_us), &passing(host, 99, 1500), queue_kb * 1000);
        }
        let counters: std::collections::BTreeMap<_, _> =
            pacc.counters(at(0)).remove(0).counters.into_iter().collect();
        prop_assert!(counters["cnps_due"] <= counters["cnps_allotted"]);
        prop_assert_eq!(counters["cnps_due"], u64_from(sent.len()));
        for host in 0..12 {
            let times: Vec<u64> =
                sent.iter().filter(|(_, to)| *to == host).map(|(us, _)| *us).collect();
            let apart = times.windows(2).all(|pair| pair[1] - pair[0] >= 4);
            prop_assert!(apart, "{times:?}");
        }
        run(&mut pacc, now_us + 1000, 0);
        prop_assert_eq!(pacc.poll_timeout(), None);
    }
}
