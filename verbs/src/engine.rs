//! The engine of a device: one in a process, which all its contexts share.
//!
//! It is detached until the first queue pair: a program can list, open and query devices and
//! register memory while another process has the port. The first queue pair opens the port, and a
//! thread drives the engine while the program does not call (docs/decisions/0038).

use crate::device::Interface;
use crate::errno::{self, Errno};
use crate::lease::{Lease, lock};
use crate::settings::{Settings, say, settings};
use crate::worker::{Bursts, Worker};
use spanwire_host::fabric::{Attachment, Error, Terms, Wrap};
use spanwire_host::program::CongestionText;
use spanwire_host::seed;
use spanwire_host::window::{self, WindowChoice};
use spanwire_io::driver::Polling;
use spanwire_io::fork::Origin;
use spanwire_io::udp::UdpConfig;
use spanwire_io::worker::{self, Progress};
use spanwire_io::xdp::XdpPreference;
use spanwire_transport::{CongestionControl, Endpoint, ValidConfig};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;

/// The engine of a device.
pub(crate) struct Engine {
    pub(crate) interface: Interface,
    settings: &'static Settings,
    /// `None` once it is attached.
    detached: Mutex<Option<Endpoint>>,
    attached: OnceLock<Attached>,
    origin: Origin,
}

/// An engine with its port.
pub(crate) struct Attached {
    pub(crate) worker: Arc<Worker>,
    pub(crate) terms: Terms,
    pub(crate) bursts: Bursts,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Dropped last, when the port is closed.
    _lease: Lease,
}

impl Engine {
    /// The engine of an interface: that of this process, if a context has it open.
    ///
    /// # Errors
    /// The environment is wrong, or the system provides no randomness.
    pub(crate) fn of(interface: &Interface) -> Result<Arc<Self>, Error> {
        /// The engines of all open contexts.
        static OPEN: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());
        let mut open = lock(&OPEN);
        open.retain(|engine| engine.strong_count() > 0);
        let here = open.iter().filter_map(Weak::upgrade);
        if let Some(engine) =
            here.into_iter().find(|one| one.interface == *interface && one.origin.is_here())
        {
            return Ok(engine);
        }
        let engine = Arc::new(Self {
            interface: interface.clone(),
            settings: settings()?,
            detached: Mutex::new(Some(seed::endpoint(ValidConfig::default())?)),
            attached: OnceLock::new(),
            origin: Origin::here(),
        });
        open.push(Arc::downgrade(&engine));
        Ok(engine)
    }

    /// The settings of this process.
    pub(crate) fn settings(&self) -> &'static Settings {
        self.settings
    }

    /// Congestion control of its queue pairs; `None` for the default.
    pub(crate) fn congestion(&self) -> Option<CongestionControl> {
        self.settings.congestion.as_ref().map(CongestionText::control)
    }

    /// The engine with its port, once it has one.
    pub(crate) fn attached(&self) -> Option<&Attached> {
        self.attached.get()
    }

    /// Runs `call` with the endpoint, in the calling thread.
    ///
    /// # Errors
    /// `EIO`: the engine has ended, or this is a forked process.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Endpoint) -> R) -> Result<R, Errno> {
        if self.attached.get().is_none() {
            if !self.origin.is_here() {
                return Err(libc::EIO);
            }
            if let Some(endpoint) = lock(&self.detached).as_mut() {
                return Ok(call(endpoint));
            }
        }
        let attached = self.attached.get().ok_or(libc::EIO)?;
        attached.worker.with(call).ok_or(libc::EIO)
    }

    /// Says the counters of engine and port, if it was asked for.
    pub(crate) fn report(&self) {
        if let Some(attached) = self.attached.get().filter(|_| self.settings.verbose) {
            say(&format!("{}: {}", self.interface.name, counted(&attached.worker)));
        }
    }

    /// Opens the port, unless it is open.
    ///
    /// # Errors
    /// It cannot be opened: the number of the reason, which is also said on stderr.
    pub(crate) fn attach(&self) -> Result<&Attached, Errno> {
        if !self.origin.is_here() {
            return Err(libc::EIO);
        }
        let mut detached = lock(&self.detached);
        if let Some(attached) = self.attached.get() {
            return Ok(attached);
        }
        let lease = Lease::take(&self.interface);
        let opened = self.open().and_then(|(attachment, config)| {
            let endpoint = detached.as_mut().expect("detached until it is attached");
            endpoint.reconfigure(config.clone())?;
            start(attachment, config, lease, endpoint)
        });
        let attached = opened.map_err(|e| self.failed(&*e))?;
        *detached = None;
        Ok(self.attached.get_or_init(|| attached))
    }

    /// The port, and the configuration that fits it.
    fn open(&self) -> Result<(Attachment, ValidConfig), Error> {
        let Interface { name, address, .. } = &self.interface;
        let choice = WindowChoice::of(self.congestion().as_ref());
        let window = (choice == WindowChoice::Controlled).then_some(window::CC_WINDOW_PKTS);
        let xdp = window::port(name, 0, XdpPreference::Auto, window);
        let udp = UdpConfig { local: Some(IpAddr::V4(*address)), ..UdpConfig::new(name) };
        let wrap = Wrap { faults: self.settings.faults, pcap: None };
        let attachment = Attachment::open(self.settings.fabric, &xdp, &udp, &wrap)?;
        let config = window::config(window, window::link_rate(name), None)?;
        let config = window::for_polling(attachment.fit(config, choice), Polling::Adaptive);
        if self.settings.verbose {
            let why = attachment.fallback.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            let cc =
                self.settings.congestion.as_ref().map_or("auto".to_owned(), ToString::to_string);
            let mode = self.settings.mode.name();
            say(&format!(
                "{name}, {address}: {}{why}, mode {mode}, congestion control {cc}",
                attachment.mode_name()
            ));
        }
        Ok((attachment, config))
    }

    fn failed(&self, e: &(dyn std::error::Error + Send + Sync + 'static)) -> Errno {
        say(&format!("{}: {e}", self.interface.name));
        errno::of(e)
    }
}

/// Starts the worker of `endpoint` over a port. It is left as it is if that fails: the program has
/// objects in it, and may try again.
fn start(
    attachment: Attachment,
    config: ValidConfig,
    lease: Lease,
    endpoint: &mut Endpoint,
) -> Result<Attached, Error> {
    let Attachment { port, terms } = attachment;
    let bell = worker::bell(Progress::Shared)?;
    let in_its_place = seed::endpoint(config)?;
    let worker = worker::worker(bell, in_its_place, port, terms.clock, Polling::Adaptive)?;
    let worker = Arc::new(worker);
    let driven = worker.clone();
    let thread = worker::spawn("spanwire", move || {
        // Sleeps of this thread end in time; those of the program are its own.
        if let Err(e) = std::fs::write("/proc/thread-self/timerslack_ns", "1000") {
            tracing::debug!("sleeps may end 50 us late: {e}");
        }
        driven.work();
    })?;
    worker.with(|driven| std::mem::swap(driven, endpoint)).ok_or("the port has failed")?;
    let (bursts, thread) = (Bursts::default(), Mutex::new(Some(thread)));
    Ok(Attached { worker, terms, bursts, thread, _lease: lease })
}

/// The counters that are not zero, of engine, port and driver.
fn counted(worker: &Worker) -> String {
    let list = worker.with_engine(|core| {
        let mut list = core.node.counters().list();
        list.extend(core.port.counters());
        list.push(("worker_steps".to_owned(), core.driver().steps));
        list
    });
    let list = list.unwrap_or_default().into_iter().filter(|(_, n)| *n > 0);
    list.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(attached) = self.attached.take() else { return };
        if !self.origin.is_here() {
            // The thread is the parent's.
            std::mem::forget(attached);
            return;
        }
        // Acknowledgements that are due leave before the port is closed.
        attached.worker.turn();
        attached.worker.end("its last context was closed");
        if let Some(thread) = lock(&attached.thread).take() {
            // It panicked: said on stderr by then.
            let _ = thread.join();
        }
    }
}
