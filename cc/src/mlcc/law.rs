//! The law by which a loop of one datacenter's round trip computes its rate from telemetry.

use super::parameters::Params;
use crate::hpcc::{self, Hpcc};
use crate::powertcp::{self, PowerTcp};
use crate::units::{bytes_per_ns, dur};
use crate::{Ack, Controller, Hop, Loss, Path};
use spanwire_base::{Dur, Time};

/// HPCC or PowerTCP with the round trip of a DCI switch.
#[derive(Clone, Debug)]
pub(super) struct Law {
    inner: Inner,
    rtt: Dur,
    line: f64,
}

#[derive(Clone, Debug)]
enum Inner {
    Hpcc(Hpcc),
    PowerTcp(PowerTcp),
}

impl Law {
    /// The law of a flow, which begins with the rate of its own link.
    pub(super) fn new(p: &Params, path: &Path) -> Self {
        let (rtt, line) = (dur(p.rtt_d_us * 1e3), bytes_per_ns(path.line_rate));
        let path = Path { base_rtt: Some(rtt), ..*path };
        let inner = if p.law == POWERTCP {
            Inner::PowerTcp(PowerTcp::new(&powertcp::Params::default(), &path))
        } else {
            // HPCC's increase is that part of the bandwidth-delay product.
            let headroom = line * p.rtt_d_us * 1e3 * (1.0 - p.eta);
            let flows = if p.increase_bytes > 0.0 { headroom / p.increase_bytes } else { f64::MAX };
            let (eta, max_stage) = (p.eta, p.max_stage);
            let params = hpcc::Params { eta, max_stage, flows, ..hpcc::Params::default() };
            Inner::Hpcc(Hpcc::new(&params, &path))
        };
        Self { inner, rtt, line }
    }

    /// Bytes per nanosecond, at most those of the own link.
    pub(super) fn rate(&self) -> f64 {
        let rate = match &self.inner {
            Inner::Hpcc(hpcc) => hpcc.rate(),
            Inner::PowerTcp(power) => power.rate(),
        };
        rate.map_or(self.line, |rate| bytes_per_ns(rate).min(self.line))
    }

    /// Telemetry of one round of the loop: the next round begins now.
    pub(super) fn on_round(&mut self, now: Time, int: &[Hop]) {
        let ack = Ack { int, rtt: Some(self.rtt), sent_at: now, ..Ack::default() };
        match &mut self.inner {
            Inner::Hpcc(hpcc) => hpcc.on_ack(now, &ack),
            Inner::PowerTcp(power) => power.on_ack(now, &ack),
        }
    }

    /// Telemetry of a switch nearby; rounds are delimited by time.
    pub(super) fn on_near_int(&mut self, now: Time, int: &[Hop]) {
        match &mut self.inner {
            Inner::Hpcc(hpcc) => hpcc.on_near_int(now, int),
            Inner::PowerTcp(power) => power.on_near_int(now, int),
        }
    }

    pub(super) fn on_int_discontinuity(&mut self) {
        match &mut self.inner {
            Inner::Hpcc(hpcc) => hpcc.on_int_discontinuity(),
            Inner::PowerTcp(power) => power.on_int_discontinuity(),
        }
    }

    pub(super) fn on_loss(&mut self, now: Time, loss: &Loss) {
        match &mut self.inner {
            Inner::Hpcc(hpcc) => hpcc.on_loss(now, loss),
            Inner::PowerTcp(power) => power.on_loss(now, loss),
        }
    }
}

/// The index of the name.
const POWERTCP: f64 = 1.0;
