//! Bytes of a region for a system call.

use crate::region::Region;

/// Bytes of a [`Region`] that a system call shall read where they are. The memory lives as long as
/// this does; its content may change until the call.
#[derive(Clone, Debug)]
pub struct Lent {
    region: Region,
    offset: usize,
    len: usize,
}

impl Region {
    /// The `len` bytes from `offset` on, for a system call that reads them where they are. `None`
    /// if one is outside, or the region has no bytes.
    #[must_use]
    pub fn lend(&self, offset: usize, len: usize) -> Option<Lent> {
        self.checked(offset, len).ok()??;
        Some(Lent { region: self.clone(), offset, len })
    }
}

impl Lent {
    /// Their number.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes as an element of a vector that a system call *reads*, as sendmsg does. It is valid
    /// while `self` lives.
    #[must_use]
    pub fn iovec(&self) -> libc::iovec {
        let at = self.region.checked(self.offset, self.len).ok().flatten();
        let iov_base = at.expect("checked when it was made").cast();
        libc::iovec { iov_base, iov_len: self.len }
    }

    /// Copies the bytes from `offset` on into all of `dst`.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn copy_out(&self, offset: usize, dst: &mut [u8]) {
        assert!(offset + dst.len() <= self.len, "{} bytes at {offset} of {}", dst.len(), self.len);
        self.region.copy_out(self.offset + offset, dst).expect("checked when it was made");
    }

    /// Calls `each` with copies of all bytes in order, in parts as long as `scratch`.
    ///
    /// # Panics
    /// If `scratch` is empty and there are bytes.
    pub fn copies(&self, scratch: &mut [u8], mut each: impl FnMut(&[u8])) {
        let mut done = 0;
        while done < self.len {
            let part = scratch.len().min(self.len - done);
            assert!(part > 0, "a scratch of no bytes");
            self.copy_out(done, &mut scratch[..part]);
            each(&scratch[..part]);
            done += part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lend__is_within_the_region_and_reads_what_is_there_now() {
        let region = Region::zeroed(10);
        let lent = region.lend(3, 5).unwrap();
        region.copy_in(0, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
        let mut parts = Vec::new();
        lent.copies(&mut [0; 2], |part| parts.push(part.to_vec()));
        assert_eq!(parts, [vec![3, 4], vec![5, 6], vec![7]]);
        let mut out = [0; 2];
        lent.copy_out(3, &mut out);
        assert_eq!(out, [6, 7]);
        let vector = lent.iovec();
        assert_eq!(vector.iov_base.addr() as u64, region.addr() + 3);
        assert_eq!((vector.iov_len, lent.len()), (5, 5));
        assert!(region.lend(6, 5).is_none(), "one byte outside");
        assert!(region.lend(usize::MAX, 2).is_none());
        assert!(Region::blank(10).lend(0, 5).is_none(), "no bytes");
    }

    #[test]
    fn lent__keeps_the_memory() {
        let region = Region::zeroed(1 << 20);
        region.copy_in(9, &[7]).unwrap();
        let lent = region.lend(9, 1).unwrap();
        drop(region);
        let mut out = [0];
        lent.copy_out(0, &mut out);
        assert_eq!(out, [7]);
    }
}
