//! The matrix: all cases with their bars.

use super::case::{ALL_HOSTS, Bar, Case, Figure, IDEAL_HOSTS, LATE_HOSTS};
use super::line::Line;
use crate::scenario::Scenario;
use spanwire_base::Dur;
use spanwire_switch::Human;

/// All cases, in the order of the table: those of `spanwire-bench untuned`, then paths that are
/// faster than real hosts on one machine.
#[must_use]
pub fn matrix() -> Vec<Case> {
    let mut cases = plain();
    cases.extend(impaired());
    cases.extend(shared());
    cases.extend(messages());
    cases.extend(operations());
    cases.push(coded());
    cases.extend(fast());
    cases.extend(fast_queues());
    cases.extend(fast_shared());
    cases.extend(incast());
    cases.push(churn());
    for case in &mut cases {
        case.quick = QUICK.contains(&&*case.name);
    }
    cases
}

/// A case of `scenario` on a line, that runs for `time`.
fn case(scenario: &'static str, line: &Line, time: Dur, figure: Figure, bar: Bar) -> Case {
    let params = Scenario::find(scenario).expect("a scenario of the catalogue").params();
    let mut set = line.settings();
    set.push(("time", time.show()));
    set.push(("sample", Dur::from_ns(time.as_ns() / SAMPLES).show()));
    set.retain(|(name, _)| params.has(name));
    Case {
        name: line.name(),
        scenario,
        set,
        figure,
        bar: Some(bar),
        busy_bar: None,
        others: None,
        bdp_bytes: line.bdp_bytes(),
        hosts: if line.is_fast() { &IDEAL_HOSTS } else { &ALL_HOSTS },
        quick: false,
    }
}

/// One flow on a line.
fn solo(line: &Line, bar: Bar) -> Case {
    let time = Dur::from_secs(10).max(line.delay * (2 * TRIPS));
    case("cc-solo", line, time, Figure::ShareOfLine, bar)
}

impl Case {
    /// The case with `suffix` after its name, and further parameters.
    fn with(mut self, suffix: &str, set: &[(&'static str, &str)]) -> Self {
        self.name = format!("{}, {suffix}", self.name);
        self.set_all(set)
    }

    fn set_all(mut self, set: &[(&'static str, &str)]) -> Self {
        for (name, text) in set {
            self.set.retain(|(other, _)| other != name);
            self.set.push((name, (*text).to_owned()));
        }
        self
    }
}

/// Paths without impairments.
fn plain() -> Vec<Case> {
    let others = Some(Bar { median: 0.70, worst: None, window: Some(0.05) });
    let near = [(100, 10), (200, 1000), (1000, 10), (1000, 1000)];
    let far = [(500, 5000), (200, 10_000), (100, 20_000), (50, 50_000)];
    let line = |(mbit, us), bar| solo(&Line::new(mbit, us), bar);
    let mut cases = vec![cable()];
    cases.extend(near.map(|at| line(at, NEAR_BAR)));
    cases.extend(far.map(|at| line(at, FAR_BAR)));
    for case in &mut cases {
        case.others = others;
        // The bars of busy cores are for two paths.
        if case.name == NEAR_NAME {
            case.busy_bar = Some(Bar::new(0.85, 0.50));
        }
    }
    cases
}

/// A veth pair: no link is slower than the hosts.
fn cable() -> Case {
    let line = Line::new(CABLE_MBIT, 2);
    let mut cable = solo(&line, Bar::new(0.95, 0.80));
    cable.name = "veth".to_owned();
    cable.figure = Figure::ShareOfNone;
    cable.busy_bar = Some(Bar::new(0.80, 0.50));
    cable.hosts = &LATE_HOSTS;
    let rate = line.rate.show();
    let set = [("host_rate", &*rate), ("mtu", "1024"), ("segment", "1408")];
    let default = [("message", "64KiB"), ("outstanding", "16"), ("time", "3s"), ("sample", "1ms")];
    cable.set_all(&set).set_all(&default)
}

/// Short and long queues, loss and reordering.
fn impaired() -> Vec<Case> {
    let line = near();
    let bdp = line.bdp_bytes();
    let queue = |name: &str, bytes: u64| {
        let line = Line { queue_bytes: bytes, ..line };
        solo(&line, FAR_BAR).with(name, &[])
    };
    let tiny = Case { bar: None, ..queue("queue 0.1 BDP", bdp / 10) };
    let late = Dur::from_ps(line.delay.as_ps() / 2).show();
    vec![
        tiny,
        queue("queue 30 kB", 30_000),
        queue("queue 1 BDP", bdp),
        queue("queue 4 BDP", 4 * bdp),
        solo(&line, FAR_BAR).with("loss 0.5 %", &[("loss", "0.5%")]),
        solo(&line, FAR_BAR).with("loss 2 %", &[("loss", "2%")]),
        solo(&line, FAR_BAR).with("reordering 5 %", &[("overtaken", "5%"), ("late", &late)]),
    ]
}

/// Several flows on one line.
fn shared() -> Vec<Case> {
    let mut cases = Vec::new();
    for line in [near(), Line::new(200, 10_000), Line::new(500, 2000)] {
        for flows in [2, 4, 8] {
            cases.push(joining(&line, flows, Figure::Jain, Bar::new(0.95, 0.85)));
        }
    }
    let bar = Bar::every(0.25);
    let mixed = case("cc-mixed-rtt", &near(), Dur::from_secs(20), Figure::LeastOfFairShare, bar);
    let mixed = mixed.set_all(&[("intra", "1"), ("inter", "1"), ("trips", "10"), FEW_BUFFERS]);
    cases.push(Case { name: "200M, RTT 2 and 20 ms".to_owned(), ..mixed });
    let two = |bar| joining(&near(), 2, Figure::QueueBdps, bar);
    let called = |case: Case, name: &str| Case { name: format!("{NEAR_NAME}, {name}"), ..case };
    cases.push(called(two(Bar::every(1.0)), "queue of 2 flows"));
    let (kmin, kmax) = (near().bdp_bytes() / 4, near().bdp_bytes() / 2);
    let marked =
        two(Bar::every(0.5)).set_all(&[("kmin", &*kmin.to_string()), ("kmax", &*kmax.to_string())]);
    cases.push(called(marked, "queue of 2 flows, marks"));
    cases
}

/// Flows that start a second apart.
fn joining(line: &Line, flows: u32, figure: Figure, bar: Bar) -> Case {
    let all = case("cc-fairness", line, Dur::from_secs(12), figure, bar);
    let flows_text = flows.to_string();
    all.with(&format!("{flows} flows"), &[("flows", &*flows_text), ("stagger", "1s")])
        .set_all(&[("jitter", "100ms")])
}

/// Short messages, beside no congestion control.
fn messages() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in [solo(&near(), NEAR_BAR), cable()] {
        for (size, name) in [(64, "64 B"), (512, "512 B"), (4096, "4 KiB")] {
            let depth = (OUTSTANDING_BYTES / size).min(DEPTH_MAX);
            let (size, depth) = (size.to_string(), depth.to_string());
            let set = [("message", &*size), ("outstanding", &*depth), ("time", "4s")];
            let case = path.clone().with(name, &set).set_all(&[("sample", "1ms")]);
            let bar = Some(Bar::every(0.85));
            cases.push(Case { figure: Figure::ShareOfNone, bar, busy_bar: None, ..case });
        }
    }
    cases
}

/// Other operations, in RC.
fn operations() -> Vec<Case> {
    // Five points below WRITE's bar.
    let case = |op: &str, name: &str| {
        solo(&near(), Bar::new(0.87, 0.70)).with(name, &[("op", op), ("mode", "rc")])
    };
    vec![case("read", "READ, RC"), case("send", "SEND, RC")]
}

/// Coding and multipath.
fn coded() -> Case {
    let set = [("paths", "4"), ("ec", "8,2"), ("lb", "unolb")];
    let coded = solo(&Line::new(200, 5000), FAR_BAR).set_all(&set);
    Case { name: "4 x 200M/5ms, (8,2), unolb".to_owned(), ..coded }
}

/// Fast lines between ideal hosts. 400 Gbit/s over 100 ms are 5 GB in flight, more than the windows
/// of eight queue pairs.
fn fast() -> Vec<Case> {
    let ms = Dur::from_ms;
    let others = Some(Bar { median: 0.70, worst: None, window: Some(0.05) });
    let lines = [
        (10_000, 5, ms(200)),
        (100_000, 5, ms(60)),
        (400_000, 5, ms(30)),
        (10_000, 500, ms(1000)),
        (100_000, 500, ms(400)),
        (400_000, 500, ms(200)),
        (10_000, 50_000, ms(8000)),
    ];
    let mut cases: Vec<Case> = lines
        .map(|(mbit, us, time)| {
            let bar = if us < 10_000 { NEAR_BAR } else { FAR_BAR };
            case("cc-solo", &Line::new(mbit, us), time, Figure::ShareOfLine, bar)
        })
        .into();
    // The window of a queue pair is at most 65,536 packets, 46 Gbit/s over 100 ms.
    let line = Line::new(100_000, 50_000);
    let four = case("cc-fairness", &line, ms(5000), Figure::ShareOfLine, FAR_BAR)
        .with("4 QPs", &[("flows", "4"), ("stagger", "0s"), ("jitter", "100ms")])
        .set_all(&[("window", "65536")]);
    cases.push(four);
    cases.iter_mut().for_each(|case| case.others = others);
    cases
}

/// Queues from a tenth of the bandwidth-delay product to four.
fn fast_queues() -> Vec<Case> {
    let line = Line::new(100_000, 500);
    let tenths = [1, 5, 10, 40].map(|tenths: u64| {
        let line = Line { queue_bytes: line.bdp_bytes() * tenths / 10, ..line };
        let name = format!("queue {}.{} BDP", tenths / 10, tenths % 10);
        case("cc-solo", &line, Dur::from_ms(400), Figure::ShareOfLine, FAR_BAR).with(&name, &[])
    });
    tenths.into()
}

/// Flows that share a fast line, with and without marks, and with mixed round trips.
fn fast_shared() -> Vec<Case> {
    let bar = Bar::new(0.95, 0.85);
    let several = |us, flows: &str, time| {
        let line = Line::new(100_000, us);
        let jitter = (line.delay * 2).show();
        case("cc-fairness", &line, Dur::from_ms(time), Figure::Jain, bar)
            .with(&format!("{flows} flows"), &[("flows", flows), ("stagger", "2ms")])
            .set_all(&[("jitter", &*jitter)])
    };
    // Round trips of 14 us and 1.8 ms.
    let line = Line { queue_bytes: 4_000_000, ..Line::new(100_000, 7) };
    let mixed = case("cc-mixed-rtt", &line, Dur::from_ms(400), Figure::LeastOfFairShare, bar);
    let mixed = mixed.set_all(&[("intra", "4"), ("inter", "4"), ("trips", "128"), FEW_BUFFERS]);
    let mixed = Case { name: "100G, RTT 14 us and 1.8 ms".to_owned(), bar: None, ..mixed };
    vec![
        several(5, "8", 200),
        several(5, "8", 200).with("marks", &[("mark", "dctcp")]),
        several(500, "4", 600),
        mixed,
    ]
}

/// Hosts that send to one at once.
fn incast() -> Vec<Case> {
    let of = |senders: &str, mark: &str| {
        // Two links of 2.5 us and their switch: a round trip of 10 us.
        let line = Line { queue_bytes: 16_000_000, ..Line::new(100_000, 5) };
        let all = case("cc-incast", &line, Dur::from_ms(100), Figure::Jain, Bar::new(0.95, 0.85));
        let set = [("senders", senders), ("delay", "2500ns"), ("jitter", "10us"), ("mark", mark)];
        let set = all.set_all(&set).set_all(&[("pfc", "false")]);
        let marks = if mark == "none" { "" } else { ", marks" };
        Case { name: format!("100G/5us, incast of {senders}{marks}"), ..set }
    };
    vec![of("32", "none"), of("128", "none"), of("128", "dctcp")]
}

/// Ten thousand flows that start at random among 64 hosts and end.
fn churn() -> Case {
    let line = Line::new(100_000, 4);
    let bar = Bar::every(1.0);
    let all = case("poisson", &line, Dur::from_ms(100), Figure::Completed, bar);
    let set = [("flows", "10000"), ("load", "50"), ("mode", "sr"), ("pfc", "false")];
    let set = all.set_all(&set).set_all(&[("outstanding", "16"), ("queue", "4MiB")]);
    Case { name: "100G, 10000 flows, load 50 %".to_owned(), ..set }
}

/// The line of most cases: 200 Mbit/s, round trip 2 ms.
fn near() -> Line {
    Line::new(200, 1000)
}

const NEAR_NAME: &str = "200M/1ms";
const NEAR_BAR: Bar = Bar::new(0.92, 0.75);
const FAR_BAR: Bar = Bar::new(0.88, 0.70);
/// Samples of a run.
const SAMPLES: u64 = 2_000;
/// Minimum round trips of a run.
const TRIPS: u64 = 200;
/// The rate of links on which only hosts are slow.
const CABLE_MBIT: u64 = 40_000;
/// A flow that is never limited by its application, at the defaults of a long path.
const FEW_BUFFERS: (&str, &str) = ("outstanding", "256");
/// Bytes outstanding of `spanwire-bench untuned`, as far as the limit of requests allows.
const OUTSTANDING_BYTES: u32 = 1 << 20;
const DEPTH_MAX: u32 = 2048;

/// The cases of a quick run.
const QUICK: [&str; 7] = [
    "200M/1ms",
    "100M/10us",
    "200M/10ms",
    "200M/1ms, queue 30 kB",
    "200M/1ms, loss 2 %",
    "200M/1ms, 2 flows",
    "100G/5us",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn matrix__names_are_unique_and_bars_reachable() {
        let cases = matrix();
        let names: BTreeSet<&str> = cases.iter().map(|case| &*case.name).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            let bars = [case.bar, case.busy_bar, case.others].into_iter().flatten();
            assert!(bars.clone().all(|bar| bar.median > 0.0 && bar.median <= 1.0), "{}", case.name);
        }
    }

    #[test]
    fn matrix__the_quick_cases_exist() {
        let cases = matrix();
        let quick: BTreeSet<&str> = cases.iter().filter(|c| c.quick).map(|c| &*c.name).collect();
        assert_eq!(quick, QUICK.into_iter().collect());
    }

    #[test]
    fn line__has_the_round_trip_of_its_name() {
        let cases = matrix();
        for (name, rtt_us) in [("200M/1ms", 2_000), ("100G/5us", 10), ("10G/50ms", 100_000)] {
            let case = cases.iter().find(|case| case.name == name).unwrap();
            let set = case.set.iter().map(|(name, text)| (*name, text.as_str()));
            let plan = Scenario::find(case.scenario).unwrap().plan(1, set).unwrap();
            let path = plan.topology.path(&plan.topology.routes(), 0, 1).unwrap();
            assert_eq!(path.base_rtt(0, 0), Dur::from_us(rtt_us), "{name}");
        }
    }

    #[test]
    fn case__knows_its_line() {
        let line = Line::new(200, 1000);
        assert_eq!((line.bdp_bytes(), line.queue_bytes), (50_000, 1_000_000));
        assert_eq!(Line::new(500, 5000).queue_bytes, 1_250_000);
        let names = [(100, 10), (1000, 1000), (50, 50_000)].map(|(m, us)| Line::new(m, us).name());
        assert_eq!(names, ["100M/10us", "1G/1ms", "50M/50ms"]);
    }
}
