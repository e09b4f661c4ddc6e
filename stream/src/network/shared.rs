//! State shared by the threads of a network.

use crate::channels::Channels;
use crate::config::ValidConfig;
use crate::engine::Engine;
use crate::error::SetupError;
use crate::peers::Peers;
use spanwire_host::fabric::{Fabric, HopResolver, PacketSizes};
use spanwire_host::modes::ModeChoice;
use spanwire_io::worker;
use spanwire_transport::{Endpoint, Offer};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// State shared by the threads of a network.
#[derive(Debug)]
pub(crate) struct NetworkShared {
    pub(crate) config: ValidConfig,
    pub(super) engine: spanwire_transport::ValidConfig,
    /// The engine with all channels.
    pub(crate) worker: Arc<Engine>,
    pub(super) fabric: Fabric,
    pub(crate) hop_resolver: HopResolver,
    /// The largest packets; those to a peer may be smaller.
    pub(crate) sizes: PacketSizes,
    /// The port receives packets that were sent as fragments.
    pub(crate) takes_fragments: bool,
    pub(super) icrc: bool,
    pub(crate) ifname: String,
    /// The local address of connections, if it is given.
    pub(crate) address: Option<IpAddr>,
    pub(crate) peers: Arc<Peers>,
    /// The side poll socket's address and port, once it was opened.
    pub(super) side_poll: Mutex<Option<(IpAddr, Option<u16>)>>,
}

impl NetworkShared {
    /// The wire modes offered by an end with address `ip`, for IP packets of `ip_bytes`.
    pub(crate) fn offer(&self, ip: IpAddr, ip_bytes: u32, mode: ModeChoice) -> Offer {
        let offer = mode.offer(&self.engine, ip_bytes, ip, u32::MAX);
        if self.icrc { offer } else { offer.without_icrc() }
    }

    /// The UDP port of the side poll socket. It is opened for the first `ip` that is passed: one
    /// socket serves the whole port.
    pub(crate) fn side_poll_port(&self, ip: IpAddr) -> Option<u16> {
        let mut known = self.side_poll.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let port = self.worker.with_engine(|core| core.port.open_side_poll(ip))?;
            *known = Some((ip, port));
        }
        known.filter(|(of, _)| *of == ip).and_then(|(_, port)| port)
    }

    /// Runs `call` with the channels and their engine, and then a step.
    pub(crate) fn call<T>(
        &self,
        call: impl FnOnce(&mut Channels, &mut Endpoint) -> T,
    ) -> Result<T, SetupError> {
        let called = self.worker.submit(|host| {
            let (endpoint, channels) = host.parts_mut();
            call(channels, endpoint)
        });
        called.ok_or_else(|| self.gone())
    }

    /// Fails after the engine has ended.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        if self.worker.has_ended() { Err(self.gone()) } else { Ok(()) }
    }

    /// The error after the engine has ended.
    pub(crate) fn gone(&self) -> SetupError {
        let why = self.worker.why().unwrap_or("its worker has ended");
        SetupError::NetworkGone(why.to_owned())
    }
}

/// Starts a thread of that name.
pub(crate) fn start(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SetupError> {
    worker::spawn(name, work).map_err(|e| SetupError::Io("start a thread", e))
}
