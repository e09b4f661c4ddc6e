//! Random codes, lengths and losses.

use crate::block::{self, Block};
use proptest::prelude::*;
use reed_solomon_erasure::galois_8::ReedSolomon;
use spanwire_erasure::{Code, Columns, Scheme};

fn codes() -> impl Strategy<Value = Code> {
    let pq = (1usize..=40, 1usize..=2).prop_map(|(x, y)| (Scheme::PQ, x, y));
    let cauchy = (1usize..=40, 1usize..=12).prop_map(|(x, y)| (Scheme::CAUCHY, x, y));
    prop_oneof![pq, cauchy].prop_map(|(scheme, x, y)| Code::new(scheme, x, y).unwrap())
}

/// A code, packet lengths of a block, which may be short, and up to y losses.
fn blocks() -> impl Strategy<Value = (Code, Vec<usize>, u64)> {
    codes().prop_flat_map(|code| {
        let lens = prop_oneof![
            // As in messages: all equal except for the last one.
            (1..=code.x(), 1usize..700, 0usize..700).prop_map(|(packets, len, last)| {
                let mut lens = vec![len; packets];
                lens[packets - 1] = last.min(len);
                lens
            }),
            proptest::collection::vec(0usize..300, 1..=code.x()),
        ];
        let lens = lens.prop_map(move |lens| (code, lens));
        lens.prop_flat_map(|(code, lens)| {
            let packets: Vec<usize> = (0..lens.len() + code.y()).collect();
            let lost = proptest::sample::subsequence(packets, 0..=code.y());
            let lost = lost.prop_map(|lost| lost.iter().fold(0, |bits, i| bits | 1u64 << i));
            (Just(code), Just(lens), lost)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_losses((code, lens, lost) in blocks()) {
        let block = Block::new(code, &lens);
        block.check(lost);
        if block.longest() > 0 {
            block::check_oracle(&ReedSolomon::new(code.x(), code.y()).unwrap(), &block, lost);
        }
    }

    #[test]
    fn any_losses_of_large_codes(
        (x, y) in (1usize..=224, 1usize..=32),
        lost in proptest::collection::btree_set(0u8..=255, 0..=32),
        parity in any::<u32>(),
    ) {
        let block = Block::new(Code::new(Scheme::CAUCHY, x, y).unwrap(), &vec![9; x]);
        let available = (parity & (u32::MAX >> (32 - y))).count_ones() as usize;
        let lost = lost.into_iter().filter(|i| usize::from(*i) < x).take(available);
        block.check_losses(lost.collect::<Columns>(), parity);
    }
}
