//! Splits bytes into bounded lines.

/// Received bytes that were not taken as lines yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// The first so many bytes hold no line end, so that each byte is searched once, even if it
    /// arrives alone.
    searched: usize,
}

/// A line is longer than [`LINE_BYTES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLong;

impl Lines {
    /// Appends at most [`PIECE_BYTES`], and only when [`Lines::take`] finds no line: that bounds
    /// the memory.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The oldest line, with its end.
    ///
    /// # Errors
    /// The line is too long, complete or not: memory is bounded.
    pub(crate) fn take(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.buffer[self.searched..].iter().position(|b| *b == b'\n');
        let end = end.map(|at| self.searched + at);
        self.searched = self.buffer.len();
        if end.unwrap_or(self.searched) > LINE_BYTES_MAX {
            return Err(TooLong);
        }
        let Some(end) = end else { return Ok(None) };
        self.searched = 0;
        Ok(Some(self.buffer.drain(..=end).collect()))
    }

    /// Bytes that it holds of the process's memory.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }
}

/// The longest line, without its end. A hello with every mode there may be is a tenth of that.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 10;

/// The longest piece that is added at a time.
pub(crate) const PIECE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__gives_the_same_lines_however_they_are_cut() {
        let text = b"a\n\nbc\ndef\nleft";
        for cut in 1..=text.len() {
            let (mut lines, mut got) = (Lines::default(), Vec::new());
            for piece in text.chunks(cut) {
                lines.push(piece);
                while let Some(line) = lines.take().unwrap() {
                    got.push(line);
                }
            }
            assert_eq!(got, [&b"a\n"[..], b"\n", b"bc\n", b"def\n"], "{cut}");
            assert_eq!(lines.buffer, b"left");
        }
    }

    #[test]
    fn take__a_line_has_a_limit_whether_it_ends_or_not() {
        for (len, taken) in [(LINE_BYTES_MAX, true), (LINE_BYTES_MAX + 1, false)] {
            for end in [&b"\n"[..], b""] {
                let text = [&vec![b'x'; len][..], end].concat();
                let (mut lines, mut got) = (Lines::default(), Ok(None));
                for piece in text.chunks(PIECE_BYTES) {
                    lines.push(piece);
                    got = lines.take();
                }
                let line = (!end.is_empty()).then_some(text.clone());
                assert_eq!(got, if taken { Ok(line) } else { Err(TooLong) }, "{len} {end:?}");
                assert!(lines.held_bytes() <= 2 * (LINE_BYTES_MAX + PIECE_BYTES));
            }
        }
    }

    #[test]
    fn take__looks_at_each_byte_once() {
        let mut lines = Lines::default();
        for i in 1..=LINE_BYTES_MAX {
            lines.push(b"x");
            assert_eq!(lines.take(), Ok(None));
            assert_eq!(lines.searched, i, "what was searched is not searched again");
        }
    }
}
