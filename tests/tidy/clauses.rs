//! References to rules of other specifications: one form in code, and none that is only in a
//! document.
//!
//! The form is a name and a number: `IBTA C9-92`, `RFC 8985 6.2`, `Uno 4.1.2`.

use crate::Finding;
use crate::scan::{Source, is_word};

/// The document with the table of rules.
pub(crate) const DOCUMENT: &str = "docs/conformance.md";
const TABLE_HEAD: &str = "| rule | in our words | crate |";

/// Each rule in the table of `document` is cited by code of its crate that ships.
pub(crate) fn check_cited(document: &str, sources: &[Source]) -> Vec<Finding> {
    let rows: Vec<(usize, &str, &str)> = (1..)
        .zip(document.lines())
        .skip_while(|(_, line)| *line != TABLE_HEAD)
        .skip(2)
        .take_while(|(_, line)| line.starts_with('|'))
        .filter_map(|(number, line)| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            Some((number, *cells.get(1)?, *cells.get(3)?))
        })
        .collect();
    let mut findings = Vec::new();
    if rows.is_empty() {
        let what = format!("there is no table `{TABLE_HEAD}`");
        findings.push(Finding::new(DOCUMENT, 1, what));
    }
    for (number, rule, krate) in rows {
        let mut shipped = sources.iter().filter(|s| s.krate() == krate && !s.is_test_file());
        if !shipped.any(|source| cites(&source.comments, rule)) {
            let what =
                format!("{krate} cites `{rule}` no more: cite it where it is, or drop the row");
            findings.push(Finding::new(DOCUMENT, number, what));
        }
    }
    findings
}

/// True if `rule` occurs in `comments`, and not as the beginning of a longer number.
fn cites(comments: &str, rule: &str) -> bool {
    comments.match_indices(rule).any(|(at, _)| {
        let before = comments[..at].bytes().next_back();
        let mut after = comments[at + rule.len()..].bytes();
        let (first, second) = (after.next(), after.next());
        let longer = first.is_some_and(|b| is_word(b) || b == b'-')
            || first == Some(b'.') && second.is_some_and(|b| b.is_ascii_digit());
        before.is_none_or(|b| !is_word(b)) && !longer
    })
}

/// Separators between a name and its number in other forms.
const OTHER_FORMS: &[&str] = &[", section ", " section ", ", sections ", " (section ", " \u{a7}"];

/// References in another form.
pub(crate) fn check_form(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (number, line) in (1..).zip(source.comments.lines()) {
            let bad =
                OTHER_FORMS.iter().flat_map(|form| line.match_indices(form)).any(|(at, form)| {
                    let after = line[at + form.len()..].bytes().next();
                    let named =
                        line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == ')');
                    named
                        && after
                            .is_some_and(|b| b.is_ascii_digit() || matches!(b, b'I' | b'V' | b'X'))
                });
            if bad {
                let what = "cite a rule as `IBTA C9-92`, `RFC 8985 6.2` or `Uno 4.1.2`";
                findings.push(Finding::new(&source.path, number, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    #[test]
    fn check_cited__a_rule_that_code_cites_no_more_fires() {
        let sources = [
            Source::new("cc/src/a.rs", "/// RFC 8257 4.2.\n// Uno 4.1.2, IBTA C9-140\n"),
            Source::new("wire/src/a.rs", "//! RFC 1071.\nlet s = \"RFC 791\";\n"),
            Source::new("wire/tests/a.rs", "//! RFC 863\n"),
        ];
        let of = |rules: &[(&str, &str)]| {
            let rows: String = rules
                .iter()
                .map(|(rule, krate)| format!("| {rule} | words | {krate} |\n"))
                .collect();
            messages(&check_cited(&format!("{TABLE_HEAD}\n|---|---|---|\n{rows}"), &sources))
        };
        let fine = [
            ("RFC 8257 4.2", "cc"),
            ("RFC 8257", "cc"),
            ("Uno 4.1.2", "cc"),
            ("IBTA C9-140", "cc"),
            ("RFC 1071", "wire"),
        ];
        assert_eq!(of(&fine), [] as [&str; 0]);
        let gone = [
            ("RFC 8257 4", "cc"),
            ("Uno 4.1", "cc"),
            ("IBTA C9-14", "cc"),
            ("RFC 1071", "cc"),
            ("RFC 791", "wire"),
            ("RFC 863", "wire"),
        ];
        let found = of(&gone);
        assert_eq!(found.len(), gone.len(), "{found:?}");
        assert!(found[0].starts_with("docs/conformance.md:3: cc cites `RFC 8257 4` no more"));
        assert_eq!(check_cited("no table", &sources).len(), 1);
    }

    #[test]
    fn check_form__other_forms_fire() {
        let of = |text: &str| check_form(&[Source::new("cc/src/a.rs", text)]).len();
        for bad in [
            "// RFC 8985 section 6.1",
            "/// Uno (SC'25), section 5.2.3.",
            "//! RFC 4180 \u{a7}2",
            "// DCQCN, sections 5.1 and 5.2",
            "// Reflex, section IV",
            "// of Uno (section 5)",
        ] {
            assert_eq!(of(bad), 1, "{bad}");
        }
        assert_eq!(of("// RFC 8985 6.1, the next section of a file, section `x`\n"), 0);
        assert_eq!(of("let s = \"RFC 8985 section 6.1\";\n"), 0);
    }
}
