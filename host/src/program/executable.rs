//! Programs that `spanwire run` starts: their search, and whether the dynamic loader loads a
//! library into them (`LD_PRELOAD`, ld.so(8)).

use rustix::fs::{Access, access, getxattr};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The reason why a program cannot be run with the library.
#[derive(Debug)]
pub enum ProgramError {
    /// There is no program of that name.
    NotFound(OsString),
    /// It exists, but is no file that this user may execute.
    NotExecutable(PathBuf, io::Error),
    /// The loader ignores `LD_PRELOAD` of a program with set-user-ID or set-group-ID mode.
    SetId(PathBuf),
    /// The loader ignores `LD_PRELOAD` of a program with file capabilities.
    Capabilities(PathBuf),
    /// It has no dynamic loader (no `PT_INTERP`).
    Static(PathBuf),
    /// It is for another machine than the library, or for 32 bits.
    Foreign(PathBuf),
}

/// Finds program `name` as execvp(3) does: a name with a slash is a path, others are searched in
/// the directories of `path`, the value of `PATH`.
///
/// # Returns
/// A path that has a slash.
///
/// # Errors
/// [`ProgramError::NotFound`], and [`ProgramError::NotExecutable`] if all files of that name are
/// not executable.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    if name.as_bytes().contains(&b'/') {
        return executable(Path::new(name).to_owned());
    }
    let mut why = ProgramError::NotFound(name.to_owned());
    if name.is_empty() {
        return Err(why);
    }
    for dir in std::env::split_paths(path.unwrap_or(OsStr::new(PATH_DEFAULT))) {
        // An empty entry is the working directory.
        let dir = if dir.as_os_str().is_empty() { Path::new(".").to_owned() } else { dir };
        match executable(dir.join(name)) {
            Ok(found) => return Ok(found),
            Err(ProgramError::NotExecutable(path, e)) if path.is_file() => {
                why = ProgramError::NotExecutable(path, e);
            }
            // Neither a directory of that name counts, nor one that this user may not search.
            Err(_) => {}
        }
    }
    Err(why)
}

/// Checks that the dynamic loader will load `library` into `program`. A script passes: its
/// interpreter inherits the environment.
///
/// # Errors
/// It will not; or the program's ELF header is damaged ([`ProgramError::NotExecutable`]).
pub fn check_preload(program: &Path, library: &Path) -> Result<(), ProgramError> {
    let own = |error| ProgramError::NotExecutable(program.to_owned(), error);
    let file = match File::open(program) {
        // It may be executed but not read: the loader will report what is wrong.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        opened => opened.map_err(own)?,
    };
    let Some(header) = ElfHeader::read(&file).map_err(own)? else { return Ok(()) };
    let library = File::open(library).and_then(|file| ElfHeader::read(&file)).ok().flatten();
    if library.is_some_and(|library| library.machine() != header.machine()) {
        return Err(ProgramError::Foreign(program.to_owned()));
    }
    if !header.has_interpreter(&file).map_err(own)? {
        return Err(ProgramError::Static(program.to_owned()));
    }
    if sets_id(&file.metadata().map_err(own)?) {
        return Err(ProgramError::SetId(program.to_owned()));
    }
    // Without the attribute, and on a file system without attributes, this is an error.
    match getxattr(program, "security.capability", &mut [0; CAPABILITY_BYTES_MAX]) {
        Ok(_) => Err(ProgramError::Capabilities(program.to_owned())),
        Err(_) => Ok(()),
    }
}

/// True if `library` is an ELF file.
#[must_use]
pub fn is_elf(library: &Path) -> bool {
    matches!(File::open(library).and_then(|file| ElfHeader::read(&file)), Ok(Some(_)))
}

fn executable(path: PathBuf) -> Result<PathBuf, ProgramError> {
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(ProgramError::NotFound(path.into_os_string()));
        }
        Err(e) => return Err(ProgramError::NotExecutable(path, e)),
    };
    let usable = match metadata.is_file() {
        true => access(&path, Access::EXEC_OK).map_err(io::Error::from),
        false => Err(io::Error::other("it is no regular file")),
    };
    match usable {
        Ok(()) => Ok(path),
        Err(e) => Err(ProgramError::NotExecutable(path, e)),
    }
}

/// True if execution changes the user or the group. Without permission for the group to execute,
/// the set-group-ID bit means something else.
fn sets_id(file: &Metadata) -> bool {
    let mode = file.mode();
    mode & SET_USER_ID != 0 || mode & SET_GROUP_ID != 0 && mode & GROUP_EXECUTE != 0
}

/// The header of a 64-bit ELF file, or the part of another's that is the same (elf(5)).
struct ElfHeader([u8; 64]);

impl ElfHeader {
    /// The header of `file`; `None` if it is no ELF file.
    fn read(file: &File) -> io::Result<Option<Self>> {
        let mut header = [0; 64];
        // A shorter file, which may be a script, leaves zeros.
        file.read_at(&mut header, 0)?;
        Ok(header.starts_with(b"\x7fELF").then_some(Self(header)))
    }

    /// Class (32 or 64 bits), byte order, and machine.
    fn machine(&self) -> [u8; 4] {
        let Self(header) = self;
        [header[4], header[5], header[18], header[19]]
    }

    /// True if a program header has the type `PT_INTERP`.
    fn has_interpreter(&self, file: &File) -> io::Result<bool> {
        let Self(header) = self;
        let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let offset = header[32..40].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let (size, count) = (u64::from(u16_at(54)), u64::from(u16_at(56)));
        for i in 0..count {
            let mut kind = [0; 4];
            file.read_exact_at(&mut kind, offset.saturating_add(i * size))?;
            if u32::from_le_bytes(kind) == PT_INTERP {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let no_preload = "so the dynamic loader does not load the library into it";
        match self {
            Self::NotFound(name) => write!(f, "there is no program {}", name.display()),
            Self::NotExecutable(path, why) => write!(f, "cannot run {}: {why}", path.display()),
            Self::SetId(path) => {
                let path = path.display();
                write!(f, "{path} has a set-user-ID or set-group-ID bit, {no_preload}: {COPY}")
            }
            Self::Capabilities(path) => {
                let path = path.display();
                write!(f, "{path} has file capabilities, {no_preload}: {COPY}")
            }
            Self::Static(path) => {
                let path = path.display();
                write!(f, "{path} is linked statically, {no_preload}: link it dynamically")
            }
            Self::Foreign(path) => {
                let path = path.display();
                write!(f, "{path} is for another machine or word size than the library")
            }
        }
    }
}

impl std::error::Error for ProgramError {}

const COPY: &str = "copy it (`cp` leaves them out) and run the copy";

/// The directories that execvp(3) searches without `PATH`.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Bits of a file's mode (inode(7)).
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The type of the program header that has the path of the dynamic loader (elf(5)).
const PT_INTERP: u32 = 3;

/// Above the size of `struct vfs_ns_cap_data` of Linux, 24 bytes.
const CAPABILITY_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{XattrFlags, setxattr};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A directory of this test, removed at its end.
    struct TempDir(PathBuf);

    impl TempDir {
        fn new(test: &str) -> Self {
            let name = format!("spanwire-host-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("the name is this test's own");
            Self(path)
        }

        fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, content).expect("it can be written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own file");
            path
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// An ELF file with a program header of each of `kinds`.
    fn elf(class: u8, machine: u8, kinds: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        file[18] = machine;
        file[32] = 64;
        file[54] = 56;
        file[56] = u8::try_from(kinds.len()).expect("few");
        for kind in kinds {
            file.extend(kind.to_le_bytes());
            file.extend([0; 52]);
        }
        file
    }

    fn checked(program: &Path, library: &Path) -> &'static str {
        match check_preload(program, library) {
            Ok(()) => "loads",
            Err(ProgramError::NotFound(_)) => "not found",
            Err(ProgramError::NotExecutable(..)) => "not executable",
            Err(ProgramError::SetId(_)) => "set id",
            Err(ProgramError::Capabilities(_)) => "capabilities",
            Err(ProgramError::Static(_)) => "static",
            Err(ProgramError::Foreign(_)) => "foreign",
        }
    }

    #[test]
    fn find__searches_as_execvp_does() {
        let dir = TempDir::new("find");
        let program = dir.file("program", b"", 0o755);
        let plain = dir.file("plain", b"", 0o644);
        fs::create_dir(dir.0.join("folder")).unwrap();
        let path = OsString::from(format!("/nonexistent:{}", dir.0.display()));
        let find = |name: &str| find(OsStr::new(name), Some(&path));
        assert_eq!(find("program").unwrap(), program);
        assert_eq!(find(program.to_str().unwrap()).unwrap(), program);
        for name in ["", "sw-none", "folder", "./sw-none", "/dev/null/x"] {
            assert!(matches!(find(name), Err(ProgramError::NotFound(_))), "{name}");
        }
        let (folder, plain) = (dir.0.to_str().unwrap(), plain.to_str().unwrap());
        for name in ["plain", plain, folder] {
            let error = find(name).unwrap_err();
            assert!(matches!(error, ProgramError::NotExecutable(..)), "{name}: {error}");
        }
        assert!(super::find(OsStr::new("sh"), None).unwrap().ends_with("sh"));
    }

    #[test]
    fn check_preload__refuses_what_the_loader_would_ignore() {
        let dir = TempDir::new("check");
        let library = dir.file("library", &elf(2, 62, &[1]), 0o644);
        let dynamic = elf(2, 62, &[6, PT_INTERP, 1]);
        let file =
            |name: &str, content: &[u8], mode| checked(&dir.file(name, content, mode), &library);
        assert_eq!(file("dynamic", &dynamic, 0o755), "loads");
        assert_eq!(file("script", b"#!/bin/sh\n", 0o4755), "loads", "no bits of a script count");
        assert_eq!(file("empty", b"", 0o755), "loads");
        assert_eq!(file("static", &elf(2, 62, &[1, 1]), 0o755), "static");
        assert_eq!(file("arm", &elf(2, 183, &[PT_INTERP]), 0o755), "foreign");
        assert_eq!(file("32", &elf(1, 62, &[PT_INTERP]), 0o755), "foreign");
        assert_eq!(file("setuid", &dynamic, 0o4755), "set id");
        assert_eq!(file("setgid", &dynamic, 0o2755), "set id");
        assert_eq!(file("locked", &dynamic, 0o2745), "loads", "mandatory locking");
        assert_eq!(file("cut", &elf(2, 62, &[1, 1])[..100], 0o755), "not executable");
        assert!(is_elf(&library) && !is_elf(&dir.0.join("script")));
    }

    #[test]
    fn check_preload__refuses_file_capabilities() {
        let dir = TempDir::new("capabilities");
        let library = dir.file("library", &elf(2, 62, &[1]), 0o644);
        let program = dir.file("program", &elf(2, 62, &[PT_INTERP]), 0o755);
        // Version 2 (struct vfs_cap_data): CAP_NET_RAW permitted.
        let mut attribute = [0; 20];
        (attribute[3], attribute[5]) = (2, 0x20);
        match setxattr(&program, "security.capability", &attribute, XattrFlags::empty()) {
            Ok(()) => assert_eq!(checked(&program, &library), "capabilities"),
            Err(e) => eprintln!("SKIPPED: no right to set file capabilities: {e}"),
        }
    }
}
