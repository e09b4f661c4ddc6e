//! How a station and its peer come to know each other.

use super::{Peer, Station};
use crate::fabric::Error;
use crate::modes::settle_between;
use crate::oob::{Hello, Message, Oob, OobError, REPLY_TIMEOUT, VERSION};
use spanwire_transport::{AddressVector, Offer};
use spanwire_wire::Ecn;
use std::net::{IpAddr, SocketAddr};

impl Station {
    /// Meets the peer at the other end of `oob`, as the client.
    ///
    /// # Errors
    /// The exchange fails, there is no way to the peer, or no wire mode in common.
    pub fn meet(&mut self, oob: &mut Oob) -> Result<(), Error> {
        oob.send(&Message::Hello(self.hello()))?;
        let theirs = match oob.recv(REPLY_TIMEOUT)? {
            Message::Hello(h) => h,
            other => return Err(OobError::unexpected("a hello", other).into()),
        };
        self.peer = Some(self.check_hello(oob, &theirs, true)?);
        self.greet_side_poll(&theirs);
        Ok(())
    }

    /// Who we are, at the address we have now.
    pub(super) fn hello(&mut self) -> Hello {
        Hello {
            version: VERSION,
            ip: self.ip,
            path_mtu: self.attachment.path_mtu.bytes(),
            side_poll_port: self.side_poll_port(),
            modes: self.offer().into(),
        }
    }

    /// The peer that says `theirs` over `oob`, if it is one that we can and may speak with.
    pub(super) fn check_hello(
        &self,
        oob: &Oob,
        theirs: &Hello,
        we_are_client: bool,
    ) -> Result<Peer, Error> {
        if theirs.version != VERSION {
            return Err(OobError::Version(theirs.version).into());
        }
        // What we send goes to the address that it says. It has shown that it hears what is sent to
        // the one it has connected from, and no other: that might be a third party's.
        match oob.peer_ip() {
            Some(shown) if shown != theirs.ip && !self.takes_any_address => {
                return Err(OobError::ForeignAddress { shown, said: theirs.ip }.into());
            }
            _ => {}
        }
        let (ours, offered) = (self.offer(), Offer::from(&theirs.modes));
        let agreed = settle_between(we_are_client, &ours, &offered)?;
        // Both wire modes answer marks: SR by counts, RC by CNPs.
        let av = self.way_to(theirs.ip, Ecn::Ect0.bits())?;
        Ok(Peer { path_mtu: theirs.path_mtu, av, agreed })
    }

    /// Both programs are attached by now, so the datagram meets the peer's.
    pub(super) fn greet_side_poll(&self, theirs: &Hello) {
        if let Some(port) = theirs.side_poll_port {
            self.attachment.port.greet(SocketAddr::new(theirs.ip, port));
        }
    }

    /// The port of our side poll socket at the address we have now. One serves all peers there.
    fn side_poll_port(&mut self) -> Option<u16> {
        match self.side_poll {
            Some((ip, port)) if ip == self.ip => port,
            _ => {
                let port = self.attachment.port.open_side_poll(self.ip);
                self.side_poll = Some((self.ip, port));
                port
            }
        }
    }

    /// What this station offers to speak, at the address it has now.
    fn offer(&self) -> Offer {
        let ip_bytes = self.attachment.ip_bytes;
        self.mode.offer(&self.config, ip_bytes, self.ip, self.segment_bytes_max)
    }

    /// The way to the peer at `ip`.
    pub(super) fn way_to(&self, ip: IpAddr, traffic_class: u8) -> Result<AddressVector, Error> {
        if ip.is_ipv4() != self.ip.is_ipv4() {
            return Err(format!("{} and {ip} are not of one IP version", self.ip).into());
        }
        Ok(self.attachment.hop(ip)?.address_vector(self.ip, ip, traffic_class))
    }
}
