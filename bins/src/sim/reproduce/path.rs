//! Paths into JSON: `groups[name=inter].nfct.p99`, `rates_gbps[]`, `recover_us[1]`.

use serde_json::Value;

/// The numbers at `path` in `json`.
///
/// Members are separated by points. `[]` takes all elements of a list, `[N]` the one at place N,
/// counted from zero, `[-1]` the last one, and `[KEY=VALUE]` those whose member KEY is VALUE. A
/// flag is 0 or 1; null, an event that never happened, is infinite.
///
/// # Errors
/// A member is missing, or no number is there. An empty list is not an error with `[]`.
pub(super) fn numbers(json: &Value, path: &str) -> Result<Vec<f64>, String> {
    let mut found = vec![json];
    for step in steps(path) {
        let mut next = Vec::new();
        for value in found {
            next.extend(step.of(value).ok_or_else(|| format!("no {step} on the way to {path}"))?);
        }
        found = next;
    }
    let number = |value: &Value| match value {
        Value::Number(n) => n.as_f64(),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::Null => Some(f64::INFINITY),
        _ => None,
    };
    let all: Option<Vec<f64>> = found.into_iter().map(number).collect();
    all.ok_or_else(|| format!("{path} is not a number"))
}

/// One step of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step<'a> {
    Member(&'a str),
    All,
    At(usize),
    Last,
    With(&'a str, &'a str),
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let mut all = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some((inner, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            all.push(match (inner.split_once('='), inner.parse()) {
                (Some((key, value)), _) => Step::With(key.trim(), value.trim()),
                (None, Ok(at)) => Step::At(at),
                (None, Err(_)) if inner.is_empty() => Step::All,
                (None, Err(_)) if inner == "-1" => Step::Last,
                (None, Err(_)) => Step::Member(inner),
            });
            rest = after;
        } else {
            let name = rest.trim_start_matches('.');
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                // A bracket without an end is an unknown member.
                all.push(Step::Member(name));
                break;
            }
            all.push(Step::Member(&name[..end]));
            rest = &name[end..];
        }
    }
    all
}

impl Step<'_> {
    /// The values to which it leads; `None` if there is no such member.
    fn of<'v>(&self, value: &'v Value) -> Option<Vec<&'v Value>> {
        match self {
            Self::Member(name) => value.get(name).map(|v| vec![v]),
            Self::All => value.as_array().map(|list| list.iter().collect()),
            Self::At(at) => value.get(at).map(|v| vec![v]),
            Self::Last => value.as_array()?.last().map(|v| vec![v]),
            Self::With(key, wanted) => {
                let is = |v: &&Value| match v.get(key) {
                    Some(Value::String(text)) => text == wanted,
                    Some(other) => wanted.parse::<Value>().is_ok_and(|value| value == *other),
                    None => false,
                };
                let found: Vec<&Value> = value.as_array()?.iter().filter(is).collect();
                (!found.is_empty()).then_some(found)
            }
        }
    }
}

impl std::fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Member(name) => write!(f, "member {name}"),
            Self::All => write!(f, "list"),
            Self::At(at) => write!(f, "element {at}"),
            Self::Last => write!(f, "last element"),
            Self::With(key, value) => write!(f, "element with {key} {value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Value {
        json!({
            "peak_bytes": 570_000, "refill_us": null, "ok": true, "rates_gbps": [2.5, 2.4, null],
            "jain": [],
            "groups": [
                { "name": "intra", "n": 9, "nfct": { "mean": 3.0, "p99": 30.5 },
                  "by_size": [{ "upto_bytes": 100_000, "fct_us": { "mean": 12.5 } }] },
                { "name": "inter", "n": 4, "nfct": { "mean": 1.5, "p99": 5.5 }, "by_size": [] },
            ],
        })
    }

    #[test]
    fn numbers__of_members_lists_and_groups() {
        let at = |path: &str| numbers(&sample(), path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(at("peak_bytes"), [570_000.0]);
        assert_eq!((at("refill_us"), at("ok")), (vec![f64::INFINITY], vec![1.0]));
        assert_eq!(at("rates_gbps[]"), [2.5, 2.4, f64::INFINITY]);
        assert_eq!((at("rates_gbps[1]"), at("jain[]")), (vec![2.4], vec![]));
        assert_eq!(at("groups[name=inter].nfct.p99"), [5.5]);
        assert_eq!(at("groups[-1].n"), [4.0]);
        assert_eq!(at("groups[].nfct.mean"), [3.0, 1.5]);
        assert_eq!(at("groups[n=9].by_size[upto_bytes=100000].fct_us.mean"), [12.5]);
    }

    #[test]
    fn numbers__reports_what_is_missing() {
        let wrong = |path: &str| numbers(&sample(), path).expect_err(path);
        assert!(wrong("speed").contains("member speed"));
        assert!(wrong("groups[name=all].n").contains("element with name all"));
        assert!(wrong("groups[2].n").contains("element 2"));
        for path in ["groups", "rates_gbps", "peak_bytes[]", "groups[", "groups[0].name"] {
            assert!(numbers(&sample(), path).is_err(), "{path}");
        }
    }
}
