//! The steering of one interface: maps, program and link.

use crate::bpf::{AttachMode, Link, Program};
use crate::error::Error;
use crate::fallback::{RejectedMode, first_mode};
use crate::maps::{AddressMap, XskMap};
use crate::socket::{BUSY_TIMEOUT, Socket, while_busy};
use crate::steer::Traffic;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Parameters of attaching a steering program. The fields are independent; [`SteeringConfig::new`]
/// gives defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SteeringConfig {
    /// Index of the interface, in the network namespace of the thread that attaches.
    pub ifindex: u32,
    /// Receive queues that can be registered, `0..slots`. Default 1.
    pub slots: u32,
    /// The frames of a registered queue that are steered to its socket. Default
    /// [`Traffic::RoceV2`].
    pub traffic: Traffic,
    /// The modes to try, best first. Default: native, then generic.
    pub modes: &'static [AttachMode],
    /// Maximum local addresses of [`Steering::set_addresses`], 1..=65536; each takes 100 bytes of
    /// kernel memory. Default 1024: a host of containers has some hundred.
    pub addresses_max: u32,
    /// How long to retry while another program is attached. Default 10 s: the kernel detaches a
    /// program some time after its process was killed.
    pub busy_timeout: Duration,
}

/// A steering program attached to one interface, with its maps of sockets and local addresses.
/// Dropping it returns all traffic to the kernel.
#[derive(Debug)]
pub struct Steering {
    map: XskMap,
    addresses: Option<Arc<AddressMap>>,
    mode: AttachMode,
    // Drop order: the link before the program that it runs.
    _link: Link,
    _program: Program,
}

impl SteeringConfig {
    /// The defaults for an interface.
    #[must_use]
    pub fn new(ifindex: u32) -> Self {
        Self {
            ifindex,
            slots: 1,
            traffic: Traffic::RoceV2,
            modes: &[AttachMode::Native, AttachMode::Generic],
            addresses_max: 1024,
            busy_timeout: BUSY_TIMEOUT,
        }
    }

    fn check(&self) -> Result<(), Error> {
        if self.modes.is_empty() {
            return Err(Error::config("modes", "no mode to try"));
        }
        if !(1..=ADDRESSES_MAX).contains(&self.addresses_max) {
            let reason = format!("{} is not in 1..={ADDRESSES_MAX}", self.addresses_max);
            return Err(Error::config("addresses_max", reason));
        }
        Ok(())
    }
}

impl Steering {
    /// Loads the steering program and attaches it to an interface in the first mode that succeeds.
    /// Also returns the modes refused before, with their errors.
    ///
    /// With [`Traffic::RoceV2`] no frame is steered before [`Steering::set_addresses`].
    ///
    /// # Errors
    /// [`Error::Config`], or the error of the last mode. An error common to all modes is returned
    /// at once: no privilege, or another program attached for longer than `busy_timeout`.
    pub fn attach(config: &SteeringConfig) -> Result<(Self, Vec<RejectedMode<AttachMode>>), Error> {
        config.check()?;
        let map = XskMap::new(config.slots)?;
        let (program, addresses) = match config.traffic {
            Traffic::RoceV2 => {
                let addresses = AddressMap::new(config.addresses_max)?;
                (Program::steer_roce(&map, &addresses)?, Some(Arc::new(addresses)))
            }
            Traffic::All => (Program::steer_all(&map)?, None),
        };
        let attach_in = |mode| {
            let attach = || program.attach(config.ifindex, mode);
            while_busy(config.busy_timeout, is_busy, attach).map(|link| (mode, link))
        };
        let ((mode, link), rejected) = first_mode(config.modes, is_about_the_mode, attach_in)?;
        Ok((Self { map, addresses, mode, _link: link, _program: program }, rejected))
    }

    /// Steers RoCEv2 to exactly these addresses from the next frame on. Returns how many exceed
    /// `addresses_max` and were left out: the last ones. Has no effect with [`Traffic::All`].
    ///
    /// # Errors
    /// [`Error::Os`].
    pub fn set_addresses(
        &self,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<usize, Error> {
        self.addresses.as_ref().map_or(Ok(0), |map| map.replace(addresses))
    }

    /// The map of local addresses, to change it from another thread. `None` with [`Traffic::All`].
    #[must_use]
    pub fn addresses(&self) -> Option<&Arc<AddressMap>> {
        self.addresses.as_ref()
    }

    /// The mode that the program is attached in.
    #[must_use]
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Steers a queue to its socket.
    ///
    /// # Errors
    /// [`Error::Os`]; `E2BIG` if there is no such slot.
    pub fn register(&self, queue: u32, socket: &Socket) -> Result<(), Error> {
        self.map.set(queue, socket.as_fd())
    }

    /// Returns a queue to the kernel.
    ///
    /// # Errors
    /// [`Error::Os`]; `EINVAL` if there is no such slot.
    pub fn unregister(&self, queue: u32) -> Result<(), Error> {
        self.map.clear(queue)
    }

    /// The XSKMAP, for instance to pass its descriptor to another process.
    #[must_use]
    pub fn map(&self) -> &XskMap {
        &self.map
    }
}

/// True if another program is attached, possibly one of a killed process that the kernel is about
/// to detach.
fn is_busy(error: &Error) -> bool {
    error.errno().is_some_and(|errno| errno == libc::EBUSY || errno == libc::EEXIST)
}

/// True if another attach mode may succeed.
fn is_about_the_mode(error: &Error) -> bool {
    let shared = [libc::EPERM, libc::EACCES, libc::EBUSY, libc::EEXIST, libc::ENODEV];
    error.errno().is_some_and(|errno| !shared.contains(&errno))
}

/// Above the addresses of any host; bounds the map to some megabytes.
const ADDRESSES_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(change: impl FnOnce(&mut SteeringConfig)) -> String {
        let mut config = SteeringConfig::new(1);
        change(&mut config);
        config.check().expect_err("refused").to_string()
    }

    #[test]
    fn check__names_the_field_and_the_rule() {
        SteeringConfig::new(1).check().expect("defaults are valid");
        assert!(error_of(|c| c.modes = &[]).starts_with("modes: "));
        assert!(error_of(|c| c.addresses_max = 0).starts_with("addresses_max: 0 is not in 1..="));
        assert!(error_of(|c| c.addresses_max = 1 << 17).starts_with("addresses_max: "));
    }
}
