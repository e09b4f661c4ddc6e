//! Fits of traces with known values.

use super::*;
use crate::host_trace::trace::{Provenance, Run};
use crate::machine::Machine;
use spanwire_base::Rng;

fn trace(runs: Vec<Run>) -> Trace {
    let recorded = Provenance {
        date: "2026-11-23".to_owned(),
        command: String::new(),
        machine: Machine::this(),
        load: 0.0,
        spinners: 0,
    };
    let (rx_ring, tx_ring, sockets) = (256, 256, None);
    Trace { recorded, batch: 64, rx_ring, tx_ring, sockets, spin_ns: Some(50_000), runs }
}

/// Steps of a driver that takes 300 ns for a step, 500 for a frame received, 900 for a frame sent
/// and 200 for 1024 bytes, with up to 40 ns more. One of 200 also stalls, for 1 to 2 ms.
fn synthetic() -> Run {
    let mut rng = Rng::new(5);
    let mut run = Run { every: 7, working: 7 * 2_000, ..Run::default() };
    for n in 0..2_000 {
        let [rx, tx] = [rng.below(20), 1 + rng.below(30)];
        let bytes = (rx + tx) * (60 + rng.below(1_000));
        let took = 300 + 500 * rx + 900 * tx + 200 * bytes / 1024 + rng.below(41);
        run.sample.push(Row(rx, tx, bytes, took, 0, 0));
        run.running_ns += 7 * took;
        if n % 200 == 0 {
            let stall = 1_000_000 + 100_000 * n / 200;
            run.long.largest.push(Row(rx, tx, bytes, took + stall, 0, 0));
            run.long.count += 1;
            run.running_ns += took + stall;
        }
    }
    run.idle_ns = Sampled::of(&[290, 300, 300, 310, 900]);
    let wakeups: Vec<u64> = (0..1_000).map(|n| 5_000 + n * 100).collect();
    run.frame_wakeups_ns = Sampled::of(&wakeups);
    run
}

#[test]
fn of__finds_the_values_of_a_known_driver() {
    let fit = model_of(&trace(vec![synthetic()])).expect("enough steps");
    let (ns, us) = (Dur::from_ns, Dur::from_us);
    assert_eq!((fit.step, fit.polling, fit.batch), (ns(300), Polling::Spin(us(50)), 64));
    assert!((ns(500)..=ns(510)).contains(&fit.rx_frame), "{fit:?}");
    assert!((ns(900)..=ns(910)).contains(&fit.tx_frame), "{fit:?}");
    assert!((ns(190)..=ns(210)).contains(&fit.kibibyte), "{fit:?}");
    let stall = fit.stall.quantiles();
    assert_eq!((stall[0].1, stall[8].1), (us(1_000), us(1_900)));
    // 10 stalls in 14,010 steps of 22 us on average.
    assert!((us(29_000)..us(32_000)).contains(&fit.stall_interval), "{fit:?}");
    assert_eq!(fit.wakeup, Lateness::measured(&[5, 55, 80, 95, 100, 104, 104, 105, 105]));
}

#[test]
fn of__the_recorded_traces_are_the_presets() {
    let recorded = [
        (HostModel::veth(), 0, include_str!("../../../../sim/host-traces/veth.json")),
        (HostModel::adaptive(), 0, include_str!("../../../../sim/host-traces/adaptive.json")),
        (HostModel::busy(), 2, include_str!("../../../../sim/host-traces/busy.json")),
        (HostModel::udp(), 0, include_str!("../../../../sim/host-traces/udp.json")),
    ];
    for (preset, spinners, json) in recorded {
        let trace: Trace = serde_json::from_str(json).expect("a trace");
        assert_eq!(trace.recorded.spinners, spinners);
        let fit = model_of(&trace).expect("enough steps");
        assert_eq!(preset, fit, "set the preset to\n{}", to_source(&fit));
    }
}

#[test]
fn of__long_steps_that_their_frames_explain_are_no_stalls() {
    let mut run = synthetic();
    run.long = Sampled::of(&[Row(64, 64, 128 * 1024, 300 + 64 * 1_400 + 128 * 200, 0, 0)]);
    let fit = model_of(&trace(vec![run])).expect("enough steps");
    assert_eq!((fit.stall_interval, fit.stall), (Dur::ZERO, Lateness::none()));
}

#[test]
fn of__a_trace_without_steps_or_sleeps_is_an_error() {
    assert!(model_of(&trace(vec![])).is_err());
    let awake = Run { frame_wakeups_ns: Sampled::default(), ..synthetic() };
    assert!(model_of(&trace(vec![awake])).is_err());
    let mut alike = synthetic();
    alike.sample.iter_mut().for_each(|row| *row = Row(1, 1, 2_048, 5_000, 0, 0));
    alike.long = Sampled::default();
    assert!(model_of(&trace(vec![alike])).is_err(), "no cost can be told from another");
}

#[test]
fn regress__a_cost_that_would_be_negative_is_zero() {
    let row = |rx: u64, tx: u64| Row(rx, tx, 100 * (rx + 2 * tx), 100 + 50 * rx + 100 * tx, 0, 0);
    let steps = [row(1, 0), row(3, 0), row(2, 5)];
    // Faster with more bytes.
    let fast = Row(2, 2, 9_000, 150, 0, 0);
    let steps: Vec<_> =
        steps.into_iter().chain([fast]).map(|row| Weighted { row, weight: 1.0 }).collect();
    let each = regress(100.0, &steps).expect("determined");
    assert!(each.iter().all(|cost| *cost >= 0.0) && each.contains(&0.0), "{each:?}");
}

#[test]
fn to_source__is_the_form_of_a_preset() {
    let fit = model_of(&trace(vec![synthetic()])).expect("enough steps");
    let source = to_source(&fit);
    assert!(source.starts_with("step: Dur::from_ns(300),\n"), "{source}");
    assert!(
        source.contains("wakeup: Lateness::measured(&[5, 55, 80, 95, 100, 104, 104, 105, 105]),\n"),
        "{source}"
    );
    assert_eq!([7, 12_345, 1_000_000].map(grouped), ["7", "12_345", "1_000_000"]);
}
