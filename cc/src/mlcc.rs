//! MLCC: three control loops for flows between datacenters.
//!
//! The way of a flow is cut at the switches that connect the datacenters (DCI). The *near-source
//! loop* ends at the sender's DCI switch, which sends the telemetry of the sender's datacenter back
//! at once; [`Mlcc`] computes the rate `R_NS` from it. The *credit loop* is between the receiver's
//! DCI switch and the receiver: [`Receiver`] computes `R_credit`, at which that switch lets the
//! flow in. *Queue management* (DQM), also in [`Receiver`], suggests a rate to the sender that
//! keeps what waits at that switch at a target delay. The sender's rate is the lesser of `R_NS` and
//! the suggested one.
//!
//! # Units
//! Rates here count bytes of frames, as switches do in their queues and telemetry. The pacer counts
//! preamble and gaps too, and gets a rate that is higher by their part: without that the queue
//! would settle below its target by `theta` times that part
//! (docs/decisions/0032-mlcc.md).
//!
//! # Source
//! MLCC III; for what it leaves open docs/decisions/0032-mlcc.md.

mod dqm;
mod law;
mod parameters;
mod receiver;

pub use parameters::Params;
pub use receiver::{Arrival, Credit, Receiver};

use crate::units::{bytes_per_ns, float, rate, whole};
use crate::{Ack, Controller, Hop, Loss, LossKind, Path, Sent};
use law::Law;
use parameters::LEAST_SHARE;
use spanwire_base::{Dur, Rate, Time};

/// The sender's part of MLCC.
#[derive(Clone, Debug)]
pub struct Mlcc {
    mtu: f64,
    line: f64,
    rtt_c_ns: f64,
    /// The near-source loop; none without it.
    law: Option<Law>,
    /// The rate that the receiver suggests, once it has.
    suggested: Option<f64>,
    /// Bytes that the pacer counts for a byte of a frame.
    paced_share: f64,
}

impl Mlcc {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        Self {
            mtu: f64::from(path.mtu_bytes),
            line: bytes_per_ns(path.line_rate),
            rtt_c_ns: params.rtt_c_us * 1e3,
            law: params.near_loop.then(|| Law::new(params, path)),
            suggested: None,
            paced_share: 1.0,
        }
    }

    /// R_NS, the rate of the near-source loop, as the pacer counts it; the line's without the loop.
    #[must_use]
    pub fn near_rate(&self) -> Rate {
        rate(self.near())
    }

    fn near(&self) -> f64 {
        self.law.as_ref().map_or(self.line, |law| law.rate().min(self.line))
    }

    /// The sending rate in bytes of frames per nanosecond.
    fn present(&self) -> f64 {
        self.near().min(self.suggested.unwrap_or(self.line))
    }
}

impl Controller for Mlcc {
    fn cwnd_bytes(&self) -> u64 {
        whole((WINDOW_RTTS * self.line * self.rtt_c_ns).max(self.mtu))
    }

    fn rate(&self) -> Option<Rate> {
        Some(rate((self.present() * self.paced_share).min(self.line)))
    }

    fn wants_int(&self) -> bool {
        true
    }

    fn wants_near(&self) -> bool {
        true
    }

    fn wants_credit(&self) -> bool {
        true
    }

    /// Acknowledgements say nothing about the queues nearby; the receiver's suggestion is
    /// [`Controller::on_credit`].
    fn on_ack(&mut self, _now: Time, _ack: &Ack<'_>) {}

    fn on_sent(&mut self, _now: Time, sent: &Sent) {
        // Of full packets: the pacer counts short ones in part.
        if sent.bytes > 0 && float(sent.bytes.into()) >= self.mtu && sent.frame_bytes > 0 {
            let share = f64::from(sent.paced_bytes) / f64::from(sent.frame_bytes);
            self.paced_share = share.clamp(1.0, 2.0);
        }
    }

    fn on_near_int(&mut self, now: Time, int: &[Hop]) {
        if let Some(law) = &mut self.law {
            law.on_near_int(now, int);
        }
    }

    fn on_int_discontinuity(&mut self) {
        if let Some(law) = &mut self.law {
            law.on_int_discontinuity();
        }
    }

    fn on_credit(&mut self, _now: Time, suggested: Rate) {
        self.suggested = Some(bytes_per_ns(suggested).clamp(self.line * LEAST_SHARE, self.line));
    }

    /// After a timeout R_NS is half. The rates of the receiver are its own, and stay.
    fn on_loss(&mut self, now: Time, loss: &Loss) {
        if let (LossKind::Timeout(_), Some(law)) = (loss.kind, &mut self.law) {
            law.on_loss(now, loss);
        }
    }

    fn set_path(&mut self, line_rate: Rate, _base_rtt: Dur) {
        self.line = bytes_per_ns(line_rate);
    }

    fn on_path_change(&mut self, _now: Time) {
        self.on_int_discontinuity();
    }
}

/// The window in round trips between sender and receiver at the rate of the own link: it bounds
/// what is in flight if acknowledgements stop. One at the present rate would stop the sender for as
/// long as a queue at the receiver's DCI switch holds more than a quarter of it, which is for queue
/// management to decide.
const WINDOW_RTTS: f64 = 1.25;

#[cfg(test)]
mod tests;
