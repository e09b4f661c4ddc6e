//! Prints the tables of docs/loadbalance.md, or only those of the policies named as arguments:
//! `cargo run -p spanwire-loadbalance --example lb_params`.
#![forbid(unsafe_code)]

use spanwire_loadbalance::{Choice, table};

fn main() -> Result<(), spanwire_loadbalance::params::ParamError> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let all = Choice::NAMES.iter().map(|name| (*name).to_owned()).collect();
    for name in if names.is_empty() { all } else { names } {
        println!("{name}\n\n{}", table(&Choice::named(&name)?));
    }
    Ok(())
}
