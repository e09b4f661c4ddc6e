//! The four rings of a socket, in terms of frames.
//!
//! | ring | direction | carries |
//! |---|---|---|
//! | [`FillRing`] | program to kernel | empty chunks to receive into |
//! | [`RxRing`] | kernel to program | chunks with received bytes |
//! | [`TxRing`] | program to kernel | chunks with bytes to send |
//! | [`CompletionRing`] | kernel to program | chunks that have been sent |
//!
//! What the program writes is seen by the kernel at `publish`; what it reads is free for the
//! kernel to overwrite at `release`. Both cost a write to a shared cache line, so they belong at
//! the end of a batch.

use crate::cursor::Cursor;
use crate::umem::{Frame, Holder, Umem};

/// Empty chunks on their way to the kernel.
#[derive(Debug)]
pub struct FillRing {
    cursor: Cursor<u64>,
    umem: Umem,
}

/// Received bytes on their way to the program.
#[derive(Debug)]
pub struct RxRing {
    cursor: Cursor<Desc>,
    umem: Umem,
    bad_descs: u64,
}

/// Bytes to send on their way to the kernel.
#[derive(Debug)]
pub struct TxRing {
    cursor: Cursor<Desc>,
    umem: Umem,
    /// One past the last piece of the last whole packet written.
    whole: u32,
}

/// Sent chunks on their way back to the program.
#[derive(Debug)]
pub struct CompletionRing {
    cursor: Cursor<u64>,
    umem: Umem,
    bad_addresses: u64,
}

/// One received piece: a whole packet unless it or the piece before says there is more.
#[must_use = "a dropped piece takes its chunk out of use"]
#[derive(PartialEq, Eq, Debug)]
pub struct Received {
    frame: Frame,
    offset: u32,
    len: u32,
    more: bool,
}

/// One piece to send: a whole packet unless it or the piece before says there is more.
#[must_use = "a dropped piece takes its chunk out of use"]
#[derive(PartialEq, Eq, Debug)]
pub struct ToSend {
    /// The chunk.
    pub frame: Frame,
    /// Where in the chunk the bytes start.
    pub offset: u32,
    /// How many bytes; `offset + len` is at most the length of the chunk.
    pub len: u32,
    /// Whether the packet goes on in the next piece (needs a multi-buffer socket).
    pub more: bool,
}

/// `struct xdp_desc`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Desc {
    address: u64,
    len: u32,
    options: u32,
}

impl FillRing {
    pub(crate) fn new(cursor: Cursor<u64>, umem: Umem) -> Self {
        Self { cursor, umem }
    }

    /// Entries the ring holds.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// How many frames fit now. Exact up to `want`; looks at shared memory only below that.
    pub fn room(&mut self, want: u32) -> u32 {
        self.cursor.room(want)
    }

    /// Gives an empty chunk to the kernel at the next [`FillRing::publish`].
    ///
    /// # Errors
    /// Returns the frame when the ring is full.
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

    /// Lets the kernel see what was pushed.
    pub fn publish(&mut self) {
        self.cursor.publish_to(self.cursor.written());
    }

    /// Frames pushed that the kernel has not taken yet.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.cursor.pending()
    }

    /// Whether the driver sleeps until [`Socket::wake_rx`](crate::Socket::wake_rx).
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.cursor.needs_wakeup()
    }

    /// How often the kernel's index made no sense and was ignored.
    #[must_use]
    pub fn bad_indices(&self) -> u64 {
        self.cursor.bad_indices()
    }
}

impl RxRing {
    pub(crate) fn new(cursor: Cursor<Desc>, umem: Umem) -> Self {
        Self { cursor, umem, bad_descs: 0 }
    }

    /// Entries the ring holds.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// The next received piece, oldest first.
    ///
    /// A descriptor that names a chunk the kernel was not given to receive into, or bytes beyond
    /// the chunk, is skipped and counted.
    pub fn pop(&mut self) -> Option<Received> {
        while let Some(desc) = self.cursor.pop() {
            match self.accept(desc) {
                Some(received) => return Some(received),
                None => self.bad_descs += 1,
            }
        }
        None
    }

    /// Lets the kernel reuse the slots of what was popped.
    pub fn release(&mut self) {
        self.cursor.release();
    }

    /// How many descriptors were skipped because they made no sense.
    #[must_use]
    pub fn bad_descs(&self) -> u64 {
        self.bad_descs
    }

    /// How often the kernel's index made no sense and was ignored.
    #[must_use]
    pub fn bad_indices(&self) -> u64 {
        self.cursor.bad_indices()
    }

    fn accept(&self, desc: Desc) -> Option<Received> {
        // Before the chunk is taken back: a length that lies must not cost the token as well.
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

    /// Entries the ring holds.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// How many pieces fit now. Exact up to `want`; looks at shared memory only below that.
    pub fn room(&mut self, want: u32) -> u32 {
        self.cursor.room(want)
    }

    /// Gives a piece to the kernel at the next [`TxRing::publish`].
    ///
    /// A packet of several pieces is shown to the kernel only when its last piece is here, so ask
    /// for [`TxRing::room`] for all of them first. The kernel takes 18 pieces at most.
    ///
    /// # Errors
    /// Returns the piece when the ring is full.
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

    /// Lets the kernel see every whole packet pushed. It looks when woken
    /// ([`Socket::wake_tx`](crate::Socket::wake_tx)).
    pub fn publish(&mut self) {
        self.cursor.publish_to(self.whole);
    }

    /// Pieces pushed that the kernel has not taken yet.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.cursor.pending()
    }

    /// Whether the kernel sends only after [`Socket::wake_tx`](crate::Socket::wake_tx). Always so
    /// in copy mode.
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.cursor.needs_wakeup()
    }

    /// How often the kernel's index made no sense and was ignored.
    #[must_use]
    pub fn bad_indices(&self) -> u64 {
        self.cursor.bad_indices()
    }
}

impl CompletionRing {
    pub(crate) fn new(cursor: Cursor<u64>, umem: Umem) -> Self {
        Self { cursor, umem, bad_addresses: 0 }
    }

    /// Entries the ring holds.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// The next chunk the kernel is done with. Sent does not mean received: a dropped packet
    /// completes as well.
    ///
    /// An address that was not given to be sent is skipped and counted.
    pub fn pop(&mut self) -> Option<Frame> {
        while let Some(address) = self.cursor.pop() {
            match self.umem.take(address, Holder::Transmit) {
                Some((frame, _)) => return Some(frame),
                None => self.bad_addresses += 1,
            }
        }
        None
    }

    /// Lets the kernel reuse the slots of what was popped.
    pub fn release(&mut self) {
        self.cursor.release();
    }

    /// How many addresses were skipped because they made no sense.
    #[must_use]
    pub fn bad_addresses(&self) -> u64 {
        self.bad_addresses
    }

    /// How often the kernel's index made no sense and was ignored.
    #[must_use]
    pub fn bad_indices(&self) -> u64 {
        self.cursor.bad_indices()
    }
}

impl Received {
    /// The received bytes.
    ///
    /// # Panics
    /// If the piece belongs to another UMEM.
    #[must_use]
    pub fn bytes<'a>(&'a self, umem: &'a Umem) -> &'a [u8] {
        let start = self.offset as usize;
        &umem.bytes(&self.frame)[start..start + self.len as usize]
    }

    /// Whether the packet goes on in the next piece.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// The chunk, to be filled again or sent on.
    pub fn into_frame(self) -> Frame {
        self.frame
    }

    /// The same bytes as a whole packet to send: how a reflector answers without copying.
    pub fn into_send(self) -> ToSend {
        ToSend { frame: self.frame, offset: self.offset, len: self.len, more: self.more }
    }

    /// The chunk for writing, and where in it the received bytes are.
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
