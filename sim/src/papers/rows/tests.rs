use super::statistics::median;
use super::*;
use crate::{Params, Scenario};
use std::collections::{BTreeMap, BTreeSet};

fn run(scheme: &str) -> Run {
    Run::of("pair", 3).set("scheme", scheme)
}

fn fct() -> Reading {
    reading("FCT", "us", |seed| seed.mean_us)
}

/// Three seeds of these schemes.
fn results<const N: usize>(all: [(&str, [f64; 3]); N]) -> Results {
    let of = |us| SeedResult { mean_us: Some(us), ..SeedResult::default() };
    let seeds = all.map(|(name, fcts)| (run(name).command_line(None), fcts.map(of).to_vec()));
    Results { seeds: seeds.into(), ..Results::default() }
}

fn two() -> Results {
    results([("a", [1.0, 8.0, 3.0]), ("b", [2.0, 4.0, 12.0])])
}

#[test]
fn of__runs_are_paired_by_seed() {
    let of = |quantity: Quantity| quantity.of(&two()).expect("all values are there");
    let [a, b] = ["a", "b"].map(|name| value(&run(name), &fct()));
    assert_eq!(of(ratio(&run("a"), &run("b"), &fct())), [0.5, 2.0, 0.25]);
    assert_eq!(of(reduction(&run("a"), &run("b"), &fct())), [50.0, -100.0, 75.0]);
    assert_eq!(of(most([a.clone(), b.clone()])), [2.0, 8.0, 12.0]);
    assert_eq!(of(least([a.clone(), b.clone()])), [1.0, 4.0, 3.0]);
    assert_eq!(of(middle([a.clone(), b.clone()])), [1.5, 6.0, 7.5]);
    assert_eq!(of(spread([a.clone(), b.clone()])), [1.0, 1.0, 3.0]);
    assert_eq!(of(quantity::minus(&a, &b)), [-1.0, 4.0, -9.0]);
    // Of 1, of 2 to 12; and of 2, of 1 to 8.
    assert_eq!(of(quantity::outside(&a, &b)), [1.0]);
    assert_eq!(of(quantity::outside(&b, &a)), [0.0]);
    assert_eq!(of(quantity::outside(&over(&b, &a), &b)), [0.0]);
    let mut uneven = two();
    uneven.seeds.get_mut(&run("b").command_line(None)).expect("it is there").pop();
    let error = over(&a, &b).of(&uneven).expect_err("a seed has no pair");
    assert!(error.contains("different seeds"), "{error}");
    // A run that has fewer seeds: the others of its rival have no part.
    let fewer = run("b").seeds(2);
    let seeds = two().seeds.remove(&run("b").command_line(None)).expect("it is there");
    let mut both = two();
    both.seeds.insert(fewer.command_line(None), seeds[..2].to_vec());
    assert_eq!(reduction(&run("a"), &fewer, &fct()).of(&both), Ok(vec![50.0, -100.0]));
    assert_eq!(a.of_first(2).of(&both), Ok(vec![1.0, 8.0]));
}

#[test]
fn text__states_the_bounds_that_are_checked() {
    let all = ["a", "b"].map(|name| value(&run(name), &fct()));
    for (check, text) in [
        (all[0].at_most(0.95), "FCT, a: at most 0.950 us"),
        (all[0].near(37.7, 15.0), "FCT, a: 32.05 to 43.35 us (claimed: 37.70)"),
        (most(all.clone()).at_least(2.0), "highest: FCT, a | b: at least 2 us"),
        (spread(all.clone()).at_most(0.1), "spread over the lowest: FCT, a | b: at most 0.100"),
        (ratio(&run("a"), &run("b"), &fct()).at_most(1.0), "FCT, a over b: at most 1"),
        (reduction(&run("a"), &run("b"), &fct()).at_least(10.0), "FCT, a below b: at least 10 %"),
    ] {
        assert_eq!(check.text(), text);
    }
}

#[test]
fn report__a_bound_moved_past_the_median_turns_the_verdict() {
    let low = ratio(&run("a"), &run("b"), &fct());
    let row = |checks: &[Check]| Row { checks: checks.to_vec(), ..Row::default() };
    let report = |row: &Row| row.report("x", &two(), false);
    let met = report(&row(&[low.at_most(0.5)]));
    assert_eq!((met.verdict, met.is_unexplained()), (Some(Verdict::Met), false));
    let ours = met.ours.expect("it has values");
    assert_eq!((ours.median, ours.min, ours.max, ours.n), (0.5, 0.25, 2.0, 3));
    let missed = report(&row(&[low.at_most(0.5), low.at_most(0.49)]));
    assert_eq!((missed.verdict, missed.is_unexplained()), (Some(Verdict::Missed), true));
    assert_eq!(missed.checks.iter().map(|check| check.ok).collect::<Vec<_>>(), [true, false]);
    let known = Row { why: "ties", ..row(&[low.at_most(0.4)]) };
    assert_eq!((report(&known).why, report(&known).is_unexplained()), (Some("ties"), false));
    let refuted = Row { refuted: Some(low.at_least(0.5)), ..known };
    assert_eq!(report(&refuted).verdict, Some(Verdict::Refuted));
    let scaled = Row { scale: "half", why: "ties", ..row(&[low.at_most(0.5)]) };
    assert_eq!((report(&scaled).verdict, report(&scaled).why), (Some(Verdict::Scaled), None));
}

#[test]
fn report__small_runs_give_a_verdict_only_if_the_row_says_so() {
    let check = value(&run("a"), &fct());
    for (quick, bound, verdict) in [
        (Quick::Show, 3.0, Some(Verdict::Scaled)),
        (Quick::Show, 2.0, None),
        (Quick::Bar, 2.0, Some(Verdict::Missed)),
    ] {
        let row = Row { quick, checks: vec![check.at_most(bound)], ..Row::default() };
        assert_eq!(row.report("x", &two(), true).verdict, verdict, "{bound}");
    }
}

#[test]
fn report__a_missing_run_or_value_is_an_error() {
    let row = Row { checks: vec![value(&run("c"), &fct()).at_most(1.0)], ..Row::default() };
    let report = row.report("x", &two(), false);
    assert_eq!(report.error.as_deref(), Some("c: it has no results"));
    assert!(report.is_unexplained() && report.verdict_text() == "error");
    let mut failed = two();
    failed.errors.insert(run("c").command_line(None), "no such scenario".to_owned());
    let report = row.report("x", &failed, false);
    assert_eq!(report.error.as_deref(), Some("c: no such scenario"));
    let none = reading("peak", "", |_| None);
    let row = Row { checks: vec![value(&run("a"), &none).at_most(1.0)], ..row };
    let report = row.report("x", &two(), false);
    assert_eq!(report.error.as_deref(), Some("a: the result has no peak"));
}

#[test]
fn report__an_event_that_never_happened_is_at_infinity() {
    let inf = f64::INFINITY;
    let never = results([("a", [inf; 3]), ("b", [1.0; 3])]);
    let holds = |check: Check| check.report(&never).expect("all values are there").ok;
    let [a, b] = ["a", "b"].map(|name| value(&run(name), &fct()));
    assert!(!holds(a.at_most(1e9)) && holds(a.at_least(1.0)) && holds(over(&b, &a).at_most(0.0)));
    // The ratio of two infinities is not a number, which meets no bar.
    assert!(!holds(over(&a, &a).at_least(0.0)) && !holds(over(&a, &a).at_most(inf)));
}

#[test]
fn number__has_few_digits_and_median_is_the_middle() {
    let texts = [576_000.4, 125.25, 12.345, 0.12345, 3.0, f64::INFINITY].map(number);
    assert_eq!(texts, ["576000", "125.2", "12.35", "0.123", "3", "never"]);
    assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (2.0, 2.5));
    assert!(median(&[]).is_nan());
}

#[test]
fn interval__is_of_order_statistics() {
    let of = |n: u32| statistics::interval(&(1..=n).map(f64::from).collect::<Vec<_>>());
    let all = [0, 1, 5, 6, 8, 9, 10, 20].map(of);
    let want = [[1.0, 6.0], [1.0, 8.0], [2.0, 8.0], [2.0, 9.0], [6.0, 15.0]].map(Some);
    assert_eq!((&all[..3], &all[3..]), (&[None; 3][..], &want[..]));
}

/// The median is within the bound at all seeds but two: of six, the interval is not.
#[test]
fn report__a_check_holds_only_if_the_interval_does() {
    let of = |fcts: &[f64]| {
        let of = |us: &f64| SeedResult { mean_us: Some(*us), ..SeedResult::default() };
        let seeds = fcts.iter().map(of).collect();
        let seeds = [(run("a").command_line(None), seeds)].into();
        let check = value(&run("a"), &fct()).at_most(2.0);
        check.report(&Results { seeds, ..Results::default() }).expect("all values are there").ok
    };
    assert!(of(&[1.0, 1.0, 1.0, 9.0, 1.0]) && !of(&[1.0, 1.0, 1.0, 9.0, 1.0, 1.0]));
    assert!(of(&[1.0; 6]) && of(&[1.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]));
}

#[test]
fn report__equal_values_are_refused_unless_the_row_says_so() {
    let equal = results([("a", [1.0; 3])]);
    let row = Row { checks: vec![value(&run("a"), &fct()).at_most(1.0)], ..Row::default() };
    let one = Row { is_deterministic: true, ..row.clone() };
    let error = row.report("x", &equal, false).error.expect("one value, not three");
    assert!(error.contains("are equal"), "{error}");
    assert_eq!(one.report("x", &equal, false).verdict, Some(Verdict::Met));
    let error = one.report("x", &two(), false).error.expect("three values, not one");
    assert!(error.contains("differ"), "{error}");
}

#[test]
fn report__a_choice_has_its_checks_and_no_part_in_the_verdict() {
    let [a, b] = ["a", "b"].map(|name| value(&run(name), &fct()));
    let row = Row { checks: vec![a.at_most(4.0)], ..Row::default() };
    let row = row.choice("b", [b.at_most(1.0)]);
    let report = row.report("x", &two(), false);
    assert_eq!((report.verdict, report.choices[0].1[0].ok), (Some(Verdict::Met), false));
    assert_eq!(row.runs().len(), 2);
    let absent = Row { not_run: "an hour", ..row };
    let report = absent.report("x", &Results::default(), false);
    assert_eq!((report.verdict, report.why), (Some(Verdict::NotRun), Some("an hour")));
    assert!(absent.runs().is_empty() && !report.is_unexplained());
}

#[test]
fn papers__rows_are_unique_and_their_runs_exist() {
    let mut ids = BTreeSet::new();
    for mut row in papers().into_iter().flat_map(|paper| paper.rows) {
        assert!(ids.insert(row.id), "{}", row.id);
        assert!(!row.checks.is_empty() || !row.not_run.is_empty(), "{}", row.id);
        row.not_run = "";
        for run in row.runs().values().filter(|run| run.command.is_empty()) {
            // But for one at full size, which a scaled row compares with its smaller ones.
            let is_full = run.seeds == 1 && !row.scale.is_empty();
            assert!(run.seeds >= 6 || is_full, "{}: no interval", row.id);
            let scenario = Scenario::find(run.scenario).expect(run.scenario);
            for run in [run, &run.smaller()] {
                let set = run.set.iter().map(|(key, value)| (*key, value.as_str()));
                scenario.params().set_all(set).unwrap_or_else(|e| panic!("{}: {e}", row.id));
            }
        }
    }
    assert_eq!(ids.len(), 64, "those of the papers, and one of ours");
}

/// Otherwise it would run twice. A network in a file would be no part of the identity.
#[test]
fn papers__no_run_has_two_names() {
    let mut names = BTreeMap::new();
    for mut row in papers().into_iter().flat_map(|paper| paper.rows) {
        row.not_run = "";
        for (name, run) in row.runs() {
            assert!(!run.set.contains_key("agent.model"), "{}", row.id);
            let Some(identity) = run.identity(1).expect("it exists") else { continue };
            let first = names.entry(identity.text).or_insert_with(|| name.clone());
            assert_eq!(*first, name, "{}", row.id);
        }
    }
}

/// Names of claims, and how runs have them.
const NAMES: [(&str, &str); 16] = [
    ("ACC", "acc"),
    ("DCQCN", "dcqcn"),
    ("HAECN", "haecn"),
    ("HPCC", "hpcc"),
    ("LAECN", "laecn"),
    ("MLCC", "mlcc"),
    ("NDT", "ndt"),
    ("NSF", "nsf"),
    ("PACC", "pacc"),
    ("PLB", "plb"),
    ("PowerTCP", "powertcp"),
    ("Reflex", "on"),
    ("Swift", "swift"),
    ("TIMELY", "timely"),
    ("UnoLB", "unolb"),
    ("spraying", "spray"),
];

/// The values of all parameters of a scenario, also of those that the run does not set.
fn parameters(run: &Run) -> Vec<String> {
    let mut all: Vec<String> = run.set.values().cloned().collect();
    let params = Scenario::find(run.scenario).map(Scenario::params);
    let others = params.iter().flat_map(Params::iter);
    let others = others.filter(|param| !run.set.contains_key(param.name));
    all.extend(others.map(|param| param.value.to_string()));
    all
}

/// The words and numbers of a claim that no check is about, and that do not describe the
/// experiment.
fn unchecked(row: &Row) -> Vec<String> {
    let claimed: Vec<f64> = row.checks.iter().flat_map(|check| check.claimed.clone()).collect();
    let runs: Vec<&Run> = row.checks.iter().flat_map(|check| &check.quantity.runs).collect();
    let is_read = |name: &str| {
        let is_of = |value: &String| value == name || value.starts_with(&format!("{name}-"));
        runs.iter().any(|run| parameters(run).iter().any(is_of))
    };
    let is_free = |word: &&str| {
        let known = NAMES.iter().find(|(name, _)| name == word);
        match (known, word.parse::<f64>()) {
            (Some((_, name)), _) => !is_read(name),
            (None, Ok(number)) => !claimed.contains(&number),
            (None, Err(_)) => false,
        }
    };
    let words = row.claim.split(|c: char| !c.is_alphanumeric() && c != '.' && c != '_');
    let words = words.map(|word| word.trim_end_matches('.'));
    let is_described = |word: &&str| row.described.contains(word);
    words.filter(is_free).filter(|word| !is_described(word)).map(str::to_owned).collect()
}

#[test]
fn papers__claims_have_no_number_and_no_scheme_without_a_check() {
    for row in papers().iter().flat_map(|paper| &paper.rows).filter(|row| !row.checks.is_empty()) {
        assert_eq!(unchecked(row), [""; 0], "{}: {}", row.id, row.claim);
    }
    let claim = "Of 4 schemes a is 23.5 % below TIMELY.";
    let check = ratio(&run("a"), &run("b"), &fct()).at_most(0.9);
    let row = Row { claim, checks: vec![check.clone()], ..Row::default() };
    assert_eq!(unchecked(&row), ["4", "23.5", "TIMELY"]);
    let row = Row { checks: vec![check.claimed(&[23.5])], described: &["4"], ..row };
    assert_eq!(unchecked(&row), ["TIMELY"]);
}

/// One scheme is not below another by less than a hundredth.
#[test]
fn papers__no_order_is_closer_than_a_hundredth() {
    for row in papers().iter().flat_map(|paper| &paper.rows) {
        for check in row.checks.iter().filter(|check| check.quantity.text.contains(" over ")) {
            let is_close = |bound: &f64| (bound - 1.0).abs() < 0.0099;
            let is_order = check.bounds.iter().any(|bound| bound.is_infinite());
            assert!(!(is_order && check.bounds.iter().any(is_close)), "{}", row.id);
        }
    }
}
