//! The handshake of messages and streams on any bytes of an unauthenticated peer over the side
//! connection. The checks are beside the code of the handshake (`stream/src/fuzzing.rs`),
//! whose parts are private to the crate.

pub use spanwire_stream::fuzzing::{run, seeds};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use spanwire_base::{Rng, usize_from};

    #[test]
    fn run__on_random_bytes() {
        testing::random(20_000, 400, run);
    }

    #[test]
    fn run__on_regressions() {
        testing::regressions("stream", 0, run);
    }

    #[test]
    fn run__on_hellos_with_bytes_changed() {
        let seeds = seeds();
        for (name, seed) in &seeds {
            run(seed);
            assert!(name.starts_with("long") || seed.ends_with(b"\n"), "{name}");
        }
        let mut rng = Rng::new(15);
        for _ in 0..20_000 {
            let at = usize_from(rng.below(seeds.len() as u64));
            let mut data = seeds[at].1.clone();
            for _ in 0..=rng.below(4) {
                let at = usize_from(rng.below(data.len() as u64));
                data[at] = b"0129-{}[]\",:\\\n\0xe\xff"[usize_from(rng.below(18))];
            }
            run(&data);
        }
    }
}
