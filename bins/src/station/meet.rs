//! How a station and its peer come to know each other.

use super::{HELLO_WITHIN, Peer, Station};
use crate::fabric::Error;
use crate::oob::{Hello, Message, Oob, OobError, REPLY_TIMEOUT, VERSION, settle};
use spanwire_transport::{AddressVector, Offer};
use std::net::{IpAddr, SocketAddr};

impl Station {
    /// Says hello and learns who the peer is and the way to it. The client speaks first.
    pub(super) fn greet(&mut self, oob: &mut Oob, speaks_first: bool) -> Result<(), Error> {
        let side_poll_port = self.attachment.port.open_side_poll(self.ip);
        let path_mtu = self.attachment.path_mtu.bytes();
        let offer = self.offer();
        let hello = Message::Hello(Hello {
            version: VERSION,
            ip: self.ip,
            path_mtu,
            side_poll_port,
            modes: offer.into(),
        });
        if speaks_first {
            oob.send(&hello)?;
        }
        // A server has other clients waiting; a client may be one of them.
        let patience = if speaks_first { REPLY_TIMEOUT } else { HELLO_WITHIN };
        let theirs = match oob.recv(patience)? {
            Message::Hello(h) => h,
            other => return Err(OobError::unexpected("a hello", other).into()),
        };
        if theirs.version != VERSION {
            return Err(OobError::Version(theirs.version).into());
        }
        let theirs_offered = Offer::from(&theirs.modes);
        let (client, server) =
            if speaks_first { (offer, theirs_offered) } else { (theirs_offered, offer) };
        let agreed = settle(&client, &server)?;
        let av = self.way_to(theirs.ip, 0)?;
        self.peer = Some(Peer { path_mtu: theirs.path_mtu, av, agreed });
        if !speaks_first {
            oob.send(&hello)?;
        }
        // Both programs are attached by now, so the datagrams meet them.
        if let Some(port) = theirs.side_poll_port {
            self.attachment.port.greet(SocketAddr::new(theirs.ip, port));
        }
        Ok(())
    }

    /// What this station offers to speak, at the address it has now.
    fn offer(&self) -> Offer {
        let fits = Offer::segment_bytes(self.attachment.ip_bytes, self.ip.is_ipv4());
        let segment_bytes = fits.map(|bytes| bytes.min(self.segment_bytes_max));
        self.mode.of(Offer::of(&self.config, segment_bytes))
    }

    /// The way to the peer at `ip`.
    pub(super) fn way_to(&self, ip: IpAddr, traffic_class: u8) -> Result<AddressVector, Error> {
        if ip.is_ipv4() != self.ip.is_ipv4() {
            return Err(format!("{} and {ip} are not of one IP version", self.ip).into());
        }
        let hop = self.attachment.hop(ip)?;
        Ok(AddressVector {
            src_mac: hop.src_mac,
            dst_mac: hop.dst_mac,
            src_ip: self.ip,
            dst_ip: ip,
            udp_src_port: None,
            traffic_class,
            hop_limit: hop.hop_limit,
        })
    }
}
