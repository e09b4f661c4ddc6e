//! Queue pairs with their buffers: a lane for each connection.

use crate::sample::Error;
use crate::service::exchange::Application;
use crate::service::task::{End, Task};
use spanwire_base::{u32_from, usize_from};
use spanwire_host::queue_pair::{self, QpParams};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, CqId, Endpoint, MemoryRegion, QpCaps, QpInit, RecvRequest, Sge, Wc, WcOpcode, WcStatus,
    WorkRequest, WrOp,
};
use spanwire_wire::Qpn;
use std::collections::VecDeque;

/// All queue pairs of an end, with one completion queue and one memory region.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    cq: CqId,
    region: Region,
    mr: MemoryRegion,
    /// Buffers of a lane in each direction.
    slots: usize,
    received_bytes: usize,
    sent_bytes: usize,
    in_flight: usize,
    message: Vec<u8>,
    out: Vec<u8>,
}

/// The result of a step of the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Done,
    /// Requests have completed.
    Active,
    Idle,
}

struct Lane {
    params: QpParams,
    /// Buffers whose SEND has completed. The last one is used next, since it is in the cache.
    free: Vec<usize>,
    /// Messages that wait for a buffer.
    waiting: VecDeque<Vec<u8>>,
}

impl Lanes {
    /// Queue pairs in INIT for the connections of `end`.
    pub(super) fn new(
        endpoint: &mut Endpoint,
        end: &End,
        (received_bytes, sent_bytes): (usize, usize),
    ) -> Result<Self, Error> {
        let Task::Service { load, .. } = end.task else { return Err("no requests".into()) };
        // The ACK of a request may arrive after its reply.
        let slots = (2 * load.outstanding).max(SLOTS_MIN);
        let lanes = load.connections;
        let region = Region::try_zeroed(lanes * slots * (received_bytes + sent_bytes))?;
        let pd = endpoint.alloc_pd()?;
        let mr = endpoint.reg_mr(pd, region.clone(), Access::LOCAL_WRITE, Some(0))?;
        let requests = u32_from(slots);
        // One more for the message that ends the connection.
        let caps = QpCaps { max_send_wr: requests + 1, max_recv_wr: requests, ..QpCaps::default() };
        let cq = endpoint.create_cq(u32_from(lanes) * (2 * requests + 1))?;
        let init = QpInit::new(pd, cq, cq, caps);
        let lane = |_| -> Result<Lane, Error> {
            let params = queue_pair::create(endpoint, &init, Access::LOCAL_WRITE)?;
            Ok(Lane { params, free: (0..slots).collect(), waiting: VecDeque::new() })
        };
        let lanes = (0..lanes).map(lane).collect::<Result<_, _>>()?;
        let (message, out) = (vec![0; received_bytes], vec![0; sent_bytes]);
        let in_flight = 0;
        Ok(Self {
            lanes,
            cq,
            region,
            mr,
            slots,
            received_bytes,
            sent_bytes,
            in_flight,
            message,
            out,
        })
    }

    /// The numbers for the other end.
    pub(super) fn params(&self) -> Vec<QpParams> {
        self.lanes.iter().map(|lane| lane.params).collect()
    }

    /// SENDs that have not completed.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Posts every receive request.
    pub(super) fn post_receives(&self, endpoint: &mut Endpoint) -> Result<(), Error> {
        for lane in 0..self.lanes.len() {
            (0..self.slots).try_for_each(|slot| self.post_receive(endpoint, lane, slot))?;
        }
        Ok(())
    }

    /// Sends the first messages of `application`.
    pub(super) fn start(
        &mut self,
        endpoint: &mut Endpoint,
        application: &mut impl Application,
    ) -> Result<(), Error> {
        for lane in 0..self.lanes.len() {
            while application.first(lane, &mut self.out) {
                self.send_out(endpoint, lane)?;
            }
        }
        Ok(())
    }

    /// Ends every connection: an empty message.
    pub(super) fn finish(&mut self, endpoint: &mut Endpoint) -> Result<(), Error> {
        for lane in 0..self.lanes.len() {
            let end = WorkRequest::new(wr_id(lane, END), WrOp::Send, &[]);
            endpoint.post_send(self.qpn(lane), &end)?;
            self.in_flight += 1;
        }
        Ok(())
    }

    /// Handles all completions.
    pub(super) fn poll(
        &mut self,
        endpoint: &mut Endpoint,
        application: &mut impl Application,
    ) -> Result<Progress, Error> {
        let mut progress = Progress::Idle;
        while let Some(wc) = endpoint.poll_cq(self.cq)? {
            progress = Progress::Active;
            if wc.status != WcStatus::Success {
                return Err(format!("{:?}: {}", wc.opcode, wc.status.name()).into());
            }
            let (lane, slot) = (usize_from(wc.wr_id >> 32), usize_from(wc.wr_id & SLOT_MASK));
            match wc.opcode {
                WcOpcode::Recv => self.on_received(endpoint, (lane, slot), &wc, application)?,
                _ => self.on_sent(endpoint, lane, slot)?,
            }
        }
        Ok(progress)
    }

    fn on_received(
        &mut self,
        endpoint: &mut Endpoint,
        (lane, slot): (usize, usize),
        wc: &Wc,
        application: &mut impl Application,
    ) -> Result<(), Error> {
        let bytes = usize_from(wc.byte_len.into());
        let at = usize_from(self.receive_at(lane, slot));
        self.region.copy_out(at, &mut self.message[..bytes])?;
        self.post_receive(endpoint, lane, slot)?;
        if bytes == 0 {
            application.on_end(lane)
        } else if application.on_message(lane, &self.message[..bytes], &mut self.out)? {
            self.send_out(endpoint, lane)
        } else {
            Ok(())
        }
    }

    fn on_sent(&mut self, endpoint: &mut Endpoint, lane: usize, slot: usize) -> Result<(), Error> {
        self.in_flight -= 1;
        if slot == END {
            return Ok(());
        }
        self.lanes[lane].free.push(slot);
        match self.lanes[lane].waiting.pop_front() {
            Some(message) => {
                self.out.copy_from_slice(&message);
                self.send_out(endpoint, lane)
            }
            None => Ok(()),
        }
    }

    /// Sends the message in `out`, now or as soon as there is a buffer.
    fn send_out(&mut self, endpoint: &mut Endpoint, lane: usize) -> Result<(), Error> {
        let Some(slot) = self.lanes[lane].free.pop() else {
            self.lanes[lane].waiting.push_back(self.out.clone());
            return Ok(());
        };
        let at = self.send_at(lane, slot);
        self.region.copy_in(usize_from(at), &self.out)?;
        let sge =
            Sge { addr: self.mr.addr + at, len: u32_from(self.sent_bytes), lkey: self.mr.lkey };
        let send = WorkRequest::new(wr_id(lane, slot), WrOp::Send, std::slice::from_ref(&sge));
        endpoint.post_send(self.qpn(lane), &send)?;
        self.in_flight += 1;
        Ok(())
    }

    fn post_receive(&self, endpoint: &mut Endpoint, lane: usize, slot: usize) -> Result<(), Error> {
        let addr = self.mr.addr + self.receive_at(lane, slot);
        let sge = Sge { addr, len: u32_from(self.received_bytes), lkey: self.mr.lkey };
        let receive = RecvRequest { wr_id: wr_id(lane, slot), sges: std::slice::from_ref(&sge) };
        Ok(endpoint.post_recv(self.qpn(lane), &receive)?)
    }

    fn qpn(&self, lane: usize) -> Qpn {
        Qpn::new(self.lanes[lane].params.qpn)
    }

    /// The offset of a receive buffer.
    fn receive_at(&self, lane: usize, slot: usize) -> u64 {
        ((lane * self.slots + slot) * self.received_bytes) as u64
    }

    /// The offset of a send buffer. They are behind all receive buffers.
    fn send_at(&self, lane: usize, slot: usize) -> u64 {
        let behind = self.lanes.len() * self.slots * self.received_bytes;
        (behind + (lane * self.slots + slot) * self.sent_bytes) as u64
    }
}

fn wr_id(lane: usize, slot: usize) -> u64 {
    (lane as u64) << 32 | slot as u64
}

const SLOT_MASK: u64 = 0xffff_ffff;
/// The slot of a message without a buffer.
const END: usize = 0xffff_ffff;
const SLOTS_MIN: usize = 4;
