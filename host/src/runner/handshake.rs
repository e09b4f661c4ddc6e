//! The exchange of hellos with a peer.

use super::probe::Counting;
use super::{JobRunner, Peer};
use crate::fabric::{Error, PacketSizes};
use crate::modes::settle_between;
use crate::oob::{Hello, Message, Oob, OobError, REPLY_TIMEOUT, VERSION, WorkerOf};
use crate::probe::check_qpn;
use crate::queue_pair::check_path_mtu;
use spanwire_transport::{AddressVector, Offer};
use spanwire_wire::Ecn;
use std::net::{IpAddr, SocketAddr};

impl JobRunner {
    /// Exchanges hellos with the peer at the other end of `oob`, as the client.
    ///
    /// # Errors
    /// The exchange fails, there is no path to the peer, or no common wire mode.
    pub fn handshake(&mut self, oob: &mut Oob) -> Result<(), Error> {
        let sizes = self.attachment.packet_sizes().to(oob.peer_ip())?;
        let counting = self.count_probes();
        let probe_qpn = counting.as_ref().map(Counting::qpn);
        let sent = oob.send(&Message::Hello(Hello { probe_qpn, ..self.hello(sizes) }));
        let theirs = match (oob.recv(REPLY_TIMEOUT), sent) {
            (Ok(Message::Hello(h)), _) => h,
            // A rejection may precede the hello, and close the connection to it.
            (Err(e @ (OobError::Rejected(_) | OobError::Busy(_))), _) => return Err(e.into()),
            (_, Err(e)) | (Err(e), _) => return Err(e.into()),
            (Ok(other), _) => return Err(OobError::unexpected("a hello", &other).into()),
        };
        self.peer = Some(self.check_hello(oob.peer_ip(), &theirs, sizes, true)?);
        self.check_partner(theirs.worker)?;
        self.greet_side_poll(&theirs);
        self.probe_with_server(oob, &theirs, counting)
    }

    /// Our hello, for the current address and packets of these sizes.
    pub(super) fn hello(&mut self, sizes: PacketSizes) -> Hello {
        Hello {
            version: VERSION,
            ip: self.ip,
            path_mtu: sizes.path_mtu.bytes(),
            side_poll_port: self.side_poll_port(),
            modes: self.offer(sizes).into(),
            takes_fragments: self.attachment.takes_fragments(),
            worker: self.worker_of,
            probe_qpn: None,
        }
    }

    /// Checks the hello of a peer whose side connection comes from address `shown`, and resolves
    /// the path to it.
    pub(super) fn check_hello(
        &self,
        shown: Option<IpAddr>,
        theirs: &Hello,
        sizes: PacketSizes,
        we_are_client: bool,
    ) -> Result<Peer, Error> {
        if theirs.version != VERSION {
            return Err(OobError::Version(theirs.version).into());
        }
        check_path_mtu(theirs.path_mtu).map_err(OobError::Invalid)?;
        check_qpn(theirs.probe_qpn).map_err(OobError::Invalid)?;
        // Packets are sent to the address in the hello. Only the address of the TCP connection is
        // verified to be the peer's; any other might be that of a third party.
        match shown {
            Some(shown) if shown != theirs.ip && !self.takes_any_address => {
                return Err(OobError::ForeignAddress { shown, claimed: theirs.ip }.into());
            }
            _ => {}
        }
        let (ours, offered) = (self.offer(sizes), Offer::from(&theirs.modes));
        let agreed = settle_between(we_are_client, &ours, &offered)?;
        // Packets are ECN-capable, because both wire modes react to marks: SR by counts, RC by
        // CNPs.
        let av = self.address_vector_to(theirs.ip, Ecn::Ect0.bits())?;
        let (ours, theirs_of) = (self.worker_of, theirs.worker);
        let (client, server) = if we_are_client { (ours, theirs_of) } else { (theirs_of, ours) };
        let udp_src_port = client.source_port(server, av.udp_src_port);
        let takes_fragments = theirs.takes_fragments;
        let av = AddressVector { udp_src_port, takes_fragments, ..av };
        let path_mtu = theirs.path_mtu.min(sizes.path_mtu.bytes());
        Ok(Peer { path_mtu, av, agreed, src_port: None })
    }

    /// Checks that our worker meets the one of the same index: another one may be that of another
    /// of ours, and serves one job at a time. Over AF_XDP it also has another queue than the one on
    /// which our packets arrive.
    fn check_partner(&self, theirs: WorkerOf) -> Result<(), Error> {
        let ours = self.worker_of;
        if theirs.index == ours.index {
            return Ok(());
        }
        Err(format!(
            "worker {} here would meet worker {} of {} at the server: start the server with \
             --workers {}",
            ours.index, theirs.index, theirs.workers, ours.workers
        )
        .into())
    }

    /// Sends the datagram for the peer's side poll socket. The steering programs of both ends are
    /// attached by now, so it reaches the peer's receive queue.
    pub(super) fn greet_side_poll(&self, theirs: &Hello) {
        if let Some(port) = theirs.side_poll_port {
            self.look(|core| core.port.greet(SocketAddr::new(theirs.ip, port)));
        }
    }

    /// The port of our side poll socket at the current address. One socket serves all peers there.
    fn side_poll_port(&mut self) -> Option<u16> {
        match self.side_poll {
            Some((ip, port)) if ip == self.ip => port,
            _ => {
                let ip = self.ip;
                let port = self.core().ok()?.port.open_side_poll(ip);
                self.side_poll = Some((self.ip, port));
                port
            }
        }
    }

    /// The wire modes offered at the current address.
    fn offer(&self, sizes: PacketSizes) -> Offer {
        let end = (self.ip, sizes.ip_bytes);
        self.attachment.offer(self.mode, &self.config, end, self.segment_bytes_max)
    }

    /// The address vector to the peer at `ip`.
    pub(super) fn address_vector_to(
        &self,
        ip: IpAddr,
        traffic_class: u8,
    ) -> Result<AddressVector, Error> {
        if ip.is_ipv4() != self.ip.is_ipv4() {
            return Err(format!("{} and {ip} are not of one IP version", self.ip).into());
        }
        Ok(self.attachment.hop(ip)?.address_vector(self.ip, ip, traffic_class))
    }
}
