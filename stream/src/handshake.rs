//! The handshake of two ends over the side connection.

use crate::about::About;
use crate::channel::{ChannelId, Local, Rings};
use crate::channels::ConnectParams;
use crate::config::Shape;
use crate::error::SetupError;
use crate::network::options::ConnectOptions;
use crate::network::shared::NetworkShared;
use crate::network::worker::NetworkWorker;
use crate::peers::{
    ConnectionCount, DROPPED, HalfOpenCount, MAX_CONNECTIONS_PER_PEER, MAX_HALF_OPEN,
    MAX_HALF_OPEN_PER_PEER, MAX_RING_BYTES_PER_PEER,
};
use crate::place::Place;
use crate::probing::Probing;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::shared::Kind;
use crate::side::{Hello, Ring, Side, SideMessage, VERSION, unexpected};
use spanwire_host::modes::{Modes, settle_between};
use spanwire_host::probe::check_qpn;
use spanwire_host::queue_pair::{QpParams, Route, check_path_mtu};
use spanwire_transport::{AddressVector, Agreed, ConfigError, Mtu, Offer};
use spanwire_wire::Ecn;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Instant;

/// A connection that both ends have established.
#[derive(Debug)]
pub struct Established {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) about: About,
}

/// A queue pair at its worker that is destroyed unless it is kept.
struct Reserved<'a> {
    worker: &'a NetworkWorker,
    id: ChannelId,
    local: Local,
    kept: bool,
}

/// A connection whose queue pair is connected, of which the caller does not know yet.
pub(crate) struct Answered<'a> {
    halves: (Sending, Receiving),
    reserved: Reserved<'a>,
    side: Side,
    terms: Terms,
    theirs: Hello,
}

/// The parameters that both ends derive from the two hellos.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Agreement {
    pub(crate) agreed: Agreed,
    pub(crate) shape: Shape,
    pub(crate) path_mtu: Mtu,
}

/// The agreement and the route to the peer.
#[derive(Clone, Copy)]
struct Terms {
    agreed: Agreed,
    shape: Shape,
    route: Route,
}

/// Sets up a connection as the caller, at that worker of ours if one is named.
pub(crate) fn call(
    network: &NetworkShared,
    mut side: Side,
    (options, worker): (&ConnectOptions, Option<u32>),
    kind: Kind,
    deadline: Instant,
) -> Result<Established, SetupError> {
    let (local, peer) = (side.local(), side.peer());
    let at = network.place(worker)?;
    let worker = at.0;
    let reserved = Reserved::new(at, Shape::wanted(&network.config), options)?;
    let probing = Probing::of_caller(network, worker);
    let ours = hello((network, worker), (local, peer), options, kind)?.lending(&reserved.local);
    let ours = Hello { probe_qpn: probing.qpn(), ..ours };
    let say = |e| SetupError::Io("speak to the other end", e);
    let sent = side.send(&SideMessage::Hello(Box::new(ours.clone())));
    let theirs = expect_hello(&mut side, deadline).map_err(|e| match (sent, e) {
        // A rejection may precede the hello, and close the connection to it.
        (Err(e), SetupError::Closed) => say(e),
        (_, e) => e,
    })?;
    let negotiate = || {
        let mut terms = terms(network, &ours, &theirs, true)?;
        probing.exchange(&mut side, &theirs, &mut terms.route, deadline)?;
        let halves = reserved.connect(kind, &terms, &theirs, None)?;
        Ok((terms, halves))
    };
    let negotiated = negotiate();
    let (terms, (sending, receiving)) = negotiated.inspect_err(|why| reject(&side, why))?;
    greet(worker, &theirs);
    side.send(&SideMessage::Ready).map_err(say)?;
    expect_ready(&mut side, deadline)?;
    let about = reserved.keep(side, &terms, &theirs);
    Ok(Established { sending, receiving, about })
}

/// Sets up a connection as the listener, for a caller that is counted by `half_open` and `count`.
pub(crate) fn answer<'a>(
    network: &'a NetworkShared,
    mut side: Side,
    (half_open, mut count): (&HalfOpenCount, ConnectionCount),
    options: &ConnectOptions,
    kind: Kind,
    deadline: Instant,
) -> Result<Answered<'a>, SetupError> {
    let (local, peer) = (side.local(), side.peer());
    let theirs = expect_hello(&mut side, deadline);
    let theirs = theirs.inspect_err(|why| reject(&side, why))?;
    half_open.at_work()?;
    let mut negotiate = || {
        if theirs.ip != peer.ip() && !options.any_address {
            return Err(SetupError::Address(theirs.ip, peer.ip()));
        }
        check(&theirs, kind, &options.protocol)?;
        let at = network.place(options.worker.or_else(|| network.partner_of(theirs.worker)))?;
        let probing = Probing::of_listener(network, at.0, &theirs, peer.ip());
        let ours = hello((network, at.0), (local, peer), options, kind)?;
        let ours = Hello { probe_qpn: probing.qpn(), ..ours };
        let terms = terms(network, &ours, &theirs, false)?;
        count.take_ring(&network.config, terms.shape.ring_bytes)?;
        // Resources are allocated only after agreement, and only for the agreed shape. The queue
        // pair drops all packets until it is connected, so nothing writes to the ring before.
        let reserved = Reserved::new(at, terms.shape, options)?;
        let ours = ours.lending(&reserved.local);
        Ok((reserved, ours, terms, probing))
    };
    let (reserved, ours, mut terms, probing) = negotiate().inspect_err(|why| reject(&side, why))?;
    side.send(&SideMessage::Hello(Box::new(ours))).map_err(|e| SetupError::Io("answer", e))?;
    greet(reserved.worker, &theirs);
    half_open.awaits_ready()?;
    let probed = probing.exchange(&mut side, &theirs, &mut terms.route, deadline);
    let ready = probed.and_then(|()| expect_ready(&mut side, deadline));
    half_open.at_work()?;
    let connected = ready.and_then(|()| reserved.connect(kind, &terms, &theirs, Some(count)));
    let halves = connected.inspect_err(|why| reject(&side, why))?;
    Ok(Answered { halves, reserved, side, terms, theirs })
}

/// Sends a rejection to a peer, if that does not block.
pub(crate) fn reject(side: &Side, why: &SetupError) {
    side.send_last(&rejection(why));
}

/// Ends the handshake over `socket`, of which another thread waits for the peer's next message, to
/// make room for a newer one.
pub(crate) fn dismiss(socket: &TcpStream) {
    // An error means that the peer has closed.
    let mut line = serde_json::to_vec(&rejection(&DROPPED)).unwrap_or_default();
    line.push(b'\n');
    let _ = socket.set_nonblocking(true);
    let _ = (&mut &*socket).write_all(&line);
    let _ = socket.shutdown(Shutdown::Both);
}

/// The rejection of a peer.
pub(crate) fn rejection(why: &SetupError) -> SideMessage {
    let busy = matches!(why, SetupError::Limit(MAX_HALF_OPEN | MAX_HALF_OPEN_PER_PEER));
    SideMessage::Reject { reason: reason_for(why), busy }
}

/// The reason that a rejected peer receives.
fn reason_for(why: &SetupError) -> String {
    match why {
        // Errors and the configuration of this host are not disclosed.
        SetupError::Io(..)
        | SetupError::NetworkGone(_)
        | SetupError::Config(_)
        | SetupError::Interface(_) => "something failed there".to_owned(),
        SetupError::Unreachable(_) => "there is no way back to your address".to_owned(),
        SetupError::Limit(field) => match *field {
            MAX_HALF_OPEN_PER_PEER => "too many connections of your address are being set up",
            MAX_CONNECTIONS_PER_PEER => "there are too many connections of your address",
            MAX_RING_BYTES_PER_PEER => {
                "the connections of your address have all the memory that one may have there; ask \
                 for smaller rings"
            }
            MAX_HALF_OPEN => "too many connections are being set up there",
            _ => "there is no room for one more connection there",
        }
        .to_owned(),
        SetupError::Address(says, is) => {
            format!("you call from {is}, and your RoCE address {says} is not accepted from there")
        }
        SetupError::Garbled(what) => format!("you do not speak this protocol ({what})"),
        SetupError::Version(theirs) => {
            format!("you speak version {theirs} of messages and streams, this end {VERSION}")
        }
        why => why.to_string(),
    }
}

impl Answered<'_> {
    /// Answers the caller, who may set up its next connection then.
    pub(crate) fn confirm(self) -> Result<Established, SetupError> {
        let Self { halves: (sending, receiving), reserved, side, terms, theirs } = self;
        side.send(&SideMessage::Ready).map_err(|e| SetupError::Io("answer", e))?;
        let about = reserved.keep(side, &terms, &theirs);
        Ok(Established { sending, receiving, about })
    }
}

impl<'a> Reserved<'a> {
    /// Creates a queue pair and rings for a connection of at most `shape`.
    fn new(
        (worker, place): (&'a NetworkWorker, Place),
        shape: Shape,
        options: &ConnectOptions,
    ) -> Result<Self, SetupError> {
        let rings = Rings::new(shape.ring_bytes).map_err(|e| {
            SetupError::Io("map a connection's rings", io::Error::new(ErrorKind::OutOfMemory, e))
        })?;
        let (id, local) = worker.call(|channels, endpoint| {
            channels.open(endpoint, (shape, rings, place), options.congestion)
        })??;
        Ok(Self { worker, id, local, kept: false })
    }

    fn connect(
        &self,
        kind: Kind,
        terms: &Terms,
        theirs: &Hello,
        count: Option<ConnectionCount>,
    ) -> Result<(Sending, Receiving), SetupError> {
        let (Terms { shape, route, .. }, theirs) = (*terms, theirs.local());
        let params = ConnectParams { id: self.id, kind, shape, route, theirs, count };
        let (shared, rings) =
            self.worker.call(|channels, endpoint| channels.connect(endpoint, params))??;
        let engine = || self.worker.engine.clone();
        let sending = Sending::new(shared.clone(), rings.send).driven_by(engine());
        Ok((sending, Receiving::new(shared, rings.receive).driven_by(engine())))
    }

    /// Keeps the queue pair.
    fn keep(mut self, side: Side, terms: &Terms, theirs: &Hello) -> About {
        self.kept = true;
        let (agreed, local) = (terms.agreed, side.local());
        let peer = SocketAddr::new(theirs.ip, side.peer().port());
        let (qpn, worker) = (self.local.qp.qpn, self.worker.worker_of.index);
        let about = About { qpn, worker, mode: agreed.mode(), agreed, peer, local };
        // After the end of the network the side connection is closed, which tells the peer.
        let _ = self.worker.call(|channels, _| channels.keep(self.id, side));
        about
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let _ = self.worker.call(|channels, endpoint| channels.discard(endpoint, self.id));
        }
    }
}

/// Our hello, without queue pair and ring address.
fn hello(
    (network, worker): (&NetworkShared, &NetworkWorker),
    (local, peer): (SocketAddr, SocketAddr),
    options: &ConnectOptions,
    carries: Kind,
) -> Result<Hello, SetupError> {
    if options.protocol.len() > PROTOCOL_BYTES_MAX {
        let what = format!("protocol is longer than {PROTOCOL_BYTES_MAX} bytes");
        return Err(SetupError::Config(what));
    }
    let (ip, sizes) = (local.ip(), network.sizes.to(Some(peer.ip()))?);
    Ok(Hello {
        version: VERSION,
        carries,
        protocol: options.protocol.clone(),
        ip,
        path_mtu: sizes.path_mtu.bytes(),
        side_poll_port: worker.side_poll_port(ip),
        modes: Modes::from(network.offer(ip, sizes.ip_bytes, options.mode)),
        takes_fragments: network.takes_fragments,
        worker: worker.worker_of,
        probe_qpn: None,
        qp: QpParams::default(),
        ring: Ring::of(&Local::default(), Shape::wanted(&network.config)),
    })
}

fn expect_hello(side: &mut Side, deadline: Instant) -> Result<Hello, SetupError> {
    expected_hello(side.recv(deadline)?)
}

fn expect_ready(side: &mut Side, deadline: Instant) -> Result<(), SetupError> {
    match side.recv(deadline)? {
        SideMessage::Ready => Ok(()),
        other => Err(unexpected(&other, "ready")),
    }
}

/// The hello, if its version is ours and its numbers are possible.
pub(crate) fn expected_hello(word: SideMessage) -> Result<Hello, SetupError> {
    match word {
        SideMessage::Hello(hello) if hello.version != VERSION => {
            Err(SetupError::Version(hello.version))
        }
        SideMessage::Hello(hello) => {
            hello.qp.check().map_err(SetupError::Garbled)?;
            check_path_mtu(hello.path_mtu).map_err(SetupError::Garbled)?;
            check_qpn(hello.probe_qpn).map_err(SetupError::Garbled)?;
            Ok(*hello)
        }
        other => Err(unexpected(&other, "a hello")),
    }
}

/// Checks that the applications of both ends match.
fn check(theirs: &Hello, kind: Kind, protocol: &str) -> Result<(), SetupError> {
    if theirs.carries != kind {
        return Err(SetupError::Kind);
    }
    if theirs.protocol != protocol {
        let said: String = theirs.protocol.chars().take(PROTOCOL_BYTES_MAX).collect();
        return Err(SetupError::Protocol(protocol.to_owned(), said));
    }
    Ok(())
}

/// The agreement of two hellos, and the route to the peer.
fn terms(
    network: &NetworkShared,
    ours: &Hello,
    theirs: &Hello,
    we_called: bool,
) -> Result<Terms, SetupError> {
    let Agreement { agreed, shape, path_mtu } = agree(ours, theirs, we_called)?;
    let (we, they) = (ours.worker, theirs.worker);
    if we_called && network.pairs_workers() && we.index != they.index {
        return Err(SetupError::Worker(we.index, they.index));
    }
    let hop = network.hop_resolver.hop(theirs.ip)?;
    // Packets are ECN-capable, because both wire modes react to marks: SR by counts, RC by CNPs.
    let av = hop.address_vector(ours.ip, theirs.ip, Ecn::Ect0.bits());
    let (client, server) = if we_called { (we, they) } else { (they, we) };
    let udp_src_port = client.source_port(server, av.udp_src_port);
    let av = AddressVector { udp_src_port, takes_fragments: theirs.takes_fragments, ..av };
    Ok(Terms { agreed, shape, route: Route { av, path_mtu, agreed } })
}

/// Derives the parameters from two hellos, with the same result at both ends.
pub(crate) fn agree(
    ours: &Hello,
    theirs: &Hello,
    we_called: bool,
) -> Result<Agreement, SetupError> {
    check(theirs, ours.carries, &ours.protocol)?;
    if ours.ip.is_ipv4() != theirs.ip.is_ipv4() {
        let what = format!("{} and {} are not of one IP version", ours.ip, theirs.ip);
        return Err(SetupError::Garbled(what));
    }
    let (our_offer, their_offer) = (Offer::from(&ours.modes), Offer::from(&theirs.modes));
    let agreed = settle_between(we_called, &our_offer, &their_offer).map_err(SetupError::Mode)?;
    let shape = ours.shape().agree(theirs.shape());
    let shape = shape.map_err(|e| SetupError::Garbled(wrong_ring(&e)))?;
    let path_mtu = Mtu::from_bytes(ours.path_mtu.min(theirs.path_mtu))
        .ok_or_else(|| SetupError::Garbled(format!("{} is no path MTU", theirs.path_mtu)))?;
    Ok(Agreement { agreed, shape, path_mtu })
}

/// The error for a limit of the peer's ring that is out of its range.
fn wrong_ring(e: &ConfigError) -> String {
    let ConfigError { field, value, min, max } = e;
    let what = match *field {
        "ring_bytes" => "ring has",
        "fragment_bytes" => "longest fragment has",
        "max_message_bytes" => "longest message has",
        _ => "ring has room for",
    };
    let unit = if *field == "fragments" { "fragments" } else { "bytes" };
    format!("its {what} {value} {unit}, but must have {min} to {max}")
}

/// Sends the datagram for the peer's side poll socket.
fn greet(worker: &NetworkWorker, theirs: &Hello) {
    if let Some(port) = theirs.side_poll_port {
        worker.greet(SocketAddr::new(theirs.ip, port));
    }
}

/// The limit of a protocol name in TLS ALPN.
const PROTOCOL_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use spanwire_host::oob::WorkerOf;

    #[test]
    fn reason_for__names_no_field_of_a_configuration_and_no_type() {
        let hello = SideMessage::Hello(Box::new(Hello {
            version: VERSION,
            carries: Kind::Bytes,
            protocol: String::new(),
            ip: [10, 0, 0, 1].into(),
            path_mtu: 1024,
            side_poll_port: None,
            modes: Modes::default(),
            takes_fragments: false,
            worker: WorkerOf::default(),
            probe_qpn: None,
            qp: QpParams::default(),
            ring: Ring::of(&Local::default(), Shape::wanted(&Config::default())),
        }));
        let errors = [
            SetupError::Limit(MAX_HALF_OPEN),
            SetupError::Limit(MAX_HALF_OPEN_PER_PEER),
            SetupError::Limit(MAX_CONNECTIONS_PER_PEER),
            SetupError::Limit(MAX_RING_BYTES_PER_PEER),
            SetupError::Limit("max_connections"),
            SetupError::Config("no more than max_qps may exist: raise it in Config".into()),
            SetupError::Interface("eth7 is down".into()),
            SetupError::Unreachable("no route through eth7".into()),
            SetupError::Address([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            SetupError::Garbled(wrong_ring(&ConfigError {
                field: "max_message_bytes",
                value: 0,
                min: 1,
                max: 2,
            })),
            unexpected(&hello, "ready"),
        ];
        for error in errors {
            let reason = reason_for(&error);
            assert!(!reason.contains(['_', '{', '[']) && !reason.contains("eth7"), "{reason}");
        }
        assert!(reason_for(&unexpected(&hello, "ready")).contains("a hello where ready was due"));
    }

    #[test]
    fn rejection__says_whether_it_may_be_gone_in_a_moment() {
        for (field, is_busy) in [
            (MAX_HALF_OPEN, true),
            (MAX_HALF_OPEN_PER_PEER, true),
            (MAX_CONNECTIONS_PER_PEER, false),
            ("max_connections", false),
        ] {
            let rejection = rejection(&SetupError::Limit(field));
            assert!(
                matches!(rejection, SideMessage::Reject { busy, .. } if busy == is_busy),
                "{field}: {rejection:?}"
            );
        }
    }
}
