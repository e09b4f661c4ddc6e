//! Text for people: numbers of bytes, text of peers, and errors that list the known names and the
//! nearest one.

/// A number of bytes with a binary unit, exact or to one decimal.
#[must_use]
pub fn bytes(n: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| n >= *unit) {
        None => format!("{n} B"),
        Some((unit, name)) if n.is_multiple_of(unit) => format!("{} {name}", n / unit),
        Some((unit, name)) => format!("{}.{} {name}", n / unit, n % unit * 10 / unit),
    }
}

/// Text of a peer for a terminal or a log, in one line of at most [`PRINTABLE_CHARS_MAX`]
/// characters: control characters, and characters that reorder or hide others, are escaped. So a
/// peer can neither move the cursor nor forge a line. The function is idempotent.
#[must_use]
pub fn printable(text: impl AsRef<[u8]>) -> String {
    let (mut out, mut chars) = (String::new(), 0);
    for c in String::from_utf8_lossy(text.as_ref()).chars() {
        let escaped: String =
            if is_deceptive(c) { c.escape_default().collect() } else { c.to_string() };
        chars += escaped.chars().count();
        // The last character is left for the ellipsis.
        if chars >= PRINTABLE_CHARS_MAX {
            out.push('…');
            break;
        }
        out.push_str(&escaped);
    }
    out
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

/// "no WHAT `given`: did you mean `...`? There are ..."
#[must_use]
pub fn unknown<'a>(what: &str, given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let meant = nearest(given, &known).map(|name| format!(": did you mean `{name}`?"));
    let there = match known[..] {
        [] => "There are none.".to_owned(),
        _ if known.len() > NAMES_MAX => {
            let (first, more) = (known[..NAMES_MAX].join(", "), known.len() - NAMES_MAX);
            format!("There are: {first} and {more} more.")
        }
        _ => format!("There are: {}.", known.join(", ")),
    };
    format!("no {what} `{given}`{} {there}", meant.unwrap_or_else(|| ".".to_owned()))
}

/// The first name with this prefix, else the one with the smallest edit distance if that is small
/// for its length.
fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let given = given.to_lowercase();
    let begins = |name: &&&str| !given.is_empty() && name.to_lowercase().starts_with(&given);
    let distance = |name: &str| edits(&given, &name.to_lowercase());
    let close = |name: &&&str| distance(name) <= name.chars().count().div_ceil(3);
    let near = || known.iter().min_by_key(|name| distance(name)).filter(close);
    known.iter().find(begins).or_else(near).copied()
}

/// Levenshtein distance of `a` and `b`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// The longest text of a peer that is printed, in characters. Longer text is cut.
pub const PRINTABLE_CHARS_MAX: usize = 400;

/// Names that an error lists. A large network has thousands of links.
const NAMES_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes__is_exact_if_possible() {
        assert_eq!(bytes(1), "1 B");
        assert_eq!(bytes(64 << 10), "64 KiB");
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes((1 << 30) + (1 << 29)), "1.5 GiB");
    }

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
    fn unknown__lists_known_names_and_the_nearest() {
        let known = ["pair", "incast-32", "loss-1"];
        assert_eq!(
            unknown("scenario", "incast32", known),
            "no scenario `incast32`: did you mean `incast-32`? There are: pair, incast-32, loss-1."
        );
        assert_eq!(
            unknown("scenario", "tcp", known),
            "no scenario `tcp`. There are: pair, incast-32, loss-1."
        );
        assert_eq!(unknown("parameter", "x", []), "no parameter `x`. There are none.");
    }

    #[test]
    fn unknown__does_not_list_thousands() {
        let names: Vec<String> = (0..1_000).map(|i| format!("h{i}-s{i}")).collect();
        let error = unknown("link", "h7-s8", names.iter().map(String::as_str));
        assert!(
            error.ends_with("h39-s39 and 960 more.") && error.contains("did you mean"),
            "{error}"
        );
    }

    #[test]
    fn nearest__prefers_prefixes_and_ignores_case() {
        assert_eq!(nearest("black", &["pair", "blackhole"]), Some("blackhole"));
        assert_eq!(nearest("PAIR", &["pair", "blackhole"]), Some("pair"));
        assert_eq!(nearest("", &["pair"]), None);
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn edits__is_the_levenshtein_distance() {
        for (a, b, n) in [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("abc", "abc", 0)]
        {
            assert_eq!(edits(a, b), n, "{a} {b}");
            assert_eq!(edits(b, a), n, "{b} {a}");
        }
    }
}
