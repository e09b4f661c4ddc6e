//! Congestion control of RC between hosts that are never late and receive packets in batches: the
//! ACKs leave behind the last packet of a batch. A delay by that is no queue.

use spanwire_base::Dur;
use spanwire_sim::{HostModel, Lateness, Polling, Scenario, SharingReport, Sockets, Watch};

/// A driver over UDP sockets on a core of its own, which needs `rx_frame` for each packet that it
/// receives. Small packets cost little, so the base round trip is short.
fn host(rx_frame: Dur) -> HostModel {
    let udp = HostModel::named("udp").expect("a preset");
    HostModel {
        rx_frame,
        kibibyte: Dur::from_ns(100),
        polling: Polling::Spin(Dur::from_secs(10)),
        wakeup: Lateness::none(),
        stall_interval: Dur::ZERO,
        sockets: Some(Sockets {
            rx_call: Dur::from_us(1),
            tx_call: Dur::from_us(2),
            run_frames: 64,
            rx_bytes: 16 << 20,
            tx_bytes: 16 << 20,
        }),
        ..udp
    }
}

/// One flow on a link of `rate` in packets of 4 KiB.
#[track_caller]
fn run(cc: &str, rate: &str, rx_frame: Dur) -> SharingReport {
    let set = [
        ("cc", cc),
        ("host", "udp"),
        ("rate", rate),
        ("host_rate", "100Gbit"),
        ("far", "1us"),
        ("delay", "1us"),
        ("mark", "none"),
        ("mode", "rc"),
        ("mtu", "4096"),
        ("message", "1MiB"),
        ("time", "100ms"),
        ("sample", "100us"),
        ("window", "16384"),
    ];
    let scenario = Scenario::find("cc-solo").expect("a scenario of the catalogue");
    let mut plan = scenario.plan(1, set).expect("parameters that it has");
    plan.setup.host = Some(host(rx_frame));
    if cc == "none" {
        plan.setup.window_pkts = 192;
    }
    let report = plan.run(Watch::default(), &mut ()).expect("it can be built");
    assert_eq!(report.violations, [] as [&str; 0], "{cc}, {rate}, {rx_frame:?}");
    report.sharing.expect("it is about sharing")
}

/// With a slow receiver the sender is never late, so its lateness is no proxy of the receiver's.
/// 0.72 to 0.75 of a static window when batches counted as a queue.
#[test]
fn auto__a_batch_of_a_slow_receiver_is_no_queue() {
    for (ns, bar) in [(300, 0.95), (600, 0.95), (900, 0.92), (1200, 0.88)] {
        let of = |cc| run(cc, "100Gbit", Dur::from_ns(ns)).utilisation;
        let [none, auto] = ["none", "auto"].map(of);
        assert!(auto >= bar * none, "{ns} ns: {auto}, without congestion control {none}");
    }
}

/// As long as when batches counted as a queue, but for 10 Gbit/s, a third of what the receiver can:
/// 24 kB then.
#[test]
fn auto__the_queue_of_a_slower_link_stays_short() {
    for (rate, bytes) in [("200Mbit", 7e3), ("1Gbit", 6e3), ("5Gbit", 19e3), ("10Gbit", 37e3)] {
        let s = run("auto", rate, Dur::from_ns(600));
        assert!(s.utilisation > 0.99 && s.queue_bytes_mean < bytes, "{rate}: {s:?}");
    }
}
