//! Every set of losses.

use crate::block::{self, Block};
use reed_solomon_erasure::galois_8::ReedSolomon;
use spanwire_erasure::{Code, Kernel, Scheme};

/// Loses each set of up to y of the x + y packets in turn.
fn check_every_loss(x: usize, y: usize) {
    let oracle = ReedSolomon::new(x, y).unwrap();
    let schemes = [Scheme::PQ, Scheme::CAUCHY];
    let codes: Vec<Code> = schemes.iter().filter_map(|s| Code::new(*s, x, y).ok()).collect();
    assert!(!codes.is_empty());
    let blocks: Vec<Block> = codes.iter().map(|code| Block::new(*code, &[37; 16][..x])).collect();
    let mut patterns = 0;
    for lost in (0u32..1 << (x + y)).filter(|lost| lost.count_ones() as usize <= y) {
        block::check_oracle(&oracle, &blocks[0], lost.into());
        for block in &blocks {
            block.check(lost.into());
        }
        patterns += 1;
    }
    // Sum of (n choose k) over k up to y.
    let wanted = (0..=y).map(|k| (0..k).fold(1, |c, i| c * (x + y - i) / (i + 1))).sum::<usize>();
    assert_eq!(patterns, wanted);
}

#[test]
fn default() {
    check_every_loss(8, 2);
}

#[test]
fn small() {
    check_every_loss(4, 2);
}

#[test]
fn four_of_fourteen() {
    check_every_loss(10, 4);
}

#[test]
fn four_of_twenty() {
    check_every_loss(16, 4);
}

#[test]
fn one_parity_packet() {
    check_every_loss(8, 1);
}

/// No more than y losses, of packets in their places, on every kernel and with a short last packet.
#[test]
fn every_kernel() {
    for kernel in Kernel::available() {
        for (scheme, x, y) in [(Scheme::PQ, 8, 2), (Scheme::CAUCHY, 8, 2), (Scheme::CAUCHY, 6, 3)] {
            let code = Code::new(scheme, x, y).unwrap().with_kernel(kernel);
            let mut lens = vec![150; x];
            lens[x - 1] = 11;
            let block = Block::new(code, &lens);
            for lost in (0u64..1 << (x + y)).filter(|lost| lost.count_ones() as usize <= y) {
                block.check(lost);
            }
        }
    }
}

/// The largest codes at their maximum of losses, at either end and in between.
#[test]
fn largest() {
    for (scheme, x, y) in [(Scheme::PQ, 255, 2), (Scheme::CAUCHY, 224, 32)] {
        let code = Code::new(scheme, x, y).unwrap();
        let block = Block::new(code, &vec![20; x]);
        for first in [0, 1, 100, x - y] {
            let lost = (first..first + y).map(|column| u8::try_from(column).unwrap()).collect();
            block.check_losses(lost, u32::MAX);
        }
        for step in [2, 5, 7] {
            let lost = (0..y).map(|i| u8::try_from(i * step).unwrap()).collect();
            block.check_losses(lost, u32::MAX);
        }
    }
}
