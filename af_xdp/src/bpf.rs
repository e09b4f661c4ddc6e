//! The kernel's side of steering: the XSKMAP, the program and its link to an interface, by
//! `bpf(2)` alone.
//!
//! Everything is held by a descriptor: when the process ends, however it ends, the kernel detaches
//! the program and the interface is as it was. Nothing is pinned.

use crate::error::{Error, Place, Step};
use crate::steer::{self, Traffic};
use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A map from receive queue to AF_XDP socket (`BPF_MAP_TYPE_XSKMAP`).
#[derive(Debug)]
pub struct XskMap(OwnedFd);

/// A loaded XDP program.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// A program attached to an interface; dropping it detaches.
#[derive(Debug)]
pub struct Link {
    _fd: OwnedFd,
}

/// Where in the kernel an XDP program runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttachMode {
    /// In the driver, before there is a socket buffer.
    Native,
    /// In the stack, on any interface ("SKB mode"). Slower, and the socket copies.
    Generic,
}

/// What a program said of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The frame is dropped because the program failed.
    Aborted,
    /// The frame is dropped.
    Drop,
    /// The frame goes on to the kernel's stack.
    Pass,
    /// The frame leaves by the interface it came from.
    Transmit,
    /// The frame goes where the map says: to a socket.
    Redirect,
    /// A number this crate does not know.
    Other(u32),
}

impl XskMap {
    /// A map of `slots` slots, all empty. Slot `n` takes the socket of receive queue `n`.
    ///
    /// # Errors
    /// [`Error::Os`]; `EPERM` without CAP_BPF, `EINVAL` for no slots.
    pub fn new(slots: u32) -> Result<Self, Error> {
        let mut attr = MapCreate {
            map_type: MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: slots,
            map_flags: 0,
        };
        // SAFETY: the block holds no addresses.
        let fd = unsafe { sys::bpf(MAP_CREATE, &mut attr) }
            .map_err(|error| Error::os(Step::CreateMap, Place::default(), error))?;
        // SAFETY: the descriptor was made by the call above.
        Ok(Self(unsafe { sys::own(fd) }))
    }

    /// A map made elsewhere: a privileged helper may create and attach, and pass the descriptor to
    /// a process that has CAP_NET_RAW only.
    ///
    /// # Safety
    /// `fd` must be an XSKMAP, with keys and values of four bytes: the kernel reads as many bytes
    /// from our stack as the map says.
    #[must_use]
    pub unsafe fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Steers receive queue `slot` to `socket`, which must be bound to that queue.
    ///
    /// # Errors
    /// [`Error::Os`]; `E2BIG` when the map has no such slot.
    pub fn set(&self, slot: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let value = socket.as_raw_fd();
        let mut attr = MapElement {
            map_fd: self.0.as_raw_fd(),
            pad: 0,
            key: address_of(&slot),
            value: address_of(&value),
            flags: 0,
        };
        // SAFETY: key and value are four bytes each, as the map was made, and live on this stack.
        unsafe { sys::bpf(MAP_UPDATE_ELEM, &mut attr) }
            .map(drop)
            .map_err(|error| Error::os(Step::UpdateMap, slot_place(slot), error))
    }

    /// Empties a slot: the queue's frames go to the kernel again. Emptying an empty slot is fine.
    ///
    /// # Errors
    /// [`Error::Os`]; `EINVAL` when the map has no such slot.
    pub fn clear(&self, slot: u32) -> Result<(), Error> {
        let mut attr = MapElement {
            map_fd: self.0.as_raw_fd(),
            pad: 0,
            key: address_of(&slot),
            value: 0,
            flags: 0,
        };
        // SAFETY: the key is four bytes, as the map was made, and lives on this stack.
        match unsafe { sys::bpf(MAP_DELETE_ELEM, &mut attr) } {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                Err(Error::os(Step::UpdateMap, slot_place(slot), error))
            }
            _ => Ok(()),
        }
    }
}

impl AsFd for XskMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Program {
    /// Loads the steering program for `traffic` over `map`.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn steer(map: &XskMap, traffic: Traffic) -> Result<Self, Error> {
        let fd = u32::try_from(map.0.as_raw_fd()).expect("an open descriptor is not negative");
        Self::load(&steer::steer_for(traffic, fd))
    }

    /// Loads an XDP program that copes with frames in several buffers, so that it may be attached
    /// at any MTU.
    ///
    /// # Arguments
    /// - `insns`: the instructions as little-endian words of `struct bpf_insn`, map descriptors in
    ///   place.
    ///
    /// # Errors
    /// [`Error::Verifier`] with the kernel's explanation; `EPERM` without CAP_BPF and
    /// CAP_NET_ADMIN.
    pub fn load(insns: &[u64]) -> Result<Self, Error> {
        match load(insns, &mut []) {
            Ok(fd) => Ok(Self(fd)),
            Err(source) if source.raw_os_error() == Some(libc::EPERM) => {
                Err(Error::os(Step::LoadProgram, Place::default(), source))
            }
            Err(_) => {
                // Once more, this time asking why: the log slows a load that succeeds.
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
        // SAFETY: `data_in` is `data_size_in` bytes, borrowed for the call; nothing is written but
        // the block.
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

/// Loads with a log of the verifier, or without one when `log` is empty.
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

fn slot_place(slot: u32) -> Place {
    Place { ifindex: None, queue: Some(slot) }
}

fn address_of<T>(value: &T) -> u64 {
    sys::u64_from(std::ptr::from_ref(value).expose_provenance())
}

fn address_of_slice<T>(values: &[T]) -> u64 {
    sys::u64_from(values.as_ptr().expose_provenance())
}

fn address_of_bytes(bytes: &[u8]) -> u64 {
    address_of_slice(bytes)
}

// The forms of `union bpf_attr` that are used, field for field (uapi/linux/bpf.h). The kernel takes
// shorter blocks than it knows and reads the rest as zero.

#[repr(C)]
#[derive(Clone, Copy)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MapElement {
    map_fd: RawFd,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
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
#[derive(Clone, Copy)]
struct LinkCreate {
    prog_fd: RawFd,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
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

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`: the program copes with multi-buffer frames (Linux 5.18).
const XDP_HAS_FRAGS: u32 = 1 << 5;
const FLAGS_SKB_MODE: u32 = 1 << 1;
const FLAGS_DRV_MODE: u32 = 1 << 2;

/// What the program declares; helpers reserved for the GPL are not used, but the kernel refuses an
/// empty string.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// Enough for the last few states of a program of this size.
const VERIFIER_LOG_LEN: usize = 64 * 1024;
