//! Properties of every algorithm under any events.

mod steady;

use crate::testing::path;
use crate::{Ack, Algorithm, Cc, Controller, Delivery, Hop, Loss, LossKind, PseudoAck, Sent};
use proptest::prelude::*;
use spanwire_base::{Dur, Rate, Time};

/// An event of a flow; the strategy puts the time since the last one, in nanoseconds, first.
#[derive(Clone, Debug)]
enum Event {
    Ack { pkts: u64, marked: u64, rtt_ns: u64, age_ns: u64, cwnd_limited: bool, queue: u64 },
    Cnp,
    Loss(LossKind, u64),
    Pseudo(u64, Option<u8>),
    PathChange,
    Timer,
}

fn event() -> impl Strategy<Value = (u64, Event)> {
    let ack =
        (0..40u64, 0..40u64, 0..5_000_000u64, 0..5_000_000u64, any::<bool>(), 0..1_000_000u64)
            .prop_map(|(pkts, marked, rtt_ns, age_ns, cwnd_limited, queue)| Event::Ack {
                pkts,
                marked: marked.min(pkts),
                rtt_ns,
                age_ns,
                cwnd_limited,
                queue,
            });
    let kind = prop_oneof![
        Just(LossKind::Recovery),
        (1..9u32).prop_map(LossKind::Timeout),
        Just(LossKind::Block),
        Just(LossKind::BlockRecovery),
    ];
    let what = prop_oneof![
        20 => ack,
        2 => Just(Event::Cnp),
        2 => (kind, 0..10_000_000u64).prop_map(|(kind, bytes)| Event::Loss(kind, bytes)),
        2 => (0..100_000u64, proptest::option::of(0..9u8))
            .prop_map(|(rtt_ns, hops)| Event::Pseudo(rtt_ns, hops)),
        1 => Just(Event::PathChange),
        4 => Just(Event::Timer),
    ];
    (0..200_000u64, what)
}

/// A flow and its controller.
struct Flow {
    cc: Cc,
    now: Time,
    tx_bytes: u64,
    number: u64,
}

impl Flow {
    fn new(name: &str, base_rtt: Option<Dur>) -> Self {
        let cc = Algorithm::parse(name).unwrap().start(&path(MTU, 100, base_rtt));
        // The clock starts at 1 s, so that echoed times lie in the past.
        Self { cc, now: Time::ZERO + Dur::from_secs(1), tx_bytes: 0, number: 0 }
    }

    fn apply(&mut self, wait_ns: u64, event: &Event) {
        self.now += Dur::from_ns(wait_ns);
        let now = self.now;
        match *event {
            Event::Ack { pkts, marked, rtt_ns, age_ns, cwnd_limited, queue } => {
                self.ack(pkts, marked, rtt_ns, (age_ns, cwnd_limited), queue);
            }
            Event::Cnp => self.cc.on_cnp(now),
            Event::Loss(kind, bytes) => {
                self.cc.on_loss(now, &Loss { kind, bytes, inflight_bytes: bytes });
            }
            Event::Pseudo(rtt_ns, hops) => {
                let sent_at = back(now, rtt_ns);
                let rtt = Dur::from_ns(rtt_ns);
                self.cc.on_pseudo_ack(now, &PseudoAck { rtt, sent_at, sent_bytes: 4096, hops });
            }
            Event::PathChange => self.cc.on_path_change(now),
            Event::Timer => self.cc.handle_timeout(now),
        }
        let sent = Sent {
            bytes: MTU,
            paced_bytes: MTU + 100,
            frame_bytes: MTU + 76,
            inflight_bytes: 10_000,
            is_retransmission: false,
        };
        self.cc.on_sent(now, &sent);
    }

    fn ack(&mut self, pkts: u64, marked: u64, rtt_ns: u64, age: (u64, bool), queue_bytes: u64) {
        let (age_ns, cwnd_limited) = age;
        let bytes = pkts * u64::from(MTU);
        self.tx_bytes += bytes;
        self.number += pkts;
        let hop = Hop {
            at: back(self.now, 500),
            tx_bytes: self.tx_bytes,
            queue_bytes,
            rate: Rate::from_gbps(100),
        };
        let delivery = Delivery {
            total_bytes: self.tx_bytes,
            total_at_send_bytes: self.tx_bytes.saturating_sub(bytes),
            interval: Dur::from_ns(rtt_ns),
            app_limited: !cwnd_limited,
        };
        let ack = Ack {
            acked_bytes: bytes,
            acked_pkts: pkts,
            marked_bytes: marked * u64::from(MTU),
            rtt: Some(Dur::from_ns(rtt_ns)),
            sent_at: back(self.now, age_ns),
            number: self.number,
            una: self.number,
            next: self.number + 10,
            inflight_bytes: bytes,
            cwnd_limited,
            hops: Some(5),
            int: &[hop],
            delivery: Some(delivery),
            ..Ack::default()
        };
        self.cc.on_ack(self.now, &ack);
    }
}

/// Every algorithm and preset, and those with a near loop from the start.
fn algorithms() -> Vec<&'static str> {
    let near = [
        "swift,near_base_us=6.5",
        "swift,near_base_us=6.5,near_ack=least,base_target_us=2.6,hop_us=2",
        "swift,near_base_us=20,near_ack=none",
        "swift,near_base_us=20,near_ack=silent,near_every_us=60",
        "timely,near_base_us=6,near_ack=silent",
        "timely,near_base_us=6",
        "timely-classic,near_base_us=6,near_ack=least,near_every_us=50",
        "timely-ns3,near_base_us=6,near_ack=none",
    ];
    [&Algorithm::known()[..], &near].concat()
}

fn back(now: Time, ns: u64) -> Time {
    Time::from_ps(now.as_ps() - ns * 1000)
}

proptest! {
    /// Windows, rates, gaps and timers stay in bounds after any events, with and without a known
    /// path.
    #[test]
    fn any_events__keep_window_and_rate_in_bounds(
        events in proptest::collection::vec(event(), 1..200),
        known in any::<bool>(),
    ) {
        for name in algorithms() {
            let mut flow = Flow::new(name, known.then(|| Dur::from_us(14)));
            for (wait, event) in &events {
                flow.apply(*wait, event);
                let (cwnd, rate) = (flow.cc.cwnd_bytes(), flow.cc.rate());
                prop_assert!(cwnd >= u64::from(MTU), "{name}: window {cwnd} after {event:?}");
                prop_assert!(
                    cwnd == u64::MAX || cwnd < 1 << 40,
                    "{name}: window {cwnd} after {event:?}"
                );
                prop_assert!(rate.is_none_or(|r| r >= Rate::from_bps(10_000)), "{name}: {rate:?}");
                prop_assert!(flow.cc.min_gap() <= Dur::from_secs(1), "{name}");
            }
        }
    }

    /// The events of one flow do not affect another.
    #[test]
    fn any_events__of_one_flow_do_not_affect_another(
        events in proptest::collection::vec(event(), 1..100),
    ) {
        for name in algorithms() {
            let other = Flow::new(name, Some(Dur::from_us(14)));
            let (cwnd, rate) = (other.cc.cwnd_bytes(), other.cc.rate());
            let mut flow = Flow::new(name, Some(Dur::from_us(14)));
            for (wait, event) in &events {
                flow.apply(*wait, event);
            }
            prop_assert_eq!((other.cc.cwnd_bytes(), other.cc.rate()), (cwnd, rate));
        }
    }
}

const MTU: u32 = 4096;
