//! A block of packets, and losses in it.

use reed_solomon_erasure::galois_8::ReedSolomon;
use spanwire_erasure::{Code, Columns, Source};

/// The data and parity sent.
pub(crate) struct Block {
    code: Code,
    data: Vec<Vec<u8>>,
    parity: Vec<Vec<u8>>,
}

impl Block {
    /// Data packets of these lengths, at most as many as the code has.
    pub(crate) fn new(code: Code, lens: &[usize]) -> Self {
        let mut state = 1u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        let data: Vec<Vec<u8>> =
            lens.iter().map(|len| (0..*len).map(|_| byte()).collect()).collect();
        let longest = lens.iter().copied().max().unwrap_or(0);
        let mut parity = vec![vec![0; longest]; code.y()];
        let slices: Vec<&[u8]> = data.iter().map(|packet| &packet[..]).collect();
        code.encode(&slices, &mut parity);
        Self { code, data, parity }
    }

    /// The length of the longest packet.
    pub(crate) fn longest(&self) -> usize {
        self.parity[0].len()
    }

    /// Loses the packets of the bits of `lost`, data first, and recovers them.
    pub(crate) fn check(&self, lost: u64) {
        let x = self.data.len();
        let columns = (0..x).filter(|i| lost >> i & 1 != 0).map(|i| u8::try_from(i).unwrap());
        let parity = !u32::try_from(lost >> x).unwrap();
        self.check_losses(columns.collect(), parity);
    }

    /// Loses these data packets and all parity packets but the bits of `parity`, and recovers them.
    pub(crate) fn check_losses(&self, lost: Columns, parity: u32) {
        let available = Columns::below(self.data.len()).without(&lost);
        let recovery = self.code.recovery(self.data.len(), available, parity).unwrap();
        assert!(recovery.lost().iter().copied().eq(lost.iter()));
        let wanted: Vec<&Vec<u8>> = lost.iter().map(|i| &self.data[usize::from(i)]).collect();

        // At once. The buffers of lost packets hold arbitrary bytes.
        let rubbish = vec![0xaa; 5000];
        let data: Vec<&[u8]> = (0..)
            .zip(&self.data)
            .map(|(i, packet)| if lost.contains(i) { &rubbish[..] } else { packet })
            .collect();
        let rows: Vec<&[u8]> = (0..)
            .zip(&self.parity)
            .map(|(row, packet)| if parity >> row & 1 == 0 { &rubbish[..] } else { packet })
            .collect();
        let mut out: Vec<Vec<u8>> = wanted.iter().map(|packet| vec![0xee; packet.len()]).collect();
        recovery.write(&data, &rows, &mut out);
        assert!(out.iter().eq(wanted.iter().copied()), "{}: {lost:?} at once", self.code);

        // One by one, parity first and data in reverse order.
        let mut out: Vec<Vec<u8>> = wanted.iter().map(|packet| vec![0; packet.len()]).collect();
        for (row, packet) in (0u8..).zip(&self.parity).filter(|(row, _)| parity >> row & 1 != 0) {
            recovery.add(Source::Parity(row), packet, &mut out);
        }
        for (column, packet) in (0u8..).zip(&self.data).collect::<Vec<_>>().into_iter().rev() {
            if available.contains(column) {
                recovery.add(Source::Data(column), packet, &mut out);
            }
        }
        assert!(out.iter().eq(wanted.iter().copied()), "{}: {lost:?} one by one", self.code);
    }
}

/// Applies the same losses to the same data in the other implementation.
pub(crate) fn check_oracle(oracle: &ReedSolomon, block: &Block, lost: u64) {
    let (data, y) = (&block.data, block.parity.len());
    let len = block.parity[0].len();
    let padded = |packet: &Vec<u8>| [&packet[..], &vec![0; len - packet.len()]].concat();
    let empty = vec![vec![0; len]; oracle.data_shard_count() - data.len()];
    let mut sent: Vec<Vec<u8>> = data.iter().map(padded).chain(empty).collect();
    sent.extend(vec![vec![0; len]; y]);
    oracle.encode(&mut sent).unwrap();
    // Its shards are numbered with the data packets that a short block lacks.
    let absent = oracle.data_shard_count() - data.len();
    let kept = |i: usize| match i {
        i if i < data.len() => lost >> i & 1 == 0,
        i if i < oracle.data_shard_count() => true,
        i => lost >> (i - absent) & 1 == 0,
    };
    let mut arrived: Vec<Option<Vec<u8>>> =
        sent.iter().enumerate().map(|(i, shard)| kept(i).then(|| shard.clone())).collect();
    oracle.reconstruct(&mut arrived).unwrap();
    assert!(arrived.iter().map(|shard| shard.as_ref().unwrap()).eq(&sent));
}
