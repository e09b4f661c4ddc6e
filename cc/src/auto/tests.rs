use super::*;
use crate::Controller;
use crate::testing::{at, path};
use spanwire_base::Dur;

const MTU: u64 = 1000;

/// A flow on a path whose delays the test chooses.
struct Flow {
    cc: Auto,
    now_us: u64,
    /// Of each acknowledgement.
    ack: Ack<'static>,
    /// Bytes lost, of the next acknowledgement.
    lost: u64,
}

impl Flow {
    fn new() -> Self {
        let cc = Auto::new(&Params::default(), &path(1000, 10, None));
        let ack = Ack { acked_bytes: MTU, acked_pkts: 1, cwnd_limited: true, ..Ack::default() };
        Self { cc, now_us: 1_000_000, ack, lost: 0 }
    }

    /// As [`Flow::new`], on a path of 2 ms, in avoidance with a window of 50 packets.
    fn in_avoidance() -> Self {
        let mut flow = Self::new();
        flow.round(2_000, 20);
        flow.round(2_000, 20);
        flow.cc.state = State::Avoidance;
        flow.cc.cwnd = 50_000.0;
        flow
    }

    /// A round trip of `us` with `pkts` acknowledgements, all as late as the round trip is long.
    fn round(&mut self, us: u64, pkts: u64) {
        let began = self.now_us;
        for n in 1..=pkts {
            let now = began + us * n / pkts;
            let sent_at = at(now - us);
            let rtt = Some(Dur::from_us(us));
            let lost_bytes = std::mem::take(&mut self.lost);
            self.cc.on_ack(at(now), &Ack { rtt, sent_at, lost_bytes, ..self.ack });
        }
        self.now_us = began + us;
    }

    fn window(&self) -> u64 {
        self.cc.cwnd_bytes() / MTU
    }
}

#[test]
fn on_ack__startup_doubles_and_ends_with_a_drain_when_a_queue_builds_up() {
    let mut flow = Flow::new();
    assert_eq!(flow.window(), 10);
    flow.round(2_000, 10);
    assert_eq!(flow.window(), 20);
    flow.round(2_000, 20);
    assert_eq!(flow.window(), 40);
    flow.round(6_000, 40);
    assert!(matches!(flow.cc.state, State::Drain { .. }), "{:?}", flow.cc.state);
    // Half of what the path carries: 40 packets in 6 ms are 13 in 2 ms.
    let drained = flow.window();
    assert!((4..=8).contains(&drained), "{drained}");
    flow.round(2_000, drained);
    flow.round(2_000, drained);
    assert_eq!(flow.cc.state, State::Avoidance);
    assert!((8..=40).contains(&flow.window()), "{}", flow.window());
}

#[test]
fn on_ack__grows_below_the_target_and_decreases_above() {
    let mut flow = Flow::in_avoidance();
    (0..5).for_each(|_| flow.round(2_200, 50));
    let grown = flow.window();
    assert!((55..80).contains(&grown), "{grown}");
    (0..5).for_each(|_| flow.round(8_000, 50));
    assert!(flow.window() < grown * 2 / 3, "{}", flow.window());
}

#[test]
fn on_ack__delays_of_some_packets_are_no_queue() {
    let mut flow = Flow::in_avoidance();
    for _ in 0..10 {
        // Most packets of each round are 20 ms late, by a sleeping host.
        flow.round(22_000, 40);
        flow.round(2_000, 10);
    }
    assert!(flow.window() >= 50, "{}", flow.window());
}

#[test]
fn target__is_larger_on_late_hosts_and_for_slow_flows() {
    let mut flow = Flow::in_avoidance();
    let calm = flow.cc.target(2e6);
    flow.ack.rx_delay = Dur::from_us(300);
    (0..5).for_each(|_| flow.round(2_000, 50));
    assert!(flow.cc.target(2e6) > 2.0 * calm, "{} {calm}", flow.cc.target(2e6));
    flow.cc.lateness = 0.0;
    let target = |flow: &mut Flow, mbps: f64| {
        flow.cc.rate = mbps / 8e3;
        flow.cc.target(2e6)
    };
    let [slow, fast] = [1.0, 1000.0].map(|mbps| target(&mut flow, mbps));
    assert!(slow > 3.0 * fast, "{slow} {fast}");
}

#[test]
fn on_ack__drains_after_500_round_trips_without_the_lowest_delay() {
    let mut flow = Flow::in_avoidance();
    let drained = |flow: &Flow| matches!(flow.cc.state, State::Drain { .. });
    let began = flow.now_us;
    while !drained(&flow) && flow.now_us < began + 3_000_000 {
        flow.round(2_400, 20);
    }
    let after_ms = (flow.now_us - began) / 1000;
    assert!(drained(&flow) && (1_000..1_100).contains(&after_ms), "{after_ms}");
    // The lowest delay, seen from time to time, makes that unnecessary.
    let mut flow = Flow::in_avoidance();
    for _ in 0..100 {
        flow.round(2_000, 20);
        (0..10).for_each(|_| flow.round(2_400, 20));
        assert!(!drained(&flow));
    }
}

#[test]
fn end_drain__other_traffic_that_keeps_a_queue_raises_the_target_to_a_round_trip() {
    let mut flow = Flow::in_avoidance();
    let (base, calm) = (2e6, flow.cc.target(2e6));
    for _ in 0..10 {
        flow.cc.end_drain(at(1), base + 1.5 * flow.cc.target(base), flow.cc.target(base), 1e5);
    }
    assert!(flow.cc.target(base) >= base.min(2.0 * calm), "{} {calm}", flow.cc.target(base));
    for _ in 0..10 {
        flow.cc.end_drain(at(1), base, flow.cc.target(base), 1e5);
    }
    assert!((flow.cc.target(base) - calm).abs() < 1.0);
}

/// Rounds of a flow whose path loses a part of all packets, and has a bottleneck without a queue
/// that passes `most` in a round.
fn lossy(rounds: u64, per_mille: u64, most: u64) -> Flow {
    let mut flow = Flow::in_avoidance();
    let mut parts = 0;
    let mut sent = flow.window();
    for _ in 0..rounds {
        // A round trip acknowledges the window of the one before.
        let window = std::mem::replace(&mut sent, flow.window());
        parts += window * per_mille;
        let delivered = (window - parts / 1000).min(most);
        parts %= 1000;
        flow.lost = (window - delivered) * MTU;
        flow.round(2_000, delivered);
    }
    flow
}

#[test]
fn on_ack__losses_of_the_path_do_not_shorten_the_window() {
    for per_mille in [0, 5, 20, 100, 300] {
        let flow = lossy(100, per_mille, 1000);
        assert!(flow.window() >= 49, "{per_mille} of 1000: {}", flow.window());
    }
}

#[test]
fn on_ack__a_bottleneck_without_a_queue_is_not_exceeded_for_long() {
    for pkts in [10, 40] {
        let flow = lossy(100, 0, pkts);
        assert!((pkts * 6 / 10..=pkts * 14 / 10).contains(&flow.window()), "{}", flow.window());
    }
}

#[test]
fn on_ack__marks_decrease_as_in_dctcp() {
    let mut flow = Flow::in_avoidance();
    flow.ack.marked_bytes = MTU;
    flow.round(2_000, 50);
    assert!((25..=26).contains(&flow.window()), "all marked: half, once: {}", flow.window());
    let mut flow = Flow::in_avoidance();
    flow.cc.alpha = 0.1;
    flow.round(2_000, 49);
    flow.ack.marked_bytes = MTU / 10;
    flow.round(2_000, 1);
    flow.ack.marked_bytes = 0;
    flow.round(2_000, 50);
    assert!((44..=56).contains(&flow.window()), "{}", flow.window());
}

#[test]
fn on_ack__the_window_holds_packets_that_wait_in_the_hosts() {
    // The line carries 12.5 packets in 10 us, and the receiver holds its ACKs for 90 us.
    let mut flow = Flow::new();
    flow.ack.ack_delay = Dur::from_us(90);
    flow.round(100, 10);
    flow.round(100, 10);
    (flow.cc.state, flow.cc.cwnd) = (State::Avoidance, 20_000.0);
    (0..200).for_each(|_| flow.round(100, 50));
    assert!((40..=250).contains(&flow.window()), "{}", flow.window());
}

#[test]
fn status__names_the_signals_and_no_marks_without_a_mark() {
    let chosen = |flow: &Flow| flow.cc.status().map(|status| status.chosen);
    let mut flow = Flow::in_avoidance();
    for _ in 0..20 {
        flow.round(2_000, 50);
    }
    assert_eq!(chosen(&flow), Some("delay"), "nothing is marked or lost");
    flow.ack.marked_bytes = MTU;
    flow.round(2_000, 50);
    assert_eq!(chosen(&flow), Some("delay, marks"));
}

#[test]
fn on_ack__a_delay_by_the_receivers_batches_does_not_shorten_the_window() {
    let after = |coalesced_bytes: u64, us: u64| {
        let mut flow = Flow::new();
        (0..2).for_each(|_| flow.round(200, 50));
        (flow.cc.state, flow.cc.cwnd) = (State::Avoidance, 50_000.0);
        flow.ack.coalesced_bytes = coalesced_bytes;
        (0..20).for_each(|_| flow.round(us, 50));
        (flow.window(), flow.cc.batch)
    };
    // The target is about 70 us above the base of 200 us; two batches of 20 packets add 160 us.
    assert!(after(0, 350).0 < 40, "a queue: {:?}", after(0, 350));
    assert!(after(20_000, 350).0 > 50, "batches: {:?}", after(20_000, 350));
    assert!(after(20_000, 700).0 < 40, "a queue beside batches: {:?}", after(20_000, 700));
    assert!(after(1 << 30, 350).1 <= BATCH_MAX, "{:?}", after(1 << 30, 350));
}
