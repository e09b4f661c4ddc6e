use super::super::subject::{Control, Fabric, Paced};
use super::*;
use crate::sample::Latency;
use crate::testing::options;
use spanwire_transport::WireMode;

fn series(subject: Subject, link_mtu: u32, rounds: &[Option<f64>]) -> Series {
    let reading = |value: &f64| match subject {
        subject if subject.is_rate() => Reading::Rate(Rate {
            goodput_gbps: *value,
            packets_per_s: *value * 1e5,
            lost: 1,
            bytes: 500_000_000,
            cpu_s: 1.5,
            ..Rate::default()
        }),
        // Half a second of this many cores.
        Subject::Cpu(_) => Reading::Rate(Rate {
            goodput_gbps: 0.2,
            bytes: 12_500_000,
            cpu_s: value / 2.0,
            ..Rate::default()
        }),
        _ => Reading::Latency(Latency { rtt_p50_us: *value, rtt_p99_us: *value * 2.0 }),
    };
    let variant = Variant { subject, link_mtu, path_mtu: 1024 };
    let rounds = rounds.iter().map(|r| r.as_ref().map(reading)).collect();
    let dropped = vec![Disturbance::Stolen, Disturbance::CoresApart, Disturbance::Stolen];
    Series { dropped, not_run: 0, ..Series::new(variant, rounds) }
}

fn raw(touch: Touch, window: u64) -> Subject {
    Subject::Raw { touch, window }
}

fn report() -> Report {
    let plan = Plan { rounds: 2, link_mtus: vec![1500], ..options(&[]).unwrap() };
    let results = Results {
        series: vec![
            series(raw(Touch::Copy, 128), 1500, &[Some(8.0), Some(8.0)]),
            series(raw(Touch::Copy, 200), 1500, &[Some(10.0), Some(10.0)]),
            series(raw(Touch::Headers, 200), 1500, &[Some(12.0), None]),
            series(Subject::Write(Flow::of_shares()), 1500, &[Some(7.0), Some(7.0)]),
            series(Subject::Tcp { offloads: true }, 1500, &[None, None]),
            series(Subject::EnginePing(Op::Send), 1500, &[Some(6.0), Some(6.0)]),
            series(Subject::EnginePing(Op::Write), 1500, &[Some(6.0), Some(6.0)]),
        ],
        distances_ns: vec![100.0, 120.0],
        ..Results::default()
    };
    Report::new(Some("a label".to_owned()), &plan, &results)
}

#[test]
fn new__the_headline_is_against_the_fastest_copying_blaster() {
    let report = report();
    let headline: Vec<_> = report.shares.iter().filter(|s| s.headline).collect();
    assert_eq!(headline.len(), 1);
    assert_eq!(headline[0].of, raw(Touch::Copy, 200).name());
    assert!((report.least_share().unwrap() - 0.7).abs() < 1e-12);
    assert_eq!(report.shares.len(), 3);
}

#[test]
fn new__a_series_without_samples_is_a_row_without_numbers() {
    let report = report();
    let tcp = report.rates.last().unwrap();
    assert_eq!((tcp.goodput_gbps, tcp.packets_per_s), (None, None));
    assert_eq!(tcp.tally.kept, 0);
    assert_eq!(tcp.tally.dropped_stolen, 2);
    assert_eq!(tcp.tally.dropped_cores_apart, 1);
    assert_eq!(report.rates[0].lost, 2);
}

#[test]
fn new__half_a_round_trip_only_if_both_directions_carry_a_message() {
    let report = report();
    assert_eq!(report.latencies[0].one_way_us, Some(3.0));
    assert_eq!(report.latencies[1].one_way_us, None);
}

#[test]
fn new__processor_time_is_compared_with_tcp_at_the_same_rate() {
    let of = |fabric, mbps| Subject::Cpu(Paced { fabric, mbps: Some(mbps), one_core: false });
    let plan = options(&[]).unwrap();
    let series = vec![
        series(of(None, 20), 1500, &[Some(0.01), Some(0.01)]),
        series(of(Some(Fabric::Udp), 200), 1500, &[Some(0.5), Some(0.6)]),
        series(of(None, 200), 1500, &[None, Some(0.02)]),
    ];
    let results = Results { series, ..Results::default() };
    let report = Report::new(None, &plan, &results);
    let udp = &report.cpu[1];
    assert!((udp.cores.unwrap().median - 0.55).abs() < 1e-9);
    let paired = udp.ratio.unwrap().paired.unwrap();
    assert!(paired.n == 1 && (paired.median - 30.0).abs() < 1e-9, "{paired:?}");
    let line = "0.550 [0.500..0.600]      30.0 [30.0..30.0]";
    assert!(report.to_string().contains(line), "{report}");
}

#[test]
fn least_share__nothing_to_compare_is_none() {
    let mut report = report();
    report.shares.retain(|share| !share.headline);
    assert_eq!(report.least_share(), None);
}

#[test]
fn new__ratios_are_to_tcp_with_offloads_in_the_same_round_and_at_the_same_mtu() {
    let auto = Flow { control: Control::Auto, ..Flow::of_shares() };
    let tcp = Subject::Tcp { offloads: true };
    let plan = Plan { rounds: 3, link_mtus: vec![1500, 9000], ..options(&[]).unwrap() };
    let results = Results {
        series: vec![
            series(Subject::Write(auto), 1500, &[Some(5.0), Some(7.0), None]),
            series(tcp, 9000, &[Some(100.0), Some(100.0), Some(100.0)]),
            series(Subject::Tcp { offloads: false }, 1500, &[Some(1.0), Some(1.0), Some(1.0)]),
            series(tcp, 1500, &[Some(10.0), Some(28.0), Some(10.0)]),
        ],
        ..Results::default()
    };
    let report = Report::new(None, &plan, &results);
    let paired = report.rates[0].ratio.unwrap().paired.unwrap();
    assert_eq!((paired.min, paired.max, paired.n), (0.25, 0.5, 2));
    assert_eq!(report.rates[0].samples_gbps, [Some(5.0), Some(7.0), None]);
    assert_eq!(report.rates[0].cpu_s_per_gb.unwrap().median, 3.0);
    assert_eq!(report.rates[0].bytes, 1_000_000_000);
}

#[test]
fn text__names_what_failed_and_what_is_not_possible() {
    let (mode, control) = (WireMode::Sr, Control::None);
    let flow = Flow { fabric: Fabric::AfXdp, mode, control, message_bytes: 1 << 20, icrc: true };
    let mut failed = series(Subject::Write(flow), 1500, &[None]);
    failed.failures.push("byte 7 was received as another one".to_owned());
    let mut impossible = series(raw(Touch::Copy, 200), 1500, &[None]);
    impossible.impossible = Some("the MTU is too large".to_owned());
    let plan = Plan { rounds: 1, link_mtus: vec![1500], ..options(&[]).unwrap() };
    let series = vec![failed, impossible];
    let results = Results { series, interrupted: true, ..Results::default() };
    let report = Report::new(None, &plan, &results);
    assert_eq!(report.failed(), 1);
    let text = report.to_string();
    for part in [
        "failed: spanwire AF_XDP SR none WRITE 1 MiB, MTU 1500: byte 7",
        "raw AF_XDP, copying, window 200        not possible: the MTU is too large",
        "0/1a+2s+1f",
        "interrupted",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

#[test]
fn text__has_every_row_and_the_share() {
    let report = report();
    let text = report.to_string();
    for name in report.rates.iter().map(|r| &r.name) {
        assert!(text.contains(name.as_str()), "{name}");
    }
    for name in report.latencies.iter().map(|r| &r.name) {
        assert!(text.contains(name.as_str()), "{name}");
    }
    assert!(text.starts_with("a label\n"));
    assert!(text.contains("WRITE 64 KiB is 70 % of raw AF_XDP, copying, window 200"), "{text}");
    assert!(text.contains("2/1a+2s"), "{text}");
}
