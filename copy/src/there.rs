//! What the receiver has of a file already, and its comparison with the sender's hash. The
//! receiver never sends its own hash first: a peer that guesses name, size and time of a file
//! must not learn what is in it.

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

/// A file that a sender names.
#[derive(Debug)]
pub struct Named {
    /// Where it goes.
    pub dir: Arc<DestDir>,
    /// Its name there.
    pub name: Name,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// When it was modified.
    pub mtime: Mtime,
}

/// What there is of a file.
pub enum There {
    /// Nothing of use; perhaps a partial file that is not its beginning.
    Nothing(Option<Partial>),
    /// A whole file of its size and time.
    Whole(File),
    /// What an earlier attempt left.
    Beginning(Partial),
}

/// What there is of a file, hashed, awaiting the sender's hash.
pub struct Comparison {
    /// The file.
    pub file: Named,
    ours: Result<Ours, String>,
}

/// What there is, with its hash.
enum Ours {
    Whole(Sha256Hex),
    Beginning(Partial),
}

/// Result of a comparison.
pub enum Outcome {
    /// The file there is the same.
    Same(Sha256Hex),
    /// It is to be sent, behind what stays of the partial file.
    Wanted(Option<Partial>, u64),
    /// It may not be sent.
    Refused(String),
}

impl Named {
    /// What there is of it.
    ///
    /// # Errors
    /// It is refused; the text says why.
    pub fn there(&self, overwrite: bool) -> Result<There, String> {
        let Self { dir, name, size, mtime, .. } = self;
        if let Some(seen) = dir.look(name.as_bytes())? {
            // Of the time, seconds are what every file system keeps; the hash decides.
            let alike = seen.size == *size && seen.mtime.s == mtime.s;
            if seen.kind == FileType::RegularFile && alike {
                return Ok(There::Whole(dir.read(name)?));
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
            // A longer one is not the beginning of this file.
            Some(partial) if (1..=*size).contains(&there) => There::Beginning(partial),
            other => There::Nothing(other),
        })
    }

    /// There is space for what is to come of it behind `there` bytes.
    fn check_space(&self, there: u64) -> Result<(), String> {
        let Self { dir, name, size, .. } = self;
        let (free, to_come) = (dir.free_bytes()?, size.saturating_sub(there));
        if to_come > free {
            let (shown, to_come) = (dir.show(name), bytes(to_come));
            return Err(format!("no space for {shown}: {to_come} to come, {} free", bytes(free)));
        }
        Ok(())
    }

    /// Its path here, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        self.dir.show(&self.name)
    }
}

impl Comparison {
    /// The comparison of `file` with all that is there of it, which is hashed now.
    #[must_use]
    pub fn with_whole(file: Named, mut whole: File, session: &Session) -> Self {
        let ours = hash_of(&mut whole, session)
            .map(|(hash, _)| Ours::Whole(Sha256Hex(hash.finalize().into())))
            .map_err(|e| format!("cannot read {}: {e}", file.shown()));
        Self { file, ours }
    }

    /// The comparison of `file` with what an earlier attempt left, which is hashed now.
    #[must_use]
    pub fn with_beginning(file: Named, mut partial: Partial, session: &Session) -> Self {
        let ours = partial.hash_found(session).map(|()| Ours::Beginning(partial));
        Self { file, ours }
    }

    /// What the sender's hash means.
    #[must_use]
    pub fn outcome(self, theirs: Sha256Hex, overwrite: bool) -> (Named, Outcome) {
        let Self { file, ours } = self;
        let outcome = match ours {
            Err(why) => Outcome::Refused(why),
            Ok(Ours::Whole(ours)) if ours == theirs => Outcome::Same(ours),
            Ok(Ours::Whole(_)) if overwrite => match file.check_space(0) {
                Ok(()) => Outcome::Wanted(None, 0),
                Err(why) => Outcome::Refused(why),
            },
            Ok(Ours::Whole(_)) => Outcome::Refused(format!(
                "{} is there already, of the same size and time, and differs (--overwrite at the \
                 receiver replaces it)",
                file.name
            )),
            Ok(Ours::Beginning(partial)) => {
                let stays = if partial.sha256() == theirs { partial.bytes() } else { 0 };
                Outcome::Wanted(Some(partial), stays)
            }
        };
        (file, outcome)
    }
}

/// How long a sender may take to hash `bytes`.
#[must_use]
pub fn hashing_time(bytes: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000 / HASHED_PER_S))
}

/// Assumed hash rate of the slowest sender, bytes a second.
const HASHED_PER_S: u64 = 16 << 20;
