//! Lines of an untrusted byte stream: bounded memory, linear time.

use std::fmt;

/// Bytes received and not yet taken as lines. It holds at most a line and what one read brings.
#[derive(Debug)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Start of the first line in `buffer` that was not taken.
    start: usize,
    /// No line ends in `buffer` before this offset, which is at least `start`.
    scanned: usize,
    line_max: usize,
}

/// A line is longer than the limit, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong(pub usize);

impl Lines {
    /// An empty buffer; a line has at most `line_max` bytes without its newline.
    #[must_use]
    pub fn new(line_max: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, scanned: 0, line_max }
    }

    /// Sets the length limit of a line, in bytes.
    pub fn set_max(&mut self, bytes: usize) {
        self.line_max = bytes;
    }

    /// Appends received bytes. Call it only after [`Lines::take`] has returned `None`, so that the
    /// memory is bounded.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line, without its newline.
    ///
    /// # Errors
    /// The line exceeds the limit, whether it is complete or not.
    pub fn take(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let end = self.buffer[self.scanned..].iter().position(|b| *b == b'\n');
        let from = self.start;
        let end = end.map(|n| self.scanned + n);
        if end.unwrap_or(self.buffer.len()) - from > self.line_max {
            return Err(TooLong(self.line_max));
        }
        self.scanned = end.map_or(self.buffer.len(), |end| end + 1);
        let Some(end) = end else { return Ok(None) };
        self.start = self.scanned;
        Ok(Some(&self.buffer[from..end]))
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a line above {} bytes", self.0)
    }
}

impl std::error::Error for TooLong {}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| lines.take().unwrap().map(<[u8]>::to_vec)).collect()
    }

    #[test]
    fn take__lines_do_not_depend_on_read_boundaries() {
        let text = b"one\n\ntwo two\nthree\nrest";
        for cut in 1..text.len() {
            let mut lines = Lines::new(8);
            let mut taken = Vec::new();
            for part in text.chunks(cut) {
                lines.push(part);
                taken.extend(all(&mut lines));
            }
            assert_eq!(taken, [&b"one"[..], b"", b"two two", b"three"], "{cut}");
        }
    }

    #[test]
    fn take__rejects_a_line_above_the_limit() {
        for (len, ends) in [(8, true), (8, false), (9, true), (9, false)] {
            let mut lines = Lines::new(8);
            lines.push(&vec![b'x'; len]);
            lines.push(if ends { b"\n" } else { b"" });
            assert_eq!(lines.take().is_err(), len > 8, "{len} {ends}");
        }
    }

    /// Each byte is scanned once, even if it is received alone.
    #[test]
    fn take__scans_each_byte_once() {
        let mut lines = Lines::new(1 << 20);
        for n in 0..1 << 20 {
            lines.push(b"x");
            assert_eq!(lines.take().unwrap(), None);
            assert_eq!(lines.scanned, n + 1);
        }
    }

    #[test]
    fn push__memory_is_bounded_by_a_line_and_a_read() {
        let mut lines = Lines::new(100);
        for _ in 0..100_000 {
            lines.push(b"0123456789\n0123456789\n0123");
            while lines.take().unwrap().is_some() {}
            lines.push(b"\n");
            while lines.take().unwrap().is_some() {}
        }
        assert!(lines.capacity() < 1000, "{}", lines.capacity());
    }
}
