//! One queue pair with its staging ring: how two ends meet, and the loop that drives it.
//!
//! The ring is `slots` places of `slot_bytes`. Chunk k lies in place k modulo `slots`, on both
//! sides, and goes from one to the other by RDMA WRITE with immediate.

use super::control::{Listening, Speaking};
use super::message::{Message, VERSION};
use super::session::{End, LOOK_EVERY, Session};
use crate::fabric::{Attachment, Error};
use crate::oob::{Hello, MemoryParams, Modes, OobError, QpParams};
use spanwire_base::{Dur, u32_from, usize_from};
use spanwire_io::affinity;
use spanwire_io::driver::{Driver, Polling};
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, App, CqId, Endpoint, Host, MemoryRegion, Mtu, QpAttr, QpCaps, QpInit,
    ValidConfig,
};
use spanwire_wire::{Psn, Qpn};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// A queue pair and the memory it moves.
pub struct Lane {
    /// The engine, which carries nothing else.
    pub endpoint: Endpoint,
    /// Where completions of both queues go.
    pub cq: CqId,
    /// The queue pair.
    pub qpn: Qpn,
    /// The staging ring.
    pub region: Region,
    /// The ring as the engine knows it.
    pub mr: MemoryRegion,
    /// Places in the ring.
    pub ring: Ring,
    psn: u32,
}

/// Where the engine runs.
pub struct Worker {
    /// The port it drives.
    pub attachment: Attachment,
    /// The parameters of its engine.
    pub config: ValidConfig,
    /// The core its thread is pinned to; any if `None`.
    pub core: Option<usize>,
}

/// The shape of a staging ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    /// Places, 1 to 1024.
    pub slots: u32,
    /// Bytes of each, header included.
    pub slot_bytes: u32,
}

/// The other end, once it has said who it is.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    path_mtu: Mtu,
    av: AddressVector,
}

/// An application that can end a copy.
pub trait Carrier: App {
    /// How it ended, once it has.
    fn end(&self) -> Option<End>;
}

impl Lane {
    /// A queue pair in INIT, on an engine of its own, with a ring the peer has `access` to.
    /// `receives` is how many receive requests it may have posted.
    ///
    /// # Errors
    /// The system gives no randomness for the keys.
    pub fn new(
        config: ValidConfig,
        ring: Ring,
        access: Access,
        receives: u32,
    ) -> Result<Self, Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|e| format!("no randomness for the keys: {e}"))?;
        let mut endpoint = Endpoint::new(config, seed);
        let pd = endpoint.alloc_pd()?;
        let region = Region::zeroed(usize_from(ring.bytes()));
        let mr = endpoint.reg_mr(pd, region.clone(), access, None)?;
        let cq = endpoint.create_cq(ring.slots + SENDS_SPARE + receives)?;
        let caps = QpCaps {
            max_send_wr: ring.slots + SENDS_SPARE,
            max_recv_wr: receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qpn = endpoint.create_qp(&QpInit::new(pd, cq, cq, caps))?;
        endpoint.modify_qp(qpn, &QpAttr::init(access))?;
        let psn = u32::try_from(endpoint.random() & u64::from(Psn::MASK))?;
        Ok(Self { endpoint, cq, qpn, region, mr, ring, psn })
    }

    /// What the peer must know of the queue pair.
    #[must_use]
    pub fn params(&self) -> QpParams {
        QpParams { qpn: self.qpn.get(), psn: self.psn }
    }

    /// What the peer must know of the ring.
    #[must_use]
    pub fn memory(&self) -> MemoryParams {
        let MemoryRegion { rkey, addr, len, .. } = self.mr;
        MemoryParams { va: addr, rkey: rkey.unwrap_or(0), len }
    }

    /// Brings the queue pair to RTS.
    ///
    /// # Errors
    /// The peer's parameters are not possible ones.
    pub fn connect(&mut self, peer: &Peer, theirs: QpParams) -> Result<(), Error> {
        let (qpn, psn) = (Qpn::new(theirs.qpn), Psn::new(theirs.psn));
        let rtr = QpAttr::rtr(qpn, psn, peer.path_mtu, peer.av);
        self.endpoint.modify_qp(self.qpn, &rtr)?;
        let rts = QpAttr {
            timeout: Some(TIMEOUT_EXPONENT),
            retry_cnt: Some(RETRY_CNT),
            ..QpAttr::rts(Psn::new(self.psn))
        };
        self.endpoint.modify_qp(self.qpn, &rts)?;
        Ok(())
    }
}

impl Ring {
    /// What we offer: enough for the rings to cover a stall of the other end's disk, little enough
    /// to stay in a cache.
    pub const DEFAULT: Self = Self { slots: 32, slot_bytes: 256 << 10 };

    /// Bytes in all.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.slots) * u64::from(self.slot_bytes)
    }

    /// Where place `slot` begins.
    #[must_use]
    pub fn offset(self, slot: u32) -> usize {
        usize_from(u64::from(slot) * u64::from(self.slot_bytes))
    }

    /// The place of chunk `n`.
    #[must_use]
    pub fn slot_of(self, n: u64) -> u32 {
        u32_from(usize_from(n % u64::from(self.slots)))
    }
}

/// The conversation before the copy, which its user can end as well.
pub struct Handshake<'a> {
    /// To hear the peer.
    pub listening: &'a mut Listening,
    /// To be heard.
    pub speaking: &'a Speaking,
    /// The copy it is for.
    pub session: &'a Session,
    /// Called a few times a second; it may end the session.
    pub watch: &'a mut dyn FnMut(&Session),
    /// How long the peer may take for each message.
    pub patience: Duration,
}

impl Handshake<'_> {
    /// Waits for the peer's next message.
    ///
    /// # Errors
    /// It said nothing or left, or the session is over.
    pub fn expect(&mut self) -> Result<Message, Error> {
        let start = Instant::now();
        while start.elapsed() < self.patience {
            if let Some(message) = self.listening.recv(LOOK_EVERY)? {
                return Ok(message);
            }
            (self.watch)(self.session);
            if let Some(end) = self.session.outcome() {
                return Err(end.to_string().into());
            }
        }
        Err(OobError::Silent(self.patience).into())
    }
}

/// Says hello and learns who the peer is and the way to it. The sender speaks first.
///
/// # Errors
/// The exchange fails, or there is no way to the peer.
pub fn meet(
    worker: &mut Worker,
    ip: IpAddr,
    handshake: &mut Handshake<'_>,
    speaks_first: bool,
) -> Result<Peer, Error> {
    let attachment = &mut worker.attachment;
    let speaking = handshake.speaking;
    let side_poll_port = attachment.port.open_side_poll(ip);
    let path_mtu = attachment.path_mtu.bytes();
    let modes = Modes::default();
    let hello = Message::Hello(Hello { version: VERSION, ip, path_mtu, side_poll_port, modes });
    if speaks_first {
        speaking.send(&hello)?;
    }
    let theirs = match handshake.expect()? {
        Message::Hello(h) => h,
        other => return Err(unexpected("a hello", &other).into()),
    };
    if theirs.version != VERSION {
        let (v, ours) = (theirs.version, VERSION);
        return Err(format!(
            "the other end speaks version {v} of copy, this is {ours}: use the same spanwire"
        )
        .into());
    }
    if theirs.ip.is_ipv4() != ip.is_ipv4() {
        return Err(format!("{ip} and {} are not of one IP version", theirs.ip).into());
    }
    let path_mtu = Mtu::from_bytes(path_mtu.min(theirs.path_mtu))
        .ok_or_else(|| format!("{} is no path MTU", theirs.path_mtu))?;
    let hop = attachment.hop(theirs.ip)?;
    let av = AddressVector {
        src_mac: hop.src_mac,
        dst_mac: hop.dst_mac,
        src_ip: ip,
        dst_ip: theirs.ip,
        udp_src_port: None,
        traffic_class: 0,
        hop_limit: hop.hop_limit,
    };
    if !speaks_first {
        speaking.send(&hello)?;
    }
    // Both programs are attached by now, so the datagrams meet them.
    if let Some(port) = theirs.side_poll_port {
        attachment.port.greet(SocketAddr::new(theirs.ip, port));
    }
    Ok(Peer { path_mtu, av })
}

/// Drives `app` until the copy is over, and ends it when the app does.
///
/// # Errors
/// The port is gone.
pub fn drive<A: Carrier>(
    worker: &mut Worker,
    endpoint: Endpoint,
    app: A,
    session: &Session,
) -> Result<Endpoint, Error> {
    let _guard = session.ends_on_panic();
    if let Some(core) = worker.core {
        // On this thread alone: the file threads must not share its core.
        if let Err(e) = affinity::pin(core) {
            session.end(End::Failed(e.to_string()));
            return Err(e.into());
        }
    }
    let attachment = &mut worker.attachment;
    let mut host = Host::new(endpoint, app);
    let mut driver = Driver::new(attachment.clock, Polling::Adaptive { spin: SPIN });
    let run = driver.run_until(&mut host, &mut *attachment.port, |host| {
        if let Some(end) = host.app().end() {
            session.end(end);
        }
        session.is_over()
    });
    let (endpoint, _) = host.into_parts();
    if let Err(e) = run {
        session.end(End::Failed(format!("the port is gone: {e}")));
        return Err(format!("the port is gone: {e}").into());
    }
    Ok(endpoint)
}

/// The peer said `got` where `wanted` was due.
#[must_use]
pub fn unexpected(wanted: &'static str, got: &Message) -> OobError {
    OobError::Garbled(format!("{got:?} where {wanted} was due"))
}

/// How often an application looks for what the file threads have done: a wake-up, no system call
/// of ours. Short against the time a chunk takes on the wire and on disk.
pub const APP_LOOKS_EVERY: Dur = Dur::from_us(100);

/// How long a receiver waits for each message of the handshake: others may be waiting.
pub const SENDER_ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How long a sender waits: the receiver makes memory, asks its neighbour table and may add up
/// what is there.
pub const RECEIVER_ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Spin about as long as a round trip takes before sleeping, so that an answer finds us awake.
const SPIN: Dur = Dur::from_us(50);

/// Send requests beside the ring's: credits under way.
pub const SENDS_SPARE: u32 = 16;

/// 67 ms, the same default as everywhere; with the retries below a dead peer is known in 1.8 s.
const TIMEOUT_EXPONENT: u8 = 14;
const RETRY_CNT: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring__places_follow_each_other_and_come_round() {
        let ring = Ring { slots: 3, slot_bytes: 100 };
        assert_eq!(ring.bytes(), 300);
        let slots: Vec<u32> = (0..5).map(|n| ring.slot_of(n)).collect();
        assert_eq!(slots, [0, 1, 2, 0, 1]);
        assert_eq!(ring.offset(2), 200);
    }

    #[test]
    fn new__the_peer_may_write_only_where_it_was_allowed() {
        let ring = Ring { slots: 2, slot_bytes: 4096 };
        let sender = Lane::new(ValidConfig::default(), ring, Access::LOCAL_WRITE, 4).unwrap();
        assert_eq!(sender.memory().rkey, 0, "no key to give");
        let access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
        let receiver = Lane::new(ValidConfig::default(), ring, access, 4).unwrap();
        assert_eq!(receiver.memory().len, 8192);
        assert_ne!(receiver.memory().rkey, 0);
    }
}
