//! Output of results: tables, rows of JSON and a progress line.

use crate::exit::{Exit, error_json};
use crate::output;
use serde::Serialize;
use spanwire_host::fabric::Error;
use spanwire_host::initiator::Failure;
use spanwire_host::oob::Op;
pub use spanwire_host::runner::seconds;
use spanwire_host::runner::{JobReport, PerfRow, WorkerRow};
use spanwire_host::text::bytes;
use spanwire_transport::{Agreed, WcStatus};

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

/// The error, or the messages and the time that are missing in the figures, as text.
fn remark(row: &PerfRow) -> Option<String> {
    if row.error.is_some() {
        return row.error.clone();
    }
    let n = row.unfinished;
    let unfinished = (n > 0).then(|| format!("{n} unfinished 1 s after the time was up"));
    let is_long = row.longest_gap_s > row.seconds / 2.0;
    let gap = is_long
        .then(|| format!("nothing completed for {:.1} of {:.1} s", row.longest_gap_s, row.seconds));
    let all: Vec<String> = [unfinished, gap].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// A line for each of several workers; nothing for a single one.
#[must_use]
pub fn workers_text(rows: &[WorkerRow]) -> String {
    let line = |WorkerRow { worker, core, row }: &WorkerRow| {
        let core = core.map(|core| format!(" (core {core})")).unwrap_or_default();
        let PerfRow { op, gbps, msgs_per_s, p50_us, p99_us, .. } = row;
        let remark = remark(row).map(|text| format!("; {text}")).unwrap_or_default();
        format!(
            "  worker {worker}{core}: {} {gbps:.3} Gbit/s, {msgs_per_s:.0} messages/s, p50 \
             {p50_us:.1} us, p99 {p99_us:.1} us{remark}\n",
            op_name(*op)
        )
    };
    let several = rows.iter().any(|row| row.worker > 0);
    if several { rows.iter().map(line).collect() } else { String::new() }
}

/// The exit code of a client with this result, if it misses no threshold.
#[must_use]
pub fn job_exit(report: &JobReport) -> Exit {
    let differs = report.sha256_match() == Some(false);
    match report.progress.failure {
        _ if differs || !report.atomics_agree() => Exit::TransferWrong,
        Some(
            Failure::Completion(WcStatus::RetryExcErr) | Failure::NoResponse | Failure::Unsent(_),
        ) => Exit::PeerUnreachable,
        None if report.missing.is_some() => report.missing.as_ref().map_or(Exit::Failure, Exit::of),
        _ if !report.is_ok() => Exit::Failure,
        _ => Exit::Success,
    }
}

/// The wire mode and the payload of a full packet, as text.
#[must_use]
pub fn packets(agreed: Option<Agreed>, path_mtu: u32) -> String {
    match agreed {
        Some(Agreed::Sr(terms)) => format!("SR, {} bytes a packet", terms.segment_bytes),
        Some(Agreed::Rc) | None => format!("RC, path MTU {path_mtu}"),
    }
}

/// The measurements as a table.
#[must_use]
pub fn perf_table(rows: &[PerfRow]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "  {:<9} {:<10} {:>9} {:>5} {:>9} {:>12} {:>9} {:>9} {:>9}",
        "op", "mode", "size", "qps", "Gbit/s", "messages/s", "p50 us", "p99 us", "p99.9 us"
    );
    for r in rows {
        let op = op_name(r.op);
        let _ = write!(
            out,
            "  {op:<9} {:<10} {:>9} {:>5} {:>9.3} {:>12.0} {:>9.1} {:>9.1} {:>9.1}",
            r.mode,
            bytes(r.size.into()),
            r.qps,
            r.gbps,
            r.msgs_per_s,
            r.p50_us,
            r.p99_us,
            r.p999_us
        );
        let _ = match remark(r) {
            Some(remark) => writeln!(out, "  {remark}"),
            None => writeln!(out),
        };
    }
    out
}

/// Packets presumed lost, spuriously or not, and retransmissions, as a line of text, and a line on
/// packets that the path did not carry. `None` if there were none. `counters` are those of a
/// report, by name.
#[must_use]
pub fn loss_text(counters: &serde_json::Map<String, serde_json::Value>) -> Option<String> {
    let count = |name| counters.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let (presumed, retransmitted) =
        (count("presumed_lost_packets"), count("retransmitted_packets"));
    let spurious = count("spurious_lost_packets");
    let fragmented = count("udp_tx_fragmented");
    let narrow = match (count("path_mtu_reduced"), fragmented) {
        (0, 0) => String::new(),
        (0, _) => format!(
            "  packets that may be fragmented: {fragmented}, longer than the interface's MTU, or \
             sent to find out whether the path carries full ones\n"
        ),
        _ => format!(
            "  the path carries shorter packets only: {fragmented} were sent as fragments; set the \
             MTU of its route (`spanwire doctor --dev NAME --peer ADDRESS` shows it)\n"
        ),
    };
    (presumed + retransmitted + fragmented > 0).then(|| {
        format!(
            "{narrow}  packets presumed lost: {presumed}, of these spurious: {spurious}; \
             retransmitted: {retransmitted}\n"
        )
    })
}

/// The nonzero counters as a JSON object.
#[must_use]
pub fn nonzero(counters: &[(String, u64)]) -> serde_json::Map<String, serde_json::Value> {
    let counted = counters.iter().filter(|(_, n)| *n > 0);
    counted.map(|(name, n)| (name.clone(), (*n).into())).collect()
}

/// The operation's name on the command line.
#[must_use]
pub fn op_name(op: Op) -> &'static str {
    match op {
        Op::Send => "send",
        Op::Write => "write",
        Op::Read => "read",
        Op::FetchAdd => "fetch-add",
        Op::CmpSwap => "cmp-swap",
    }
}

/// Prints `text` on stdout and flushes it. [`output::finish`] reports an error when the command
/// ends.
pub fn print_text(text: &(impl AsRef<[u8]> + ?Sized)) {
    let mut out = std::io::stdout().lock();
    output::note_stdout(out.write_all(text.as_ref()).and_then(|()| out.flush()));
}

/// Prints a report: as a line of JSON, or as text.
///
/// # Errors
/// It has no JSON form.
pub fn print_report<T: Serialize>(
    json: bool,
    report: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Error> {
    print_text(&if json { serde_json::to_string(report)? + "\n" } else { text(report) });
    Ok(())
}

/// As [`print_report`], with JSON in lines.
///
/// # Errors
/// As [`print_report`].
pub fn print_pretty<T: Serialize>(
    json: bool,
    report: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Error> {
    print_text(&if json { serde_json::to_string_pretty(report)? + "\n" } else { text(report) });
    Ok(())
}

/// Reports that a server failed to serve the `role` at `address` and goes on: on stderr, and as an
/// object on stdout if it reports in JSON.
pub fn print_peer_error(json: bool, role: &str, address: &str, why: &Error) {
    output::print_error(&format!("{role} {address}: {why}"));
    if json {
        let mut object = error_json(why);
        object[role] = address.into();
        print_text(&format!("{object}\n"));
    }
}

/// A progress line on the terminal that is rewritten in place. Silent if stderr is no terminal.
#[derive(Debug)]
pub struct LiveLine {
    shown: bool,
    width: usize,
}

impl LiveLine {
    /// An empty line; `wanted` is false if the output is JSON.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        Self { shown: wanted && std::io::stderr().is_terminal(), width: 0 }
    }

    /// Replaces the line by `text`.
    pub fn show(&mut self, text: &str) {
        if self.shown {
            let width = self.width.max(text.chars().count());
            // If the terminal is gone, the work continues without progress output.
            let _ = write!(std::io::stderr(), "\r{text:<width$}");
            let _ = std::io::stderr().flush();
            self.width = text.chars().count();
        }
    }

    /// Erases the line.
    pub fn clear(&mut self) {
        if self.width > 0 {
            self.show("");
            self.width = 0;
            let _ = write!(std::io::stderr(), "\r");
        }
    }
}

/// A progress bar of 30 cells for `done` of `of`.
#[must_use]
pub fn bar(done: u64, of: u64) -> String {
    let cells = (done.min(of) * 30).checked_div(of).unwrap_or(0);
    (0..30).map(|i| if i < cells { '#' } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_text__separates_presumed_and_spurious_losses() {
        let counters = serde_json::json!({
            "presumed_lost_packets": 12, "spurious_lost_packets": 9, "retransmitted_packets": 13,
        });
        let text = loss_text(counters.as_object().unwrap()).unwrap();
        assert_eq!(text, "  packets presumed lost: 12, of these spurious: 9; retransmitted: 13\n");
        assert_eq!(loss_text(&serde_json::Map::new()), None);
    }

    #[test]
    fn bar__fills() {
        assert_eq!(bar(0, 10), ".".repeat(30));
        assert_eq!(bar(5, 10), format!("{}{}", "#".repeat(15), ".".repeat(15)));
        assert_eq!(bar(11, 10), "#".repeat(30));
        assert_eq!(bar(0, 0), ".".repeat(30));
    }
}
