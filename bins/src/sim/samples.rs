//! `--samples`: time series of a network as CSV.

use spanwire_sim::Series;
use std::fmt::Write as _;

/// The series as CSV: `time_us`, then a column for each value, named by its flow or queue. Marks
/// and drops are cumulative.
pub(super) fn to_csv(series: &Series) -> String {
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    let mut add = |name: String, values: Vec<String>| columns.push((name, values));
    add("time_us".to_owned(), series.at_us.iter().map(f64::to_string).collect());
    for f in &series.flows {
        let gbps = f.goodput_gbps.iter().map(f64::to_string);
        add(format!("flow {} gbps", f.flow), gbps.collect());
        add(format!("flow {} in_flight_pkts", f.flow), texts(&f.in_flight_pkts));
    }
    for q in &series.queues {
        for (what, values) in [("bytes", &q.bytes), ("marks", &q.marks), ("drops", &q.drops)] {
            add(format!("queue {} {what}", q.name), texts(values));
        }
    }
    add("drops".to_owned(), texts(&series.drops));

    let names: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect();
    let mut out = names.join(",");
    out.push('\n');
    for row in 0..series.at_us.len() {
        for (i, (_, values)) in columns.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            // Writing to a String cannot fail.
            let _ = write!(out, "{comma}{}", values.get(row).map_or("", String::as_str));
        }
        out.push('\n');
    }
    out
}

fn texts(values: &[u64]) -> Vec<String> {
    values.iter().map(u64::to_string).collect()
}

/// A field of CSV, quoted if necessary.
///
/// # Source
/// RFC 4180 2.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::series;

    #[test]
    fn to_csv__has_a_column_for_each_value_and_a_line_for_each_sample() {
        let expected = "\
time_us,flow 0 gbps,flow 0 in_flight_pkts,\"queue s0, port 2 bytes\",\"queue s0, port 2 marks\",\
\"queue s0, port 2 drops\",drops
0,0,5,0,0,0,0
1000,1,0,9000,1,0,0
";
        assert_eq!(to_csv(&series(1)), expected);
    }

    #[test]
    fn to_csv__of_nothing_is_a_line_of_names() {
        assert_eq!(to_csv(&Series::default()), "time_us,drops\n");
    }

    #[test]
    fn quoted__only_where_needed() {
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
