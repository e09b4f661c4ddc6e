use super::*;
use crate::telemetry::hop;
use crate::testing::path;
use proptest::prelude::*;

fn us(us: f64) -> Time {
    Time::ZERO + crate::units::dur(us * 1e3)
}

fn sender() -> Mlcc {
    Mlcc::new(&Params::default(), &path(1024, 25, None))
}

fn receiver() -> Receiver {
    Receiver::new(&Params::default(), &path(1024, 25, None))
}

fn data(credit: u32) -> Arrival<'static> {
    Arrival { credit, waiting_bytes: 0, int: &[] }
}

#[test]
fn rate__is_the_lesser_of_near_and_suggested() {
    let mut cc = sender();
    assert_eq!(cc.rate(), Some(Rate::from_gbps(25)), "until something is heard");
    assert_eq!(cc.cwnd_bytes(), 23_609_375, "1.25 round trips");
    cc.on_credit(us(1.0), Rate::from_gbps(8));
    assert_eq!(cc.rate(), Some(Rate::from_gbps(8)));
    cc.on_credit(us(1.0), Rate::from_bps(1));
    assert_eq!(cc.rate(), Some(Rate::from_bps(250_000_000)), "at least a hundredth of the line");
    cc.on_credit(us(1.0), Rate::from_gbps(20));
    for n in 0..40_u64 {
        // A link of 100 Gbit/s with all its bytes in use, and a queue of a round trip.
        let at = 22.0 * n as f64;
        cc.on_near_int(us(at), &[hop(us(at), 275_000 * n, 275_000)]);
    }
    let near = cc.near_rate();
    assert!(near < Rate::from_gbps(10) && cc.rate() == Some(near), "{near:?}");
}

#[test]
fn rate__counts_what_the_pacer_counts_beside_the_frame() {
    let mut cc = sender();
    cc.on_credit(us(1.0), Rate::from_gbps(10));
    let sent = |bytes, frame_bytes| Sent {
        bytes,
        frame_bytes,
        paced_bytes: frame_bytes + 24,
        inflight_bytes: 0,
        is_retransmission: false,
    };
    cc.on_sent(us(1.0), &sent(100, 200));
    assert_eq!(cc.rate(), Some(Rate::from_gbps(10)), "a short packet");
    cc.on_sent(us(1.0), &sent(1024, 1200));
    assert_eq!(cc.rate(), Some(Rate::from_bps(10_200_000_000)));
}

#[test]
fn on_loss__a_timeout_halves_the_near_rate_alone() {
    let mut cc = sender();
    cc.on_credit(us(1.0), Rate::from_gbps(20));
    let loss = |kind| Loss { kind, bytes: 1, inflight_bytes: 0 };
    cc.on_loss(us(2.0), &loss(LossKind::Recovery));
    assert_eq!(cc.rate(), Some(Rate::from_gbps(20)));
    cc.on_loss(us(2.0), &loss(LossKind::Timeout(1)));
    assert_eq!(cc.rate(), Some(Rate::from_bps(12_500_000_000)));
}

#[test]
fn on_data__a_match_ends_the_round() {
    let mut r = receiver();
    assert_eq!(r.poll_timeout(), None, "before data");
    assert!(r.on_data(us(0.0), &data(0)), "the first packet: the number must leave");
    assert_eq!(r.credit().credit, 1);
    assert!(!r.on_data(us(1.0), &data(0)));
    assert!(r.on_data(us(22.0), &data(1)));
    assert_eq!(r.credit().credit, 2);
    assert!(!r.on_data(us(23.0), &data(1)), "a stale one delays a round");
    assert!(!r.on_data(us(23.0), &data(7)), "and so does one that was never sent");
    assert_eq!(r.poll_timeout(), Some(us(66.0)));
    assert!(!r.handle_timeout(us(65.0)) && r.handle_timeout(us(66.0)));
    assert_eq!(r.credit().credit, 3);
    // Four times without data, then it is silent.
    for at in [110.0, 154.0, 198.0] {
        assert!(r.handle_timeout(us(at)), "{at}");
    }
    assert_eq!((r.poll_timeout(), r.handle_timeout(us(1e6))), (None, false));
    assert!(r.on_data(us(1e6), &data(2)), "the next packet ends the round");
    assert_eq!(r.poll_timeout(), Some(us(1e6 + 44.0)), "data begin it again");
    assert!(!r.on_data(us(1e6 + 43.0), &data(2)) && r.on_data(us(1e6 + 44.0), &data(2)));
}

#[test]
fn credit__follows_the_load_behind_the_switch() {
    let mut r = receiver();
    // The access link of 25 Gbit/s: full, with 300 kB queued.
    let hop = |n: u64| Hop {
        at: us(22.0 * n as f64),
        tx_bytes: 68_750 * n,
        queue_bytes: 300_000,
        rate: Rate::from_gbps(25),
    };
    for n in 1..200 {
        let int = [hop(n)];
        r.on_data(us(22.0 * n as f64), &Arrival { credit: r.credit().credit, ..data_of(&int) });
    }
    let credit = r.credit();
    assert!(
        credit.rate < Rate::from_gbps(2) && credit.rate > Rate::from_bps(100_000_000),
        "{credit:?}"
    );
    let off = Params { credit_loop: false, dqm: 3.0, ..Params::default() };
    let mut r = Receiver::new(&off, &path(1024, 25, None));
    for n in 1..200 {
        let int = [hop(n)];
        r.on_data(us(22.0 * n as f64), &Arrival { credit: r.credit().credit, ..data_of(&int) });
    }
    let credit = r.credit();
    assert_eq!((credit.rate, credit.suggested), (Rate::from_gbps(25), Rate::from_gbps(25)));
}

fn data_of(int: &[Hop]) -> Arrival<'_> {
    Arrival { credit: 0, waiting_bytes: 0, int }
}

/// An event of a receiver.
#[derive(Clone, Debug)]
enum Event {
    /// Data with a number relative to the present one, so many bytes wait.
    Data(i64, u32, u64),
    Timer,
}

proptest! {
    /// Data lost, duplicated and out of order, with any numbers: rates stay between 0 and the
    /// line's, the number only rises, and a round ends within two round trips while data arrive.
    #[test]
    fn any_events__keep_rates_in_bounds_and_the_loop_alive(
        events in prop::collection::vec(
            (0..60_000_u64, prop_oneof![
                6 => (-3..2_i64, any::<u32>(), 0..1_000_000_u64)
                    .prop_map(|(n, waiting, queue)| Event::Data(n, waiting, queue)),
                1 => Just(Event::Timer),
            ]),
            1..300,
        ),
        law in 0..2_u8,
        dqm in 0..4_u8,
    ) {
        let p = Params { law: law.into(), dqm: dqm.into(), ..Params::default() };
        let mut r = Receiver::new(&p, &path(1024, 25, None));
        let line = Rate::from_gbps(25);
        let (mut now, mut tx, mut last) = (us(1.0), 0, r.credit().credit);
        for (wait, event) in events {
            now += Dur::from_ns(wait);
            while let Some(at) = r.poll_timeout().filter(|at| *at <= now) {
                prop_assert!(r.handle_timeout(at));
            }
            let before = r.credit().credit;
            prop_assert!(before.wrapping_sub(last) < 1 << 31);
            match event {
                Event::Data(n, waiting_bytes, queue_bytes) => {
                    tx += 1000;
                    let at = Time::from_ps(now.as_ps() - 1);
                    let hop = Hop { at, tx_bytes: tx, queue_bytes, rate: line };
                    let number = i64::from(before).wrapping_add(n);
                    let credit = u32::try_from(number.rem_euclid(1 << 32)).unwrap();
                    r.on_data(now, &Arrival { credit, waiting_bytes, int: &[hop] });
                    let due = r.poll_timeout();
                    prop_assert!(due.is_some_and(|at| at <= now + Dur::from_us(44)));
                }
                Event::Timer => { r.handle_timeout(now); }
            }
            let credit = r.credit();
            prop_assert!(credit.credit.wrapping_sub(before) <= 1);
            prop_assert!(credit.rate <= line && credit.suggested <= line, "{credit:?}");
            prop_assert!(credit.suggested >= Rate::from_bps(250_000_000));
            last = credit.credit;
        }
    }
}
