//! The rxe matrix: SEND, WRITE and READ of sizes around packet boundaries, at every path MTU of
//! AF_XDP, in both directions, with wrapping PSNs. docs/interop.md has the printed table.

use crate::case::{self, Case};
use crate::guest::Guest;
use crate::session::{Ours, Tally, Terms};
use spanwire_transport::Mtu;

const MTUS: [Mtu; 4] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048];

/// Builds a case from a length and a seed.
type Operation = fn(u32, u64) -> Case;

/// SEND, WRITE and READ.
const OPERATIONS: [Operation; 3] = [
    |len, seed| case::message("send", len, 1, seed),
    |len, seed| case::write(len, 1, seed),
    |len, seed| case::read(len, 1, seed),
];

/// The name of a size, and its bytes at a path MTU.
type Size = (&'static str, fn(u32) -> u32);

/// In ascending order: zero, around a multiple of 4 (padding), around one packet, several packets,
/// long messages.
const SIZES: [Size; 11] = [
    ("0", |_| 0),
    ("1", |_| 1),
    ("63", |_| 63),
    ("64", |_| 64),
    ("65", |_| 65),
    ("MTU - 1", |mtu| mtu - 1),
    ("MTU", |mtu| mtu),
    ("MTU + 1", |mtu| mtu + 1),
    ("8 MTU", |mtu| 8 * mtu),
    ("64 KiB", |_| 65_536),
    ("1 MiB", |_| 1 << 20),
];

/// The first sizes take nine packets, so that the PSN wraps in the middle of the message of 8 MTU.
const FIRST_PSN: u32 = 0xff_fff0;

#[test]
fn rxe__matrix_of_sizes_path_mtus_operations_and_directions() {
    let Some(guest) = Guest::boot() else { return };
    let _here = guest.ours.enter().expect("privileged: there is a guest");
    let mut tally = Tally::default();
    // For each size and path MTU, the number of operations and directions that passed.
    let mut passed = [[0; MTUS.len()]; SIZES.len()];
    for (column, mtu) in MTUS.into_iter().enumerate() {
        for ours in [Ours::Requester, Ours::Responder] {
            for (n, make) in OPERATIONS.into_iter().enumerate() {
                let terms = Terms { mtu, psn: FIRST_PSN, ..Terms::new(ours) };
                let case = |(k, (_, bytes)): (usize, &Size)| {
                    // Each case has different bytes.
                    let seed = 1000 * (1 + n) + 100 * column + 2 * k;
                    make(bytes(mtu.bytes()), u64::try_from(seed).expect("small"))
                };
                let cases: Vec<Case> = SIZES.iter().enumerate().map(case).collect();
                for (row, is_right) in tally.run(&guest, &terms, &cases).into_iter().enumerate() {
                    passed[row][column] += usize::from(is_right);
                }
            }
        }
    }
    println!("{}", table(&passed));
    tally.finish();
}

/// The table of docs/interop.md.
fn table(passed: &[[usize; MTUS.len()]; SIZES.len()]) -> String {
    let all = 2 * OPERATIONS.len();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mtus = MTUS.iter().map(|mtu| format!("path MTU {}", mtu.bytes()));
    let mut text = line(std::iter::once("size".to_owned()).chain(mtus).collect());
    text += &line(vec!["---".to_owned(); 1 + MTUS.len()]);
    for ((name, _), row) in SIZES.iter().zip(passed) {
        let cells = row.iter().map(|count| format!("{count} of {all}"));
        text += &line(std::iter::once((*name).to_owned()).chain(cells).collect());
    }
    text
}
