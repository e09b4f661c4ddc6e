//! Threads that post and poll on shared objects, which are created and destroyed all the while.
//!
//! `SPANWIRE_SECONDS` is the time for each way of progress, 1 by default.
#![expect(non_snake_case, reason = "tests are named function__case")]

use spanwire_io::clock::Clock;
use spanwire_io::driver::Polling;
use spanwire_io::pipe::{PipeConfig, PipePort, pipe};
use spanwire_io::worker::{Progress, Worker, bell, worker};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, CqId, Endpoint, MemoryRegion, Mtu, PdId, PostError, QpAttr, QpCaps,
    QpInit, RemoteAddr, Sge, ValidConfig, WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::{MacAddr, Psn, Qpn};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Shared = Worker<Endpoint, PipePort>;

/// A queue pair with all that it needs.
#[derive(Clone, Copy)]
struct Objects {
    pd: PdId,
    cq: CqId,
    mr: MemoryRegion,
    qpn: Qpn,
}

fn create(endpoint: &mut Endpoint) -> Objects {
    let pd = endpoint.alloc_pd().unwrap();
    // Room for all completions: a thread that posts may be ahead of those that poll.
    let cq = endpoint.create_cq(u32::try_from(THREADS * REQUESTS).unwrap()).unwrap();
    let mr = endpoint.reg_mr(pd, Region::zeroed(4096), Access::ALL, None).unwrap();
    let qpn = endpoint.create_qp(&QpInit::new(pd, cq, cq, QpCaps::default())).unwrap();
    endpoint.modify_qp(qpn, &QpAttr::init(Access::ALL)).unwrap();
    Objects { pd, cq, mr, qpn }
}

fn connect(endpoint: &mut Endpoint, ours: Objects, peer: Qpn, [us, them]: [u8; 2]) {
    let mac = |n| MacAddr::new([2, 0, 0, 0, 0, n]);
    let ip = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
    let av = AddressVector::new(mac(us), mac(them), ip(us), ip(them));
    let start = Psn::new(0);
    endpoint.modify_qp(ours.qpn, &QpAttr::rtr(peer, start, Mtu::B1024, av)).unwrap();
    endpoint.modify_qp(ours.qpn, &QpAttr::rts(start)).unwrap();
}

fn destroy(endpoint: &mut Endpoint, Objects { pd, cq, mr, qpn }: Objects) {
    assert!(endpoint.destroy_qp(qpn) && endpoint.destroy_cq(cq));
    endpoint.dereg_mr(mr.lkey).unwrap();
    assert!(endpoint.dealloc_pd(pd));
}

fn open(number: u8, port: PipePort, progress: Progress) -> Shared {
    let endpoint = Endpoint::new(ValidConfig::default(), [number; 32]);
    let bell = bell(progress).unwrap();
    worker(bell, endpoint, port, Clock::start(), Polling::default()).unwrap()
}

/// Every request of four threads completes once, at one of four others.
fn exchange(near: &Shared, far: &Shared) {
    let ours = near.with(create).unwrap();
    let theirs = far.with(create).unwrap();
    near.with(|endpoint| connect(endpoint, ours, theirs.qpn, [1, 2])).unwrap();
    far.with(|endpoint| connect(endpoint, theirs, ours.qpn, [2, 1])).unwrap();
    let remote = RemoteAddr { va: theirs.mr.addr, rkey: theirs.mr.rkey.unwrap() };
    let sges = [Sge { addr: ours.mr.addr, len: 64, lkey: ours.mr.lkey }];
    let seen = Mutex::new(BTreeMap::new());
    let (seen, sges) = (&seen, &sges);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for wr_id in (thread * REQUESTS..).take(REQUESTS) {
                    let wr_id = u64::try_from(wr_id).unwrap();
                    let write = WorkRequest::new(wr_id, WrOp::Write { remote }, sges);
                    let post = |endpoint: &mut Endpoint| endpoint.post_send(ours.qpn, &write);
                    match near.submit(post).unwrap() {
                        Err(PostError::QueueFull) => {
                            let posted = near.wait_for(None, |core| match post(&mut core.node) {
                                Err(PostError::QueueFull) => None,
                                posted => Some(posted),
                            });
                            posted.unwrap().unwrap();
                            near.publish();
                        }
                        posted => posted.unwrap(),
                    }
                }
            });
            scope.spawn(move || {
                for _ in 0..REQUESTS {
                    let poll = |endpoint: &mut Endpoint| endpoint.poll_cq(ours.cq).unwrap();
                    let late = Some(Instant::now() + LATE);
                    let wc = near.wait_for(late, |core| poll(&mut core.node)).unwrap();
                    assert_eq!(wc.status, WcStatus::Success);
                    *seen.lock().unwrap().entry(wc.wr_id).or_insert(0) += 1;
                }
            });
        }
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), THREADS * REQUESTS, "nothing lost");
    assert!(seen.values().all(|times| *times == 1), "nothing doubled");
    near.with(|endpoint| destroy(endpoint, ours)).unwrap();
    far.with(|endpoint| destroy(endpoint, theirs)).unwrap();
}

#[test]
fn submit__of_threads_that_share_objects_loses_and_doubles_nothing() {
    let seconds = std::env::var("SPANWIRE_SECONDS").map_or(1, |text| text.parse().unwrap());
    for progress in [Progress::Shared, Progress::Worker] {
        let (a, b) = pipe(PipeConfig::default());
        let (near, far) = (open(1, a, progress), open(2, b, progress));
        let (near, far, is_over) = (&near, &far, &AtomicBool::new(false));
        let until = Instant::now() + Duration::from_secs(seconds);
        thread::scope(|scope| {
            scope.spawn(|| near.work());
            scope.spawn(|| far.work());
            // Beside them others come and go.
            let churn = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let objects = near.with(create).unwrap();
                    near.submit(|endpoint| destroy(endpoint, objects)).unwrap();
                }
            });
            while Instant::now() < until {
                exchange(near, far);
            }
            is_over.store(true, Ordering::Relaxed);
            churn.join().unwrap();
            near.end("the test is over");
            far.end("the test is over");
        });
        assert_eq!(near.with(|_| ()), None, "{progress:?}: it has ended");
    }
}

const THREADS: usize = 4;
const REQUESTS: usize = 500;
/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);
