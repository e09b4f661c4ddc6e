//! The four rings of a socket, in terms of frames.
//!
//! | ring | direction | carries |
//! |---|---|---|
//! | [`FillRing`] | program to kernel | empty chunks to receive into |
//! | [`RxRing`] | kernel to program | chunks with received bytes |
//! | [`TxRing`] | program to kernel | chunks with bytes to send |
//! | [`CompletionRing`] | kernel to program | chunks that have been sent |
//!
//! The kernel sees written entries at `publish` and may overwrite read entries after `release`.
//! Both write a shared cache line, so call them at the end of a batch.

use crate::cursor::Cursor;
use crate::same_layout;
use crate::steer;
use crate::umem::{Frame, Holder, Umem};
use bytemuck::{Pod, Zeroable};

/// The fill ring: empty chunks for reception.
#[derive(Debug)]
pub struct FillRing {
    cursor: Cursor<u64>,
    umem: Umem,
}

/// The RX ring: received chunks.
#[derive(Debug)]
pub struct RxRing {
    cursor: Cursor<Desc>,
    umem: Umem,
    bad_descs: u64,
}

/// The TX ring: chunks to send.
#[derive(Debug)]
pub struct TxRing {
    cursor: Cursor<Desc>,
    umem: Umem,
    /// Index one past the last descriptor of the last complete packet written.
    whole: u32,
}

/// The completion ring: chunks that the kernel has sent.
#[derive(Debug)]
pub struct CompletionRing {
    cursor: Cursor<u64>,
    umem: Umem,
    bad_addresses: u64,
}

/// One received descriptor: a whole packet unless it or its predecessor has `more` set.
#[must_use = "a dropped piece takes its chunk out of use"]
#[derive(PartialEq, Eq, Debug)]
pub struct Received {
    frame: Frame,
    offset: u32,
    len: u32,
    more: bool,
}

/// One descriptor to send: a whole packet unless it or its predecessor has `more` set.
#[must_use = "a dropped piece takes its chunk out of use"]
#[derive(PartialEq, Eq, Debug)]
pub struct ToSend {
    /// The chunk.
    pub frame: Frame,
    /// Offset of the bytes in the chunk.
    pub offset: u32,
    /// Number of bytes; `offset + len` is at most the length of the chunk.
    pub len: u32,
    /// True if the packet continues in the next descriptor (needs a multi-buffer socket).
    pub more: bool,
}

/// `struct xdp_desc`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Pod, Zeroable)]
pub(crate) struct Desc {
    address: u64,
    len: u32,
    options: u32,
}

same_layout!(Desc = libc::xdp_desc { address = addr, len = len, options = options });

impl FillRing {
    pub(crate) fn new(cursor: Cursor<u64>, umem: Umem) -> Self {
        Self { cursor, umem }
    }

    /// Capacity in entries.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// Frames that fit now. Exact up to `want`; reads the shared index only below that.
    pub fn room(&mut self, want: u32) -> u32 {
        self.cursor.room(want)
    }

    /// Passes an empty chunk to the kernel at the next [`FillRing::publish`].
    ///
    /// # Errors
    /// Returns the frame if the ring is full.
    ///
    /// # Panics
    /// If the frame belongs to another UMEM.
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.cursor.room(1) == 0 {
            return Err(frame);
        }
        let address = self.umem.give(frame, Holder::Receive);
        let pushed = self.cursor.push(address);
        debug_assert!(pushed, "there was room");
        Ok(())
    }

    /// Publishes the pushed frames to the kernel.
    pub fn publish(&mut self) {
        self.cursor.publish_to(self.cursor.written());
    }

    /// Pushed frames that the kernel has not taken yet.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.cursor.pending()
    }

    /// True if the driver sleeps until [`Socket::wake_rx`](crate::Socket::wake_rx).
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.cursor.needs_wakeup()
    }

    /// Invalid kernel indices that were ignored.
    #[must_use]
    pub fn bad_indices(&self) -> u64 {
        self.cursor.bad_indices()
    }
}

impl RxRing {
    pub(crate) fn new(cursor: Cursor<Desc>, umem: Umem) -> Self {
        Self { cursor, umem, bad_descs: 0 }
    }

    /// Capacity in entries.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// The next received descriptor, oldest first.
    ///
    /// A descriptor of a chunk that was not in the fill ring, or with bytes beyond the chunk, is
    /// skipped and counted.
    pub fn pop(&mut self) -> Option<Received> {
        while let Some(desc) = self.cursor.pop() {
            match self.accept(desc) {
                Some(received) => return Some(received),
                None => self.bad_descs += 1,
            }
        }
        None
    }

    /// Releases the slots of popped descriptors to the kernel.
    pub fn release(&mut self) {
        self.cursor.release();
    }

    /// Invalid descriptors that were skipped.
    #[must_use]
    pub fn bad_descs(&self) -> u64 {
        self.bad_descs
    }

    /// Invalid kernel indices that were ignored.
    #[must_use]
    pub fn bad_indices(&self) -> u64 {
        self.cursor.bad_indices()
    }

    fn accept(&self, desc: Desc) -> Option<Received> {
        // The length is checked before the chunk is taken back: an invalid length must not lose the
        // token.
        let chunk = self.umem.chunk_len() as u64;
        if desc.address % chunk + u64::from(desc.len) > chunk {
            return None;
        }
        let (frame, offset) = self.umem.take(desc.address, Holder::Receive)?;
        Some(Received {
            frame,
            offset,
            len: desc.len,
            more: desc.options & libc::XDP_PKT_CONTD != 0,
        })
    }
}

impl TxRing {
    pub(crate) fn new(cursor: Cursor<Desc>, umem: Umem) -> Self {
        let whole = cursor.written();
        Self { cursor, umem, whole }
    }

    /// Capacity in entries.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// Descriptors that fit now. Exact up to `want`; reads the shared index only below that.
    pub fn room(&mut self, want: u32) -> u32 {
        self.cursor.room(want)
    }

    /// Passes a descriptor to the kernel at the next [`TxRing::publish`].
    ///
    /// A packet of several descriptors is published only once its last one is pushed, so check
    /// [`TxRing::room`] for all of them first. The kernel accepts at most 18.
    ///
    /// # Errors
    /// Returns the descriptor if the ring is full.
    ///
    /// # Panics
    /// If the frame belongs to another UMEM or the bytes leave its chunk.
    pub fn push(&mut self, piece: ToSend) -> Result<(), ToSend> {
        let fits = piece
            .offset
            .checked_add(piece.len)
            .is_some_and(|end| end as usize <= self.umem.chunk_len());
        assert!(fits, "{} bytes at {} leave the chunk", piece.len, piece.offset);
        if self.cursor.room(1) == 0 {
            return Err(piece);
        }
        let address = self.umem.give(piece.frame, Holder::Transmit) + u64::from(piece.offset);
        let pushed = self.cursor.push(Desc {
            address,
            len: piece.len,
            options: if piece.more { libc::XDP_PKT_CONTD } else { 0 },
        });
        debug_assert!(pushed, "there was room");
        if !piece.more {
            self.whole = self.cursor.written();
        }
        Ok(())
    }

    /// Publishes every complete packet. The kernel reads the ring when woken
    /// ([`Socket::wake_tx`](crate::Socket::wake_tx)).
    pub fn publish(&mut self) {
        self.cursor.publish_to(self.whole);
    }

    /// Pushed descriptors that the kernel has not taken yet.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.cursor.pending()
    }

    /// True if the kernel sends only after [`Socket::wake_tx`](crate::Socket::wake_tx), as always
    /// in copy mode.
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.cursor.needs_wakeup()
    }

    /// Invalid kernel indices that were ignored.
    #[must_use]
    pub fn bad_indices(&self) -> u64 {
        self.cursor.bad_indices()
    }
}

impl CompletionRing {
    pub(crate) fn new(cursor: Cursor<u64>, umem: Umem) -> Self {
        Self { cursor, umem, bad_addresses: 0 }
    }

    /// Capacity in entries.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// The next chunk that the kernel has released. A completion does not imply delivery: a dropped
    /// packet completes as well.
    ///
    /// An address that was not submitted to the TX ring is skipped and counted.
    pub fn pop(&mut self) -> Option<Frame> {
        while let Some(address) = self.cursor.pop() {
            match self.umem.take(address, Holder::Transmit) {
                Some((frame, _)) => return Some(frame),
                None => self.bad_addresses += 1,
            }
        }
        None
    }

    /// Releases the slots of popped addresses to the kernel.
    pub fn release(&mut self) {
        self.cursor.release();
    }

    /// Invalid addresses that were skipped.
    #[must_use]
    pub fn bad_addresses(&self) -> u64 {
        self.bad_addresses
    }

    /// Invalid kernel indices that were ignored.
    #[must_use]
    pub fn bad_indices(&self) -> u64 {
        self.cursor.bad_indices()
    }
}

impl Received {
    /// The received bytes.
    ///
    /// # Panics
    /// If the descriptor belongs to another UMEM.
    #[must_use]
    pub fn bytes<'a>(&'a self, umem: &'a Umem) -> &'a [u8] {
        let start = self.offset as usize;
        &umem.bytes(&self.frame)[start..start + self.len as usize]
    }

    /// When the packet reached the steering program, in nanoseconds of `CLOCK_MONOTONIC`; none if
    /// the driver supports no metadata, or the packet came through another program.
    ///
    /// # Panics
    /// If the descriptor belongs to another UMEM.
    #[must_use]
    #[inline]
    pub fn arrival_ns(&self, umem: &Umem) -> Option<u64> {
        let chunk = umem.bytes(&self.frame);
        let metadata = chunk.get(..self.offset as usize)?.last_chunk::<16>()?;
        let (mark, ns) = (metadata.first_chunk::<8>()?, metadata.last_chunk::<8>()?);
        (*mark == steer::ARRIVAL_MARK).then(|| u64::from_ne_bytes(*ns))
    }

    /// True if the packet continues in the next descriptor.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// The chunk, for reuse in the fill ring or the TX ring.
    pub fn into_frame(self) -> Frame {
        self.frame
    }

    /// The same bytes as a packet to send: a reflector needs no copy.
    pub fn into_send(self) -> ToSend {
        ToSend { frame: self.frame, offset: self.offset, len: self.len, more: self.more }
    }

    /// The chunk for writing, and the range of the received bytes in it.
    pub fn frame_mut(&mut self) -> (&mut Frame, std::ops::Range<usize>) {
        let start = self.offset as usize;
        (&mut self.frame, start..start + self.len as usize)
    }
}

impl ToSend {
    /// The first `len` bytes of a chunk as a whole packet.
    pub fn whole(frame: Frame, len: u32) -> Self {
        Self { frame, offset: 0, len, more: false }
    }
}

#[cfg(test)]
mod tests;
