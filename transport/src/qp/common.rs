//! The state of a queue pair that both protocols share: identity, attributes, receive requests,
//! congestion control, and the checks of every packet.

use super::flow::Flow;
use super::path::Path;
use super::path_mtu::PathMtu;
use super::receive::Receive;
use super::state::QpState;
use crate::attr::{Mtu, QpAttr, QpInit};
use crate::blocks::BlockMemory;
use crate::config::{Config, ValidConfig};
use crate::counters::Counters;
use crate::cq::{CqId, CqTable};
use crate::drop::DropReason;
use crate::event::{AsyncEvent, Events};
use crate::lending::Lending;
use crate::mr::{Access, MrTable, PdId};
use crate::srq::SrqTable;
use spanwire_base::{RxMeta, Time, TxMeta};
use spanwire_wire::{NakCode, OpClass, Packet, Qpn, Service};

/// The state that an engine uses beside its own.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) qpn: Qpn,
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) init: QpInit,
    /// All attributes in force, for queries. Attributes that every packet needs have fields of
    /// their own.
    pub(crate) attr: QpAttr,
    pub(crate) state: QpState,
    pub(crate) mtu: Mtu,
    pub(crate) max_rd_atomic: u8,
    /// Packets have an ICRC.
    pub(crate) has_icrc: bool,
    /// The peer's access rights through this queue pair.
    pub(crate) access: Access,
    pub(crate) receive: Receive,
    /// The queue pair is in SQD and has not reported `SqDrained` yet.
    pub(crate) is_draining: bool,
    /// A request of the peer has arrived.
    pub(crate) is_established: bool,
    /// When the packet being processed arrived.
    pub(crate) arrival: RxMeta,
    /// Congestion control and pacer, if any.
    pub(crate) flow: Option<Box<Flow>>,
    /// Path MTU discovery, if the port can send fragments.
    pub(crate) path_mtu: Option<Box<PathMtu>>,
}

/// The endpoint's tables, borrowed by a queue pair for one call.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mrs: MrTable,
    pub(crate) cqs: CqTable,
    pub(crate) srqs: SrqTable,
    pub(crate) events: Events,
    pub(crate) counters: Counters,
    pub(crate) block_memory: BlockMemory,
    pub(crate) lending: Lending,
    pub(crate) config: ValidConfig,
}

impl Shared {
    pub(crate) fn new(config: ValidConfig) -> Self {
        Self {
            mrs: MrTable::new(config.max_mrs),
            cqs: CqTable::new(config.max_cqs, config.worker),
            srqs: SrqTable::new(config.max_srqs, config.worker),
            events: Events::default(),
            counters: Counters::default(),
            block_memory: BlockMemory::new(config.block_bytes_peer),
            lending: Lending::default(),
            config,
        }
    }
}

/// Outcome of [`QueuePair::poll_transmit`](super::QueuePair::poll_transmit).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transmit {
    /// A packet was written.
    Sent(TxMeta),
    /// Nothing may leave now. Another event makes the queue pair ready.
    Idle,
    /// A request may leave once the endpoint's window has room.
    Blocked,
    /// A packet may leave at this time.
    Paced(Time),
}

impl Common {
    pub(crate) fn new(qpn: Qpn, init: &QpInit) -> Self {
        let caps = &init.caps;
        let receive = match init.srq {
            Some(srq) => Receive::shared(srq),
            None => Receive::own(init.pd, caps.max_recv_wr, caps.max_recv_sge),
        };
        Self {
            qpn,
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            init: *init,
            attr: QpAttr::default(),
            state: QpState::Reset,
            mtu: Mtu::B256,
            max_rd_atomic: 0,
            has_icrc: true,
            access: Access::default(),
            receive,
            is_draining: false,
            is_established: false,
            arrival: RxMeta::whole(Time::ZERO),
            flow: None,
            path_mtu: None,
        }
    }

    /// Checks that apply to every packet of a connection: service, addresses, partition key, state.
    #[inline]
    pub(crate) fn check_packet(
        &self,
        p: &Packet<'_>,
        service: Service,
        path: &Path,
    ) -> Result<(), DropReason> {
        let props = p.bth.opcode.props();
        if props.service != service && props.service != Service::Cnp {
            return Err(DropReason::WrongService);
        }
        if !path.matches(&p.ip) {
            return Err(DropReason::WrongPeer);
        }
        if p.bth.pkey & 0x7fff != DEFAULT_PKEY & 0x7fff {
            return Err(DropReason::BadPkey);
        }
        match props.class {
            OpClass::Request if !self.state.receives() => Err(DropReason::QpNotReceiving),
            OpClass::Response if !self.state.sends() => Err(DropReason::QpNotSending),
            _ => Ok(()),
        }
    }

    /// Handles the arrival of a request: the first one establishes the connection.
    #[inline]
    pub(crate) fn on_request_arrived(&mut self, events: &mut Events) {
        let was_established = std::mem::replace(&mut self.is_established, true);
        if !was_established && self.state == QpState::Rtr {
            events.push(AsyncEvent::CommEst(self.qpn));
        }
    }

    /// The asynchronous event of our own side for a fatal NAK that the peer gets.
    pub(crate) fn nak_event(&self, code: NakCode) -> AsyncEvent {
        match code {
            NakCode::InvalidRequest => AsyncEvent::QpReqErr(self.qpn),
            NakCode::RemoteAccess => AsyncEvent::QpAccessErr(self.qpn),
            _ => AsyncEvent::QpFatal(self.qpn),
        }
    }

    /// The time at which the next packet may leave, if the pacer delays it.
    #[inline]
    pub(crate) fn paced_until(&mut self, now: Time) -> Option<Time> {
        self.flow.as_deref_mut()?.paced_until(now)
    }

    /// The longest window in packets, whatever congestion control allows.
    #[inline]
    pub(crate) fn own_window_pkts(&self, config: &Config) -> u32 {
        let receive_pkts = self.flow.as_ref().map_or(u32::MAX, |flow| flow.receive_pkts());
        config.qp_window_pkts.min(receive_pkts)
    }

    /// A packet is sent now, as [`PathMtu::on_sent`]: sets whether it may be fragmented.
    #[inline]
    pub(crate) fn on_path_sent(
        &mut self,
        now: Time,
        (number, len, is_new): (u64, u32, bool),
        meta: &mut TxMeta,
    ) {
        if let Some(path_mtu) = self.path_mtu.as_deref_mut() {
            meta.may_fragment = path_mtu.on_sent(now, number, len, is_new).into();
        }
    }

    /// All packets below `una` are acknowledged, as [`PathMtu::on_acked`].
    #[inline]
    pub(crate) fn on_path_acked(
        &mut self,
        now: Time,
        una: u64,
        received: Option<u32>,
        counters: &mut Counters,
    ) {
        if let Some(path_mtu) = self.path_mtu.as_deref_mut() {
            path_mtu.on_acked(now, una, received, counters);
        }
    }

    /// Payload bytes of a full packet: the segment size in SR, the path MTU in RC.
    pub(crate) fn full_bytes(&self) -> u32 {
        self.attr.sr().and_then(|sr| sr.segment_bytes).unwrap_or(self.mtu.bytes())
    }
}

/// The default partition, full member: what rxe sends.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;
