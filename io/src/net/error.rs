//! The error type of kernel network configuration.

use af_xdp::open_files_advice;
use std::borrow::Cow;
use std::fmt;
use std::io;

/// A failed request to the kernel: the request, the interface, the cause, and advice.
/// [`fmt::Display`] prints all of it on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetError(Box<Cause>);

/// The content of a [`NetError`], boxed so that results stay small.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cause {
    kind: NetErrorKind,
    operation: String,
    interface: Option<String>,
    errno: Option<i32>,
    detail: Option<String>,
    advice: Cow<'static, str>,
}

/// The cause of a [`NetError`], for programmatic handling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetErrorKind {
    /// The process lacks the privilege (EPERM, EACCES).
    Permission,
    /// The interface, namespace or address does not exist.
    NotFound,
    /// The interface, namespace, address or route already exists.
    AlreadyExists,
    /// The request is invalid: a bad name, prefix, MTU.
    Invalid,
    /// The kernel or the driver does not support this.
    Unsupported,
    /// No route leads to the destination.
    NoRoute,
    /// A route exists, but through another interface than the requested one.
    OtherInterface,
    /// The destination is an address of this host.
    Loopback,
    /// The destination is not one host: multicast, broadcast or unspecified.
    NotUnicast,
    /// The destination is link-local and no interface was given.
    ScopeNeeded,
    /// The route leaves through an interface that does not carry Ethernet frames.
    NotEthernet,
    /// The next hop does not reply to ARP or neighbour discovery.
    NeighbourSilent,
    /// The kernel did not reply, or a state was not reached, in time.
    Timeout,
    /// The kernel's reply could not be parsed.
    Protocol,
    /// Any other error of the operating system; see [`NetError::errno`].
    Kernel,
}

impl NetError {
    /// An error with this cause and its usual advice.
    #[must_use]
    pub(crate) fn new(kind: NetErrorKind, operation: impl Into<String>) -> Self {
        Self(Box::new(Cause {
            kind,
            operation: operation.into(),
            interface: None,
            errno: None,
            detail: None,
            advice: Cow::Borrowed(usual_advice(kind)),
        }))
    }

    /// An error from the `errno` (positive) of a system call.
    #[must_use]
    pub(crate) fn from_errno(operation: impl Into<String>, errno: i32) -> Self {
        let mut error = Self::new(kind_of(errno), operation);
        error.0.errno = Some(errno);
        match open_files_advice(errno) {
            Some(advice) => error.advise(advice),
            None => error,
        }
    }

    /// An error of the standard library.
    #[must_use]
    pub(crate) fn from_io(operation: impl Into<String>, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::from_errno(operation, errno),
            None => Self::new(NetErrorKind::Kernel, operation).detail(error.to_string()),
        }
    }

    /// Sets the interface of the request.
    #[must_use]
    pub(crate) fn on(mut self, interface: impl Into<String>) -> Self {
        self.0.interface = Some(interface.into());
        self
    }

    /// Adds details of the cause.
    #[must_use]
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Replaces the usual advice by more specific advice.
    #[must_use]
    pub(crate) fn advise(mut self, advice: impl Into<Cow<'static, str>>) -> Self {
        self.0.advice = advice.into();
        self
    }

    /// The cause.
    #[must_use]
    pub fn kind(&self) -> NetErrorKind {
        self.0.kind
    }

    /// The error number of the operating system, positive, if it came from there.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }

    /// The interface of the request, if there is one.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.0.interface.as_deref()
    }

    /// Advice, one sentence without a full stop.
    #[must_use]
    pub fn advice(&self) -> &str {
        &self.0.advice
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.0.operation)?;
        if let Some(interface) = &self.0.interface {
            write!(f, " on {interface}")?;
        }
        match self.0.errno {
            Some(errno) => write!(f, ": {}", io::Error::from_raw_os_error(errno))?,
            None => write!(f, ": {}", meaning(self.0.kind))?,
        }
        if let Some(detail) = &self.0.detail {
            write!(f, " ({detail})")?;
        }
        write!(f, "; {}", self.0.advice)
    }
}

impl std::error::Error for NetError {}

/// The cause that an error number implies.
fn kind_of(errno: i32) -> NetErrorKind {
    match errno {
        libc::EPERM | libc::EACCES => NetErrorKind::Permission,
        libc::ENODEV | libc::ENOENT | libc::ENXIO | libc::EADDRNOTAVAIL => NetErrorKind::NotFound,
        libc::EEXIST => NetErrorKind::AlreadyExists,
        libc::EINVAL | libc::ERANGE => NetErrorKind::Invalid,
        libc::EOPNOTSUPP | libc::EAFNOSUPPORT => NetErrorKind::Unsupported,
        libc::ENETUNREACH | libc::EHOSTUNREACH => NetErrorKind::NoRoute,
        _ => NetErrorKind::Kernel,
    }
}

fn meaning(kind: NetErrorKind) -> &'static str {
    match kind {
        NetErrorKind::Permission => "not permitted",
        NetErrorKind::NotFound => "it does not exist",
        NetErrorKind::AlreadyExists => "it already exists",
        NetErrorKind::Invalid => "the request is not valid",
        NetErrorKind::Unsupported => "it is not supported",
        NetErrorKind::NoRoute => "no route leads there",
        NetErrorKind::OtherInterface => "the route leaves through another interface",
        NetErrorKind::Loopback => "it is an address of this host",
        NetErrorKind::NotUnicast => "it is not a unicast address",
        NetErrorKind::ScopeNeeded => "a link-local address requires an interface",
        NetErrorKind::NotEthernet => "the interface does not carry Ethernet frames",
        NetErrorKind::NeighbourSilent => "the next hop does not reply",
        NetErrorKind::Timeout => "it did not happen in time",
        NetErrorKind::Protocol => "the kernel's reply could not be parsed",
        NetErrorKind::Kernel => "the operating system refused",
    }
}

fn usual_advice(kind: NetErrorKind) -> &'static str {
    match kind {
        NetErrorKind::Permission => {
            "run it as root, or with CAP_NET_ADMIN (namespaces also need CAP_SYS_ADMIN)"
        }
        NetErrorKind::NotFound => "check the name with `ip link` and `ip netns`",
        NetErrorKind::AlreadyExists => "choose another name, or remove the old one first",
        NetErrorKind::Invalid => "check the arguments",
        NetErrorKind::Unsupported => "check the kernel's configuration and the driver",
        NetErrorKind::NoRoute => "check the address, and the routes with `ip route get ADDRESS`",
        NetErrorKind::OtherInterface => "name that interface, or add a route through this one",
        NetErrorKind::Loopback => "use the address of another host or namespace",
        NetErrorKind::NotUnicast => "use the address of one host",
        NetErrorKind::ScopeNeeded => "name the interface that leads there",
        NetErrorKind::NotEthernet => "use an Ethernet interface",
        NetErrorKind::NeighbourSilent => {
            "check that the peer is up, on the same link and has this address"
        }
        NetErrorKind::Timeout => "try again; if it stays, look at `ip link` and the kernel log",
        NetErrorKind::Protocol => "report it with the kernel's version",
        NetErrorKind::Kernel => "see the kernel log (`dmesg`)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_errno__cause_and_number() {
        let error = NetError::from_errno("set the MTU to 9000", libc::EPERM).on("sw0");
        assert_eq!(error.kind(), NetErrorKind::Permission);
        assert_eq!(error.errno(), Some(libc::EPERM));
        assert_eq!(error.interface(), Some("sw0"));
    }

    #[test]
    fn from_errno__without_files_left_names_the_limit() {
        let error = NetError::from_errno("open a netlink socket", libc::EMFILE);
        assert!(error.advice().contains("ulimit -n"), "{error}");
        assert!(NetError::from_errno("", libc::EIO).advice().contains("dmesg"));
    }

    #[test]
    fn from_io__without_errno_keeps_the_text() {
        let error = NetError::from_io("read", &io::Error::other("broken in two"));
        assert_eq!(error.kind(), NetErrorKind::Kernel);
        assert!(error.to_string().contains("broken in two"));
    }

    #[test]
    fn display__has_request_interface_cause_and_advice() {
        let error = NetError::from_errno("set the MTU to 9", libc::EINVAL)
            .on("sw0")
            .detail("mtu less than device minimum")
            .advise("use at least 68");
        assert_eq!(
            error.to_string(),
            "cannot set the MTU to 9 on sw0: Invalid argument (os error 22) \
             (mtu less than device minimum); use at least 68"
        );
    }

    #[test]
    fn display__describes_causes_without_errno() {
        let error = NetError::new(NetErrorKind::Loopback, "reach 127.0.0.1");
        assert_eq!(
            error.to_string(),
            "cannot reach 127.0.0.1: it is an address of this host; \
             use the address of another host or namespace"
        );
    }
}
