//! AF_XDP sockets on Linux over `libc` and raw `bpf(2)`: no libbpf, no libxdp, no clang, no BTF.
//!
//! - [`Umem`]: packet memory, its own or the caller's ([`UmemMemory`]). Each chunk has one
//!   move-only [`Frame`], and bytes are reached only through it. The type system thus prevents
//!   access to chunks that the kernel owns.
//! - [`Socket`]: the four rings ([`FillRing`], [`RxRing`], [`TxRing`], [`CompletionRing`]), bound
//!   zero-copy or, as a fallback, in copy mode; need-wakeup, multi-buffer packets and shared UMEMs.
//! - [`Steering`]: the program that steers UDP port 4791 (RoCEv2) to the addresses in an
//!   [`AddressMap`] to the sockets and passes all else to the kernel. It is attached in native mode
//!   or, as a fallback, in generic mode. Its source and its instructions are in [`mod@steer`];
//!   other programs load through [`Program::load`].
//!
//! Values written by the kernel are not trusted for memory safety: an invalid index or descriptor
//! is counted and skipped.
//!
//! # Privileges
//!
//! | operation | needs |
//! |---|---|
//! | [`Socket::bind`], UMEM up to RLIMIT_MEMLOCK | CAP_NET_RAW |
//! | a larger UMEM | CAP_IPC_LOCK as well |
//! | [`XskMap::new`], [`AddressMap::new`] | CAP_BPF and CAP_NET_ADMIN |
//! | [`Program::load`], [`Program::attach`] | CAP_BPF and CAP_NET_ADMIN |
//! | [`XskMap::set`] through an inherited descriptor | nothing more |
//! | [`Socket::set_busy_poll`] | nothing more |
//! | [`Socket::set_prefer_busy_poll`], [`Socket::set_busy_poll_budget`] | CAP_NET_ADMIN |
//!
//! A privileged helper can thus attach and pass the map's descriptor ([`XskMap::from_fd`]) to a
//! process that has only CAP_NET_RAW.
//!
//! # Example
//!
//! ```no_run
//! use af_xdp::{Socket, SocketConfig, Steering, SteeringConfig, Umem};
//!
//! let ifindex = af_xdp::interface_index("eth0")?;
//! let (steering, rejected) = Steering::attach(&SteeringConfig::new(ifindex))?;
//! steering.set_addresses(["192.0.2.1".parse()?])?;
//! for tried in rejected {
//!     eprintln!("not {}: {}", tried.mode.as_str(), tried.error);
//! }
//!
//! let (umem, mut frames) = Umem::with_frames(256, 4096)?;
//! let (mut socket, _) = Socket::bind(&umem, &SocketConfig::new(ifindex, 0))?;
//! while let Some(frame) = frames.pop() {
//!     if let Err(frame) = socket.fill.push(frame) {
//!         frames.push(frame);
//!         break;
//!     }
//! }
//! socket.fill.publish();
//! steering.register(0, &socket)?;
//!
//! loop {
//!     while let Some(received) = socket.rx.pop() {
//!         println!("{} bytes", received.bytes(&umem).len());
//!         frames.push(received.into_frame());
//!     }
//!     socket.rx.release();
//!     while let Some(frame) = frames.pop() {
//!         if let Err(frame) = socket.fill.push(frame) {
//!             frames.push(frame);
//!             break;
//!         }
//!     }
//!     socket.fill.publish();
//!     if socket.fill.needs_wakeup() {
//!         socket.wake_rx()?;
//!     }
//! }
//! # #[expect(unreachable_code, reason = "the loop above does not end")]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!("this crate supports Linux on 64-bit little-endian machines only");

mod bpf;
mod cursor;
mod error;
mod fallback;
mod layout;
mod maps;
mod ring;
mod socket;
pub mod sockopt;
pub mod steer;
mod steering;
mod sys;
mod umem;

pub use bpf::{AttachMode, Link, Program, Verdict};
pub use error::{Error, Place, Step, open_files_advice};
pub use fallback::RejectedMode;
pub use maps::{AddressMap, XskMap};
pub use ring::{CompletionRing, FillRing, Received, RxRing, ToSend, TxRing};
pub use socket::{CopyMode, Kick, Socket, SocketConfig, Statistics};
pub use steer::Traffic;
pub use steering::{Steering, SteeringConfig};
pub use umem::{Frame, Umem, UmemMemory};

/// The index of an interface by name, in the network namespace of the calling thread.
///
/// # Errors
/// `ENODEV` if there is no such interface; `InvalidInput` for a name with a zero byte.
pub fn interface_index(name: &str) -> std::io::Result<u32> {
    let name = std::ffi::CString::new(name)?;
    sys::interface_index(&name)
}
