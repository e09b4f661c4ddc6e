//! Mapping the four rings of a socket into memory.

use super::config::SocketConfig;
use crate::cursor::{Cursor, Parts};
use crate::layout::{MmapOffsets, RingOffset};
use crate::ring::Desc;
use crate::sys::Map;
use bytemuck::Pod;
use std::io;
use std::os::fd::BorrowedFd;

/// The program's ends of the fill, completion, RX and TX ring.
pub(super) type Mapped = (Cursor<u64>, Cursor<u64>, Cursor<Desc>, Cursor<Desc>);

/// Maps the rings of a socket whose sizes are set.
pub(super) fn map(
    fd: BorrowedFd<'_>,
    config: &SocketConfig,
    offsets: &MmapOffsets,
) -> io::Result<Mapped> {
    let fill = parts(fd, config.fill_size, FILL_PAGE, &offsets.fill)?;
    let completion = parts(fd, config.completion_size, COMPLETION_PAGE, &offsets.completion)?;
    let rx = parts(fd, config.rx_size, libc::XDP_PGOFF_RX_RING, &offsets.rx)?;
    let tx = parts(fd, config.tx_size, libc::XDP_PGOFF_TX_RING, &offsets.tx)?;
    // SAFETY: `parts` checked alignment and bounds within mappings of this process's own socket,
    // whose entries may have any content; each ring gets one cursor, for the program's end.
    Ok(unsafe {
        (
            Cursor::producer(fill),
            Cursor::consumer(completion),
            Cursor::consumer(rx),
            Cursor::producer(tx),
        )
    })
}

/// Maps one ring and locates its parts by the kernel's offsets.
fn parts<T: Pod>(
    fd: BorrowedFd<'_>,
    size: u32,
    page: libc::off_t,
    offsets: &RingOffset,
) -> io::Result<Parts<T>> {
    let at = |offset: u64| usize::try_from(offset).map_err(io::Error::other);
    let entries_at = at(offsets.desc)?;
    let len = (size as usize)
        .checked_mul(size_of::<T>())
        .and_then(|bytes| bytes.checked_add(entries_at))
        .ok_or_else(|| io::Error::other("ring longer than memory"))?;
    let words = [at(offsets.producer)?, at(offsets.consumer)?, at(offsets.flags)?];
    let fits =
        words.iter().all(|word| word % 4 == 0 && word.checked_add(4).is_some_and(|end| end <= len));
    if !fits || entries_at % align_of::<T>() != 0 {
        return Err(io::Error::other("invalid ring offsets"));
    }
    let map = Map::ring(fd, len, page)?;
    let [producer, consumer, flags] = words;
    // SAFETY: all four offsets were checked to lie within the mapping.
    let at = |offset: usize| unsafe { map.base().add(offset) };
    Ok(Parts {
        producer: at(producer).cast(),
        consumer: at(consumer).cast(),
        flags: at(flags).cast(),
        entries: at(entries_at).cast(),
        size,
        memory: Box::new(map),
    })
}

const FILL_PAGE: libc::off_t = 0x1_0000_0000;
const COMPLETION_PAGE: libc::off_t = 0x1_8000_0000;
const _: () = assert!(libc::XDP_UMEM_PGOFF_FILL_RING == 0x1_0000_0000);
const _: () = assert!(libc::XDP_UMEM_PGOFF_COMPLETION_RING == 0x1_8000_0000);
