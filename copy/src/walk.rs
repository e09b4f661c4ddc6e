//! The sender's walk over the named files and directories, depth first, sorted by name.

use crate::dest::DEPTH_MAX;
use crate::message::{EntryKind, LinkTarget, Mtime, Name};
use rustix::fs::{AtFlags, CWD, Dir as Listing, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use spanwire_host::text::printable;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One path of the command line.
#[derive(Clone, Debug)]
pub struct Root {
    path: PathBuf,
    /// Its name at the receiver.
    pub name: Name,
}

/// The source of a file's bytes.
#[derive(Clone, Debug)]
pub enum Source {
    /// A path of the command line. A symbolic link is followed, because it was named explicitly.
    Root(PathBuf),
    /// An entry of a directory. A symbolic link is not followed.
    Inside(Arc<OwnedFd>, Name),
}

/// An item of the walk.
#[derive(Debug)]
pub enum Found {
    /// An entry to send.
    Entry {
        /// Its kind.
        kind: EntryKind,
        /// Its local path, for messages.
        shown: String,
        /// The source of the bytes of a file.
        source: Option<Source>,
    },
    /// An item that cannot be sent.
    Skipped {
        /// Its local path, for messages.
        shown: String,
        /// The reason.
        why: String,
        /// True for devices, sockets and the like, which are skipped by design; else it is an
        /// error.
        expected: bool,
    },
}

/// Walks the roots one after another.
#[derive(Debug)]
pub struct Walk {
    roots: std::vec::IntoIter<Root>,
    stack: Vec<Level>,
}

/// A directory that is being walked.
#[derive(Debug)]
struct Level {
    fd: Arc<OwnedFd>,
    shown: String,
    names: std::vec::IntoIter<Vec<u8>>,
    mode: u32,
    mtime: Mtime,
}

/// Totals of files to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Files.
    pub files: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Files, directories and symbolic links.
    pub entries: u64,
}

impl Root {
    /// The roots of `paths`.
    ///
    /// # Errors
    /// A path does not exist, has no name, or has the same name as another.
    pub fn all(paths: &[PathBuf]) -> Result<Vec<Self>, String> {
        let mut names = BTreeSet::new();
        let mut roots = Vec::new();
        for path in paths {
            let root = Self::of(path)?;
            if !names.insert(root.name.clone()) {
                let name = &root.name;
                return Err(format!("two of the paths would both become {name} at the receiver"));
            }
            roots.push(root);
        }
        Ok(roots)
    }

    fn of(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        std::fs::metadata(path).map_err(|e| format!("cannot send {shown}: {e}"))?;
        // `.`, `x/..` and the like get the name of the directory that they resolve to.
        let last = match path.file_name() {
            Some(name) => name.to_owned(),
            None => std::fs::canonicalize(path)
                .ok()
                .and_then(|whole| whole.file_name().map(ToOwned::to_owned))
                .ok_or_else(|| format!("{shown} has no name to be called by at the receiver"))?,
        };
        let name = Name::new(last.as_bytes().to_vec())?;
        Ok(Self { path: path.to_owned(), name })
    }
}

impl Source {
    /// Opens the file for reading.
    ///
    /// # Errors
    /// It was removed, may not be read, or was replaced by a link.
    pub fn open(&self) -> Result<File, Errno> {
        // Without O_NONBLOCK, opening a FIFO that replaced the file would block forever.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match self {
            Self::Root(path) => rustix::fs::openat(CWD, path, flags, Mode::empty()),
            Self::Inside(dir, name) => {
                rustix::fs::openat(dir, name.as_bytes(), flags | OFlags::NOFOLLOW, Mode::empty())
            }
        };
        fd.map(File::from)
    }
}

impl Totals {
    /// The current totals of `roots`.
    #[must_use]
    pub fn of(roots: &[Root], mut stop: impl FnMut() -> bool) -> Self {
        let mut totals = Self::default();
        for found in Walk::new(roots.to_vec()) {
            if let Found::Entry { kind, .. } = found {
                totals = totals.and(&kind);
            }
            if stop() {
                break;
            }
        }
        totals
    }
}

impl Totals {
    /// The totals with one more entry. The end of a directory counts with its beginning.
    fn and(self, kind: &EntryKind) -> Self {
        let Self { files, bytes, entries } = self;
        match kind {
            EntryKind::DirEnd { .. } => self,
            EntryKind::Dir { .. } | EntryKind::Symlink { .. } => {
                Self { entries: entries + 1, ..self }
            }
            EntryKind::File { size, .. } => {
                Self { files: files + 1, bytes: bytes + size, entries: entries + 1 }
            }
        }
    }

    /// The totals without one entry; `None` if it exceeds them.
    #[must_use]
    pub fn without(self, kind: &EntryKind) -> Option<Self> {
        let one = Self::default().and(kind);
        Some(Self {
            files: self.files.checked_sub(one.files)?,
            bytes: self.bytes.checked_sub(one.bytes)?,
            entries: self.entries.checked_sub(one.entries)?,
        })
    }
}

impl Walk {
    /// Leaves the current directory without an end.
    pub fn leave(&mut self) {
        self.stack.pop();
    }

    /// A walk over `roots`.
    #[must_use]
    pub fn new(roots: Vec<Root>) -> Self {
        Self { roots: roots.into_iter(), stack: Vec::new() }
    }

    fn root(&mut self, root: Root) -> Found {
        let shown = printable(root.path.as_os_str().as_bytes());
        let stat = match rustix::fs::statat(CWD, &root.path, AtFlags::empty()) {
            Ok(stat) => stat,
            Err(e) => return missed(shown, e.to_string()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let source = Source::Root(root.path);
                file(shown, root.name, &stat, source)
            }
            FileType::Directory => {
                let flags = OPEN_DIR.difference(OFlags::NOFOLLOW);
                let fd = rustix::fs::openat(CWD, &root.path, flags, Mode::empty());
                self.directory(shown, root.name, fd)
            }
            _ => special(shown),
        }
    }

    fn inside(&mut self, dir: Arc<OwnedFd>, shown: String, name: Vec<u8>) -> Found {
        let name = match Name::new(name) {
            Ok(name) => name,
            Err(why) => return Found::Skipped { shown, why, expected: true },
        };
        let stat = rustix::fs::statat(&*dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW);
        let stat = match stat {
            Ok(stat) => stat,
            Err(e) => return missed(shown, e.to_string()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => file(shown, name.clone(), &stat, Source::Inside(dir, name)),
            FileType::Directory if self.stack.len() >= DEPTH_MAX => {
                missed(shown, format!("deeper than {DEPTH_MAX} directories"))
            }
            FileType::Directory => {
                let fd = rustix::fs::openat(&*dir, name.as_bytes(), OPEN_DIR, Mode::empty());
                self.directory(shown, name, fd)
            }
            FileType::Symlink => link(&dir, shown, name),
            _ => special(shown),
        }
    }

    fn directory(&mut self, shown: String, name: Name, fd: Result<OwnedFd, Errno>) -> Found {
        let listed = fd.and_then(|fd| {
            let stat = rustix::fs::fstat(&fd)?;
            let names = list(&fd)?;
            Ok((fd, stat, names))
        });
        let (fd, stat, names) = match listed {
            Ok(listed) => listed,
            Err(e) => return missed(shown, e.to_string()),
        };
        self.stack.push(Level {
            fd: Arc::new(fd),
            shown: shown.clone(),
            names: names.into_iter(),
            mode: stat.st_mode,
            mtime: mtime(&stat),
        });
        Found::Entry { kind: EntryKind::Dir { name }, shown, source: None }
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let Some(level) = self.stack.last_mut() else {
            let root = self.roots.next()?;
            return Some(self.root(root));
        };
        if let Some(name) = level.names.next() {
            let shown = format!("{}/{}", level.shown.trim_end_matches('/'), printable(&name));
            let dir = Arc::clone(&level.fd);
            return Some(self.inside(dir, shown, name));
        }
        let Level { shown, mode, mtime, .. } = self.stack.pop()?;
        Some(Found::Entry { kind: EntryKind::DirEnd { mode, mtime }, shown, source: None })
    }
}

/// Modification time.
pub(crate) fn mtime(stat: &Stat) -> Mtime {
    Mtime { s: stat.st_mtime, ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) }
}

fn list(fd: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Listing::read_from(fd)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if !matches!(&*name, b"." | b"..") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn file(shown: String, name: Name, stat: &Stat, source: Source) -> Found {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let kind = EntryKind::File { name, size, mode: stat.st_mode, mtime: mtime(stat) };
    Found::Entry { kind, shown, source: Some(source) }
}

fn link(dir: &OwnedFd, shown: String, name: Name) -> Found {
    let target = rustix::fs::readlinkat(dir, name.as_bytes(), Vec::new())
        .map_err(|e| e.to_string())
        .and_then(|target| LinkTarget::new(target.into_bytes()));
    match target {
        Ok(target) => {
            Found::Entry { kind: EntryKind::Symlink { name, target }, shown, source: None }
        }
        Err(why) => missed(shown, why),
    }
}

fn missed(shown: String, why: String) -> Found {
    Found::Skipped { shown, why, expected: false }
}

fn special(shown: String) -> Found {
    let why = "a device, socket or FIFO".to_owned();
    Found::Skipped { shown, why, expected: true }
}

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn outline(path: &Path) -> Vec<String> {
        let roots = Root::all(&[path.to_owned()]).unwrap();
        let line = |found| match found {
            Found::Entry { kind: EntryKind::Dir { name }, .. } => format!("{name}("),
            Found::Entry { kind: EntryKind::DirEnd { .. }, .. } => ")".into(),
            Found::Entry { kind: EntryKind::File { name, size, .. }, .. } => {
                format!("{name} {size}")
            }
            Found::Entry { kind: EntryKind::Symlink { name, target }, .. } => {
                format!("{name}>{}", printable(target.as_bytes()))
            }
            Found::Skipped { why, expected, .. } => format!("-{why} {expected}"),
        };
        Walk::new(roots).map(line).collect()
    }

    #[test]
    fn without__counts_an_entry_and_a_file_within_it() {
        let tmp = TempDir::new();
        fs::create_dir(tmp.path().join("d")).unwrap();
        fs::write(tmp.path().join("d/f"), "123").unwrap();
        let roots = Root::all(&[tmp.path().join("d")]).unwrap();
        let counted = Totals::of(&roots, || false);
        let kinds = Walk::new(roots).filter_map(|found| match found {
            Found::Entry { kind, .. } => Some(kind),
            Found::Skipped { .. } => None,
        });
        let kinds: Vec<_> = kinds.collect();
        let left = kinds.iter().fold(counted, |left, kind| left.without(kind).unwrap());
        assert_eq!(left, Totals::default());
        let more = kinds.iter().map(|kind| left.without(kind).is_some()).collect::<Vec<_>>();
        assert_eq!(more, [false, false, true], "an end is no entry of its own");
    }

    #[test]
    fn leave__the_walk_goes_on_behind_the_directory() {
        let tmp = TempDir::new();
        fs::create_dir(tmp.path().join("d")).unwrap();
        for name in ["d/f", "e"] {
            fs::write(tmp.path().join(name), "").unwrap();
        }
        let paths = ["d", "e"].map(|name| tmp.path().join(name));
        let mut walk = Walk::new(Root::all(&paths).unwrap());
        assert!(matches!(walk.next(), Some(Found::Entry { kind: EntryKind::Dir { .. }, .. })));
        walk.leave();
        let Some(Found::Entry { kind: EntryKind::File { name, .. }, .. }) = walk.next() else {
            panic!("no file")
        };
        assert_eq!(name.to_string(), "e");
        assert!(walk.next().is_none());
    }

    #[test]
    fn next__is_depth_first_sorted_and_follows_no_link() {
        let tmp = TempDir::new();
        let top = tmp.path().join("top");
        fs::create_dir_all(top.join("b/empty")).unwrap();
        fs::write(top.join("b/x"), "12345").unwrap();
        fs::write(top.join("a"), "").unwrap();
        fs::write(top.join("ü"), "1").unwrap();
        symlink("..", top.join("c")).unwrap();
        fs::write(top.join(".q.spanwire-partial"), "1").unwrap();
        let _socket = UnixListener::bind(top.join("d")).unwrap();
        let found = outline(&top);
        assert!(found[1].starts_with("-the name") && found[1].ends_with("true"), "{found:?}");
        let rest: Vec<&str> =
            found.iter().map(|s| &**s).filter(|s| !s.contains("the name")).collect();
        let special = "-a device, socket or FIFO true";
        let wanted = ["top(", "a 0", "b(", "empty(", ")", "x 5", ")", "c>..", special, "ü 1", ")"];
        assert_eq!(rest, wanted);
        let roots = Root::all(&[top]).unwrap();
        assert_eq!(Totals::of(&roots, || false), Totals { files: 3, bytes: 6, entries: 7 });
    }

    #[test]
    fn all__follows_named_links_and_rejects_duplicate_names() {
        let tmp = TempDir::new();
        fs::create_dir(tmp.path().join("d")).unwrap();
        fs::write(tmp.path().join("f"), "123").unwrap();
        fs::write(tmp.path().join("d/f"), "123").unwrap();
        symlink("f", tmp.path().join("l")).unwrap();
        assert_eq!(outline(&tmp.path().join("l")), ["l 3"]);
        assert_eq!(outline(&tmp.path().join("d/.")), ["d(", "f 3", ")"]);
        let twice = [tmp.path().join("f"), tmp.path().join("d/f")];
        assert!(Root::all(&twice).unwrap_err().contains("both become f"));
        assert!(Root::all(&["/".into()]).unwrap_err().contains("no name"));
        assert!(Root::all(&[tmp.path().join("gone")]).is_err());
    }
}
