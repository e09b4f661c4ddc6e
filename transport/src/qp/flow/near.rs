//! Feedback of nearby switches.

use super::{Flow, int};
use spanwire_base::Time;
use spanwire_cc::{Controller, PseudoAck};
use spanwire_wire::IntRecords;

impl Flow {
    /// Reports a pseudo-ACK; the bytes sent since the previous one are added to it.
    pub(crate) fn on_pseudo_ack(&mut self, now: Time, ack: PseudoAck) {
        let sent_bytes = std::mem::take(&mut self.sent_since_near_bytes);
        self.cc.on_pseudo_ack(now, &PseudoAck { sent_bytes, ..ack });
        self.update_rate(now);
    }

    /// Reports telemetry of switches nearby, which arrived at `times.1` and is processed at
    /// `times.0`. It is trusted as that of an ACK is.
    #[inline(never)]
    pub(crate) fn on_near_int(&mut self, times: (Time, Time), int: IntRecords<'_>) {
        let (now, arrival) = times;
        let (records, continues) = int::records(arrival, int, &mut self.int);
        if !continues {
            self.cc.on_int_discontinuity();
        }
        let (hops, count) = int::hops(&records);
        self.cc.on_near_int(now, &hops[..count]);
        self.update_rate(now);
    }
}
