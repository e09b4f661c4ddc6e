//! Congestion control and pacer of a queue pair: the limit on packets in flight, the departure time
//! of the next packet, and what limits the flow.

mod credit;
pub(crate) mod int;
mod limit;
mod near;
mod quantum;
mod receive_room;
mod round_trip;
mod send_state;
mod telemetry;

pub(crate) use send_state::SendTimeState;
use send_state::Timed;

mod info;

pub use info::{FlowInfo, FlowLimit, LimitTimes};

use crate::attr::{CongestionControl, Preset};
use crate::config::Config;
use int::Unwrapped;
use quantum::Quantum;
use receive_room::ReceiveRoom;
use spanwire_base::{Dur, Time};
use spanwire_cc::{Ack, Cc, Controller, Delivery, Loss, LossKind, Path, Sent};
use spanwire_pacer::TokenBucket;
use spanwire_wire::IntRecords;

/// The data flow of one queue pair to its peer.
#[derive(Debug)]
pub(crate) struct Flow {
    cc: Cc,
    bucket: TokenBucket,
    /// The least time between packets.
    min_gap: Dur,
    mtu_bytes: u32,
    /// The congestion window or the pacer limited the flow since the last ACK (`cwnd_limited` or
    /// `pacing_limited`). Congestion control must not grow an unused window (RFC 9002 7.8).
    is_cwnd_limited: bool,
    /// Packets take another path from now on. Congestion control learns it with the next packet.
    has_new_path: bool,
    limit: FlowLimit,
    /// Start of the current limit, and the time spent in each earlier one since the first packet.
    limited_since: Option<Time>,
    times: LimitTimes,
    /// Bytes delivered since the flow began, and the time of the last delivery.
    delivered_bytes: u64,
    delivered_at: Time,
    /// Start of the current delivery rate sample: when its first packet left.
    first_sent_at: Time,
    /// While fewer bytes than this are delivered, samples are app-limited: they measure the
    /// application, not the path.
    app_limited_until_bytes: u64,
    marked_bytes: u64,
    /// Bytes lost since the last acknowledgement.
    lost_bytes: u64,
    /// Bytes sent since the last pseudo-ACK.
    sent_since_near_bytes: u64,
    algorithm: &'static str,
    /// The state before the last timeout after progress, to be restored if it was spurious.
    before_timeout: Option<Box<Cc>>,
    /// Mean time from the arrival of an ACK to its processing.
    host_late: Dur,
    /// The timed packet, for RC, whose ACKs echo no timestamp.
    timed: Option<Timed>,
    /// Counters of compact INT records; none before the first.
    int: Option<Box<Unwrapped>>,
    /// The newest credit of the peer (MLCC).
    credit: Option<u32>,
    room: ReceiveRoom,
    /// The least round trip so far.
    least_rtt: Dur,
    quantum: Quantum,
}

impl Flow {
    /// Creates a flow of packets with `mtu_bytes` of payload; none without an algorithm.
    pub(crate) fn new(choice: &CongestionControl, mtu_bytes: u32, config: &Config) -> Option<Self> {
        let algorithm = choice.algorithm?;
        let path = path(choice, mtu_bytes, config);
        let burst_bytes = BURST_PKTS * (mtu_bytes + WIRE_OVERHEAD_BYTES);
        let cc = match choice.preset {
            Preset::Calibrated => algorithm.start_calibrated(&path),
            Preset::Paper => algorithm.start(&path),
        };
        let mut bucket = TokenBucket::new(burst_bytes, config.catch_up);
        bucket.set_rate(Time::ZERO, cc.rate());
        Some(Self {
            min_gap: cc.min_gap(),
            cc,
            bucket,
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
            lost_bytes: 0,
            sent_since_near_bytes: 0,
            algorithm: algorithm.name(),
            before_timeout: None,
            host_late: Dur::ZERO,
            timed: None,
            int: None,
            credit: None,
            room: ReceiveRoom::new(config, mtu_bytes),
            least_rtt: Dur::MAX,
            quantum: Quantum::new(config),
        })
    }

    /// Payload bytes of a full packet.
    pub(crate) fn mtu_bytes(&self) -> u32 {
        self.mtu_bytes
    }

    /// Packets must request INT telemetry.
    pub(crate) fn wants_int(&self) -> bool {
        self.cc.wants_int()
    }

    /// The congestion window in packets, at least one, if `pkts` packets of `bytes` payload bytes
    /// are in flight.
    ///
    /// The window is in bytes. Another packet is allowed if a full one fits; its length is not
    /// yet known. If packets are shorter, the remaining window is counted in packets of their
    /// mean length.
    #[inline]
    pub(crate) fn window_pkts(&self, pkts: u64, bytes: u64) -> u32 {
        let cwnd = self.cc.cwnd_bytes().saturating_add(self.quantum.bytes());
        let mtu = u64::from(self.mtu_bytes);
        let window = match bytes < pkts * mtu {
            true => short_window_pkts(cwnd, mtu, pkts, bytes),
            false => cwnd / mtu,
        };
        u32::try_from(window).unwrap_or(u32::MAX).max(1)
    }

    /// The longest window in packets that the receive buffer of the other end has room for.
    #[inline]
    pub(crate) fn receive_pkts(&self) -> u32 {
        self.room.window_pkts()
    }

    /// The time at which the next packet may leave, or `None` if it may leave now. A packet must
    /// be ready: waiting for the pacer counts as cwnd-limited.
    #[inline]
    pub(crate) fn paced_until(&mut self, now: Time) -> Option<Time> {
        let until = self.probe_paced_until(now);
        self.is_cwnd_limited |= until.is_some();
        until
    }

    /// As [`Flow::paced_until`] for a probe. A delayed probe does not show that more data are
    /// ready, so the flow does not become cwnd-limited.
    #[inline]
    pub(crate) fn probe_paced_until(&mut self, now: Time) -> Option<Time> {
        if self.bucket.is_due(now) {
            return None;
        }
        self.set_limit(now, FlowLimit::Pacer);
        self.bucket.set_awaited();
        Some(self.bucket.next())
    }

    /// True if `pkts` full packets take longer than `time` at the pacing rate.
    #[inline]
    pub(crate) fn is_slower(&self, pkts: u32, time: Dur) -> bool {
        let bytes = u64::from(pkts) * u64::from(self.mtu_bytes + WIRE_OVERHEAD_BYTES);
        self.bucket.time_for(bytes) > time
    }

    /// An attempt to send ended without a packet, because of `limit`.
    pub(crate) fn on_limit(&mut self, now: Time, limit: FlowLimit, inflight_bytes: u64) {
        self.bucket.set_idle();
        if limit == FlowLimit::Application {
            self.app_limited_until_bytes = (self.delivered_bytes + inflight_bytes).max(1);
        }
        self.set_limit(now, limit);
    }

    /// The window is full; `is_cwnd`: it is the congestion window, not the queue pair's own
    /// window.
    pub(crate) fn on_window_full(&mut self, now: Time, is_cwnd: bool) {
        self.bucket.set_idle();
        self.is_cwnd_limited |= is_cwnd;
        self.set_limit(now, FlowLimit::Window);
    }

    /// The window is full and nothing is left to send: the flow is limited by its application.
    /// Delivery rate samples stay valid, because the window was fully used.
    pub(crate) fn on_window_full_and_idle(&mut self, now: Time) {
        self.bucket.set_idle();
        self.set_limit(now, FlowLimit::Application);
    }

    /// A packet with a payload of `bytes` left. `inflight_bytes` includes it; they are at most
    /// `bytes` if nothing else is in flight.
    pub(crate) fn on_sent(
        &mut self,
        now: Time,
        (bytes, frame_bytes): (u32, usize),
        inflight_bytes: u64,
        is_retransmission: bool,
    ) -> SendTimeState {
        let frame_bytes = u32::try_from(frame_bytes).unwrap_or(u32::MAX);
        let paced_bytes = self.paced_bytes(bytes, frame_bytes);
        let sent = Sent { bytes, paced_bytes, frame_bytes, inflight_bytes, is_retransmission };
        if sent.inflight_bytes <= u64::from(sent.bytes) {
            // Nothing else was in flight, so the sample begins now, not before the pause.
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        if std::mem::take(&mut self.has_new_path) {
            self.cc.on_path_change(now);
            self.min_gap = self.cc.min_gap();
        }
        self.limited_since.get_or_insert(now);
        self.set_limit(now, FlowLimit::Port);
        self.cc.on_sent(now, &sent);
        self.sent_since_near_bytes += u64::from(sent.bytes);
        self.bucket.on_sent(now, paced_bytes);
        if self.min_gap > Dur::ZERO {
            self.bucket.hold(now, self.min_gap);
        }
        SendTimeState {
            delivered_bytes: self.delivered_bytes,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            // `>=`: the first packet after an app-limited pause is app-limited as well.
            // draft-cheng-iccrg-delivery-rate-estimation 3.4.
            is_app_limited: self.app_limited_until_bytes >= self.delivered_bytes.max(1),
        }
    }

    /// The bytes that the pacer counts for a packet of `frame_bytes` with a payload of `bytes`.
    ///
    /// Rates of congestion control are payload bytes and the headers of full packets. A shorter
    /// packet therefore counts its payload and a part of its headers: the part that its payload
    /// is of a full one. Otherwise headers of small messages would use up a rate that was
    /// computed from their payload, such as BBR's bandwidth.
    fn paced_bytes(&self, bytes: u32, frame_bytes: u32) -> u32 {
        let wire_bytes = frame_bytes.saturating_add(FRAME_OVERHEAD_BYTES);
        if bytes == 0 || bytes >= self.mtu_bytes {
            return wire_bytes;
        }
        let headers = u64::from(wire_bytes.saturating_sub(bytes)) * u64::from(bytes);
        bytes + u32::try_from(headers / u64::from(self.mtu_bytes)).unwrap_or(u32::MAX)
    }

    /// The packet that just left is the timed one, unless another is. Its acknowledgement is that
    /// of everything before `end`.
    pub(crate) fn set_timed(&mut self, sent_at: Time, state: SendTimeState, end: u64) {
        self.timed.get_or_insert(Timed { sent_at, state, end });
    }

    /// The state at the departure of the timed packet, and the time, once everything before
    /// `upto` is acknowledged. The first response of a READ is not enough: its rate would be that
    /// of one packet, although all responses leave at once.
    pub(crate) fn take_timed(&mut self, upto: u64) -> Option<(SendTimeState, Time)> {
        self.timed.take_if(|timed| timed.end <= upto).map(|timed| (timed.state, timed.sent_at))
    }

    /// Handles an acknowledgement. The engine sets what it measures in `ack`. The flow adds
    /// whether it was limited, the delivery rate since the departure of the packet whose state
    /// and time are `sampled`, and the telemetry `int` of that packet, as switches wrote it, in the
    /// requested format.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        mut ack: Ack<'_>,
        sampled: Option<(SendTimeState, Time)>,
        int: IntRecords<'_>,
    ) {
        self.delivered_bytes += ack.acked_bytes;
        self.marked_bytes += ack.marked_bytes;
        ack.delivery = sampled.filter(|_| ack.acked_bytes > 0).map(|(at, sent_at)| {
            let sending = sent_at.since(at.first_sent_at);
            let acking = now.since(at.delivered_at);
            self.first_sent_at = sent_at;
            Delivery {
                total_bytes: self.delivered_bytes,
                total_at_send_bytes: at.delivered_bytes,
                interval: sending.max(acking),
                app_limited: at.is_app_limited,
            }
        });
        if ack.acked_bytes > 0 {
            self.delivered_at = now;
        }
        if ack.rtt.is_some_and(|rtt| rtt < self.least_rtt) {
            self.on_least_rtt(ack.rtt.unwrap_or(Dur::MAX));
        }
        self.host_late = self.host_late - self.host_late / 16 + (ack.rx_delay + ack.rtt_slack) / 16;
        ack.lost_bytes = std::mem::take(&mut self.lost_bytes);
        ack.cwnd_limited = std::mem::take(&mut self.is_cwnd_limited);
        match int.is_empty() {
            true => self.cc.on_ack(now, &ack),
            false => self.on_ack_with_int(now, &ack, int),
        }
        self.update_rate(now);
    }

    /// Reports the loss of packets of `bytes`.
    pub(crate) fn on_loss(&mut self, now: Time, kind: LossKind, bytes: u64, inflight_bytes: u64) {
        if kind == LossKind::Timeout(1) {
            self.before_timeout = Some(Box::new(self.cc.clone()));
        }
        self.cc.on_loss(now, &Loss { kind, bytes, inflight_bytes });
        self.update_rate(now);
    }

    /// Packets of `bytes` were lost, within a recovery period or at its start.
    pub(crate) fn count_lost(&mut self, bytes: u64) {
        self.lost_bytes += bytes;
    }

    /// The timeouts since the last progress were spurious: nothing was lost. Congestion control
    /// is as before them (Eifel response, RFC 4015).
    #[cold]
    pub(crate) fn on_spurious_timeout(&mut self, now: Time) {
        if let Some(before) = self.before_timeout.take() {
            self.cc = *before;
            // The counters that it knows may be from before a restart.
            self.int.iter_mut().for_each(|unwrapped| unwrapped.restart());
            self.update_rate(now);
        }
    }

    /// The next packet takes another path.
    pub(crate) fn on_path_change(&mut self) {
        self.has_new_path = true;
    }

    /// Reports a CNP.
    pub(crate) fn on_cnp(&mut self, now: Time) {
        self.cc.on_cnp(now);
        self.update_rate(now);
    }

    /// The next deadline for [`Flow::handle_timeout`].
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.cc.poll_timeout()
    }

    /// Handles the timers of congestion control that are due at `now`.
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
            algorithm: self.algorithm,
            status: self.cc.status(),
            host_late: self.host_late,
        }
    }
}

/// The path of packets with `mtu_bytes` of payload, as congestion control knows it at first.
pub(crate) fn path(choice: &CongestionControl, mtu_bytes: u32, config: &Config) -> Path {
    Path { mtu_bytes, line_rate: config.line_rate, base_rtt: choice.base_rtt }
}

/// A window of `cwnd` bytes in packets, with `pkts` packets of `bytes` in flight that are shorter
/// than `mtu` in the mean.
fn short_window_pkts(cwnd: u64, mtu: u64, pkts: u64, bytes: u64) -> u64 {
    let mean = (bytes / pkts).max(1);
    cwnd.checked_sub(bytes + mtu).map_or(pkts, |more| pkts + more / mean + 1)
}

/// Burst of the token bucket: packets that may leave at once after a pause, beside the one that
/// is due.
const BURST_PKTS: u32 = 2;
/// Preamble, frame check sequence and inter-packet gap of Ethernet.
const FRAME_OVERHEAD_BYTES: u32 = 24;
/// The same plus the headers of a packet.
const WIRE_OVERHEAD_BYTES: u32 = 130;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Rate;
    use spanwire_cc::{Algorithm, PseudoAck};
    use spanwire_wire::{INT_FULL_LEN, IntHop};

    /// No telemetry.
    const NONE: IntRecords<'_> = IntRecords::NONE;

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
        Flow::new(
            &CongestionControl {
                algorithm: Some(algorithm),
                base_rtt,
                preset: Preset::Paper,
                ..CongestionControl::NONE
            },
            1000,
            &config,
        )
        .unwrap()
    }

    /// A packet with a payload of 1,000 bytes leaves.
    fn send(f: &mut Flow, now: Time, inflight_bytes: u64) -> SendTimeState {
        f.on_sent(now, (1000, 1076), inflight_bytes, false)
    }

    #[test]
    fn paced_until__after_a_burst_of_two_beside_the_first() {
        let mut f = flow("fixed", &[("window_pkts", "3.9"), ("rate_mbps", "100")]);
        assert_eq!(f.window_pkts(0, 0), 3);
        let now = at(1000);
        for n in 1..=3 {
            assert_eq!(f.paced_until(now), None, "{n}");
            send(&mut f, now, n * 1000);
        }
        // 1100 bytes at 100 Mbit/s are 88 us; the burst is of 2 x 1130 bytes.
        let until = f.paced_until(now).unwrap();
        assert!((80..88).contains(&until.since(now).as_us()), "{until:?}");
        assert_eq!(f.info().limit, FlowLimit::Pacer);
        assert_eq!(f.paced_until(until), None);
    }

    #[test]
    fn times_at__adds_up_each_limit_from_the_first_packet_on() {
        let mut f = flow("fixed", &[("window_pkts", "3"), ("rate_mbps", "100")]);
        f.on_limit(at(10), FlowLimit::Application, 0);
        assert_eq!(f.info().times_at(at(1000)), LimitTimes::default());
        send(&mut f, at(1000), 1000);
        f.on_window_full(at(1002), true);
        f.on_window_full(at(1005), true);
        send(&mut f, at(1042), 1000);
        f.on_limit(at(1043), FlowLimit::Receiver, 1000);
        let info = f.info();
        let (then, later) = (info.times_at(at(1043)), info.times_at(at(1050)));
        let us = |times: LimitTimes| FlowLimit::ALL.map(|limit| times.by(limit).as_us());
        // Application, window, pacer, receiver, endpoint, port.
        assert_eq!(us(then), [0, 40, 0, 0, 0, 3]);
        assert_eq!(us(later), [0, 40, 0, 7, 0, 3]);
    }

    #[test]
    fn window_pkts__is_at_least_one() {
        let mut f = flow("fixed", &[("window_pkts", "1")]);
        f.mtu_bytes = 60_000;
        assert_eq!(f.window_pkts(0, 0), 1);
    }

    #[test]
    fn window_pkts__counts_short_packets_by_their_bytes() {
        let f = flow("fixed", &[("window_pkts", "3")]);
        assert_eq!(f.window_pkts(3, 3000), 3, "full");
        // 1,000 bytes in flight: a full packet leaves 1,000 more, ten of 100 bytes.
        assert_eq!(f.window_pkts(10, 1000), 10 + 10 + 1);
        assert_eq!(f.window_pkts(20, 2000), 20 + 1, "room for a last one");
        assert_eq!(f.window_pkts(21, 2100), 21, "a full packet would not fit");
        assert_eq!(f.window_pkts(5, 0), 5 + 2001, "without payload only their number counts");
        assert_eq!(f.window_pkts(900, 90_000), 900, "a window that shrank");
    }

    #[test]
    fn paced_bytes__of_short_packets_are_in_proportion_to_full_ones() {
        let f = flow("fixed", &[]);
        let (full, short) = (f.paced_bytes(1000, 1100), f.paced_bytes(100, 200));
        assert_eq!((full, short), (1124, 112));
        assert_eq!(f.paced_bytes(0, 70), 94, "a packet without payload counts as a whole");
    }

    #[test]
    fn on_ack__samples_the_delivery_rate() {
        let mut f = flow("bbr", &[]);
        let mut now = at(1000);
        // A packet each 10 us, acknowledged after 100: 0.1 bytes a nanosecond.
        let mut out = std::collections::VecDeque::new();
        for n in 0..200_u64 {
            out.push_back((now, send(&mut f, now, 10_000)));
            if n >= 10 {
                let (sent_at, send_state) = out.pop_front().unwrap();
                let ack = Ack {
                    acked_bytes: 1000,
                    acked_pkts: 1,
                    rtt: Some(now.since(sent_at)),
                    sent_at,
                    inflight_bytes: 10_000,
                    ..Ack::default()
                };
                f.on_ack(now, ack, Some((send_state, sent_at)), NONE);
            }
            now += Dur::from_us(10);
        }
        let rate = f.info().rate.unwrap().as_bps();
        // Of 800 Mbit/s BBR makes 0.75 to 2.9 times as much, as its cycle says.
        assert!((590_000_000..2_400_000_000).contains(&rate), "{rate}");
        assert_eq!(f.info().delivered_bytes, 190_000);
    }

    #[test]
    fn on_spurious_timeout__restores_every_algorithm() {
        for name in Algorithm::known() {
            let mut f = flow(name, &[]);
            for us in [1000, 1100, 1200, 1300] {
                let ack = Ack {
                    acked_bytes: 9000,
                    acked_pkts: 9,
                    rtt: Some(Dur::from_us(100)),
                    sent_at: at(us - 100),
                    inflight_bytes: 10_000,
                    ..Ack::default()
                };
                f.on_ack(at(us), ack, None, NONE);
            }
            let before = (f.cc.cwnd_bytes(), f.cc.rate());
            for count in 1..=5 {
                f.on_loss(at(2000 + u64::from(count) * 500), LossKind::Timeout(count), 9000, 0);
            }
            f.on_spurious_timeout(at(9000));
            assert_eq!((f.cc.cwnd_bytes(), f.cc.rate()), before, "{name}");
            f.on_spurious_timeout(at(9100));
            assert_eq!(
                (f.cc.cwnd_bytes(), f.cc.rate()),
                before,
                "{name}: a timeout is undone once"
            );
        }
    }

    #[test]
    fn on_path_change__reaches_the_algorithm_with_the_next_packet() {
        let window_after = |changes: bool| {
            let mut f = flow("hpcc", &[]);
            for us in [1000, 1100, 1200] {
                send(&mut f, at(us), 50_000);
                let mut echo = [[1, 0, 0, 0].as_slice(), &[0; INT_FULL_LEN]].concat();
                let time_ps = us * 1_000_000;
                // A port of our own rate, always busy, with a queue of ten round trips.
                let hop = IntHop {
                    time_ps,
                    tx_bytes: us * 1250,
                    queue_bytes: 1_250_000,
                    link_rate_mbps: 10_000,
                };
                hop.emit(echo.last_chunk_mut().unwrap());
                let ack = Ack {
                    acked_bytes: 1000,
                    acked_pkts: 1,
                    rtt: Some(Dur::from_us(100)),
                    sent_at: at(us - 100),
                    ..Ack::default()
                };
                f.on_ack(at(us), ack, None, IntRecords::parse(&echo));
                if changes {
                    f.on_path_change();
                }
            }
            f.info().cwnd_bytes
        };
        assert_eq!(window_after(true), 125_000, "each record is the first of its path");
        assert!(window_after(false) < 20_000);
    }

    #[test]
    fn on_pseudo_ack__has_the_bytes_sent_since_the_previous_one() {
        let set = [
            ("base_target_us", "30"),
            ("hop_us", "0"),
            ("flow_range_us", "0"),
            ("initial_pkts", "10"),
            ("near_base_us", "20"),
        ];
        let mut f = flow("swift", &set);
        let mut report = |us: u64, pkts: u32, rtt_us: u64| {
            for _ in 0..pkts {
                send(&mut f, at(us), 10_000);
            }
            let rtt = Dur::from_us(rtt_us);
            let ack = PseudoAck { rtt, sent_at: at(us - rtt_us), sent_bytes: 0, hops: Some(0) };
            f.on_pseudo_ack(at(us), ack);
            // The window of the near round trip covers the whole path of 100 us.
            f.info().cwnd_bytes
        };
        // Cut to 5 packets; the smoothed near round trip is 42.5 us.
        assert_eq!(report(1000, 10, 200), 5_000 * 1000 / 425);
        // Plus 2 / 5 packets; 39.6875 us.
        assert_eq!(report(2000, 2, 20), 5_400 * 1_000_000 / 396_875);
        // Nothing was sent, so nothing is added; 37.2265625 us.
        assert_eq!(report(2001, 0, 20), 5_400 * 10_000_000_000 / 3_722_656_250);
    }

    #[test]
    fn on_cnp__and_timers_reach_the_algorithm_and_the_bucket() {
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
