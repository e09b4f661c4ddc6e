//! The outcome of one file.

use crate::message::Sha256Hex;
use serde::Serialize;

/// The result of one file, as `files[]` in JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FileRow {
    /// Its local path.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// `copied`, `same` (it existed already) or `failed`.
    pub status: &'static str,
    /// Hash that both ends computed.
    pub sha256: Option<Sha256Hex>,
    /// Bytes of an earlier attempt.
    pub resumed_bytes: u64,
    /// Reason of a failure.
    pub reason: Option<String>,
}

impl FileRow {
    /// A copied file, of which `resumed` bytes were sent in an earlier attempt.
    #[must_use]
    pub fn copied(path: String, bytes: u64, sha256: Sha256Hex, resumed: u64) -> Self {
        let (status, sha256) = ("copied", Some(sha256));
        Self { path, bytes, status, sha256, resumed_bytes: resumed, reason: None }
    }

    /// A file that existed already.
    #[must_use]
    pub fn same(path: String, bytes: u64, sha256: Sha256Hex) -> Self {
        Self { status: "same", ..Self::copied(path, bytes, sha256, bytes) }
    }

    /// A file that failed.
    #[must_use]
    pub fn failed(path: String, bytes: u64, reason: &str) -> Self {
        let reason = Some(reason.to_owned());
        Self { path, bytes, status: "failed", sha256: None, resumed_bytes: 0, reason }
    }
}
