//! A job's queue pairs and memory on one side.

use super::data::{fill, sha256, sum_of_words};
use crate::oob::{Job, JobKind, MemoryParams, Op};
use crate::queue_pair::QpParams;
use spanwire_mem::Region;
use spanwire_transport::{CqId, MemoryRegion};
use spanwire_wire::Qpn;

/// A job's queue pairs and memory on this side.
pub(super) struct Setup {
    pub(super) job: Job,
    pub(super) cq: CqId,
    /// Completion queue of receives; the same as `cq` unless they are separate.
    pub(super) recv_cq: CqId,
    pub(super) qpns: Vec<Qpn>,
    pub(super) params: Vec<QpParams>,
    pub(super) region: Region,
    pub(super) mr: MemoryRegion,
}

impl Setup {
    pub(super) fn memory(&self) -> MemoryParams {
        let MemoryRegion { rkey, addr, len, .. } = self.mr;
        MemoryParams { va: addr, rkey: rkey.unwrap_or(0), len }
    }

    /// Fills the memory if this side is the source of a transfer.
    pub(super) fn fill_source(&self, is_client: bool) {
        let JobKind::Transfer { seed, .. } = self.job.kind else {
            return;
        };
        if is_client == (self.job.op != Op::Read) {
            fill(&self.region, seed);
        }
    }

    /// The number of executed FETCH_ADDs of 1: the sum of the memory's words, initially zero.
    pub(super) fn atomics(&self) -> Option<u64> {
        (self.job.op == Op::FetchAdd).then(|| sum_of_words(&self.region))
    }

    /// The hash of a transfer's memory.
    pub(super) fn sha256(&self) -> Option<String> {
        matches!(self.job.kind, JobKind::Transfer { .. }).then(|| sha256(&self.region))
    }
}
