//! The reasons for which a received frame is dropped.

use core::fmt;

/// The reason for which [`Packet::parse`](crate::Packet::parse) rejects a frame.
///
/// Checks run from the outermost layer inwards and stop at the first failure, so one frame has one
/// reason. Some reasons are no fault: another protocol's frame ([`DropReason::is_not_roce`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropReason {
    /// The frame ends inside the Ethernet header.
    EthernetTooShort,
    /// The EtherType is neither IPv4 nor IPv6 (a VLAN tag counts as another EtherType).
    NotIp,
    /// The frame ends inside the IP header, or before the end that the IP header gives.
    IpTooShort,
    /// The IP version does not agree with the EtherType.
    BadIpVersion,
    /// The IP length fields leave no room for their own header.
    BadIpLength,
    /// The IPv4 header has options: this implementation defines no ICRC over them.
    IpOptions,
    /// The IPv4 header checksum is wrong.
    BadIpChecksum,
    /// A fragment, or the reserved bit among IPv4's flags is set.
    IpFragment,
    /// The IP payload is not UDP (IPv6: the next header of the fixed header is not UDP).
    NotUdp,
    /// The IP payload ends inside the UDP header.
    UdpTooShort,
    /// The UDP destination port is not 4791.
    NotRoce,
    /// The UDP length is not the length of the IP payload.
    BadUdpLength,
    /// The UDP payload has no room for a BTH and an ICRC.
    BthTooShort,
    /// The transport header version is not 0.
    BadTver,
    /// The opcode is not one of [`Opcode`](crate::Opcode).
    UnknownOpcode,
    /// The packet ends inside the extension headers that its opcode requires.
    ExtTooShort,
    /// The pad count does not make the payload a multiple of four bytes, or exceeds it.
    BadPad,
    /// There is a payload after an opcode that carries none.
    UnexpectedPayload,
    /// The invariant CRC is wrong: a field that no router may change was changed.
    BadIcrc,
    /// The version of an SR header is not supported.
    SrVersion,
    /// An SR header has an unknown part.
    SrFeature,
    /// An SR header has an unknown kind or reason, parts that its kind does not allow, or a bitmap
    /// word that begins within a word.
    SrKind,
}

impl DropReason {
    /// Every reason, in the order of [`DropReason::index`].
    pub const ALL: &'static [Self] = &[
        Self::EthernetTooShort,
        Self::NotIp,
        Self::IpTooShort,
        Self::BadIpVersion,
        Self::BadIpLength,
        Self::IpOptions,
        Self::BadIpChecksum,
        Self::IpFragment,
        Self::NotUdp,
        Self::UdpTooShort,
        Self::NotRoce,
        Self::BadUdpLength,
        Self::BthTooShort,
        Self::BadTver,
        Self::UnknownOpcode,
        Self::ExtTooShort,
        Self::BadPad,
        Self::UnexpectedPayload,
        Self::BadIcrc,
        Self::SrVersion,
        Self::SrFeature,
        Self::SrKind,
    ];

    /// The number of reasons: the length of an array of counters.
    pub const COUNT: usize = Self::ALL.len();

    /// Its place in an array of [`DropReason::COUNT`] counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of its counter, in `snake_case`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EthernetTooShort => "ethernet_too_short",
            Self::NotIp => "not_ip",
            Self::IpTooShort => "ip_too_short",
            Self::BadIpVersion => "bad_ip_version",
            Self::BadIpLength => "bad_ip_length",
            Self::IpOptions => "ip_options",
            Self::BadIpChecksum => "bad_ip_checksum",
            Self::IpFragment => "ip_fragment",
            Self::NotUdp => "not_udp",
            Self::UdpTooShort => "udp_too_short",
            Self::NotRoce => "not_roce",
            Self::BadUdpLength => "bad_udp_length",
            Self::BthTooShort => "bth_too_short",
            Self::BadTver => "bad_tver",
            Self::UnknownOpcode => "unknown_opcode",
            Self::ExtTooShort => "ext_too_short",
            Self::BadPad => "bad_pad",
            Self::UnexpectedPayload => "unexpected_payload",
            Self::BadIcrc => "bad_icrc",
            Self::SrVersion => "sr_version",
            Self::SrFeature => "sr_feature",
            Self::SrKind => "sr_kind",
        }
    }

    /// True if the frame belongs to another protocol rather than being a malformed RoCE packet.
    #[must_use]
    pub const fn is_not_roce(self) -> bool {
        matches!(self, Self::NotIp | Self::NotUdp | Self::NotRoce)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for DropReason {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all__is_in_the_order_of_index() {
        for (i, r) in DropReason::ALL.iter().enumerate() {
            assert_eq!(r.index(), i);
        }
        // SrKind is the last variant. This fails if a variant follows it, or is missing in ALL.
        assert_eq!(DropReason::SrKind.index() + 1, DropReason::COUNT);
    }

    #[test]
    fn name__is_unique_snake_case() {
        let mut names: Vec<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        for n in &names {
            assert!(n.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'), "{n}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::COUNT);
    }
}
