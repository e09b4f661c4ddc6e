use super::*;

/// Data bytes 1..=8, one in each packet.
const BYTES: [[u8; 1]; 8] = [[1], [2], [3], [4], [5], [6], [7], [8]];

fn code(scheme: Scheme, x: usize, y: usize) -> Code {
    Code::new(scheme, x, y).unwrap()
}

fn without(lost: &[u8]) -> Columns {
    Columns::below(256).without(&lost.iter().copied().collect())
}

#[test]
fn recovery__two_losses_with_known_bytes() {
    let code = Code::default();
    let recovery = code.recovery(8, without(&[2, 5]), 0b11).unwrap();
    assert_eq!(recovery.lost(), [2, 5]);
    assert_eq!(recovery.solution, Solution::PQ { a: 0x9c, log_b: log_of([0x60], []) });
    // The available packets give 13 and 220; P and Q of all are 8 and 16.
    let mut sums = [[0]; 2];
    for column in without(&[2, 5]).iter().take(6) {
        code.add(column, &BYTES[usize::from(column)], &mut sums);
    }
    assert_eq!(sums, [[13], [220]]);
    let mut out = [[0]; 2];
    recovery.write(&BYTES.each_ref().map(|b| &b[..]), &[&[8], &[16]], &mut out);
    assert_eq!(out, [[3], [6]]);
}

#[test]
fn recovery__nothing_is_lost() {
    for code in [Code::default(), code(Scheme::CAUCHY, 8, 3)] {
        let recovery = code.recovery(8, Columns::below(8), 0).unwrap();
        assert_eq!(recovery.lost(), [0; 0]);
        let sources = [Source::Data(0), Source::Data(7), Source::Parity(0), Source::Parity(1)];
        assert!(sources.into_iter().all(|source| !recovery.uses(source)));
        recovery.add(Source::Data(0), &[1], &mut [[0u8; 1]; 0]);
        recovery.write(&[&[1][..]; 8], &[&[1]], &mut [[0u8; 1]; 0]);
    }
}

#[test]
fn recovery__too_few_are_available() {
    for (code, lost, parity, available) in [
        (Code::default(), &[1, 2, 3][..], 0b11, 2),
        (Code::default(), &[1, 2], 0b10, 1),
        // Bits of parity packets that the code does not have are ignored.
        (Code::default(), &[1], 0b1100, 0),
        (code(Scheme::PQ, 8, 1), &[1, 2], 0b11, 1),
        (code(Scheme::CAUCHY, 8, 4), &[0, 1, 2, 3, 4], u32::MAX, 4),
    ] {
        let few = code.recovery(8, without(lost), parity).unwrap_err();
        assert_eq!(few, TooFew { lost: lost.len(), parity: available }, "{code}");
    }
    let message = TooFew { lost: 3, parity: 2 }.to_string();
    assert_eq!(message, "3 data packets are lost, 2 parity packets are available");
}

#[test]
fn recovery__absent_packets_of_a_short_block_are_not_lost() {
    let code = Code::default();
    let recovery = code.recovery(3, Columns::from_bits(0b101), 0b10).unwrap();
    assert_eq!(recovery.lost(), [1]);
    assert_eq!(code.recovery(0, Columns::NONE, 0).unwrap().lost(), [0; 0]);
}

#[test]
fn uses__no_more_parity_than_is_needed() {
    let used = |code: Code, lost: &[u8], parity| {
        let recovery = code.recovery(8, without(lost), parity).unwrap();
        let rows = (0..code.y()).map(|row| u8::try_from(row).unwrap());
        rows.filter(|row| recovery.uses(Source::Parity(*row))).collect::<Vec<_>>()
    };
    let cauchy = code(Scheme::CAUCHY, 8, 32);
    assert_eq!(used(Code::default(), &[4], 0b11), [0]);
    assert_eq!(used(Code::default(), &[4], 0b10), [1]);
    assert_eq!(used(Code::default(), &[4, 5], 0b11), [0, 1]);
    assert_eq!(used(cauchy, &[4], 0b1_0110), [1]);
    assert_eq!(used(cauchy, &[0, 4], 1 << 31 | 0b1_0000), [4, 31]);
    assert_eq!(used(cauchy, &[0, 1, 2, 3, 4, 5, 6, 7], !0b10).len(), 8);
    let recovery = cauchy.recovery(8, without(&[4]), 1).unwrap();
    assert!(recovery.uses(Source::Data(3)) && !recovery.uses(Source::Data(4)));
    assert!(!recovery.uses(Source::Parity(32)) && !recovery.uses(Source::Parity(255)));
}

#[test]
fn add__unused_packets_change_nothing() {
    let recovery = Code::default().recovery(8, without(&[4]), 0b11).unwrap();
    let mut out = [[7; 3]];
    recovery.add(Source::Data(4), &[1; 3], &mut out);
    recovery.add(Source::Parity(1), &[1; 3], &mut out);
    assert_eq!(out, [[7; 3]]);
    recovery.add(Source::Parity(0), &[1; 3], &mut out);
    assert_eq!(out, [[6; 3]]);
}

#[test]
#[should_panic(expected = "one output packet for each lost packet")]
fn add__another_number_of_packets_is_rejected() {
    let recovery = Code::default().recovery(8, without(&[4]), 0b11).unwrap();
    recovery.add(Source::Data(0), &[1], &mut [[0; 1]; 2]);
}

#[test]
fn bits__lowest_first() {
    assert_eq!(bits(1 << 31 | 0b1001).collect::<Vec<_>>(), [0, 3, 31]);
    assert_eq!(bits(0).count(), 0);
}
