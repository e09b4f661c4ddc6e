//! The queue of a switch over time.

use serde_json::Value;

/// The queue of `port` in each report between two times, from lines of `switch ctl --json show`.
pub(crate) fn queue_bytes(lines: &[String], port: &str, (from, to): (f64, f64)) -> Vec<f64> {
    let of = |line: &String| {
        // The last line may have been cut short.
        let report: Value = serde_json::from_str(line).ok()?;
        let at = report["at_unix_s"].as_f64()?;
        let found = report["ports"].as_array()?.iter().find(|p| p["name"] == port)?;
        (from <= at && at <= to).then_some(found["queue_bytes"].as_f64()?)
    };
    lines.iter().filter_map(of).collect()
}

/// The mean of `values`; none of nothing.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_bytes__is_of_the_port_and_the_time() {
        let line = |at: f64, a: u64| {
            let ports = serde_json::json!([{"name": "b", "queue_bytes": 7},
                                           {"name": "a", "queue_bytes": a}]);
            serde_json::json!({"at_unix_s": at, "ports": ports}).to_string()
        };
        let mut lines = vec![line(1.0, 900), line(2.0, 10), line(3.0, 30), line(4.0, 900)];
        lines.push("{\"at_unix".to_owned());
        assert_eq!(queue_bytes(&lines, "a", (1.5, 3.5)), [10.0, 30.0]);
        assert_eq!(mean(&queue_bytes(&lines, "a", (5.0, 6.0))), None);
        assert_eq!(mean(&queue_bytes(&lines, "a", (1.5, 3.5))), Some(20.0));
        assert!(queue_bytes(&lines, "c", (1.5, 3.5)).is_empty());
    }
}
