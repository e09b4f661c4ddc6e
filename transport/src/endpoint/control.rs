//! Creation and destruction of the objects of an endpoint.

use super::{Endpoint, Entry};
use crate::attr::QpInit;
use crate::config::{MAX_INLINE_DATA, MAX_SGE};
use crate::cq::{CompletionQueue, CqId};
use crate::event::AsyncEvent;
use crate::ids::SrqId;
use crate::mr::{Access, MemoryRegion, MrError, PdId};
use crate::qp::QueuePair;
use crate::schedule::InFlight;
use crate::srq::{SharedReceiveQueue, SrqError, SrqInit};
use crate::tables::WorkerSlab;
use crate::verbs::CreateError;
use rand_chacha::rand_core::Rng as _;
use spanwire_mem::Region;
use spanwire_wire::Qpn;

impl Endpoint {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// [`CreateError::Limit`].
    pub fn alloc_pd(&mut self) -> Result<PdId, CreateError> {
        self.pds.insert(()).map(PdId).map_err(|()| CreateError::Limit("max_pds"))
    }

    /// Registers memory. `iova` is the virtual address of its first byte for both sides. `None`
    /// draws it from the endpoint's seed, page-aligned and below 2^47 ([`MemoryRegion::addr`]), so
    /// that peers learn no address of this process and simulations are repeatable. The default of
    /// verbs is `Some(region.addr())`.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn reg_mr(
        &mut self,
        pd: PdId,
        region: Region,
        access: Access,
        iova: Option<u64>,
    ) -> Result<MemoryRegion, CreateError> {
        self.pds.at(pd.0).ok_or(CreateError::UnknownPd)?;
        self.shared.mrs.register(&mut self.rng, pd, region, access, iova)
    }

    /// Registers memory with the keys and the address of `mr`, which another endpoint of the
    /// process has drawn for it, so that they hold here too. False, without effect, if one of the
    /// keys is in the place of another one: other keys must be drawn then.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn reg_mr_drawn(
        &mut self,
        pd: PdId,
        region: Region,
        access: Access,
        mr: MemoryRegion,
    ) -> Result<bool, CreateError> {
        self.pds.at(pd.0).ok_or(CreateError::UnknownPd)?;
        self.shared.mrs.register_drawn(pd, region, access, mr)
    }

    /// Deregisters a memory region. Requests that still use it fail when they access it.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`].
    pub fn dereg_mr(&mut self, lkey: u32) -> Result<(), MrError> {
        self.shared.mrs.deregister(lkey)
    }

    /// Assigns a new rkey to a memory region. The previous one becomes unknown. A region whose rkey
    /// was invalidated by a SEND with invalidate gets an rkey again.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`], or [`MrError::Forbidden`] for a region without remote access.
    pub fn renew_rkey(&mut self, lkey: u32) -> Result<u32, MrError> {
        self.shared.mrs.renew_rkey(&mut self.rng, lkey)
    }

    /// Invalidates an rkey: requests that name it are refused from now on. False if it is unknown.
    pub fn invalidate_rkey(&mut self, rkey: u32) -> bool {
        self.shared.mrs.invalidate(rkey)
    }

    /// Creates a completion queue for `capacity` completions. A WQE's slot is free once its
    /// completion is in the queue, polled or not. An application that posts without polling must
    /// therefore count unpolled completions, or the queue overruns.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create_cq(&mut self, capacity: u32) -> Result<CqId, CreateError> {
        if capacity == 0 || capacity > self.shared.config.max_cqe {
            return Err(CreateError::BadCapacity("capacity"));
        }
        let queue = CompletionQueue::new(capacity);
        self.shared.cqs.queues.insert(queue).map(CqId).map_err(|_| CreateError::Limit("max_cqs"))
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create_srq(&mut self, init: &SrqInit) -> Result<SrqId, CreateError> {
        self.pds.at(init.pd.0).ok_or(CreateError::UnknownPd)?;
        check_capacity("max_wr", init.max_wr, 1, self.shared.config.max_wr)?;
        check_capacity("max_sge", init.max_sge, 1, MAX_SGE)?;
        let queue = SharedReceiveQueue::new(init);
        self.shared.srqs.queues.insert(queue).map(SrqId).map_err(|_| CreateError::Limit("max_srqs"))
    }

    /// Arms the limit of a shared receive queue: one [`AsyncEvent::SrqLimitReached`] when a message
    /// leaves fewer than `limit` requests in it. 0 disarms it.
    ///
    /// # Errors
    /// See [`SrqError`].
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), SrqError> {
        self.shared.srqs.queues.at_mut(srq.0).ok_or(SrqError::Unknown)?.set_limit(limit)
    }

    /// Creates a queue pair in state RESET.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, CreateError> {
        self.pds.at(init.pd.0).ok_or(CreateError::UnknownPd)?;
        for cq in [init.send_cq, init.recv_cq] {
            check_queue(&self.shared.cqs.queues, cq.0, CreateError::UnknownCq)?;
        }
        let caps = &init.caps;
        let max_wr = self.shared.config.max_wr;
        check_capacity("max_send_wr", caps.max_send_wr, 0, max_wr)?;
        check_capacity("max_send_sge", caps.max_send_sge, 0, MAX_SGE)?;
        check_capacity("max_inline_data", caps.max_inline_data, 0, MAX_INLINE_DATA)?;
        match init.srq {
            Some(srq) => {
                check_queue(&self.shared.srqs.queues, srq.0, CreateError::UnknownSrq)?;
            }
            None => {
                check_capacity("max_recv_wr", caps.max_recv_wr, 0, max_wr)?;
                check_capacity("max_recv_sge", caps.max_recv_sge, 0, MAX_SGE)?;
            }
        }
        let limit = CreateError::Limit("max_qps");
        let qp = QueuePair::new(Qpn::new(0), init);
        let in_flight = InFlight::default();
        let unnumbered = Entry { qp, in_flight };
        let slot = self.qps.insert(unnumbered).map_err(|_| limit)?;
        self.counts_polled |= init.places_until_polled;
        let qpn = self.shared.config.qpns().draw(slot, self.rng.next_u32());
        if let Some(entry) = self.qps.at_mut(slot) {
            entry.qp = QueuePair::new(qpn, init);
        }
        Ok(qpn)
    }

    /// A random QPN of this endpoint that no queue pair has now: packets to it are dropped.
    pub fn unused_qpn(&mut self) -> Qpn {
        let (slot, random) = (self.shared.config.max_qps - 1, self.rng.next_u32());
        let draw = |random| self.shared.config.qpns().draw(slot, random);
        let drawn = draw(random);
        // The slot has one queue pair at most.
        if self.query_qp(drawn).is_some() { draw(!random) } else { drawn }
    }

    /// Destroys a queue pair and everything posted to it, without completions; those not yet polled
    /// are removed from its completion queues. Unused receive requests that it has taken from a
    /// shared receive queue return there. Its QPN is not reused soon, so packets still in flight to
    /// it are dropped.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> bool {
        self.settle();
        let slot = self.slot_of(qpn);
        let Some(entry) = self.qps.at_mut(slot).filter(|e| e.qp.qpn() == qpn) else {
            return false;
        };
        entry.qp.free_blocks(&mut self.shared.block_memory);
        entry.qp.return_receives(&mut self.shared.srqs);
        let &QpInit { srq, send_cq, recv_cq, .. } = entry.qp.init();
        self.shared.cqs.forget([send_cq, recv_cq], qpn);
        self.schedule.remove(slot, entry.in_flight);
        self.timers.cancel(slot);
        self.pacer.remove(slot);
        self.shared.events.remove(|event| event.qpn() == Some(qpn));
        self.qps.remove(slot);
        self.on_srq_returned(srq);
        true
    }

    /// Destroys a completion queue. Returns false, without effect, while a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> bool {
        let used = self.qps.iter().any(|(_, e)| e.qp.uses_cq(cq));
        let removed = !used && self.shared.cqs.remove(cq);
        if removed {
            self.shared.events.remove(|event| event == AsyncEvent::CqErr(cq));
        }
        removed
    }

    /// Destroys a shared receive queue with all posted requests, without completions.
    ///
    /// # Errors
    /// See [`SrqError`].
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), SrqError> {
        if self.qps.iter().any(|(_, e)| e.qp.uses_srq(srq)) {
            return Err(SrqError::InUse);
        }
        self.shared.srqs.queues.remove(srq.0).ok_or(SrqError::Unknown)?;
        self.shared.events.remove(|event| event == AsyncEvent::SrqLimitReached(srq));
        Ok(())
    }

    /// Deallocates a protection domain. Returns false, without effect, while an object belongs to
    /// it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> bool {
        let used = self.shared.mrs.uses_pd(pd)
            || self.qps.iter().any(|(_, e)| e.qp.pd() == pd)
            || self.shared.srqs.queues.objects().any(|q| q.pd == pd);
        !used && self.pds.remove(pd.0).is_some()
    }
}

fn check_capacity(name: &'static str, value: u32, min: u32, max: u32) -> Result<(), CreateError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(CreateError::BadCapacity(name)) }
}

/// Checks that a queue exists, with the error if it does not.
fn check_queue<T>(
    queues: &WorkerSlab<T>,
    number: u32,
    unknown: CreateError,
) -> Result<(), CreateError> {
    match queues.at(number) {
        Some(_) => Ok(()),
        None if queues.is_elsewhere(number) => Err(CreateError::OtherWorker),
        None => Err(unknown),
    }
}
