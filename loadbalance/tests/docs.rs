//! docs/loadbalance.md has a page for each policy, with its current parameters.
#![expect(non_snake_case, reason = "tests are named function__case")]

use spanwire_loadbalance::{Choice, table};

const PAGES: &str = include_str!("../../docs/loadbalance.md");

#[test]
fn table__equals_the_documentation() {
    for name in Choice::NAMES {
        assert!(PAGES.contains(&format!("\n## `{name}`")), "docs/loadbalance.md lacks {name}");
        let choice = Choice::named(name).unwrap();
        assert!(
            choice.fields().is_empty() || PAGES.contains(&table(&choice)),
            "docs/loadbalance.md: the parameters of {name} are not those of the code; \
             `cargo run -p spanwire-loadbalance --example lb_params {name}` prints them:\n{}",
            table(&choice)
        );
    }
}

#[test]
fn presets__are_documented_with_their_parameters() {
    for name in Choice::PRESETS {
        let settings = Choice::named(name).unwrap().to_string();
        let row = format!("| `{name}` | `{settings}` |");
        assert!(PAGES.contains(&row), "docs/loadbalance.md lacks {row}");
    }
}
