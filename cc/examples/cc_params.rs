//! Prints the tables of docs/cc.md: `cargo run -p spanwire-cc --example cc_params [NAME]`.
#![forbid(unsafe_code)]

use spanwire_cc::{Algorithm, table};

fn main() -> Result<(), spanwire_cc::params::ParamError> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let all = Algorithm::NAMES.iter().map(|name| (*name).to_owned()).collect();
    for name in if names.is_empty() { all } else { names } {
        println!("{name}\n\n{}", table(&Algorithm::named(&name)?));
    }
    Ok(())
}
