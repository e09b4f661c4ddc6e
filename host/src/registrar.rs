//! Protection domains and memory regions that hold on all workers of a process.

use spanwire_io::port::Port;
use spanwire_io::worker::Worker;
use spanwire_mem::Region;
use spanwire_transport::{Access, App, CreateError, Endpoint, Host, MemoryRegion, PdId};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An endpoint that any thread may call.
pub trait Verbs {
    /// Runs `call` with the endpoint, in the calling thread. `None` after its end.
    fn verb<R>(&self, call: impl FnOnce(&mut Endpoint) -> R) -> Option<R>;
}

impl<P: Port> Verbs for Worker<Endpoint, P> {
    fn verb<R>(&self, call: impl FnOnce(&mut Endpoint) -> R) -> Option<R> {
        self.with(call)
    }
}

impl<A: App, P: Port> Verbs for Worker<Host<A>, P> {
    fn verb<R>(&self, call: impl FnOnce(&mut Endpoint) -> R) -> Option<R> {
        self.with(|host| call(host.parts_mut().0))
    }
}

impl<V: Verbs> Verbs for Arc<V> {
    fn verb<R>(&self, call: impl FnOnce(&mut Endpoint) -> R) -> Option<R> {
        (**self).verb(call)
    }
}

/// The workers of a process, with one set of keys: a protection domain or a memory region is made
/// on each of them, under the same number and keys, so that a peer needs one rkey whatever the
/// worker of its queue pair is. Queues and queue pairs belong to one worker: that of the endpoint
/// that created them.
///
/// A worker that has ended is left out, and the others go on.
#[derive(Debug)]
pub struct Registrar<V> {
    workers: Box<[V]>,
    /// Held for each change, so that all endpoints see the same ones in the same order.
    order: Mutex<()>,
}

/// Why nothing was registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// An endpoint refuses.
    Refused(CreateError),
    /// Peers may invalidate the region: at one worker, while the key would hold at the others.
    Invalidation,
    /// No region has this key.
    UnknownKey,
    /// All workers have ended.
    Ended,
}

impl<V: Verbs> Registrar<V> {
    /// The registrar of these workers, none of whose endpoints has a protection domain.
    #[must_use]
    pub fn new(workers: impl Into<Box<[V]>>) -> Self {
        Self { workers: workers.into(), order: Mutex::default() }
    }

    /// Allocates a protection domain.
    ///
    /// # Errors
    /// See [`RegisterError`].
    ///
    /// # Panics
    /// An endpoint has a domain that is not from here.
    pub fn alloc_pd(&self) -> Result<PdId, RegisterError> {
        let _order = self.order();
        let (mut done, mut made) = (Vec::new(), None);
        for worker in &self.workers {
            match worker.verb(Endpoint::alloc_pd) {
                Some(Ok(pd)) => {
                    assert_eq!(*made.get_or_insert(pd), pd, "a domain that is not from here");
                    done.push(worker);
                }
                Some(Err(refused)) => {
                    let undo = |endpoint: &mut Endpoint| made.map(|pd| endpoint.dealloc_pd(pd));
                    for worker in done {
                        let _ = worker.verb(undo);
                    }
                    return Err(RegisterError::Refused(refused));
                }
                None => {}
            }
        }
        made.ok_or(RegisterError::Ended)
    }

    /// Deallocates a protection domain. Returns false, without effect, while an object belongs to
    /// it on any worker.
    ///
    /// # Errors
    /// [`RegisterError::Ended`].
    pub fn dealloc_pd(&self, pd: PdId) -> Result<bool, RegisterError> {
        let _order = self.order();
        let mut back = Vec::new();
        for worker in &self.workers {
            match worker.verb(|endpoint| endpoint.dealloc_pd(pd)) {
                Some(true) => back.push(worker),
                None => {}
                Some(false) => {
                    // An endpoint allocates the number next that it got back last.
                    for worker in back {
                        let _ = worker.verb(Endpoint::alloc_pd);
                    }
                    return Ok(false);
                }
            }
        }
        if back.is_empty() { Err(RegisterError::Ended) } else { Ok(true) }
    }

    /// Registers memory, as [`Endpoint::reg_mr`].
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub fn reg_mr(
        &self,
        pd: PdId,
        region: &Region,
        access: Access,
        iova: Option<u64>,
    ) -> Result<MemoryRegion, RegisterError> {
        if self.workers.len() > 1 && access.allows(Access::REMOTE_INVALIDATE) {
            return Err(RegisterError::Invalidation);
        }
        let _order = self.order();
        for _ in 0..DRAWS {
            if let Some(mr) = self.try_reg_mr(pd, region, access, iova)? {
                return Ok(mr);
            }
        }
        Err(RegisterError::Refused(CreateError::Limit("max_mrs")))
    }

    /// As [`Registrar::reg_mr`], with one draw of keys; `None` if they are not free on all workers.
    fn try_reg_mr(
        &self,
        pd: PdId,
        region: &Region,
        access: Access,
        iova: Option<u64>,
    ) -> Result<Option<MemoryRegion>, RegisterError> {
        let mut done: Vec<&V> = Vec::new();
        let mut drawn = None;
        for worker in &self.workers {
            let registered = worker.verb(|endpoint| match drawn {
                Some(mr) => endpoint.reg_mr_drawn(pd, region.clone(), access, mr),
                None => {
                    drawn = Some(endpoint.reg_mr(pd, region.clone(), access, iova)?);
                    Ok(true)
                }
            });
            let Some(registered) = registered else { continue };
            if registered != Ok(true) {
                let undo = |endpoint: &mut Endpoint| drawn.map(|mr| endpoint.dereg_mr(mr.lkey));
                for worker in done {
                    let _ = worker.verb(undo);
                }
                return registered.map(|_| None).map_err(RegisterError::Refused);
            }
            done.push(worker);
        }
        drawn.map(Some).ok_or(RegisterError::Ended)
    }

    /// Deregisters memory. When it returns, each worker has: none of them accesses it any more.
    ///
    /// # Errors
    /// [`RegisterError::UnknownKey`] and [`RegisterError::Ended`].
    pub fn dereg_mr(&self, lkey: u32) -> Result<(), RegisterError> {
        let _order = self.order();
        let workers = self.workers.iter();
        let done = workers.filter_map(|worker| worker.verb(|endpoint| endpoint.dereg_mr(lkey)));
        // Each of them, whatever the others say.
        let done = done.reduce(Result::and).ok_or(RegisterError::Ended)?;
        done.map_err(|_| RegisterError::UnknownKey)
    }

    fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Deref for Registrar<V> {
    type Target = [V];

    fn deref(&self) -> &[V] {
        &self.workers
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => why.fmt(f),
            Self::Invalidation => f.write_str(
                "a key that peers may invalidate holds on one worker only: register without, or \
                 use one worker",
            ),
            Self::UnknownKey => f.write_str("no memory region has this key"),
            Self::Ended => f.write_str("all workers have ended"),
        }
    }
}

impl std::error::Error for RegisterError {}

/// Draws of keys until they are free on all workers. Endpoints that register nothing else have the
/// same free places, so the first draw fits.
const DRAWS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_transport::{Config, QpCaps, QpInit, SrqInit, ValidConfig};

    /// An endpoint without a port; `None` after its end.
    #[derive(Debug)]
    struct Portless(Mutex<Option<Endpoint>>);

    impl Verbs for Portless {
        fn verb<R>(&self, call: impl FnOnce(&mut Endpoint) -> R) -> Option<R> {
            self.0.lock().unwrap().as_mut().map(call)
        }
    }

    fn registrar(workers: u32, config: &Config) -> Registrar<Portless> {
        let config = config.clone().validate().unwrap();
        let worker = |index: u32| {
            let config = config.of_worker(index, workers).unwrap();
            let seed = [u8::try_from(index).unwrap(); 32];
            Portless(Mutex::new(Some(Endpoint::new(config, seed))))
        };
        Registrar::new((0..workers).map(worker).collect::<Vec<_>>())
    }

    /// True if each worker that has not ended has the region: it can be deregistered there.
    fn take(registrar: &Registrar<Portless>, lkey: u32) -> Vec<bool> {
        let taken = registrar.iter().map(|it| it.verb(|endpoint| endpoint.dereg_mr(lkey).is_ok()));
        taken.map(|taken| taken == Some(true)).collect()
    }

    #[test]
    fn reg_mr__keys_and_addresses_are_those_of_all_workers() {
        let all = registrar(4, &Config::default());
        let (pd, other) = (all.alloc_pd().unwrap(), all.alloc_pd().unwrap());
        assert_ne!(pd, other);
        let region = Region::zeroed(4096);
        let [one, two] =
            [Some(0x1000), None].map(|iova| all.reg_mr(pd, &region, Access::ALL, iova).unwrap());
        assert_eq!((one.addr, two.addr & 0xfff), (0x1000, 0));
        assert!(one.rkey.is_some() && one.rkey != two.rkey);
        assert_eq!(all.dealloc_pd(pd), Ok(false), "it has regions");
        assert_eq!(all.dereg_mr(one.lkey), Ok(()));
        assert_eq!(all.dereg_mr(one.lkey), Err(RegisterError::UnknownKey));
        assert_eq!(take(&all, one.lkey), [false; 4]);
        assert_eq!(take(&all, two.lkey), [true; 4]);
        assert_eq!([0, 1].map(|_| all.dealloc_pd(pd)), [Ok(true), Ok(false)]);
        assert_eq!(all.alloc_pd(), Ok(pd), "the number is free on each");
        assert!(region.is_sole(), "no worker keeps memory");
    }

    #[test]
    fn reg_mr__draws_again_while_a_key_is_taken_on_one_worker() {
        let all = registrar(2, &Config::default());
        let pd = all.alloc_pd().unwrap();
        let region = Region::zeroed(64);
        // Half of the places of its keys are taken on one worker only.
        let mut alone = |_| {
            let made = all[1].verb(|it| it.reg_mr(pd, region.clone(), Access::ALL, None));
            made.unwrap().unwrap().lkey
        };
        let taken: Vec<u32> = (0..4000).map(&mut alone).collect();
        let made: Vec<MemoryRegion> =
            (0..60).map(|_| all.reg_mr(pd, &region, Access::ALL, None).unwrap()).collect();
        assert!(made.iter().all(|mr| take(&all, mr.lkey) == [true; 2]));
        assert!(taken.iter().all(|lkey| take(&all, *lkey) == [false, true]), "none was replaced");
        assert!(region.is_sole());
    }

    #[test]
    fn reg_mr__what_one_worker_refuses_is_on_none() {
        let config = Config { max_mrs: 2, max_pds: 1, ..Config::default() };
        let all = registrar(2, &config);
        let pd = all.alloc_pd().unwrap();
        let limit = |field| RegisterError::Refused(CreateError::Limit(field));
        assert_eq!(all.alloc_pd(), Err(limit("max_pds")));
        let region = Region::zeroed(64);
        let on_one = |n: usize| {
            let made = all[n].verb(|it| it.reg_mr(pd, region.clone(), Access::ALL, None));
            made.unwrap().unwrap().lkey
        };
        let beside = on_one(1);
        let mr = all.reg_mr(pd, &region, Access::ALL, None).unwrap();
        assert_eq!(all.reg_mr(pd, &region, Access::ALL, None), Err(limit("max_mrs")));
        // The first has room for one more: nothing was left there.
        assert_eq!(take(&all, on_one(0)), [true, false]);
        assert_eq!([mr.lkey, beside].map(|lkey| take(&all, lkey)), [[true; 2], [false, true]]);
        let invalidated = Access::ALL | Access::REMOTE_INVALIDATE;
        let refused = all.reg_mr(pd, &region, invalidated, None);
        assert_eq!(refused, Err(RegisterError::Invalidation));
        let only = registrar(1, &config);
        let pd = only.alloc_pd().unwrap();
        assert!(only.reg_mr(pd, &region, invalidated, None).is_ok(), "of one worker");
    }

    #[test]
    fn dealloc_pd__a_queue_pair_of_one_worker_keeps_it_on_all() {
        let all = registrar(3, &Config::default());
        let pd = all.alloc_pd().unwrap();
        let qpn = all[2].verb(|it| {
            let cq = it.create_cq(8).unwrap();
            it.create_qp(&QpInit::new(pd, cq, cq, QpCaps::default())).unwrap()
        });
        assert_eq!(all.dealloc_pd(pd), Ok(false));
        assert!(all.reg_mr(pd, &Region::zeroed(8), Access::ALL, None).is_ok(), "on each");
        let left = all.reg_mr(pd, &Region::zeroed(8), Access::ALL, None).unwrap();
        assert_eq!(take(&all, left.lkey), [true; 3]);
        assert_eq!(all[2].verb(|it| it.destroy_qp(qpn.unwrap())), Some(true));
    }

    #[test]
    fn create_qp__refuses_queues_of_another_worker() {
        let all = registrar(2, &Config::default());
        let pd = all.alloc_pd().unwrap();
        let [mine, theirs] = [0, 1].map(|n| all[n].verb(|it| it.create_cq(8)).unwrap().unwrap());
        assert_ne!(mine, theirs);
        let srq = SrqInit { pd, max_wr: 4, max_sge: 1 };
        let srq = all[1].verb(|it| it.create_srq(&srq)).unwrap().unwrap();
        let caps = QpCaps::default();
        let create = |n: usize, init: QpInit| all[n].verb(|it| it.create_qp(&init)).unwrap();
        for init in [
            QpInit::new(pd, mine, theirs, caps),
            QpInit::new(pd, theirs, mine, caps),
            QpInit { srq: Some(srq), ..QpInit::new(pd, mine, mine, caps) },
        ] {
            assert_eq!(create(0, init), Err(CreateError::OtherWorker), "{init:?}");
        }
        let own = QpInit { srq: Some(srq), ..QpInit::new(pd, theirs, theirs, caps) };
        let qpn = create(1, own).unwrap();
        let config = ValidConfig::default().of_worker(1, 2).unwrap();
        assert_eq!(config.qpn_workers().worker_of(qpn), 1);
        // No other call of worker 0 takes its queues for its own of the same place.
        assert!(all[0].verb(|it| it.poll_cq(theirs)).unwrap().is_err());
        assert_eq!(all[0].verb(|it| it.destroy_cq(theirs)), Some(false));
        assert_eq!(all[0].verb(|it| it.destroy_cq(mine)), Some(true));
    }

    #[test]
    fn verb__a_worker_that_has_ended_is_left_out() {
        let all = registrar(2, &Config::default());
        let pd = all.alloc_pd().unwrap();
        let region = Region::zeroed(64);
        let before = all.reg_mr(pd, &region, Access::ALL, None).unwrap();
        *all[0].0.lock().unwrap() = None;
        let after = all.reg_mr(pd, &region, Access::ALL, None).unwrap();
        assert_eq!([before, after].map(|mr| all.dereg_mr(mr.lkey)), [Ok(()); 2]);
        assert_eq!((all.dealloc_pd(pd), all.alloc_pd()), (Ok(true), Ok(pd)));
        assert!(region.is_sole());
        *all[1].0.lock().unwrap() = None;
        let ended = RegisterError::Ended;
        assert_eq!((all.alloc_pd(), all.dealloc_pd(pd)), (Err(ended), Err(ended)));
        assert_eq!(all.dereg_mr(1), Err(ended));
        assert_eq!(all.reg_mr(pd, &region, Access::ALL, None), Err(RegisterError::Ended));
    }
}
