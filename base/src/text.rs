//! Text of others, of peers and of files, for a terminal or a log.

/// Text of others in one line of at most [`PRINTABLE_CHARS_MAX`] characters: control characters,
/// and characters that reorder or hide others, are escaped. So neither a peer nor a file can move
/// the cursor or forge a line. The function is idempotent.
#[must_use]
pub fn printable(text: impl AsRef<[u8]>) -> String {
    printable_within(text, PRINTABLE_CHARS_MAX)
}

/// As [`printable`], with at most `chars_max` characters, for text that is partly of others.
#[must_use]
pub fn printable_within(text: impl AsRef<[u8]>, chars_max: usize) -> String {
    let (mut out, mut chars) = (String::new(), 0);
    for c in String::from_utf8_lossy(text.as_ref()).chars() {
        let escaped: String =
            if is_deceptive(c) { c.escape_default().collect() } else { c.to_string() };
        chars += escaped.chars().count();
        // The last character is left for the ellipsis.
        if chars >= chars_max {
            out.push('…');
            break;
        }
        out.push_str(&escaped);
    }
    out
}

/// Text of several lines, each as in [`printable_within`], for lines that the program has made.
#[must_use]
pub fn printable_lines(text: &str, chars_max: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|l| printable_within(l, chars_max)).collect();
    lines.join("\n")
}

/// True for control characters, line separators, and invisible or bidirectional formatting
/// characters.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The longest text of others that is printed, in characters. Longer text is cut.
pub const PRINTABLE_CHARS_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable__escapes_what_moves_the_cursor_forges_a_line_or_reorders() {
        assert_eq!(printable(b"a\x1b[2Jb\r\n"), "a\\u{1b}[2Jb\\r\\n");
        assert_eq!(printable("größe 🦀"), "größe 🦀");
        assert_eq!(printable("a\u{9b}31m\u{2028}\u{202e}"), "a\\u{9b}31m\\u{2028}\\u{202e}");
        assert_eq!(printable(b"\xff"), "\u{fffd}");
        let once = printable("x\ny\u{7f}");
        assert_eq!(printable(&once), once);
    }

    #[test]
    fn printable__has_a_limit_that_escapes_count_for() {
        for text in ["x".repeat(PRINTABLE_CHARS_MAX), "\u{1b}".repeat(PRINTABLE_CHARS_MAX)] {
            let shown = printable(&text);
            assert!(shown.chars().count() <= PRINTABLE_CHARS_MAX && shown.ends_with('…'));
        }
        let whole = "ü".repeat(PRINTABLE_CHARS_MAX - 1);
        assert_eq!(printable(&whole), whole);
    }

    #[test]
    fn printable_lines__keeps_the_ends_of_lines_only() {
        assert_eq!(printable_lines("a\tb\r\n\x1bc\n", 400), "a\\tb\\r\n\\u{1b}c\n");
        assert_eq!(printable_lines("abcd\nabc", 4), "abc…\nabc");
    }
}
