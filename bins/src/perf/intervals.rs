//! The intervals of a job, and the shares of its time, as lines of text.

use spanwire_host::runner::{FlowRow, Interval};
use spanwire_host::text::bytes;

/// An interval as a line of text; with congestion control its flows instead of the message rate.
pub(super) fn line(i: &Interval) -> String {
    let Interval { start_s, end_s, bytes: moved, gbps, msgs_per_s, flow } = i;
    let moved = bytes(*moved);
    let begin = format!("{start_s:>8.2}-{end_s:<6.2} s {moved:>10} {gbps:>8.3} Gbit/s");
    match flow {
        Some(flow) if flow.limited_by.is_some() => format!("{begin}{}\n", flow_text(flow)),
        _ => format!("{begin} {msgs_per_s:>10.0} messages/s\n"),
    }
}

/// A flow in 50 columns: window, RTT, ECN marks or CNPs, and what limits it.
fn flow_text(flow: &FlowRow) -> String {
    let window = bytes(flow.cwnd_bytes);
    let srtt = flow.srtt_us.map_or_else(|| "-".to_owned(), |us| format!("{:.2}", us / 1e3));
    let marks = match flow.marked {
        Some(part) => format!("marked {:>3.0} %", part * 100.0),
        None => format!("cnps {:>6}", flow.cnps),
    };
    let by = flow.limited_by.unwrap_or("-");
    format!("  {window:>9}  {srtt:>6} ms  {marks}  {by}")
}

/// The shares of time by limit over the whole run, as a line of text.
pub(super) fn limits_text(flow: &FlowRow) -> Option<String> {
    let mut parts: Vec<_> = flow.limited?.named().into_iter().filter(|p| p.1 >= 0.005).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> =
        parts.iter().map(|(name, part)| format!("{name} {:.0} %", part * 100.0)).collect();
    Some(format!("  limited by: {}\n", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_host::runner::Shares;

    fn flow() -> FlowRow {
        FlowRow {
            cwnd_bytes: 123_456,
            rate_gbps: Some(0.2),
            srtt_us: Some(4_012.0),
            marked: Some(0.123),
            cnps: 0,
            limited_by: Some("application"),
            limited: Some(Shares {
                application: 0.62,
                pacer: 0.376,
                cpu: 0.004,
                ..Shares::default()
            }),
            congestion: None,
        }
    }

    fn interval(flow: Option<FlowRow>) -> Interval {
        Interval {
            start_s: 3599.0,
            end_s: 3600.0,
            bytes: 1 << 30,
            gbps: 8.6,
            msgs_per_s: 1e6,
            flow,
        }
    }

    #[test]
    fn line__fits_a_terminal_of_100_columns() {
        let text = line(&interval(Some(flow())));
        for words in ["120.5 KiB", "4.01 ms", "marked  12 %", "application"] {
            assert!(text.contains(words), "{words} in {text}");
        }
        assert!(text.trim_end().len() <= 100, "{} columns: {text}", text.len());
        let rc = FlowRow { marked: None, cnps: 17, ..flow() };
        assert!(line(&interval(Some(rc))).contains("cnps     17"));
        let none = FlowRow { limited_by: None, limited: None, ..flow() };
        assert!(line(&interval(Some(none))).contains("messages/s"));
    }

    #[test]
    fn limits_text__begins_with_the_largest_and_leaves_out_the_small() {
        let text = limits_text(&flow()).unwrap();
        assert_eq!(text, "  limited by: application 62 %, pacer 38 %\n");
        assert_eq!(limits_text(&FlowRow { limited: None, ..flow() }), None);
    }
}
