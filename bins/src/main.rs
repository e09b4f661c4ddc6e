//! The spanwire command.
fn main() {}
