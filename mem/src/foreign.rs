//! Regions over memory that is not Rust's: that of the program which calls verbs.

use crate::Region;
use std::fmt;
use std::io;
use std::ptr::NonNull;

/// The access that the pages of a foreign region must allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageAccess {
    /// Reads.
    Read,
    /// Reads and writes.
    Write,
}

/// A range of addresses that is not mapped, or not for this access.
#[derive(Debug)]
pub struct Unmapped {
    base: usize,
    len: usize,
    why: io::Error,
}

impl Region {
    /// A region over `len` bytes of the program's own memory, as an adapter has it after
    /// registration. All of its pages are touched: they are there and allow `access` now, and the
    /// first packet pays for no page fault.
    ///
    /// ```
    /// use spanwire_mem::{PageAccess, Region};
    /// use std::ptr::NonNull;
    /// // Memory as foreign code has it: not a Rust object.
    /// let len = 100;
    /// # // SAFETY: a new allocation of 100 bytes, freed below.
    /// let base = NonNull::new(unsafe { libc::malloc(len) }.cast::<u8>()).unwrap();
    /// // SAFETY: only the region accesses the allocation, which is freed after it.
    /// let region = unsafe { Region::foreign(base, len, PageAccess::Write) }?;
    /// region.copy_in(0, b"placed by the peer").unwrap();
    /// assert!(region.is_sole());
    /// drop(region);
    /// # // SAFETY: no region is left.
    /// unsafe { libc::free(base.as_ptr().cast()) };
    /// # Ok::<(), spanwire_mem::Unmapped>(())
    /// ```
    ///
    /// # Safety
    /// Until the last clone is dropped ([`Region::is_sole`]):
    /// - The range is no memory of Rust's: only regions and foreign code access it. Foreign code
    ///   may do so at any time, and a range may be in several regions: accesses by regions race
    ///   with others as defined in `shared`.
    /// - Its pages stay mapped, and allow `access`. Foreign code that unmaps them earlier has
    ///   made an error for which an adapter writes to memory of others; here it is a SIGSEGV.
    ///
    /// # Errors
    /// [`Unmapped`]: a page is not mapped, does not allow the access, or is beyond the end of its
    /// file. Pages before it may have been touched.
    pub unsafe fn foreign(
        base: NonNull<u8>,
        len: usize,
        access: PageAccess,
    ) -> Result<Self, Unmapped> {
        populate(base, len, access).map_err(|why| {
            let base = base.as_ptr().addr();
            Unmapped { base, len, why }
        })?;
        // SAFETY: the words that hold the range are in its pages, which are mapped for as long as
        // the caller promises; nothing else is Rust's there.
        Ok(unsafe { Self::from_raw(base, len, ()) })
    }
}

/// Faults the pages of a range in (Linux 5.14).
fn populate(base: NonNull<u8>, len: usize, access: PageAccess) -> io::Result<()> {
    // SAFETY: asks for a constant.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let offset = base.as_ptr().addr() % page;
    let first = base.as_ptr().wrapping_sub(offset);
    let Some(len) = len.checked_add(offset) else {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    };
    let advice = match access {
        PageAccess::Read => libc::MADV_POPULATE_READ,
        PageAccess::Write => libc::MADV_POPULATE_WRITE,
    };
    loop {
        // SAFETY: the kernel checks the range, and changes no byte of it.
        if unsafe { libc::madvise(first.cast(), len, advice) } == 0 {
            return Ok(());
        }
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, len, why } = self;
        write!(f, "the {len} bytes at {base:#x} are not all mapped for this access: {why}")
    }
}

impl std::error::Error for Unmapped {}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// Three pages as foreign code maps them, of a file or anonymous.
    struct Pages(NonNull<u8>);

    impl Pages {
        fn map(prot: i32, fd: i32) -> Self {
            let anonymous = if fd < 0 { libc::MAP_ANONYMOUS } else { 0 };
            let flags = libc::MAP_PRIVATE | anonymous;
            // SAFETY: a new mapping at an address that the kernel selects.
            let base = unsafe { libc::mmap(std::ptr::null_mut(), 3 * PAGE, prot, flags, fd, 0) };
            assert_ne!(base, libc::MAP_FAILED);
            Self(NonNull::new(base.cast()).unwrap())
        }

        /// A region over `len` bytes from `offset` on.
        fn region(
            &self,
            offset: usize,
            len: usize,
            access: PageAccess,
        ) -> Result<Region, Unmapped> {
            // SAFETY: the test accesses the pages by regions only, and unmaps them last.
            unsafe { Region::foreign(self.0.add(offset), len, access) }
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the range mapped above; its regions are gone.
            unsafe { libc::munmap(self.0.as_ptr().cast(), 3 * PAGE) };
        }
    }

    const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

    #[test]
    fn foreign__reads_and_writes_memory_of_others() {
        let pages = Pages::map(RW, -1);
        let region = pages.region(PAGE - 3, PAGE + 6, PageAccess::Write).unwrap();
        region.copy_in(PAGE, b"peer").unwrap();
        // SAFETY: as a C program would read it, while no copy runs.
        let seen = unsafe { std::ptr::read(pages.0.add(2 * PAGE - 3).as_ptr().cast::<[u8; 4]>()) };
        assert_eq!(&seen, b"peer");
        assert!(region.is_sole());
        let clone = region.clone();
        assert!(!region.is_sole());
        drop(clone);
        assert!(region.is_sole());
    }

    #[test]
    fn foreign__needs_every_page_with_its_access() {
        let pages = Pages::map(libc::PROT_READ, -1);
        assert!(pages.region(0, 3 * PAGE, PageAccess::Read).is_ok());
        let why = pages.region(1, 3, PageAccess::Write).unwrap_err().to_string();
        assert!(why.contains("the 3 bytes at 0x") && why.contains("not all mapped"), "{why}");
        let none = Pages::map(libc::PROT_NONE, -1);
        assert!(none.region(0, 1, PageAccess::Read).is_err());
        let holed = Pages::map(RW, -1);
        // SAFETY: a page of the mapping, with no region over it.
        unsafe { libc::munmap(holed.0.add(PAGE).as_ptr().cast(), PAGE) };
        assert!(holed.region(0, PAGE, PageAccess::Write).is_ok());
        assert!(holed.region(0, PAGE + 1, PageAccess::Write).is_err());
        assert!(holed.region(0, usize::MAX, PageAccess::Write).is_err());
    }

    #[test]
    fn foreign__refuses_pages_beyond_the_end_of_their_file() {
        use std::os::fd::AsRawFd;
        let short = std::env::temp_dir().join(format!("spanwire-foreign-{}", std::process::id()));
        std::fs::write(&short, [7; PAGE]).unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&short).unwrap();
        std::fs::remove_file(&short).unwrap();
        let pages = Pages::map(RW, file.as_raw_fd());
        assert!(pages.region(0, PAGE, PageAccess::Write).is_ok());
        assert!(pages.region(0, PAGE + 1, PageAccess::Write).is_err());
    }
}
