//! The kernel half of steering: the program and its link to an interface, by `bpf(2)` alone. The
//! maps that it reads are in [`crate::maps`].
//!
//! Descriptors hold everything and nothing is pinned. When the process ends for any reason, the
//! kernel detaches the program and restores the interface.

use crate::error::{Error, Place, Step};
use crate::maps::{AddressMap, XskMap};
use crate::steer::{self, Maps};
use crate::sys;
use bytemuck::{Pod, Zeroable};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A loaded XDP program.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// A program attached to an interface; dropping it detaches.
#[derive(Debug)]
pub struct Link {
    _fd: OwnedFd,
}

/// The hook of an XDP program in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttachMode {
    /// In the driver, before there is a socket buffer.
    Native,
    /// In the stack, on any interface ("SKB mode"). Slower, and the socket copies.
    Generic,
}

/// The verdict of a program on a frame (`enum xdp_action`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The frame is dropped because the program failed.
    Aborted,
    /// The frame is dropped.
    Drop,
    /// The frame is passed to the kernel's stack.
    Pass,
    /// The frame leaves through the interface that it arrived on.
    Transmit,
    /// The frame is redirected to a map entry: a socket.
    Redirect,
    /// A verdict unknown to this crate.
    Other(u32),
}

impl Program {
    /// Loads the program that steers RoCEv2 to the addresses in one map to the sockets in the
    /// other.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn steer_roce(sockets: &XskMap, addresses: &AddressMap) -> Result<Self, Error> {
        let (xsks, addresses) = (number(sockets.as_fd()), number(addresses.as_fd()));
        Self::load(&steer::steer_for(Maps::RoceV2 { xsks, addresses }))
    }

    /// Loads the program that steers every frame to the sockets of a map.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn steer_all(sockets: &XskMap) -> Result<Self, Error> {
        Self::load(&steer::steer_for(Maps::All { xsks: number(sockets.as_fd()) }))
    }

    /// Loads an XDP program that supports multi-buffer frames, so that it may be attached at any
    /// MTU.
    ///
    /// # Arguments
    /// - `insns`: the instructions as little-endian words of `struct bpf_insn`, map descriptors in
    ///   place.
    ///
    /// # Errors
    /// [`Error::Verifier`] with the verifier's log; `EPERM` without CAP_BPF and CAP_NET_ADMIN.
    pub fn load(insns: &[u64]) -> Result<Self, Error> {
        match load(insns, &mut []) {
            Ok(fd) => Ok(Self(fd)),
            Err(source) if source.raw_os_error() == Some(libc::EPERM) => {
                Err(Error::os(Step::LoadProgram, Place::default(), source))
            }
            Err(_) => {
                // Loads it again with a log; without a failure the log would only slow the load.
                let mut log = vec![0; VERIFIER_LOG_LEN];
                load(insns, &mut log).map(Self).map_err(|source| {
                    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
                    let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
                    Error::Verifier { source, log }
                })
            }
        }
    }

    /// Attaches the program to an interface of this thread's network namespace.
    ///
    /// # Errors
    /// [`Error::Os`]; `EBUSY` or `EEXIST` when a program is attached already, `EOPNOTSUPP` or
    /// `EINVAL` when the driver has no native mode.
    pub fn attach(&self, ifindex: u32, mode: AttachMode) -> Result<Link, Error> {
        let mut attr = LinkCreate {
            prog_fd: self.0.as_raw_fd(),
            target_ifindex: ifindex,
            attach_type: ATTACH_TYPE_XDP,
            flags: match mode {
                AttachMode::Native => FLAGS_DRV_MODE,
                AttachMode::Generic => FLAGS_SKB_MODE,
            },
        };
        // SAFETY: the block holds no addresses.
        let fd = unsafe { sys::bpf(LINK_CREATE, &mut attr) }
            .map_err(|error| Error::os(Step::Attach, Place::interface(ifindex), error))?;
        // SAFETY: the descriptor was made by the call above.
        let fd = unsafe { sys::own(fd) };
        Ok(Link { _fd: fd })
    }

    /// Runs the program on one frame without an interface (`BPF_PROG_TEST_RUN`), as if it had
    /// arrived on queue 0.
    ///
    /// # Errors
    /// [`Error::Os`]; `EINVAL` for fewer than 14 bytes.
    pub fn verdict(&self, frame: &[u8]) -> Result<Verdict, Error> {
        let mut attr = TestRun {
            prog_fd: self.0.as_raw_fd(),
            retval: 0,
            data_size_in: u32::try_from(frame.len())
                .map_err(|_| Error::config("frame", "longer than 4 GiB"))?,
            data_size_out: 0,
            data_in: address_of_bytes(frame),
            data_out: 0,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: `data_in` is `data_size_in` bytes, borrowed for the call; the kernel writes only
        // to the block.
        unsafe { sys::bpf(PROG_TEST_RUN, &mut attr) }
            .map_err(|error| Error::os(Step::RunProgram, Place::default(), error))?;
        Ok(match attr.retval {
            0 => Verdict::Aborted,
            1 => Verdict::Drop,
            2 => Verdict::Pass,
            3 => Verdict::Transmit,
            4 => Verdict::Redirect,
            other => Verdict::Other(other),
        })
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AttachMode {
    /// "native" or "generic".
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// Loads with a verifier log, or without one if `log` is empty.
fn load(insns: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attr = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: u32::try_from(insns.len()).map_err(io::Error::other)?,
        insns: address_of_slice(insns),
        license: address_of_bytes(LICENSE.to_bytes_with_nul()),
        log_level: u32::from(!log.is_empty()),
        log_size: u32::try_from(log.len()).map_err(io::Error::other)?,
        log_buf: if log.is_empty() {
            0
        } else {
            sys::u64_from(log.as_mut_ptr().expose_provenance())
        },
        kern_version: 0,
        prog_flags: XDP_HAS_FRAGS,
        prog_name: *b"spanwire_steer\0\0",
        prog_ifindex: 0,
        expected_attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: `insns` holds `insn_cnt` instructions of eight bytes, the licence is terminated, and
    // the kernel writes at most `log_size` bytes to `log`, borrowed mutably for the call.
    let fd = unsafe { sys::bpf(PROG_LOAD, &mut attr) }?;
    // SAFETY: the descriptor was made by the call above.
    Ok(unsafe { sys::own(fd) })
}

/// A descriptor as the immediate of an instruction.
fn number(fd: BorrowedFd<'_>) -> u32 {
    u32::try_from(fd.as_raw_fd()).expect("an open descriptor is not negative")
}

fn address_of_slice<T>(values: &[T]) -> u64 {
    sys::u64_from(values.as_ptr().expose_provenance())
}

fn address_of_bytes(bytes: &[u8]) -> u64 {
    address_of_slice(bytes)
}

// The variants of `union bpf_attr` in use, field for field (uapi/linux/bpf.h). The kernel accepts
// shorter blocks and treats the rest as zero.

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct LinkCreate {
    prog_fd: RawFd,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct TestRun {
    prog_fd: RawFd,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`: the program supports multi-buffer frames (Linux 5.18).
const XDP_HAS_FRAGS: u32 = 1 << 5;
const FLAGS_SKB_MODE: u32 = 1 << 1;
const FLAGS_DRV_MODE: u32 = 1 << 2;

/// The program's licence. It uses no GPL-only helpers, but the kernel rejects an empty string.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// Enough for the verifier's last few states of a program of this size.
const VERIFIER_LOG_LEN: usize = 64 * 1024;
