//! A port whose interface may be removed while a program runs, and come back.
//!
//! While the interface is gone the port stays a port: what is sent there is counted as
//! dropped, and nothing arrives. A thread of its own closes the old socket and opens a new one on
//! the interface of the same name as soon as there is one: both take the kernel some tens of
//! milliseconds, for which the other ports must not wait.

use crate::clock::TimeSource;
use crate::event::EventFd;
use crate::port::{Port, SlotToken};
use crate::xdp::XdpPort;
use spanwire_base::{RxMeta, Time, TxMeta, u64_from};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// A port that can be opened again.
pub trait Reopen: Port + Send + 'static {
    /// How it is attached, for reports.
    fn mode(&self) -> &'static str;

    /// Its counters by name, always the same names in the same order.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// Opens the port anew.
pub type Open<P> = Arc<dyn Fn() -> Result<P, OpenError> + Send + Sync>;

/// Why a port cannot be opened.
pub type OpenError = Box<dyn std::error::Error + Send + Sync>;

/// A port on an interface, whether the interface is there or not.
pub struct HotplugPort<P> {
    /// The interface, by name.
    device: String,
    open: Open<P>,
    state: State<P>,
    /// Readable once a port has been opened anew.
    event: Arc<EventFd>,
    /// Takes frames dropped while it is gone; as long as the longest frame.
    nowhere: Vec<u8>,
    /// Counters of the ports before this one.
    earlier: Vec<(&'static str, u64)>,
    /// Frames that the switch sent while the interface was gone, or just before.
    drop_gone: u64,
    /// How often the interface has gone.
    gone: u64,
}

enum State<P> {
    Open(P),
    /// The thread that waits for the interface sends a port here.
    Gone(Receiver<P>),
}

impl Reopen for XdpPort {
    fn mode(&self) -> &'static str {
        XdpPort::mode(self).as_str()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        XdpPort::counters(self).list()
    }
}

impl<P: Reopen> HotplugPort<P> {
    /// Opens the port; its interface must be there now. `open` runs again, on another thread of
    /// the same network namespace, whenever the interface has gone.
    ///
    /// # Errors An error of `open`, or there are no descriptors left.
    pub fn new(device: &str, open: Open<P>) -> Result<Self, OpenError> {
        let port = open()?;
        Ok(Self {
            device: device.to_owned(),
            nowhere: vec![0; port.frame_room()],
            state: State::Open(port),
            event: Arc::new(EventFd::new()?),
            open,
            earlier: Vec::new(),
            drop_gone: 0,
            gone: 0,
        })
    }

    /// The interface's name.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// How the port is attached; `None` while the interface is gone.
    #[must_use]
    pub fn mode(&self) -> Option<&'static str> {
        match &self.state {
            State::Open(port) => Some(port.mode()),
            State::Gone(_) => None,
        }
    }

    /// All counters by name, also those of the ports before this one: of the port, then
    /// `drop_gone`, the frames lost for want of an interface, and `gone`, how often it has gone.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut sums = match &self.state {
            State::Open(port) => sum(&self.earlier, port.counters()),
            State::Gone(_) => self.earlier.clone(),
        };
        sums.extend([("drop_gone", self.drop_gone), ("gone", self.gone)]);
        sums
    }

    /// Gives up the port after an error, which says that its interface is gone.
    fn lose(&mut self, error: &io::Error) {
        let (sender, port) = sync_channel(1);
        let State::Open(dead) = std::mem::replace(&mut self.state, State::Gone(port)) else {
            return;
        };
        tracing::warn!(interface = self.device, %error, "port is gone, the others go on");
        self.gone += 1;
        self.drop_gone += u64_from(dead.tx_pending());
        self.earlier = sum(&self.earlier, dead.counters());
        let (device, open) = (self.device.clone(), Arc::clone(&self.open));
        let event = Arc::clone(&self.event);
        // An earlier thread may have signalled after its port had been taken.
        event.clear();
        let reopener = thread::Builder::new().name("reopen".to_owned());
        let work = move || {
            drop(dead);
            reopen(&device, &open, &sender, &event);
        };
        if let Err(error) = reopener.spawn(work) {
            tracing::warn!(interface = self.device, %error, "no thread: the port stays gone");
        }
    }

    /// Goes on with a port that has been opened anew.
    fn come_back(&mut self, port: P) {
        tracing::warn!(interface = self.device, mode = port.mode(), "port is back");
        self.event.clear();
        self.nowhere.resize(port.frame_room(), 0);
        self.state = State::Open(port);
    }
}

/// Opens the port as soon as that works, and hands it over. Ends when nothing waits for it any
/// more: `event` belongs to this thread and to the port that waits.
fn reopen<P: Port>(device: &str, open: &Open<P>, sender: &SyncSender<P>, event: &Arc<EventFd>) {
    let mut said = String::new();
    while Arc::strong_count(event) > 1 {
        match open() {
            Ok(port) => {
                // There is room for one; it is closed if nothing waits for it.
                let _ = sender.try_send(port);
                event.signal();
                return;
            }
            Err(error) => {
                let text = error.to_string();
                if text != said {
                    tracing::warn!(interface = device, error = text, "the port is not back yet");
                    said = text;
                }
            }
        }
        thread::sleep(RETRY);
    }
}

fn sum(
    earlier: &[(&'static str, u64)],
    mut counters: Vec<(&'static str, u64)>,
) -> Vec<(&'static str, u64)> {
    for ((name, count), (same, before)) in counters.iter_mut().zip(earlier) {
        debug_assert_eq!(name, same, "counters keep their order");
        *count += before;
    }
    counters
}

impl<P: Reopen> Port for HotplugPort<P> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        match &mut self.state {
            State::Open(port) => port.rx_burst(clock, max, each),
            State::Gone(reopened) => {
                if let Ok(port) = reopened.try_recv() {
                    self.come_back(port);
                }
                0
            }
        }
    }

    // A slot is committed or given back before the port is flushed, and only then can its interface
    // be found gone: a token always returns to the state that made it.
    fn slot_take(&mut self) -> Option<SlotToken> {
        match &mut self.state {
            State::Open(port) => port.slot_take(),
            State::Gone(_) => Some(SlotToken::new(0)),
        }
    }

    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        match &mut self.state {
            State::Open(port) => port.slot_bytes(slot),
            State::Gone(_) => &mut self.nowhere,
        }
    }

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        match &mut self.state {
            State::Open(port) => port.slot_commit(slot, meta),
            State::Gone(_) => self.drop_gone += 1,
        }
    }

    fn slot_release(&mut self, slot: SlotToken) {
        if let State::Open(port) = &mut self.state {
            port.slot_release(slot);
        }
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        if let State::Open(port) = &mut self.state
            && let Err(error) = port.flush(now)
        {
            self.lose(&error);
        }
        Ok(())
    }

    fn frame_room(&self) -> usize {
        match &self.state {
            State::Open(port) => port.frame_room(),
            State::Gone(_) => self.nowhere.len(),
        }
    }

    fn tx_pending(&self) -> usize {
        match &self.state {
            State::Open(port) => port.tx_pending(),
            State::Gone(_) => 0,
        }
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match &mut self.state {
            State::Open(port) => {
                if let Err(error) = port.wait(timeout) {
                    self.lose(&error);
                }
            }
            State::Gone(reopened) => {
                if let Ok(port) = reopened.recv_timeout(timeout) {
                    self.come_back(port);
                }
            }
        }
        Ok(())
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Open(port) => port.poll_fd(),
            State::Gone(_) => Some(self.event.as_fd()),
        }
    }
}

/// Retry interval: the longest delay after the interface is back. A try is a few system calls.
const RETRY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
