//! Parser for the parts of reports that are drawn.

use serde::Deserialize;
use serde_json::Value;
use spanwire_host::fabric::Error;

/// One process's intervals.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    /// Seconds since 1970.
    pub(crate) start_unix_s: f64,
    pub(crate) points: Vec<Point>,
}

/// The parts of a perf report that are drawn.
#[derive(Deserialize)]
struct Report {
    start_unix_s: Option<f64>,
    #[serde(default)]
    intervals: Vec<Point>,
}

/// One interval.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub(crate) struct Point {
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    pub(crate) gbps: f64,
    #[serde(default)]
    pub(crate) flow: Option<FlowPoint>,
}

/// State of the flow in an interval.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub(crate) struct FlowPoint {
    pub(crate) cwnd_bytes: f64,
    pub(crate) srtt_us: Option<f64>,
    pub(crate) marked: Option<f64>,
}

/// Queue and counters of a switch's port at one time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sample {
    /// Seconds since 1970.
    pub(crate) at_unix_s: f64,
    pub(crate) queue_bytes: f64,
    /// ECN marks since the switch started.
    pub(crate) marks: u64,
    pub(crate) drops: u64,
}

impl Run {
    /// A run from the JSON of `spanwire perf client`.
    ///
    /// # Errors
    /// The text is not such JSON, or has no intervals.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Error> {
        // Only what is drawn is kept: a tree of all values takes many times the memory of the text.
        let Report { start_unix_s, intervals: points } = serde_json::from_str(text)?;
        let no_start = "no start_unix_s: it is no output of perf client --json";
        let start_unix_s = start_unix_s.ok_or(no_start)?;
        if points.is_empty() {
            return Err("no intervals: run perf client with -i 0.1, and longer than that".into());
        }
        Ok(Self { name: name.to_owned(), start_unix_s, points })
    }
}

impl Sample {
    /// The samples of `port` from JSON reports of a switch, one a line. A truncated last line is
    /// ignored.
    ///
    /// # Errors
    /// The text has no report, or the switch has no such port.
    pub(crate) fn parse_all(port: &str, text: &str) -> Result<Vec<Self>, Error> {
        let lines = text.lines().take_while(|line| line.len() <= LINE_BYTES_MAX);
        let reports = lines.map_while(|line| serde_json::from_str::<Value>(line).ok());
        let samples: Result<Vec<Self>, Error> = reports.map(|r| Self::of(port, &r)).collect();
        match samples? {
            none if none.is_empty() => Err("no report of a switch, one object a line".into()),
            some => Ok(some),
        }
    }

    fn of(port: &str, report: &Value) -> Result<Self, Error> {
        let at = report["at_unix_s"].as_f64().ok_or("no at_unix_s: it is no report of a switch")?;
        let ports = report["ports"].as_array().ok_or("no ports: it is no report of a switch")?;
        let found = ports.iter().find(|p| p["name"] == port).ok_or_else(|| {
            let names: Vec<&str> = ports.iter().filter_map(|p| p["name"].as_str()).collect();
            format!("no port {port}; there are {}", names.join(", "))
        })?;
        Ok(Self {
            at_unix_s: at,
            queue_bytes: found["queue_bytes"].as_f64().unwrap_or(0.0),
            marks: counted(&found["counters"], "mark_", "mark_not_ect"),
            drops: counted(&found["counters"], "drop_", ""),
        })
    }
}

/// The sum of the counters whose names begin with `prefix`, except the counter `not`.
fn counted(value: &Value, prefix: &str, not: &str) -> u64 {
    match value {
        Value::Object(fields) => {
            let of = |(name, value): (&String, &Value)| match value.as_u64() {
                Some(n) if name.starts_with(prefix) && name != not => n,
                Some(_) => 0,
                None => counted(value, prefix, not),
            };
            fields.iter().map(of).sum()
        }
        Value::Array(values) => values.iter().map(|v| counted(v, prefix, not)).sum(),
        _ => 0,
    }
}

/// The most of a switch's report, which is the most of its reply.
const LINE_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__reads_perf_reports_and_names_missing_fields() {
        let text = r#"{"start_unix_s": 7.5, "intervals": [
            {"start_s": 0, "end_s": 0.1, "gbps": 2, "bytes": 1, "msgs_per_s": 3,
             "flow": {"cwnd_bytes": 9, "srtt_us": null, "marked": 0.5, "cnps": 0}},
            {"start_s": 0.1, "end_s": 0.2, "gbps": 3, "flow": null}]}"#;
        let run = Run::parse("a", text).unwrap();
        assert_eq!((run.name.as_str(), run.points.len()), ("a", 2));
        let flow = FlowPoint { cwnd_bytes: 9.0, srtt_us: None, marked: Some(0.5) };
        assert_eq!((run.points[0].flow, run.points[1].flow), (Some(flow), None));
        let none = Run::parse("a", r#"{"start_unix_s": 7.5, "intervals": []}"#);
        assert!(none.unwrap_err().to_string().contains("-i 0.1"));
        assert!(Run::parse("a", "{}").unwrap_err().to_string().contains("start_unix_s"));
    }

    #[test]
    fn parse_all__adds_up_marks_and_drops_of_the_port() {
        let line = |at: u32, marks: u32| {
            let queue = serde_json::json!({"mark_red": marks, "mark_not_ect": 9, "drop_full": 2});
            let counters = serde_json::json!({"drop_no_route": 1, "queues": [queue]});
            let a = serde_json::json!({"name": "a", "queue_bytes": 5, "counters": counters});
            serde_json::json!({"at_unix_s": at, "ports": [{"name": "b"}, a]}).to_string()
        };
        let text = format!("{}\n{}\n{{\"at_un", line(3, 4), line(4, 6));
        let samples = Sample::parse_all("a", &text).unwrap();
        let of = |at_unix_s, marks| Sample { at_unix_s, queue_bytes: 5.0, marks, drops: 3 };
        assert_eq!(samples, [of(3.0, 4), of(4.0, 6)]);
        let wrong = Sample::parse_all("c", &text).unwrap_err().to_string();
        assert!(wrong.contains("no port c; there are b, a"), "{wrong}");
        assert!(Sample::parse_all("a", "").is_err());
    }
}
