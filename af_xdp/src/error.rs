//! Errors of setting up sockets, maps and programs, with advice.

use std::fmt;
use std::io;

/// A failed step of setting up or querying a socket, map or program.
///
/// The message names the interface and the queue, and gives advice for known causes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is outside what AF_XDP allows.
    Config {
        /// The parameter.
        field: &'static str,
        /// The value and the rule it breaks.
        reason: String,
    },
    /// The verifier rejected a program.
    Verifier {
        /// The error number of `BPF_PROG_LOAD`.
        source: io::Error,
        /// The verifier's log, possibly truncated.
        log: String,
    },
    /// The kernel returned an error.
    Os {
        /// The step that failed.
        step: Step,
        /// The interface and queue of the step.
        place: Place,
        /// The error number.
        source: io::Error,
    },
}

/// A step that may fail in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Step {
    /// Mapping memory for a UMEM.
    MapMemory,
    /// `socket(AF_XDP)`.
    OpenSocket,
    /// `XDP_UMEM_REG`.
    RegisterUmem,
    /// Setting the size of a ring.
    SizeRing,
    /// Mapping a ring.
    MapRing,
    /// `bind(2)`.
    Bind,
    /// Setting or reading an option of the socket.
    Option,
    /// Creating the XSKMAP.
    CreateMap,
    /// Changing a slot of the XSKMAP.
    UpdateMap,
    /// Loading a program.
    LoadProgram,
    /// Running a program on a test frame.
    RunProgram,
    /// Attaching a program to an interface.
    Attach,
}

/// The interface and queue of a failed step, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Index of the interface in the network namespace of the caller.
    pub ifindex: Option<u32>,
    /// Receive queue (or slot of the XSKMAP, which is the same number).
    pub queue: Option<u32>,
}

impl Error {
    /// The error number, if the error came from the kernel.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Config { .. } => None,
            Self::Verifier { source, .. } | Self::Os { source, .. } => source.raw_os_error(),
        }
    }

    /// Advice for known causes.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        if let Some(advice) = self.errno().and_then(open_files_advice) {
            return Some(advice);
        }
        match self {
            Self::Os { step, source, .. } => advice(*step, source.raw_os_error()?),
            Self::Verifier { source, .. } if is_denied(source.raw_os_error()?) => Some(NEEDS_BPF),
            Self::Config { .. } | Self::Verifier { .. } => None,
        }
    }

    /// True if AF_XDP is not possible for this process: it lacks the privilege (CAP_NET_RAW,
    /// CAP_BPF, CAP_NET_ADMIN, locked memory), or the kernel lacks the feature.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        let is_program =
            matches!(self, Self::Verifier { .. } | Self::Os { step: Step::LoadProgram, .. });
        self.errno().is_some_and(|errno| match errno {
            libc::ENOBUFS => self.is_memlock(),
            // A flag, helper or map of the program is unknown.
            libc::EINVAL | libc::E2BIG => is_program,
            libc::ENOSYS
            | libc::EOPNOTSUPP
            | libc::EAFNOSUPPORT
            | libc::EPFNOSUPPORT
            | libc::EPROTONOSUPPORT
            | libc::ESOCKTNOSUPPORT => true,
            other => is_denied(other),
        })
    }

    /// True if the UMEM exceeds the limit of locked memory, together with that of other processes
    /// of the user and that of sockets closed just before.
    #[must_use]
    pub fn is_memlock(&self) -> bool {
        matches!(self, Self::Os { step: Step::RegisterUmem, .. })
            && self.errno() == Some(libc::ENOBUFS)
    }

    pub(crate) fn config(field: &'static str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Config { field, reason }
    }

    pub(crate) fn os(step: Step, place: Place, source: io::Error) -> Self {
        Self::Os { step, place, source }
    }
}

impl Place {
    /// A queue of an interface.
    #[must_use]
    pub fn queue(ifindex: u32, queue: u32) -> Self {
        Self { ifindex: Some(ifindex), queue: Some(queue) }
    }

    /// A whole interface.
    #[must_use]
    pub fn interface(ifindex: u32) -> Self {
        Self { ifindex: Some(ifindex), queue: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { field, reason } => write!(f, "{field}: {reason}")?,
            Self::Verifier { source, log } => {
                write!(f, "the verifier rejected the XDP program: {source}")?;
                if !log.is_empty() {
                    write!(f, "; verifier log: {log}")?;
                }
            }
            Self::Os { step, place, source } => write!(f, "cannot {step}{place}: {source}")?,
        }
        match self.advice() {
            Some(advice) => write!(f, " ({advice})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config { .. } => None,
            Self::Verifier { source, .. } | Self::Os { source, .. } => Some(source),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MapMemory => "map memory for a UMEM",
            Self::OpenSocket => "open an AF_XDP socket",
            Self::RegisterUmem => "register the UMEM",
            Self::SizeRing => "set the size of a ring",
            Self::MapRing => "map a ring",
            Self::Bind => "bind an AF_XDP socket",
            Self::Option => "use an option of the AF_XDP socket",
            Self::CreateMap => "create an XSKMAP",
            Self::UpdateMap => "change the XSKMAP",
            Self::LoadProgram => "load an XDP program",
            Self::RunProgram => "run an XDP program on a test frame",
            Self::Attach => "attach the XDP program",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ifindex) = self.ifindex {
            match crate::sys::interface_name(ifindex) {
                Some(name) => write!(f, " on {name}")?,
                None => write!(f, " on interface {ifindex}")?,
            }
        }
        match self.queue {
            Some(queue) => write!(f, " queue {queue}"),
            None => Ok(()),
        }
    }
}

/// Advice for an `errno` that means that the limit of open files is reached.
#[must_use]
pub fn open_files_advice(errno: i32) -> Option<&'static str> {
    match errno {
        libc::EMFILE => Some("raise the limit of open files of the process: `ulimit -n`"),
        libc::ENFILE => Some("raise the limit of open files of the system: `sysctl fs.file-max`"),
        _ => None,
    }
}

fn is_denied(errno: i32) -> bool {
    errno == libc::EPERM || errno == libc::EACCES
}

fn advice(step: Step, errno: i32) -> Option<&'static str> {
    use Step::{Attach, Bind, CreateMap, LoadProgram, MapMemory, OpenSocket, RegisterUmem};
    Some(match (step, errno) {
        (OpenSocket, libc::EPERM | libc::EACCES) => "AF_XDP needs CAP_NET_RAW",
        (OpenSocket, libc::EAFNOSUPPORT) => "this kernel is built without CONFIG_XDP_SOCKETS",
        (RegisterUmem | MapMemory, libc::ENOBUFS | libc::ENOMEM | libc::EPERM | libc::EAGAIN) => {
            "the UMEM is locked memory: use fewer frames, raise RLIMIT_MEMLOCK (ulimit -l) or \
             grant CAP_IPC_LOCK"
        }
        (Bind, libc::EBUSY) => {
            "another program holds this queue: stop it or take another queue (ss --xdp lists them)"
        }
        (Bind, libc::EINVAL) => "the interface has no such queue (ethtool -l shows how many)",
        (Bind, libc::EOPNOTSUPP) => {
            "the driver does not support zero-copy on this queue: bind in copy mode"
        }
        (Bind | Attach, libc::ENODEV | libc::ENXIO) => {
            "no such interface in this network namespace"
        }
        (Attach, libc::EBUSY | libc::EEXIST) => {
            "another XDP program is attached to the interface: detach it (ip link show, \
             ip link set dev IF xdp off) or stop its owner"
        }
        (Attach, libc::EOPNOTSUPP) => "the driver has no native XDP: attach in generic mode",
        (Attach, libc::ERANGE) => "the MTU is too large for native XDP on this driver",
        (Attach, libc::EINVAL) => {
            "no such interface in this network namespace, or its driver refuses native XDP in its \
             present configuration"
        }
        (CreateMap | LoadProgram | Attach, libc::EPERM | libc::EACCES) => NEEDS_BPF,
        _ => return None,
    })
}

const NEEDS_BPF: &str = "XDP programs and maps need CAP_BPF and CAP_NET_ADMIN";

#[cfg(test)]
mod tests {
    use super::*;

    fn os(step: Step, errno: i32) -> Error {
        let place = Place::queue(u32::MAX, 3);
        Error::os(step, place, io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn errno__is_the_kernels_and_absent_for_a_bad_parameter() {
        assert_eq!(os(Step::Bind, libc::EBUSY).errno(), Some(libc::EBUSY));
        assert_eq!(Error::config("queue", "too large").errno(), None);
    }

    #[test]
    fn is_unavailable__for_privilege_and_features_but_not_for_a_busy_queue() {
        for (step, errno) in [
            (Step::OpenSocket, libc::EPERM),
            (Step::OpenSocket, libc::EAFNOSUPPORT),
            (Step::RegisterUmem, libc::ENOBUFS),
            (Step::Attach, libc::EOPNOTSUPP),
            (Step::LoadProgram, libc::EACCES),
            (Step::LoadProgram, libc::EINVAL),
        ] {
            assert!(os(step, errno).is_unavailable(), "{step} {errno}");
        }
        for (step, errno) in [
            (Step::Bind, libc::EBUSY),
            (Step::Attach, libc::EBUSY),
            (Step::Attach, libc::EEXIST),
            (Step::Bind, libc::ENOBUFS),
            (Step::Bind, libc::ENODEV),
            (Step::Bind, libc::EINVAL),
        ] {
            assert!(!os(step, errno).is_unavailable(), "{step} {errno}");
        }
        assert!(!Error::config("queue", "too large").is_unavailable());
    }

    #[test]
    fn is_memlock__only_for_the_registration_of_a_umem() {
        assert!(os(Step::RegisterUmem, libc::ENOBUFS).is_memlock());
        assert!(!os(Step::RegisterUmem, libc::EINVAL).is_memlock());
        assert!(!os(Step::Bind, libc::ENOBUFS).is_memlock());
    }

    #[test]
    fn advice__is_given_for_known_causes() {
        let cases = [
            (Step::RegisterUmem, libc::ENOBUFS, "CAP_IPC_LOCK"),
            (Step::OpenSocket, libc::EPERM, "CAP_NET_RAW"),
            (Step::Attach, libc::EPERM, "CAP_NET_ADMIN"),
            (Step::Attach, libc::EBUSY, "another XDP program"),
            (Step::Bind, libc::EBUSY, "another program holds"),
            (Step::Bind, libc::EINVAL, "no such queue"),
            (Step::Bind, libc::ENODEV, "no such interface"),
            (Step::Attach, libc::ERANGE, "MTU"),
            (Step::OpenSocket, libc::EMFILE, "ulimit -n"),
            (Step::Attach, libc::ENFILE, "fs.file-max"),
        ];
        for (step, errno, expected) in cases {
            let text = os(step, errno).to_string();
            assert!(text.contains(expected), "{text}");
        }
        assert_eq!(os(Step::UpdateMap, libc::E2BIG).advice(), None);
    }

    #[test]
    fn fmt__names_step_interface_and_queue() {
        let text = os(Step::Bind, libc::EBUSY).to_string();
        assert!(
            text.starts_with("cannot bind an AF_XDP socket on interface 4294967295 queue 3: "),
            "{text}"
        );
        let config = Error::config("chunk_size", "1000 is not 2048 or 4096");
        assert_eq!(config.to_string(), "chunk_size: 1000 is not 2048 or 4096");
    }
}
