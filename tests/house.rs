//! Prints the table of docs/HACKING.md, "Sizes":
//! `cargo run -p spanwire-tests --example house`.
#![forbid(unsafe_code)]

#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/house.rs"]
mod house;
#[path = "tidy/scan.rs"]
#[expect(dead_code, reason = "tidy uses more of it")]
mod scan;

fn main() {
    print!("{}", house::table(files::sources()));
}
