//! Memory that is resolved once for all packets of a message.

use super::{Access, MrTable, PdId, Span};
use crate::verbs::Sge;
use spanwire_base::usize_from;

/// Memory to which access was granted, for the packets of one message. It is valid until a key is
/// removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    generation: u64,
    region: u32,
    offset: usize,
    len: u32,
}

impl MrTable {
    /// The whole of an SGE, as [`MrTable::local`], for parts of it.
    pub(crate) fn resolve_local(&self, pd: PdId, sge: &Sge, need: Access) -> Option<Resolved> {
        self.resolve(self.lkeys.find(sge.lkey)?, pd, (sge.addr, sge.len), need)
    }

    /// The range that a peer names, as [`MrTable::remote`], for parts of it.
    pub(crate) fn resolve_remote(
        &self,
        pd: PdId,
        rkey: u32,
        range: (u64, u32),
        need: Access,
    ) -> Option<Resolved> {
        self.resolve(self.rkeys.find(rkey)?, pd, range, need)
    }

    fn resolve(
        &self,
        region: u32,
        pd: PdId,
        (addr, len): (u64, u32),
        need: Access,
    ) -> Option<Resolved> {
        let offset = self.span(Some(region), pd, addr, len, need).ok()?.offset;
        Some(Resolved { generation: self.generation, region, offset, len })
    }

    /// No key was removed since.
    #[inline]
    pub(crate) fn is_current(&self, of: &Resolved) -> bool {
        of.generation == self.generation
    }

    /// The `len` bytes from `skip` on; `None` if a key was removed since, or they exceed it.
    #[inline(always)]
    pub(crate) fn part(&self, of: &Resolved, skip: u32, len: u32) -> Option<Span<'_>> {
        let fits = skip.checked_add(len).is_some_and(|end| end <= of.len);
        let region = self.regions.at(of.region).filter(|_| self.is_current(of));
        let offset = of.offset + usize_from(skip.into());
        region.filter(|_| fits).map(|entry| Span { region: &entry.region, offset })
    }
}
