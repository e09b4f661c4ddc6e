//! The generated part of `docs/conformance.md`.

use crate::judge::Verdict;
use crate::rules::Rule;
use spanwire_tests::replay::Host;
use std::fmt::Write as _;

/// A capture's frames of another transport service.
pub(crate) struct Other {
    pub(crate) capture: String,
    pub(crate) host: Host,
    pub(crate) fed: usize,
    pub(crate) wrong_service: u64,
    pub(crate) unknown_qpn: u64,
}

/// Replaces the part of `text` between the markers by `made`.
pub(crate) fn splice(text: &str, made: &str) -> String {
    let (head, rest) = text.split_once(BEGIN).expect("the marker of the table's begin");
    let (_, tail) = rest.split_once(END).expect("the marker of the table's end");
    format!("{head}{BEGIN}\n\n{made}\n{END}{tail}")
}

/// Tables and reasons, in Markdown.
pub(crate) fn render(verdicts: &[Verdict], others: &[Other]) -> String {
    let mut out = String::new();
    totals(&mut out, verdicts);
    sides(&mut out, verdicts);
    rules(&mut out, verdicts);
    other_services(&mut out, others);
    out
}

fn totals(out: &mut String, verdicts: &[Verdict]) {
    let sum = |f: fn(&Verdict) -> usize| -> usize { verdicts.iter().map(f).sum() };
    let clean = verdicts.iter().filter(|v| v.justified.is_empty());
    let (sides, clean) = (verdicts.len(), clean.count());
    let justified = sum(|v| v.justified.values().sum());
    let _ = writeln!(
        out,
        "{sides} sides of captures replayed, {clean} of them without a difference.\n\
         {} packets input, {} recorded, {} sent by our engine: {} equal, {justified} justified \
         differences.\n",
        sum(|v| v.fed),
        sum(|v| v.recorded),
        sum(|v| v.sent),
        sum(|v| v.equal),
    );
}

fn sides(out: &mut String, verdicts: &[Verdict]) {
    out.push_str("## The table\n\n| capture | our side | packets in | recorded | packets out | ");
    out.push_str("equal | justified | clock moved |\n|---|---|--:|--:|--:|--:|---|--:|\n");
    for v in verdicts {
        let why: Vec<String> =
            v.justified.iter().map(|(rule, n)| format!("{n} {}", rule.name())).collect();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            v.capture,
            v.host,
            v.fed,
            v.recorded,
            v.sent,
            v.equal,
            why.join(", "),
            Some(v.playback.clock_moves)
                .filter(|n| *n > 0)
                .map_or(String::new(), |n| n.to_string()),
        );
    }
}

fn rules(out: &mut String, verdicts: &[Verdict]) {
    out.push_str(
        "\n## The justified differences\n\n| name | how often | reason |\n|---|--:|---|\n",
    );
    for rule in Rule::ALL {
        let n: usize = verdicts.iter().filter_map(|v| v.justified.get(&rule)).sum();
        let _ = writeln!(out, "| {} | {n} | {} |", rule.name(), rule.reason());
    }
}

fn other_services(out: &mut String, others: &[Other]) {
    out.push_str("\n## Other transport services\n\n");
    out.push_str("| capture | our side | UC and UD frames in | `drop_wrong_service` | ");
    out.push_str("`drop_unknown_qpn` | answers |\n|---|---|--:|--:|--:|--:|\n");
    for o in others {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | 0 |",
            o.capture, o.host, o.fed, o.wrong_service, o.unknown_qpn
        );
    }
}

const BEGIN: &str = "<!-- made by the test: begin -->";
const END: &str = "<!-- made by the test: end -->";
