//! The matrix: all cases with their bars.

use super::algorithm::Algorithm;
use super::case::{Bar, Case, Flow, Measure, Path, Traffic};
use super::line::Line;

/// All cases, in the order of the table.
#[must_use]
pub fn matrix() -> Vec<Case> {
    let mut cases = plain();
    cases.extend(impaired());
    cases.extend(busy());
    cases.extend(shared());
    cases.extend(neighbours());
    cases.extend(messages());
    cases.extend(operations());
    cases.push(coded());
    cases
}

/// A case of one flow.
fn one(path: Path, flow: Flow, bar: Bar) -> Case {
    let (name, measure) = match path {
        Path::Cable => ("veth".to_owned(), Measure::ShareOfNone),
        Path::Line(line) => (line.name(), Measure::ShareOfLine),
    };
    Case {
        name,
        path,
        traffic: Traffic::One(flow),
        measure,
        bar: Some(bar),
        others: None,
        algorithms: Algorithm::MAIN.to_vec(),
        quick: false,
    }
}

/// `case` with `suffix` after its name.
fn called(case: Case, suffix: &str) -> Case {
    Case { name: format!("{}, {suffix}", case.name), ..case }
}

/// Paths without impairments, for all algorithms.
fn plain() -> Vec<Case> {
    let write = |path, bar| one(path, Flow::WRITE, bar);
    let line = |(mbit, us), bar| write(Path::Line(Line::new(mbit, us)), bar);
    let near = [(100, 10), (200, 1000), (1000, 10), (1000, 1000)];
    let far = [(500, 5000), (200, 10_000), (100, 20_000), (50, 50_000)];
    let mut cases = vec![write(Path::Cable, Bar::new(0.95, 0.80))];
    cases.extend(near.map(|at| line(at, Bar::new(0.92, 0.75))));
    cases.extend(far.map(|at| line(at, Bar::new(0.88, 0.70))));
    for case in &mut cases {
        case.others = Some(Bar { median: 0.70, worst: None, second: Some(0.05) });
        case.algorithms = Algorithm::all().collect();
        case.quick = QUICK.contains(&&*case.name);
    }
    cases
}

/// Short and long queues, loss and reordering.
fn impaired() -> Vec<Case> {
    let line = NEAR;
    let bdp = line.bdp_bytes();
    let lines = [
        ("queue 30 kB", Line { queue_bytes: 30_000, ..line }),
        ("queue 1 BDP", Line { queue_bytes: bdp, ..line }),
        ("queue 4 BDP", Line { queue_bytes: 4 * bdp, ..line }),
        ("loss 0.5 %", Line { loss_ppm: 5_000, ..line }),
        ("loss 2 %", Line { loss_ppm: 20_000, ..line }),
        ("reordering 5 %", Line { reorder_ppm: 50_000, ..line }),
    ];
    let bar = Bar::new(0.88, 0.70);
    lines.map(|(name, line)| called(one(Path::Line(line), Flow::WRITE, bar), name)).into()
}

/// Cores that other processes occupy.
fn busy() -> Vec<Case> {
    let busy = Flow { busy: true, ..Flow::WRITE };
    [(Path::Cable, Bar::new(0.80, 0.50)), (Path::Line(NEAR), Bar::new(0.85, 0.50))]
        .map(|(path, bar)| called(one(path, busy, bar), "busy cores"))
        .into()
}

/// Several flows on one line.
fn shared() -> Vec<Case> {
    let several = |line: Line, flows, far_delay_us| Case {
        traffic: Traffic::Several { flows, far_delay_us },
        ..one(Path::Line(line), Flow::WRITE, ANY)
    };
    let mut cases = Vec::new();
    for line in [NEAR, Line::new(200, 10_000), Line::new(500, 2000)] {
        for flows in [2, 4, 8] {
            let case = called(several(line, flows, None), &format!("{flows} flows"));
            cases.push(Case { measure: Measure::Jain, bar: Some(Bar::new(0.95, 0.85)), ..case });
        }
    }
    cases.push(Case {
        name: "200M, RTT 2 and 20 ms".to_owned(),
        measure: Measure::LeastOfFairShare,
        bar: Some(Bar::every(0.25)),
        // The other millisecond of the way back is at the common port.
        ..several(NEAR, 2, Some(19_000))
    });
    cases.push(Case {
        measure: Measure::QueueBdps,
        bar: Some(Bar::every(1.0)),
        ..called(several(NEAR, 2, None), "queue of 2 flows")
    });
    cases
}

/// A flow beside one of another kind, at a queue of one bandwidth-delay product: of kernel TCP, or
/// with a static window, which yields to nothing and so has no bar.
fn neighbours() -> Vec<Case> {
    let beside = |line: Line, other, bar| {
        let line = Line { queue_bytes: line.bdp_bytes(), ..line };
        let name = match other {
            Algorithm::Tcp(name) => name,
            _ => other.name(),
        };
        Case {
            traffic: Traffic::Beside(other),
            measure: Measure::LeastOfLine,
            bar,
            algorithms: vec![Algorithm::Auto],
            ..called(one(Path::Line(line), Flow::WRITE, ANY), &format!("beside {name}"))
        }
    };
    let far = Line::new(200, 10_000);
    let quarter = Some(Bar::every(0.25));
    vec![
        beside(far, Algorithm::Tcp("cubic"), quarter),
        beside(far, Algorithm::Tcp("bbr"), quarter),
        beside(far, Algorithm::None, None),
        beside(NEAR, Algorithm::None, None),
    ]
}

/// Short messages, beside no congestion control.
fn messages() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in [Path::Line(NEAR), Path::Cable] {
        for (size, name) in [(64, "64 B"), (512, "512 B"), (4096, "4 KiB")] {
            let flow = Flow { size: Some(size), ..Flow::WRITE };
            cases.push(Case {
                measure: Measure::ShareOfNone,
                algorithms: vec![Algorithm::Auto, Algorithm::None],
                ..called(one(path, flow, Bar::new(0.85, 0.85)), name)
            });
        }
    }
    cases
}

/// Other operations, in RC.
fn operations() -> Vec<Case> {
    [("read", "READ, RC"), ("send", "SEND, RC")]
        .map(|(op, name)| {
            let flow = Flow { op, rc: true, ..Flow::WRITE };
            // Five points below WRITE's bar.
            let case = called(one(Path::Line(NEAR), flow, Bar::new(0.87, 0.70)), name);
            Case { algorithms: vec![Algorithm::Auto, Algorithm::None], ..case }
        })
        .into()
}

/// Coding and multipath.
fn coded() -> Case {
    let flow = Flow { coded: true, ..Flow::WRITE };
    let case = one(Path::Line(Line::new(200, 5000)), flow, Bar::new(0.88, 0.70));
    Case {
        name: "4 x 200M/5ms, (8,2), unolb".to_owned(),
        algorithms: vec![Algorithm::Auto, Algorithm::None],
        ..case
    }
}

/// The line of most cases: 200 Mbit/s, round trip 2 ms.
const NEAR: Line = Line::new(200, 1000);

/// A bar that is replaced, or that every sample meets.
const ANY: Bar = Bar::every(0.0);

/// The cases of a quick run.
const QUICK: [&str; 4] = ["veth", "200M/1ms", "1G/10us", "200M/10ms"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn named(name: &str) -> Case {
        matrix().into_iter().find(|case| case.name == name).expect(name)
    }

    #[test]
    fn matrix__names_are_unique_and_bars_reachable() {
        let cases = matrix();
        let names: BTreeSet<&str> = cases.iter().map(|case| &*case.name).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            assert!(case.algorithms.contains(&Algorithm::Auto), "{}", case.name);
            let is_documented = case.traffic == Traffic::Beside(Algorithm::None);
            assert_eq!(case.bar.is_none(), is_documented, "{}", case.name);
            let is_reachable = |bar: Bar| bar.median > 0.0 && bar.median <= 1.0;
            assert!(case.bar.is_none_or(is_reachable), "{}", case.name);
        }
    }

    #[test]
    fn matrix__shares_of_none_are_measured_beside_none() {
        for case in matrix().iter().filter(|case| case.measure == Measure::ShareOfNone) {
            assert!(case.algorithms.contains(&Algorithm::None), "{}", case.name);
        }
    }

    #[test]
    fn matrix__the_quick_cases_exist() {
        let cases = matrix();
        let quick: Vec<&str> = cases.iter().filter(|c| c.quick).map(|c| &*c.name).collect();
        assert_eq!(quick.iter().collect::<BTreeSet<_>>(), QUICK.iter().collect());
    }

    #[test]
    fn plain__other_algorithms_have_bars_of_their_own() {
        let case = named("1G/10us");
        assert_eq!(case.bar_for(Algorithm::Auto), Some(Bar::new(0.92, 0.75)));
        let swift = case.bar_for(Algorithm::Other("swift")).expect("a bar");
        assert_eq!((swift.median, swift.worst, swift.second), (0.70, None, Some(0.05)));
        assert_eq!(case.bar_for(Algorithm::None), None);
        assert_eq!(case.bar_for(Algorithm::Tcp("bbr")), None);
    }

    #[test]
    fn neighbours__the_queue_is_one_product() {
        let Path::Line(line) = named("200M/10ms, beside cubic").path else { panic!("a line") };
        assert_eq!(line.queue_bytes, 500_000);
    }
}
