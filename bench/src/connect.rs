//! Queue pairs of two ends, connected over a side connection as `spanwire perf` connects them.

use crate::sample::Error;
use serde::{Deserialize, Serialize};
use spanwire_host::fabric::Attachment;
use spanwire_host::modes::{Modes, settle_between};
use spanwire_host::queue_pair::{self, Connect, QpParams, RD_ATOMIC, Route, Sending};
use spanwire_transport::{Agreed, Endpoint, Mtu, Offer};
use spanwire_wire::Ecn;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};

/// One end of a connection.
pub(crate) struct Near {
    pub(crate) ip: IpAddr,
    pub(crate) is_client: bool,
    pub(crate) offer: Offer,
    /// Queue pairs in INIT, as many as the other end has.
    pub(crate) qps: Vec<QpParams>,
    /// Address and key of memory that the other end may access.
    pub(crate) memory: Option<(u64, u32)>,
    pub(crate) sending: Sending,
}

/// The other end, and the terms of the connection.
pub(crate) struct Far {
    pub(crate) memory: Option<(u64, u32)>,
    pub(crate) path_mtu: Mtu,
    pub(crate) agreed: Agreed,
}

/// The message of an end on the side connection.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    ip: IpAddr,
    path_mtu: u32,
    side_poll_port: Option<u16>,
    modes: Modes,
    qps: Vec<QpParams>,
    memory: Option<(u64, u32)>,
}

impl Near {
    /// Connects every queue pair; those of both ends are connected afterwards.
    ///
    /// # Errors
    /// The other end has gone, or the ends do not agree.
    pub(crate) fn connect<S: Read + Write>(
        self,
        endpoint: &mut Endpoint,
        attachment: &mut Attachment,
        side: &mut BufReader<S>,
    ) -> Result<Far, Error> {
        let ours = Hello {
            ip: self.ip,
            path_mtu: attachment.path_mtu.bytes(),
            side_poll_port: attachment.port.open_side_poll(self.ip),
            modes: self.offer.into(),
            qps: self.qps,
            memory: self.memory,
        };
        say(side, &serde_json::to_string(&ours)?)?;
        let theirs: Hello = serde_json::from_str(&hear(side)?)?;
        let mtu = ours.path_mtu.min(theirs.path_mtu);
        let path_mtu = Mtu::from_bytes(mtu).ok_or_else(|| format!("{mtu} is no path MTU"))?;
        let agreed = settle_between(self.is_client, &self.offer, &Offer::from(&theirs.modes))?;
        let av = attachment.hop(theirs.ip)?.address_vector(ours.ip, theirs.ip, Ecn::Ect0.bits());
        let how = Connect {
            route: Route { av, path_mtu, agreed },
            timeout: ACK_TIMEOUT,
            retry_cnt: 7,
            max_rd_atomic: RD_ATOMIC,
            sending: self.sending,
        };
        if theirs.qps.len() != ours.qps.len() {
            let (theirs, ours) = (theirs.qps.len(), ours.qps.len());
            return Err(format!("the other end has {theirs} queue pairs, not {ours}").into());
        }
        for (ours, theirs) in ours.qps.iter().zip(&theirs.qps) {
            queue_pair::connect(endpoint, *ours, *theirs, &how)?;
        }
        if let Some(port) = theirs.side_poll_port {
            attachment.port.greet(SocketAddr::new(theirs.ip, port));
        }
        say(side, "ready")?;
        hear(side)?;
        Ok(Far { memory: theirs.memory, path_mtu, agreed })
    }
}

fn say(side: &mut BufReader<impl Write>, line: &str) -> Result<(), Error> {
    Ok(side.get_mut().write_all(format!("{line}\n").as_bytes())?)
}

fn hear(side: &mut BufReader<impl Read>) -> Result<String, Error> {
    let mut line = String::new();
    side.read_line(&mut line).map_err(|e| format!("no message of the other end: {e}"))?;
    if line.is_empty() { Err("the other end has gone".into()) } else { Ok(line) }
}

/// The local ACK timeout of `stream`, 67 ms: a thread may lose its core for a while without a
/// timeout.
pub(crate) const ACK_TIMEOUT: u8 = 14;
