use super::ack_info::{AckInfo, BeyondSent};
use super::*;
use crate::sr::number::wrap;
use crate::sr::rx::received::{Arrival, Received};
use crate::sr::tx::rtt::Rtt;
use proptest::prelude::*;
use spanwire_base::{Dur, Rng, u64_from};
use spanwire_wire::SackWord;
use std::collections::BTreeSet;

fn at(us: u64) -> Time {
    Time::ZERO + Dur::from_us(us)
}

fn rtt(us: u64) -> Rtt {
    let mut rtt = Rtt::default();
    rtt.sample(Dur::from_us(us), Dur::ZERO);
    rtt
}

/// Ten packets, one each microsecond.
fn ten() -> Sent<u64> {
    let mut s = Sent::new(0);
    for i in 0..10 {
        s.push(at(i), i, 100, 0, SendTimeState::default());
    }
    s
}

fn word(numbers: &[u64]) -> SackWord {
    SackWord { base: 0, bits: numbers.iter().fold(0, |bits, n| bits | 1 << n) }
}

fn info<'a>(next: u32, words: &'a [SackWord], newest: u32, echo: u64) -> AckInfo<'a> {
    let (echo, lost_send_time, latest_ackable) = (at(echo), Time::ZERO, Time::MAX);
    AckInfo { next, words, newest, echo, blocks: &[], lost_send_time, latest_ackable, marks: 0 }
}

fn found(s: &mut Sent<u64>, now: Time, rtt: &Rtt) -> (u64, Option<Time>) {
    let found = s.detect(now, rtt);
    (found.plain.pkts, found.loss_timer)
}

fn lost(s: &Sent<u64>) -> Vec<u64> {
    s.ring.iter().filter(|e| e.state == State::Lost).map(|e| e.contents).collect()
}

#[test]
fn on_ack__counts_each_arrival_once() {
    let mut s = ten();
    let words = [word(&[5, 7])];
    let first = s.on_ack(&info(3, &words, 7, 7)).unwrap();
    assert_eq!((first.pkts, first.bytes, s.in_flight_pkts()), (5, 500, 5));
    let repeated = s.on_ack(&info(3, &words, 7, 7)).unwrap();
    assert_eq!((repeated.pkts, s.in_flight_bytes()), (0, 500));
    let rest = s.on_ack(&info(10, &[], 9, 9)).unwrap();
    assert_eq!((rest.pkts, s.is_empty()), (5, true));
    assert_eq!(wrap(s.una()), 10);
}

#[test]
fn on_ack__beyond_sent_changes_nothing() {
    let mut s = ten();
    let past = 0u32.wrapping_sub(1 << 16);
    let long_ago = past.wrapping_sub(1);
    for (next, words, newest) in [
        (11, vec![], 0),
        (3, vec![], 10),
        (3, vec![word(&[10])], 3),
        (1 << 31, vec![], 0),
        (long_ago, vec![], 0),
        (3, vec![], long_ago),
    ] {
        let before = format!("{s:?}");
        assert_eq!(s.on_ack(&info(next, &words, newest, 0)), Err(BeyondSent), "{next} {newest}");
        assert_eq!(format!("{s:?}"), before);
    }
    assert_eq!(s.on_ack(&info(past, &[], past, 0)).map(|a| a.pkts), Ok(0));
}

#[test]
fn detect__waits_for_the_reordering_window() {
    let mut s = ten();
    let rtt = rtt(100);
    // 0 and 1 are missing; 9, sent at 9 us, has arrived at 109 us.
    let words = [word(&[2, 3, 4, 5, 6, 7, 8, 9])];
    s.on_ack(&info(0, &words, 9, 9)).unwrap();
    // Each is overdue after 100 us and a reordering window of a quarter of that.
    assert_eq!(found(&mut s, at(109), &rtt), (0, Some(at(125))));
    assert_eq!(found(&mut s, at(125), &rtt), (1, Some(at(126))));
    assert_eq!(found(&mut s, at(126), &rtt), (1, None));
    assert_eq!(lost(&s), [0, 1]);
    assert_eq!((s.in_flight_pkts(), s.counters().presumed_lost), (0, 2));
}

#[test]
fn detect__orders_packets_of_one_time_by_number() {
    let mut s = Sent::new(0);
    for i in 0..10 {
        s.push(at(0), i, 100, 0, SendTimeState::default());
    }
    let rtt = rtt(100);
    s.on_ack(&info(2, &[word(&[3, 4, 5, 6])], 6, 0)).unwrap();
    assert_eq!(found(&mut s, at(100), &rtt), (0, Some(at(125))));
    assert_eq!(found(&mut s, at(125), &rtt), (1, None), "7 to 9 were sent after what has arrived");
    assert_eq!(lost(&s), [2]);
    // An overtaken packet of the same send time counts as reordered.
    let late = s.on_ack(&info(2, &[word(&[3, 4, 5, 6, 8])], 8, 0)).unwrap().is_reordered;
    assert!(!late && s.on_ack(&info(2, &[word(&[3, 4, 5, 6, 7, 8])], 7, 0)).unwrap().is_reordered);
}

#[test]
fn detect__leaves_the_tail_to_a_probe() {
    let mut s = ten();
    s.on_ack(&info(9, &[], 8, 8)).unwrap();
    assert_eq!(found(&mut s, at(1_000_000), &rtt(100)), (0, None), "9 is left to a TLP");
    assert_eq!(s.newest(), Some((s.una(), 9)));
}

#[test]
fn detect__finds_a_lost_retransmission() {
    let (mut s, rtt) = (ten(), rtt(100));
    s.on_ack(&info(0, &[word(&[1, 2, 3])], 3, 3)).unwrap();
    assert_eq!(s.detect(at(200), &rtt).plain.pkts, 1);
    let (number, _) = s.next_lost(|_| true).unwrap();
    s.on_retransmitted(at(200), number, 0);
    assert_eq!(s.next_lost(|_| true), None);
    s.push(at(201), 10, 100, 0, SendTimeState::default());
    s.on_ack(&info(0, &[word(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])], 10, 201)).unwrap();
    assert_eq!(found(&mut s, at(324), &rtt), (0, Some(at(325))));
    assert_eq!(found(&mut s, at(325), &rtt), (1, None));
    assert_eq!(s.counters().retransmitted, 1);
}

#[test]
fn on_echo__a_spurious_retransmission_widens_reo_wnd() {
    let (mut s, rtt) = (ten(), rtt(100));
    s.on_ack(&info(0, &[word(&[1, 2, 3])], 3, 3)).unwrap();
    s.detect(at(200), &rtt);
    let (number, _) = s.next_lost(|_| true).unwrap();
    s.on_retransmitted(at(200), number, 0);
    // The first transmission of 0, sent at 0 us, was only reordered.
    let acked = s.on_ack(&info(4, &[], 0, 0)).unwrap();
    assert!(acked.is_reordered);
    assert_eq!((s.counters().spurious_retransmits, s.reorder.reo_wnd_mult), (1, 2));
    for left in (0..16).rev() {
        s.on_recovery_end();
        assert_eq!(s.reorder.reo_wnd_mult, if left == 0 { 1 } else { 2 });
    }
}

#[test]
fn on_echo__an_original_after_its_copy_is_reordered() {
    for next in [4, 0] {
        let (mut s, rtt) = (ten(), rtt(100));
        s.on_ack(&info(0, &[word(&[1, 2, 3])], 3, 3)).unwrap();
        s.detect(at(200), &rtt);
        let (number, _) = s.next_lost(|_| true).unwrap();
        s.on_retransmitted(at(200), number, 0);
        // The retransmission arrives, then the original: 0 is acknowledged, or only its SACK bit is
        // set.
        let copy = s.on_ack(&info(next, &[word(&[0, 1, 2, 3])], 0, 200)).unwrap();
        assert_eq!((copy.is_reordered, copy.is_duplicate), (false, false));
        let first = s.on_ack(&info(next, &[], 0, 0)).unwrap();
        assert_eq!((first.is_reordered, first.is_duplicate, first.pkts), (true, true, 0));
        assert_eq!(s.counters().spurious_retransmits, 0, "by its echo it may be a duplicate");
    }
}

#[test]
fn on_echo__a_probe_is_not_a_loss() {
    let mut s = ten();
    let (number, _) = s.newest().unwrap();
    s.on_retransmitted(at(300), number, 0);
    s.on_ack(&info(10, &[], 9, 9)).unwrap();
    assert_eq!((s.counters().spurious_retransmits, s.reorder.reo_wnd_mult), (0, 1));
}

#[test]
fn push_path_arrival__a_probe_does_not_prove_its_path() {
    // 9 is retransmitted by another path at 300 us; its first transmission arrives too.
    for (newest, echo, latest_ackable, paths) in
        [(9, 9, 310, &[1][..]), (9, 300, 310, &[1, 2]), (8, 8, 299, &[1]), (8, 8, 300, &[1, 2])]
    {
        let mut s = Sent::new(0);
        s.track_paths();
        (0..10).for_each(|i| s.push(at(i), i, 100, 1, SendTimeState::default()));
        let (number, _) = s.newest().unwrap();
        s.on_retransmitted(at(300), number, 2);
        s.on_ack(&AckInfo { latest_ackable: at(latest_ackable), ..info(10, &[], newest, echo) })
            .unwrap();
        let events = s.take_path_events();
        let all: Vec<u16> = events.iter().map(|one| one.path).collect();
        assert_eq!(
            (all.as_slice(), events[0].pkts),
            (paths, 9),
            "{newest} {echo} {latest_ackable}"
        );
    }
}

#[test]
fn on_reordering__widens_reo_wnd_to_the_observed_delay() {
    let (mut s, rtt) = (ten(), rtt(20));
    s.on_reordering(Dur::from_us(1000));
    s.on_ack(&info(0, &[word(&[1])], 1, 1)).unwrap();
    assert_eq!(found(&mut s, at(21), &rtt), (0, Some(at(20 + 1250))));
    s.on_reordering(Dur::from_us(1_000_000));
    assert_eq!(found(&mut s, at(21), &rtt), (0, Some(at(20 + 4000))), "limited");
    for _ in 0..16 {
        s.on_recovery_end();
    }
    assert_eq!(found(&mut s, at(24), &rtt), (0, Some(at(25))));
}

#[test]
fn on_no_receive__retransmits_without_a_loss() {
    let mut s = ten();
    s.on_no_receive(4, at(3), None, |_| false);
    assert_eq!(s.in_flight_pkts(), 10, "the RNR NAK is of an earlier transmission");
    s.on_no_receive(4, at(4), None, |contents| matches!(contents, 2 | 9));
    assert_eq!((s.in_flight_pkts(), s.counters().presumed_lost), (8, 0), "9 was sent later");
    s.on_no_receive(5, at(7), Some(at(4)), |contents| matches!(contents, 0 | 6));
    assert_eq!(s.in_flight_pkts(), 7, "0 was checked before, and 5 was not sent at that time");
    s.on_retransmitted(at(15), s.una() + 6, 0);
    assert_eq!(s.next_lost(|_| true).map(|(_, contents)| contents), Some(2));
    s.on_retransmitted(at(20), s.una() + 2, 0);
    assert_eq!(
        s.next_lost(|contents| *contents != 4),
        None,
        "the oldest blocked packet blocks those above"
    );
    assert_eq!(s.next_lost(|_| true).map(|(_, contents)| contents), Some(4));
    assert_eq!((s.contents(4), s.contents(10)), (Some(4), None));
}

#[test]
fn clear__continues_with_the_next_number() {
    let mut s = ten();
    s.clear();
    assert_eq!((s.is_empty(), s.in_flight_pkts(), wrap(s.next())), (true, 0, 10));
}

#[test]
fn undo_timeout__returns_packets_to_flight() {
    let mut s = ten();
    s.on_ack(&info(2, &[], 1, 1)).unwrap();
    s.mark_all_lost();
    assert_eq!(s.in_flight_pkts(), 0);
    let (number, contents) = s.next_lost(|_| true).unwrap();
    assert_eq!(contents, 2);
    s.on_retransmitted(at(5000), number, 0);
    s.undo_timeout();
    assert_eq!(s.in_flight_pkts(), 8);
    assert_eq!(s.next_lost(|_| true), None);
    assert!(s.order.iter().zip(s.order.iter().skip(1)).all(|(a, b)| a.at <= b.at));
}

proptest! {
    /// Over a wire that loses, duplicates and reorders, every packet arrives, the counts stay
    /// consistent, and only arrived packets are acknowledged.
    #[test]
    fn sent__agrees_with_the_receiver(
        seed in any::<u64>(),
        first in any::<u32>(),
        loss in 0u64..40,
    ) {
        let mut rng = Rng::new(seed);
        let mut sent: Sent<u64> = Sent::new(first);
        let mut received = Received::new(first, 512);
        let base = sent.next();
        let mut arrived = BTreeSet::new();
        let (mut wire, mut now, mut rtt) = (Vec::<(Time, u64, Time)>::new(), at(0), Rtt::default());
        let mut silent = 0;
        for _ in 0..20_000 {
            now += Dur::from_us(1);
            let lost = sent.next_lost(|_| true);
            let number = match lost {
                Some((number, contents)) => {
                    prop_assert_eq!(base + contents, number);
                    sent.on_retransmitted(now, number, 0);
                    Some(number)
                }
                None if sent.next() < base + 600 && sent.in_flight_pkts() < 100
                    && sent.next() < sent.una() + 512 => {
                    let number = sent.next();
                    let state = SendTimeState::default();
                    sent.push(now, number - base, 1, 0, state);
                    Some(number)
                }
                None => None,
            };
            if let Some(number) = number.filter(|_| rng.below(100) >= loss) {
                wire.push((now + Dur::from_us(20 + rng.below(30)), number, now));
                if rng.below(20) == 0 {
                    wire.push((now + Dur::from_us(90), number, now));
                }
            }
            let mut news = None;
            wire.retain(|(due, number, sent_at)| {
                if *due > now { return true; }
                if let Arrival::Missing(n) = received.classify(wrap(*number)) {
                    assert_eq!(n, *number);
                    received.insert(n);
                    arrived.insert(n);
                }
                news = Some((*number, *sent_at));
                false
            });
            match news {
                Some((newest, echo)) if rng.below(100) >= loss => {
                    let words = received.words();
                    let (next, newest) = (wrap(received.next()), wrap(newest));
                    let (words, blocks, marks) = (words.as_slice(), &[][..], 0);
                    let (lost_send_time, latest_ackable) = (Time::ZERO, Time::MAX);
                    let info = AckInfo {
                        next,
                        words,
                        newest,
                        echo,
                        blocks,
                        lost_send_time,
                        latest_ackable,
                        marks,
                    };
                    sent.on_ack(&info).unwrap();
                    rtt.sample(now.since(echo), Dur::ZERO);
                    silent = 0;
                }
                _ => silent += 1,
            }
            sent.detect(now, &rtt);
            if silent > 300 {
                sent.mark_all_lost();
                silent = 0;
            }
            let kept = (sent.una()..sent.next()).filter_map(|number| sent.packet(number));
            let in_flight = kept.filter(|e| e.state == State::InFlight).count();
            prop_assert_eq!(sent.in_flight_pkts(), u64_from(in_flight));
            prop_assert!((base..sent.una()).all(|n| arrived.contains(&n)));
            if sent.una() == base + 600 { break; }
        }
        prop_assert_eq!(sent.una(), base + 600, "everything arrives");
    }
}
