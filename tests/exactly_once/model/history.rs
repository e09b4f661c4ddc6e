//! Earlier values of bytes: a request that reads changing memory may read any of them, byte by
//! byte, and no other.

use super::Source;

/// Overwrites by an application, in order.
#[derive(Default)]
pub(crate) struct History {
    changes: Vec<Change>,
}

struct Change {
    at: usize,
    bytes: Vec<u8>,
}

impl History {
    /// Number of changes.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn note(&mut self, at: usize, bytes: &[u8]) {
        self.changes.push(Change { at, bytes: bytes.to_vec() });
    }

    /// True if byte `i` of the source had `value` at some time since reading could begin.
    pub(super) fn had(&self, source: &Source, i: usize, value: u8) -> bool {
        let at = source.at + i;
        let byte = |change: &Change| change.bytes.get(at.checked_sub(change.at)?).copied();
        self.changes[source.since..].iter().any(|change| byte(change) == Some(value))
    }

    /// True if the first `len` bytes of the source have not changed since reading could begin.
    pub(super) fn is_unchanged(&self, source: &Source, len: usize) -> bool {
        let end = source.at + len;
        let apart =
            |change: &Change| change.at >= end || change.at + change.bytes.len() <= source.at;
        self.changes[source.since..].iter().all(apart)
    }
}
