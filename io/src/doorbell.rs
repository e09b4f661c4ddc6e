//! Wakeup of a worker by another thread: an [`EventFd`]; the [`Doorbell`] on it, which costs one
//! atomic operation while the worker is awake; and [`BellPort`], which sleeps on a port and a bell.

use crate::clock::TimeSource;
use crate::poll::poll;
use crate::port::{Port, SlotToken, slots_of_inner};
use spanwire_base::{RxMeta, TxMeta};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An eventfd(2): poll(2) reports it readable from [`EventFd::signal`] to [`EventFd::clear`].
/// Neither ever blocks.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// An eventfd that is not signalled.
    ///
    /// # Errors
    /// The process or the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; flags of this call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created it, and it has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(File::from(fd)))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // A write of eight bytes fails only if the counter is full, and it is readable then.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Makes it unreadable; returns whether it was readable.
    pub fn clear(&self) -> bool {
        let mut count = [0; 8];
        loop {
            match (&self.0).read(&mut count) {
                Ok(_) => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes a sleeping worker from other threads.
///
/// No wakeup is lost. The ringer publishes its data, sets `rung` and then reads `asleep`; the
/// worker sets `asleep` and then reads `rung`. All accesses are sequentially consistent, so at
/// least one of them sees the other's store.
#[derive(Debug)]
pub struct Doorbell {
    event: EventFd,
    rung: AtomicBool,
    asleep: AtomicBool,
}

impl Doorbell {
    /// A bell that has not rung.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let (rung, asleep) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { event: EventFd::new()?, rung, asleep })
    }

    /// Wakes the worker for data that the caller has published before.
    pub fn ring(&self) {
        // The first ringer has already woken the worker.
        if !self.rung.swap(true, Ordering::SeqCst) && self.asleep.load(Ordering::SeqCst) {
            self.event.signal();
        }
    }

    /// Returns true once after a ring. Data published before that ring are visible afterwards.
    pub fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::SeqCst)
    }

    /// Runs `sleep`, which must end when its descriptor becomes readable. Does not run it if a ring
    /// is pending.
    fn sleep<T>(&self, sleep: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        self.asleep.store(true, Ordering::SeqCst);
        let slept = (!self.rung.load(Ordering::SeqCst)).then(|| sleep(self.event.as_fd()));
        self.asleep.store(false, Ordering::SeqCst);
        if slept.is_some() {
            self.event.clear();
        }
        slept
    }
}

/// A port whose driver a [`Doorbell`] can also wake.
#[derive(Debug)]
pub struct BellPort<P> {
    inner: P,
    bell: Arc<Doorbell>,
}

impl<P> BellPort<P> {
    /// Wraps `inner` with `bell`.
    pub fn new(inner: P, bell: Arc<Doorbell>) -> Self {
        Self { inner, bell }
    }

    /// The inner port.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// The inner port, mutable.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// Unwraps the inner port.
    pub fn into_inner(self) -> P {
        self.inner
    }
}

impl<P: Port> Port for BellPort<P> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], RxMeta),
    ) -> usize {
        self.inner.rx_burst(clock, max, each)
    }

    slots_of_inner!();

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        self.inner.slot_commit(slot, meta);
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let Self { inner, bell } = self;
        let slept = bell.sleep(|event| {
            let entry = |fd: BorrowedFd<'_>| libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            match inner.poll_fd() {
                Some(port) => poll(&mut [entry(event), entry(port)], timeout),
                // No descriptor reports the inner port's frames: poll it soon.
                None => poll(&mut [entry(event)], timeout.min(POLL_INTERVAL)),
            }
        });
        match slept.transpose()? {
            // A port may do more than wait: an AF_XDP socket checks its interface.
            Some(0) => inner.wait(Duration::ZERO),
            _ => Ok(()),
        }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }
}

/// Maximum sleep with a port that has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::{PipeConfig, pipe};
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(120);

    fn is_readable(event: &EventFd) -> bool {
        let fd = event.as_fd().as_raw_fd();
        let mut entry = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        poll(&mut entry, Duration::ZERO).expect("polls") == 1
    }

    #[test]
    fn signal__makes_it_readable_until_it_is_cleared() {
        let event = EventFd::new().expect("descriptors");
        assert!(!is_readable(&event) && !event.clear());
        event.signal();
        event.signal();
        assert!(is_readable(&event) && event.clear());
        assert!(!is_readable(&event) && !event.clear());
    }

    #[test]
    fn take__returns_a_ring_once() {
        let bell = Doorbell::new().expect("descriptors");
        assert!(!bell.take());
        bell.ring();
        bell.ring();
        assert!(bell.take() && !bell.take());
        assert!(!is_readable(&bell.event), "the worker was awake: no system call");
    }

    #[test]
    fn wait__ends_when_rung_and_is_never_missed_in_a_ping_pong() {
        let bells = [(); 2].map(|()| Arc::new(Doorbell::new().expect("descriptors")));
        let count = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let play = |me: usize| {
            let mut port = BellPort::new(pipe(PipeConfig::default()).0, bells[me].clone());
            for round in 1..=5000 {
                let begin = Instant::now();
                if me == 0 {
                    count[0].store(round, Ordering::Release);
                    bells[1].ring();
                }
                while count[1 - me].load(Ordering::Acquire) < round {
                    if !bells[me].take() {
                        // Without the slices of a port without a descriptor.
                        bells[me].sleep(|event| {
                            let fd = event.as_raw_fd();
                            let mut entry = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
                            poll(&mut entry, LONG).expect("polls")
                        });
                    }
                }
                assert!(begin.elapsed() < LONG, "round {round} was missed");
                if me == 1 {
                    count[1].store(round, Ordering::Release);
                    bells[0].ring();
                }
            }
            bells[me].ring();
            let begin = Instant::now();
            port.wait(LONG).expect("waits");
            assert!(begin.elapsed() < LONG);
        };
        thread::scope(|scope| {
            scope.spawn(|| play(1));
            play(0);
        });
    }

    #[test]
    fn wait__ends_at_its_timeout() {
        let bell = Arc::new(Doorbell::new().expect("descriptors"));
        let mut port = BellPort::new(pipe(PipeConfig::default()).0, bell);
        let begin = Instant::now();
        port.wait(Duration::from_micros(50)).expect("waits");
        assert!(begin.elapsed() >= Duration::from_micros(50));
    }
}
