use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

/// A ring in plain memory, with access to the other side.
pub(crate) struct FakeRing<T> {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    entries: NonNull<T>,
    size: u32,
}

// SAFETY: `entries` is owned by the ring; tests use one thread at a time.
unsafe impl<T: Send> Send for FakeRing<T> {}
// SAFETY: as above; everything else is atomic.
unsafe impl<T: Send> Sync for FakeRing<T> {}

impl<T: Copy + Default + 'static + Send> FakeRing<T> {
    pub(crate) fn new(size: u32, start: u32) -> Arc<Self> {
        let entries = vec![T::default(); size as usize].into_boxed_slice();
        let entries = NonNull::new(Box::into_raw(entries).cast::<T>()).expect("a box");
        Arc::new(Self {
            producer: AtomicU32::new(start),
            consumer: AtomicU32::new(start),
            flags: AtomicU32::new(0),
            entries,
            size,
        })
    }

    pub(crate) fn parts(self: &Arc<Self>) -> Parts<T> {
        Parts {
            producer: NonNull::from(&self.producer),
            consumer: NonNull::from(&self.consumer),
            flags: NonNull::from(&self.flags),
            entries: self.entries,
            size: self.size,
            memory: Box::new(Arc::clone(self)),
        }
    }

    /// Produces an entry on the other side if there is room by the shared words.
    pub(crate) fn kernel_push(&self, value: T) -> bool {
        let produced = self.producer.load(Ordering::Acquire);
        if produced.wrapping_sub(self.consumer.load(Ordering::Acquire)) >= self.size {
            return false;
        }
        // SAFETY: in bounds under the mask, and free.
        unsafe { self.at(produced).write_volatile(value) };
        self.producer.store(produced.wrapping_add(1), Ordering::Release);
        true
    }

    /// Consumes an entry on the other side.
    pub(crate) fn kernel_pop(&self) -> Option<T> {
        let consumed = self.consumer.load(Ordering::Acquire);
        if self.producer.load(Ordering::Acquire) == consumed {
            return None;
        }
        // SAFETY: in bounds under the mask, and published.
        let value = unsafe { self.at(consumed).read_volatile() };
        self.consumer.store(consumed.wrapping_add(1), Ordering::Release);
        Some(value)
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    pub(crate) fn set_producer(&self, value: u32) {
        self.producer.store(value, Ordering::Release);
    }

    pub(crate) fn set_consumer(&self, value: u32) {
        self.consumer.store(value, Ordering::Release);
    }

    fn at(&self, index: u32) -> NonNull<T> {
        // SAFETY: under the mask.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for FakeRing<T> {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.entries.as_ptr(), self.size as usize);
        // SAFETY: made by `Box::into_raw` of a slice of this length.
        drop(unsafe { Box::from_raw(slice) });
    }
}

pub(crate) fn producer<T: Copy + Default + Send + 'static>(ring: &Arc<FakeRing<T>>) -> Cursor<T> {
    // SAFETY: `FakeRing` keeps the promises; each test makes one producer.
    unsafe { Cursor::producer(ring.parts()) }
}

pub(crate) fn consumer<T: Copy + Default + Send + 'static>(ring: &Arc<FakeRing<T>>) -> Cursor<T> {
    // SAFETY: `FakeRing` keeps the promises; each test makes one consumer.
    unsafe { Cursor::consumer(ring.parts()) }
}

/// Start indices that wrap early, late and never.
fn any_start() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), (0u32..40).prop_map(|back| u32::MAX - back), any::<u32>()]
}

proptest! {
    /// The consumer side of a ring that the cursor produces into is a FIFO of exactly the published
    /// entries, across the wrap of the index.
    #[test]
    fn producer__behaves_like_a_queue(
        start in any_start(),
        log_size in 0u32..6,
        steps in prop::collection::vec(0u8..4, 1..400),
    ) {
        let size = 1 << log_size;
        let ring = FakeRing::<u64>::new(size, start);
        let mut cursor = producer(&ring);
        let (mut staged, mut visible) = (VecDeque::new(), VecDeque::new());
        for (value, step) in (0u64..).zip(steps) {
            match step {
                0 | 1 => {
                    let full = staged.len() + visible.len() == size as usize;
                    prop_assert_eq!(cursor.push(value), !full);
                    if !full {
                        staged.push_back(value);
                    }
                }
                2 => {
                    cursor.publish_to(cursor.written());
                    visible.append(&mut staged);
                }
                _ => prop_assert_eq!(ring.kernel_pop(), visible.pop_front()),
            }
            prop_assert_eq!(cursor.pending() as usize, staged.len() + visible.len());
            let held = staged.len() + visible.len();
            prop_assert_eq!(cursor.room(size) as usize, size as usize - held);
        }
        prop_assert_eq!(cursor.bad_indices(), 0);
    }

    /// Popped entries are those that the producer side pushed, in order, and only released slots
    /// can be pushed again.
    #[test]
    fn consumer__behaves_like_a_queue(
        start in any_start(),
        log_size in 0u32..6,
        steps in prop::collection::vec(0u8..4, 1..400),
    ) {
        let size = 1 << log_size;
        let ring = FakeRing::<u64>::new(size, start);
        let mut cursor = consumer(&ring);
        let (mut queue, mut unreleased) = (VecDeque::new(), 0);
        for (value, step) in (0u64..).zip(steps) {
            match step {
                0 | 1 => {
                    let full = queue.len() + unreleased == size as usize;
                    prop_assert_eq!(ring.kernel_push(value), !full);
                    if !full {
                        queue.push_back(value);
                    }
                }
                2 => {
                    let expected = queue.pop_front();
                    unreleased += usize::from(expected.is_some());
                    prop_assert_eq!(cursor.pop(), expected);
                }
                _ => {
                    cursor.release();
                    unreleased = 0;
                }
            }
        }
        prop_assert_eq!(cursor.bad_indices(), 0);
    }

    /// An invalid producer index yields no entry, and the ring works again once the index is valid.
    #[test]
    fn available__survives_an_invalid_producer_index(
        start in any_start(),
        popped in 0u32..8,
        offset in any::<u32>(),
    ) {
        let ring = FakeRing::<u64>::new(8, start);
        let mut cursor = consumer(&ring);
        for value in 0..u64::from(popped) {
            ring.kernel_push(value);
            prop_assert_eq!(cursor.pop(), Some(value));
        }
        let truth = start.wrapping_add(popped);
        ring.set_producer(truth.wrapping_add(offset));
        let claimed = cursor.available();
        if offset <= 8 - popped {
            prop_assert_eq!(claimed, offset);
        } else {
            prop_assert_eq!(claimed, 0);
            prop_assert_eq!(cursor.bad_indices(), 1);
            prop_assert_eq!(cursor.pop(), None);
            ring.set_producer(truth);
            cursor.release();
            ring.kernel_push(99);
            prop_assert_eq!(cursor.pop(), Some(99));
        }
    }

    /// An invalid consumer index frees no entry.
    #[test]
    fn room__survives_an_invalid_consumer_index(
        start in any_start(),
        pushed in 0u32..=8,
        published in 0u32..=8,
        offset in any::<u32>(),
    ) {
        let published = published.min(pushed);
        let ring = FakeRing::<u64>::new(8, start);
        let mut cursor = producer(&ring);
        for value in 0..u64::from(pushed) {
            prop_assert!(cursor.push(value));
        }
        cursor.publish_to(start.wrapping_add(published));
        ring.set_consumer(start.wrapping_add(offset));
        let room = cursor.room(8);
        prop_assert!(cursor.pending() <= 8);
        if offset <= published {
            prop_assert_eq!(room, 8 - pushed + offset);
        } else {
            prop_assert_eq!(room, 8 - pushed);
            // With nothing pushed the whole ring is known to be free and no shared word is read.
            prop_assert_eq!(cursor.bad_indices(), u64::from(pushed > 0));
        }
    }
}

#[test]
fn producer__indices_that_contradict_each_other_start_an_empty_ring() {
    let ring = FakeRing::<u64>::new(8, 0);
    ring.set_producer(100);
    let mut cursor = producer(&ring);
    assert_eq!(cursor.bad_indices(), 1);
    assert_eq!(cursor.room(8), 8);
}

#[test]
fn needs_wakeup__is_the_kernels_flag() {
    let ring = FakeRing::<u64>::new(8, 0);
    let cursor = producer(&ring);
    assert!(!cursor.needs_wakeup());
    ring.set_flags(libc::XDP_RING_NEED_WAKEUP);
    assert!(cursor.needs_wakeup());
}

#[test]
fn publish_to__nothing_is_visible_before() {
    let ring = FakeRing::<u64>::new(8, u32::MAX);
    let mut cursor = producer(&ring);
    assert!(cursor.push(1) && cursor.push(2));
    assert_eq!(ring.kernel_pop(), None);
    cursor.publish_to(cursor.written().wrapping_sub(1));
    assert_eq!(ring.kernel_pop(), Some(1));
    assert_eq!(ring.kernel_pop(), None);
}
