//! Probes of source ports. An adapter hashes the source port of a packet to one of its receive
//! queues (RSS), and only the adapter knows the hash. So a sender tries some ports with small
//! packets to a queue pair number that no queue pair has. The receiver answers which have arrived
//! at the queue of the worker that they name.

use crate::fabric::Link;
use spanwire_base::TxMeta;
use spanwire_io::clock::Clock;
use spanwire_io::port::{Port, reserve};
use spanwire_io::steered::Tally;
use spanwire_transport::{AddressVector, Endpoint};
use spanwire_wire::{BthRepr, ExtHeaders, Opcode, Packet, Psn, Qpn, peek_dest_qp, seal};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The probes of a peer that arrive at the queue of a worker.
#[derive(Debug)]
pub struct Tallied {
    qpn: Qpn,
    tally: Arc<Tally>,
}

impl Tallied {
    /// Counts probes at `port` from now on, which are to be sent to a number that no queue pair of
    /// `endpoint` has. `None` if the port has a single worker, or counts for others.
    pub fn start(endpoint: &mut Endpoint, port: &mut Box<dyn Link + Send>) -> Option<Self> {
        let qpn = endpoint.unused_qpn();
        let tally = Tally::new(move |frame| {
            // Only those are parsed, with their ICRC.
            let packet = (peek_dest_qp(frame)? == qpn).then(|| Packet::parse(frame).ok())??;
            Some(packet.bth.psn.get())
        });
        port.count(&tally).then_some(Self { qpn, tally })
    }

    /// The number that the probes are to be sent to.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.qpn.get()
    }

    /// All have arrived.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.tally.seen() == u64::MAX
    }

    /// The numbers of those that have arrived.
    #[must_use]
    pub fn arrived(&self) -> Vec<u32> {
        let seen = self.tally.seen();
        (0..PROBES).filter(|index| seen >> index & 1 == 1).collect()
    }
}

/// Sends probes to number `qpn` at the address `av`, within [`PROBE_TIME`]. Returns the source port
/// of the first one, for [`chosen`].
///
/// # Errors
/// The port has failed.
pub fn send(
    endpoint: &mut Endpoint,
    port: &mut Box<dyn Link + Send>,
    clock: &Clock,
    (av, qpn): (&AddressVector, Qpn),
) -> io::Result<u16> {
    let random = endpoint.random() % u64::from(ENTROPIES);
    let first = ENTROPY_BASE | u16::try_from(random).expect("14 bits");
    for index in 0..PROBES {
        // Without a buffer the probe is a lost one.
        let Some(mut slot) = reserve(port) else { break };
        if let Some(len) = emit(av, qpn, (first, index), slot.bytes()) {
            slot.commit(TxMeta::whole(len));
        }
    }
    // AF_XDP may take a part at a time.
    let until = Instant::now() + PROBE_TIME;
    loop {
        port.flush(clock.now())?;
        if port.tx_pending() == 0 || Instant::now() >= until {
            return Ok(first);
        }
    }
}

/// The source port of the first of the probes that `arrived`, of those that [`send`] sent from port
/// `first` on; `None` if none has.
///
/// # Errors
/// The peer claims the arrival of others; the text says of which.
pub fn chosen(first: u16, arrived: &[u32]) -> Result<Option<u16>, String> {
    let wrong = match arrived.iter().find(|index| **index >= PROBES) {
        Some(index) => format!("probe {index}"),
        None if arrived.len() > PROBES as usize => format!("{} probes", arrived.len()),
        None => return Ok(arrived.first().map(|index| src_port(first, *index))),
    };
    Err(format!("it claims that {wrong} arrived; it was sent 0 to 63"))
}

/// Checks the number for probes of a hello.
///
/// # Errors
/// It has more than 24 bits.
pub fn check_qpn(qpn: Option<u32>) -> Result<(), String> {
    match qpn {
        Some(qpn) if qpn > Qpn::MASK => {
            let max = Qpn::MASK;
            Err(format!("its number for probes is {qpn}, above {max}"))
        }
        _ => Ok(()),
    }
}

/// Warns that packets of worker `worker` to `ip` are handed over there.
pub fn warn_of_no_port(worker: u32, ip: IpAddr) {
    tracing::warn!(
        "worker {worker}: none of {PROBES} source ports leads to its peer's at {ip}: other workers \
         there hand packets over (steer_handed), which costs a copy and a wake-up; let the adapter \
         there hash UDP ports (ethtool -N DEV rx-flow-hash udp4 sdfn) to as many queues as workers \
         (ethtool -L)"
    );
}

/// The source port of probe `index`, of those that begin at `first`. Both bytes differ among them,
/// and so do they modulo any number of queues.
fn src_port(first: u16, index: u32) -> u16 {
    let step = u16::try_from(index * 0x101 % ENTROPIES).expect("14 bits");
    ENTROPY_BASE | (first.wrapping_add(step))
}

/// Writes probe `index` of those that begin at source port `first`, a SEND, and returns its length.
fn emit(
    av: &AddressVector,
    to: Qpn,
    (first, index): (u16, u32),
    frame: &mut [u8],
) -> Option<usize> {
    let bth = BthRepr::new(Opcode::RcSendOnly, to, Psn::new(index));
    let template = av.template(src_port(first, index))?;
    let payload = template.emit(&bth, &ExtHeaders::NONE, PAYLOAD_BYTES, frame).ok()?;
    let len = payload.end + ICRC_BYTES;
    frame.get_mut(payload)?.fill(0);
    seal(frame.get_mut(..len)?, len);
    Some(len)
}

/// The probes of each end.
pub const PROBES: u32 = 64;

/// How long probes may be under way once the peer has sent them, and a port may take to send them.
pub const PROBE_TIME: Duration = Duration::from_millis(5);

/// How often an end that counts probes looks for them.
pub const COUNT_INTERVAL: Duration = Duration::from_millis(1);

/// The bursts of the last look at the port. A probe is behind other frames by no more than a ring.
pub const BURSTS_MAX: usize = 16;

/// The source ports that stand for a path, 0xc000 to 0xffff.
const ENTROPY_BASE: u16 = 0xc000;
const ENTROPIES: u32 = 0x4000;
/// A frame without payload would be shorter than Ethernet allows.
const PAYLOAD_BYTES: usize = 8;
const ICRC_BYTES: usize = 4;
