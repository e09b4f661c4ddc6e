//! The values of a host model.

use super::lateness::Lateness;
use super::sockets::Sockets;
use spanwire_base::{Dur, u64_from};
use spanwire_progress::Polling;
use spanwire_transport::Config;

/// The timing of a host's driver.
///
/// A step receives up to `batch` frames, handles timers and sends up to `batch` frames. It costs
/// CPU time; its frames leave when it ends. An idle host spins, then sleeps until a frame arrives
/// or its timer is due, and wakes late.
///
/// ACKs have no delay of their own: the responder sends them in the step that receives the data.
/// So they are late by the wakeup, the stalls and the steps of the responder, and RTT samples
/// include that time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostModel {
    /// CPU time of a step without frames.
    pub step: Dur,
    /// CPU time to receive a frame.
    pub rx_frame: Dur,
    /// CPU time to send a frame.
    pub tx_frame: Dur,
    /// CPU time per 1024 bytes of a frame, received or sent: copies and checksums.
    pub kibibyte: Dur,
    /// Maximum frames received and maximum frames sent in a step, at least 1.
    pub batch: usize,
    /// Maximum frames waiting to be received; further ones are lost. At least 1.
    pub rx_ring: usize,
    /// Maximum frames waiting to leave, at least 1.
    pub tx_ring: usize,
    /// When an idle host spins, and when it sleeps. [`Polling::Adaptive`] is the rule of real
    /// drivers, [`Spinner`](spanwire_progress::Spinner).
    pub polling: Polling,
    /// Time from the arrival of a frame or the deadline of a timer to the first step of a host that
    /// slept.
    pub wakeup: Lateness,
    /// Mean running time between two stalls: intervals without CPU. Zero for none. It is drawn from
    /// the exponential distribution, and does not pass during a sleep.
    pub stall_interval: Dur,
    /// The length of a stall.
    pub stall: Lateness,
    /// Arrivals are dated by a timestamp of the kernel or of the card; otherwise by the step.
    pub timestamps: bool,
    /// Costs and limits of UDP sockets; `None` for rings.
    pub sockets: Option<Sockets>,
}

impl HostModel {
    /// An upper bound of the time from an arrival or a deadline to the end of the step that
    /// processes it, with a full receive ring before it: a wakeup, two stalls and the steps. A
    /// third stall in this time is possible, but rare if stalls are.
    #[must_use]
    pub fn delay_max(&self) -> Dur {
        let frames = u64_from(self.batch);
        let each_a_call = |sockets: &Sockets| sockets.rx_call + sockets.tx_call;
        let calls = self.sockets.as_ref().map_or(Dur::ZERO, each_a_call);
        let both = self.rx_frame + self.tx_frame + calls + self.kibibyte * (2 * FRAME_KIB_MAX);
        let steps = u64_from(self.rx_ring.div_ceil(self.batch)) + 1;
        let running = (self.step + both * frames) * steps;
        let stalls = if self.stall_interval > Dur::ZERO { 2 } else { 0 };
        self.wakeup.max()
            + self.stall.max() * stalls
            + running
            + self.polling.spin_max()
            + PENDING_POLL
    }

    /// The pacing quantum of its engine ([`Config::pacing_quantum`]): that of workers that sleep if
    /// polling is adaptive, else zero. Fixed spins are those of drivers without a quantum.
    #[must_use]
    pub fn pacing_quantum(&self) -> Dur {
        match self.polling {
            Polling::Adaptive => Config::SLEEPER_QUANTUM,
            Polling::Busy | Polling::Spin(_) => Dur::ZERO,
        }
    }

    /// Frames of `bytes` bytes that may wait to be received.
    pub(crate) fn rx_room(&self, bytes: u64) -> usize {
        let buffer = self.sockets.as_ref().map(|sockets| sockets.rx_frames(bytes));
        self.rx_ring.min(buffer.unwrap_or(usize::MAX))
    }

    /// Frames of `bytes` bytes that may wait to leave.
    pub(crate) fn tx_room(&self, bytes: u64) -> usize {
        let buffer = self.sockets.as_ref().map(|sockets| sockets.tx_frames(bytes));
        self.tx_ring.min(buffer.unwrap_or(usize::MAX))
    }

    /// Bytes of packets that a peer of the same kind can receive at once: half of the receive
    /// buffer, as over real sockets. `None` for rings.
    #[must_use]
    pub fn receive_room_bytes(&self) -> Option<u32> {
        let half = |sockets: &Sockets| u32::try_from(sockets.rx_bytes / 2).unwrap_or(u32::MAX);
        self.sockets.as_ref().map(half)
    }

    /// The longest static window, in packets of `bytes` bytes. `None` for rings.
    #[must_use]
    pub fn window_pkts(&self, bytes: u32) -> Option<u32> {
        self.receive_room_bytes().map(|room| (room / bytes.max(1)).max(WINDOW_PKTS_MIN))
    }
}

/// The longest frame in units of 1024 bytes, rounded up.
const FRAME_KIB_MAX: u64 = 10;

/// A window of fewer packets has no loss recovery but timeouts.
const WINDOW_PKTS_MIN: u32 = 4;

/// How soon a driver polls a port again that has frames to send.
pub(super) const PENDING_POLL: Dur = Dur::from_us(200);
