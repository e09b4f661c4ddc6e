//! The path entropy of a packet.

/// Path entropy: 14 bits that become a packet's UDP source port, and for IPv6 its flow label.
///
/// Switches hash it with the addresses: two packets with the same entropy take the same links; with
/// different entropies they may take different ones.
///
/// # Source
/// The fold of a flow label to a port is rdma-core's `ibv_flow_label_to_udp_sport`; every RoCEv2
/// sender uses the ports from 0xc000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Entropy(u16);

impl Entropy {
    /// The number of entropies.
    pub const COUNT: u16 = 1 << BITS;

    /// The lower 14 bits of `bits`.
    #[must_use]
    pub const fn new(bits: u16) -> Self {
        Self(bits & MASK)
    }

    /// The entropy of a UDP source port, whose upper two bits are ignored.
    #[must_use]
    pub const fn from_port(port: u16) -> Self {
        Self::new(port)
    }

    /// The entropy of the low 20 bits of `label`, an IPv6 flow label or one derived from QPNs.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "only the lower 14 bits are kept")]
    pub const fn from_flow_label(label: u32) -> Self {
        let label = label & 0xf_ffff;
        Self::new((label ^ (label >> BITS)) as u16)
    }

    /// The 14 bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The UDP source port, 0xc000..=0xffff.
    #[must_use]
    pub const fn port(self) -> u16 {
        PORT_BASE | self.0
    }

    /// The flow label, 20 bits, that folds to [`Entropy::port`]. Never zero, which would mean none.
    #[must_use]
    pub const fn flow_label(self) -> u32 {
        (1 << BITS) | (self.0 ^ 1) as u32
    }
}

const BITS: u32 = 14;
const MASK: u16 = (1 << BITS) - 1;
const PORT_BASE: u16 = !MASK;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_flow_label__folds_as_rdma_core_does() {
        for (label, port) in
            [(0, 0xc000), (1, 0xc001), (0x4000, 0xc001), (0xf_ffff, 0xffc0), (0x1_2345, 0xe341)]
        {
            assert_eq!(Entropy::from_flow_label(label).port(), port, "{label:#x}");
        }
        assert_eq!(Entropy::from_flow_label(0xfff0_0001), Entropy::from_flow_label(1), "20 bits");
    }

    #[test]
    fn flow_label__folds_to_the_port() {
        for bits in 0..Entropy::COUNT {
            let entropy = Entropy::new(bits);
            let label = entropy.flow_label();
            assert!(label != 0 && label < 1 << 20);
            assert_eq!(Entropy::from_flow_label(label), entropy);
            assert_eq!(Entropy::from_port(entropy.port()), entropy);
        }
    }
}
