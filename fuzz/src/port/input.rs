//! An input as numbers, and constants of both halves of the port.

use spanwire_io::udp::PacketChecksum;
use std::fs::File;
use std::os::fd::OwnedFd;

/// The bytes that are left; zeros follow them.
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn half(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A number below `n`, which is at most 256.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    pub(super) fn bit(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// The next bytes, at most `len`.
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// A descriptor in place of a socket.
pub(super) fn null() -> OwnedFd {
    File::open("/dev/null").expect("every system has it").into()
}

/// The ICRC.
pub(super) const ICRC: PacketChecksum = PacketChecksum {
    prefix: spanwire_wire::icrc_prefix,
    residue: spanwire_wire::icrc_residue,
    change: spanwire_wire::icrc_change,
};

/// Frame lengths of ports: of the least MTU, of Ethernet, of jumbo frames, and of the loopback.
pub(super) const ROOMS: [usize; 4] = [14 + 1280, 14 + 1500, 14 + 9000, 14 + 65_535];
