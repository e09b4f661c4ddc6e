//! Two endpoints, connected directly.

use crate::sample::Error;
use spanwire_base::{Dur, Node, PortId, RxMeta, Time};
use spanwire_cc::Algorithm;
use spanwire_transport::{
    Access, AddressVector, Config, CongestionControl, CqId, Endpoint, MemoryRegion, Mtu, Preset,
    QpAttr, QpCaps, QpInit, RecvRequest, RemoteAddr, Sge, WcStatus, WireMode, WorkRequest, WrOp,
};
use spanwire_wire::{MacAddr, Psn, Qpn};

/// Two connected endpoints; frames arrive at once, unless [`Pair::lossy`].
pub struct Pair {
    ends: [End; 2],
    frame: Vec<u8>,
    now: Time,
    /// One in this many frames of the first end is lost.
    lost_one_in: Option<u64>,
    sent: u64,
    /// The first end is paced: each turn handles timers and the pacer.
    is_paced: bool,
}

struct End {
    ep: Endpoint,
    cq: CqId,
    qpn: Qpn,
    mr: MemoryRegion,
}

impl Pair {
    /// A connected pair in RC mode.
    ///
    /// # Errors
    /// The engine rejects the configuration.
    pub fn rc(config: Config, mtu: Mtu) -> Result<Self, Error> {
        Self::new(config, mtu, |_| {})
    }

    /// A connected pair in SR mode, with packets of `segment_bytes`.
    ///
    /// # Errors
    /// As [`Pair::rc`].
    pub fn sr(config: Config, segment_bytes: u32) -> Result<Self, Error> {
        Self::new(config, Mtu::B4096, |rtr| {
            rtr.wire_mode = Some(WireMode::Sr);
            rtr.segment_bytes = Some(segment_bytes);
        })
    }

    /// A pair with whole windows in flight: acknowledgements arrive after the first end has sent
    /// all it may, and one in `one_in` of its frames is lost.
    #[must_use]
    pub fn lossy(self, one_in: u64) -> Self {
        Self { lost_one_in: Some(one_in), ..self }
    }

    /// A pair whose first end has this congestion control, with a round trip of 10 us.
    ///
    /// # Errors
    /// The engine rejects it.
    pub fn paced(mut self, algorithm: Algorithm) -> Result<Self, Error> {
        let base_rtt = Some(Dur::from_us(10));
        let congestion = Some(CongestionControl {
            algorithm: Some(algorithm),
            base_rtt,
            preset: Preset::Paper,
            ..CongestionControl::NONE
        });
        let [first, _] = &mut self.ends;
        first.ep.modify_qp(first.qpn, &QpAttr { congestion, ..QpAttr::default() })?;
        Ok(Self { is_paced: true, ..self })
    }

    fn new(config: Config, mtu: Mtu, mode: impl Fn(&mut QpAttr)) -> Result<Self, Error> {
        let mut ends = [End::new(1, config.clone())?, End::new(2, config)?];
        let qpns = [ends[0].qpn, ends[1].qpn];
        for (me, peer) in [(0, 1), (1, 0)] {
            let av = AddressVector::new(
                MacAddr::new([2, 0, 0, 0, 0, me]),
                MacAddr::new([2, 0, 0, 0, 0, peer]),
                [10, 0, 0, me].into(),
                [10, 0, 0, peer].into(),
            );
            let end = &mut ends[usize::from(me)];
            let mut rtr = QpAttr::rtr(qpns[usize::from(peer)], Psn::new(0), mtu, av);
            mode(&mut rtr);
            // The rows without pacing measure the engine alone.
            let congestion = Some(CongestionControl::NONE);
            let rts = QpAttr { congestion, ..QpAttr::rts(Psn::new(0)) };
            for attr in [QpAttr::init(Access::ALL), rtr, rts] {
                end.ep.modify_qp(end.qpn, &attr)?;
            }
        }
        let (now, lost_one_in, sent, is_paced) = (Time::ZERO, None, 0, false);
        Ok(Self { ends, frame: vec![0; 8192], now, lost_one_in, sent, is_paced })
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
        let peer = self.ends[1].mr;
        let op = op(RemoteAddr { va: peer.addr, rkey: peer.rkey.ok_or("a key")? });
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < 16 {
                if op == WrOp::Send {
                    let end = &mut self.ends[1];
                    let sge = Sge { addr: end.mr.addr, len, lkey: end.mr.lkey };
                    let wr = RecvRequest { wr_id: posted, sges: &[sge] };
                    end.ep.post_recv(end.qpn, &wr)?;
                }
                let end = &mut self.ends[0];
                let sge = Sge { addr: end.mr.addr, len, lkey: end.mr.lkey };
                end.ep.post_send(end.qpn, &WorkRequest::new(posted, op, &[sge]))?;
                posted += 1;
            }
            match self.lost_one_in {
                None => self.turn(),
                Some(one_in) => self.window(one_in),
            }
            for side in 0..2 {
                let end = &mut self.ends[side];
                while let Some(wc) = end.ep.poll_cq(end.cq)? {
                    if wc.status != WcStatus::Success {
                        return Err(wc.status.name().into());
                    }
                    done += u64::from(side == 0);
                }
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
            while let Some(meta) =
                self.ends[from].ep.poll_transmit(self.now, PortId::HOST, &mut self.frame)
            {
                let rx = RxMeta { elided_bytes: meta.elided_bytes, ..RxMeta::whole(self.now) };
                let frame = &self.frame[..meta.len];
                self.ends[to].ep.handle_packet(self.now, PortId::HOST, frame, rx);
            }
        }
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
            receiver.ep.handle_packet(self.now, PortId::HOST, &self.frame[..meta.len], rx);
            while let Some(ack) = receiver.ep.poll_transmit(self.now, PortId::HOST, &mut self.frame)
            {
                acks.push(self.frame[..ack.len].to_vec());
            }
        }
        self.now += Dur::from_us(100);
        receiver.ep.handle_timeout(self.now);
        for ack in acks {
            sender.ep.handle_packet(self.now, PortId::HOST, &ack, RxMeta::whole(self.now));
        }
    }
}

impl End {
    fn new(seed: u8, config: Config) -> Result<Self, Error> {
        let mut ep = Endpoint::new(config.validate()?, [seed; 32]);
        let pd = ep.alloc_pd()?;
        let cq = ep.create_cq(256)?;
        let region = spanwire_mem::Region::zeroed(1 << 18);
        let mr = ep.reg_mr(pd, region, Access::ALL, Some(1 << 20))?;
        let qpn = ep.create_qp(&QpInit::new(pd, cq, cq, QpCaps::default()))?;
        Ok(Self { ep, cq, qpn, mr })
    }
}
