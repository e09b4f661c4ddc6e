//! The receiver's existing data of a file, and their comparison with the sender's hash. The
//! receiver never sends its own hash first: a peer that guesses name, size and time of a file must
//! not learn its content.

use crate::dest::DestDir;
use crate::message::{Mtime, Name, Sha256Hex};
use crate::partial::{Partial, hash_of};
use crate::session::Session;
use rustix::fs::FileType;
use sha2::Digest;
use spanwire_host::text::bytes;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// A file that the sender named.
#[derive(Debug)]
pub struct Named {
    /// The destination directory.
    pub dir: Arc<DestDir>,
    /// Its name in that directory.
    pub name: Name,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time.
    pub mtime: Mtime,
}

/// The receiver's existing data of a file.
pub enum Existing {
    /// No usable data; perhaps a partial file that is too long.
    Nothing(Option<Partial>),
    /// A complete file of the same size and time.
    Whole(File),
    /// A partial file of an earlier attempt.
    Beginning(Partial),
}

/// A comparison: existing data with their hash, awaiting the sender's hash.
pub struct Comparison {
    /// The file.
    pub file: Named,
    ours: Result<HashedData, String>,
}

/// Existing data, with their hash.
enum HashedData {
    Whole(Sha256Hex),
    Beginning(Partial),
}

/// Result of a comparison.
pub enum Outcome {
    /// The existing file is identical.
    Same(Sha256Hex),
    /// The file is requested, from the end of the part that is kept.
    Wanted(Option<Partial>, u64),
    /// The file is rejected.
    Refused(String),
}

impl Named {
    /// Looks for existing data of the file.
    ///
    /// # Errors
    /// The file is rejected; the text says why.
    pub fn existing(&self, overwrite: bool) -> Result<Existing, String> {
        let Self { dir, name, size, mtime, .. } = self;
        if let Some(seen) = dir.look(name.as_bytes())? {
            // Only seconds are compared, which every file system keeps. The hash decides.
            let alike = seen.size == *size && seen.mtime.s == mtime.s;
            if seen.kind == FileType::RegularFile && alike {
                return Ok(Existing::Whole(dir.read(name)?));
            }
            let replaceable = matches!(seen.kind, FileType::RegularFile | FileType::Symlink);
            if !(replaceable && overwrite) {
                return Err(dir.taken(name, seen.kind, overwrite));
            }
        }
        let partial = Partial::find(dir, name, *size)?;
        let there = partial.as_ref().map_or(0, Partial::bytes);
        self.check_space(there)?;
        Ok(match partial {
            // A longer partial file is not a prefix of this file.
            Some(partial) if (1..=*size).contains(&there) => Existing::Beginning(partial),
            other => Existing::Nothing(other),
        })
    }

    /// Checks for disk space for the rest of the file after `there` bytes.
    fn check_space(&self, there: u64) -> Result<(), String> {
        let Self { dir, name, size, .. } = self;
        let (free, to_come) = (dir.free_bytes()?, size.saturating_sub(there));
        if to_come > free {
            let (shown, to_come) = (dir.show(name), bytes(to_come));
            return Err(format!("no space for {shown}: {to_come} to come, {} free", bytes(free)));
        }
        Ok(())
    }

    /// Its path at the receiver, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        self.dir.show(&self.name)
    }
}

impl Comparison {
    /// Bytes that both ends compare.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.ours {
            Ok(HashedData::Whole(_)) => self.file.size,
            Ok(HashedData::Beginning(partial)) => partial.bytes(),
            Err(_) => 0,
        }
    }

    /// Hashes the complete existing file.
    #[must_use]
    pub fn with_whole(file: Named, mut whole: File, session: &Session) -> Self {
        let ours = hash_of(&mut whole, session)
            .map(|(hash, _)| HashedData::Whole(Sha256Hex(hash.finalize().into())))
            .map_err(|e| format!("cannot read {}: {e}", file.shown()));
        Self { file, ours }
    }

    /// Hashes the partial file of an earlier attempt.
    #[must_use]
    pub fn with_beginning(file: Named, mut partial: Partial, session: &Session) -> Self {
        let ours = partial.hash_found(session).map(|()| HashedData::Beginning(partial));
        Self { file, ours }
    }

    /// Compares with the sender's hash.
    #[must_use]
    pub fn outcome(self, theirs: Sha256Hex, overwrite: bool) -> (Named, Outcome) {
        let Self { file, ours } = self;
        let outcome = match ours {
            Err(why) => Outcome::Refused(why),
            Ok(HashedData::Whole(ours)) if ours == theirs => Outcome::Same(ours),
            Ok(HashedData::Whole(_)) if overwrite => match file.check_space(0) {
                Ok(()) => Outcome::Wanted(None, 0),
                Err(why) => Outcome::Refused(why),
            },
            Ok(HashedData::Whole(_)) => Outcome::Refused(format!(
                "{} is there already, of the same size and time, and differs (--overwrite at the \
                 receiver replaces it)",
                file.name
            )),
            Ok(HashedData::Beginning(partial)) => {
                let stays = if partial.sha256() == theirs { partial.bytes() } else { 0 };
                Outcome::Wanted(Some(partial), stays)
            }
        };
        (file, outcome)
    }
}

/// Time that a sender may take to hash `bytes`.
#[must_use]
pub fn hashing_time(bytes: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000 / HASHED_PER_S))
}

/// Assumed hash rate of the slowest sender, bytes per second.
const HASHED_PER_S: u64 = 16 << 20;
