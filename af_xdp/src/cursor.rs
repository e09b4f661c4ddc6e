//! One end of a ring shared with the kernel: the only module that accesses its indices.
//!
//! Producer and consumer count entries modulo 2^32 and share two words: each side owns one,
//! publishes it with `Release` and reads the other's with `Acquire`. Both words are cached, because
//! the other side keeps writing to the cache line of its word.
//!
//! Shared words are not trusted. An index that claims more entries than the ring holds is counted
//! and ignored. Entries are addressed under a mask, so no index makes an access leave the ring.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Pointers to the parts of one ring.
pub(crate) struct Parts<T> {
    pub(crate) producer: NonNull<AtomicU32>,
    pub(crate) consumer: NonNull<AtomicU32>,
    pub(crate) flags: NonNull<AtomicU32>,
    pub(crate) entries: NonNull<T>,
    /// Entries; a power of two.
    pub(crate) size: u32,
    /// Owner of the mapping, which it keeps alive.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) memory: Box<dyn Any + Send>,
}

/// One end of a ring: the producer's ([`room`](Cursor::room), [`push`](Cursor::push),
/// [`publish_to`](Cursor::publish_to)) or the consumer's ([`available`](Cursor::available),
/// [`pop`](Cursor::pop), [`release`](Cursor::release)). A cursor is used as only one of them.
pub(crate) struct Cursor<T> {
    parts: Parts<T>,
    /// As the producer: entries written, published or not. As the consumer: the producer's index
    /// as last seen.
    produced: u32,
    /// As the consumer: entries read, released or not. As the producer: the consumer's index as
    /// last seen.
    consumed: u32,
    /// This end's index as published to the other side.
    published: u32,
    bad_indices: u64,
}

// SAFETY: the pointers lead into memory that `parts.memory` keeps and that is `Send`; only one
// cursor exists for this end of the ring, so moving it moves the end as a whole.
unsafe impl<T: Send> Send for Cursor<T> {}

impl<T: Copy> Cursor<T> {
    /// The producer's end.
    ///
    /// # Safety
    /// All pointers in `parts` must be aligned and valid for reads and writes while `parts.memory`
    /// lives, `entries` for `size` entries, of which any bit pattern is a `T`. `size` is a power of
    /// two. No other cursor may be the producer of this ring.
    pub(crate) unsafe fn producer(parts: Parts<T>) -> Self {
        // SAFETY: the caller's promise.
        let mut cursor = unsafe { Self::new(parts) };
        cursor.published = cursor.produced;
        if cursor.produced.wrapping_sub(cursor.consumed) > cursor.parts.size {
            cursor.bad_indices += 1;
            cursor.consumed = cursor.produced;
        }
        cursor
    }

    /// The consumer's end.
    ///
    /// # Safety
    /// As for [`Cursor::producer`], with no other cursor being the consumer.
    pub(crate) unsafe fn consumer(parts: Parts<T>) -> Self {
        // SAFETY: the caller's promise.
        let mut cursor = unsafe { Self::new(parts) };
        cursor.published = cursor.consumed;
        cursor.produced = cursor.consumed;
        cursor
    }

    unsafe fn new(parts: Parts<T>) -> Self {
        assert!(parts.size.is_power_of_two(), "ring of {}", parts.size);
        let mut cursor = Self { parts, produced: 0, consumed: 0, published: 0, bad_indices: 0 };
        cursor.produced = cursor.producer_word().load(Ordering::Acquire);
        cursor.consumed = cursor.consumer_word().load(Ordering::Acquire);
        cursor
    }

    /// Capacity in entries.
    pub(crate) fn size(&self) -> u32 {
        self.parts.size
    }

    /// Invalid indices of the other side that were ignored.
    pub(crate) fn bad_indices(&self) -> u64 {
        self.bad_indices
    }

    /// True if the kernel requests a wakeup by a system call.
    pub(crate) fn needs_wakeup(&self) -> bool {
        // SAFETY: valid while `parts.memory` lives; an atomic may change under a shared reference.
        let flags = unsafe { self.parts.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    // The producer's half.

    /// Entries that can be pushed. Reads the consumer's word only if fewer than `want` are known to
    /// be free.
    pub(crate) fn room(&mut self, want: u32) -> u32 {
        let known = self.parts.size - self.produced.wrapping_sub(self.consumed);
        if known >= want {
            return known;
        }
        let seen = self.consumer_word().load(Ordering::Acquire);
        let advanced = seen.wrapping_sub(self.consumed);
        if advanced > self.published.wrapping_sub(self.consumed) {
            self.bad_indices += 1;
            return known;
        }
        self.consumed = seen;
        known + advanced
    }

    /// Writes the next entry without publishing it; `false` when the ring is full.
    pub(crate) fn push(&mut self, value: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: in bounds under the mask; the slot is free, so the other side does not access it
        // until it is published. Volatile, because the memory is shared.
        unsafe { self.slot(self.produced).write_volatile(value) };
        self.produced = self.produced.wrapping_add(1);
        true
    }

    /// The index one past the last entry written, for [`Cursor::publish_to`].
    pub(crate) fn written(&self) -> u32 {
        self.produced
    }

    /// Publishes every entry before index `end`.
    pub(crate) fn publish_to(&mut self, end: u32) {
        debug_assert!(
            end.wrapping_sub(self.published) <= self.produced.wrapping_sub(self.published),
            "publishing what was not written"
        );
        if end != self.published {
            self.published = end;
            self.producer_word().store(end, Ordering::Release);
        }
    }

    /// Entries written that the other side has not consumed, by its present index.
    pub(crate) fn pending(&self) -> u32 {
        let seen = self.consumer_word().load(Ordering::Acquire);
        self.produced.wrapping_sub(seen).min(self.parts.size)
    }

    // The consumer's half.

    /// Entries that can be popped. Reads the producer's word only if none is known.
    pub(crate) fn available(&mut self) -> u32 {
        let known = self.produced.wrapping_sub(self.consumed);
        if known > 0 {
            return known;
        }
        let seen = self.producer_word().load(Ordering::Acquire);
        let advanced = seen.wrapping_sub(self.produced);
        // Popped entries occupy the ring until they are released.
        let unreleased = self.produced.wrapping_sub(self.published);
        if advanced > self.parts.size - unreleased {
            self.bad_indices += 1;
            return 0;
        }
        self.produced = seen;
        advanced
    }

    /// Reads the next entry without releasing its slot.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        // SAFETY: in bounds under the mask; the entry is published, so the other side does not
        // access it until it is released, and any bits are a `T`. Volatile, because the memory is
        // shared.
        let value = unsafe { self.slot(self.consumed).read_volatile() };
        self.consumed = self.consumed.wrapping_add(1);
        Some(value)
    }

    /// Releases the slots of all popped entries.
    pub(crate) fn release(&mut self) {
        if self.consumed != self.published {
            self.published = self.consumed;
            self.consumer_word().store(self.consumed, Ordering::Release);
        }
    }

    fn slot(&self, index: u32) -> NonNull<T> {
        let at = index & (self.parts.size - 1);
        // SAFETY: `at < size` and `entries` is valid for `size` entries. u32 fits usize wherever
        // AF_XDP exists (the crate refuses to build on less than 64 bits).
        unsafe { self.parts.entries.add(at as usize) }
    }

    fn producer_word(&self) -> &AtomicU32 {
        // SAFETY: valid while `parts.memory` lives; an atomic may change under a shared reference.
        unsafe { self.parts.producer.as_ref() }
    }

    fn consumer_word(&self) -> &AtomicU32 {
        // SAFETY: as for `producer_word`.
        unsafe { self.parts.consumer.as_ref() }
    }
}

impl<T> std::fmt::Debug for Cursor<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("size", &self.parts.size)
            .field("produced", &self.produced)
            .field("consumed", &self.consumed)
            .field("published", &self.published)
            .field("bad_indices", &self.bad_indices)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
