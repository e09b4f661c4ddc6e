//! The wire protocol of a reliable connection, and the options of SR.

use crate::coding::ErasureCoding;
use crate::config::{MIN_REORDER_PKTS, SEGMENT_BYTES};
use spanwire_loadbalance::Choice;

/// The wire protocol of a reliable connection with its options. Both ends must agree on it before
/// ([`Agreed::wire`](crate::Agreed::wire)); the verbs are the same.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Wire {
    /// RoCEv2 Reliable Connection, as adapters implement it: in order, go-back-N.
    #[default]
    Rc,
    /// Selective repeat: data are placed in any order and only lost packets are retransmitted
    /// (docs/protocol/sr.md, "What is different from RC"). Memory is written in any order as well:
    /// a write that must come later is fenced, or follows a completion.
    Sr(SrOptions),
}

/// A [`Wire`] without its options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WireMode {
    /// [`Wire::Rc`].
    #[default]
    Rc,
    /// [`Wire::Sr`].
    Sr,
}

/// The options of SR.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SrOptions {
    /// Payload bytes of a full packet, 64..=65280, limited by the path
    /// ([`Offer::segment_bytes`](crate::Offer::segment_bytes)). By default the path MTU. Each end
    /// chooses its own.
    pub segment_bytes: Option<u32>,
    /// Packets beyond the lowest missing one that the peer accepts, as both ends agreed
    /// ([`SrTerms::reorder_pkts`](crate::SrTerms::reorder_pkts)), at least 256: the PSN limit until
    /// the first ACK. By default 256; a lower value than the peer's costs a round trip.
    pub peer_reorder_pkts: u32,
    /// Packets have an ICRC, and it is checked; true by default. Without, its four bytes are zero
    /// and not looked at: nothing but a checksum of the layers below detects a corrupted packet.
    /// Both ends must agree on it ([`SrFeature::NoIcrc`](crate::SrFeature::NoIcrc)).
    pub icrc: bool,
    /// FEC of the data sent; none by default. Only if the peer accepts blocks
    /// ([`SrFeature::Block`](crate::SrFeature::Block)); other peers drop them. Reception needs no
    /// option.
    pub erasure: Option<ErasureCoding>,
    /// Load balancing: the path of each packet. By default the address vector's source port.
    pub balance: Option<Balance>,
    /// Feedback of switches (pseudo-ACKs) is requested: data carry the own QPN, and full packets
    /// are four bytes shorter. Only if the peer accepts it
    /// ([`SrFeature::Near`](crate::SrFeature::Near)); false by default.
    pub near: bool,
    /// The peer knows MLCC ([`SrFeature::Mlcc`](crate::SrFeature::Mlcc)): its acknowledgements may
    /// carry a credit, and if congestion control uses credits and `near` is set, data request
    /// telemetry of version 2. Otherwise such an algorithm is replaced by `hpcc`. False by default.
    pub credit: bool,
}

/// Load balancing of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Balance {
    /// The policy with its parameters.
    pub choice: Choice,
    /// Seed of all random choices, combined with the QPN.
    pub seed: u64,
}

impl WireMode {
    /// The name in set-up messages and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Sr => "sr",
        }
    }
}

impl Wire {
    /// The protocol without its options.
    #[must_use]
    pub const fn mode(&self) -> WireMode {
        match self {
            Self::Rc => WireMode::Rc,
            Self::Sr(_) => WireMode::Sr,
        }
    }

    /// The options of SR; none of RC.
    #[must_use]
    pub const fn sr(&self) -> Option<&SrOptions> {
        match self {
            Self::Rc => None,
            Self::Sr(options) => Some(options),
        }
    }

    /// As [`Wire::sr`], to change them.
    #[must_use]
    pub const fn sr_mut(&mut self) -> Option<&mut SrOptions> {
        match self {
            Self::Rc => None,
            Self::Sr(options) => Some(options),
        }
    }
}

/// With the default options.
impl From<WireMode> for Wire {
    fn from(mode: WireMode) -> Self {
        match mode {
            WireMode::Rc => Self::Rc,
            WireMode::Sr => Self::Sr(SrOptions::default()),
        }
    }
}

impl SrOptions {
    /// The first option outside its range.
    pub(crate) fn out_of_range(&self) -> Option<&'static str> {
        let ranges = [
            ("segment_bytes", self.segment_bytes.is_none_or(|n| SEGMENT_BYTES.contains(&n))),
            ("peer_reorder_pkts", self.peer_reorder_pkts >= MIN_REORDER_PKTS),
            ("erasure", self.erasure.is_none_or(|coding| coding.is_valid())),
            ("balance", self.balance.is_none_or(|b| b.choice.validate().is_ok())),
        ];
        ranges.into_iter().find(|(_, is_valid)| !is_valid).map(|(name, _)| name)
    }
}

impl Default for SrOptions {
    fn default() -> Self {
        Self {
            segment_bytes: None,
            peer_reorder_pkts: MIN_REORDER_PKTS,
            icrc: true,
            erasure: None,
            balance: None,
            near: false,
            credit: false,
        }
    }
}
