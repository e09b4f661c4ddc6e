//! Memory regions: registration, keys and access checks.

mod parts;
mod resolved;

pub(crate) use resolved::Resolved;

use crate::payload::{Payload, PayloadMut};
use crate::tables::{KeyTable, Slab};
use crate::verbs::{CreateError, Sge};
use parts::{only_part, walk};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;
use spanwire_base::{u64_from, usize_from};
use spanwire_mem::Region;
use std::fmt;
use std::ops::BitOr;

/// A protection domain. A queue pair cannot access memory regions of another domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PdId(pub(crate) u32);

/// Access rights to a memory region, or through a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u8);

/// A registered memory region. The peer needs `addr` and `rkey`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    /// Local key, for SGEs.
    pub lkey: u32,
    /// Remote key, for the peer; `None` without remote access.
    pub rkey: Option<u32>,
    /// Virtual address of the first byte (the iova).
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// The reason why an access was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MrError {
    /// No region has this key.
    UnknownKey,
    /// The region belongs to another protection domain.
    WrongPd,
    /// The region does not allow this kind of access.
    Forbidden,
    /// Some byte lies outside the region.
    OutOfBounds,
}

impl Access {
    /// Local read: send buffers.
    pub const LOCAL_READ: Self = Self(0);
    /// Local write: receive buffers and targets of READs.
    pub const LOCAL_WRITE: Self = Self(1);
    /// The peer may WRITE. Needs [`Access::LOCAL_WRITE`] too.
    pub const REMOTE_WRITE: Self = Self(2);
    /// The peer may READ.
    pub const REMOTE_READ: Self = Self(4);
    /// The peer may execute atomic operations. Needs [`Access::LOCAL_WRITE`] too.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// The peer may invalidate the region's rkey by a SEND with invalidate.
    pub const REMOTE_INVALIDATE: Self = Self(16);

    /// Read, write and atomics, local and remote; without invalidation of rkeys.
    pub const ALL: Self = Self(15);

    /// The union with `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all rights in `needed` are granted.
    #[must_use]
    pub const fn allows(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// True if the peer has any right.
    #[must_use]
    pub const fn is_remote(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_READ.0 | Self::REMOTE_ATOMIC.0) != 0
    }

    const fn writes_remotely(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::LOCAL_WRITE, "LOCAL_WRITE"),
            (Self::REMOTE_WRITE, "REMOTE_WRITE"),
            (Self::REMOTE_READ, "REMOTE_READ"),
            (Self::REMOTE_ATOMIC, "REMOTE_ATOMIC"),
            (Self::REMOTE_INVALIDATE, "REMOTE_INVALIDATE"),
        ];
        f.write_str("LOCAL_READ")?;
        for (_, name) in names.into_iter().filter(|(bit, _)| self.allows(*bit)) {
            write!(f, "|{name}")?;
        }
        Ok(())
    }
}

/// A random page-aligned address below 2^47.
fn drawn_address(rng: &mut ChaCha20Rng) -> u64 {
    rng.next_u64() >> 17 & !0xfff
}

/// All memory regions of an endpoint. Passed to queue pairs, never stored in one.
#[derive(Debug)]
pub(crate) struct MrTable {
    regions: Slab<Entry>,
    lkeys: KeyTable,
    rkeys: KeyTable,
    /// Keys removed so far: what was resolved before the last one may be gone.
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    pd: PdId,
    region: Region,
    access: Access,
    mr: MemoryRegion,
}

impl MrTable {
    pub(crate) fn new(max_mrs: u32) -> Self {
        let (lkeys, rkeys) = (KeyTable::new(max_mrs), KeyTable::new(max_mrs));
        Self { regions: Slab::new(max_mrs), lkeys, rkeys, generation: 0 }
    }

    /// Registers `region` at virtual address `iova`. `None` draws it from `rng`: an address of the
    /// process would reveal its memory layout to peers and differ between runs.
    pub(crate) fn register(
        &mut self,
        rng: &mut ChaCha20Rng,
        pd: PdId,
        region: Region,
        access: Access,
        iova: Option<u64>,
    ) -> Result<MemoryRegion, CreateError> {
        if access.writes_remotely() && !access.allows(Access::LOCAL_WRITE) {
            return Err(CreateError::AccessWithoutLocalWrite);
        }
        let (addr, len) = (iova.unwrap_or_else(|| drawn_address(rng)), u64_from(region.len()));
        if addr.checked_add(len).is_none() {
            return Err(CreateError::AddressWraps);
        }
        let mr = MemoryRegion { lkey: 0, rkey: None, addr, len };
        let entry = Entry { pd, region, access, mr };
        let i = self.regions.insert(entry).map_err(|_| CreateError::Limit("max_mrs"))?;
        let lkey = self.lkeys.insert(rng, i);
        let rkey = access.is_remote().then(|| self.rkeys.insert(rng, i));
        let entry = self.regions.at_mut(i).expect("inserted four lines above");
        entry.mr = MemoryRegion { lkey, rkey, addr, len };
        Ok(entry.mr)
    }

    /// As [`MrTable::register`], as drawn by another table. False if a key's place is taken.
    pub(crate) fn register_drawn(
        &mut self,
        pd: PdId,
        region: Region,
        access: Access,
        mr: MemoryRegion,
    ) -> Result<bool, CreateError> {
        let entry = Entry { pd, region, access, mr };
        let i = self.regions.insert(entry).map_err(|_| CreateError::Limit("max_mrs"))?;
        let has_lkey = self.lkeys.insert_drawn(mr.lkey, i);
        let has_both = has_lkey && mr.rkey.is_none_or(|rkey| self.rkeys.insert_drawn(rkey, i));
        if !has_both {
            has_lkey.then(|| self.lkeys.remove(mr.lkey));
            self.regions.remove(i);
        }
        Ok(has_both)
    }

    /// Deregisters a region: both of its keys become unknown.
    pub(crate) fn deregister(&mut self, lkey: u32) -> Result<(), MrError> {
        let i = self.lkeys.find(lkey).ok_or(MrError::UnknownKey)?;
        self.generation += 1;
        self.lkeys.remove(lkey);
        if let Some(rkey) = self.regions.remove(i).and_then(|e| e.mr.rkey) {
            self.rkeys.remove(rkey);
        }
        Ok(())
    }

    /// Checks that a peer of `pd` may invalidate `rkey`.
    pub(crate) fn check_invalidate(&self, pd: PdId, rkey: u32) -> Result<(), MrError> {
        let i = self.rkeys.find(rkey).ok_or(MrError::UnknownKey)?;
        let entry = self.regions.at(i).ok_or(MrError::UnknownKey)?;
        match entry.access.allows(Access::REMOTE_INVALIDATE) {
            _ if entry.pd != pd => Err(MrError::WrongPd),
            true => Ok(()),
            false => Err(MrError::Forbidden),
        }
    }

    /// Invalidates `rkey`; the region and its lkey stay. False if it was unknown.
    pub(crate) fn invalidate(&mut self, rkey: u32) -> bool {
        let region = self.rkeys.find(rkey).and_then(|i| self.regions.at_mut(i));
        let Some(entry) = region else {
            return false;
        };
        entry.mr.rkey = None;
        self.generation += 1;
        self.rkeys.remove(rkey);
        true
    }

    /// Assigns a new rkey to the region of `lkey`; the previous one becomes unknown.
    pub(crate) fn renew_rkey(&mut self, rng: &mut ChaCha20Rng, lkey: u32) -> Result<u32, MrError> {
        let i = self.lkeys.find(lkey).ok_or(MrError::UnknownKey)?;
        let entry = self.regions.at_mut(i).ok_or(MrError::UnknownKey)?;
        if !entry.access.is_remote() {
            return Err(MrError::Forbidden);
        }
        if let Some(old) = entry.mr.rkey.take() {
            self.generation += 1;
            self.rkeys.remove(old);
        }
        let rkey = self.rkeys.insert(rng, i);
        entry.mr.rkey = Some(rkey);
        Ok(rkey)
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }

    pub(crate) fn set_capacity(&mut self, max_mrs: u32) {
        self.regions.set_capacity(max_mrs);
    }

    pub(crate) fn uses_pd(&self, pd: PdId) -> bool {
        self.regions.iter().any(|(_, e)| e.pd == pd)
    }

    /// The bytes of an SGE, if `pd` has the rights `need`.
    pub(crate) fn local(&self, pd: PdId, sge: &Sge, need: Access) -> Result<Span<'_>, MrError> {
        self.span(self.lkeys.find(sge.lkey), pd, sge.addr, sge.len, need)
    }

    /// The bytes that a peer names, if it has the rights `need`.
    pub(crate) fn remote(
        &self,
        pd: PdId,
        rkey: u32,
        va: u64,
        len: u32,
        need: Access,
    ) -> Result<Span<'_>, MrError> {
        self.span(self.rkeys.find(rkey), pd, va, len, need)
    }

    /// Copies `len` bytes of a peer's READ into `payload`; false if access is refused.
    #[inline]
    pub(crate) fn fetch_remote(
        &self,
        pd: PdId,
        rkey: u32,
        va: u64,
        len: u32,
        payload: PayloadMut<'_>,
    ) -> bool {
        let span = self.remote(pd, rkey, va, len, Access::REMOTE_READ);
        span.is_ok_and(|span| span.fetch(payload))
    }

    fn span(
        &self,
        i: Option<u32>,
        pd: PdId,
        addr: u64,
        len: u32,
        need: Access,
    ) -> Result<Span<'_>, MrError> {
        let entry = i.and_then(|i| self.regions.at(i)).ok_or(MrError::UnknownKey)?;
        if entry.pd != pd {
            return Err(MrError::WrongPd);
        }
        if !entry.access.allows(need) {
            return Err(MrError::Forbidden);
        }
        let offset = addr.checked_sub(entry.mr.addr).ok_or(MrError::OutOfBounds)?;
        match offset.checked_add(len.into()) {
            Some(end) if end <= entry.mr.len => {
                Ok(Span { region: &entry.region, offset: usize_from(offset) })
            }
            _ => Err(MrError::OutOfBounds),
        }
    }

    /// Copies bytes from a list of SGEs, from byte `skip` of the list on, into all of `dst`. Elided
    /// payload is checked as well.
    pub(crate) fn gather(
        &self,
        pd: PdId,
        sges: &[Sge],
        skip: u32,
        mut dst: PayloadMut<'_>,
    ) -> Result<(), MrError> {
        if let Some(sge) = only_part(sges, skip, dst.len()) {
            let span = self.local(pd, &sge, Access::LOCAL_READ)?;
            return span.fetch(dst).then_some(()).ok_or(MrError::OutOfBounds);
        }
        let (mut done, all) = (0, dst.len());
        walk(sges, (skip, all), MrError::OutOfBounds, |sge, n| {
            let span = self.local(pd, sge, Access::LOCAL_READ)?;
            let dst = match &mut dst {
                PayloadMut::Bytes(dst) => dst,
                PayloadMut::Elided(_) => return Ok(()),
                PayloadMut::Lendable(place, lent) => {
                    if n == all {
                        **lent = span.region.lend(span.offset, n as usize);
                        if lent.is_some() {
                            return Ok(());
                        }
                    }
                    place
                }
            };
            let part = &mut dst[done..done + n as usize];
            done += n as usize;
            span.region.copy_out(span.offset, part).map_err(|_| MrError::OutOfBounds)
        })
    }

    /// Copies `src` into a list of SGEs, from byte `skip` of the list on.
    pub(crate) fn scatter(
        &self,
        pd: PdId,
        sges: &[Sge],
        skip: u32,
        src: Payload<'_>,
    ) -> Result<(), MrError> {
        if let Some(sge) = only_part(sges, skip, src.len()) {
            let span = self.local(pd, &sge, Access::LOCAL_WRITE)?;
            return span.put(src).then_some(()).ok_or(MrError::OutOfBounds);
        }
        let mut done = 0;
        walk(sges, (skip, src.len()), MrError::OutOfBounds, |sge, n| {
            let span = self.local(pd, sge, Access::LOCAL_WRITE)?;
            let Payload::Bytes(src) = src else {
                return Ok(());
            };
            let part = &src[done..done + n as usize];
            done += n as usize;
            span.region.copy_in(span.offset, part).map_err(|_| MrError::OutOfBounds)
        })
    }
}

impl Span<'_> {
    /// Copies `src` to the start of the span; false if it exceeds the region.
    #[inline]
    pub(crate) fn put(&self, src: Payload<'_>) -> bool {
        match src {
            Payload::Bytes(src) => self.region.copy_in(self.offset, src).is_ok(),
            Payload::Elided(_) => true,
        }
    }

    /// Copies the start of the span into all of `dst`; false if that exceeds the region.
    #[inline]
    pub(crate) fn fetch(&self, dst: PayloadMut<'_>) -> bool {
        match dst {
            PayloadMut::Bytes(dst) => self.region.copy_out(self.offset, dst).is_ok(),
            PayloadMut::Elided(_) => true,
            PayloadMut::Lendable(place, lent) => {
                *lent = self.region.lend(self.offset, place.len());
                lent.is_some() || self.region.copy_out(self.offset, place).is_ok()
            }
        }
    }
}

/// Bytes of a region to which access was granted.
#[derive(Debug)]
pub(crate) struct Span<'a> {
    pub(crate) region: &'a Region,
    pub(crate) offset: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    const PD: PdId = PdId(0);

    fn table() -> (MrTable, ChaCha20Rng) {
        (MrTable::new(4), ChaCha20Rng::from_seed([1; 32]))
    }

    #[test]
    fn register__remote_keys_only_with_remote_access() {
        let (mut t, mut rng) = table();
        let local = t.register(&mut rng, PD, Region::zeroed(8), Access::LOCAL_WRITE, None).unwrap();
        assert_eq!(local.rkey, None);
        let shared =
            t.register(&mut rng, PD, Region::zeroed(8), Access::ALL, Some(0x1000)).unwrap();
        assert_eq!(shared.addr, 0x1000);
        assert_ne!(shared.rkey, Some(shared.lkey), "the rkey does not reveal the lkey");
    }

    #[test]
    fn register__refuses_what_verbs_refuse() {
        let (mut t, mut rng) = table();
        let r = Region::zeroed(16);
        let without = t.register(&mut rng, PD, r.clone(), Access::REMOTE_WRITE, None);
        assert_eq!(without, Err(CreateError::AccessWithoutLocalWrite));
        let wraps = t.register(&mut rng, PD, r.clone(), Access::ALL, Some(u64::MAX - 8));
        assert_eq!(wraps, Err(CreateError::AddressWraps));
        for _ in 0..4 {
            t.register(&mut rng, PD, r.clone(), Access::ALL, None).unwrap();
        }
        let full = t.register(&mut rng, PD, r, Access::ALL, None);
        assert_eq!(full, Err(CreateError::Limit("max_mrs")));
    }

    #[test]
    fn register__65536_regions_by_default() {
        let max_mrs = crate::Config::default().max_mrs;
        let (mut t, mut rng) = (MrTable::new(max_mrs), ChaCha20Rng::from_seed([1; 32]));
        let r = Region::zeroed(16);
        let mut one = || t.register(&mut rng, PD, r.clone(), Access::ALL, None);
        let all: Vec<MemoryRegion> = (0..65_536).map(|_| one().unwrap()).collect();
        assert_eq!(one(), Err(CreateError::Limit("max_mrs")));
        for mr in &all {
            let sge = Sge { addr: mr.addr, len: 16, lkey: mr.lkey };
            assert!(t.local(PD, &sge, Access::LOCAL_WRITE).is_ok());
            assert!(t.remote(PD, mr.rkey.unwrap(), mr.addr, 16, Access::REMOTE_READ).is_ok());
        }
        all.iter().for_each(|mr| t.deregister(mr.lkey).unwrap());
        assert!(t.register(&mut rng, PD, r, Access::ALL, None).is_ok());
    }

    #[test]
    fn deregister__makes_both_keys_unknown() {
        let (mut t, mut rng) = table();
        let mr = t.register(&mut rng, PD, Region::zeroed(8), Access::ALL, None).unwrap();
        t.deregister(mr.lkey).unwrap();
        let got = t.remote(PD, mr.rkey.unwrap(), mr.addr, 1, Access::REMOTE_READ);
        assert_eq!(got.unwrap_err(), MrError::UnknownKey);
        assert_eq!(t.deregister(mr.lkey), Err(MrError::UnknownKey));
    }

    #[test]
    fn invalidate__takes_the_rkey_and_renew_gives_another() {
        let (mut t, mut rng) = table();
        let access = Access::ALL.and(Access::REMOTE_INVALIDATE);
        let mr = t.register(&mut rng, PD, Region::zeroed(8), access, Some(0)).unwrap();
        let old = mr.rkey.unwrap();
        assert_eq!(t.check_invalidate(PD, old), Ok(()));
        assert_eq!(t.check_invalidate(PdId(1), old), Err(MrError::WrongPd));
        assert_eq!(t.check_invalidate(PD, old ^ 1), Err(MrError::UnknownKey));
        assert!(t.invalidate(old) && !t.invalidate(old));
        let ask = |t: &MrTable, rkey| {
            t.remote(PD, rkey, 0, 8, Access::REMOTE_WRITE).map(|span| span.offset)
        };
        assert_eq!(ask(&t, old), Err(MrError::UnknownKey));
        assert_eq!(t.check_invalidate(PD, old), Err(MrError::UnknownKey));
        let new = t.renew_rkey(&mut rng, mr.lkey).unwrap();
        assert_eq!((ask(&t, new), ask(&t, old)), (Ok(0), Err(MrError::UnknownKey)));
        t.deregister(mr.lkey).unwrap();
        assert_eq!(ask(&t, new), Err(MrError::UnknownKey));
        let plain = t.register(&mut rng, PD, Region::zeroed(8), Access::ALL, None).unwrap();
        assert_eq!(t.check_invalidate(PD, plain.rkey.unwrap()), Err(MrError::Forbidden));
        let local = t.register(&mut rng, PD, Region::zeroed(8), Access::LOCAL_WRITE, None).unwrap();
        assert_eq!(t.renew_rkey(&mut rng, local.lkey), Err(MrError::Forbidden));
    }

    #[test]
    fn remote__checks_key_domain_access_and_bounds() {
        let (mut t, mut rng) = table();
        let access = Access::REMOTE_READ;
        let mr = t.register(&mut rng, PD, Region::zeroed(100), access, Some(0x5000)).unwrap();
        let rkey = mr.rkey.unwrap();
        let ask = |pd, rkey, va, len, need| t.remote(pd, rkey, va, len, need).map(|s| s.offset);
        assert_eq!(ask(PD, rkey, 0x5000, 100, access), Ok(0));
        assert_eq!(ask(PD, rkey, 0x5064, 0, access), Ok(100));
        assert_eq!(ask(PD, rkey ^ 1, 0x5000, 1, access), Err(MrError::UnknownKey));
        assert_eq!(ask(PdId(1), rkey, 0x5000, 1, access), Err(MrError::WrongPd));
        assert_eq!(ask(PD, rkey, 0x5000, 1, Access::REMOTE_WRITE), Err(MrError::Forbidden));
        assert_eq!(ask(PD, rkey, 0x4fff, 1, access), Err(MrError::OutOfBounds));
        assert_eq!(ask(PD, rkey, 0x5001, 100, access), Err(MrError::OutOfBounds));
        assert_eq!(ask(PD, rkey, u64::MAX, u32::MAX, access), Err(MrError::OutOfBounds));
        assert_eq!(ask(PD, mr.lkey, 0x5000, 1, access), Err(MrError::UnknownKey));
    }

    #[test]
    fn bitor__is_the_union() {
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
        assert!(rights.allows(Access::REMOTE_READ) && !rights.allows(Access::REMOTE_WRITE));
    }

    #[test]
    fn gather__crosses_elements_at_any_offset() {
        let (mut t, mut rng) = table();
        let region = Region::zeroed(32);
        let bytes: Vec<u8> = (0..32).collect();
        region.copy_in(0, &bytes).unwrap();
        let mr = t.register(&mut rng, PD, region, Access::LOCAL_WRITE, Some(0)).unwrap();
        let sge = |addr, len| Sge { addr, len, lkey: mr.lkey };
        let list = [sge(20, 3), sge(0, 0), sge(4, 5), sge(30, 2)];
        let flat = [20, 21, 22, 4, 5, 6, 7, 8, 30, 31];
        for skip in 0..10usize {
            for len in 0..=10 - skip {
                let mut out = vec![0; len];
                let at = u32::try_from(skip).unwrap();
                t.gather(PD, &list, at, PayloadMut::Bytes(&mut out)).unwrap();
                assert_eq!(out, flat[skip..skip + len]);
            }
        }
        for out in [PayloadMut::Bytes(&mut [0; 3]), PayloadMut::Elided(3)] {
            assert_eq!(t.gather(PD, &list, 8, out), Err(MrError::OutOfBounds));
        }
        assert_eq!(t.gather(PD, &list, 8, PayloadMut::Elided(2)), Ok(()));
    }

    #[test]
    fn scatter__needs_write_access() {
        let (mut t, mut rng) = table();
        let mr = t.register(&mut rng, PD, Region::zeroed(8), Access::LOCAL_READ, Some(0)).unwrap();
        let list = [Sge { addr: 0, len: 8, lkey: mr.lkey }];
        for src in [Payload::Bytes(&[1]), Payload::Elided(1)] {
            assert_eq!(t.scatter(PD, &list, 0, src), Err(MrError::Forbidden));
        }
        assert_eq!(t.gather(PD, &list, 0, PayloadMut::Bytes(&mut [1])), Ok(()));
    }
}
