//! The JSON of `spanwire perf client`.

use super::goodput::{Goodput, Interval};
use crate::sample::Error;
use serde_json::Value;
use std::time::Duration;

/// The report of a command of `spanwire` or of iperf3.
///
/// # Errors
/// The run failed, or the text is no JSON.
pub(crate) fn report(text: &str) -> Result<Value, Error> {
    let report: Value = serde_json::from_str(text).map_err(|e| format!("its JSON: {e}"))?;
    report["error"].as_str().map_or(Ok(()), |why| Err(why.to_owned()))?;
    Ok(report)
}

/// The goodput in a client's report.
///
/// # Errors
/// The run failed, or the text is no such report.
pub(crate) fn parse(text: &str) -> Result<Goodput, Error> {
    let report = report(text)?;
    let number = |value: &Value, name: &str| {
        value.as_f64().ok_or_else(|| Error::from(format!("no {name} in the report")))
    };
    let intervals: Vec<Interval> = match &report["intervals"] {
        Value::Null => Vec::new(),
        listed => serde_json::from_value(listed.clone()).map_err(|e| format!("intervals: {e}"))?,
    };
    Ok(Goodput {
        start_unix_s: number(&report["start_unix_s"], "start_unix_s")?,
        bps: number(&report["perf"][0]["gbps"], "perf[0].gbps")? * 1e9,
        intervals,
    })
}

/// The time limit of connection setup and teardown, in addition to the traffic. The side connection
/// is TCP and loses segments like everything on the path.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(40);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> Value {
        let intervals = json!([{"start_s": 0, "end_s": 0.1, "bytes": 9, "gbps": 1, "flow": null}]);
        json!({"error": null, "start_unix_s": 7.5, "perf": [{"gbps": 0.09}],
               "intervals": intervals})
    }

    #[test]
    fn parse__is_the_goodput_of_a_run_without_error() {
        let goodput = parse(&report().to_string()).unwrap();
        assert!((goodput.bps - 9e7).abs() < 1.0);
        assert_eq!(goodput.start_unix_s, 7.5);
        assert_eq!(goodput.intervals, [Interval { start_s: 0.0, end_s: 0.1, bytes: 9 }]);
        let mut failed = report();
        failed["error"] = "RETRY_EXC_ERR".into();
        assert_eq!(parse(&failed.to_string()).unwrap_err().to_string(), "RETRY_EXC_ERR");
    }

    #[test]
    fn parse__errors_name_the_field() {
        for (name, pointer) in [("start_unix_s", "/start_unix_s"), ("gbps", "/perf/0/gbps")] {
            let mut report = report();
            *report.pointer_mut(pointer).unwrap() = Value::Null;
            let why = parse(&report.to_string()).unwrap_err().to_string();
            assert!(why.contains(name), "{why}");
        }
        assert!(parse("").is_err());
    }
}
