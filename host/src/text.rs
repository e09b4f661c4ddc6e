//! Text for people: numbers of bytes, text of peers and files, and errors that list the known names
//! and the nearest one.

pub use spanwire_base::text::{PRINTABLE_CHARS_MAX, printable, printable_lines, printable_within};

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

/// "no WHAT `given`: did you mean `...`? There are ..."
#[must_use]
pub fn unknown<'a>(what: &str, given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<String> = known.into_iter().map(printable).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let given = &printable(given);
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
    fn unknown__names_of_files_are_printable() {
        let text = unknown("scenario", "a\x1b[2J\nb", ["c\r"]);
        assert_eq!(text, "no scenario `a\\u{1b}[2J\\nb`. There are: c\\r.");
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
