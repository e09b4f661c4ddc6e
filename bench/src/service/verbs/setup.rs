//! The port of an end, and its connected queue pairs.

use super::lanes::Lanes;
use crate::connect::Near;
use crate::sample::Error;
use crate::service::exchange::Application;
use crate::service::task::{End, SILENCE};
use crate::service::tcp;
use spanwire_host::fabric::{Attachment, Wrap};
use spanwire_host::modes::ModeChoice;
use spanwire_host::queue_pair::Sending;
use spanwire_host::{seed, window};
use spanwire_io::xdp::XdpPreference;
use spanwire_stream::NetworkOptions;
use spanwire_transport::Endpoint;
use std::io::BufReader;
use std::net::TcpStream;

/// A connected end.
pub(super) struct Setup {
    pub(super) endpoint: Endpoint,
    pub(super) attachment: Attachment,
    pub(super) lanes: Lanes,
    /// The side connection, which ends with the other end.
    pub(super) side: TcpStream,
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
        lanes.post_receives(&mut endpoint)?;
        let mut side = BufReader::new(side_connection(end)?);
        let near = Near {
            ip: end.ip,
            is_client: end.server.is_some(),
            offer: ModeChoice::Auto.offer(&engine, attachment.ip_bytes, end.ip, u32::MAX),
            qps: lanes.params(),
            memory: None,
            sending: Sending::default(),
        };
        near.connect(&mut endpoint, &mut attachment, &mut side)?;
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
