//! Queue pairs, and the exchange of their numbers over a side connection.

use super::lanes::Lanes;
use crate::sample::Error;
use crate::service::exchange::Application;
use crate::service::task::{End, SILENCE};
use crate::service::tcp;
use serde::{Deserialize, Serialize};
use spanwire_host::fabric::{Attachment, Wrap};
use spanwire_host::modes::{ModeChoice, Modes, settle_between};
use spanwire_host::queue_pair::{self, Connect, QpParams, RD_ATOMIC, Route, Sending};
use spanwire_host::{seed, window};
use spanwire_io::xdp::XdpPreference;
use spanwire_stream::NetworkOptions;
use spanwire_transport::{Endpoint, Mtu, Offer, ValidConfig};
use spanwire_wire::Ecn;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

/// A connected end.
pub(super) struct Setup {
    pub(super) endpoint: Endpoint,
    pub(super) attachment: Attachment,
    pub(super) lanes: Lanes,
    /// The side connection, which ends with the other end.
    pub(super) side: TcpStream,
}

/// The message of an end on the side connection.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    path_mtu: u32,
    side_poll_port: Option<u16>,
    modes: Modes,
    qps: Vec<QpParams>,
}

impl Setup {
    /// Opens the port, and connects a queue pair for each connection of `end`.
    pub(super) fn new(end: &End, application: &impl Application) -> Result<Self, Error> {
        let engine = NetworkOptions::default().engine;
        let packets = Some(engine.qp_window_pkts);
        let config = window::port(&end.dev, 0, XdpPreference::Auto, packets);
        let mut attachment = Attachment::xdp_with(&config, &Wrap::default())?;
        let mut endpoint = seed::endpoint(engine.clone())?;
        let lanes = Lanes::new(&mut endpoint, end, application.message_bytes())?;
        let side = side_connection(end)?;
        let mut side = BufReader::new(side);
        let ours = Hello {
            path_mtu: attachment.path_mtu.bytes(),
            side_poll_port: attachment.port.open_side_poll(end.ip),
            modes: offer(&attachment, &engine, end).into(),
            qps: lanes.params(),
        };
        say(side.get_mut(), &serde_json::to_string(&ours)?)?;
        let theirs: Hello = serde_json::from_str(&hear(&mut side)?)?;
        let route = route(&attachment, &engine, end, &side, (&ours, &theirs))?;
        let how = Connect {
            route,
            timeout: ACK_TIMEOUT,
            retry_cnt: 7,
            max_rd_atomic: RD_ATOMIC,
            sending: Sending::default(),
        };
        if theirs.qps.len() != ours.qps.len() {
            let (theirs, ours) = (theirs.qps.len(), ours.qps.len());
            return Err(format!("the other end has {theirs} queue pairs, not {ours}").into());
        }
        lanes.post_receives(&mut endpoint)?;
        for (ours, theirs) in ours.qps.iter().zip(&theirs.qps) {
            queue_pair::connect(&mut endpoint, *ours, *theirs, &how)?;
        }
        if let Some(port) = theirs.side_poll_port {
            attachment.port.greet(SocketAddr::new(side.get_ref().peer_addr()?.ip(), port));
        }
        say(side.get_mut(), "ready")?;
        hear(&mut side)?;
        Ok(Self { endpoint, attachment, lanes, side: side.into_inner() })
    }
}

/// One TCP connection, whatever the number of queue pairs.
fn side_connection(end: &End) -> Result<TcpStream, Error> {
    let side = match end.server {
        Some(server) => TcpStream::connect_timeout(&server, SILENCE)?,
        None => tcp::listen(end)?.accept().map_err(tcp::silent)?.0,
    };
    side.set_read_timeout(Some(SILENCE))?;
    Ok(side)
}

fn offer(attachment: &Attachment, engine: &ValidConfig, end: &End) -> Offer {
    ModeChoice::Auto.offer(engine, attachment.ip_bytes, end.ip, u32::MAX)
}

fn route(
    attachment: &Attachment,
    engine: &ValidConfig,
    end: &End,
    side: &BufReader<TcpStream>,
    (ours, theirs): (&Hello, &Hello),
) -> Result<Route, Error> {
    let peer = side.get_ref().peer_addr()?.ip();
    let path_mtu = ours.path_mtu.min(theirs.path_mtu);
    let path_mtu = Mtu::from_bytes(path_mtu).ok_or_else(|| format!("{path_mtu} is no path MTU"))?;
    let is_client = end.server.is_some();
    let offers = (offer(attachment, engine, end), Offer::from(&theirs.modes));
    Ok(Route {
        av: attachment.hop(peer)?.address_vector(end.ip, peer, Ecn::Ect0.bits()),
        path_mtu,
        agreed: settle_between(is_client, &offers.0, &offers.1)?,
    })
}

fn say(side: &mut TcpStream, line: &str) -> Result<(), Error> {
    Ok(side.write_all(format!("{line}\n").as_bytes())?)
}

fn hear(side: &mut BufReader<TcpStream>) -> Result<String, Error> {
    let mut line = String::new();
    side.read_line(&mut line).map_err(tcp::silent)?;
    if line.is_empty() { Err("the other end has gone".into()) } else { Ok(line) }
}

/// The local ACK timeout of `stream`: 67 ms.
const ACK_TIMEOUT: u8 = 14;
