//! How another thread wakes a worker: an [`EventFd`], the [`Doorbell`] on it, which costs one
//! atomic operation while the worker is awake, and [`BellPort`], which sleeps on a port and a bell
//! at once.

use crate::poll::poll;
use crate::port::{Port, SlotToken, slots_of_inner};
use spanwire_base::{RxMeta, Time, TxMeta};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A descriptor that poll(2) calls readable from [`EventFd::signal`] to [`EventFd::clear`]
/// (eventfd(2)). Neither ever blocks.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// One that is not signalled.
    ///
    /// # Errors
    /// The process or the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; flags of this call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made it, and nobody else knows of it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(File::from(fd)))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // The only refusal of eight whole bytes is a full counter: it is readable then.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Makes it unreadable; says whether it was readable.
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

/// Where a worker sleeps and other threads wake it.
///
/// No ring is lost: a ringer first publishes its news, then sets `rung`, then looks whether the
/// worker sleeps; the worker first says that it sleeps, then looks at `rung`. All of it is
/// sequentially consistent, so at least one of them sees the other.
#[derive(Debug)]
pub struct Doorbell {
    event: EventFd,
    rung: AtomicBool,
    asleep: AtomicBool,
}

impl Doorbell {
    /// A bell that nobody has rung.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let (rung, asleep) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { event: EventFd::new()?, rung, asleep })
    }

    /// Tells the worker that there is news, which the caller has published before.
    pub fn ring(&self) {
        // Whoever rang first has seen to the waking.
        if !self.rung.swap(true, Ordering::SeqCst) && self.asleep.load(Ordering::SeqCst) {
            self.event.signal();
        }
    }

    /// True once after it was rung. What was published before that ring is visible afterwards.
    pub fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::SeqCst)
    }

    /// Runs `sleep`, which must end when the descriptor it is given becomes readable; not at all if
    /// the bell was rung and the ring not taken.
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

/// A port whose driver a [`Doorbell`] wakes as well.
#[derive(Debug)]
pub struct BellPort<P> {
    inner: P,
    bell: Arc<Doorbell>,
}

impl<P> BellPort<P> {
    /// `inner`, with `bell` on it.
    pub fn new(inner: P, bell: Arc<Doorbell>) -> Self {
        Self { inner, bell }
    }

    /// The port inside.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// The port inside, to change.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// The port inside, alone.
    pub fn into_inner(self) -> P {
        self.inner
    }
}

impl<P: Port> Port for BellPort<P> {
    fn rx_burst(&mut self, now: Time, max: usize, each: &mut dyn FnMut(&[u8], RxMeta)) -> usize {
        self.inner.rx_burst(now, max, each)
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
                // Frames that no descriptor knows of: look again soon.
                None => poll(&mut [entry(event)], timeout.min(LOOK_EVERY)),
            }
        });
        match slept.transpose()? {
            // A port may do more than wait: an AF_XDP socket asks whether its interface is there.
            Some(0) => inner.wait(Duration::ZERO),
            _ => Ok(()),
        }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }
}

/// How long a sleep may be beside a port without a descriptor.
const LOOK_EVERY: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::{PipeConfig, pipe};
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

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
    fn take__says_once_that_it_was_rung() {
        let bell = Doorbell::new().expect("descriptors");
        assert!(!bell.take());
        bell.ring();
        bell.ring();
        assert!(bell.take() && !bell.take());
        assert!(!is_readable(&bell.event), "nobody slept: no system call");
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
                        // Without the slices that a port without a descriptor asks for.
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
    fn wait__ends_with_its_time() {
        let bell = Arc::new(Doorbell::new().expect("descriptors"));
        let mut port = BellPort::new(pipe(PipeConfig::default()).0, bell);
        let begin = Instant::now();
        port.wait(Duration::from_micros(50)).expect("waits");
        assert!(begin.elapsed() >= Duration::from_micros(50));
    }
}
