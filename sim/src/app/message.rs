//! The messages of a flow. Both ends derive them from the flow and the seed.

use crate::workload::FlowOp;
use spanwire_base::{Rng, u32_from, usize_from};
use spanwire_transport::WcOpcode;

/// The messages of one flow, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) op: FlowOp,
    /// Bytes of the whole flow; a mix carries about half of them.
    pub(crate) bytes: u64,
    /// Longest message, at least 8.
    pub(crate) message_bytes: u32,
    /// Longest message that a mix sends inline.
    pub(crate) inline_bytes: u32,
    /// Maximum outstanding messages. In a mix at least every second message is signaled.
    pub(crate) outstanding: u32,
    /// Elements of each message's scatter-gather list; an atomic has one.
    pub(crate) sges: u32,
    /// Seed of the mix and of the bytes.
    pub(crate) seed: u64,
}

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) len: u32,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) inline: bool,
    pub(crate) fence: bool,
}

/// The operation of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Write,
    WriteImm,
    Send,
    SendImm,
    Read,
    FetchAdd,
    CmpSwap,
}

impl Plan {
    /// Number of messages.
    pub(crate) fn count(&self) -> u64 {
        self.bytes.div_ceil(self.message_bytes.into())
    }

    /// Message `i`, below [`Plan::count`].
    pub(crate) fn message(&self, i: u64) -> Message {
        let is_last = i + 1 == self.count();
        let rest = self.bytes - i * u64::from(self.message_bytes);
        let len = u32_from(usize_from(rest.min(self.message_bytes.into())));
        let (signaled, solicited, inline, fence) = (true, false, false, false);
        let plain = |kind| Message { kind, len, signaled, solicited, inline, fence };
        match self.op {
            FlowOp::Write if is_last => plain(Kind::WriteImm),
            FlowOp::Write => plain(Kind::Write),
            FlowOp::Send => plain(Kind::Send),
            FlowOp::Read => plain(Kind::Read),
            FlowOp::Mix => self.mixed(i, is_last),
        }
    }

    /// The first message from `i` on that consumes a receive request, if any.
    pub(crate) fn next_received(&self, i: u64) -> Option<u64> {
        match self.op {
            FlowOp::Write => Some(self.count() - 1).filter(|last| i <= *last),
            FlowOp::Read => None,
            FlowOp::Send | FlowOp::Mix => {
                (i..self.count()).find(|i| self.message(*i).kind.is_received())
            }
        }
    }

    /// Number of messages that consume a receive request.
    pub(crate) fn received_count(&self) -> u64 {
        match self.op {
            FlowOp::Write => 1,
            FlowOp::Read => 0,
            FlowOp::Send => self.count(),
            FlowOp::Mix => {
                let all = (0..self.count()).filter(|i| self.message(*i).kind.is_received());
                spanwire_base::u64_from(all.count())
            }
        }
    }

    /// Bytes of all messages together.
    pub(crate) fn total_bytes(&self) -> u64 {
        match self.op {
            FlowOp::Mix => (0..self.count()).map(|i| u64::from(self.message(i).len)).sum(),
            _ => self.bytes,
        }
    }

    /// Seed of the stream that message `i` carries.
    pub(crate) fn pattern_seed(&self, i: u64) -> u64 {
        self.seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn mixed(&self, i: u64, is_last: bool) -> Message {
        let mut rng = Rng::new(self.pattern_seed(i) ^ MIX);
        let kind = match rng.below(10) {
            // The last message has immediate data, so that it consumes a receive and the receiver
            // detects the end.
            _ if is_last => Kind::SendImm,
            0..2 => Kind::Write,
            2 => Kind::WriteImm,
            3..5 => Kind::Send,
            5 => Kind::SendImm,
            6..8 => Kind::Read,
            8 => Kind::FetchAdd,
            _ => Kind::CmpSwap,
        };
        let longest = u64::from(self.message_bytes) + 1;
        let len = match rng.below(8) {
            _ if kind.is_atomic() => 8,
            0 => rng.below(2),
            1..3 => rng.below(longest.min(600)),
            _ => rng.below(longest),
        };
        let len = u32_from(usize_from(len));
        let may_inline = !kind.is_rd_atomic() && len <= self.inline_bytes;
        Message {
            kind,
            len,
            // An unsignaled request's slot is reusable only after a later signaled one completes.
            signaled: is_last || self.outstanding < 2 || i % 2 == 1 || rng.below(3) > 0,
            solicited: kind.is_received() && rng.below(2) == 0,
            inline: may_inline && rng.below(2) == 0,
            fence: rng.below(8) == 0,
        }
    }
}

impl Kind {
    /// True if it consumes a receive request.
    pub(crate) const fn is_received(self) -> bool {
        matches!(self, Self::WriteImm | Self::Send | Self::SendImm)
    }

    /// True if it carries immediate data.
    pub(crate) const fn has_imm(self) -> bool {
        matches!(self, Self::WriteImm | Self::SendImm)
    }

    /// True if it writes to an address that the requester names.
    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm)
    }

    pub(crate) const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CmpSwap)
    }

    pub(crate) const fn is_rd_atomic(self) -> bool {
        self.is_atomic() || matches!(self, Self::Read)
    }

    /// The opcode of its completion at the requester.
    pub(crate) const fn opcode(self) -> WcOpcode {
        match self {
            Self::Write | Self::WriteImm => WcOpcode::RdmaWrite,
            Self::Send | Self::SendImm => WcOpcode::Send,
            Self::Read => WcOpcode::RdmaRead,
            Self::FetchAdd => WcOpcode::FetchAdd,
            Self::CmpSwap => WcOpcode::CompSwap,
        }
    }
}

/// Separates the draws of the mix from those of the bytes.
const MIX: u64 = 0x6d69_785f_6f66_5f77;

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(op: FlowOp, bytes: u64) -> Plan {
        Plan { op, bytes, message_bytes: 1000, inline_bytes: 100, outstanding: 4, sges: 1, seed: 7 }
    }

    #[test]
    fn message__of_a_plain_flow_cover_its_bytes() {
        for op in [FlowOp::Write, FlowOp::Send, FlowOp::Read] {
            for bytes in [1, 999, 1000, 1001, 5500] {
                let p = plan(op, bytes);
                let sum: u64 = (0..p.count()).map(|i| u64::from(p.message(i).len)).sum();
                assert_eq!((sum, p.total_bytes()), (bytes, bytes));
            }
        }
        let p = plan(FlowOp::Write, 2500);
        let kinds = [0, 1, 2].map(|i| p.message(i).kind);
        assert_eq!(kinds, [Kind::Write, Kind::Write, Kind::WriteImm]);
        assert_eq!((p.next_received(0), p.received_count()), (Some(2), 1));
        assert_eq!(plan(FlowOp::Read, 5).next_received(0), None);
    }

    #[test]
    fn message__of_a_mix_reach_everything_and_stay_inside() {
        let p = plan(FlowOp::Mix, 1_000_000);
        let all: Vec<Message> = (0..p.count()).map(|i| p.message(i)).collect();
        for kind in [
            Kind::Write,
            Kind::WriteImm,
            Kind::Send,
            Kind::SendImm,
            Kind::Read,
            Kind::FetchAdd,
            Kind::CmpSwap,
        ] {
            assert!(all.iter().any(|m| m.kind == kind), "{kind:?}");
        }
        assert!(all.iter().any(|m| m.inline) && all.iter().any(|m| m.fence));
        assert!(all.iter().any(|m| m.len == 0) && all.iter().all(|m| m.len <= 1000));
        assert!(all.iter().all(|m| !m.inline || (m.len <= 100 && !m.kind.is_rd_atomic())));
        assert!(all.windows(2).all(|w| w.iter().any(|m| m.signaled)));
        assert_eq!(all.last().unwrap().kind, Kind::SendImm);
        let received = all.iter().filter(|m| m.kind.is_received()).count();
        assert_eq!(p.received_count(), spanwire_base::u64_from(received));
        assert_ne!(p.message(3), Plan { seed: 8, ..p }.message(3));
    }
}
