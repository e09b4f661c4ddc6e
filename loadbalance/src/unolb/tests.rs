use super::*;
use crate::testing::{acked, at, data, flow, lost, retransmission};

const RTT_US: u64 = 100;

fn unolb(params: Params) -> UnoLb {
    UnoLb::new(&params, &flow(1))
}

fn send(lb: &mut UnoLb, us: u64, psn: u64) -> Pick {
    lb.pick(&data(at(us), psn))
}

/// Acknowledges the packet of `path` that was sent at `us`, a round trip later.
fn ack(lb: &mut UnoLb, path: Entropy, us: u64) {
    lb.on_ack(at(us + RTT_US), &acked(path, at(us), RTT_US));
}

/// Sends ten packets, a microsecond apart, all acknowledged; returns the ten paths.
fn warm(lb: &mut UnoLb) -> Vec<Entropy> {
    let paths: Vec<Entropy> = (0..10).map(|psn| send(lb, psn, psn).entropy).collect();
    for (us, path) in (0..).zip(&paths) {
        ack(lb, *path, us);
    }
    paths
}

#[test]
fn pick__packets_take_the_subflows_in_turn() {
    let mut lb = unolb(Params::default());
    let paths: Vec<Entropy> = lb.subflows.iter().map(|s| s.entropy).collect();
    for psn in 0..10 {
        assert_eq!(send(&mut lb, psn, psn).entropy, paths[usize_from(psn)]);
    }
    assert_eq!(send(&mut lb, 10, 10).entropy, paths[0]);
    let mut distinct = paths.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 10);
}

#[test]
fn pick__retransmissions_do_not_shift_the_turn() {
    let mut lb = unolb(Params::default());
    let paths = warm(&mut lb);
    for psn in 10..15 {
        send(&mut lb, 200 + psn, psn);
    }
    lb.pick(&retransmission(at(230), 3, paths[3]));
    lb.pick(&retransmission(at(231), 4, paths[4]));
    assert_eq!(send(&mut lb, 232, 15).entropy, paths[5]);
}

#[test]
fn pick__a_retransmission_rotates_over_live_subflows_but_its_own() {
    let mut lb = unolb(Params::default());
    let paths = warm(&mut lb);
    lb.on_loss(at(120), &lost(paths[1], 1, at(110)));
    let mut took: Vec<Entropy> =
        (0..8).map(|n| lb.pick(&retransmission(at(121 + n), 0, paths[0])).entropy).collect();
    assert!(!took.contains(&paths[0]), "the path of the loss");
    assert!(!took.contains(&paths[1]), "suspect");
    took.sort_unstable();
    took.dedup();
    assert_eq!(took.len(), 8, "the load is spread");
}

#[test]
fn pick__a_retransmission_prefers_a_subflow_with_later_arrivals() {
    let mut lb = unolb(Params::default());
    let paths = warm(&mut lb);
    for psn in 10..20 {
        send(&mut lb, 100 + psn, psn);
    }
    // The paths of subflows 0 to 2 died; the death of the last two is not detected yet.
    for (us, path) in (113..).zip(&paths[3..]) {
        ack(&mut lb, *path, us);
    }
    lb.on_loss(at(220), &lost(paths[0], 1, at(110)));
    assert_eq!(lb.state(at(220), paths[1]), Some(PathState::Live));
    assert_eq!(lb.pick(&retransmission(at(220), 10, paths[0])).entropy, paths[3]);
    assert_eq!(lb.pick(&retransmission(at(221), 10, paths[0])).entropy, paths[4]);
}

#[test]
fn pick__a_retransmission_avoids_silent_subflows() {
    let mut lb = unolb(Params { subflows: 3, ..Params::default() });
    let paths: Vec<Entropy> = (0..3).map(|psn| send(&mut lb, psn, psn).entropy).collect();
    for (us, path) in (0..).zip(&paths) {
        ack(&mut lb, *path, us);
    }
    send(&mut lb, 110, 4);
    // The second is due at 210, silent at 260; the third has nothing in flight.
    for us in 260..264 {
        assert_eq!(lb.pick(&retransmission(at(us), 0, paths[0])).entropy, paths[2]);
    }
}

#[test]
fn pick__a_retransmission_without_live_subflows_takes_the_last_with_feedback() {
    let mut lb = unolb(Params { subflows: 3, ..Params::default() });
    let paths: Vec<Entropy> = (0..3).map(|psn| send(&mut lb, psn, psn).entropy).collect();
    ack(&mut lb, paths[1], 1);
    ack(&mut lb, paths[0], 2);
    for path in &paths {
        lb.on_loss(at(300), &lost(*path, 1, at(250)));
    }
    assert_eq!(lb.pick(&retransmission(at(300), 0, paths[2])).entropy, paths[0]);
    assert_eq!(lb.pick(&retransmission(at(300), 0, paths[0])).entropy, paths[1]);
}

#[test]
fn pick__a_retransmission_reroutes_a_single_bad_subflow() {
    let mut lb = unolb(Params { subflows: 1, ..Params::default() });
    let path = send(&mut lb, 0, 0).entropy;
    lb.on_loss(at(300), &lost(path, 4, at(0)));
    let pick = lb.pick(&retransmission(at(300), 0, path));
    assert_eq!(pick.replaced, Some(path));
    assert_ne!(pick.entropy, path);
}

#[test]
fn reroute__two_nacks_within_a_base_round_trip_are_one() {
    let mut lb = unolb(Params::default());
    let paths = warm(&mut lb);
    // The path of subflow 0 is dead: packets each 10 us from 110 on.
    for n in 0..20 {
        send(&mut lb, 110 + 10 * n, 10 * n + 10);
    }
    lb.on_loss(at(310), &lost(paths[0], 4, at(140)));
    let first = send(&mut lb, 310, 500);
    assert_eq!(first.replaced, Some(paths[0]));
    lb.on_loss(at(340), &lost(first.entropy, 4, at(311)));
    assert_eq!(send(&mut lb, 340, 510), Pick::from(first.entropy), "0.3 round trips later");
    assert_eq!(send(&mut lb, 409, 520), Pick::from(first.entropy));
    assert_eq!(send(&mut lb, 410, 530).replaced, Some(first.entropy), "a whole one later");
}

#[test]
fn reroute__not_for_a_random_loss() {
    let mut lb = unolb(Params::default());
    let paths = warm(&mut lb);
    let mut sent = std::collections::VecDeque::new();
    for us in 110..20_000 {
        let pick = send(&mut lb, us, us);
        assert_eq!(pick.replaced, None, "{us}");
        sent.push_back((us, pick.entropy));
        if us < 210 {
            continue;
        }
        let (sent_us, path) = sent.pop_front().unwrap();
        match sent_us % 97 {
            0 => lb.on_loss(at(us), &lost(path, 1, at(sent_us))),
            _ => ack(&mut lb, path, sent_us),
        }
    }
    let now: Vec<Entropy> = lb.subflows.iter().map(|s| s.entropy).collect();
    assert!(paths.iter().all(|path| now.contains(path)));
}

#[test]
fn reroute__a_dead_path_is_remembered_until_it_expires_or_revives() {
    let mut lb = unolb(Params::default());
    let paths = warm(&mut lb);
    let die = |lb: &mut UnoLb| {
        send(lb, 200, 20);
        send(lb, 200, 30);
        ack(lb, paths[1], 201);
        lb.on_loss(at(310), &lost(paths[0], 4, at(200)));
        assert_eq!(lb.state(at(310), paths[0]), Some(PathState::Bad), "still in use");
        assert!(send(lb, 310, 40).replaced.is_some());
        assert_eq!(lb.state(at(310), paths[0]), Some(PathState::Bad));
    };
    let mut timed = lb.clone();
    die(&mut timed);
    let forgotten = at(310) + Dur::from_ms(10_000);
    assert_eq!(timed.state(forgotten, paths[0]), Some(PathState::Retired));
    die(&mut lb);
    ack(&mut lb, paths[0], 199);
    assert_eq!(lb.state(at(311), paths[0]), Some(PathState::Bad), "sent before the loss");
    ack(&mut lb, paths[0], 200);
    assert_eq!(lb.state(at(311), paths[0]), Some(PathState::Retired));
}

#[test]
fn reroute__without_any_feedback_no_path_is_dead() {
    let mut lb = unolb(Params::default());
    let paths: Vec<Entropy> = (0..10).map(|psn| send(&mut lb, psn, psn).entropy).collect();
    lb.on_timeout(at(1000));
    for (psn, path) in (10..20).zip(&paths) {
        assert_eq!(send(&mut lb, 1000, psn).replaced, Some(*path));
        assert_eq!(lb.state(at(1000), *path), Some(PathState::Retired), "not dead");
    }
}

#[test]
fn reroute__copies_a_live_path_if_configured() {
    let mut copied = Vec::new();
    for seed in 0..20 {
        let mut lb = UnoLb::new(&Params { reroute: COPY, ..Params::default() }, &flow(seed));
        let paths: Vec<Entropy> = (0..10).map(|psn| send(&mut lb, psn, psn).entropy).collect();
        ack(&mut lb, paths[3], 3);
        ack(&mut lb, paths[7], 7);
        lb.on_loss(at(120), &lost(paths[0], 4, at(0)));
        let pick = send(&mut lb, 120, 20);
        assert_eq!(pick.replaced, Some(paths[0]));
        copied.extend(paths.iter().position(|path| *path == pick.entropy));
    }
    assert_eq!(copied.len(), 20, "only copies");
    copied.sort_unstable();
    copied.dedup();
    assert_eq!(copied, [3, 7], "of the two with arrivals");
}

#[test]
fn reroute__copies_nothing_without_live_paths() {
    let mut lb = unolb(Params { reroute: COPY, ..Params::default() });
    let paths: Vec<Entropy> = (0..10).map(|psn| send(&mut lb, psn, psn).entropy).collect();
    lb.on_timeout(at(1000));
    let pick = send(&mut lb, 1000, 10);
    assert_eq!(pick.replaced, Some(paths[0]));
    assert!(!paths.contains(&pick.entropy), "fresh");
}

#[test]
fn reroute__prefers_sharing_a_path_to_a_dead_one() {
    for seed in 0..20 {
        // Of three paths two are in use; the third and the first die one after the other.
        let params = Params { subflows: 2, entropies: 3, ..Params::default() };
        let mut lb = UnoLb::new(&params, &flow(seed));
        let shared = lb.subflows[1].entropy;
        for us in [0, 300] {
            let path = send(&mut lb, us, 0).entropy;
            send(&mut lb, us, 1);
            ack(&mut lb, shared, us);
            lb.on_loss(at(us + 200), &lost(path, 4, at(us)));
        }
        assert_eq!(send(&mut lb, 500, 0).entropy, shared);
    }
}

#[test]
fn limits__use_the_round_trip_of_the_path_if_known() {
    let mut lb = unolb(Params { subflows: 2, ..Params::default() });
    let rtt_us = |lb: &UnoLb, at: usize| lb.limits(&lb.subflows[at]).rtt.as_us();
    assert_eq!(rtt_us(&lb, 0), 100, "the base");
    lb.on_ack(at(300), &acked(lb.subflows[0].entropy, at(0), 300));
    assert_eq!((rtt_us(&lb, 0), rtt_us(&lb, 1)), (300, 300));
    lb.on_ack(at(310), &acked(lb.subflows[1].entropy, at(200), 110));
    assert_eq!((rtt_us(&lb, 0), rtt_us(&lb, 1)), (300, 110));
}

#[test]
fn reroute__fresh_avoids_used_and_dead_paths() {
    // Of four paths one is in use and one is dead: the other two take turns.
    let params = Params { subflows: 2, entropies: 4, ..Params::default() };
    for seed in 0..50 {
        let mut lb = UnoLb::new(&params, &flow(seed));
        let mut us = 0;
        let mut replaced = Vec::new();
        for _ in 0..2 {
            let (a, b) = (send(&mut lb, us, 0).entropy, send(&mut lb, us, 1).entropy);
            ack(&mut lb, b, us);
            lb.on_loss(at(us + 200), &lost(a, 4, at(us)));
            us += 200;
            let pick = send(&mut lb, us, 2);
            replaced.push(pick.replaced.unwrap());
            assert!(pick.entropy != b && !replaced.contains(&pick.entropy));
            us += 200;
            ack(&mut lb, pick.entropy, us - 200);
        }
    }
}

#[test]
fn new__subflows_share_too_few_paths() {
    let lb = unolb(Params { subflows: 8, entropies: 3, ..Params::default() });
    let mut paths: Vec<Entropy> = lb.subflows.iter().map(|s| s.entropy).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), 3);
}

#[test]
fn state__reports_the_state_of_a_path() {
    let mut lb = unolb(Params::default());
    let paths = warm(&mut lb);
    assert_eq!(lb.state(at(110), paths[0]), Some(PathState::Live));
    lb.on_loss(at(120), &lost(paths[0], 1, at(110)));
    assert_eq!(lb.state(at(120), paths[0]), Some(PathState::Suspect));
    let unused = (0..Entropy::COUNT).map(Entropy::new).find(|path| !paths.contains(path));
    assert_eq!(lb.state(at(120), unused.unwrap()), Some(PathState::Retired));
}
