//! Map, program and link of one interface, held together.

use crate::bpf::{AttachMode, Link, Program, XskMap};
use crate::error::Error;
use crate::socket::{Refusal, Socket};
use crate::steer::Traffic;
use std::os::fd::AsFd;

/// A steering program attached to one interface, with the map that says which queue goes to
/// which socket. Dropping it gives all traffic back to the kernel.
#[derive(Debug)]
pub struct Steering {
    map: XskMap,
    mode: AttachMode,
    // Order matters: the link goes before what it runs.
    _link: Link,
    _program: Program,
}

impl Steering {
    /// Loads the steering program and attaches it to an interface in the first mode that works.
    /// Also says which modes were refused before, and why.
    ///
    /// # Arguments
    /// - `slots`: receive queues that can be registered, `0..slots`.
    /// - `traffic`: which frames of a registered queue go to its socket.
    /// - `modes`: the modes to try, best first.
    ///
    /// # Errors
    /// The refusal of the last mode. A cause that every mode shares (no privilege, another program
    /// attached) ends the search at once.
    pub fn attach(
        ifindex: u32,
        slots: u32,
        traffic: Traffic,
        modes: &[AttachMode],
    ) -> Result<(Self, Vec<Refusal<AttachMode>>), Error> {
        let map = XskMap::new(slots)?;
        let program = Program::steer(&map, traffic)?;
        let mut refused = Vec::new();
        for (n, &mode) in modes.iter().enumerate() {
            match program.attach(ifindex, mode) {
                Ok(link) => {
                    let steering = Self { map, mode, _link: link, _program: program };
                    return Ok((steering, refused));
                }
                Err(error) if n + 1 == modes.len() || !is_about_the_mode(&error) => {
                    return Err(error);
                }
                Err(error) => refused.push(Refusal { mode, error }),
            }
        }
        Err(Error::config("modes", "no mode to try"))
    }

    /// Where the program runs.
    #[must_use]
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Steers a queue to the socket bound to it.
    ///
    /// # Errors
    /// [`Error::Os`]; `E2BIG` when there is no such slot.
    pub fn register(&self, queue: u32, socket: &Socket) -> Result<(), Error> {
        self.map.set(queue, socket.as_fd())
    }

    /// Gives a queue back to the kernel.
    ///
    /// # Errors
    /// [`Error::Os`]; `EINVAL` when there is no such slot.
    pub fn unregister(&self, queue: u32) -> Result<(), Error> {
        self.map.clear(queue)
    }

    /// The map, for instance to hand its descriptor to another process.
    #[must_use]
    pub fn map(&self) -> &XskMap {
        &self.map
    }
}

/// Whether another attach mode may fare better.
fn is_about_the_mode(error: &Error) -> bool {
    let shared = [libc::EPERM, libc::EACCES, libc::EBUSY, libc::EEXIST, libc::ENODEV];
    error.errno().is_some_and(|errno| !shared.contains(&errno))
}
