//! A partial file at the receiver: it has a hidden name beside its final one, and is renamed once
//! it is complete, verified and synced.

use crate::dest::{DestDir, permissions, times};
use crate::message::{Mtime, Name, Sha256Hex};
use crate::session::Session;
use rustix::fs::{Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The bytes of a file that have arrived so far.
///
/// Resuming needs no further metadata: the length of the file is the count of received bytes, and
/// their hash shows the sender whether they still are a prefix of the same file.
pub struct Partial {
    dir: Arc<DestDir>,
    name: Name,
    file: File,
    len: u64,
    hash: Sha256,
    /// Bytes from the file's start with reserved disk space.
    reserved: u64,
    /// Bytes of the whole file.
    size: u64,
}

impl Partial {
    /// The partial file of an earlier attempt for `name`, a file of `size` bytes, not hashed yet;
    /// `None` if there is none.
    ///
    /// # Errors
    /// Another copy writes to it, or it cannot be opened.
    pub fn find(dir: &Arc<DestDir>, name: &Name, size: u64) -> Result<Option<Self>, String> {
        let Some(mut partial) = Self::open(dir, name, OFlags::empty())? else {
            return Ok(None);
        };
        let meta = partial.file.metadata().map_err(|e| format!("{}: {e}", dir.show(name)))?;
        (partial.len, partial.size) = (meta.len(), size);
        Ok(Some(partial))
    }

    /// Hashes the data of an earlier attempt. Required before [`Partial::append`].
    ///
    /// # Errors
    /// It cannot be read, its length changed, or the copy has ended.
    pub fn hash_found(&mut self, session: &Session) -> Result<(), String> {
        let shown = self.dir.show(&self.name);
        let cannot =
            |e: &dyn std::fmt::Display| format!("cannot read what there is of {shown}: {e}");
        let (hash, len) = hash_of(&mut self.file, session).map_err(|e| cannot(&e))?;
        if len != self.len {
            return Err(cannot(&"its length changed"));
        }
        self.hash = hash;
        Ok(())
    }

    /// Creates an empty partial file for a file of `size` bytes, with disk space reserved for the
    /// first of them.
    ///
    /// # Errors
    /// It may not be created, another copy writes to it, or the disk is full.
    pub fn create(dir: &Arc<DestDir>, name: &Name, size: u64) -> Result<Self, String> {
        let mut partial = Self::open(dir, name, OFlags::CREATE)?
            .ok_or_else(|| format!("{} went away as it was opened", dir.show(name)))?;
        partial.size = size;
        let truncated = partial.file.set_len(0);
        if let Err(why) = truncated.map_err(|e| e.to_string()).and_then(|()| partial.reserve()) {
            let why = format!("cannot make room for {}: {why}", dir.show(name));
            partial.discard();
            return Err(why);
        }
        Ok(partial)
    }

    fn open(dir: &Arc<DestDir>, name: &Name, flags: OFlags) -> Result<Option<Self>, String> {
        let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let fd = match rustix::fs::openat(&dir.fd, name.partial(), flags, private) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(dir.cannot("write", name, e)),
        };
        let file = File::from(fd);
        let meta = file.metadata().map_err(|e| format!("{}: {e}", dir.show(name)))?;
        // In a directory that others may write to, this name could be a hard link to any file.
        let ours = meta.uid() == rustix::process::geteuid().as_raw();
        if !meta.is_file() || meta.nlink() != 1 || !ours {
            let shown = dir.show(name);
            return Err(format!("the partial file of {shown} is not one of ours; remove it"));
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(format!("another copy is writing {}", dir.show(name)));
            }
            Err(e) => return Err(dir.cannot("lock", name, e)),
        }
        let (dir, name) = (Arc::clone(dir), name.clone());
        let hash = Sha256::new();
        Ok(Some(Self { dir, name, file, len: 0, hash, reserved: 0, size: 0 }))
    }

    /// Reserves disk space for the next 64 MiB of the file, if the file system supports it. So a
    /// declared size alone costs no more than that.
    ///
    /// # Errors
    /// The disk is full.
    pub fn reserve(&mut self) -> Result<(), String> {
        let wanted = self.size.min(self.len.saturating_add(RESERVE_BYTES));
        if wanted <= self.reserved.max(self.len) {
            return Ok(());
        }
        // KEEP_SIZE, because the length must remain the count of received bytes, for a later
        // attempt.
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, wanted) {
            Ok(()) => self.reserved = wanted,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => {}
            Err(e) => return Err(e.to_string()),
        }
        Ok(())
    }

    /// Frees the reserved space beyond the data.
    fn release(&mut self) {
        if self.reserved > self.len {
            // File systems differ in which of both calls frees the space. If neither does, at most
            // RESERVE_BYTES are freed with the file.
            let (from, bytes) = (self.len, self.reserved - self.len);
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.file, punch, from, bytes);
            let _ = self.file.set_len(self.len);
            self.reserved = self.len;
        }
    }

    /// Received bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Hash of the received bytes.
    #[must_use]
    pub fn sha256(&self) -> Sha256Hex {
        Sha256Hex(self.hash.clone().finalize().into())
    }

    /// Discards the received bytes.
    ///
    /// # Errors
    /// The file system rejects it.
    pub fn start_over(&mut self) -> Result<(), String> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|e| format!("cannot empty {}: {e}", self.dir.show(&self.name)))?;
        (self.len, self.reserved, self.hash) = (0, 0, Sha256::new());
        Ok(())
    }

    /// Appends received bytes.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn append(&mut self, data: &[u8]) -> Result<(), String> {
        let shown = || self.dir.show(&self.name);
        self.file.write_all(data).map_err(|e| format!("cannot write {}: {e}", shown()))?;
        self.hash.update(data);
        self.len += data.len() as u64;
        // Reserved again when half is used, so that reservations are few and large.
        if self.reserved != 0 && self.reserved.saturating_sub(self.len) < RESERVE_BYTES / 2 {
            let shown = self.dir.show(&self.name);
            self.reserve().map_err(|e| format!("cannot make room for {shown}: {e}"))?;
        }
        Ok(())
    }

    /// Syncs the file, reads it back and compares it with the hash of the received bytes. The pages
    /// that the kernel keeps of it are dropped before, so that the disk is read, if the file system
    /// and other users of the file permit that.
    ///
    /// # Errors
    /// The bytes on disk are others, they cannot be read, or the copy has ended.
    pub fn verify_disk(&mut self, session: &Session) -> Result<(), String> {
        let name = &self.name;
        let cannot = |e: std::io::Error| format!("cannot read {name} back: {e}");
        rustix::fs::fsync(&self.file).map_err(|e| cannot(e.into()))?;
        // Advice only: without it, the pages in memory are compared.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
        self.file.rewind().map_err(cannot)?;
        let (hash, len) = hash_of(&mut self.file, session).map_err(cannot)?;
        let (ours, there) = (self.sha256(), Sha256Hex(hash.finalize().into()));
        if len != self.len {
            let received = self.len;
            return Err(format!("{name} differs on disk: {len} bytes of {received} received"));
        }
        if ours != there {
            return Err(format!(
                "{name} differs on disk: SHA-256 {there} was read back, {ours} was received; \
                 nothing was kept"
            ));
        }
        Ok(())
    }

    /// Sets mode and time, syncs the file, and renames it to its final name.
    ///
    /// # Errors
    /// The disk fails, or the name is taken and `replace` is false. The partial file remains.
    pub fn commit(self, mode: u32, mtime: Mtime, replace: bool) -> Result<(), String> {
        let shown = self.dir.show(&self.name);
        let cannot = |e: Errno| format!("cannot finish {shown}: {e}");
        rustix::fs::fchmod(&self.file, permissions(mode)).map_err(cannot)?;
        rustix::fs::futimens(&self.file, &times(mtime)).map_err(cannot)?;
        rustix::fs::fsync(&self.file).map_err(cannot)?;
        let (dir, from, to) = (&self.dir.fd, self.name.partial(), self.name.as_bytes());
        if replace {
            return rustix::fs::renameat(dir, &*from, dir, to).map_err(cannot);
        }
        let renamed = rustix::fs::renameat_with(dir, &*from, dir, to, RenameFlags::NOREPLACE);
        let renamed = match renamed {
            // Without support for RENAME_NOREPLACE, a hard link is used, which never replaces a
            // file.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(dir, &*from, dir, to, AtFlags::empty())
                    .and_then(|()| rustix::fs::unlinkat(dir, &*from, AtFlags::empty()))
            }
            other => other,
        };
        renamed.map_err(|e| match e {
            Errno::EXIST => format!("{shown} came into being meanwhile; it is not replaced"),
            e => cannot(e),
        })
    }

    /// Removes the partial file.
    pub fn discard(self) {
        // A file that cannot be removed is found, and checked by its hash, in the next attempt.
        let _ = rustix::fs::unlinkat(&self.dir.fd, self.name.partial(), AtFlags::empty());
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.release();
    }
}

/// The hash and length of a file from its current position to its end, which is the new position.
///
/// # Errors
/// It cannot be read, or the copy has ended.
pub fn hash_of(file: &mut File, session: &Session) -> std::io::Result<(Sha256, u64)> {
    hash_up_to(file, u64::MAX, session)
}

/// As [`hash_of`], for at most `bytes`.
///
/// # Errors
/// As [`hash_of`].
pub fn hash_up_to(
    file: &mut File,
    bytes: u64,
    session: &Session,
) -> std::io::Result<(Sha256, u64)> {
    let (mut hash, mut len) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    while len < bytes {
        if session.is_over() {
            return Err(std::io::Error::other("the copy is over"));
        }
        let want = usize::try_from(bytes - len).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        match file.read(&mut piece[..want]) {
            Ok(0) => break,
            Ok(n) => {
                hash.update(&piece[..n]);
                len += n as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok((hash, len))
}

const PIECE_BYTES: usize = 1 << 18;

/// Limit of disk space reserved ahead of received data: large enough for few extents, and a small
/// cost of a declared size.
const RESERVE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::fs;

    fn setup() -> (TempDir, Arc<DestDir>, Name) {
        let tmp = TempDir::new();
        let dir = DestDir::open(tmp.path()).unwrap();
        (tmp, dir, Name::new(b"f".to_vec()).unwrap())
    }

    const MTIME: Mtime = Mtime { s: 1_234_567_890, ns: 123_456_789 };
    const PARTIAL: &str = ".f.spanwire-partial";

    #[test]
    fn commit__gives_the_file_its_name_mode_and_time() {
        let (tmp, dir, name) = setup();
        let mut partial = Partial::create(&dir, &name, 6).unwrap();
        partial.append(b"abc").unwrap();
        partial.append(b"def").unwrap();
        assert!(!tmp.path().join("f").exists());
        assert_eq!(partial.sha256().0, <[u8; 32]>::from(Sha256::digest(b"abcdef")));
        partial.commit(0o104_640, MTIME, false).unwrap();
        let meta = fs::metadata(tmp.path().join("f")).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o640);
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (MTIME.s, i64::from(MTIME.ns)));
        assert_eq!(fs::read(tmp.path().join("f")).unwrap(), b"abcdef");
        assert!(!tmp.path().join(PARTIAL).exists());
    }

    #[test]
    fn commit__replaces_only_if_allowed() {
        let (tmp, dir, name) = setup();
        fs::write(tmp.path().join("f"), "old").unwrap();
        let partial = Partial::create(&dir, &name, 0).unwrap();
        assert!(partial.commit(0o644, MTIME, false).unwrap_err().contains("not replaced"));
        assert_eq!(fs::read(tmp.path().join("f")).unwrap(), b"old");
        let partial = Partial::create(&dir, &name, 0).unwrap();
        partial.commit(0o644, MTIME, true).unwrap();
        assert_eq!(fs::read(tmp.path().join("f")).unwrap(), b"");
    }

    #[test]
    fn find__resumes_an_earlier_attempt() {
        let (tmp, dir, name) = setup();
        let session = Session::default();
        assert!(Partial::find(&dir, &name, 100).unwrap().is_none());
        assert!(!tmp.path().join(PARTIAL).exists(), "asking makes nothing");
        fs::write(tmp.path().join(PARTIAL), "abc").unwrap();
        let mut partial = Partial::find(&dir, &name, 100).unwrap().unwrap();
        partial.hash_found(&session).unwrap();
        assert_eq!(partial.bytes(), 3);
        assert_eq!(partial.sha256().0, <[u8; 32]>::from(Sha256::digest(b"abc")));
        partial.reserve().unwrap();
        partial.append(b"def").unwrap();
        assert_eq!(fs::read(tmp.path().join(PARTIAL)).unwrap(), b"abcdef");
        partial.start_over().unwrap();
        partial.append(b"x").unwrap();
        assert_eq!(fs::read(tmp.path().join(PARTIAL)).unwrap(), b"x");
        partial.discard();
        assert!(!tmp.path().join(PARTIAL).exists());
    }

    #[test]
    fn find__rejects_files_of_others() {
        let (tmp, dir, name) = setup();
        let secret = tmp.path().join("secret");
        fs::write(&secret, "s").unwrap();
        let at = tmp.path().join(PARTIAL);
        std::os::unix::fs::symlink(&secret, &at).unwrap();
        assert!(Partial::find(&dir, &name, 0).is_err(), "a symbolic link");
        assert!(Partial::create(&dir, &name, 0).is_err(), "a symbolic link");
        fs::remove_file(&at).unwrap();
        fs::hard_link(&secret, &at).unwrap();
        assert!(Partial::create(&dir, &name, 0).is_err(), "a hard link");
        fs::remove_file(&at).unwrap();
        fs::create_dir(&at).unwrap();
        assert!(Partial::find(&dir, &name, 0).is_err(), "a directory");
        assert_eq!(fs::read(&secret).unwrap(), b"s");
    }

    #[test]
    fn reserve__is_limited_and_released() {
        let (tmp, dir, name) = setup();
        let at = tmp.path().join(PARTIAL);
        let taken = || fs::metadata(&at).unwrap().blocks() * 512;
        let slack = 1 << 20;
        let mut partial = Partial::create(&dir, &name, 1 << 40).unwrap();
        let piece = vec![7; 8 << 20];
        for n in 1..=12 {
            partial.append(&piece).unwrap();
            let arrived = n * (8 << 20);
            assert!(taken() <= arrived + RESERVE_BYTES + slack, "{} of {arrived}", taken());
            // If the file system supports it, space is reserved before it is needed.
            assert!(partial.reserved == 0 || partial.reserved > arrived);
        }
        drop(partial);
        assert!(taken() <= (96 << 20) + slack, "{} stay", taken());
        assert_eq!(fs::metadata(&at).unwrap().len(), 96 << 20);
        let mut partial = Partial::find(&dir, &name, 1 << 40).unwrap().unwrap();
        partial.reserve().unwrap();
        partial.start_over().unwrap();
        assert!(taken() <= slack, "{} stay", taken());
    }

    #[test]
    fn open__rejects_two_concurrent_copies_of_one_file() {
        let (_tmp, dir, name) = setup();
        let _first = Partial::create(&dir, &name, 0).unwrap();
        let Err(why) = Partial::create(&dir, &name, 0) else { panic!("taken twice") };
        assert!(why.contains("another copy"), "{why}");
    }

    #[test]
    fn hash_up_to__stops_at_its_limit_or_the_end_of_the_copy() {
        let (tmp, dir, name) = setup();
        fs::write(tmp.path().join("f"), "abcdef").unwrap();
        let session = Session::default();
        let mut file = dir.read(&name).unwrap();
        let (hash, len) = hash_up_to(&mut file, 3, &session).unwrap();
        assert_eq!(len, 3);
        assert_eq!(hash.finalize()[..], Sha256::digest(b"abc")[..]);
        assert_eq!(hash_of(&mut file, &session).unwrap().1, 3, "the rest");
        session.end(crate::session::End::Interrupted);
        assert!(hash_of(&mut file, &session).is_err());
    }
}
