//! `spanwire pcap`: the packets of a capture, with every ICRC checked.

use crate::exit::Exit;
use crate::output;
use clap::Args;
use serde::Serialize;
use spanwire_host::text::printable_within;
use spanwire_pcap::{Capture, Decoded, Decoder, FlowRow, Flows, Icrc, Line, is_known, opcode_name};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The arguments of `spanwire pcap`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct PcapArgs {
    /// Captures to read, pcap or pcapng; - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON: one line for each file, an object with its counts
    #[arg(long)]
    pub json: bool,
    /// Print a table of flows instead of the packets
    #[arg(long)]
    pub summary: bool,
    /// Show only packets to this queue pair, or datagrams from it; repeatable. The counts and the
    /// exit code cover all packets
    #[arg(long, value_name = "QPN", value_parser = parse_qpn)]
    pub qp: Vec<u32>,
    /// Print also frames that are not RoCE
    #[arg(long, conflicts_with_all = ["json", "summary", "qp"])]
    pub all: bool,
}

/// The counts of a file, as a line of JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FileReport {
    /// The file, as named on the command line; printable.
    pub file: String,
    /// Frames of any kind.
    pub frames: u64,
    /// Frames that are not RoCE packets.
    pub other_frames: u64,
    /// Packets to UDP port 4791: the sum of good, bad and unchecked ICRCs.
    pub roce_packets: u64,
    /// Packets with a correct ICRC.
    pub icrc_good: u64,
    /// Packets with a wrong ICRC.
    pub icrc_bad: u64,
    /// Packets without an ICRC, or truncated in the file.
    pub icrc_unchecked: u64,
    /// Packets that the file holds only in part.
    pub truncated: u64,
    /// Packets that a receiver would drop for a reason other than the ICRC.
    pub parse_errors: u64,
    /// The parse errors by reason.
    pub parse_error_reasons: BTreeMap<&'static str, u64>,
    /// Packets by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// The flows, with `--summary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<Vec<FlowRow>>,
    /// The error, if the file could not be read to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Reads all files and prints their packets.
///
/// # Returns
/// 0 if all packets are good, 1 if one has a bad ICRC or does not parse, 2 if a file could not be
/// read to its end. If the output pipe is closed (`| head`), it stops with the code so far.
#[must_use]
pub fn run(args: &PcapArgs) -> Exit {
    let stdout = io::stdout().lock();
    // On a terminal or with a live capture, each line is printed as soon as its packet is read.
    let live = io::stdout().is_terminal() || args.files.iter().any(|f| f == Path::new("-"));
    let mut out: Box<dyn Write> =
        if live { Box::new(stdout) } else { Box::new(BufWriter::new(stdout)) };
    let mut worst = Exit::Success;
    for (i, path) in args.files.iter().enumerate() {
        let mut report = FileReport {
            file: printable_within(path.as_os_str().as_bytes(), PATH_CHARS_MAX),
            ..FileReport::default()
        };
        let written = report.read(path, i, args, &mut out).and_then(|()| out.flush());
        worst = worst.max(report.exit());
        if let Some(error) = &report.error {
            output::print_error(&format!("error: {}: {error}", report.file));
        }
        match written {
            Ok(()) => {}
            error => {
                output::note_stdout(error);
                break;
            }
        }
    }
    worst
}

impl FileReport {
    /// The exit code if this were the only file: see [`run`].
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self { error: Some(_), .. } => Exit::Usage,
            Self { icrc_bad: 0, parse_errors: 0, .. } => Exit::Success,
            _ => Exit::Failure,
        }
    }

    /// Reads file number `i` and prints it; fails only if printing fails.
    fn read(
        &mut self,
        path: &Path,
        i: usize,
        args: &PcapArgs,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if args.files.len() > 1 && !args.json {
            let gap = if i > 0 { "\n" } else { "" };
            writeln!(out, "{gap}==> {} <==", self.file)?;
        }
        let input: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            match File::open(path) {
                Ok(file) => Box::new(file),
                Err(e) => {
                    self.error = Some(e.to_string());
                    return self.write_end(args, &Flows::default(), out);
                }
            }
        };
        let mut flows = Flows::default();
        self.read_capture(input, args, &mut flows, out)?;
        self.write_end(args, &flows, out)
    }

    fn read_capture(
        &mut self,
        input: impl Read,
        args: &PcapArgs,
        flows: &mut Flows,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut capture = match Capture::new(input) {
            Ok(capture) => capture,
            Err(e) => {
                self.error = Some(e.to_string());
                return Ok(());
            }
        };
        let mut decoder = Decoder::default();
        let mut first_ns = None;
        let mut unknown_link = None;
        loop {
            let record = match capture.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(e) => {
                    self.error = Some(e.to_string());
                    return Ok(());
                }
            };
            self.frames += 1;
            if !is_known(record.link) {
                unknown_link.get_or_insert(record.link);
            }
            first_ns = first_ns.or(record.at_ns);
            for decoded in &decoder.decode(&record) {
                self.note(decoded);
                if !is_wanted(decoded, args) {
                    continue;
                }
                if let Decoded::Roce(packet) = decoded
                    && args.summary
                {
                    flows.note(packet);
                }
                if !args.json && !args.summary {
                    let line = Line {
                        number: self.frames,
                        since_first_ns: record.at_ns.zip(first_ns).map(|(at, first)| at - first),
                        original_len: record.original_len,
                        captured_len: record.bytes.len(),
                        decoded,
                    };
                    writeln!(out, "{line}")?;
                }
            }
        }
        // Report frames that were not decoded, because silence would suggest that all are good.
        self.error = unknown_link.map(|link| {
            format!("has frames of link type {link}; Ethernet, Linux cooked and raw IP are read")
        });
        Ok(())
    }

    /// Counts one frame.
    fn note(&mut self, decoded: &Decoded<'_>) {
        let packet = match decoded {
            Decoded::Roce(packet) => packet,
            Decoded::Other(_) => {
                self.other_frames += 1;
                return;
            }
        };
        self.roce_packets += 1;
        match packet.icrc {
            Icrc::Good => self.icrc_good += 1,
            Icrc::Bad { .. } => self.icrc_bad += 1,
            Icrc::Unchecked => self.icrc_unchecked += 1,
        }
        self.truncated += u64::from(packet.truncated);
        if let Some(fault) = packet.fault {
            self.parse_errors += 1;
            *self.parse_error_reasons.entry(fault.name()).or_default() += 1;
        }
        if let Some(bth) = &packet.bth {
            *self.opcodes.entry(opcode_name(bth.opcode())).or_default() += 1;
        }
    }

    /// Prints the summary after the last packet.
    fn write_end(
        &mut self,
        args: &PcapArgs,
        flows: &Flows,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if args.json {
            self.flows = args.summary.then(|| flows.rows());
            serde_json::to_writer(&mut *out, self)?;
            return writeln!(out);
        }
        if self.error.is_some() && self.frames == 0 {
            // The error is sufficient.
            return Ok(());
        }
        if args.summary {
            write!(out, "{}", flows.to_text())?;
        }
        writeln!(out, "{}", self.to_text())
    }

    /// The counts as text.
    fn to_text(&self) -> String {
        let Self { frames, roce_packets, icrc_good, icrc_bad, .. } = self;
        let mut text = format!(
            "{frames} frames, {roce_packets} RoCE packets: ICRC good {icrc_good}, bad {icrc_bad}"
        );
        // Writing to a String cannot fail.
        let _ = match (self.icrc_unchecked, self.truncated) {
            (0, _) => Ok(()),
            (unchecked, cut) => write!(text, ", not checked {unchecked} ({cut} truncated)"),
        };
        let _ = write!(text, "; parse errors {}", self.parse_errors);
        for (i, (reason, count)) in self.parse_error_reasons.iter().enumerate() {
            let _ = write!(text, "{} {count} {reason}", if i == 0 { ":" } else { "," });
        }
        text
    }
}

/// True for a frame that passes the filters.
fn is_wanted(decoded: &Decoded<'_>, args: &PcapArgs) -> bool {
    let Decoded::Roce(packet) = decoded else {
        return args.all;
    };
    let src_qp = packet.ext.and_then(|ext| ext.deth).map(|deth| deth.src_qp.get());
    let dest_qp = packet.bth.map(|bth| bth.dest_qp().get());
    args.qp.is_empty() || [src_qp, dest_qp].iter().flatten().any(|qp| args.qp.contains(qp))
}

/// Parses a queue pair number, decimal or with 0x.
fn parse_qpn(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(qpn) if qpn <= spanwire_wire::Qpn::MASK => Ok(qpn),
        _ => Err("a queue pair number is 0 to 0xffffff".to_owned()),
    }
}

/// The longest name of a file in a report.
const PATH_CHARS_MAX: usize = 4096;

const AFTER_HELP: &str = "\
A RoCE packet is an unfragmented IP packet to UDP port 4791. It is bad if its ICRC is wrong or if it
does not parse, because a receiver would drop it. A packet cut by the snap length is shown and
counted as truncated. Its ICRC cannot be checked, and it is not bad.

Exit code: 0 if all packets are good, 1 if one is bad, 2 if a file cannot be read to its end.

With --json each file is one line (JSON Lines): `jq .icrc_bad` reads one file or many.

Examples:
  spanwire pcap trace.pcap
  tcpdump -i eth0 -U -w - udp port 4791 | spanwire pcap -
  spanwire pcap --summary --qp 0x11 trace.pcapng";

#[cfg(test)]
mod tests;
