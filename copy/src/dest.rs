//! Directories of the receiver, held open and accessed only through file descriptors.
//!
//! Every step takes one component relative to an open directory and follows no symbolic link. So no
//! existing or concurrently created link can lead out of the destination directory.

use crate::message::{LinkTarget, Mtime, Name};
use rustix::fs::{AtFlags, CWD, Dir as Listing, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use spanwire_host::text::printable;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// An open directory.
#[derive(Debug)]
pub struct DestDir {
    pub(crate) fd: OwnedFd,
    /// Path for messages.
    shown: String,
    /// True if this copy created it: then its mode and time are set.
    made: bool,
}

/// The attributes of a directory entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its type.
    pub kind: FileType,
    /// Bytes of a file.
    pub size: u64,
    /// Modification time.
    pub mtime: Mtime,
}

impl DestDir {
    /// Opens the destination directory of the copy; it must exist.
    ///
    /// # Errors
    /// It does not exist, is no directory, or may not be entered.
    pub fn open(path: &Path) -> Result<Arc<Self>, String> {
        let shown = path.display().to_string();
        let fd =
            rustix::fs::openat(CWD, path, OPEN_DIR.difference(OFlags::NOFOLLOW), Mode::empty())
                .map_err(|e| format!("cannot copy into {shown}: {e}"))?;
        Ok(Arc::new(Self { fd, shown, made: false }))
    }

    /// Enters the directory `name`, which is created if it does not exist.
    ///
    /// # Errors
    /// The name is taken by something else, or the directory may not be created or entered.
    pub fn enter(&self, name: &Name) -> Result<Arc<Self>, String> {
        // Private until its content is complete; then it gets its own mode.
        let private = Mode::RWXU;
        let made = match rustix::fs::mkdirat(&self.fd, name.as_bytes(), private) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(self.cannot("make the directory", name, e)),
        };
        let fd = rustix::fs::openat(&self.fd, name.as_bytes(), OPEN_DIR, Mode::empty()).map_err(
            |e| match e {
                Errno::NOTDIR | Errno::LOOP => {
                    format!("{} is there and no directory", self.show(name))
                }
                e => self.cannot("enter", name, e),
            },
        )?;
        Ok(Arc::new(Self { fd, shown: self.show(name), made }))
    }

    /// The attributes of `name`, without following links; `None` if it does not exist.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn look(&self, name: &[u8]) -> Result<Option<Seen>, String> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(st) => Ok(Some(Seen {
                kind: FileType::from_raw_mode(st.st_mode),
                size: u64::try_from(st.st_size).unwrap_or(0),
                mtime: Mtime { s: st.st_mtime, ns: u32::try_from(st.st_mtime_nsec).unwrap_or(0) },
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(format!("cannot look at {}/{}: {e}", self.shown, printable(name))),
        }
    }

    /// Opens the regular file `name` for reading.
    ///
    /// # Errors
    /// It is no regular file, or may not be read.
    pub fn read(&self, name: &Name) -> Result<File, String> {
        // Without O_NONBLOCK, opening a FIFO that was created meanwhile would block forever.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name.as_bytes(), flags, Mode::empty())
            .map(File::from)
            .map_err(|e| self.cannot("read", name, e))
    }

    /// Creates the symbolic link `name`. An existing one with the same target is kept.
    ///
    /// # Errors
    /// The name is taken, and `replace` is false or it is neither a file nor a link.
    pub fn symlink(&self, name: &Name, target: &LinkTarget, replace: bool) -> Result<(), String> {
        let there = self.look(name.as_bytes())?;
        match there.map(|seen| seen.kind) {
            None => rustix::fs::symlinkat(target.as_bytes(), &self.fd, name.as_bytes())
                .map_err(|e| self.cannot("make the link", name, e)),
            Some(FileType::Symlink) if self.says(name, target) => Ok(()),
            Some(FileType::Symlink | FileType::RegularFile) if replace => {
                let partial = name.partial();
                // Removes one that an earlier attempt left.
                let _ = rustix::fs::unlinkat(&self.fd, &*partial, AtFlags::empty());
                rustix::fs::symlinkat(target.as_bytes(), &self.fd, &*partial)
                    .and_then(|()| {
                        rustix::fs::renameat(&self.fd, &*partial, &self.fd, name.as_bytes())
                    })
                    .map_err(|e| self.cannot("replace", name, e))
            }
            Some(kind) => Err(self.taken(name, kind, replace)),
        }
    }

    /// Sets mode and time if this copy created the directory, and syncs its entries to disk.
    ///
    /// # Errors
    /// The disk fails, or the file system rejects the operation.
    pub fn finish(&self, mode: u32, mtime: Mtime) -> Result<(), String> {
        let cannot = |e: Errno| format!("cannot finish {}: {e}", self.shown);
        if self.made {
            rustix::fs::fchmod(&self.fd, permissions(mode)).map_err(cannot)?;
            rustix::fs::futimens(&self.fd, &times(mtime)).map_err(cannot)?;
        }
        self.sync()
    }

    /// Syncs the directory's entries to disk.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> Result<(), String> {
        rustix::fs::fsync(&self.fd).map_err(|e| format!("cannot sync {}: {e}", self.shown))
    }

    /// Free bytes of its file system.
    ///
    /// # Errors
    /// The file system does not report them.
    pub fn free_bytes(&self) -> Result<u64, String> {
        let st = rustix::fs::fstatvfs(&self.fd)
            .map_err(|e| format!("cannot tell the free space of {}: {e}", self.shown))?;
        Ok(st.f_bavail.saturating_mul(st.f_frsize))
    }

    /// Total bytes of the existing files and partial files of `names`.
    #[must_use]
    pub fn bytes_there(&self, names: &[Name]) -> u64 {
        let of = |name: &Name| {
            let [whole, part] = [name.as_bytes().to_vec(), name.partial()];
            self.bytes_of(&whole, DEPTH_MAX) + self.bytes_of(&part, DEPTH_MAX)
        };
        names.iter().map(of).sum()
    }

    /// The path of `name` in messages.
    #[must_use]
    pub fn show(&self, name: &Name) -> String {
        format!("{}/{name}", self.shown)
    }

    /// The message for a name that is taken by an entry of `kind`.
    #[must_use]
    pub fn taken(&self, name: &Name, kind: FileType, replace: bool) -> String {
        let what = match kind {
            FileType::RegularFile => "a file",
            FileType::Directory => "a directory",
            FileType::Symlink => "a symbolic link",
            _ => "a special file",
        };
        let shown = self.show(name);
        let replaceable = matches!(kind, FileType::RegularFile | FileType::Symlink);
        match (replaceable, replace) {
            (true, false) => {
                format!(
                    "{shown} is there already, {what} (--overwrite at the receiver replaces it)"
                )
            }
            _ => format!("{shown} is there already, {what}; it is not replaced"),
        }
    }

    pub(crate) fn cannot(&self, what: &str, name: &Name, e: Errno) -> String {
        format!("cannot {what} {}: {e}", self.show(name))
    }

    fn says(&self, name: &Name, target: &LinkTarget) -> bool {
        rustix::fs::readlinkat(&self.fd, name.as_bytes(), Vec::new())
            .is_ok_and(|there| there.as_bytes() == target.as_bytes())
    }

    fn bytes_of(&self, name: &[u8], depth: usize) -> u64 {
        match self.look(name) {
            Ok(Some(Seen { kind: FileType::RegularFile, size, .. })) => size,
            Ok(Some(Seen { kind: FileType::Directory, .. })) if depth > 0 => {
                let Ok(fd) = rustix::fs::openat(&self.fd, name, OPEN_DIR, Mode::empty()) else {
                    return 0;
                };
                let dir = Self { fd, shown: String::new(), made: false };
                let Ok(listing) = Listing::read_from(&dir.fd) else {
                    return 0;
                };
                let names = listing.filter_map(Result::ok).map(|e| e.file_name().to_owned());
                let names = names.filter(|n| !matches!(n.as_bytes(), b"." | b".."));
                names.map(|n| dir.bytes_of(n.as_bytes(), depth - 1)).sum()
            }
            _ => 0,
        }
    }
}

/// The permission bits of `mode`, without set-user-ID: executing a copy must not change the user.
pub(crate) fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

pub(crate) fn times(mtime: Mtime) -> Timestamps {
    let at = Timespec { tv_sec: mtime.s, tv_nsec: mtime.ns.min(999_999_999).into() };
    Timestamps { last_access: at, last_modification: at }
}

/// Limit of directory depth: each level is an open file descriptor on both sides.
pub const DEPTH_MAX: usize = 128;

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn name(name: &str) -> Name {
        Name::new(name.into()).unwrap()
    }

    #[test]
    fn enter__creates_missing_directories_and_follows_no_link() {
        let tmp = TempDir::new();
        let outside = TempDir::new();
        let root = DestDir::open(tmp.path()).unwrap();
        let inner = root.enter(&name("a")).unwrap();
        assert!(inner.made);
        assert!(!root.enter(&name("a")).unwrap().made);
        symlink(outside.path(), tmp.path().join("exit")).unwrap();
        let why = root.enter(&name("exit")).unwrap_err();
        assert!(why.contains("no directory"), "{why}");
        std::fs::write(tmp.path().join("file"), "x").unwrap();
        assert!(root.enter(&name("file")).is_err());
    }

    #[test]
    fn finish__sets_the_mode_and_time_of_a_new_directory_only() {
        let tmp = TempDir::new();
        std::fs::create_dir(tmp.path().join("old")).unwrap();
        let root = DestDir::open(tmp.path()).unwrap();
        let mtime = Mtime { s: 1_000_000_000, ns: 5 };
        for (dir, changes) in [("new", true), ("old", false)] {
            root.enter(&name(dir)).unwrap().finish(0o4751, mtime).unwrap();
            let meta = std::fs::metadata(tmp.path().join(dir)).unwrap();
            assert_eq!(meta.mode() & 0o7777 == 0o751, changes, "{:o}", meta.mode());
            assert_eq!((meta.mtime(), meta.mtime_nsec()) == (1_000_000_000, 5), changes);
        }
    }

    #[test]
    fn symlink__replaces_only_if_allowed() {
        let tmp = TempDir::new();
        let root = DestDir::open(tmp.path()).unwrap();
        let to = |target: &str| LinkTarget::new(target.into()).unwrap();
        let link = tmp.path().join("l");
        root.symlink(&name("l"), &to("/etc/passwd"), false).unwrap();
        root.symlink(&name("l"), &to("/etc/passwd"), false).unwrap();
        let why = root.symlink(&name("l"), &to("other"), false).unwrap_err();
        assert!(why.contains("--overwrite"), "{why}");
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("/etc/passwd"));
        root.symlink(&name("l"), &to("other"), true).unwrap();
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("other"));
        std::fs::create_dir(tmp.path().join("d")).unwrap();
        assert!(root.symlink(&name("d"), &to("x"), true).is_err());
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 2, "nothing else remains");
    }

    #[test]
    fn bytes_there__counts_files_and_parts_but_not_behind_links() {
        let tmp = TempDir::new();
        let root = DestDir::open(tmp.path()).unwrap();
        std::fs::create_dir_all(tmp.path().join("t/u")).unwrap();
        for (path, len) in [("t/u/x", 5), ("t/y", 7), (".z.spanwire-partial", 11), ("no", 100)] {
            std::fs::write(tmp.path().join(path), vec![0; len]).unwrap();
        }
        symlink(tmp.path(), tmp.path().join("t/loop")).unwrap();
        assert_eq!(root.bytes_there(&["t", "z", "gone"].map(name)), 23);
    }

    #[test]
    fn look__does_not_follow() {
        let tmp = TempDir::new();
        symlink("/etc/passwd", tmp.path().join("l")).unwrap();
        let root = DestDir::open(tmp.path()).unwrap();
        let seen = root.look(b"l").unwrap().unwrap();
        assert_eq!(seen.kind, FileType::Symlink);
        assert!(root.read(&name("l")).is_err());
        assert_eq!(root.look(b"gone"), Ok(None));
    }
}
