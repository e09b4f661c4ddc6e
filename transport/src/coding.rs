//! Which erasure code a queue pair sends by.

use spanwire_base::Dur;
use spanwire_erasure::{Code, Scheme};
use spanwire_wire::BLOCK_PKTS_MAX;

/// Erasure coding of what one queue pair sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErasureCoding {
    /// Data packets of a whole block, 1..=62.
    pub data: u8,
    /// Parity packets of every block, 1..=32; with the data at most 64.
    pub parity: u8,
    /// How parity is made. PQ is for one or two parity packets.
    pub scheme: Scheme,
    /// When.
    pub when: CodingWhen,
    /// Follow the loss that is measured: at least the first and at most the second number of parity
    /// packets, with `parity` to begin with
    /// ([`parity_for`](spanwire_erasure::parity_for) is the rule).
    pub adaptive: Option<(u8, u8)>,
}

/// When blocks are coded; decided as each begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodingWhen {
    /// Always.
    Always,
    /// While the round trip without queues is at least this long: as given with congestion control,
    /// or the smallest that was measured. Not before one is known.
    BaseRtt(Dur),
}

impl ErasureCoding {
    /// Blocks of so many data and parity packets, always, by the scheme that is fastest.
    #[must_use]
    pub fn new(data: u8, parity: u8) -> Self {
        let scheme = Scheme::for_parity(parity.into());
        Self { data, parity, scheme, when: CodingWhen::Always, adaptive: None }
    }

    /// The same where the round trip is beyond that of a data centre:
    /// [`ErasureCoding::AUTO_BASE_RTT`].
    #[must_use]
    pub fn auto(self) -> Self {
        Self { when: CodingWhen::BaseRtt(Self::AUTO_BASE_RTT), ..self }
    }

    /// The same with parity that follows the loss that is measured, `least..=most` packets a block.
    #[must_use]
    pub fn adaptive(self, least: u8, most: u8) -> Self {
        let scheme =
            if self.scheme == Scheme::PQ { Scheme::for_parity(most.into()) } else { self.scheme };
        Self { scheme, adaptive: Some((least, most)), ..self }
    }

    /// 0.5 ms: of Uno's two classes one has 14 us and one 2 ms (Table 2), and 50 km of fibre there
    /// and back are 0.5 ms.
    pub const AUTO_BASE_RTT: Dur = Dur::from_us(500);

    /// The most parity packets that a block may have.
    pub(crate) fn parity_max(&self) -> u8 {
        self.adaptive.map_or(self.parity, |(_, most)| most.max(self.parity))
    }

    /// There are such blocks; others are refused by `modify_qp`.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let most = self.parity_max();
        let least = self.adaptive.map_or(self.parity, |(least, _)| least.min(self.parity));
        let code = Code::new(self.scheme, self.data.into(), most.into());
        least > 0 && code.is_ok() && u16::from(self.data) + u16::from(most) <= BLOCK_PKTS_MAX.into()
    }
}

impl Default for ErasureCoding {
    /// Uno's: eight data packets and two of parity.
    fn default() -> Self {
        Self::new(8, 2)
    }
}
