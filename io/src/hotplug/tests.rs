use super::*;
use crate::clock::TimeSource;
use crate::port::reserve;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// An interface that a test takes away and brings back.
#[derive(Default)]
struct Interface {
    is_gone: AtomicBool,
    sent: AtomicU64,
}

struct FakePort {
    interface: Arc<Interface>,
    slot: [u8; 64],
    pending: u64,
    flushed: u64,
}

impl Port for FakePort {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        _: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        let now = clock.now();
        each(b"received", &RxMeta::whole(now));
        1
    }

    fn slot_take(&mut self) -> Option<SlotToken> {
        Some(SlotToken::new(7))
    }

    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        assert_eq!(slot.id(), 7, "a token of this port");
        &mut self.slot
    }

    fn slot_commit(&mut self, slot: SlotToken, _: TxMeta) {
        assert_eq!(slot.id(), 7, "a token of this port");
        self.pending += 1;
    }

    fn slot_release(&mut self, _: SlotToken) {}

    fn flush(&mut self, _: Time) -> io::Result<()> {
        self.wait(Duration::ZERO)?;
        self.flushed += self.pending;
        self.interface.sent.fetch_add(std::mem::take(&mut self.pending), Ordering::SeqCst);
        Ok(())
    }

    fn frame_room(&self) -> usize {
        self.slot.len()
    }

    fn tx_pending(&self) -> usize {
        usize::try_from(self.pending).expect("few")
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        match self.interface.is_gone.load(Ordering::SeqCst) {
            true => Err(io::Error::other("no such interface")),
            false => Ok(()),
        }
    }
}

impl Reopen for FakePort {
    fn mode(&self) -> &'static str {
        "fake"
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("tx_frames", self.flushed)]
    }
}

fn port(interface: &Arc<Interface>) -> HotplugPort<FakePort> {
    let interface = Arc::clone(interface);
    let open = move || {
        if interface.is_gone.load(Ordering::SeqCst) {
            return Err("no such interface".into());
        }
        let interface = Arc::clone(&interface);
        Ok(FakePort { interface, slot: [0; 64], pending: 0, flushed: 0 })
    };
    HotplugPort::new("eth7", Arc::new(open)).expect("it is there")
}

fn send(port: &mut HotplugPort<FakePort>, count: usize) {
    for _ in 0..count {
        let mut slot = reserve(port).expect("a slot");
        slot.bytes()[..60].fill(1);
        slot.commit(TxMeta::whole(60));
    }
}

fn receives(port: &mut HotplugPort<FakePort>) -> usize {
    port.rx_burst(&Time::ZERO, 8, &mut |_, _| ())
}

/// Waits until the port is open again.
fn until_back(port: &mut HotplugPort<FakePort>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while port.mode().is_none() {
        assert!(Instant::now() < deadline, "it does not come back");
        port.wait(Duration::from_secs(1)).expect("never an error");
    }
}

#[test]
fn new__an_interface_that_is_not_there_is_refused() {
    let open: Open<FakePort> = Arc::new(|| Err("no such interface".into()));
    assert!(HotplugPort::new("eth7", open).is_err());
}

#[test]
fn flush__drops_what_is_sent_while_the_interface_is_gone_and_comes_back() {
    let interface = Arc::new(Interface::default());
    let mut port = port(&interface);
    send(&mut port, 3);
    port.flush(Time::ZERO).expect("there");
    assert_eq!((port.mode(), port.device()), (Some("fake"), "eth7"));
    assert_eq!(port.counters(), [("tx_frames", 3), ("drop_gone", 0), ("gone", 0)]);
    for round in 1..=3 {
        interface.is_gone.store(true, Ordering::SeqCst);
        // Two that the interface had not taken, then five that it never sees.
        send(&mut port, 2);
        port.flush(Time::ZERO).expect("a lost interface is no error of the switch");
        assert_eq!((port.mode(), port.tx_pending()), (None, 0));
        send(&mut port, 5);
        drop(reserve(&mut port));
        port.flush(Time::ZERO).expect("no error");
        assert_eq!(receives(&mut port), 0);
        assert!(port.poll_fd().is_some(), "a driver sleeps until it is back");
        let expected = [("tx_frames", 3 * round), ("drop_gone", 7 * round), ("gone", round)];
        assert_eq!(port.counters(), expected);
        interface.is_gone.store(false, Ordering::SeqCst);
        until_back(&mut port);
        assert_eq!(receives(&mut port), 1);
        send(&mut port, 3);
        port.flush(Time::ZERO).expect("there");
        let expected = [("tx_frames", 3 * round + 3), ("drop_gone", 7 * round), ("gone", round)];
        assert_eq!(port.counters(), expected);
        assert_eq!(interface.sent.load(Ordering::SeqCst), 3 * round + 3);
    }
}

#[test]
fn wait__finds_the_interface_gone_as_well() {
    let interface = Arc::new(Interface::default());
    let mut port = port(&interface);
    interface.is_gone.store(true, Ordering::SeqCst);
    port.wait(Duration::ZERO).expect("no error");
    assert_eq!(port.mode(), None);
    interface.is_gone.store(false, Ordering::SeqCst);
    // The switch polls all its ports; any call notices that the interface is back.
    let deadline = Instant::now() + Duration::from_secs(60);
    while receives(&mut port) == 0 {
        assert!(Instant::now() < deadline, "it does not come back");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn drop__ends_the_thread_that_waits_for_the_interface() {
    let interface = Arc::new(Interface::default());
    let mut port = port(&interface);
    interface.is_gone.store(true, Ordering::SeqCst);
    port.flush(Time::ZERO).expect("no error");
    drop(port);
    let deadline = Instant::now() + Duration::from_secs(60);
    while Arc::strong_count(&interface) > 1 {
        assert!(Instant::now() < deadline, "the thread goes on");
        thread::sleep(Duration::from_millis(5));
    }
}
