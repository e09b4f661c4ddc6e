//! The actions of the application and its driver between packets.

use super::layout::STEP_LEN;
use super::ledger::Posted;
use super::memory::{PLOT_LEN, Plot, Reach};
use super::output::Output;
use super::setup::MAX_WR;
use super::world::World;
use spanwire_base::{Dur, Node, PortId};
use spanwire_transport::{
    CqError, Notify, QpAttr, QpState, RecvRequest, RemoteAddr, Sge, WorkRequest, WrOp,
};

impl World {
    pub(super) fn pause(&mut self, bits: u8, early: u8) {
        // From a picosecond to half a minute.
        self.now += Dur::from_ps(1 << (bits % 45));
        let due = self.ep.poll_timeout().is_some_and(|t| t <= self.now);
        if due || early & 1 != 0 {
            self.ep.handle_timeout(self.now);
        }
        let next = self.ep.poll_timeout();
        assert!(next.is_none_or(|t| t > self.now), "still due after the timeout");
        self.time_passed();
    }

    pub(super) fn post_send(&mut self, step: &[u8; STEP_LEN]) {
        let [_, op, len, flags, at, plot, ..] = *step;
        let mr = self.memory.mr(Plot::ALL[usize::from(plot & 7)]);
        let rkey = mr.rkey.unwrap_or(mr.lkey);
        let remote = RemoteAddr { va: mr.addr, rkey };
        let op = match op % 8 {
            0 => WrOp::Send,
            1 => WrOp::SendImm { imm: 1 },
            2 => WrOp::SendInv { rkey },
            3 => WrOp::Write { remote },
            4 => WrOp::WriteImm { remote, imm: 2 },
            5 => WrOp::Read { remote },
            6 => WrOp::FetchAdd { remote, add: 3 },
            _ => WrOp::CmpSwap { remote, compare: 4, swap: 5 },
        };
        let is_atomic = matches!(op, WrOp::FetchAdd { .. } | WrOp::CmpSwap { .. });
        let fetches = is_atomic || matches!(op, WrOp::Read { .. });
        let local = if fetches { Plot::Fetched } else { Plot::Source };
        let at = 4 * usize::from(at);
        let room = if flags & 0x40 == 0 { PLOT_LEN - at } else { PLOT_LEN };
        let len = if is_atomic && flags & 0x80 == 0 { 8 } else { 8 * usize::from(len) }.min(room);
        let half = if flags & 0x10 == 0 { len } else { len / 2 };
        let (a, b) = (self.memory.sge(local, at, half), self.memory.sge(local, at, len - half));
        let b = Sge { addr: a.addr + u64::from(a.len), ..b };
        let sges = [a, b];
        let sges = if flags & 0x10 == 0 { &sges[..1] } else { &sges[..] };
        let bytes = [0x44; 64];
        let inline = (flags & 8 != 0).then(|| &bytes[..len.min(64)]);
        self.wr_id += 1;
        let wr = WorkRequest {
            sges: if inline.is_some() { &[] } else { sges },
            inline,
            signaled: flags & 1 == 0,
            solicited: flags & 2 != 0,
            fence: flags & 4 != 0,
            ..WorkRequest::new(self.wr_id, op, &[])
        };
        if at + len > PLOT_LEN {
            self.streams.outgoing.no_memory();
        }
        if self.ep.post_send(self.qpn, &wr).is_ok() {
            let written = fetches.then_some(Reach { plot: local, bytes: at..at + len });
            let is_signaled = wr.signaled;
            self.sends.post(Posted {
                wr_id: self.wr_id,
                is_signaled,
                is_reset: false,
                room: len,
                written,
            });
        }
    }

    pub(super) fn post_recv(&mut self, at: u8, len: u8) {
        let at = 4 * usize::from(at);
        let len = (4 * usize::from(len)).min(PLOT_LEN - at);
        self.wr_id += 1;
        let sge = self.memory.sge(Plot::Landing, at, len);
        let wr = RecvRequest { wr_id: self.wr_id, sges: &[sge] };
        let posted = match self.srq {
            Some(srq) => self.ep.post_srq_recv(srq, &wr),
            None => self.ep.post_recv(self.qpn, &wr),
        };
        if posted.is_ok() {
            let written = Some(Reach { plot: Plot::Landing, bytes: at..at + len });
            // A WRITE's length is independent of the receive request that its immediate consumes.
            let room = usize::MAX;
            self.recvs.post(Posted {
                wr_id: self.wr_id,
                is_signaled: true,
                is_reset: false,
                room,
                written,
            });
        }
    }

    /// Sends up to `count` frames, or all if 0, into a buffer that may be too short.
    pub(super) fn transmit(&mut self, count: u8, narrow: u8) {
        let mut frame = [0; 400];
        let frame =
            if narrow >= 0xf0 { &mut frame[..usize::from(narrow) - 0xa0] } else { &mut frame };
        let limit = if count == 0 { IDLE_AFTER } else { usize::from(count) };
        for _ in 0..limit {
            let state = self.ep.query_qp(self.qpn).expect("the queue pair exists").state;
            if narrow >= 0xf0 {
                self.streams.outgoing.no_room();
            }
            let Some(meta) = self.ep.poll_transmit(self.now, PortId::HOST, frame) else {
                return;
            };
            let sends = matches!(state, QpState::Rts | QpState::Sqd);
            let was = self.output.snd_nxt;
            let packet = super::output::parse(&frame[..meta.len]);
            if self.setup.is_sr {
                self.streams.on_sent(meta.len);
                self.streams.room = frame.len() - meta.len;
                self.check_sr_output(&packet, state);
                continue;
            }
            self.output.check(&packet, self.epsn);
            assert!(sends || self.output.snd_nxt == was, "a request while {state:?}");
        }
        assert!(count != 0, "it does not stop sending");
    }

    pub(super) fn poll(&mut self) {
        let is_lossy = self.ep.counters().cq_overrun > 0;
        for (cq, ledger) in [(self.send_cq, &mut self.sends), (self.recv_cq, &mut self.recvs)] {
            loop {
                match self.ep.poll_cq(cq) {
                    Ok(Some(wc)) => ledger.complete(&wc, is_lossy),
                    Ok(None) => break,
                    Err(e) => {
                        assert!(e == CqError::Overrun && is_lossy, "{e:?}");
                        break;
                    }
                }
            }
        }
        for _ in 0..IDLE_AFTER {
            if self.ep.poll_async_event().is_none() && self.ep.poll_cq_event().is_none() {
                return;
            }
        }
        panic!("events without end");
    }

    pub(super) fn control(&mut self, what: u8, plot: u8, value: u8) {
        let plot = Plot::ALL[usize::from(plot & 7)];
        let mr = *self.memory.mr(plot);
        let to = |state| QpAttr { state: Some(state), ..QpAttr::default() };
        match what % 12 {
            0 => _ = self.ep.modify_qp(self.qpn, &to(QpState::Sqd)),
            1 | 2 => _ = self.ep.modify_qp(self.qpn, &to(QpState::Rts)),
            3 if value > 0xc0 => _ = self.ep.modify_qp(self.qpn, &to(QpState::Err)),
            4 if value > 0xc0 => self.reset(),
            5 => {
                if let Ok(rkey) = self.ep.renew_rkey(mr.lkey) {
                    self.memory.set_rkey(plot, Some(rkey));
                }
            }
            6 if value > 0xc0 && self.ep.dereg_mr(mr.lkey).is_ok() => {
                self.memory.deregistered(plot);
                self.streams.outgoing.no_memory();
            }
            7 => {
                if mr.rkey.is_some_and(|rkey| self.ep.invalidate_rkey(rkey)) {
                    self.memory.set_rkey(plot, None);
                }
            }
            8 => {
                let (notify, cq) = match value & 3 {
                    0 => (Notify::Next, self.send_cq),
                    1 => (Notify::Next, self.recv_cq),
                    2 => (Notify::Solicited, self.send_cq),
                    _ => (Notify::Solicited, self.recv_cq),
                };
                self.ep.req_notify_cq(cq, notify).expect("the CQ exists");
            }
            9 => {
                if let Some(srq) = self.srq {
                    _ = self.ep.set_srq_limit(srq, value.into());
                }
            }
            10 if self.setup.only_receives && value & 1 != 0 => {
                if self.ep.modify_qp(self.qpn, &self.setup.rts()).is_ok() {
                    self.streams.prove();
                }
            }
            _ => self.check_counters(),
        }
    }

    /// Takes the queue pair through RESET back to its initial state.
    fn reset(&mut self) {
        if self.srq.is_some() {
            // A reset removes completions that were not polled, and the model does not know how
            // many of them were of requests of the shared queue.
            self.poll();
        }
        let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
        self.ep.modify_qp(self.qpn, &reset).expect("every state leads to RESET");
        self.setup.bring_up(&mut self.ep, self.qpn);
        self.sends.reset();
        if self.srq.is_none() {
            self.recvs.reset();
        } else {
            // SR holds all receive requests that its peer has named; RC one.
            let held = if self.setup.is_sr { MAX_WR as usize } else { 1 };
            self.recvs.reset_shared(held);
        }
        self.output = Output { snd_nxt: self.setup.sq_psn, replies_left: 0 };
        self.epsn = self.setup.rq_psn;
        self.inbound = None;
        self.streams = self.setup.streams();
    }
}

/// Frames or events after which an engine without input must be idle: more than all windows and
/// responder resources together hold.
const IDLE_AFTER: usize = 500;
