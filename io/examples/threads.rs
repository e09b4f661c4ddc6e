//! Eight threads of an application on one endpoint: four post WRITEs on one queue pair, four poll
//! its completion queue.
//!
//! A verb runs in the thread that calls it, under the lock of the endpoint's worker. A thread that
//! has to wait (for room in the send queue, for a completion) drives the engine meanwhile.
//!
//! `cargo run --release -p spanwire-io --example threads`

use spanwire_io::clock::Clock;
use spanwire_io::driver::Polling;
use spanwire_io::pipe::{PipeConfig, PipePort, pipe};
use spanwire_io::worker::{Progress, Worker, bell, worker};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, CqId, Endpoint, MemoryRegion, Mtu, PostError, QpAttr, QpCaps, QpInit,
    RemoteAddr, Sge, ValidConfig, WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::{MacAddr, Psn, Qpn};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::thread;

/// A worker with a queue pair, its completion queue and a page of memory.
struct Side(Worker<Endpoint, PipePort>, CqId, Qpn, MemoryRegion);

fn side(number: u8, port: PipePort) -> Result<Side, Box<dyn Error>> {
    // A real program passes 32 random bytes of the system, because all keys derive from them.
    let mut endpoint = Endpoint::new(ValidConfig::default(), [number; 32]);
    let (pd, cq) = (endpoint.alloc_pd()?, endpoint.create_cq(QpCaps::default().max_send_wr)?);
    let mr = endpoint.reg_mr(pd, Region::zeroed(4096), Access::ALL, None)?;
    // The threads that post may be ahead of those that poll, but not by more than the queue holds.
    let init = QpInit { places_until_polled: true, ..QpInit::new(pd, cq, cq, QpCaps::default()) };
    let qpn = endpoint.create_qp(&init)?;
    endpoint.modify_qp(qpn, &QpAttr::init(Access::ALL))?;
    let bell = bell(Progress::Shared)?;
    Ok(Side(worker(bell, endpoint, port, Clock::start(), Polling::default())?, cq, qpn, mr))
}

fn connect(Side(worker, _, qpn, _): &Side, us: u8, Side(_, _, peer, _): &Side, them: u8) {
    let (mac, ip) = (|n| MacAddr::new([2, 0, 0, 0, 0, n]), |n| Ipv4Addr::new(10, 0, 0, n));
    let av = AddressVector::new(mac(us), mac(them), IpAddr::V4(ip(us)), IpAddr::V4(ip(them)));
    let connected = worker.submit(|endpoint| {
        endpoint.modify_qp(*qpn, &QpAttr::rtr(*peer, Psn::new(0), Mtu::B1024, av))?;
        endpoint.modify_qp(*qpn, &QpAttr::rts(Psn::new(0)))
    });
    connected.expect("it has not ended").expect("the attributes are valid");
}

fn main() -> Result<(), Box<dyn Error>> {
    let (near, far) = pipe(PipeConfig::default());
    let (alice, bob) = (side(1, near)?, side(2, far)?);
    connect(&alice, 1, &bob, 2);
    connect(&bob, 2, &alice, 1);
    let Side(worker, cq, qpn, mr) = &alice;
    let remote = RemoteAddr { va: bob.3.addr, rkey: bob.3.rkey.ok_or("bob's memory is closed")? };
    let sges = [Sge { addr: mr.addr, len: 64, lkey: mr.lkey }];
    let seen = Mutex::new(vec![0_u32; THREADS * WRITES]);

    thread::scope(|scope| {
        // A thread of each worker stands in while no thread of the application waits.
        scope.spawn(|| worker.work());
        scope.spawn(|| bob.0.work());
        let post = |thread| {
            for wr_id in (thread * WRITES..).take(WRITES) {
                let write = WorkRequest::new(wr_id as u64, WrOp::Write { remote }, &sges);
                let posted =
                    worker.wait_for(None, |core| match core.node.post_send(*qpn, &write) {
                        Err(PostError::QueueFull) => None,
                        posted => Some(posted),
                    });
                posted.expect("it has not ended").expect("the request is valid");
                worker.publish();
            }
        };
        let poll = || {
            for _ in 0..WRITES {
                let polled = worker.wait_for(None, |core| core.node.poll_cq(*cq).transpose());
                let wc = polled.expect("it has not ended").expect("the queue exists");
                assert_eq!(wc.status, WcStatus::Success);
                seen.lock().unwrap()[usize::try_from(wc.wr_id).unwrap()] += 1;
            }
        };
        let posters = (0..THREADS).map(|thread| scope.spawn(move || post(thread)));
        let threads: Vec<_> = posters.chain((0..THREADS).map(|_| scope.spawn(poll))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
        worker.end("the example is over");
        bob.0.end("the example is over");
    });
    assert!(seen.into_inner()?.iter().all(|times| *times == 1), "nothing lost, nothing doubled");
    assert!(worker.with(|_| ()).is_none(), "a call after the end is an error, and no hang");
    println!("{THREADS} threads posted and {THREADS} polled {} WRITEs", THREADS * WRITES);
    Ok(())
}

const THREADS: usize = 4;
const WRITES: usize = 10_000;
