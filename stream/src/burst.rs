//! Bursts: what has arrived on several connections is answered in one step, if one thread serves
//! them in turn. Only a hint: it decides when messages are transmitted, not whether.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How many connections of a network have data that their applications have not read.
#[derive(Debug, Default)]
pub(crate) struct Unread(AtomicU32);

/// A connection has data that its application has not read.
#[derive(Debug, Default)]
pub(crate) struct IsUnread(AtomicBool);

thread_local! {
    /// The connection that this thread has read last, and how many reads ago it was another one.
    static LAST_READ: Cell<(usize, u32)> = const { Cell::new((0, IN_TURN)) };
}

impl Unread {
    /// Data have arrived on `connection`.
    pub(crate) fn add(&self, connection: &IsUnread) {
        if !connection.0.load(Ordering::Relaxed) && !connection.0.swap(true, Ordering::Relaxed) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The application has read everything on `connection`, or reads no more.
    pub(crate) fn remove(&self, connection: &IsUnread) {
        if connection.0.swap(false, Ordering::Relaxed) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// True if the calling thread serves several connections, and one of them may be unread: it
    /// will be back in a moment.
    pub(crate) fn has_more_for_this_thread(&self) -> bool {
        LAST_READ.get().1 < IN_TURN && self.0.load(Ordering::Relaxed) > 0
    }
}

/// Notes that the calling thread reads `connection`.
pub(crate) fn note_read(connection: &IsUnread) {
    let connection = std::ptr::from_ref(connection).addr();
    let (before, reads) = LAST_READ.get();
    let reads = if before == connection { reads.saturating_add(1) } else { 0 };
    LAST_READ.set((connection, reads));
}

/// A thread that has read another connection within this many reads serves several in turn.
const IN_TURN: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_more_for_this_thread__while_a_thread_in_turn_has_not_read_all() {
        let (unread, [a, b]) = (Unread::default(), [IsUnread::default(), IsUnread::default()]);
        for connection in [&a, &b, &a] {
            unread.add(connection);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..=IN_TURN {
                    note_read(&a);
                }
                assert!(!unread.has_more_for_this_thread(), "it reads no other");
            });
        });
        for (connection, has_more) in [(&a, true), (&b, false), (&a, false)] {
            note_read(connection);
            unread.remove(connection);
            assert_eq!(unread.has_more_for_this_thread(), has_more);
        }
    }
}
