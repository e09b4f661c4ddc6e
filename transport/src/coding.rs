//! Erasure coding (FEC) of a queue pair.

use spanwire_base::Dur;
use spanwire_erasure::{Code, Scheme};
use spanwire_wire::BLOCK_PKTS_MAX;

/// Erasure coding of the data that one queue pair sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErasureCoding {
    /// Source packets of a full block, 1..=62.
    pub data: u8,
    /// Parity packets of every block, 1..=32; with the source packets at most 64.
    pub parity: u8,
    /// The code. PQ is for one or two parity packets.
    pub scheme: Scheme,
    /// The condition for coding.
    pub when: CodingWhen,
    /// Adaptive parity, by the measured loss: minimum and maximum number of parity packets,
    /// starting with `parity` (rule: [`parity_for`](spanwire_erasure::parity_for)).
    pub adaptive: Option<(u8, u8)>,
}

/// The condition for coding, evaluated at the start of each block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodingWhen {
    /// Always.
    Always,
    /// While the base RTT (without queues) is at least this long: as given with congestion control,
    /// or the minimum RTT. Not before one is known.
    BaseRtt(Dur),
}

impl ErasureCoding {
    /// Blocks of `data` source and `parity` parity packets, always coded, with the fastest scheme.
    #[must_use]
    pub fn new(data: u8, parity: u8) -> Self {
        let scheme = Scheme::for_parity(parity.into());
        Self { data, parity, scheme, when: CodingWhen::Always, adaptive: None }
    }

    /// The same, coded only if the base RTT is longer than that of a data centre:
    /// [`ErasureCoding::AUTO_BASE_RTT`].
    #[must_use]
    pub fn auto(self) -> Self {
        Self { when: CodingWhen::BaseRtt(Self::AUTO_BASE_RTT), ..self }
    }

    /// The same with adaptive parity, `least..=most` packets a block.
    #[must_use]
    pub fn adaptive(self, least: u8, most: u8) -> Self {
        let scheme =
            if self.scheme == Scheme::PQ { Scheme::for_parity(most.into()) } else { self.scheme };
        Self { scheme, adaptive: Some((least, most)), ..self }
    }

    /// 0.5 ms. Uno's two classes have 14 us and 2 ms (Table 2); 50 km of fibre, both ways, take 0.5
    /// ms.
    pub const AUTO_BASE_RTT: Dur = Dur::from_us(500);

    /// The maximum number of parity packets of a block.
    pub(crate) fn parity_max(&self) -> u8 {
        self.adaptive.map_or(self.parity, |(_, most)| most.max(self.parity))
    }

    /// The parameters are valid; `modify_qp` refuses others.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let most = self.parity_max();
        let least = self.adaptive.map_or(self.parity, |(least, _)| least.min(self.parity));
        let code = Code::new(self.scheme, self.data.into(), most.into());
        least > 0 && code.is_ok() && u16::from(self.data) + u16::from(most) <= BLOCK_PKTS_MAX.into()
    }
}

impl Default for ErasureCoding {
    /// Uno's blocks: eight source and two parity packets.
    fn default() -> Self {
        Self::new(8, 2)
    }
}
