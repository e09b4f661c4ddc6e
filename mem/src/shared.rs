//! The only module that accesses a region's memory. Other threads may read and write the same bytes
//! at the same time, at the request of remote peers.
//!
//! # Why this is sound
//! Rust's memory model is that of C++20. Two unordered accesses to overlapping bytes, one of which
//! writes, are undefined behaviour unless both are atomic *and* of the same address and size.
//! `ptr::copy` is not atomic; volatile accesses are not either; and a byte-wise
//! atomic copy beside a 64-bit FETCH_ADD is of another size. A peer chooses the offsets, lengths
//! and times of WRITEs, READs and atomics, so none of that may be relied on here.
//!
//! - **On x86-64** every access is our machine code, by `asm!`. To the language, a region's
//!   bytes are outside of the program, like the memory of a device. `asm!` moves bytes between
//!   that memory and the caller's slice, which it has borrowed. The language defines no race on
//!   memory that no Rust code accesses. The processor defines the effects. Each byte read is one
//!   that was written to that place, and instructions never write outside their operands. `lock`
//!   operations are atomic to all others. Stores become visible in order (x86-TSO), so data
//!   published by a release store after a copy is found by its acquire load.
//! - **Elsewhere** (`words.rs`) a region's memory is an array of `AtomicU64`. Every access is
//!   an atomic access to one whole aligned word; parts of words are written by compare-exchange.
//!   All accesses have one size, so the model above allows them all. `--cfg spanwire_words` selects
//!   them on x86-64 too, and heap memory for regions: AddressSanitizer sees neither `asm!` nor the
//!   bounds of mappings.
//!
//! In both cases the compiler may not invent, tear, repeat or assume anything of a region's
//! bytes. A copy that races holds a mixture of old and new bytes, as with DMA.
//!
//! The bytes must not be accessed in any other way while such accesses are possible: that is the
//! contract of [`Region::from_raw`](crate::Region::from_raw).
//!
//! # Rejected
//! Volatile or plain copies, as in vm-memory and crossbeam's `AtomicCell`: a data race that
//! their documentation calls a deviation. Relaxed atomics byte by byte (RFC 3301,
//! `AtomicPerByte`): not vectorised, and of another size than an atomic operation on the same word.
//! The C library's `memcpy`: its contract forbids a race, and LLVM replaces calls by its own loads
//! and stores.

#[cfg(any(test, spanwire_words, not(target_arch = "x86_64")))]
mod words;
#[cfg(all(target_arch = "x86_64", any(test, not(spanwire_words))))]
mod x86_64;

#[cfg(any(spanwire_words, not(target_arch = "x86_64")))]
pub(crate) use words::{compare_swap, fetch_add, load, store};
#[cfg(all(target_arch = "x86_64", not(spanwire_words)))]
pub(crate) use x86_64::{compare_swap, fetch_add, load, store};

#[cfg(test)]
mod tests;
