//! PFC reception of a host's port.

use crate::pfc::{Pauses, PfcCounters};
use serde::Serialize;
use spanwire_base::{Node, PortId, PortMask, Rate, RxMeta, Time, TxMeta};
use spanwire_wire::{PfcFrame, dscp_of};
use std::collections::VecDeque;

/// A node with one port that obeys PFC pause frames, as the network card does for a host that does
/// not process them.
///
/// Up to [`PfcGate::HELD_PKTS`] frames of paused priorities are queued. Then the host is not polled
/// until some of them may be sent, regardless of priority, because a card has one transmit queue
/// for all. Pause frames are link-local, so they are not passed to the host.
#[derive(Debug)]
pub struct PfcGate<N> {
    node: N,
    pauses: Pauses,
    obeyed: u8,
    held: VecDeque<Held>,
    /// Sent frames, kept for their buffers.
    spare: Vec<Held>,
    ready: PortMask,
    counters: GateCounters,
}

/// Counters of a gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct GateCounters {
    /// Pause frames.
    pub pfc: PfcCounters,
    /// Frames that were queued.
    pub held_pkts: u64,
    /// Queued frames that exceeded the driver's buffer.
    pub drop_tx_too_long: u64,
}

#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    elided_bytes: u32,
    class: u8,
}

impl<N: Node> PfcGate<N> {
    /// Maximum queued frames: one burst of the host. More would delay newer frames of the host
    /// behind older ones.
    pub const HELD_PKTS: usize = 16;

    /// A gate for a link of this rate that obeys pauses of the priorities in `obeyed` (bit i:
    /// priority i, which is class i of frames).
    pub fn new(node: N, rate: Rate, obeyed: u8) -> Self {
        Self {
            node,
            pauses: Pauses::new(rate),
            obeyed,
            held: VecDeque::with_capacity(Self::HELD_PKTS),
            spare: Vec::with_capacity(Self::HELD_PKTS),
            ready: PortMask::EMPTY,
            counters: GateCounters::default(),
        }
    }

    /// The host.
    pub fn node(&self) -> &N {
        &self.node
    }

    /// The host, mutable.
    pub fn node_mut(&mut self) -> &mut N {
        &mut self.node
    }

    /// The counters.
    pub fn counters(&self) -> &GateCounters {
        &self.counters
    }

    /// Queued frames.
    pub fn held_pkts(&self) -> usize {
        self.held.len()
    }

    /// Dequeues the first frame whose priority is not paused. Frames of one priority stay in order.
    fn release(&mut self, paused: u8, frame: &mut [u8]) -> Option<TxMeta> {
        loop {
            let at = self.held.iter().position(|held| paused & (1 << held.class) == 0)?;
            let held = self.held.remove(at)?;
            let sent =
                TxMeta { elided_bytes: held.elided_bytes, ..TxMeta::whole(held.bytes.len()) };
            let fits = frame.get_mut(..sent.len).map(|out| out.copy_from_slice(&held.bytes));
            self.spare.push(held);
            if fits.is_some() {
                return Some(sent);
            }
            self.counters.drop_tx_too_long += 1;
        }
    }

    fn hold(&mut self, frame: &[u8], elided_bytes: u32, class: u8) {
        let mut held = self.spare.pop().unwrap_or_default();
        held.bytes.clear();
        held.bytes.extend_from_slice(frame);
        held.elided_bytes = elided_bytes;
        held.class = class;
        self.held.push_back(held);
        self.counters.held_pkts += 1;
    }
}

impl<N: Node> Node for PfcGate<N> {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        match PfcFrame::parse(frame) {
            Some(pause) => {
                self.pauses.handle_frame(now, &pause, self.obeyed, &mut self.counters.pfc);
                self.ready.insert(port);
            }
            None => self.node.handle_packet(now, port, frame, meta),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let before = self.pauses.mask();
        if self.pauses.expire(now, &mut self.counters.pfc) != before {
            self.ready.insert(PortId::HOST);
        }
        self.node.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        let paused = self.pauses.expire(now, &mut self.counters.pfc);
        if let Some(sent) = self.release(paused, frame) {
            return Some(sent);
        }
        while self.held.len() < Self::HELD_PKTS {
            let sent = self.node.poll_transmit(now, port, frame)?;
            let bytes = &frame[..sent.len];
            let class = dscp_of(bytes).unwrap_or(0) >> 3;
            if paused & (1 << class) == 0 {
                return Some(sent);
            }
            self.hold(bytes, sent.elided_bytes, class);
        }
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.node.poll_timeout().into_iter().chain(self.pauses.next_end()).min()
    }

    fn take_ready(&mut self) -> PortMask {
        let mut ready = self.node.take_ready();
        ready.merge(self.ready.take());
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::roce_frame_of;
    use spanwire_base::Dur;
    use spanwire_wire::{MacAddr, set_dscp};

    /// A host that sends a given list of frames.
    #[derive(Debug, Default)]
    struct Script {
        frames: VecDeque<Vec<u8>>,
        received: usize,
    }

    impl Node for Script {
        fn handle_packet(&mut self, _: Time, _: PortId, _: &[u8], _: &RxMeta) {
            self.received += 1;
        }

        fn handle_timeout(&mut self, _: Time) {}

        fn poll_transmit(&mut self, _: Time, _: PortId, frame: &mut [u8]) -> Option<TxMeta> {
            let next = self.frames.pop_front()?;
            frame[..next.len()].copy_from_slice(&next);
            Some(TxMeta::whole(next.len()))
        }

        fn poll_timeout(&self) -> Option<Time> {
            None
        }

        fn take_ready(&mut self) -> PortMask {
            PortMask::EMPTY
        }
    }

    /// A frame of class `class`, number `n`.
    fn frame(class: u8, n: u16) -> Vec<u8> {
        let mut frame = roce_frame_of(1, n, 0);
        set_dscp(&mut frame, class * 8);
        frame
    }

    fn gate(frames: impl IntoIterator<Item = Vec<u8>>) -> PfcGate<Script> {
        let node = Script { frames: frames.into_iter().collect(), received: 0 };
        PfcGate::new(node, Rate::from_gbps(100), 0b1000)
    }

    fn pause(g: &mut PfcGate<Script>, now: Time, quanta: u16) {
        let mut out = [0; PfcFrame::LEN];
        PfcFrame { enabled: 0b1111, quanta: [quanta; 8] }.emit(MacAddr::default(), &mut out);
        g.handle_packet(now, PortId::HOST, &out, &RxMeta::whole(now));
    }

    /// (class, number) of every frame sent now.
    fn sent(g: &mut PfcGate<Script>, now: Time) -> Vec<(u8, u16)> {
        let mut out = [0; 2_000];
        std::iter::from_fn(|| {
            let tx = g.poll_transmit(now, PortId::HOST, &mut out)?;
            let number = u16::from_be_bytes([out[34], out[35]]);
            Some((dscp_of(&out[..tx.len]).unwrap() / 8, number))
        })
        .collect()
    }

    #[test]
    fn poll_transmit__passes_frames_of_other_priorities() {
        let mut g = gate([frame(3, 0), frame(6, 1)]);
        assert_eq!(sent(&mut g, Time::ZERO), [(3, 0), (6, 1)]);
        assert_eq!(*g.counters(), GateCounters::default());
    }

    #[test]
    fn poll_transmit__queues_a_paused_priority_in_order() {
        let mut g = gate([frame(3, 0), frame(2, 1), frame(3, 2), frame(0, 3)]);
        pause(&mut g, Time::ZERO, 100);
        assert!(g.take_ready().has(PortId::HOST));
        assert_eq!(sent(&mut g, Time::ZERO), [(2, 1), (0, 3)]);
        assert_eq!(g.poll_timeout(), Some(Time::from_ns(512)));
        g.node_mut().frames.push_back(frame(3, 4));
        assert_eq!(sent(&mut g, Time::from_ns(511)), []);
        g.handle_timeout(Time::from_ns(512));
        assert!(g.take_ready().has(PortId::HOST));
        assert_eq!(sent(&mut g, Time::from_ns(512)), [(3, 0), (3, 2), (3, 4)]);
        let c = g.counters();
        assert_eq!((c.held_pkts, c.pfc.pause_rx, c.pfc.paused_ps[3]), (3, 1, 512_000));
        assert_eq!((g.held_pkts(), g.node().received), (0, 0));
    }

    #[test]
    fn poll_transmit__stops_polling_when_the_queue_is_full() {
        let mut g = gate((0..40).map(|n| frame(if n < 30 { 3 } else { 0 }, n)));
        pause(&mut g, Time::ZERO, 1_000);
        assert_eq!(sent(&mut g, Time::ZERO), []);
        assert_eq!((g.held_pkts(), g.node().frames.len()), (16, 24));
        pause(&mut g, Time::from_ns(9), 0);
        let all: Vec<u16> = sent(&mut g, Time::from_ns(9)).iter().map(|(_, n)| *n).collect();
        assert_eq!(all, (0..40).collect::<Vec<_>>());
        assert_eq!(g.counters().pfc.resume_rx, 1);
    }

    #[test]
    fn handle_packet__passes_everything_else() {
        let mut g = gate([]);
        let late = Time::ZERO + Dur::from_us(1);
        g.handle_packet(late, PortId::HOST, &frame(3, 0), &RxMeta::whole(late));
        g.handle_packet(late, PortId::HOST, &[], &RxMeta::whole(late));
        assert_eq!(g.node().received, 2);
    }

    #[test]
    fn release__counts_frames_that_do_not_fit() {
        let mut g = gate([frame(3, 0)]);
        pause(&mut g, Time::ZERO, 100);
        assert_eq!(sent(&mut g, Time::ZERO), []);
        pause(&mut g, Time::ZERO, 0);
        assert_eq!(g.poll_transmit(Time::ZERO, PortId::HOST, &mut [0; 10]), None);
        assert_eq!(g.counters().drop_tx_too_long, 1);
    }
}
