//! The parameters of a policy as a table of Markdown: docs/loadbalance.md has them.

use crate::Choice;
use std::fmt::Write as _;

/// A row for each parameter: name, default, range, what it means and where the default is from.
#[must_use]
pub fn table(choice: &Choice) -> String {
    let mut out = String::from("| parameter | default | range | |\n|---|---|---|---|\n");
    for (field, value) in choice.fields().iter().zip(choice.values()) {
        let about = field.about.split_whitespace().collect::<Vec<_>>().join(" ");
        let (name, value) = (field.name, field.text(value));
        let range = match field.words {
            [] => format!("{} to {}", field.min, field.max),
            words => words.join(", "),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| `{name}` | {value} | {range} | {about} |");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table__has_a_row_for_each_parameter() {
        for name in Choice::known() {
            let choice = Choice::named(name).unwrap();
            assert_eq!(table(&choice).lines().count(), 2 + choice.fields().len());
        }
        let unolb = table(&Choice::named("unolb").unwrap());
        assert!(unolb.contains("| `subflows` | 10 | 1 to 32 | Paths in use"), "{unolb}");
        assert!(unolb.contains("| `reroute` | fresh | fresh, copy |"), "{unolb}");
    }
}
