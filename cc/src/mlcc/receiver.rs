//! The receiver's part: the credit loop and queue management.

use super::dqm::Dqm;
use super::law::Law;
use super::parameters::Params;
use crate::units::{bytes_per_ns, dur, float, rate};
use crate::{Hop, Path};
use spanwire_base::{Dur, Rate, Time};

/// The credit loop of one flow at its receiver, and its queue management.
///
/// The receiver's DCI switch writes the number of the last round that it heard of into each data
/// packet. A packet with the present number ends the round: the rates are computed anew, and the
/// next number leaves with an acknowledgement. If that is lost, or comes late, the next packet ends
/// the round after two round trips; without a packet it ends by itself then
/// ([`Receiver::poll_timeout`]), at most `IDLE_ROUNDS` times.
///
/// A queue of more than a round trip behind the switch delays every number by more than the round
/// lasts. The law therefore takes the telemetry of whatever packet ends a round: if it waited for a
/// match, that queue would never shrink.
///
/// It allocates only when it is made: 8 bytes for each round in a round trip between sender and
/// receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    law: Option<Law>,
    dqm: Dqm,
    rtt_d: Dur,
    /// C_R.
    credit: u32,
    /// R_credit.
    rate: f64,
    /// When the present round began; none before the first packet.
    began: Option<Time>,
    /// Rounds that ended by themselves since the last packet.
    idle: u32,
    /// The last round ended without telemetry.
    lacks_telemetry: bool,
    waiting_bytes: u32,
}

/// A data packet that arrived, no duplicate.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// C_D: the round that the receiver's DCI switch has heard of.
    pub credit: u32,
    /// Bytes of the flow that wait at that switch.
    pub waiting_bytes: u32,
    /// Telemetry of the switches from there on, that switch first.
    pub int: &'a [Hop],
}

/// The receiver's part of each acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credit {
    /// C_R: the number of the present round, modulo 2^32.
    pub credit: u32,
    /// R_credit: the rate at which the receiver's DCI switch is to let the flow in.
    pub rate: Rate,
    /// The rate that the sender is to keep.
    pub suggested: Rate,
}

impl Receiver {
    /// The receiver of one flow, on a link of `path.line_rate`.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let line = bytes_per_ns(path.line_rate);
        Self {
            law: params.credit_loop.then(|| Law::new(params, path)),
            dqm: Dqm::new(params, f64::from(path.mtu_bytes), line),
            rtt_d: dur(params.rtt_d_us * 1e3),
            credit: 1,
            rate: line,
            began: None,
            idle: 0,
            lacks_telemetry: false,
            waiting_bytes: 0,
        }
    }

    /// A data packet arrived, no duplicate. True if it ended a round: an acknowledgement is to
    /// leave at once.
    pub fn on_data(&mut self, now: Time, a: &Arrival<'_>) -> bool {
        let is_first = self.began.is_none();
        self.began.get_or_insert(now);
        self.idle = 0;
        self.waiting_bytes = a.waiting_bytes;
        let is_late = self.began.is_some_and(|began| began + self.rtt_d * 2 <= now);
        let ends = a.credit == self.credit || is_late;
        if (ends || std::mem::take(&mut self.lacks_telemetry))
            && let Some(law) = &mut self.law
        {
            law.on_round(now, a.int);
            self.rate = law.rate();
        }
        if ends {
            self.end_round(now);
        }
        self.dqm.on_packet(self.rate);
        // The first number must reach the switch, or its rounds would not begin.
        ends || is_first
    }

    /// Telemetry cannot be compared with earlier one, because counters may have wrapped.
    pub fn on_int_discontinuity(&mut self) {
        if let Some(law) = &mut self.law {
            law.on_int_discontinuity();
        }
    }

    /// When the present round ends by itself; none before the first packet, and long after the
    /// last.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let began = self.began.filter(|_| self.idle < IDLE_ROUNDS)?;
        Some(began + self.rtt_d * 2)
    }

    /// Ends the round that is due. True if one ended: an acknowledgement is to leave at once.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        let is_due = self.poll_timeout().is_some_and(|at| at <= now);
        if is_due {
            self.idle += 1;
            self.lacks_telemetry = true;
            self.end_round(now);
        }
        is_due
    }

    /// The content of each acknowledgement.
    #[must_use]
    pub fn credit(&self) -> Credit {
        let suggested = self.dqm.rate(self.rate);
        Credit { credit: self.credit, rate: rate(self.rate), suggested: rate(suggested) }
    }

    /// The number of rounds and the rate change.
    fn end_round(&mut self, now: Time) {
        self.credit = self.credit.wrapping_add(1);
        self.began = Some(now);
        self.dqm.on_round(self.rate, float(self.waiting_bytes.into()));
    }
}

/// Rounds that end by themselves without data: as many as acknowledgements may be lost in a row
/// until the next packet ends the round.
const IDLE_ROUNDS: u32 = 4;
