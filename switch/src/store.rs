//! Storage of the frames in a switch or on a line.
//!
//! Frames up to [`CHUNK_BYTES`] (headers, and every frame of a simulation without payload) are in
//! fixed contiguous chunks; longer ones in blocks of the longest frame's size. Both are reused: in
//! steady state nothing is allocated, and each is found by index.

use crate::agent::passing::SrData;
use spanwire_base::{Time, u32_from, usize_from};
use std::num::NonZeroU32;

/// The number of a frame in a [`Store`], from 1 on. The holder of the number owns the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameId(NonZeroU32);

/// The number of a block, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BlockId(NonZeroU32);

/// Metadata of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    /// Bytes in the store.
    pub(crate) len: u32,
    /// Elided bytes.
    pub(crate) elided_bytes: u32,
    /// When it arrived, or is to be sent.
    pub(crate) at: Time,
    /// Its ingress port.
    pub(crate) ingress: u8,
    /// Its traffic class, 0..8.
    pub(crate) class: u8,
    /// True if it is charged to its ingress port: see [`Buffer`](crate::buffer::Buffer).
    pub(crate) is_lossless: bool,
    /// True if it is SR data with a tag: [`Meta::sr`].
    pub(crate) is_sr: bool,
    /// The word of an agent for it; 0: none.
    pub(crate) tag: u32,
    /// Those of SR data with a tag.
    pub(crate) psn: u32,
    pub(crate) sent_ps: u64,
}

/// Frames by number.
#[derive(Debug)]
pub(crate) struct Store {
    slots: Vec<Slot>,
    /// A chunk for each slot.
    chunks: Vec<[u8; CHUNK_BYTES]>,
    /// Blocks for long frames.
    blocks: Vec<Box<[u8]>>,
    free_blocks: Vec<BlockId>,
    /// The first of a list of free slots.
    free: Option<FrameId>,
    max_frame_bytes: usize,
    used: u32,
}

/// A FIFO linked through the slots, without memory of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fifo {
    /// First and last.
    ends: Option<(FrameId, FrameId)>,
    /// Frames in it.
    pub(crate) pkts: u32,
    /// Their bytes on the wire.
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    meta: Meta,
    /// The next slot in the same list, free or queue.
    next: Option<FrameId>,
    block: Option<BlockId>,
}

impl Meta {
    /// Metadata of a frame without port and class.
    pub(crate) fn new(len: usize, elided_bytes: u32, at: Time) -> Self {
        let len = u32_from(len);
        Self {
            len,
            elided_bytes,
            at,
            ingress: 0,
            class: 0,
            is_lossless: false,
            is_sr: false,
            tag: 0,
            psn: 0,
            sent_ps: 0,
        }
    }

    /// Keeps what its arrival has shown, for an agent that gives it this tag; 0: for none.
    #[inline]
    pub(crate) fn note(&mut self, tag: u32, sr: Option<SrData>) {
        self.tag = tag;
        self.is_sr = sr.is_some();
        if let Some(SrData { psn, sent_ps }) = sr {
            (self.psn, self.sent_ps) = (psn, sent_ps);
        }
    }

    /// The fields of SR data, if it is that and has a tag.
    #[inline]
    pub(crate) fn sr(&self) -> Option<SrData> {
        let Self { psn, sent_ps, is_sr, .. } = *self;
        is_sr.then_some(SrData { psn, sent_ps })
    }

    /// Wire length of the frame.
    #[inline]
    pub(crate) fn wire_bytes(&self) -> u64 {
        crate::link::wire_bytes(usize_from(u64::from(self.len)), self.elided_bytes)
    }
}

impl Store {
    /// An empty store for frames of at most `max_frame_bytes`.
    pub(crate) fn new(max_frame_bytes: usize) -> Self {
        Self {
            slots: Vec::new(),
            chunks: Vec::new(),
            blocks: Vec::new(),
            free_blocks: Vec::new(),
            free: None,
            max_frame_bytes,
            used: 0,
        }
    }

    /// Copies a frame into the store.
    ///
    /// # Panics
    /// If it is longer than the store's maximum, or there are 2^32 of them: the callers check.
    pub(crate) fn insert(&mut self, frame: &[u8], meta: Meta) -> FrameId {
        assert!(frame.len() <= self.max_frame_bytes, "the caller has checked the length");
        let id = self.take_slot(meta);
        let slot = &mut self.slots[id.index()];
        match self.chunks[id.index()].get_mut(..frame.len()) {
            Some(chunk) => {
                slot.block = None;
                chunk.copy_from_slice(frame);
            }
            None => {
                let block = self.free_blocks.pop().unwrap_or_else(|| {
                    self.blocks.push(vec![0; self.max_frame_bytes].into_boxed_slice());
                    BlockId(number_of(self.blocks.len()))
                });
                slot.block = Some(block);
                self.blocks[block.index()][..frame.len()].copy_from_slice(frame);
            }
        }
        id
    }

    /// The metadata of a frame.
    #[inline]
    pub(crate) fn meta(&self, id: FrameId) -> &Meta {
        &self.slots[id.index()].meta
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn bytes(&self, id: FrameId) -> &[u8] {
        let slot = &self.slots[id.index()];
        let len = usize_from(u64::from(slot.meta.len));
        match slot.block {
            None => &self.chunks[id.index()][..len],
            Some(block) => &self.blocks[block.index()][..len],
        }
    }

    /// Truncates a frame to its first `len` bytes; it has no elided bytes afterwards.
    pub(crate) fn cut(&mut self, id: FrameId, len: usize) {
        let meta = &mut self.slots[id.index()].meta;
        assert!(u32_from(len) <= meta.len, "truncation does not lengthen");
        meta.len = u32_from(len);
        meta.elided_bytes = 0;
    }

    /// Its bytes, mutable.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, id: FrameId) -> &mut [u8] {
        let slot = &self.slots[id.index()];
        let len = usize_from(u64::from(slot.meta.len));
        match slot.block {
            None => &mut self.chunks[id.index()][..len],
            Some(block) => &mut self.blocks[block.index()][..len],
        }
    }

    /// Frees a frame's slot. The number is invalid afterwards.
    #[inline]
    pub(crate) fn remove(&mut self, id: FrameId) {
        let slot = &mut self.slots[id.index()];
        if let Some(block) = slot.block.take() {
            self.free_blocks.push(block);
        }
        slot.next = self.free.replace(id);
        self.used -= 1;
    }

    /// Number of frames.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    fn take_slot(&mut self, meta: Meta) -> FrameId {
        self.used += 1;
        if let Some(id) = self.free {
            let slot = &mut self.slots[id.index()];
            self.free = slot.next.take();
            slot.meta = meta;
            return id;
        }
        self.slots.push(Slot { meta, next: None, block: None });
        let id = FrameId(number_of(self.slots.len()));
        self.chunks.push([0; CHUNK_BYTES]);
        id
    }
}

impl Fifo {
    /// The first frame.
    pub(crate) fn head(&self) -> Option<FrameId> {
        self.ends.map(|(head, _)| head)
    }

    /// True if it has no frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    /// Appends a frame.
    pub(crate) fn push(&mut self, store: &mut Store, id: FrameId) {
        self.ends = Some(match self.ends {
            None => (id, id),
            Some((head, tail)) => {
                store.slots[tail.index()].next = Some(id);
                (head, id)
            }
        });
        self.pkts += 1;
        self.bytes += store.meta(id).wire_bytes();
    }

    /// Removes the first frame, which the caller then owns.
    pub(crate) fn pop(&mut self, store: &mut Store) -> Option<FrameId> {
        let (head, tail) = self.ends?;
        self.ends = store.slots[head.index()].next.take().map(|next| (next, tail));
        self.pkts -= 1;
        self.bytes -= store.meta(head).wire_bytes();
        Some(head)
    }
}

impl FrameId {
    #[inline]
    fn index(self) -> usize {
        usize_from(u64::from(self.0.get() - 1))
    }
}

impl BlockId {
    #[inline]
    fn index(self) -> usize {
        usize_from(u64::from(self.0.get() - 1))
    }
}

/// The number of the last of so many.
fn number_of(count: usize) -> NonZeroU32 {
    NonZeroU32::new(u32_from(count)).expect("there is one")
}

/// With what agents keep of a frame a slot is no larger than three quarters of a cache line.
const _: () = assert!(size_of::<Slot>() == 48);

/// Bytes of a chunk: the headers of any RoCE packet over IPv6 with a telemetry stack of five hops.
pub(crate) const CHUNK_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn meta(len: usize) -> Meta {
        Meta::new(len, 7, Time::ZERO)
    }

    #[test]
    fn insert__keeps_short_and_long_frames() {
        let mut store = Store::new(9_000);
        let lens = [0, 1, 60, 255, 256, 257, 1_500, 9_000];
        let fill = |len: usize| vec![u8::try_from(len % 251).unwrap(); len];
        let ids = lens.map(|len| store.insert(&fill(len), meta(len)));
        for (id, len) in ids.iter().zip(lens) {
            assert_eq!(store.bytes(*id), fill(len));
            assert_eq!(store.bytes_mut(*id).len(), len);
        }
        assert_eq!((store.used(), store.blocks.len()), (8, 3));
    }

    #[test]
    fn remove__makes_room_for_the_next() {
        let mut store = Store::new(2_000);
        for round in 0..100usize {
            let long = store.insert(&vec![1; 300 + round], meta(300 + round));
            let short = store.insert(&vec![2; round], meta(round));
            assert_eq!(store.bytes(short), vec![2; round]);
            store.remove(long);
            store.remove(short);
        }
        assert_eq!((store.slots.len(), store.blocks.len(), store.used()), (2, 1, 0));
    }

    #[test]
    #[should_panic(expected = "checked the length")]
    fn insert__asserts_the_length() {
        Store::new(100).insert(&[0; 101], meta(101));
    }

    #[test]
    fn cut__truncates_the_frame() {
        let mut store = Store::new(100);
        let id = store.insert(&[5; 90], meta(90));
        store.cut(id, 70);
        assert_eq!(store.bytes(id), [5; 70]);
        assert_eq!(store.meta(id).wire_bytes(), 70);
    }

    #[test]
    fn fifo__agrees_with_a_deque() {
        let mut rng = spanwire_base::Rng::new(4);
        let mut store = Store::new(600);
        let mut queues = [Fifo::default(); 3];
        let mut models: [VecDeque<Vec<u8>>; 3] = Default::default();
        for step in 0..20_000u32 {
            let q = usize_from(rng.below(3));
            if rng.below(2) == 0 {
                let mut frame = vec![0; usize_from(rng.below(600))];
                rng.fill(&mut frame);
                let id = store.insert(&frame, meta(frame.len()));
                queues[q].push(&mut store, id);
                models[q].push_back(frame);
            } else {
                let id = queues[q].pop(&mut store);
                let got = id.map(|id| {
                    let bytes = store.bytes(id).to_vec();
                    store.remove(id);
                    bytes
                });
                assert_eq!(got, models[q].pop_front(), "step {step}");
            }
            let bytes: u64 =
                models[q].iter().map(|f| spanwire_base::u64_from(f.len() + 7).max(60)).sum();
            assert_eq!(queues[q].bytes, bytes);
            assert_eq!(usize_from(u64::from(queues[q].pkts)), models[q].len());
            assert_eq!(queues[q].is_empty(), models[q].is_empty());
        }
        let left: usize = models.iter().map(VecDeque::len).sum();
        assert_eq!(usize_from(u64::from(store.used())), left);
    }
}
