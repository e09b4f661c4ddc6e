//! MLCC's credit loop at the receiver: telemetry of data in, credit of acknowledgements out.

use super::Rx;
use crate::qp::flow::int::{self, Unwrapped};
use spanwire_base::{Rate, Time};
use spanwire_cc::mlcc::{Arrival, Receiver};
use spanwire_wire::{
    AckReason, INT_ECHO_HEADER_LEN, INT_FULL_LEN, INT_MAX_HOPS, IntRecords, IntStack, SrCredit,
};

/// The receiver's part of MLCC, and what it needs to read telemetry.
#[derive(Debug)]
pub(super) struct CreditLoop {
    receiver: Receiver,
    /// Counters of compact records; none before the first.
    int: Option<Box<Unwrapped>>,
    /// Data have asked for credit: acknowledgements carry it.
    is_asked: bool,
}

impl CreditLoop {
    /// Telemetry of data that were processed at `times.0` and arrived at `times.1`. True if an
    /// acknowledgement is to leave at once.
    fn on_data(&mut self, times: (Time, Time), stack: &IntStack<'_>) -> bool {
        let Some(credit) = stack.credit() else { return false };
        self.is_asked = true;
        let mut echo = [0; INT_ECHO_HEADER_LEN + INT_MAX_HOPS as usize * INT_FULL_LEN];
        let len = INT_ECHO_HEADER_LEN + stack.records().len();
        let Some((header, records)) = echo[..len].split_first_chunk_mut() else { return false };
        *header = stack.echo_header();
        records.copy_from_slice(stack.records());
        let (now, arrival) = times;
        let (records, continues) =
            int::records(arrival, IntRecords::parse(&echo[..len]), &mut self.int);
        if !continues {
            self.receiver.on_int_discontinuity();
        }
        let (hops, count) = int::hops(&records);
        let arrival = Arrival {
            credit: credit.credit,
            waiting_bytes: credit.waiting_bytes,
            int: &hops[..count],
        };
        self.receiver.on_data(now, &arrival)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.receiver.poll_timeout()
    }

    /// True if an acknowledgement is to leave at once.
    pub(super) fn handle_timeout(&mut self, now: Time) -> bool {
        self.receiver.handle_timeout(now)
    }

    fn credit(&self) -> SrCredit {
        let credit = self.receiver.credit();
        let kbps = |rate: Rate| u32::try_from(rate.as_bps() / 1000).unwrap_or(u32::MAX);
        SrCredit {
            credit: credit.credit,
            rate_kbps: kbps(credit.rate),
            suggested_kbps: kbps(credit.suggested),
        }
    }
}

impl Rx {
    /// Sets the receiver's part of MLCC, or none.
    pub(crate) fn set_receiver(&mut self, receiver: Option<Receiver>) {
        let new = |receiver| Box::new(CreditLoop { receiver, int: None, is_asked: false });
        self.credit = receiver.map(new);
    }

    /// Data have arrived, no duplicate, with bytes behind the IP packet.
    #[inline(never)]
    pub(in crate::sr) fn on_credit_data(&mut self, times: (Time, Time), trailer: &[u8]) {
        let (Some(credit), Some(stack)) = (&mut self.credit, IntStack::parse(trailer)) else {
            return;
        };
        if credit.on_data(times, &stack) {
            self.ack.request_ack(AckReason::Count);
        }
    }

    /// The credit of the next acknowledgement.
    pub(in crate::sr) fn credit(&self) -> Option<SrCredit> {
        let credit = self.credit.as_ref().filter(|credit| credit.is_asked);
        credit.map(|credit| credit.credit())
    }
}
