use super::*;
use proptest::prelude::*;

/// An IPv4 packet of `ip_len` bytes, `elided` of them elided, then `trailer`.
fn frame(ip_len: u16, elided: usize, trailer: &[u8]) -> Vec<u8> {
    let mut f = vec![0; 12];
    f.extend([0x08, 0x00, 0x45, 0]);
    f.extend(ip_len.to_be_bytes());
    f.resize(14 + usize::from(ip_len) - elided, 0xee);
    f.extend(trailer);
    f
}

const FULL: IntFormat = IntFormat::Full;
const HOP: IntHop =
    IntHop { time_ps: 1 << 40, tx_bytes: 1 << 50, queue_bytes: 3, link_rate_mbps: 100_000 };

#[test]
fn ip_end__follows_the_ip_header() {
    assert_eq!(ip_end(&frame(48, 0, &[]), 0), Some(62));
    assert_eq!(ip_end(&frame(48, 0, &[1, 2]), 0), Some(62));
    assert_eq!(ip_end(&frame(1_048, 1_000, &[1, 2]), 1_000), Some(62));
    assert_eq!(ip_end(&frame(48, 0, &[])[..61], 0), None);
    assert_eq!(ip_end(&frame(48, 0, &[]), 49), None);
    let mut v6 = vec![0; 12];
    v6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 5]);
    v6.resize(14 + 40 + 5, 0);
    assert_eq!(ip_end(&v6, 0), Some(59));
    v6[14] = 0x45;
    assert_eq!(ip_end(&v6, 0), None, "EtherType and version disagree");
    for len in 0..20 {
        assert_eq!(ip_end(&v6[..len], 0), None);
    }
}

#[test]
fn int_request__leaves_an_empty_stack() {
    let mut f = frame(1_048, 1_000, &[0; 8]);
    assert_eq!(int_request(&mut f, 62, 200, FULL), Some(70));
    let stack = IntStack::find(&f, 1_000).unwrap();
    assert_eq!((stack.len(), stack.max_hops(), stack.is_empty()), (0, INT_MAX_HOPS, true));
    assert_eq!(int_request(&mut f, 63, 5, FULL), None);
    assert_eq!(int_request(&mut f, 100, 5, FULL), None);
}

#[test]
fn int_push__adds_up_to_the_requested_number_and_cuts_padding() {
    let mut f = frame(48, 0, &[0; 100]);
    assert_eq!(int_push(&mut f, 70, 0, &HOP), None, "no stack was requested");
    int_request(&mut f, 62, 2, FULL).unwrap();
    let before = f.clone();
    assert_eq!(int_push(&mut f, 75, 0, &HOP), Some(94));
    let second = IntHop { queue_bytes: 9, ..HOP };
    assert_eq!(int_push(&mut f, 94, 0, &second), Some(118));
    assert_eq!(int_push(&mut f, 118, 0, &HOP), None, "full");
    let stack = IntStack::find(&f[..118], 0).unwrap();
    assert_eq!(stack.hops().collect::<Vec<_>>(), [HOP, second]);
    assert_eq!(f[..62], before[..62], "no header changes");
}

#[test]
fn int_push__writes_the_format_that_the_stack_requests() {
    let mut f = frame(48, 0, &[0; 100]);
    let len = int_request(&mut f, 62, 5, IntFormat::Compact).unwrap();
    let first = IntHop { time_ps: 33_000, tx_bytes: 1_300, queue_bytes: 1, ..HOP };
    let len = int_push(&mut f, len, 0, &first).unwrap();
    let len = int_push(&mut f, len, 0, &HOP).unwrap();
    assert_eq!(len, 62 + 8 + 2 * 8);
    let stack = IntStack::find(&f[..len], 0).unwrap();
    assert_eq!((stack.len(), stack.format(), stack.hops().count()), (2, IntFormat::Compact, 0));
    let want = IntCompactHop { time: 2, tx: 10, queue: 1, rate: 201 };
    let hops: Vec<IntCompactHop> = stack.compact_hops().collect();
    assert_eq!(hops, [want, IntCompactHop::from(&HOP)]);
    let echo = [&stack.echo_header()[..], stack.records()].concat();
    let echo = IntRecords::parse(&echo);
    assert_eq!((echo.format(), echo.len()), (IntFormat::Compact, 2));
    assert_eq!(echo.compact_hops().collect::<Vec<_>>(), hops);
}

#[test]
fn int_push__adds_nothing_to_a_stack_of_an_unknown_version_or_format() {
    for (at, value) in [(66, 0), (66, 3), (69, 2), (69, 255)] {
        let mut f = frame(48, 0, &[0; 100]);
        int_request(&mut f, 62, 5, FULL).unwrap();
        f[at] = value;
        let before = f.clone();
        assert_eq!(int_push(&mut f, 70, 0, &HOP), None);
        assert_eq!(f, before, "forwarded unchanged");
        assert!(IntStack::find(&f[..70], 0).is_none(), "ignored");
    }
}

#[test]
fn int_request_credit__leaves_an_empty_stack_with_both_words_zero() {
    let mut f = frame(1_048, 1_000, &[0xff; 16]);
    assert_eq!(int_request_credit(&mut f, 62, 200, FULL), Some(78));
    let stack = IntStack::find(&f, 1_000).unwrap();
    assert_eq!((stack.version(), stack.header_len(), stack.len()), (2, 16, 0));
    assert_eq!((stack.max_hops(), stack.credit()), (INT_MAX_HOPS, Some(IntCredit::default())));
    let before = f.clone();
    for at in [63, 78, 100, usize::MAX] {
        assert_eq!(int_request_credit(&mut f, at, 5, FULL), None);
    }
    assert_eq!(f, before);
}

/// A frame with a stack of version 2 that `hops` switches have pushed a record onto.
fn credit_frame(format: IntFormat, hops: u8) -> (Vec<u8>, usize) {
    let mut f = frame(48, 0, &[0; 500]);
    let mut len = int_request_credit(&mut f, 62, 5, format).unwrap();
    for _ in 0..hops {
        len = int_push(&mut f, len, 0, &HOP).unwrap();
    }
    (f, len)
}

#[test]
fn int_push__adds_to_a_stack_of_version_2_behind_its_words() {
    for format in IntFormat::ALL {
        let (mut f, len) = credit_frame(format, 5);
        assert_eq!(len, 62 + INT_CREDIT_HEADER_LEN + 5 * format.record_len());
        assert_eq!(int_push(&mut f, len, 0, &HOP), None, "full");
        let stack = IntStack::find(&f[..len], 0).unwrap();
        assert_eq!((stack.version(), stack.len(), stack.format()), (2, 5, format));
        assert_eq!(stack.credit(), Some(IntCredit::default()));
        assert!(stack.hops().all(|hop| hop == HOP));
        assert!(stack.compact_hops().all(|hop| hop == IntCompactHop::from(&HOP)));
        assert!(IntStack::find(&f[..len - 1], 0).is_none(), "cut");
    }
}

#[test]
fn int_restart_credit__empties_the_stack_and_sets_both_words() {
    let words = IntCredit { credit: u32::MAX, waiting_bytes: 0x0102_0304 };
    for format in IntFormat::ALL {
        for hops in 0..=5 {
            let (mut f, len) = credit_frame(format, hops);
            let before = f[..62].to_vec();
            assert_eq!(int_restart_credit(&mut f, len, 0, words), Some(78));
            let stack = IntStack::find(&f[..78], 0).unwrap();
            assert_eq!((stack.len(), stack.max_hops(), stack.format()), (0, 5, format));
            assert_eq!(stack.credit(), Some(words));
            assert_eq!(f[..62], before, "no header changes");
            let len = int_push(&mut f, 78, 0, &HOP).unwrap();
            let stack = IntStack::find(&f[..len], 0).unwrap();
            assert_eq!((stack.len(), stack.credit()), (1, Some(words)), "records follow");
        }
    }
}

#[test]
fn int_restart_credit__leaves_any_other_frame_unchanged() {
    let words = IntCredit { credit: 1, waiting_bytes: 2 };
    let mut version_1 = frame(48, 0, &[0; 100]);
    let len = int_request(&mut version_1, 62, 5, FULL).unwrap();
    let (credit, end) = credit_frame(FULL, 2);
    let (mut unknown_format, mut unknown_version) = (credit.clone(), credit.clone());
    (unknown_format[69], unknown_version[66]) = (9, 3);
    for (frame, len) in [
        (version_1, len),
        (frame(48, 0, &[0; 100]), 100),
        (frame(48, 0, &[]), 62),
        (credit.clone(), end - 1),
        (credit.clone(), 77),
        (credit, 1_000),
        (unknown_format, end),
        (unknown_version, end),
    ] {
        let mut f = frame.clone();
        assert_eq!(int_restart_credit(&mut f, len, 0, words), None);
        assert_eq!(f, frame);
    }
}

proptest! {
    /// Any trailer, with a plausible header or without: nothing panics, a stack is as long as it
    /// says, and restarting it leaves an empty one with these words.
    #[test]
    fn parse__never_panics(
        mut trailer in prop::collection::vec(any::<u8>(), 0..450),
        plausible in any::<bool>(),
        words in any::<[u32; 2]>(),
    ) {
        if let (true, Some(header)) = (plausible, trailer.first_chunk_mut::<8>()) {
            header[..4].copy_from_slice(b"INTs");
            header[4] = header[4] % 3 + 1;
            header[5] %= 17;
            header[6] %= 17;
            header[7] &= 1;
        }
        let stack = IntStack::parse(&trailer);
        let (found, version) = (stack.is_some(), stack.map(|stack| stack.version()));
        if let Some(stack) = stack {
            prop_assert_eq!(stack.records().len(), stack.len() * stack.format().record_len());
            prop_assert!(stack.len() <= usize::from(stack.max_hops()));
            prop_assert_eq!(stack.credit().is_some(), stack.version() == 2);
            prop_assert!(stack.header_len() + stack.records().len() <= trailer.len());
        }
        let mut f = frame(48, 0, &trailer);
        let (len, before) = (f.len(), f.clone());
        let words = IntCredit { credit: words[0], waiting_bytes: words[1] };
        match int_restart_credit(&mut f, len, 0, words) {
            Some(end) => {
                prop_assert_eq!((version, end), (Some(2), 78));
                let stack = IntStack::find(&f[..end], 0).unwrap();
                prop_assert_eq!((stack.len(), stack.credit()), (0, Some(words)));
            }
            None => {
                prop_assert!(!found || version == Some(1));
                prop_assert_eq!(f, before);
            }
        }
    }
}

#[test]
fn int_push__requires_buffer_space() {
    let mut f = frame(48, 0, &[0; 31]);
    int_request(&mut f, 62, 5, FULL).unwrap();
    let before = f.clone();
    assert_eq!(int_push(&mut f, 70, 0, &HOP), None);
    assert_eq!(f, before);
}

#[test]
fn find__rejects_an_inconsistent_stack() {
    let mut f = frame(48, 0, &[0; 40]);
    int_request(&mut f, 62, 5, FULL).unwrap();
    int_push(&mut f, 70, 0, &HOP).unwrap();
    assert!(IntStack::find(&f[..94], 0).is_some());
    assert!(IntStack::find(&f[..93], 0).is_none(), "cut");
    for (at, value) in [(62, b'i'), (66, 0), (66, 3), (67, 6), (68, 17), (69, 2)] {
        let mut bad = f.clone();
        bad[at] = value;
        assert!(IntStack::find(&bad, 0).is_none(), "byte {at}");
    }
}
