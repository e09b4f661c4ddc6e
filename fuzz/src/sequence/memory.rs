//! The endpoint's memory, and a copy of it to detect changes.

use spanwire_mem::Region;
use spanwire_transport::{Access, Endpoint, MemoryRegion, PdId, Sge};
use std::ops::Range;

/// One region and its purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plot {
    /// The peer has all rights, including invalidation.
    Granted,
    /// The peer may only read.
    ReadOnly,
    /// The peer may only use atomics and writes.
    WriteOnly,
    /// The peer has no rights; the application does not use it.
    Private,
    /// As `Granted`, but in another protection domain.
    Foreign,
    /// The destination of SENDs.
    Landing,
    /// The destination of READs and of the results of atomics.
    Fetched,
    /// The source of our own SENDs and WRITEs.
    Source,
}

/// All regions.
pub(super) struct Memory {
    beds: [Bed; Plot::ALL.len()],
    /// A buffer for comparing without allocating.
    seen: Vec<u8>,
}

/// A region with its keys and its expected bytes.
struct Bed {
    region: Region,
    mr: MemoryRegion,
    access: Access,
    is_registered: bool,
    should: Vec<u8>,
}

impl Plot {
    pub(super) const ALL: [Self; 8] = [
        Self::Granted,
        Self::ReadOnly,
        Self::WriteOnly,
        Self::Private,
        Self::Foreign,
        Self::Landing,
        Self::Fetched,
        Self::Source,
    ];

    fn access(self) -> Access {
        match self {
            Self::Granted | Self::Foreign => Access::ALL.and(Access::REMOTE_INVALIDATE),
            Self::ReadOnly => Access::REMOTE_READ,
            Self::WriteOnly => {
                Access::LOCAL_WRITE.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC)
            }
            Self::Private | Self::Landing | Self::Fetched => Access::LOCAL_WRITE,
            Self::Source => Access::LOCAL_READ,
        }
    }

    /// Its initial bytes: secrets if the peer may not read it.
    fn fill(self) -> Vec<u8> {
        match self {
            Self::Granted => vec![0x11; PLOT_LEN],
            Self::ReadOnly => vec![0x22; PLOT_LEN],
            Self::Source => vec![0x33; PLOT_LEN],
            Self::WriteOnly | Self::Private | Self::Foreign | Self::Landing | Self::Fetched => {
                (0..SECRET_PERIOD).map(|i| SECRET | i).cycle().take(PLOT_LEN).collect()
            }
        }
    }
}

impl Memory {
    pub(super) fn new(ep: &mut Endpoint, pd: PdId, foreign: PdId) -> Self {
        let beds = Plot::ALL.map(|plot| {
            let region = Region::zeroed(PLOT_LEN);
            let should = plot.fill();
            region.copy_in(0, &should).expect("the length is the region's");
            let pd = if plot == Plot::Foreign { foreign } else { pd };
            // The last one ends at the end of the address space, so that sums may wrap.
            let iova = match plot {
                Plot::Granted => u64::MAX - spanwire_base::u64_from(PLOT_LEN),
                other => 0x10_0000 * (1 + spanwire_base::u64_from(other.index())),
            };
            let mr = ep.reg_mr(pd, region.clone(), plot.access(), Some(iova));
            let mr = mr.expect("within the limits");
            Bed { region, mr, access: plot.access(), is_registered: true, should }
        });
        Self { beds, seen: vec![0; PLOT_LEN] }
    }

    pub(super) fn mr(&self, plot: Plot) -> &MemoryRegion {
        &self.bed(plot).mr
    }

    pub(super) fn sge(&self, plot: Plot, at: usize, len: usize) -> Sge {
        let mr = self.mr(plot);
        let len = spanwire_base::u32_from(len);
        Sge { addr: mr.addr + spanwire_base::u64_from(at), len, lkey: mr.lkey }
    }

    pub(super) fn set_rkey(&mut self, plot: Plot, rkey: Option<u32>) {
        self.beds[plot.index()].mr.rkey = rkey;
    }

    pub(super) fn deregistered(&mut self, plot: Plot) {
        self.beds[plot.index()].is_registered = false;
    }

    /// The plot and offset to which a peer with `rkey` has the rights `need`.
    pub(super) fn reach(&self, rkey: u32, va: u64, len: u32, need: Access) -> Option<Reach> {
        let open = |plot: &Plot| {
            let bed = self.bed(*plot);
            *plot != Plot::Foreign && bed.is_registered && bed.mr.rkey == Some(rkey)
        };
        let plot = Plot::ALL.into_iter().find(open)?;
        let bed = self.bed(plot);
        let at = spanwire_base::usize_from(va.checked_sub(bed.mr.addr)?);
        let end = at.checked_add(spanwire_base::usize_from(len.into()))?;
        let ok = bed.access.allows(need) && end <= PLOT_LEN;
        ok.then_some(Reach { plot, bytes: at..end })
    }

    pub(super) fn word(&self, reach: &Reach) -> u64 {
        u64::from_ne_bytes(self.bytes(reach).try_into().expect("a word"))
    }

    /// The bytes at the last check for changes.
    pub(super) fn bytes(&self, reach: &Reach) -> &[u8] {
        &self.bed(reach.plot).should[reach.bytes.clone()]
    }

    /// The change since the last call, if any: one range of one plot.
    pub(super) fn changed(&mut self) -> Option<Reach> {
        let mut found = None;
        for (plot, bed) in Plot::ALL.into_iter().zip(&mut self.beds) {
            bed.region.copy_out(0, &mut self.seen).expect("the length is the region's");
            if self.seen == bed.should {
                continue;
            }
            let differs = |(_, (a, b)): &(usize, (&u8, &u8))| a != b;
            let pairs = || self.seen.iter().zip(&bed.should).enumerate();
            let first = pairs().find(differs).map_or(0, |(i, _)| i);
            let end = pairs().rfind(differs).map_or(0, |(i, _)| i + 1);
            assert!(found.is_none(), "one packet changed {found:?} and {plot:?}");
            bed.should.copy_from_slice(&self.seen);
            found = Some(Reach { plot, bytes: first..end });
        }
        found
    }

    /// Like [`Memory::changed`], for any changes: one that lies outside `explained`, if any.
    pub(super) fn changed_outside(&mut self, explained: &[Reach]) -> Option<Reach> {
        let mut found = None;
        for (plot, bed) in Plot::ALL.into_iter().zip(&mut self.beds) {
            bed.region.copy_out(0, &mut self.seen).expect("the length is the region's");
            if self.seen == bed.should {
                continue;
            }
            let is_known =
                |i: &usize| explained.iter().any(|r| r.plot == plot && r.bytes.contains(i));
            let differs = |i: &usize| self.seen[*i] != bed.should[*i];
            let unknown = (0..self.seen.len()).find(|i| differs(i) && !is_known(i));
            found = found.or(unknown.map(|i| Reach { plot, bytes: i..i + 1 }));
            bed.should.copy_from_slice(&self.seen);
        }
        found
    }

    fn bed(&self, plot: Plot) -> &Bed {
        &self.beds[plot.index()]
    }
}

/// A range of bytes of a plot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reach {
    pub(super) plot: Plot,
    pub(super) bytes: Range<usize>,
}

impl Reach {
    pub(super) fn contains(&self, other: &Self) -> bool {
        self.plot == other.plot
            && self.bytes.start <= other.bytes.start
            && other.bytes.end <= self.bytes.end
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.plot == other.plot
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }
}

impl Plot {
    fn index(self) -> usize {
        self as usize
    }
}

/// Bytes of each plot: four packets.
pub(super) const PLOT_LEN: usize = 1024;
/// Memory that a peer may not read holds this plus the numbers below [`SECRET_PERIOD`] in turn.
/// Neither the forger's packets nor data recovered from them do: those are one byte repeated.
pub(super) const SECRET: u8 = 0xe0;
pub(super) const SECRET_PERIOD: u8 = 16;
