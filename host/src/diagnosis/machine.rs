//! Checks of the machine: kernel, privileges, locked memory, UDP sockets, cores, clock.

use super::check::Check;
use crate::file;
use crate::window::{self, CC_WINDOW_PKTS};
use serde::Serialize;
use spanwire_io::clock::{Clock, ClockSource};
use spanwire_io::udp::probe_udp;
use spanwire_io::xdp::{XdpPreference, memlock_bytes, probe_socket};
use std::io;

/// Facts about the machine and this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostFacts {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The effective capabilities, one bit each.
    pub capabilities: u64,
    /// RLIMIT_MEMLOCK in bytes; `None` for no limit.
    pub memlock_bytes: Option<u64>,
    /// Cores that this process may run on.
    pub cores: usize,
    /// True if workers use the TSC as their clock.
    pub counts_ticks: bool,
    /// `kernel.unprivileged_bpf_disabled`; 0 permits unprivileged users to load some programs.
    pub unprivileged_bpf_disabled: Option<u8>,
    /// Error number of an attempt to create an AF_XDP socket (0 if the error has no number); `None`
    /// on success.
    pub socket_refused: Option<i32>,
    /// The features of UDP sockets; `None` if none can be made.
    pub udp: Option<UdpFacts>,
    /// Path of this program.
    pub program: String,
}

/// Facts about UDP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UdpFacts {
    /// Segments are sent and received several at once.
    pub offloads: bool,
    /// The receive buffer that the kernel grants, in bytes.
    pub receive_buffer: u32,
}

impl HostFacts {
    /// Gathers the facts.
    ///
    /// # Errors
    /// `/proc` cannot be read, or its content is not what this kernel documents.
    pub fn read() -> io::Result<Self> {
        let read = |path: &str| {
            file::read_kernel(path)
                .map_err(|e| io::Error::new(e.kind(), format!("cannot read {path}: {e}")))
        };
        let odd = |path: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{path} is not understood"))
        };
        let status = "/proc/self/status";
        let bpf = read("/proc/sys/kernel/unprivileged_bpf_disabled");
        let program = std::env::current_exe().map(|path| path.display().to_string());
        Ok(Self {
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            capabilities: effective_capabilities(&read(status)?).ok_or_else(|| odd(status))?,
            memlock_bytes: memlock_bytes(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            counts_ticks: Clock::start().source() == ClockSource::Tsc,
            unprivileged_bpf_disabled: bpf.ok().and_then(|text| text.trim().parse().ok()),
            socket_refused: probe_socket().err().map(|e| e.raw_os_error().unwrap_or(0)),
            udp: probe_udp().ok().map(|features| UdpFacts {
                offloads: features.segments && features.coalesces,
                receive_buffer: features.receive_buffer,
            }),
            program: program.unwrap_or_else(|_| "spanwire".to_owned()),
        })
    }

    /// The checks of these facts.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        vec![
            self.check_kernel(),
            self.check_socket(),
            self.check_capabilities(),
            self.check_memlock(),
            self.check_udp(),
            self.check_cores(),
            self.check_clock(),
        ]
    }

    fn check_kernel(&self) -> Check {
        let found = format!("Linux {}", self.kernel);
        match version(&self.kernel) {
            Some(v) if v < KERNEL_MIN => {
                let (major, minor) = KERNEL_MIN;
                let found =
                    format!("{found}: multi-buffer XDP programs begin with {major}.{minor}");
                self.without_xdp("kernel", found, "upgrade the kernel")
            }
            _ => Check::ok("kernel", found),
        }
    }

    fn check_socket(&self) -> Check {
        match self.socket_refused {
            None => Check::ok("af_xdp", "an AF_XDP socket can be made"),
            Some(libc::EAFNOSUPPORT) => self.without_xdp(
                "af_xdp",
                "this kernel has no AF_XDP sockets",
                "use a kernel with CONFIG_XDP_SOCKETS=y",
            ),
            Some(libc::EPERM | libc::EACCES) => {
                self.without_xdp("af_xdp", "making an AF_XDP socket is not permitted", self.grant())
            }
            Some(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                self.without_xdp("af_xdp", format!("no AF_XDP socket: {error}"), "see dmesg")
            }
        }
    }

    fn check_capabilities(&self) -> Check {
        let missing: Vec<&str> =
            NEEDED.iter().filter(|(bit, _)| !self.may(*bit)).map(|(_, name)| *name).collect();
        let unprivileged = match self.unprivileged_bpf_disabled {
            Some(0) => " (unprivileged BPF is on; it is no substitute)",
            _ => "",
        };
        if missing.is_empty() {
            return Check::ok("rights", "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF");
        }
        let found = format!("without {}{unprivileged}", missing.join(", "));
        self.without_xdp("rights", found, self.grant())
    }

    fn check_memlock(&self) -> Check {
        let limit = match self.memlock_bytes {
            _ if self.may(CAP_IPC_LOCK) => {
                return Check::ok("memlock", "CAP_IPC_LOCK: no limit on locked memory");
            }
            None => return Check::ok("memlock", "no limit on locked memory"),
            Some(limit) => limit,
        };
        let wanted = window::port("", 0, XdpPreference::Auto, Some(CC_WINDOW_PKTS));
        let needs = wanted.umem_bytes();
        let found = format!("{} KiB, a port needs {} MiB", limit >> 10, needs >> 20);
        let fix = format!("prlimit --pid $$ --memlock={needs}:{needs}");
        match wanted.within(limit) {
            Some(port) if port == wanted => Check::ok("memlock", found),
            Some(port) => {
                let (has, of) = (port.fill_size, wanted.fill_size);
                let uses = port.umem_bytes() >> 20;
                let found = format!(
                    "{found}: it uses {uses}, and receives {has} packets at once, not {of}"
                );
                Check::warn("memlock", found, fix)
            }
            None => self.without_xdp("memlock", found, fix),
        }
    }

    fn check_udp(&self) -> Check {
        let Some(UdpFacts { offloads, receive_buffer }) = self.udp else {
            return Check::fail("udp", "no UDP socket can be made", "see dmesg");
        };
        let buffer = format!("a receive buffer of {} KiB", receive_buffer >> 10);
        if !offloads {
            let found = format!("UDP sockets without segmentation offload, {buffer}");
            return Check::warn("udp", found, "upgrade the kernel to 5.0");
        }
        let found = format!("UDP sockets with segmentation offload, {buffer}");
        if receive_buffer < BUFFER_GOOD && self.is_without_xdp() {
            let fix = format!("sysctl -w net.core.rmem_max={}", BUFFER_GOOD / 2);
            return Check::warn("udp", format!("{found}, which limits windows"), fix);
        }
        Check::ok("udp", found)
    }

    fn check_cores(&self) -> Check {
        match self.cores {
            1 => Check::warn(
                "cores",
                "one: a worker that spins shares it with the kernel's receive half",
                "give this process a second core",
            ),
            n => Check::ok("cores", format!("{n}, of which each worker takes one")),
        }
    }

    /// Either clock is fine. The check informs users who compare pacing figures.
    fn check_clock(&self) -> Check {
        Check::ok(
            "clock",
            match self.counts_ticks {
                true => "the processor's counter (TSC), steered after CLOCK_MONOTONIC",
                false => {
                    "CLOCK_MONOTONIC: the processor's counter is not invariant, or not trusted"
                }
            },
        )
    }

    /// True if the process has `capability`. CAP_SYS_ADMIN implies CAP_BPF.
    fn may(&self, capability: u32) -> bool {
        let has = |bit: u32| self.capabilities >> bit & 1 == 1;
        has(capability) || capability == CAP_BPF && has(CAP_SYS_ADMIN)
    }

    /// AF_XDP is not possible on this machine or for this process.
    fn is_without_xdp(&self) -> bool {
        self.socket_refused.is_some() || NEEDED.iter().any(|(bit, _)| !self.may(*bit))
    }

    /// A check that AF_XDP fails. With UDP sockets Spanwire works nevertheless.
    fn without_xdp(
        &self,
        name: &'static str,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        match self.udp {
            Some(_) => Check::warn(name, format!("{}; UDP sockets work", found.into()), fix),
            None => Check::fail(name, found, fix),
        }
    }

    fn grant(&self) -> String {
        format!("setcap {CAPABILITIES}=ep {}  # or run as root", self.program)
    }
}

/// Capabilities that every command on AF_XDP needs, as setcap names them.
pub const CAPABILITIES: &str = "cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock";

/// The line `CapEff` of `/proc/PID/status`.
fn effective_capabilities(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

/// Major and minor of a kernel release such as `6.1.0-56-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

// linux/capability.h
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;
/// CAP_NET_RAW for the socket, CAP_NET_ADMIN and CAP_BPF for the steering program.
const NEEDED: [(u32, &str); 3] =
    [(CAP_NET_RAW, "CAP_NET_RAW"), (CAP_NET_ADMIN, "CAP_NET_ADMIN"), (CAP_BPF, "CAP_BPF")];
/// The steering program declares support for multi-buffer frames (`BPF_F_XDP_HAS_FRAGS`), which
/// older kernels reject.
const KERNEL_MIN: (u32, u32) = (5, 18);
/// A receive buffer as long as several bursts of a sender; half of it is requested of the kernel,
/// which grants twice the request.
const BUFFER_GOOD: u32 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::super::check::{Status, worst};
    use super::*;

    fn good() -> HostFacts {
        HostFacts {
            kernel: "6.18.0".to_owned(),
            capabilities: 1 << 12 | 1 << 13 | 1 << 39,
            memlock_bytes: Some(19 << 20),
            cores: 2,
            counts_ticks: true,
            unprivileged_bpf_disabled: Some(2),
            socket_refused: None,
            udp: Some(UdpFacts { offloads: true, receive_buffer: 8 << 20 }),
            program: "/opt/spanwire".to_owned(),
        }
    }

    fn only(facts: &HostFacts, status: Status) -> Check {
        let mut checks = facts.checks();
        checks.retain(|check| check.status == status);
        assert_eq!(checks.len(), 1, "{checks:?}");
        checks.remove(0)
    }

    #[test]
    fn read__this_machine() {
        let facts = HostFacts::read().expect("procfs is mounted");
        assert!(version(&facts.kernel).is_some_and(|v| v > (3, 0)), "{facts:?}");
        assert!(facts.cores >= 1 && facts.program.contains("spanwire"), "{facts:?}");
    }

    #[test]
    fn checks__a_good_machine() {
        assert_eq!(worst(&good().checks()), Status::Ok);
    }

    #[test]
    fn checks__the_kernel_is_too_old() {
        let facts = HostFacts { kernel: "5.15.0-91-generic".to_owned(), ..good() };
        assert_eq!(only(&facts, Status::Warn).name, "kernel");
        // A release that cannot be parsed is no failure.
        assert_eq!(worst(&HostFacts { kernel: "odd".to_owned(), ..good() }.checks()), Status::Ok);
    }

    #[test]
    fn checks__missing_rights_are_named_with_the_command() {
        let facts = HostFacts { capabilities: 1 << 13, ..good() };
        let check = only(&facts, Status::Warn);
        assert_eq!(check.found, "without CAP_NET_ADMIN, CAP_BPF; UDP sockets work");
        assert!(check.fix.is_some_and(|fix| fix.ends_with("=ep /opt/spanwire  # or run as root")));
        // CAP_SYS_ADMIN implies CAP_BPF.
        let facts = HostFacts { capabilities: 1 << 12 | 1 << 13 | 1 << 21, ..good() };
        assert_eq!(worst(&facts.checks()), Status::Ok);
    }

    #[test]
    fn checks__no_socket_and_why() {
        for (errno, word) in
            [(libc::EPERM, "permitted"), (libc::EAFNOSUPPORT, "no AF_XDP"), (libc::ENOMEM, "emory")]
        {
            let facts = HostFacts { socket_refused: Some(errno), ..good() };
            let check = only(&facts, Status::Warn);
            assert!(check.name == "af_xdp" && check.found.contains(word), "{check:?}");
        }
    }

    #[test]
    fn checks__without_af_xdp_and_udp_nothing_works() {
        let facts = HostFacts { capabilities: 0, udp: None, ..good() };
        let failed = facts.checks();
        let failed: Vec<_> = failed.iter().filter(|check| check.status == Status::Fail).collect();
        assert_eq!(failed.iter().map(|check| check.name).collect::<Vec<_>>(), ["rights", "udp"]);
    }

    #[test]
    fn checks__a_small_receive_buffer_matters_without_af_xdp() {
        let udp = Some(UdpFacts { offloads: true, receive_buffer: 425_984 });
        assert_eq!(worst(&HostFacts { udp, ..good() }.checks()), Status::Ok);
        let facts = HostFacts { udp, capabilities: 0, ..good() };
        let checks = facts.checks();
        let check = checks.iter().find(|check| check.name == "udp").expect("it is checked");
        assert_eq!(check.status, Status::Warn);
        assert!(check.found.contains("416 KiB"), "{check:?}");
        assert_eq!(check.fix.as_deref(), Some("sysctl -w net.core.rmem_max=2097152"));
        let udp = Some(UdpFacts { offloads: false, receive_buffer: 8 << 20 });
        assert_eq!(only(&HostFacts { udp, ..good() }, Status::Warn).name, "udp");
    }

    #[test]
    fn checks__which_clock() {
        let found = |counts_ticks| {
            let checks = HostFacts { counts_ticks, ..good() }.checks();
            checks.into_iter().find(|check| check.name == "clock").map(|check| check.found)
        };
        assert!(found(true).is_some_and(|text| text.contains("(TSC)")));
        assert!(found(false).is_some_and(|text| text.starts_with("CLOCK_MONOTONIC")));
    }

    #[test]
    fn checks__locked_memory() {
        let facts = HostFacts { memlock_bytes: Some(65_536), ..good() };
        let check = only(&facts, Status::Warn);
        assert_eq!(check.found, "64 KiB, a port needs 19 MiB; UDP sockets work");
        let lift = Some("prlimit --pid $$ --memlock=19922944:19922944");
        assert_eq!(check.fix.as_deref(), lift);
        let check = only(&HostFacts { memlock_bytes: Some(8 << 20), ..good() }, Status::Warn);
        let shorter = "8192 KiB, a port needs 19 MiB: it uses 7, and receives 1024 packets at \
                       once, not 4096";
        assert_eq!((&*check.found, check.fix.as_deref()), (shorter, lift));
        assert_eq!(worst(&HostFacts { memlock_bytes: None, ..good() }.checks()), Status::Ok);
        let capabilities = good().capabilities | 1 << 14;
        assert_eq!(worst(&HostFacts { capabilities, ..facts }.checks()), Status::Ok);
    }

    #[test]
    fn checks__one_core() {
        assert_eq!(only(&HostFacts { cores: 1, ..good() }, Status::Warn).name, "cores");
    }

    #[test]
    fn capabilities__are_those_that_the_tools_document_names() {
        let tools = include_str!("../../../docs/TOOLS.md");
        assert!(tools.contains(&format!("setcap {CAPABILITIES}=ep ")), "docs/TOOLS.md lacks them");
    }

    #[test]
    fn effective_capabilities__of_a_status_file() {
        let status = "Name:\tx\nCapPrm:\tffff\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n";
        assert_eq!(effective_capabilities(status), Some(0x1ff_ffff_ffff));
        assert_eq!(effective_capabilities("CapEff:\tx\n"), None);
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
    }

    #[test]
    fn version__of_many_releases() {
        assert_eq!(version("6.1.0-56-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.0"), Some((6, 18)));
        assert_eq!(version("5.15-rc1"), Some((5, 15)));
        assert_eq!(version("next"), None);
    }
}
