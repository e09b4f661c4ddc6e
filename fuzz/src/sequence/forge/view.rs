//! The forger's knowledge.

use crate::sequence::memory::Memory;
use crate::sequence::outgoing::Outgoing;
use spanwire_wire::{Psn, Qpn};

/// The forger's knowledge of the queue pair.
pub(in crate::sequence) struct View<'a> {
    pub(in crate::sequence) qpn: Qpn,
    /// The PSN that our responder expects.
    pub(in crate::sequence) epsn: Psn,
    /// The oldest unacknowledged PSN of our requester, and the next to send.
    pub(in crate::sequence) snd_una: Psn,
    pub(in crate::sequence) snd_nxt: Psn,
    pub(in crate::sequence) memory: &'a Memory,
    /// The queue pair runs SR, and the same numbers for SR.
    pub(in crate::sequence) is_sr: bool,
    pub(in crate::sequence) sr_first: u32,
    pub(in crate::sequence) sr_next: u32,
    pub(in crate::sequence) sr_snd_una: u32,
    pub(in crate::sequence) sr_snd_nxt: u32,
    pub(in crate::sequence) outgoing: &'a Outgoing,
    /// The credit of our last acknowledgement; 0 without one.
    pub(in crate::sequence) credit: u32,
    pub(in crate::sequence) now_ps: u64,
}
