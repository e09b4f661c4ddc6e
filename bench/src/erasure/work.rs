//! The timed tasks: ours by kernel, and those of other crates.

use crate::sample::Error;
use reed_solomon_erasure::galois_8::ReedSolomon;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use spanwire_erasure::{Code, Columns, Kernel, Scheme};
use std::hint::black_box;

/// A task on a block of ten packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Task {
    /// Two parity packets, from all data at once.
    Encode,
    /// Two parity packets, a data packet at a time.
    Add,
    /// Two lost data packets, with a prepared plan.
    Decode,
    /// The same, with the plan computed for each block.
    PlanAndDecode,
}

/// A function that performs a task once.
pub type Work = Box<dyn FnMut()>;

impl Task {
    /// All tasks.
    pub const ALL: [Self; 4] = [Self::Encode, Self::Add, Self::Decode, Self::PlanAndDecode];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Encode => "encode",
            Self::Add => "encode, packet by packet",
            Self::Decode => "two lost, ready plan",
            Self::PlanAndDecode => "two lost, plan made",
        }
    }

    /// The corresponding code name of ISA-L's program. ISA-L's encoding packet by packet is not
    /// faster than encoding at once, so it is not included.
    #[must_use]
    pub fn of_isal(self) -> &'static str {
        match self {
            Self::Encode | Self::Add => "encode",
            Self::Decode => "decode",
            Self::PlanAndDecode => "plan-decode",
        }
    }
}

/// Our implementation of a task by a scheme on a kernel.
#[must_use]
pub fn ours(task: Task, scheme: Scheme, kernel: Kernel, bytes: usize) -> Work {
    let code = Code::new(scheme, X, Y).expect("both schemes have (8, 2)").with_kernel(kernel);
    let block = Packets::new(X + Y, bytes);
    let mut made = Packets::new(Y, bytes);
    let there = Columns::below(X).without(&LOST.into_iter().collect());
    let plan = move || code.recovery(X, black_box(there), 0b11).expect("two of ten are lost");
    let ready = plan();
    Box::new(move || {
        let block: [&[u8]; X + Y] = block.refs();
        let (data, parity) = black_box(&block).split_at(X);
        let made = &mut black_box(&mut made).refs_mut::<Y>();
        match task {
            Task::Encode => code.encode(data, made),
            Task::Add => {
                for (column, packet) in (0..).zip(data) {
                    code.add(column, packet, made);
                }
            }
            Task::Decode => black_box(&ready).write(data, parity, made),
            Task::PlanAndDecode => plan().write(data, parity, made),
        }
    })
}

/// The crate `reed-solomon-erasure`, with its C kernels; it caches plans.
///
/// # Errors
/// It rejects the task.
pub fn reed_solomon_erasure(task: Task, bytes: usize) -> Result<Option<Work>, Error> {
    let code = ReedSolomon::new(X, Y).map_err(|e| e.to_string())?;
    let block = Packets::new(X, bytes);
    let mut made = Packets::new(Y, bytes);
    let mut whole: Vec<Vec<u8>> = block.refs::<X>().map(<[u8]>::to_vec).into();
    whole.extend(vec![vec![0; bytes]; Y]);
    code.encode(&mut whole).map_err(|e| e.to_string())?;
    let mut shards: Vec<(Vec<u8>, bool)> = whole.into_iter().map(|shard| (shard, true)).collect();
    Ok(match task {
        Task::Encode => Some(Box::new(move || {
            let made = &mut black_box(&mut made).refs_mut::<Y>();
            let done = code.encode_sep(black_box(&block.refs::<X>()), made);
            done.expect("the same reconstruction succeeded before");
        })),
        Task::Decode => Some(Box::new(move || {
            for lost in LOST {
                shards[usize::from(lost)].1 = false;
            }
            code.reconstruct_data(black_box(&mut shards)).expect("two of ten are lost");
        })),
        Task::Add | Task::PlanAndDecode => None,
    })
}

/// The crate `reed-solomon-simd`, with another code: Leopard, for very many packets.
///
/// # Errors
/// It rejects the task.
pub fn reed_solomon_simd(task: Task, bytes: usize) -> Result<Option<Work>, Error> {
    let block = Packets::new(X, bytes);
    let mut encoder = ReedSolomonEncoder::new(X, Y, bytes)?;
    let mut encode = move |packets: &[&[u8]; X]| {
        for packet in packets {
            encoder.add_original_shard(packet).expect("packets of one length");
        }
        let result = encoder.encode().expect("all packets are present");
        result.recovery_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let parity = encode(&block.refs());
    let mut encoder = ReedSolomonEncoder::new(X, Y, bytes)?;
    let mut decoder = ReedSolomonDecoder::new(X, Y, bytes)?;
    Ok(match task {
        Task::Encode => Some(Box::new(move || {
            for packet in black_box(&block.refs::<X>()) {
                encoder.add_original_shard(packet).expect("packets of one length");
            }
            black_box(encoder.encode().expect("all packets are present"));
        })),
        Task::PlanAndDecode => Some(Box::new(move || {
            for (i, packet) in (0..).zip(black_box(&block.refs::<X>())) {
                if !LOST.contains(&i) {
                    decoder.add_original_shard(i.into(), packet).expect("a packet of its length");
                }
            }
            for (i, packet) in parity.iter().enumerate() {
                decoder.add_recovery_shard(i, packet).expect("a packet of its length");
            }
            black_box(decoder.decode().expect("two of ten are lost"));
        })),
        Task::Add | Task::Decode => None,
    })
}

/// Contiguous packets from the start of a page, as in ISA-L's program.
struct Packets {
    memory: Vec<u8>,
    start: usize,
    stride: usize,
    bytes: usize,
}

impl Packets {
    fn new(count: usize, bytes: usize) -> Self {
        let stride = bytes.next_multiple_of(64);
        let byte = |i: usize| (i * 7).to_le_bytes()[0] ^ (i / 256).to_le_bytes()[0];
        let memory: Vec<u8> = (0..count * stride + PAGE).map(byte).collect();
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start, stride, bytes }
    }

    fn refs<const N: usize>(&self) -> [&[u8]; N] {
        std::array::from_fn(|i| &self.memory[self.start + i * self.stride..][..self.bytes])
    }

    fn refs_mut<const N: usize>(&mut self) -> [&mut [u8]; N] {
        let mut packets = self.memory[self.start..].chunks_exact_mut(self.stride);
        let bytes = self.bytes;
        std::array::from_fn(|_| {
            &mut packets.next().expect("the number of packets is constant")[..bytes]
        })
    }
}

/// Data packets of a block; the default code.
pub const X: usize = 8;
/// Parity packets.
pub const Y: usize = 2;
const LOST: [u8; 2] = [2, 5];
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all__every_task_runs() {
        for task in Task::ALL {
            for kernel in Kernel::available() {
                ours(task, Scheme::PQ, kernel, 130)();
                ours(task, Scheme::CAUCHY, kernel, 130)();
            }
            let others = [reed_solomon_erasure(task, 130), reed_solomon_simd(task, 130)];
            for work in others.map(Result::unwrap).iter_mut().flatten() {
                work();
                work();
            }
        }
    }
}
