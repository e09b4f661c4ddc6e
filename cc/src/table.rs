//! The parameters of an algorithm as a table of Markdown: docs/cc.md has them.

use crate::Algorithm;
use std::fmt::Write as _;

/// A row for each parameter: name, default, range, what it means and where the default is from.
/// Empty for an algorithm without parameters.
#[must_use]
pub fn table(algorithm: &Algorithm) -> String {
    let mut out = String::from("| parameter | default | range | |\n|---|---|---|---|\n");
    for (field, value) in algorithm.fields().iter().zip(algorithm.values()) {
        let about = field.about.split_whitespace().collect::<Vec<_>>().join(" ");
        let (name, min, max) = (field.name, number(field.min), number(field.max));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| `{name}` | {} | {min} to {max} | {about} |", number(value));
    }
    out
}

/// As short as it is exact: 1e6 rather than 1000000.
fn number(x: f64) -> String {
    let (plain, scientific) = (format!("{x}"), format!("{x:e}"));
    if scientific.len() < plain.len() { scientific } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table__has_a_row_for_each_parameter() {
        for name in Algorithm::known() {
            let algorithm = Algorithm::named(name).unwrap();
            let text = table(&algorithm);
            assert_eq!(text.lines().count(), 2 + algorithm.fields().len());
        }
        let fixed = table(&Algorithm::named("fixed").unwrap());
        assert!(
            fixed.contains("| `window_pkts` | 192 | 1 to 1e6 | The window in packets"),
            "{fixed}"
        );
    }
}
