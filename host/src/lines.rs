//! Lines of an untrusted byte stream: bounded memory, linear time.

use std::fmt;

/// Bytes received and not yet taken as lines. It holds at most a line and what one read brings.
#[derive(Debug)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Where in `buffer` the lines begin that were not taken.
    start: usize,
    /// No line ends in `buffer` before this; not before `start`.
    scanned: usize,
    line_max: usize,
}

/// A line is longer than the limit, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong(pub usize);

impl Lines {
    /// None yet; a line has at most `line_max` bytes, its end not counted.
    #[must_use]
    pub fn new(line_max: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, scanned: 0, line_max }
    }

    /// Sets how long a line may be, in bytes.
    pub fn set_max(&mut self, bytes: usize) {
        self.line_max = bytes;
    }

    /// Takes in what was received. To be called when [`Lines::take`] has nothing more, so that the
    /// memory is bounded.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line without its end, if all of it is there.
    ///
    /// # Errors
    /// The line is longer than it may be, whether it has ended or not.
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

    /// Bytes of memory that it holds.
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
    fn take__gives_the_same_lines_however_they_are_cut() {
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
    fn take__a_line_is_as_long_as_it_may_be_and_no_longer() {
        for (len, ends) in [(8, true), (8, false), (9, true), (9, false)] {
            let mut lines = Lines::new(8);
            lines.push(&vec![b'x'; len]);
            lines.push(if ends { b"\n" } else { b"" });
            assert_eq!(lines.take().is_err(), len > 8, "{len} {ends}");
        }
    }

    /// Each byte is scanned once, even if it is received alone.
    #[test]
    fn take__does_not_look_at_a_byte_twice() {
        let mut lines = Lines::new(1 << 20);
        for n in 0..1 << 20 {
            lines.push(b"x");
            assert_eq!(lines.take().unwrap(), None);
            assert_eq!(lines.scanned, n + 1);
        }
    }

    #[test]
    fn push__memory_is_a_line_and_what_came_with_it() {
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
