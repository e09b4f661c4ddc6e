//! Network namespaces: anonymous ones that vanish with the process, and named ones that `ip netns`
//! knows too.

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

/// A handle to one network namespace. It keeps the namespace alive; a namespace without name,
/// process or handle is destroyed by the kernel with everything in it.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
    name: Option<String>,
}

/// The calling thread is in another namespace for as long as this lives. Bound to its thread.
#[derive(Debug)]
pub struct Entered {
    before: File,
    /// A namespace is a property of the thread, so the guard must not move to another one.
    not_send: PhantomData<*const ()>,
}

impl NetNs {
    /// The namespace that the calling thread is in.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn current() -> Result<Self, NetError> {
        let file = open_current()
            .map_err(|e| NetError::from_io("open the current network namespace", &e))?;
        Ok(Self { fd: file.into(), name: None })
    }

    /// Makes a namespace that only this handle keeps alive, with `lo` up in it: whatever ends the
    /// process, SIGKILL included, leaves nothing behind.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN.
    pub fn new_anonymous() -> Result<Self, NetError> {
        let asked = "make a network namespace";
        let file = in_fresh_thread(|| {
            sys::unshare(libc::CLONE_NEWNET)?;
            open_current()
        })
        .map_err(|e| NetError::from_io(asked, &e))?;
        let ns = Self { fd: file.into(), name: None };
        Netlink::open_in(&ns)?.set_up("lo")?;
        Ok(ns)
    }

    /// Makes a namespace that stays until [`NetNs::delete_named`], with `lo` up in it. It is held
    /// by a mount below `/run/netns`, which is how `ip netns` finds it.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN, a name that is no file name, or one that exists already.
    pub fn create_named(name: &str) -> Result<Self, NetError> {
        let asked = format!("create the network namespace {name}");
        let path = path_of(name).map_err(|e| e.refused(&asked))?;
        let wrap = |e: io::Error| NetError::from_io(asked.as_str(), &e);
        // The lock keeps two creators from stacking two mounts on the directory; `ip netns` takes
        // the same one.
        let _lock = prepare_directory().map_err(wrap)?;
        // Only a place to mount on: nobody ever reads the file itself.
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
                // Nothing is mounted on it, so it may go; the first error is the one to report.
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

    /// Opens a named namespace, whoever made it.
    ///
    /// # Errors
    /// There is none of that name, or what has the name is not a network namespace (a creator
    /// that died half way leaves an empty file).
    pub fn open_named(name: &str) -> Result<Self, NetError> {
        let asked = format!("open the network namespace {name}");
        let path = path_of(name).map_err(|e| e.refused(&asked))?;
        let file = File::open(path).map_err(|e| NetError::from_io(asked.as_str(), &e))?;
        match sys::namespace_type(file.as_fd()) {
            Ok(libc::CLONE_NEWNET) => Ok(Self { fd: file.into(), name: Some(name.to_owned()) }),
            _ => Err(NetError::new(NetErrorKind::Invalid, asked)
                .detail("the file of that name is not a network namespace")
                .advise(format!("remove it with `ip netns delete {name}`"))),
        }
    }

    /// Takes the name of a namespace away. The namespace itself goes when the last process in it
    /// and the last handle to it are gone.
    ///
    /// # Errors
    /// There is none of that name, or no CAP_SYS_ADMIN.
    pub fn delete_named(name: &str) -> Result<(), NetError> {
        let asked = format!("delete the network namespace {name}");
        let path = path_of(name).map_err(|e| e.refused(&asked))?;
        let wrap = |e: io::Error| NetError::from_io(asked.as_str(), &e);
        let target = c_path(&path).map_err(wrap)?;
        match sys::unmount_detach(&target) {
            Ok(()) => {}
            // Not mounted: a creator died half way. Only the file is left to be removed.
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
            // Nobody has made one since the machine was started.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(wrap(e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not UTF-8 cannot be asked for here either.
            if let Ok(name) = entry.map_err(wrap)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The name under which the namespace was created or opened, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The number by which the kernel tells namespaces apart: equal for two handles exactly if
    /// they lead to the same namespace.
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

    /// Moves the calling thread into the namespace until the guard is dropped. Sockets made
    /// meanwhile belong to the namespace for ever; threads started meanwhile stay in it.
    ///
    /// # Errors
    /// No CAP_SYS_ADMIN.
    pub fn enter(&self) -> Result<Entered, NetError> {
        let wrap = |e: io::Error| NetError::from_io(format!("enter {}", self.label()), &e);
        let before = open_current().map_err(wrap)?;
        sys::setns_net(self.fd.as_fd()).map_err(wrap)?;
        Ok(Entered { before, not_send: PhantomData })
    }

    /// Runs `work` in a thread of its own inside the namespace and returns what it returns. A
    /// panic in `work` goes on in the caller.
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

    /// A command that will run inside the namespace; see [`NetNs::contain`].
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command, NetError> {
        let mut command = Command::new(program);
        self.contain(&mut command)?;
        Ok(command)
    }

    /// Makes `command` run inside the namespace, with a `/sys` of its own that shows the
    /// namespace's interfaces, as under `ip netns exec` (files of `/etc/netns` are not used).
    ///
    /// The change is made between fork and exec, so it also holds for [`CommandExt::exec`], which
    /// then moves the calling thread itself, also if the program cannot be run afterwards: nothing
    /// but reporting that is left to do then. What fails there is what spawning reports.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn contain(&self, command: &mut Command) -> Result<(), NetError> {
        let ns = self.duplicate()?;
        let hook = move || {
            sys::setns_net(ns.as_fd())?;
            sys::unshare(libc::CLONE_NEWNS)?;
            // Mounts of the host still arrive here, ours never reach the host.
            sys::mount(c"", c"/", c"none", libc::MS_SLAVE | libc::MS_REC)?;
            // There may be no /sys to take away; the mount below says so if that matters.
            let _ = sys::unmount_detach(c"/sys");
            sys::mount(c"spanwire", c"/sys", c"sysfs", 0)
        };
        // SAFETY: the hook runs in the child between fork and exec, where only async-signal-safe
        // functions are allowed: it makes five system calls on constants and on a descriptor that
        // it owns, and its errors are plain error numbers, which allocate nothing.
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

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Entered {
    /// Takes the thread back.
    ///
    /// # Panics
    /// If the kernel refuses although it let the thread go: the thread would go on in the wrong
    /// namespace, and everything it did from then on would be wrong.
    fn drop(&mut self) {
        let back = sys::setns_net(self.before.as_fd());
        if !thread::panicking() {
            back.expect("a thread that left its network namespace may return to it");
        }
    }
}

/// Runs `work` in a thread that ends with it, so that what it changes about its thread goes too.
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

/// Makes `/run/netns` a mount whose mounts spread to the other mount namespaces, as `ip netns`
/// does: a namespace named here is then seen, and can be deleted, by everybody. Returns the
/// directory, locked.
fn prepare_directory() -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY)?;
    let directory = File::open(DIRECTORY)?;
    sys::lock_exclusive(directory.as_fd())?;
    let path = c_path(Path::new(DIRECTORY))?;
    let share = || sys::mount(c"", &path, c"none", libc::MS_SHARED | libc::MS_REC);
    match share() {
        Ok(()) => {}
        // It is a plain directory so far, and only mounts can be shared.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            sys::mount(&path, &path, c"none", libc::MS_BIND | libc::MS_REC)?;
            share()?;
        }
        Err(e) => return Err(e),
    }
    Ok(directory)
}

/// Why a name cannot be the name of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BadName(&'static str);

impl BadName {
    fn refused(self, asked: &str) -> NetError {
        NetError::new(NetErrorKind::Invalid, asked)
            .detail(self.0)
            .advise("use a short name of letters, digits, '-' and '_'")
    }
}

/// The file of a named namespace. The name becomes one component of a path, so it must be one.
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

/// Where `ip netns` keeps named namespaces.
const DIRECTORY: &str = "/run/netns";

/// The longest file name that Linux allows, in bytes.
const NAME_MAX: usize = 255;

#[cfg(test)]
mod tests;
