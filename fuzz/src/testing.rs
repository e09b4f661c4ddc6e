//! Inputs for the tests of the checks.

use spanwire_base::{Rng, usize_from};
use std::path::PathBuf;

/// Calls `run` on `count` random inputs of up to `max_len` bytes. Small bytes are as likely as all
/// others together, because they encode a step's usual choices.
pub(crate) fn random(count: u64, max_len: u64, run: fn(&[u8])) {
    for seed in 0..count {
        let mut rng = Rng::new(seed);
        let mut data = vec![0; usize_from(rng.below(max_len + 1))];
        rng.fill(&mut data);
        for byte in &mut data {
            if rng.below(2) == 0 {
                *byte &= 3;
            }
        }
        run(&data);
    }
}

/// Calls `run` on every input that once found a defect; there must be `at_least` as many.
pub(crate) fn regressions(target: &str, at_least: usize, run: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("regressions").join(target);
    let entries = std::fs::read_dir(&folder).expect("the folder is part of the tree");
    let mut paths: Vec<_> = entries.map(|e| e.expect("the folder is readable").path()).collect();
    paths.sort();
    for path in &paths {
        println!("{}", path.display());
        run(&std::fs::read(path).expect("the input is readable"));
    }
    assert!(paths.len() >= at_least, "{} regressions of {target}", paths.len());
}
