//! Acknowledgements with telemetry of switches.

use super::{Flow, int};
use spanwire_base::Time;
use spanwire_cc::{Ack, Controller};
use spanwire_wire::IntRecords;

impl Flow {
    /// Reports an ACK with INT records, which are trusted: forged ones affect only their sender's
    /// own flow.
    #[inline(never)]
    pub(super) fn on_ack_with_int(&mut self, now: Time, ack: &Ack<'_>, int: IntRecords<'_>) {
        let (records, continues) = int::records(now - ack.rx_delay, int, &mut self.int);
        if !continues {
            self.cc.on_int_discontinuity();
        }
        let (hops, count) = int::hops(&records);
        let stamped = u8::try_from(int.len()).unwrap_or(u8::MAX);
        let ack = Ack { hops: ack.hops.max(Some(stamped)), int: &hops[..count], ..*ack };
        self.cc.on_ack(now, &ack);
    }
}
