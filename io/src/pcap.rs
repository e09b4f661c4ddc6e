//! Packet capture: the frames that a port receives and sends, in a pcap file.

use crate::clock::TimeSource;
use crate::clock::unix_ns;
use crate::port::{Port, SlotToken, slots_of_inner};
use spanwire_base::{RxMeta, Time, TxMeta};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Writes frames to a classic pcap file with nanosecond time stamps and link type Ethernet.
///
/// # Source
/// draft-ietf-opsawg-pcap: file header 4, packet record 5; magic 0xA1B23C4D for nanoseconds.
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    out: BufWriter<W>,
    /// Wall-clock time of [`Time::ZERO`], in nanoseconds since 1970.
    start_ns: u64,
}

/// The counters of a [`PcapPort`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PcapCounters {
    /// Frames written to the capture.
    pub recorded: u64,
    /// Frames not written, because of an earlier write error.
    pub unrecorded: u64,
}

/// A port that captures its frames: received ones when they are delivered, sent ones when they are
/// committed.
///
/// The capture never disturbs the transfer. After the first write error (a full disk) it stops,
/// because a reader cannot continue after a partial record. The error is logged once, and further
/// frames are counted.
#[derive(Debug)]
pub struct PcapPort<P, W: Write> {
    inner: P,
    capture: Capture<W>,
    /// Time of the last burst: a driver's step sends at the time at which it received.
    now: Time,
}

/// The error that ended the capture of a port, if any. It outlives the port, because the last
/// frames are written when the port is dropped.
#[derive(Clone, Debug, Default)]
pub struct CaptureError(Arc<OnceLock<io::Error>>);

#[derive(Debug)]
struct Capture<W: Write> {
    writer: PcapWriter<W>,
    error: CaptureError,
    counters: PcapCounters,
}

impl PcapWriter<File> {
    /// Creates or truncates the file. `start` is the wall-clock time of [`Time::ZERO`]:
    /// `Clock::wall_start`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, start: SystemTime) -> io::Result<Self> {
        Self::new(File::create(path)?, start)
    }
}

impl<W: Write> PcapWriter<W> {
    /// Starts a capture in `out`. `start` is the wall-clock time of [`Time::ZERO`].
    ///
    /// # Errors
    /// The header cannot be written.
    pub fn new(out: W, start: SystemTime) -> io::Result<Self> {
        let mut out = BufWriter::new(out);
        out.write_all(&MAGIC_NS.to_le_bytes())?;
        out.write_all(&VERSION_MAJOR.to_le_bytes())?;
        out.write_all(&VERSION_MINOR.to_le_bytes())?;
        // Time zone and accuracy, both unused.
        out.write_all(&[0; 8])?;
        out.write_all(&SNAPLEN.to_le_bytes())?;
        out.write_all(&LINKTYPE_ETHERNET.to_le_bytes())?;
        let start_ns = unix_ns(start);
        Ok(Self { out, start_ns })
    }

    /// Appends one frame from its destination MAC on, without FCS, truncated to 262,144 bytes.
    ///
    /// # Errors
    /// The output is full. The record may be incomplete, so no other can follow it.
    pub fn write(&mut self, at: Time, frame: &[u8]) -> io::Result<()> {
        self.write_beginning(at, frame, frame.len())
    }

    /// Appends the first bytes of a frame that is `frame_len` bytes long, without FCS: readers show
    /// it as truncated by the snap length.
    ///
    /// # Errors
    /// As [`PcapWriter::write`].
    ///
    /// # Panics
    /// If the beginning is longer than the frame.
    pub fn write_beginning(
        &mut self,
        at: Time,
        beginning: &[u8],
        frame_len: usize,
    ) -> io::Result<()> {
        assert!(beginning.len() <= frame_len, "a part is not longer than the whole");
        let ns = self.start_ns.saturating_add(at.as_ns());
        let kept = beginning.len().min(SNAPLEN as usize);
        // The format's seconds end in 2106.
        let seconds = u32::try_from(ns / NS_PER_S).unwrap_or(u32::MAX);
        let record = [
            seconds,
            u32::try_from(ns % NS_PER_S).unwrap_or(0),
            u32::try_from(kept).unwrap_or(SNAPLEN),
            u32::try_from(frame_len).unwrap_or(u32::MAX),
        ];
        for word in record {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(&beginning[..kept])
    }

    /// Flushes the buffer to the output.
    ///
    /// # Errors
    /// The output is full.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<P: Port, W: Write> PcapPort<P, W> {
    /// Captures the frames of `inner` with `writer`.
    pub fn new(inner: P, writer: PcapWriter<W>) -> Self {
        Self {
            inner,
            capture: Capture {
                writer,
                error: CaptureError::default(),
                counters: PcapCounters::default(),
            },
            now: Time::ZERO,
        }
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> PcapCounters {
        self.capture.counters
    }

    /// The error of the capture, now and after the port is dropped.
    #[must_use]
    pub fn capture_error(&self) -> CaptureError {
        self.capture.error.clone()
    }

    /// Flushes the capture to the output; dropping the port does that too.
    pub fn flush_capture(&mut self) {
        self.capture.flush();
    }

    /// The inner port.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// The inner port, mutable.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }
}

impl CaptureError {
    /// The error.
    #[must_use]
    pub fn get(&self) -> Option<&io::Error> {
        self.0.get()
    }
}

impl<W: Write> Capture<W> {
    fn record(&mut self, at: Time, frame: &[u8]) {
        if self.error.get().is_some() {
            self.counters.unrecorded += 1;
            return;
        }
        match self.writer.write(at, frame) {
            Ok(()) => self.counters.recorded += 1,
            Err(error) => {
                self.counters.unrecorded += 1;
                self.fail(error);
            }
        }
    }

    fn flush(&mut self) {
        if self.error.get().is_some() {
            return;
        }
        if let Err(error) = self.writer.flush() {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: io::Error) {
        tracing::warn!(%error, "the capture stops; the transfer continues");
        // Only the first error gets here.
        let _ = self.error.0.set(error);
    }
}

impl<W: Write> Drop for Capture<W> {
    fn drop(&mut self) {
        self.flush();
    }
}

impl<P: Port, W: Write> Port for PcapPort<P, W> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        self.now = clock.now();
        let capture = &mut self.capture;
        self.inner.rx_burst(clock, max, &mut |frame, meta| {
            capture.record(meta.at, frame);
            each(frame, meta);
        })
    }

    slots_of_inner!();

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        // The inner port rejects a frame longer than its buffer.
        if let Some(frame) = self.inner.slot_bytes(&slot).get(..meta.len) {
            self.capture.record(self.now, frame);
        }
        self.inner.slot_commit(slot, meta);
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.wait(timeout)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }
}

const MAGIC_NS: u32 = 0xa1b2_3c4d;
const VERSION_MAJOR: u16 = 2;
const VERSION_MINOR: u16 = 4;
/// The largest snap length that libpcap accepts, far above any frame.
const SNAPLEN: u32 = 262_144;
const LINKTYPE_ETHERNET: u32 = 1;
const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
