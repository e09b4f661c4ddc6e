//! docs/cc.md has a page for each algorithm, with its current parameters.
#![expect(non_snake_case, reason = "tests are named function__case")]

use spanwire_cc::{Algorithm, table};

const PAGES: &str = include_str!("../../docs/cc.md");

#[test]
fn table__equals_the_documentation() {
    for name in Algorithm::NAMES {
        assert!(PAGES.contains(&format!("\n## `{name}`")), "docs/cc.md has no page of {name}");
        let table = table(&Algorithm::named(name).unwrap());
        assert!(
            PAGES.contains(&table),
            "docs/cc.md: the parameters of {name} are not those of the code; \
             `cargo run -p spanwire-cc --example cc_params {name}` prints them:\n{table}"
        );
    }
}

#[test]
fn presets__are_documented() {
    for name in Algorithm::PRESETS {
        assert!(PAGES.contains(&format!("`{name}`")), "docs/cc.md does not name {name}");
    }
}
