//! Output of a copy: a progress line, a summary, and JSON.

use crate::exit::Exit;
use crate::path_report::PathsReport;
use crate::report::{loss_text, nonzero};
use serde::Serialize;
use spanwire_copy::gaps::GapRow;
use spanwire_copy::row::FileRow;
use spanwire_copy::session::{Current, End, Session};
use spanwire_host::congestion::CongestionReport;
use spanwire_host::fabric::Fabric;
use spanwire_host::text::bytes;
use spanwire_host::unsent::explained;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The JSON object that both ends print.
#[derive(Debug, Serialize)]
pub struct CopyReport {
    /// All files were copied.
    pub ok: bool,
    /// The exit code.
    pub exit: Exit,
    /// The error, if not.
    pub error: Option<String>,
    /// The files were read back from the receiver's disk.
    pub verify_disk: bool,
    /// Running the same command again resumes the copy.
    pub resumable: bool,
    /// The other end.
    pub peer: String,
    /// The fabric that carried the frames.
    pub fabric: Option<Fabric>,
    /// AF_XDP's mode.
    pub xdp_mode: Option<&'static str>,
    /// The wire mode agreed on: `rc` or `sr`.
    pub mode: Option<&'static str>,
    /// Connections, each with a worker of its own at both ends.
    pub connections: u32,
    /// Congestion control of the first connection's data that this end sent; null of a receiver.
    pub congestion: Option<CongestionReport>,
    /// Erasure coding and paths of data that this end sent.
    #[serde(flatten)]
    pub paths: PathsReport,
    /// Gaps between arrivals of data; only of a receiver.
    pub gaps: Option<GapRow>,
    /// Files copied.
    pub files_done: u64,
    /// Files that failed.
    pub files_failed: u64,
    /// Bytes of the files processed, including those that the receiver already had.
    pub bytes: u64,
    /// Bytes sent over the network.
    pub sent_bytes: u64,
    /// Bytes that the receiver had from an earlier attempt.
    pub resumed_bytes: u64,
    /// Seconds from the handshake to the last reply.
    pub seconds: f64,
    /// Rate of the bytes sent, in 10^9 bits per second.
    pub gbps: f64,
    /// The files.
    pub files: Vec<FileRow>,
    /// Nonzero counters of engine and port.
    pub counters: serde_json::Map<String, serde_json::Value>,
}

/// The recent rate, for the progress line.
#[derive(Debug)]
pub struct RateMeter {
    last: Option<(Instant, u64)>,
    bytes_per_s: f64,
}

impl CopyReport {
    /// The report of a session with duration `took`.
    #[must_use]
    pub fn of(session: &Session, took: Duration, peer: String, counters: &[(String, u64)]) -> Self {
        let (progress, ledger) = (&session.progress, session.ledger());
        let end = session.outcome().unwrap_or(End::Failed("the session did not end".into()));
        let complete = end == End::Complete;
        let failed = ledger.failed;
        let error = match (&end, failed) {
            (End::Complete, 0) => None,
            (End::Complete, 1) => ledger.rows.iter().find_map(|row| row.reason.clone()),
            (End::Complete, n) => Some(format!("{n} entries were not copied")),
            (end, _) => Some(explained(end.to_string(), counters)),
        };
        let sent_bytes = progress.bytes_sent();
        let seconds = took.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a report's figure, of three digits")]
        let gbps = if seconds > 0.0 { sent_bytes as f64 * 8.0 / seconds / 1e9 } else { 0.0 };
        Self {
            ok: complete && failed == 0,
            exit: Exit::Success,
            error,
            verify_disk: false,
            resumable: matches!(
                end,
                End::Interrupted | End::PeerGone(_) | End::PeerAborted(_) | End::Stalled(_)
            ) && progress.bytes_done.load(Ordering::Relaxed) > 0,
            peer,
            fabric: None,
            xdp_mode: None,
            mode: None,
            connections: progress.connections.load(Ordering::Relaxed),
            congestion: None,
            paths: PathsReport::default(),
            gaps: session.gaps(),
            files_done: progress.files_done.load(Ordering::Relaxed),
            files_failed: failed,
            bytes: progress.bytes_done.load(Ordering::Relaxed),
            sent_bytes,
            resumed_bytes: progress.bytes_resumed.load(Ordering::Relaxed),
            seconds,
            gbps,
            files: ledger.rows,
            counters: nonzero(counters),
        }
    }

    /// The report as text: failures first, then a summary line.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        for row in &self.files {
            if let Some(why) = &row.reason {
                let _ = writeln!(out, "  not copied: {}: {why}", row.path);
            }
        }
        let more = self.files_failed.saturating_sub(self.files.len() as u64);
        if more > 0 {
            let _ = writeln!(out, "  not copied: {more} more");
        }
        let files = if self.files_done == 1 { "file" } else { "files" };
        let _ = write!(
            out,
            "{} {files}, {} in {:.2} s, {:.3} Gbit/s",
            self.files_done,
            bytes(self.sent_bytes),
            self.seconds,
            self.gbps
        );
        if self.connections > 1 {
            let _ = write!(out, ", {} connections", self.connections);
        }
        if self.resumed_bytes > 0 {
            let _ = write!(out, ", {} were there already", bytes(self.resumed_bytes));
        }
        out.push_str(match (self.ok, self.verify_disk) {
            (true, true) => ", SHA-256 equal on both ends and on disk\n",
            (true, false) => ", SHA-256 equal on both ends\n",
            (false, _) => "\n",
        });
        out.extend(self.congestion.as_ref().map(CongestionReport::text));
        out.extend(self.paths.text());
        out.extend(loss_text(&self.counters));
        out
    }
}

impl RateMeter {
    /// A speedometer without a sample.
    #[must_use]
    pub fn new() -> Self {
        Self { last: None, bytes_per_s: 0.0 }
    }

    /// The progress line at `now`.
    pub fn line(&mut self, now: Instant, session: &Session) -> String {
        let progress = &session.progress;
        let sent = progress.bytes_sent();
        self.sample(now, sent);
        let total = progress.bytes_total.load(Ordering::Relaxed);
        let done = progress.bytes_done.load(Ordering::Relaxed).min(total);
        let files = progress.files_total.load(Ordering::Relaxed);
        let Current { name, size, done: file_done, .. } = progress.current();
        let mut line = format!(
            "{:>3}% {} of {}, {}/s, {} left",
            percent(done, total),
            bytes(done),
            bytes(total),
            bytes(whole(self.bytes_per_s)),
            self.left(total - done)
        );
        if files > 1 {
            let n = (progress.files_done.load(Ordering::Relaxed) + 1).min(files);
            let _ = write!(line, ", file {n} of {files}");
        }
        if !name.is_empty() {
            let _ = write!(line, ": {} {}%", shortened(&name), percent(file_done, size));
        }
        line
    }

    /// Updates the rate with the bytes sent since the last sample (moving average, weight 1/4).
    fn sample(&mut self, now: Instant, sent: u64) {
        if let Some((then, before)) = self.last {
            let took = now.saturating_duration_since(then).as_secs_f64();
            if took < 0.05 {
                return;
            }
            #[expect(clippy::cast_precision_loss, reason = "a rate for people, of three digits")]
            let fresh = (sent - before) as f64 / took;
            let weight = if self.bytes_per_s == 0.0 { 1.0 } else { 0.25 };
            self.bytes_per_s += (fresh - self.bytes_per_s) * weight;
        }
        self.last = Some((now, sent));
    }

    fn left(&self, bytes: u64) -> String {
        if self.bytes_per_s < 1.0 {
            return "--:--".into();
        }
        #[expect(clippy::cast_precision_loss, reason = "a time for people, in seconds")]
        let seconds = whole((bytes as f64 / self.bytes_per_s).ceil());
        match seconds {
            0..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
            s => format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60),
        }
    }
}

impl Default for RateMeter {
    fn default() -> Self {
        Self::new()
    }
}

fn percent(done: u64, of: u64) -> u128 {
    (u128::from(done) * 100).checked_div(of.into()).unwrap_or(100).min(100)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float saturates, and a figure for people may"
)]
fn whole(x: f64) -> u64 {
    x as u64
}

/// Shortens a name from its start, so that the progress line fits a terminal.
fn shortened(name: &str) -> String {
    let long = name.chars().count();
    if long <= NAME_CHARS {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(long - NAME_CHARS + 1).collect();
    format!("…{tail}")
}

const NAME_CHARS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_copy::message::Sha256Hex;

    #[test]
    fn of__one_failure_is_the_error_and_more_are_counted() {
        let session = Session::new(false);
        session.end(End::Complete);
        let report = |session: &Session| {
            CopyReport::of(session, Duration::from_secs(2), "10.77.0.1".into(), &[])
        };
        assert!(report(&session).ok);
        session.note(FileRow::copied("fine".into(), 1, Sha256Hex([0; 32]), 0));
        session.note(FileRow::failed("a".into(), 1, "no room"));
        let one = report(&session);
        assert!(!one.ok && !one.resumable);
        assert_eq!(one.error.as_deref(), Some("no room"));
        assert!(one.text().starts_with("  not copied: a: no room\n"), "{}", one.text());
        session.note(FileRow::failed("b".into(), 1, "no room"));
        assert_eq!(report(&session).error.as_deref(), Some("2 entries were not copied"));
    }

    #[test]
    fn of__rate_counts_sent_bytes_only() {
        let session = Session::new(true);
        session.progress.begin("x", 3_000_000_000, 1_000_000_000);
        session.progress.advance(2_000_000_000);
        session.end(End::PeerGone("killed"));
        let counters = [("tx".to_owned(), 3), ("rx".to_owned(), 0)];
        let report = CopyReport::of(&session, Duration::from_secs(2), String::new(), &counters);
        assert!((report.gbps - 8.0).abs() < 1e-9, "{}", report.gbps);
        assert!(report.resumable && !report.ok);
        assert_eq!(report.resumed_bytes, 1_000_000_000);
        assert_eq!(report.counters.len(), 1);
    }

    #[test]
    fn line__has_progress_rate_and_remaining_time() {
        let session = Session::default();
        session.progress.bytes_total.store(10 << 20, Ordering::Relaxed);
        session.progress.files_total.store(2, Ordering::Relaxed);
        let mut meter = RateMeter::new();
        let start = Instant::now();
        session.progress.begin("a-file-with-a-rather-long-name.iso", 8 << 20, 0);
        assert!(meter.line(start, &session).contains("--:-- left"));
        session.progress.advance(4 << 20);
        let line = meter.line(start + Duration::from_secs(2), &session);
        let wanted =
            " 40% 4 MiB of 10 MiB, 2 MiB/s, 0:03 left, file 1 of 2: …-a-rather-long-name.iso 50%";
        assert_eq!(line, wanted);
    }

    #[test]
    fn percent__of_zero_is_100() {
        assert_eq!(
            [percent(0, 0), percent(1, 3), percent(9, 9), percent(10, 9)],
            [100, 33, 100, 100]
        );
    }
}
