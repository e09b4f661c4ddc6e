use super::*;
use crate::cursor::tests::{FakeRing, consumer, producer};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

struct Bench {
    umem: Umem,
    frames: Vec<Frame>,
    fill_side: Arc<FakeRing<u64>>,
    rx_side: Arc<FakeRing<Desc>>,
    tx_side: Arc<FakeRing<Desc>>,
    completion_side: Arc<FakeRing<u64>>,
    fill: FillRing,
    rx: RxRing,
    tx: TxRing,
    completion: CompletionRing,
}

fn bench(size: u32, start: u32) -> Bench {
    let (umem, frames) = Umem::with_frames(size * 2, 2048).expect("a small UMEM");
    let (fill_side, rx_side) = (FakeRing::new(size, start), FakeRing::new(size, start));
    let (tx_side, completion_side) = (FakeRing::new(size, start), FakeRing::new(size, start));
    Bench {
        fill: FillRing::new(producer(&fill_side), umem.clone()),
        rx: RxRing::new(consumer(&rx_side), umem.clone()),
        tx: TxRing::new(producer(&tx_side), umem.clone()),
        completion: CompletionRing::new(consumer(&completion_side), umem.clone()),
        umem,
        frames,
        fill_side,
        rx_side,
        tx_side,
        completion_side,
    }
}

fn desc(address: u64, len: u32) -> Desc {
    Desc { address, len, options: 0 }
}

proptest! {
    /// For any order of program and kernel moves, every chunk is in exactly one place and each ring
    /// is a FIFO.
    #[test]
    fn rings__every_token_is_always_in_one_place(
        start in prop_oneof![Just(0u32), Just(u32::MAX - 5)],
        steps in prop::collection::vec(0u8..8, 1..600),
    ) {
        let mut b = bench(8, start);
        let mut filled = VecDeque::new();
        let (mut received, mut transmitted) = (VecDeque::new(), VecDeque::new());
        for step in steps {
            match step {
                0 => if let Some(frame) = b.frames.pop()
                    && let Err(frame) = b.fill.push(frame) { b.frames.push(frame); },
                1 => if let Some(frame) = b.frames.pop()
                    && let Err(piece) = b.tx.push(ToSend::whole(frame, 60)) {
                        b.frames.push(piece.frame);
                    },
                2 => { b.fill.publish(); b.tx.publish(); }
                3 => {
                    // A chunk taken from the fill ring is held while the RX ring is full.
                    if let Some(address) = b.fill_side.kernel_pop() {
                        filled.push_back(address);
                    }
                    if let Some(&address) = filled.front()
                        && b.rx_side.kernel_push(desc(address + 256, 100)) {
                        received.extend(filled.pop_front());
                    }
                }
                4 => if let Some(sent) = b.tx_side.kernel_pop() {
                    transmitted.push_back(sent.address);
                },
                5 => if let Some(&address) = transmitted.front()
                    && b.completion_side.kernel_push(address) { transmitted.pop_front(); },
                6 => if let Some(piece) = b.rx.pop() {
                    let expected = received.pop_front().expect("the kernel pushed it");
                    prop_assert_eq!(sys_address(&piece.frame), expected);
                    prop_assert_eq!(piece.bytes(&b.umem).len(), 100);
                    b.frames.push(piece.into_frame());
                    b.rx.release();
                },
                _ => while let Some(frame) = b.completion.pop() {
                    b.frames.push(frame);
                    b.completion.release();
                },
            }
            prop_assert_eq!(b.frames.len() + b.umem.with_kernel(), b.umem.chunks());
        }
        prop_assert_eq!((b.rx.bad_descs(), b.completion.bad_addresses()), (0, 0));
    }

    /// No descriptor yields bytes outside a chunk that the kernel was given.
    #[test]
    fn rx__an_invalid_descriptor_is_skipped(address in any::<u64>(), len in any::<u32>()) {
        let mut b = bench(8, 0);
        let given = b.frames.remove(3);
        b.fill.push(given).expect("room");
        b.rx_side.kernel_push(desc(address, len));
        match b.rx.pop() {
            Some(piece) => {
                prop_assert_eq!(address / 2048, 3);
                prop_assert!(address % 2048 + u64::from(len) <= 2048);
                prop_assert_eq!(piece.bytes(&b.umem).len(), len as usize);
            }
            None => prop_assert_eq!(b.rx.bad_descs(), 1),
        }
    }
}

fn sys_address(frame: &Frame) -> u64 {
    crate::sys::u64_from(frame.index()) * 2048
}

#[test]
fn rx__bytes_beyond_the_chunk_and_repeats_are_counted() {
    let mut b = bench(8, 0);
    let (first, second) = (b.frames.remove(0), b.frames.remove(0));
    b.fill.push(first).expect("room");
    b.fill.push(second).expect("room");
    b.rx_side.kernel_push(desc(256, 1793));
    b.rx_side.kernel_push(desc(2048, 2048));
    b.rx_side.kernel_push(desc(2048, 2048));
    b.rx_side.kernel_push(desc(2048, u32::MAX));
    let whole = b.rx.pop().expect("the second is valid");
    assert_eq!(whole.bytes(&b.umem).len(), 2048);
    assert!(b.rx.pop().is_none());
    assert_eq!(b.rx.bad_descs(), 3);
}

#[test]
fn rx__a_descriptor_has_offset_length_and_more() {
    let mut b = bench(8, 0);
    let frame = b.frames.remove(1);
    b.fill.push(frame).expect("room");
    b.rx_side.kernel_push(Desc { options: libc::XDP_PKT_CONTD, ..desc(2048 + 256, 64) });
    let mut piece = b.rx.pop().expect("sound");
    assert!(piece.has_more());
    let (frame, range) = piece.frame_mut();
    assert_eq!(range, 256..320);
    b.umem.bytes_mut(frame)[256] = 7;
    assert_eq!(piece.bytes(&b.umem)[0], 7);
    let send = piece.into_send();
    assert_eq!((send.offset, send.len, send.more), (256, 64, true));
}

#[test]
fn fill__a_full_ring_returns_the_frame() {
    let mut b = bench(4, u32::MAX - 1);
    for _ in 0..4 {
        let frame = b.frames.pop().expect("eight");
        b.fill.push(frame).expect("room for four");
    }
    assert_eq!(b.fill.room(1), 0);
    let frame = b.frames.pop().expect("eight");
    let back = b.fill.push(frame).expect_err("full");
    assert_eq!(b.umem.with_kernel(), 4);
    assert_eq!(b.umem.bytes(&back).len(), 2048);
    b.fill.publish();
    assert_eq!(b.fill.pending(), 4);
}

#[test]
fn fill__needs_wakeup_follows_the_drivers_flag() {
    let b = bench(4, 0);
    assert!(!b.fill.needs_wakeup() && !b.tx.needs_wakeup());
    b.fill_side.set_flags(libc::XDP_RING_NEED_WAKEUP);
    assert!(b.fill.needs_wakeup() && !b.tx.needs_wakeup());
}

#[test]
fn tx__a_packet_is_published_only_with_its_last_descriptor() {
    let mut b = bench(4, 0);
    let first = b.frames.pop().expect("eight");
    let second = b.frames.pop().expect("eight");
    let head = ToSend { offset: 16, more: true, ..ToSend::whole(first, 42) };
    b.tx.push(head).expect("room");
    b.tx.publish();
    assert!(b.tx_side.kernel_pop().is_none());
    b.tx.push(ToSend::whole(second, 2048)).expect("room");
    b.tx.publish();
    let head = b.tx_side.kernel_pop().expect("published");
    assert_eq!((head.address % 2048, head.len, head.options), (16, 42, libc::XDP_PKT_CONTD));
    assert_eq!(b.tx_side.kernel_pop().expect("published").options, 0);
    assert_eq!(b.tx.pending(), 0);
}

#[test]
#[should_panic(expected = "leave the chunk")]
fn tx__bytes_beyond_the_chunk_panic() {
    let mut b = bench(4, 0);
    let frame = b.frames.pop().expect("eight");
    let _ = b.tx.push(ToSend::whole(frame, 2049));
}

#[test]
fn completion__accepts_any_address_inside_the_chunk_once() {
    let mut b = bench(4, 0);
    let frame = b.frames.remove(5);
    b.tx.push(ToSend { offset: 100, ..ToSend::whole(frame, 60) }).expect("room");
    for address in [5 * 2048 + 100, 5 * 2048 + 100, u64::MAX] {
        b.completion_side.kernel_push(address);
    }
    assert_eq!(b.completion.pop().map(|frame| frame.index()), Some(5));
    assert!(b.completion.pop().is_none());
    assert_eq!(b.completion.bad_addresses(), 2);
}
