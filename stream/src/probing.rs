//! The probes of source ports in the handshake of a connection (`spanwire_host::probe`).

use crate::error::SetupError;
use crate::network::shared::NetworkShared;
use crate::network::worker::NetworkWorker;
use crate::side::{Hello, Side, SideMessage, unexpected};
use spanwire_host::probe::{
    self, BURSTS_MAX, COUNT_INTERVAL, PROBE_TIME, Tallied, chosen, warn_of_no_port,
};
use spanwire_host::queue_pair::Route;
use spanwire_transport::SourcePort;
use spanwire_wire::Qpn;
use std::net::IpAddr;
use std::thread;
use std::time::Instant;

/// The probes of one end of a handshake.
pub(crate) struct Probing<'a> {
    worker: &'a NetworkWorker,
    /// Those of the peer, if packets for the worker may arrive elsewhere.
    tallied: Option<Tallied>,
    /// Both ends take part, as far as is known.
    is_shared: bool,
}

impl<'a> Probing<'a> {
    /// Those of a caller.
    pub(crate) fn of_caller(network: &NetworkShared, worker: &'a NetworkWorker) -> Self {
        let is_shared = network.probes();
        let counts = is_shared && network.needs_probes();
        let tallied = counts.then(|| {
            worker.engine.with_engine(|core| {
                let core = &mut **core;
                Tallied::start(core.node.parts_mut().0, &mut core.port)
            })
        });
        Self { worker, tallied: tallied.flatten().flatten(), is_shared }
    }

    /// Those of a listener whose caller's hello is `theirs`. None are sent to an address other than
    /// that of its side connection, `peer`: it may be that of a third party.
    pub(crate) fn of_listener(
        network: &NetworkShared,
        worker: &'a NetworkWorker,
        theirs: &Hello,
        peer: IpAddr,
    ) -> Self {
        match theirs.probe_qpn.is_some() && theirs.ip == peer {
            true => Self::of_caller(network, worker),
            false => Self { worker, tallied: None, is_shared: false },
        }
    }

    /// The number for our hello.
    pub(crate) fn qpn(&self) -> Option<u32> {
        self.is_shared.then(|| self.tallied.as_ref().map_or(0, Tallied::qpn))
    }

    /// Exchanges probes after both hellos, as far as each end needs them. The first source port
    /// that leads to the peer's worker becomes that of `route`; a load balancer still chooses among
    /// all.
    pub(crate) fn exchange(
        mut self,
        side: &mut Side,
        theirs: &Hello,
        route: &mut Route,
        deadline: Instant,
    ) -> Result<(), SetupError> {
        let Some(target) = theirs.probe_qpn.filter(|_| self.is_shared) else { return Ok(()) };
        let mut sent_from = None;
        if target != 0 {
            sent_from = Some(self.send(Qpn::new(target), route)?);
            say(side, &SideMessage::Probed)?;
        }
        while self.tallied.is_some() || sent_from.is_some() {
            match (side.recv(deadline)?, self.tallied.take(), sent_from) {
                (SideMessage::Probed, Some(tallied), _) => {
                    say(side, &SideMessage::Arrived { probes: self.await_all(&tallied) })?;
                }
                (SideMessage::Arrived { probes }, tallied, Some(first)) => {
                    self.tallied = tallied;
                    sent_from = None;
                    match chosen(first, &probes).map_err(SetupError::Garbled)? {
                        Some(port) => route.av.udp_src_port = SourcePort::Fixed(port),
                        None => warn_of_no_port(self.worker.worker_of.index, theirs.ip),
                    }
                }
                (other, ..) => return Err(unexpected(&other, "probes")),
            }
        }
        Ok(())
    }

    fn send(&self, target: Qpn, route: &Route) -> Result<u16, SetupError> {
        let sent = self.worker.engine.with_engine(|core| {
            let (core, to) = (&mut **core, (&route.av, target));
            let clock = core.clock();
            probe::send(core.node.parts_mut().0, &mut core.port, &clock, to)
        });
        sent.ok_or_else(|| self.worker.gone())?.map_err(|e| SetupError::Io("send probes", e))
    }

    /// The probes that are at the port in time. This thread receives them, too: on a busy host that
    /// of the worker may not run until then.
    fn await_all(&self, tallied: &Tallied) -> Vec<u32> {
        let engine = &self.worker.engine;
        let until = Instant::now() + PROBE_TIME;
        while !tallied.has_all() && Instant::now() < until {
            if !engine.turn() {
                thread::sleep(COUNT_INTERVAL);
            }
        }
        // Another thread may have been interrupted in a step, and this one since its last.
        engine.with_engine(|_| ());
        for _ in 0..BURSTS_MAX {
            if tallied.has_all() || !engine.turn() {
                break;
            }
        }
        tallied.arrived()
    }
}

fn say(side: &mut Side, message: &SideMessage) -> Result<(), SetupError> {
    side.send(message).map_err(|e| SetupError::Io("speak to the other end", e))
}
