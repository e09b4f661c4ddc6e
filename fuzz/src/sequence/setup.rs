//! The configuration of the queue pair under test.

use super::layout::SETUP_LEN;
use super::memory::{Memory, Plot};
use spanwire_base::{Dur, Rate, u32_from};
use spanwire_cc::{Algorithm, Controller as _, Path};
use spanwire_erasure::Scheme;
use spanwire_loadbalance::Choice;
use spanwire_transport::{
    Access, AddressVector, Balance, CodingWhen, Config, CongestionControl, CqId, Endpoint,
    ErasureCoding, Mtu, PdId, Preset, QpAttr, QpCaps, QpInit, SrOptions, SrqId, SrqInit,
    ValidConfig, Wire,
};
use spanwire_wire::{INT_CREDIT_HEADER_LEN, INT_HEADER_LEN, IntFormat, MacAddr, Psn, Qpn};
use std::net::IpAddr;

/// The configuration selected by the setup's bytes.
pub(super) struct Setup {
    pub(super) srq: bool,
    /// It runs SR.
    pub(super) is_sr: bool,
    /// It does not reach RTS at first; in SR only.
    pub(super) only_receives: bool,
    /// Completion queues that overrun soon.
    pub(super) small_cqs: bool,
    /// The format of telemetry that it requests.
    pub(super) int_format: IntFormat,
    pub(super) access: Access,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) rq_psn: Psn,
    pub(super) sq_psn: Psn,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) congestion: Option<CongestionControl>,
    pub(super) weight: Option<u8>,
    /// In SR only.
    pub(super) erasure: Option<ErasureCoding>,
    pub(super) balance: Option<Balance>,
    /// It requests feedback of switches; in SR only.
    pub(super) near: bool,
    /// The peer knows MLCC; only with `near`.
    pub(super) credit: bool,
}

/// The created resources.
pub(super) struct Made {
    pub(super) ep: Endpoint,
    pub(super) qpn: Qpn,
    pub(super) send_cq: CqId,
    pub(super) recv_cq: CqId,
    pub(super) srq: Option<SrqId>,
    pub(super) memory: Memory,
}

impl Setup {
    pub(super) fn of(bytes: [u8; SETUP_LEN]) -> Self {
        let [flags, reads, psns, retries, access, timeout] = bytes;
        let psn = |i: u8| Psn::new(PSNS[usize::from(i) % PSNS.len()]);
        let is_sr = flags & 0x80 != 0;
        let (codes, balances) = (is_sr && retries & 8 != 0, is_sr && retries & 0x80 != 0);
        Self {
            srq: flags & 1 != 0,
            is_sr,
            only_receives: flags & 0xc0 == 0xc0,
            small_cqs: flags & 0x0e == 0x0e,
            int_format: if flags & 2 == 0 { IntFormat::Full } else { IntFormat::Compact },
            access: if access < RESTRICTED { Access::ALL } else { restricted(access) },
            max_dest_rd_atomic: (reads & 0xf) % 5,
            max_rd_atomic: (reads >> 4) % 5,
            rq_psn: psn(psns),
            sq_psn: psn(psns >> 4),
            timeout: timeout % 16,
            retry_cnt: retries & 7,
            rnr_retry: (retries >> 4) & 7,
            congestion: congestion(access, flags & 0x10 != 0),
            weight: (flags & 0x20 != 0).then_some(access.max(1)),
            erasure: codes.then(|| erasure(timeout >> 4)),
            balance: balances.then(|| balance(psns >> 2 & 3 | psns >> 4 & 0xc)),
            near: is_sr && reads & 8 != 0,
            credit: is_sr && reads & 0x88 == 0x88,
        }
    }

    pub(super) fn make(&self) -> Made {
        let mut ep = Endpoint::new(config(self.int_format), [7; 32]);
        let pd = ep.alloc_pd().expect("within the limits");
        let foreign_pd = ep.alloc_pd().expect("within the limits");
        let cqe = if self.small_cqs { 3 } else { 4 * MAX_WR };
        let send_cq = ep.create_cq(cqe).expect("within the limits");
        let recv_cq = ep.create_cq(cqe).expect("within the limits");
        let memory = Memory::new(&mut ep, pd, foreign_pd);
        let srq = self.srq.then(|| {
            let init = SrqInit { pd, max_wr: MAX_WR, max_sge: 2 };
            ep.create_srq(&init).expect("within the limits")
        });
        let qpn = self.create(&mut ep, pd, [send_cq, recv_cq], srq);
        Made { ep, qpn, send_cq, recv_cq, srq, memory }
    }

    fn create(&self, ep: &mut Endpoint, pd: PdId, cqs: [CqId; 2], srq: Option<SrqId>) -> Qpn {
        let caps = QpCaps {
            max_send_wr: MAX_WR,
            max_recv_wr: MAX_WR,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 64,
        };
        let init = QpInit { srq, ..QpInit::new(pd, cqs[0], cqs[1], caps) };
        let qpn = ep.create_qp(&init).expect("within the limits");
        self.bring_up(ep, qpn);
        qpn
    }

    /// Takes a queue pair from RESET to RTS, or to RTR.
    pub(super) fn bring_up(&self, ep: &mut Endpoint, qpn: Qpn) {
        let av = AddressVector::new(
            MacAddr::new([2, 0, 0, 0, 0, 1]),
            MacAddr::new([2, 0, 0, 0, 0, 2]),
            OUR_IP,
            PEER_IP,
        );
        let av = AddressVector { takes_fragments: true, ..av };
        let rtr = QpAttr {
            max_dest_rd_atomic: Some(self.max_dest_rd_atomic),
            wire: self.is_sr.then(|| Wire::Sr(self.options())),
            ..QpAttr::rtr(PEER_QPN, self.rq_psn, MTU, av)
        };
        for attr in [QpAttr::init(self.access), rtr] {
            ep.modify_qp(qpn, &attr).expect("INIT and RTR are reachable");
        }
        if !self.only_receives {
            ep.modify_qp(qpn, &self.rts()).expect("RTS is reachable");
        }
    }

    /// Payload of a full SR packet: requested telemetry needs room, and so do a position in a block
    /// and our QPN.
    pub(super) fn segment_bytes(&self) -> u32 {
        let header = match self.int_version() {
            None => None,
            Some(1) => Some(INT_HEADER_LEN),
            Some(_) => Some(INT_CREDIT_HEADER_LEN),
        };
        let records = usize::from(INT_HOPS) * self.int_format.record_len();
        let room = header.map_or(0, |header| header + records);
        let place = match self.near {
            _ if self.erasure.is_some() => 8,
            true => 4,
            false => 0,
        };
        SEGMENT_BYTES - u32_from(room) - place
    }

    /// The version of the telemetry stack that data request, if they do.
    pub(super) fn int_version(&self) -> Option<u8> {
        let path = Path { mtu_bytes: SEGMENT_BYTES, line_rate: LINE_RATE, base_rtt: None };
        let cc = self.congestion.and_then(|c| c.algorithm)?.start(&path);
        let version = if cc.wants_credit() && self.credit { 2 } else { 1 };
        (self.is_sr && cc.wants_int()).then_some(version)
    }

    /// The attributes of the transition from RTR to RTS.
    pub(super) fn rts(&self) -> QpAttr {
        QpAttr {
            max_rd_atomic: Some(self.max_rd_atomic),
            timeout: Some(self.timeout),
            retry_cnt: Some(self.retry_cnt),
            rnr_retry: Some(self.rnr_retry),
            congestion: self.congestion,
            weight: self.weight,
            ..QpAttr::rts(self.sq_psn)
        }
    }

    fn options(&self) -> SrOptions {
        let &Self { erasure, balance, near, credit, .. } = self;
        let segment_bytes = Some(SEGMENT_BYTES);
        SrOptions { segment_bytes, erasure, balance, near, credit, ..SrOptions::default() }
    }
}

fn restricted(bits: u8) -> Access {
    let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    let granted = rights.into_iter().enumerate().filter(|(i, _)| bits >> i & 1 != 0);
    granted.fold(Access::LOCAL_WRITE, |all, (_, right)| all.and(right))
}

/// None, or any algorithm; `knows_rtt` configures a round trip. A fixed window has one or two
/// packets at a rate far below the posted amount.
fn congestion(which: u8, knows_rtt: bool) -> Option<CongestionControl> {
    if !(1..RESTRICTED).contains(&which) {
        return Some(CongestionControl::NONE);
    }
    let known = Algorithm::known();
    let mut algorithm = Algorithm::named(known[usize::from(which) % known.len()]).ok()?;
    match &mut algorithm {
        Algorithm::Fixed(params) => {
            (params.window_pkts, params.rate_mbps) =
                if which < 0x60 { (1.0, 0.0) } else { (2.5, 3.0) };
        }
        // From their first packet, they follow feedback of switches.
        Algorithm::Swift(params) if which < 0x60 => params.near_base_us = 6.5,
        Algorithm::Timely(params) if which < 0x60 => params.near_base_us = 6.5,
        _ => {}
    }
    let algorithm = Some(algorithm);
    let base_rtt = knows_rtt.then_some(Dur::from_us(10));
    // Every other one is calibrated to the path.
    let preset = if which & 1 == 0 { Preset::Paper } else { Preset::Calibrated };
    Some(CongestionControl { algorithm, base_rtt, preset, ..CongestionControl::NONE })
}

/// Codes of all kinds, and their activation: always, beyond a data centre, or with any known round
/// trip; some adapt to the loss rate.
fn erasure(which: u8) -> ErasureCoding {
    let (data, parity) = [(8, 2), (2, 1), (4, 2), (1, 1), (3, 2), (16, 3), (62, 2), (32, 32)]
        [usize::from(which & 7)];
    let code = ErasureCoding::new(data, parity);
    match which {
        0..8 => code,
        8 => code.auto(),
        9 | 10 => code.adaptive(1, 2),
        11 => code.adaptive(2, 30),
        12 => ErasureCoding { scheme: Scheme::CAUCHY, ..code },
        13 => ErasureCoding { scheme: Scheme::CAUCHY, ..code.adaptive(1, 9) },
        _ => ErasureCoding { when: CodingWhen::BaseRtt(Dur::from_us(20)), ..code },
    }
}

fn balance(which: u8) -> Balance {
    let known = Choice::known();
    let choice = Choice::named(known[usize::from(which) % known.len()]).expect("the name is known");
    Balance { choice, seed: which.into() }
}

/// Limits small enough that a scenario reaches them all.
fn config(int_format: IntFormat) -> ValidConfig {
    let config = Config {
        max_qps: 2,
        qpn_prefix: None,
        worker: 0,
        workers: 1,
        max_cqs: 2,
        max_pds: 2,
        max_srqs: 1,
        max_mrs: u32::try_from(Plot::ALL.len()).expect("a few"),
        max_wr: MAX_WR,
        max_cqe: 4 * MAX_WR,
        max_msg_bytes: 1 << 20,
        qp_window_pkts: WINDOW_PKTS,
        endpoint_window_pkts: WINDOW_PKTS + 4,
        // Eight packets over the shortest round trip.
        receive_room_bytes: Some(8 * 1500),
        fragments: true,
        batches: true,
        ack_req_interval_pkts: 4,
        read_chunk_pkts: 4,
        reorder_pkts: REORDER_PKTS,
        block_bytes_qp: 4096,
        block_bytes_peer: 6000,
        line_rate: LINE_RATE,
        // In some setups: paced bursts of the seeds would find no block that lacks packets.
        port_rate: (int_format != IntFormat::Full).then_some(LINE_RATE),
        turn_bytes: 1024,
        catch_up: Dur::from_us(4),
        pacing_quantum: Dur::from_us(100),
        int_hops: INT_HOPS,
        int_format,
        cnp_interval: Dur::from_us(50),
        cnp_dscp: Some(48),
        elide_payload: false,
        fast_paths: true,
    };
    config.validate().expect("values are in range")
}

/// From here on the byte of the setup selects the rights of a peer; below, the congestion control.
const RESTRICTED: u8 = 0xc0;
/// First PSNs: ordinary, before the wrap of 24 bits, before that of a signed difference, at zero.
const PSNS: [u32; 4] = [1000, 0xff_fffd, 0x7f_fffe, 0];

pub(super) const MTU: Mtu = Mtu::B256;
/// The depth of each queue.
pub(super) const MAX_WR: u32 = 16;
/// Payload of a full packet of SR.
const SEGMENT_BYTES: u32 = 200;
pub(super) const LINE_RATE: Rate = Rate::from_gbps(10);
const INT_HOPS: u8 = 2;
/// The configurable minimum.
pub(super) const REORDER_PKTS: u32 = 256;
pub(super) const WINDOW_PKTS: u32 = 12;
pub(super) const PEER_QPN: Qpn = Qpn::new(0x77);
pub(super) const OUR_IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
pub(super) const PEER_IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
