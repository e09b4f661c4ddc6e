//! The receiver's part of MLCC: the credit loop with the switch that releases the flow into our
//! datacenter, and queue management at that switch (docs/protocol/sr.md, "Credit").

use crate::qp::flow::int::{self, Unwrapped};
use spanwire_base::{Rate, Time};
use spanwire_cc::mlcc::{Arrival, Receiver};
use spanwire_wire::SrCredit;
use spanwire_wire::{INT_ECHO_HEADER_LEN, INT_FULL_LEN, INT_MAX_HOPS, IntRecords, IntStack};

/// The credit loop of one flow.
#[derive(Debug)]
pub(crate) struct CreditLoop {
    receiver: Receiver,
    /// A stack of version 2 has arrived, so ACKs carry a credit.
    has_begun: bool,
    /// The records of the newest stack, in the form of an echo. Its capacity is that of the
    /// longest, and it never grows.
    records: Vec<u8>,
    /// Counters of compact records.
    unwrapped: Option<Box<Unwrapped>>,
}

impl CreditLoop {
    pub(super) fn new(receiver: Receiver) -> Self {
        let longest = INT_ECHO_HEADER_LEN + usize::from(INT_MAX_HOPS) * INT_FULL_LEN;
        let records = Vec::with_capacity(longest);
        Self { receiver, has_begun: false, records, unwrapped: None }
    }

    /// Processes the telemetry of a data packet, no duplicate, that arrived at `arrival`; `trailer`
    /// follows its IP packet. True if an ACK must leave at once, because a round began. A packet
    /// without a stack of version 2 has no effect.
    pub(in crate::sr) fn on_data(&mut self, now: Time, arrival: Time, trailer: &[u8]) -> bool {
        let Some(stack) = IntStack::parse(trailer) else { return false };
        let Some(credit) = stack.credit() else { return false };
        self.has_begun = true;
        self.records.clear();
        self.records.extend_from_slice(&stack.echo_header());
        self.records.extend_from_slice(stack.records());
        let echo = IntRecords::parse(&self.records);
        let (records, continues) = int::records(arrival, echo, &mut self.unwrapped);
        if !continues {
            self.receiver.on_int_discontinuity();
        }
        let (hops, count) = int::hops(&records);
        let (credit, waiting_bytes) = (credit.credit, credit.waiting_bytes);
        self.receiver.on_data(now, &Arrival { credit, waiting_bytes, int: &hops[..count] })
    }

    /// The time of the next [`CreditLoop::handle_timeout`]: the end of a round that no packet has
    /// ended. None before the first packet, and from four rounds without data on.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.receiver.poll_timeout()
    }

    /// Ends the round if its time is over. True if an ACK must leave at once.
    pub(super) fn handle_timeout(&mut self, now: Time) -> bool {
        self.receiver.poll_timeout().is_some_and(|at| at <= now)
            && self.receiver.handle_timeout(now)
    }

    /// The credit of an ACK; none before the first stack.
    pub(super) fn credit(&self) -> Option<SrCredit> {
        self.has_begun.then(|| {
            let credit = self.receiver.credit();
            SrCredit {
                credit: credit.credit,
                rate_kbps: kbps(credit.rate),
                suggested_kbps: kbps(credit.suggested),
            }
        })
    }
}

/// A rate as in an ACK; saturates.
fn kbps(rate: Rate) -> u32 {
    u32::try_from(rate.as_bps() / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Dur;
    use spanwire_cc::{Algorithm, Path};
    use spanwire_wire::{
        INT_CREDIT_HEADER_LEN, IntCredit, IntFormat, IntHop, int_push, int_request,
        int_request_credit, int_restart_credit,
    };

    /// A loop of 10 us at a receiver with 100 Gbit/s.
    fn credit_loop() -> CreditLoop {
        let algorithm = Algorithm::parse("mlcc,rtt_c_us=200,rtt_d_us=10,theta_ms=1").unwrap();
        let line_rate = Rate::from_bps(LINE_BPS);
        let path = Path { mtu_bytes: 1000, line_rate, base_rtt: None };
        CreditLoop::new(algorithm.receiver(&path).unwrap())
    }

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(1000 + us)
    }

    /// The trailer of a packet that leaves the switch with this credit, and then passes `hops`.
    fn trailer(format: IntFormat, credit: u32, hops: &[IntHop]) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20];
        (frame[12], frame[14], frame[17]) = (8, 0x45, 20);
        let mut len = frame.len();
        frame.resize(1000, 0);
        len = int_request_credit(&mut frame, len, 16, format).unwrap();
        let credit = IntCredit { credit, waiting_bytes: 0 };
        len = int_restart_credit(&mut frame, len, 0, credit).unwrap();
        for hop in hops {
            len = int_push(&mut frame, len, 0, hop).unwrap();
        }
        frame[34..len].to_vec()
    }

    /// A port of 10 Gbit/s that is always busy, with a queue of 20 kB.
    fn busy(us: u64) -> IntHop {
        let (time_ps, tx_bytes) = (us * 1_000_000, us * 1250);
        IntHop { time_ps, tx_bytes, queue_bytes: 20_000, link_rate_mbps: 10_000 }
    }

    const LINE_BPS: u64 = 100_000_000_000;

    #[test]
    fn credit__follows_compact_records_as_it_follows_full_ones() {
        let rates = IntFormat::ALL.map(|format| {
            let mut credit_loop = credit_loop();
            assert_eq!(credit_loop.credit(), None);
            assert!(credit_loop.on_data(at(0), at(0), &trailer(format, 0, &[])), "the first one");
            for round in 1..40_u64 {
                let credit = credit_loop.credit().unwrap();
                assert_eq!(u64::from(credit.credit), round);
                let (now, hop) = (at(10 * round), busy(10 * round));
                let trailer = trailer(format, credit.credit, &[hop]);
                assert!(credit_loop.on_data(now, now, &trailer), "{round}: a round");
                assert!(!credit_loop.on_data(now, now, &trailer), "{round}: none");
            }
            u64::from(credit_loop.credit().unwrap().rate_kbps)
        });
        let line = LINE_BPS / 1000;
        assert!(rates.iter().all(|rate| *rate < line / 4), "{rates:?}");
        assert!(rates[0].abs_diff(rates[1]) <= rates[0] / 20, "{rates:?}");
    }

    #[test]
    fn on_data__packets_without_a_stack_of_version_2_have_no_effect() {
        let mut version_1 = vec![0; 100];
        int_request(&mut version_1, 0, 5, IntFormat::Full).unwrap();
        let cut = trailer(IntFormat::Full, 1, &[busy(1)]);
        for nothing in [&[][..], &[0; 30], &version_1, &cut[..cut.len() - 1], &cut[..15]] {
            let mut credit_loop = credit_loop();
            assert!(!credit_loop.on_data(at(0), at(0), nothing));
            assert_eq!((credit_loop.credit(), credit_loop.next_deadline()), (None, None));
        }
    }

    #[test]
    fn handle_timeout__ends_four_rounds_without_data() {
        let mut credit_loop = credit_loop();
        credit_loop.on_data(at(0), at(0), &trailer(IntFormat::Full, 0, &[]));
        for round in 1..=4 {
            let due = credit_loop.next_deadline().unwrap();
            assert_eq!(due, at(20 * round));
            assert!(!credit_loop.handle_timeout(due - Dur::from_ns(1)));
            assert!(credit_loop.handle_timeout(due));
        }
        assert_eq!(credit_loop.next_deadline(), None);
        assert!(!credit_loop.handle_timeout(at(1_000_000)));
        let credit = credit_loop.credit().unwrap().credit;
        let last = trailer(IntFormat::Full, credit, &[]);
        assert!(credit_loop.on_data(at(2_000_000), at(2_000_000), &last));
        assert_eq!(credit_loop.next_deadline(), Some(at(2_000_020)));
    }

    #[test]
    fn on_data__allocates_nothing_for_the_longest_stack() {
        let mut credit_loop = credit_loop();
        let capacity = credit_loop.records.capacity();
        let longest = trailer(IntFormat::Full, 1, &[busy(1); 16]);
        assert_eq!(longest.len(), INT_CREDIT_HEADER_LEN + 16 * INT_FULL_LEN);
        credit_loop.on_data(at(0), at(0), &longest);
        assert_eq!(credit_loop.records.len(), INT_ECHO_HEADER_LEN + 16 * INT_FULL_LEN);
        assert_eq!(credit_loop.records.capacity(), capacity);
    }

    #[test]
    fn kbps__saturates() {
        assert_eq!(kbps(Rate::from_bps(999)), 0);
        assert_eq!(kbps(Rate::from_gbps(400)), 400_000_000);
        assert_eq!(kbps(Rate::from_bps(u64::MAX)), u32::MAX);
    }
}
