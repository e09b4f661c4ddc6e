//! How much may be in flight, and when the next packet may leave: a queue pair's congestion control
//! with its pacer, and what it is held back by.

use crate::attr::CongestionControl;
use crate::config::Config;
use spanwire_base::{Dur, Rate, Time};
use spanwire_cc::{Ack, Cc, Controller, Delivery, Hop, Loss, LossKind, Path, Sent};
use spanwire_pacer::TokenClock;
use spanwire_wire::{INT_HOP_LEN, INT_MAX_HOPS, IntHop};

/// One queue pair's flow of data to its peer.
#[derive(Debug)]
pub(crate) struct Flow {
    cc: Cc,
    clock: TokenClock,
    mtu_bytes: u32,
    /// Something waited for window or pacer since the last acknowledgement.
    is_cwnd_limited: bool,
    /// Packets take another way from now on, and congestion control has not been told.
    has_new_path: bool,
    limit: FlowLimit,
    /// Since when, and for how long it was held back by what before; of what came before the first
    /// packet nobody asks.
    limited_since: Option<Time>,
    times: LimitTimes,
    /// Bytes delivered since it began, and when the last of them were acknowledged.
    delivered_bytes: u64,
    delivered_at: Time,
    /// When the packets of the present sample of the delivery rate began to leave.
    first_sent_at: Time,
    /// What must be delivered for samples to be of the network again, and not of an application
    /// that had nothing to send.
    app_limited_until_bytes: u64,
    marked_bytes: u64,
    /// Of the packet that is timed, where acknowledgements echo nothing.
    timed: Option<AtSend>,
}

/// What a flow was held back by when it last had its turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FlowLimit {
    /// The application: nothing is posted that was not sent.
    #[default]
    Application,
    /// The window of congestion control, or the queue pair's own.
    Window,
    /// The pacer.
    Pacer,
    /// The peer: its receive requests, or how far ahead it takes packets.
    Receiver,
    /// The endpoint's window, which all queue pairs share.
    Endpoint,
    /// Nothing but the port: whenever it takes a packet, there is one.
    Port,
}

impl FlowLimit {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Application, Self::Window, Self::Pacer, Self::Receiver, Self::Endpoint, Self::Port];
}

/// How long a flow was held back by each limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LimitTimes([Dur; FlowLimit::ALL.len()]);

impl LimitTimes {
    /// How long by this one.
    #[must_use]
    pub fn by(&self, limit: FlowLimit) -> Dur {
        self.0[limit as usize]
    }

    /// Adds a time.
    pub fn add(&mut self, limit: FlowLimit, time: Dur) {
        let sum = &mut self.0[limit as usize];
        *sum = *sum + time;
    }
}

/// What there is to know of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowInfo {
    /// Payload bytes that may be in flight.
    pub cwnd_bytes: u64,
    /// How fast packets may leave, if a rate binds.
    pub rate: Option<Rate>,
    /// Payload bytes acknowledged.
    pub delivered_bytes: u64,
    /// Of them, bytes that came marked.
    pub marked_bytes: u64,
    /// What it was held back by last.
    pub limit: FlowLimit,
    /// Since when; none before the first packet.
    pub limited_since: Option<Time>,
    /// How long it was held back by what until then.
    pub times: LimitTimes,
}

impl FlowInfo {
    /// How long it was held back by what until `now`, since its first packet.
    #[must_use]
    pub fn times_at(&self, now: Time) -> LimitTimes {
        let mut times = self.times;
        times.add(self.limit, self.limited_since.map_or(Dur::ZERO, |since| now.since(since)));
        times
    }
}

/// What a packet takes along to tell the rate of delivery by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AtSend {
    delivered_bytes: u64,
    delivered_at: Time,
    first_sent_at: Time,
    is_app_limited: bool,
}

/// An acknowledgement as a queue pair sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress<'a> {
    pub(crate) acked_bytes: u64,
    pub(crate) acked_pkts: u64,
    pub(crate) marked_bytes: u64,
    pub(crate) rtt: Option<Dur>,
    pub(crate) remote_hold: Dur,
    pub(crate) sent_at: Time,
    pub(crate) number: u64,
    pub(crate) una: u64,
    pub(crate) next: u64,
    pub(crate) again: bool,
    pub(crate) inflight_bytes: u64,
    pub(crate) path: u16,
    pub(crate) at_send: Option<AtSend>,
    /// Routers on the way, if they were counted.
    pub(crate) hops: Option<u8>,
    /// Telemetry of the newest packet, as switches wrote it.
    pub(crate) int: &'a [[u8; INT_HOP_LEN]],
}

impl Flow {
    /// A flow that begins, in packets of `mtu_bytes` of payload.
    pub(crate) fn new(choice: &CongestionControl, mtu_bytes: u32, config: &Config) -> Self {
        let (line_rate, base_rtt) = (config.line_rate, choice.base_rtt);
        let path = Path { mtu_bytes, line_rate, base_rtt };
        let burst_bytes = BURST_PKTS * (mtu_bytes + WIRE_OVERHEAD_BYTES);
        let cc = choice.algorithm.start(&path);
        let mut clock = TokenClock::new(burst_bytes, config.catch_up);
        clock.set_rate(Time::ZERO, cc.rate());
        Self {
            cc,
            clock,
            mtu_bytes: mtu_bytes.max(1),
            is_cwnd_limited: false,
            has_new_path: false,
            limit: FlowLimit::Application,
            limited_since: None,
            times: LimitTimes::default(),
            delivered_bytes: 0,
            delivered_at: Time::ZERO,
            first_sent_at: Time::ZERO,
            app_limited_until_bytes: 0,
            marked_bytes: 0,
            timed: None,
        }
    }

    /// Its packets are to ask switches for telemetry.
    pub(crate) fn wants_int(&self) -> bool {
        self.cc.wants_int()
    }

    /// Packets that may be in flight, at least one.
    #[inline]
    pub(crate) fn window_pkts(&self) -> u32 {
        let pkts = self.cc.cwnd_bytes() / u64::from(self.mtu_bytes);
        u32::try_from(pkts).unwrap_or(u32::MAX).max(1)
    }

    /// When the next packet, which is there, may leave; none if now.
    #[inline]
    pub(crate) fn paced_until(&mut self, now: Time) -> Option<Time> {
        let until = self.probe_paced_until(now);
        self.is_cwnd_limited |= until.is_some();
        until
    }

    /// As [`Flow::paced_until`] for a packet that only asks for a sign: that more is there to be
    /// sent than leaves does not follow.
    #[inline]
    pub(crate) fn probe_paced_until(&mut self, now: Time) -> Option<Time> {
        if self.clock.is_due(now) {
            return None;
        }
        self.set_limit(now, FlowLimit::Pacer);
        Some(self.clock.next())
    }

    /// It had its turn and nothing could leave.
    pub(crate) fn on_limit(&mut self, now: Time, limit: FlowLimit, inflight_bytes: u64) {
        if limit == FlowLimit::Application {
            self.app_limited_until_bytes = (self.delivered_bytes + inflight_bytes).max(1);
        }
        self.set_limit(now, limit);
    }

    /// As many packets are in flight as may be. It was congestion control that held the flow back
    /// only if its window is no wider than the `own_pkts` that the queue pair has anyway.
    pub(crate) fn on_window_full(&mut self, now: Time, own_pkts: u32) {
        self.is_cwnd_limited |= self.window_pkts() <= own_pkts;
        self.set_limit(now, FlowLimit::Window);
    }

    /// The window is full, and nothing is left to send: the flow is limited by its application.
    /// Delivery rate samples stay valid, because the window was used to the end.
    pub(crate) fn on_window_full_and_idle(&mut self, now: Time) {
        self.set_limit(now, FlowLimit::Application);
    }

    /// A packet left; `inflight_bytes` with it.
    pub(crate) fn on_sent(&mut self, now: Time, sent: Sent, frame_bytes: usize) -> AtSend {
        if sent.inflight_bytes <= u64::from(sent.bytes) {
            // After a pause: nothing was in flight that a sample could begin with.
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        if std::mem::take(&mut self.has_new_path) {
            self.cc.on_path_change(now);
        }
        self.limited_since.get_or_insert(now);
        self.set_limit(now, FlowLimit::Port);
        self.cc.on_sent(now, &sent);
        let frame_bytes = u32::try_from(frame_bytes).unwrap_or(u32::MAX);
        let wire_bytes = frame_bytes.saturating_add(FRAME_OVERHEAD_BYTES);
        self.clock.on_sent(now, wire_bytes);
        let gap = self.cc.min_gap();
        if gap > Dur::ZERO {
            self.clock.hold(now, gap);
        }
        AtSend {
            delivered_bytes: self.delivered_bytes,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            // Also when exactly that much is delivered: this packet is the first after the pause.
            // draft-cheng-iccrg-delivery-rate-estimation 3.4.
            is_app_limited: self.app_limited_until_bytes >= self.delivered_bytes.max(1),
        }
    }

    /// The packet that just left is the one that is timed.
    pub(crate) fn set_timed(&mut self, at_send: AtSend) {
        self.timed = Some(at_send);
    }

    /// What was known when the packet left that was timed.
    pub(crate) fn take_timed(&mut self) -> Option<AtSend> {
        self.timed.take()
    }

    /// An acknowledgement came.
    pub(crate) fn on_ack(&mut self, now: Time, p: &Progress<'_>) {
        self.delivered_bytes += p.acked_bytes;
        self.marked_bytes += p.marked_bytes;
        let delivery = p.at_send.filter(|_| p.acked_bytes > 0).map(|at| {
            let sending = p.sent_at.since(at.first_sent_at);
            let acking = now.since(at.delivered_at);
            self.first_sent_at = p.sent_at;
            Delivery {
                total_bytes: self.delivered_bytes,
                total_at_send_bytes: at.delivered_bytes,
                interval: sending.max(acking),
                app_limited: at.is_app_limited,
            }
        });
        if p.acked_bytes > 0 {
            self.delivered_at = now;
        }
        let ack = Ack {
            acked_bytes: p.acked_bytes,
            acked_pkts: p.acked_pkts,
            marked_bytes: p.marked_bytes,
            rtt: p.rtt,
            remote_hold: p.remote_hold,
            sent_at: p.sent_at,
            number: p.number,
            una: p.una,
            next: p.next,
            again: p.again,
            inflight_bytes: p.inflight_bytes,
            held_back: std::mem::take(&mut self.is_cwnd_limited),
            path: p.path,
            hops: p.hops,
            delivery,
            ..Ack::default()
        };
        match p.int {
            [] => self.cc.on_ack(now, &ack),
            records => self.on_ack_with_int(now, &ack, records),
        }
        self.update_rate(now);
    }

    /// As switches are believed to have written the records: who lies here slows down, or spoils,
    /// its own data. A port without a rate has no utilisation and is passed over.
    #[inline(never)]
    fn on_ack_with_int(&mut self, now: Time, ack: &Ack<'_>, records: &[[u8; INT_HOP_LEN]]) {
        let none = Hop { at: Time::ZERO, tx_bytes: 0, queue_bytes: 0, rate: Rate::from_bps(1) };
        let mut hops = [none; INT_MAX_HOPS as usize];
        let rated = records.iter().map(IntHop::parse).filter(|hop| hop.link_rate_mbps > 0);
        let mut count = 0;
        for (place, hop) in hops.iter_mut().zip(rated) {
            *place = Hop {
                at: Time::from_ps(hop.time_ps),
                tx_bytes: hop.tx_bytes,
                queue_bytes: hop.queue_bytes.into(),
                rate: Rate::from_bps(u64::from(hop.link_rate_mbps) * 1_000_000),
            };
            count += 1;
        }
        let stamped = u8::try_from(records.len()).unwrap_or(u8::MAX);
        let ack = Ack { hops: ack.hops.max(Some(stamped)), int: &hops[..count], ..*ack };
        self.cc.on_ack(now, &ack);
    }

    /// Packets of `bytes` were lost.
    pub(crate) fn on_loss(&mut self, now: Time, kind: LossKind, bytes: u64, inflight_bytes: u64) {
        self.cc.on_loss(now, &Loss { kind, bytes, inflight_bytes });
        self.update_rate(now);
    }

    /// The next packet takes another way.
    pub(crate) fn on_path_change(&mut self) {
        self.has_new_path = true;
    }

    /// A congestion notification came.
    pub(crate) fn on_cnp(&mut self, now: Time) {
        self.cc.on_cnp(now);
        self.update_rate(now);
    }

    /// When [`Flow::handle_timeout`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.cc.poll_timeout()
    }

    /// Does what is due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while self.cc.poll_timeout().is_some_and(|due| due <= now) {
            self.cc.handle_timeout(now);
        }
        self.update_rate(now);
    }

    pub(crate) fn info(&self) -> FlowInfo {
        FlowInfo {
            cwnd_bytes: self.cc.cwnd_bytes(),
            rate: self.cc.rate(),
            delivered_bytes: self.delivered_bytes,
            marked_bytes: self.marked_bytes,
            limit: self.limit,
            limited_since: self.limited_since,
            times: self.times,
        }
    }

    /// From `now` on it is held back by `limit`.
    #[inline]
    fn set_limit(&mut self, now: Time, limit: FlowLimit) {
        if self.limit != limit {
            if let Some(since) = &mut self.limited_since {
                self.times.add(self.limit, now.since(std::mem::replace(since, now)));
            }
            self.limit = limit;
        }
    }

    fn update_rate(&mut self, now: Time) {
        self.clock.set_rate(now, self.cc.rate());
    }
}

/// Packets that may leave at once after a pause, beside the one that is due.
const BURST_PKTS: u32 = 2;
/// Preamble, frame check and gap of an Ethernet frame.
const FRAME_OVERHEAD_BYTES: u32 = 24;
/// The same with the headers of a packet.
const WIRE_OVERHEAD_BYTES: u32 = 130;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_cc::Algorithm;

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    fn flow(algorithm: &str, set: &[(&str, &str)]) -> Flow {
        let mut algorithm = Algorithm::named(algorithm).unwrap();
        for (name, value) in set {
            algorithm.set(name, value).unwrap();
        }
        let base_rtt = Some(Dur::from_us(100));
        let config = Config { line_rate: Rate::from_gbps(10), ..Config::default() };
        Flow::new(&CongestionControl { algorithm, base_rtt }, 1000, &config)
    }

    fn sent(bytes: u32, inflight_bytes: u64) -> Sent {
        Sent { bytes, inflight_bytes, again: false }
    }

    #[test]
    fn paced_until__after_a_burst_of_two_beside_the_first() {
        let mut f = flow("fixed", &[("window_pkts", "3.9"), ("rate_mbps", "100")]);
        assert_eq!(f.window_pkts(), 3);
        let now = at(1000);
        for n in 1..=3 {
            assert_eq!(f.paced_until(now), None, "{n}");
            f.on_sent(now, sent(1000, n * 1000), 1076);
        }
        // 1100 bytes at 100 Mbit/s are 88 us; the burst is of 2 x 1130 bytes.
        let until = f.paced_until(now).unwrap();
        assert!((80..88).contains(&until.since(now).as_us()), "{until:?}");
        assert_eq!(f.info().limit, FlowLimit::Pacer);
        assert_eq!(f.paced_until(until), None);
    }

    #[test]
    fn times_at__count_each_limit_from_the_first_packet_on() {
        let mut f = flow("fixed", &[("window_pkts", "3"), ("rate_mbps", "100")]);
        f.on_limit(at(10), FlowLimit::Application, 0);
        assert_eq!(f.info().times_at(at(1000)), LimitTimes::default());
        f.on_sent(at(1000), sent(1000, 1000), 1076);
        f.on_window_full(at(1002), 1000);
        f.on_window_full(at(1005), 1000);
        f.on_sent(at(1042), sent(1000, 1000), 1076);
        f.on_limit(at(1043), FlowLimit::Receiver, 1000);
        let info = f.info();
        let (then, later) = (info.times_at(at(1043)), info.times_at(at(1050)));
        let us = |times: LimitTimes| FlowLimit::ALL.map(|limit| times.by(limit).as_us());
        // Application, window, pacer, receiver, endpoint, port.
        assert_eq!(us(then), [0, 40, 0, 0, 0, 3]);
        assert_eq!(us(later), [0, 40, 0, 7, 0, 3]);
    }

    #[test]
    fn window_pkts__is_never_none() {
        let mut f = flow("fixed", &[("window_pkts", "1")]);
        f.mtu_bytes = 60_000;
        assert_eq!(f.window_pkts(), 1);
    }

    #[test]
    fn on_ack__samples_the_delivery_rate() {
        let mut f = flow("bbr", &[]);
        let mut now = at(1000);
        // A packet each 10 us, acknowledged after 100: 0.1 bytes a nanosecond.
        let mut out = std::collections::VecDeque::new();
        for n in 0..200_u64 {
            out.push_back((now, f.on_sent(now, sent(1000, 10_000), 1076)));
            if n >= 10 {
                let (sent_at, at_send) = out.pop_front().unwrap();
                let p = Progress {
                    acked_bytes: 1000,
                    acked_pkts: 1,
                    rtt: Some(now.since(sent_at)),
                    sent_at,
                    at_send: Some(at_send),
                    inflight_bytes: 10_000,
                    ..Progress::default()
                };
                f.on_ack(now, &p);
            }
            now += Dur::from_us(10);
        }
        let rate = f.info().rate.unwrap().as_bps();
        // Of 800 Mbit/s BBR makes 0.75 to 2.9 times as much, as its cycle says.
        assert!((590_000_000..2_400_000_000).contains(&rate), "{rate}");
        assert_eq!(f.info().delivered_bytes, 190_000);
    }

    #[test]
    fn on_path_change__reaches_the_algorithm_with_the_next_packet() {
        let window_after = |changes: bool| {
            let mut f = flow("hpcc", &[]);
            for us in [1000, 1100, 1200] {
                f.on_sent(at(us), sent(1000, 50_000), 1076);
                let mut record = [0; INT_HOP_LEN];
                let time_ps = us * 1_000_000;
                // A port of our own rate, always busy, with a queue of ten round trips.
                let hop = IntHop {
                    time_ps,
                    tx_bytes: us * 1250,
                    queue_bytes: 1_250_000,
                    link_rate_mbps: 10_000,
                };
                hop.emit(&mut record);
                let p = Progress {
                    acked_bytes: 1000,
                    acked_pkts: 1,
                    rtt: Some(Dur::from_us(100)),
                    sent_at: at(us - 100),
                    int: &[record],
                    ..Progress::default()
                };
                f.on_ack(at(us), &p);
                if changes {
                    f.on_path_change();
                }
            }
            f.info().cwnd_bytes
        };
        assert_eq!(window_after(true), 125_000, "each record is the first of its way");
        assert!(window_after(false) < 20_000);
    }

    #[test]
    fn on_cnp__and_timers_reach_the_algorithm_and_the_clock() {
        let mut f = flow("dcqcn", &[]);
        f.on_cnp(at(10));
        assert_eq!(f.info().rate, Some(Rate::from_gbps(5)));
        let due = f.next_deadline().unwrap();
        assert_eq!(due, at(65));
        f.handle_timeout(at(200));
        assert_eq!(f.next_deadline(), Some(at(230)), "three increases were due");
        assert!(f.info().rate > Some(Rate::from_gbps(9)));
    }
}
