//! The UDP port without its system calls: the results of hostile receive calls, and any frames to
//! send with any errors of the kernel.

mod frame;
mod input;
mod receive;
mod send;

use input::Input;

/// Interprets bytes as receive calls, or as frames to send with the results of send calls; the
/// first byte says which.
///
/// # Panics
/// If the port violates an invariant of `fuzz/README.md`.
pub fn run(data: &[u8]) {
    let [half, rest @ ..] = data else { return };
    let mut input = Input::new(rest);
    match half % 2 {
        0 => receive::run(&mut input),
        _ => send::run(&mut input),
    }
}

/// The seed corpus.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let named = |half: u8, seeds: Vec<(&str, Vec<u8>)>| {
        let seed =
            move |(name, bytes): (&str, Vec<u8>)| (name.to_owned(), [&[half], &bytes[..]].concat());
        seeds.into_iter().map(seed).collect::<Vec<_>>()
    };
    [named(0, receive::seeds()), named(1, send::seeds())].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{random, regressions};

    #[test]
    fn run__random_bytes_violate_nothing() {
        random(3_000, 400, run);
    }

    #[test]
    fn run__seeds_and_regressions_violate_nothing() {
        for (name, seed) in seeds() {
            println!("{name}");
            run(&seed);
        }
        regressions("port", 1, run);
    }
}
