//! Network namespaces: anonymous ones that end with the process, and named ones that `ip netns` can
//! use.

use super::error::{NetError, NetErrorKind};
use super::netlink::Netlink;
use super::sys;
use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// A handle to a network namespace, which it keeps alive. The kernel destroys a namespace without
/// name, process or handle, with everything in it.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
    name: Option<String>,
}

/// A guard: the calling thread is in another namespace while it lives. It is bound to its thread.
#[derive(Debug)]
pub struct Entered {
    before: File,
    /// A namespace is a property of the thread, so the guard must not move to another one.
    not_send: PhantomData<*const ()>,
}

impl NetNs {
    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn current() -> Result<Self, NetError> {
        let file = open_current()
            .map_err(|e| NetError::from_io("open the current network namespace", &e))?;
        Ok(Self { fd: file.into(), name: None })
    }

    /// Creates a namespace with `lo` up that only this handle keeps alive. It is removed however
    /// the process ends, including by SIGKILL.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN.
    pub fn new_anonymous() -> Result<Self, NetError> {
        let operation = "make a network namespace";
        let file = in_fresh_thread(|| {
            sys::unshare(libc::CLONE_NEWNET)?;
            open_current()
        })
        .map_err(|e| NetError::from_io(operation, &e))?;
        let ns = Self { fd: file.into(), name: None };
        Netlink::open_in(&ns)?.set_up("lo")?;
        Ok(ns)
    }

    /// Creates a namespace with `lo` up that persists until [`NetNs::delete_named`]. A mount below
    /// `/run/netns` holds it, which is where `ip netns` looks for it.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN, an invalid file name, or one that already exists.
    pub fn create_named(name: &str) -> Result<Self, NetError> {
        let operation = format!("create the network namespace {name}");
        let path = path_of(name).map_err(|e| e.during(&operation))?;
        let wrap = |e: io::Error| NetError::from_io(operation.as_str(), &e);
        // The lock prevents two creators from stacking two mounts on the directory; `ip netns` uses
        // the same one.
        let _lock = prepare_directory().map_err(wrap)?;
        // A mount point only; its content is never read.
        drop(
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o000)
                .open(&path)
                .map_err(wrap)?,
        );
        let made = in_fresh_thread(|| {
            sys::unshare(libc::CLONE_NEWNET)?;
            let target = c_path(&path)?;
            sys::mount(c"/proc/thread-self/ns/net", &target, c"none", libc::MS_BIND)?;
            open_current()
        });
        let file = match made {
            Ok(file) => file,
            Err(e) => {
                // It is not mounted, so it can be removed; report the first error.
                let _ = fs::remove_file(&path);
                return Err(wrap(e));
            }
        };
        let ns = Self { fd: file.into(), name: Some(name.to_owned()) };
        if let Err(e) = Netlink::open_in(&ns).and_then(|mut netlink| netlink.set_up("lo")) {
            let _ = Self::delete_named(name);
            return Err(e);
        }
        Ok(ns)
    }

    /// Opens an existing named namespace.
    ///
    /// # Errors
    /// There is none of that name, or the file is not a network namespace (a creator that was
    /// killed leaves an empty file).
    pub fn open_named(name: &str) -> Result<Self, NetError> {
        let operation = format!("open the network namespace {name}");
        let path = path_of(name).map_err(|e| e.during(&operation))?;
        let file = File::open(path).map_err(|e| NetError::from_io(operation.as_str(), &e))?;
        match sys::namespace_type(file.as_fd()) {
            Ok(libc::CLONE_NEWNET) => Ok(Self { fd: file.into(), name: Some(name.to_owned()) }),
            _ => Err(NetError::new(NetErrorKind::Invalid, operation)
                .detail("the file of that name is not a network namespace")
                .advise(format!("remove it with `ip netns delete {name}`"))),
        }
    }

    /// Removes the name of a namespace. The kernel destroys the namespace after its last process
    /// and its last handle have gone.
    ///
    /// # Errors
    /// There is none of that name, or no CAP_SYS_ADMIN.
    pub fn delete_named(name: &str) -> Result<(), NetError> {
        let operation = format!("delete the network namespace {name}");
        let path = path_of(name).map_err(|e| e.during(&operation))?;
        let wrap = |e: io::Error| NetError::from_io(operation.as_str(), &e);
        let target = c_path(&path).map_err(wrap)?;
        match sys::unmount_detach(&target) {
            Ok(()) => {}
            // Not mounted, because its creator was killed: only the file is left to remove.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Err(e) => return Err(wrap(e)),
        }
        fs::remove_file(&path).map_err(wrap)
    }

    /// The names of all named namespaces, sorted.
    ///
    /// # Errors
    /// The directory exists but cannot be read.
    pub fn list() -> Result<Vec<String>, NetError> {
        let wrap = |e: io::Error| NetError::from_io("list the network namespaces", &e);
        let entries = match fs::read_dir(DIRECTORY) {
            Ok(entries) => entries,
            // No namespace has been created since boot.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(wrap(e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not UTF-8 cannot be used with this API either.
            if let Ok(name) = entry.map_err(wrap)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The name that the namespace was created or opened with, if any.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The kernel's inode number of the namespace: equal for two handles if and only if they refer
    /// to the same namespace.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn inode(&self) -> Result<u64, NetError> {
        let duplicate = self.duplicate()?;
        let metadata = File::from(duplicate)
            .metadata()
            .map_err(|e| NetError::from_io("look at a network namespace", &e))?;
        Ok(metadata.ino())
    }

    /// Moves the calling thread into the namespace until the guard is dropped. Sockets created
    /// meanwhile belong to the namespace permanently; threads started meanwhile stay in it.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN.
    pub fn enter(&self) -> Result<Entered, NetError> {
        let wrap = |e: io::Error| NetError::from_io(format!("enter {}", self.label()), &e);
        let before = open_current().map_err(wrap)?;
        sys::setns_net(self.fd.as_fd()).map_err(wrap)?;
        Ok(Entered { before, not_send: PhantomData })
    }

    /// Runs `work` in a new thread inside the namespace and returns its result. A panic in `work`
    /// is propagated.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN; then `work` has not run.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetError> {
        let done = in_fresh_thread(|| {
            sys::setns_net(self.fd.as_fd())?;
            Ok(work())
        });
        done.map_err(|e| NetError::from_io(format!("enter {}", self.label()), &e))
    }

    /// A command that runs inside the namespace; see [`NetNs::contain`].
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command, NetError> {
        let mut command = Command::new(program);
        self.contain(&mut command)?;
        Ok(command)
    }

    /// Makes `command` run inside the namespace, with its own `/sys` that shows the namespace's
    /// interfaces, as under `ip netns exec` (files of `/etc/netns` are not used).
    ///
    /// The change is made between fork and exec, so it also applies to [`CommandExt::exec`]. That
    /// moves the calling thread itself, even if the program cannot be run afterwards; the caller
    /// can then only report the error. Spawning reports errors of the change.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn contain(&self, command: &mut Command) -> Result<(), NetError> {
        let ns = self.duplicate()?;
        let hook = move || {
            sys::setns_net(ns.as_fd())?;
            sys::unshare(libc::CLONE_NEWNS)?;
            // Mounts of the host propagate into the namespace, but not the reverse.
            sys::mount(c"", c"/", c"none", libc::MS_SLAVE | libc::MS_REC)?;
            // There may be no /sys to unmount; the mount below fails if that matters.
            let _ = sys::unmount_detach(c"/sys");
            sys::mount(c"spanwire", c"/sys", c"sysfs", 0)
        };
        // SAFETY: the hook runs in the child between fork and exec, where only async-signal-safe
        // functions are allowed. It makes five system calls on constants and on a descriptor that
        // it owns, and its errors are plain error numbers, which do not allocate.
        unsafe {
            command.pre_exec(hook);
        }
        Ok(())
    }

    fn duplicate(&self) -> Result<OwnedFd, NetError> {
        self.fd
            .try_clone()
            .map_err(|e| NetError::from_io(format!("duplicate the handle of {}", self.label()), &e))
    }

    fn label(&self) -> String {
        match &self.name {
            Some(name) => format!("the network namespace {name}"),
            None => "an anonymous network namespace".to_owned(),
        }
    }
}

impl Netlink {
    /// Opens a socket in a given namespace; the calling thread's namespace does not change.
    ///
    /// # Errors
    /// As [`Netlink::open`], and when the process may not enter the namespace (CAP_SYS_ADMIN).
    pub fn open_in(ns: &NetNs) -> Result<Self, NetError> {
        let entered = ns.enter()?;
        let opened = Self::open();
        drop(entered);
        opened
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Entered {
    /// Returns the thread to its namespace.
    ///
    /// # Panics
    /// If the kernel rejects the return, because the thread would continue in the wrong namespace.
    fn drop(&mut self) {
        let back = sys::setns_net(self.before.as_fd());
        if !thread::panicking() {
            back.expect("a thread may return to the network namespace that it left");
        }
    }
}

/// Runs `work` in a new thread that ends with it, which discards changes to the thread's state.
fn in_fresh_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, work)?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A handle to the namespace of the calling thread (not of the process: threads differ).
fn open_current() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Makes `/run/netns` a shared mount, as `ip netns` does, so that a namespace created in it is
/// visible and deletable in all mount namespaces. Returns the directory, locked.
fn prepare_directory() -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY)?;
    let directory = File::open(DIRECTORY)?;
    sys::lock_exclusive(directory.as_fd())?;
    let path = c_path(Path::new(DIRECTORY))?;
    let share = || sys::mount(c"", &path, c"none", libc::MS_SHARED | libc::MS_REC);
    match share() {
        Ok(()) => {}
        // It is still a plain directory, and only mounts can be shared.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            sys::mount(&path, &path, c"none", libc::MS_BIND | libc::MS_REC)?;
            share()?;
        }
        Err(e) => return Err(e),
    }
    Ok(directory)
}

/// The reason why a namespace name is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BadName(&'static str);

impl BadName {
    fn during(self, operation: &str) -> NetError {
        NetError::new(NetErrorKind::Invalid, operation)
            .detail(self.0)
            .advise("use a short name of letters, digits, '-' and '_'")
    }
}

/// The file of a named namespace. The name must be a single path component.
fn path_of(name: &str) -> Result<PathBuf, BadName> {
    if name.is_empty() || name == "." || name == ".." {
        return Err(BadName("the name is empty or a directory"));
    }
    if name.contains(['/', '\0']) {
        return Err(BadName("the name contains a slash or a zero"));
    }
    if name.len() > NAME_MAX {
        return Err(BadName("the name is longer than 255 bytes"));
    }
    Ok(Path::new(DIRECTORY).join(name))
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// The directory of named namespaces of `ip netns`.
const DIRECTORY: &str = "/run/netns";

/// The longest file name that Linux allows, in bytes.
const NAME_MAX: usize = 255;

#[cfg(test)]
mod tests;
