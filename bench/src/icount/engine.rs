//! Two endpoints, connected directly.

use crate::ends::{End, Ends};
use crate::sample::Error;
use spanwire_base::{Dur, LentPayload, Node, PortId, RxMeta, Time, TxBurst, TxMeta, u64_from};
use spanwire_cc::Algorithm;
use spanwire_transport::{
    Config, CongestionControl, ErasureCoding, Mtu, Preset, QpAttr, QpCaps, RecvRequest, RemoteAddr,
    Sge, SrOptions, Wc, WcStatus, Wire, WorkRequest, WrOp,
};
use spanwire_wire::Qpn;

/// Two connected endpoints; frames arrive at once, unless [`Pair::lossy`] or [`Pair::far`].
pub struct Pair {
    ends: [End; 2],
    frame: Vec<u8>,
    now: Time,
    /// Time from one end to the other.
    delay: Dur,
    /// One in this many frames of the first end is lost.
    lost_one_in: Option<u64>,
    sent: u64,
    /// Each turn handles timers and the pacer.
    is_paced: bool,
}

impl Pair {
    /// A pair with `qps` queue pairs connected in RC mode.
    ///
    /// # Errors
    /// The engine rejects the configuration.
    pub fn rc(config: Config, mtu: Mtu, qps: usize) -> Result<Self, Error> {
        Self::new(config, mtu, qps, |_, _| {})
    }

    /// A pair connected in SR mode, with packets of `segment_bytes`, and of blocks if `erasure` is
    /// given.
    ///
    /// # Errors
    /// As [`Pair::rc`].
    pub fn sr(
        config: Config,
        segment_bytes: u32,
        erasure: Option<ErasureCoding>,
    ) -> Result<Self, Error> {
        let segment_bytes = Some(segment_bytes);
        let options = SrOptions { segment_bytes, erasure, ..SrOptions::default() };
        Self::new(config, Mtu::B4096, 1, |rtr, _| rtr.wire = Some(Wire::Sr(options)))
    }

    /// A pair with whole windows in flight: acknowledgements arrive after the first end has sent
    /// all it may, and one in `one_in` of its frames is lost.
    #[must_use]
    pub fn lossy(self, one_in: u64) -> Self {
        Self { lost_one_in: Some(one_in), ..self }
    }

    /// A pair with a round trip of 10 us. Both ends handle their timers.
    #[must_use]
    pub fn far(self) -> Self {
        Self { delay: Dur::from_us(5), is_paced: true, ..self }
    }

    /// A pair whose first end has this congestion control, with a round trip of 10 us.
    ///
    /// # Errors
    /// The engine rejects it.
    pub fn paced(self, algorithm: Algorithm) -> Result<Self, Error> {
        let base_rtt = Some(Dur::from_us(10));
        let congestion = CongestionControl {
            algorithm: Some(algorithm),
            base_rtt,
            preset: Preset::Paper,
            ..CongestionControl::NONE
        };
        Ok(Self { is_paced: true, ..self.with(0, congestion)? })
    }

    /// As [`Pair::far`], with the default congestion control at both ends.
    ///
    /// # Errors
    /// The engine rejects it.
    pub fn auto(self) -> Result<Self, Error> {
        let congestion = CongestionControl::default();
        self.far().with(0, congestion)?.with(1, congestion)
    }

    /// The congestion control of all queue pairs of one end.
    fn with(mut self, end: usize, congestion: CongestionControl) -> Result<Self, Error> {
        let congestion = Some(congestion);
        let end = &mut self.ends[end];
        for qpn in &end.qpns {
            end.ep.modify_qp(*qpn, &QpAttr { congestion, ..QpAttr::default() })?;
        }
        Ok(self)
    }

    fn new(
        config: Config,
        mtu: Mtu,
        qps: usize,
        mode: impl Fn(&mut QpAttr, &mut QpAttr),
    ) -> Result<Self, Error> {
        let (caps, bytes) = (QpCaps::default(), 1 << 18);
        let ends = Ends { config, qps, caps, cqe: 256, bytes, mtu }.connect(|rtr, rts| {
            // The rows without pacing measure the engine alone.
            rts.congestion = Some(CongestionControl::NONE);
            mode(rtr, rts);
        })?;
        let (now, delay) = (Time::ZERO, Dur::ZERO);
        let (lost_one_in, sent, is_paced) = (None, 0, false);
        Ok(Self { ends, frame: vec![0; 8192], now, delay, lost_one_in, sent, is_paced })
    }

    /// A WRITE to the start of the peer's memory.
    #[must_use]
    pub fn write(remote: RemoteAddr) -> WrOp {
        WrOp::Write { remote }
    }

    /// A READ from the start of the peer's memory.
    #[must_use]
    pub fn read(remote: RemoteAddr) -> WrOp {
        WrOp::Read { remote }
    }

    /// An atomic addition at the start of the peer's memory.
    #[must_use]
    pub fn fetch_add(remote: RemoteAddr) -> WrOp {
        WrOp::FetchAdd { remote, add: 1 }
    }

    /// Moves `count` messages of `len` bytes, sixteen posted at a time.
    ///
    /// # Errors
    /// A request fails.
    pub fn messages(
        &mut self,
        count: u64,
        op: impl Fn(RemoteAddr) -> WrOp,
        len: u32,
    ) -> Result<(), Error> {
        self.messages_of(count, op, |_| len)
    }

    /// As [`Pair::messages`], each of the length of its number, on the queue pairs in turn.
    ///
    /// # Errors
    /// As [`Pair::messages`].
    pub fn messages_of(
        &mut self,
        count: u64,
        op: impl Fn(RemoteAddr) -> WrOp,
        len: impl Fn(u64) -> u32,
    ) -> Result<(), Error> {
        let peer = self.ends[1].mr;
        let op = op(RemoteAddr { va: peer.addr, rkey: peer.rkey.ok_or("a key")? });
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < 16 {
                if op == WrOp::Send {
                    self.ends[1].post_recv(posted, len(posted))?;
                }
                self.ends[0].post_send(posted, op, len(posted))?;
                posted += 1;
            }
            match self.lost_one_in {
                None => self.turn(),
                Some(one_in) => self.window(one_in),
            }
            self.ends[1].poll()?;
            done += self.ends[0].poll()?;
        }
        Ok(())
    }

    /// `count` times a SEND of `len` bytes and the SEND that answers it.
    ///
    /// # Errors
    /// A request fails.
    pub fn ping_pongs(&mut self, count: u64, len: u32) -> Result<(), Error> {
        for n in 0..count {
            for end in &mut self.ends {
                end.post_recv(n, len)?;
            }
            let mut done = [0; 2];
            self.ends[0].post_send(n, WrOp::Send, len)?;
            while done[1] == 0 {
                self.turn();
                done[1] += self.ends[1].poll()?;
                done[0] += self.ends[0].poll()?;
            }
            self.ends[1].post_send(n, WrOp::Send, len)?;
            // Both ends complete a SEND and a receive request.
            while done != [2; 2] {
                self.turn();
                done[0] += self.ends[0].poll()?;
                done[1] += self.ends[1].poll()?;
            }
        }
        Ok(())
    }

    /// Lets each side send what it may.
    fn turn(&mut self) {
        self.now += Dur::from_us(1);
        for (from, to) in [(0, 1), (1, 0)] {
            if self.is_paced {
                self.ends[from].ep.handle_timeout(self.now);
            }
            let arrival = self.now + self.delay;
            let [from, to] = self.ends.get_disjoint_mut([from, to]).expect("two ends");
            let mut cable = Cable { frame: &mut self.frame, to, arrival };
            from.ep.transmit_burst(self.now, PortId::HOST, &mut cable);
            self.now = arrival;
        }
    }
}

/// Delivers each frame at once.
struct Cable<'a> {
    frame: &'a mut [u8],
    to: &'a mut End,
    arrival: Time,
}

impl TxBurst for Cable<'_> {
    fn buffer(&mut self) -> Option<&mut [u8]> {
        Some(self.frame)
    }

    fn commit(&mut self, meta: TxMeta, _: Option<LentPayload>) {
        let rx = RxMeta { elided_bytes: meta.elided_bytes, ..RxMeta::whole(self.arrival) };
        self.to.ep.handle_packet(self.arrival, PortId::HOST, &self.frame[..meta.len], &rx);
    }
}

impl Pair {
    /// Lets the first end send a window, and delivers acknowledgements afterwards.
    fn window(&mut self, lost_one_in: u64) {
        let [sender, receiver] = &mut self.ends;
        let mut acks = Vec::new();
        self.now += Dur::from_us(100);
        sender.ep.handle_timeout(self.now);
        while let Some(meta) = sender.ep.poll_transmit(self.now, PortId::HOST, &mut self.frame) {
            self.sent += 1;
            if self.sent.is_multiple_of(lost_one_in) {
                continue;
            }
            let rx = RxMeta { elided_bytes: meta.elided_bytes, ..RxMeta::whole(self.now) };
            receiver.ep.handle_packet(self.now, PortId::HOST, &self.frame[..meta.len], &rx);
            while let Some(ack) = receiver.ep.poll_transmit(self.now, PortId::HOST, &mut self.frame)
            {
                acks.push(self.frame[..ack.len].to_vec());
            }
        }
        self.now += Dur::from_us(100);
        receiver.ep.handle_timeout(self.now);
        for ack in acks {
            sender.ep.handle_packet(self.now, PortId::HOST, &ack, &RxMeta::whole(self.now));
        }
    }
}

impl End {
    /// Posts message `n` on its queue pair.
    fn post_send(&mut self, n: u64, op: WrOp, len: u32) -> Result<(), Error> {
        let sge = Sge { addr: self.mr.addr, len, lkey: self.mr.lkey };
        Ok(self.ep.post_send(self.qp(n), &WorkRequest::new(n, op, &[sge]))?)
    }

    fn post_recv(&mut self, n: u64, len: u32) -> Result<(), Error> {
        let sge = Sge { addr: self.mr.addr, len, lkey: self.mr.lkey };
        Ok(self.ep.post_recv(self.qp(n), &RecvRequest { wr_id: n, sges: &[sge] })?)
    }

    fn qp(&self, n: u64) -> Qpn {
        self.qpns[spanwire_base::usize_from(n) % self.qpns.len()]
    }

    /// The number of completions.
    fn poll(&mut self) -> Result<u64, Error> {
        let mut bad = None;
        let each = |wc: Wc| bad = Some(wc.status).filter(|s| *s != WcStatus::Success).or(bad);
        let done = self.ep.poll_cq_into(self.cq, usize::MAX, each)?;
        bad.map_or(Ok(u64_from(done)), |status| Err(status.name().into()))
    }
}
