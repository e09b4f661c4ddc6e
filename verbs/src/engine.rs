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
use spanwire_host::fabric::{Attachment, Error, Terms, Wrap, sum_counters};
use spanwire_host::program::CongestionText;
use spanwire_host::registrar::{Registrar, Verbs};
use spanwire_host::seed;
use spanwire_host::window::{self, WindowChoice};
use spanwire_io::driver::Polling;
use spanwire_io::fork::Origin;
use spanwire_io::udp::UdpConfig;
use spanwire_io::worker::{self, Bell, Progress};
use spanwire_io::xdp::XdpPreference;
use spanwire_transport::{CongestionControl, Endpoint, ValidConfig};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;

/// The engine of a device: its workers, one for each completion vector.
pub(crate) struct Engine {
    pub(crate) interface: Interface,
    settings: &'static Settings,
    pub(crate) workers: Registrar<EngineWorker>,
    /// Held while the ports are opened; they are until the lease is dropped.
    lease: Mutex<Option<Lease>>,
    origin: Origin,
}

/// A worker of an engine, with its port or before it has one.
pub(crate) struct EngineWorker {
    /// `None` once it is attached.
    detached: Mutex<Option<Endpoint>>,
    attached: OnceLock<Attached>,
    origin: Origin,
}

/// A worker with its port.
pub(crate) struct Attached {
    pub(crate) worker: Arc<Worker>,
    pub(crate) terms: Terms,
    pub(crate) bursts: Bursts,
    thread: Option<JoinHandle<()>>,
}

impl EngineWorker {
    fn new(endpoint: Endpoint) -> Self {
        let (detached, origin) = (Mutex::new(Some(endpoint)), Origin::here());
        Self { detached, attached: OnceLock::new(), origin }
    }

    /// The worker with its port, once it has one.
    pub(crate) fn attached(&self) -> Option<&Attached> {
        self.attached.get()
    }

    /// Runs `call` with the endpoint, in the calling thread.
    ///
    /// # Errors
    /// `EIO`: the worker has ended, or this is a forked process.
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

    /// Gives it a port, whose worker has an endpoint in the place of its own. If the port has
    /// failed already, calls fail from now on.
    fn attach(&self, attached: Attached) {
        let mut detached = lock(&self.detached);
        let mut endpoint = detached.take().expect("detached until it is attached");
        attached.worker.with(|driven| std::mem::swap(driven, &mut endpoint));
        let attached = self.attached.set(attached);
        assert!(attached.is_ok(), "attached once");
    }
}

impl Verbs for EngineWorker {
    fn verb<R>(&self, call: impl FnOnce(&mut Endpoint) -> R) -> Option<R> {
        self.with(call).ok()
    }
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
        let (settings, origin) = (settings()?, Origin::here());
        let worker = |index| -> Result<EngineWorker, Error> {
            let config = ValidConfig::default().of_worker(index, settings.workers)?;
            Ok(EngineWorker::new(seed::endpoint(config)?))
        };
        let workers = (0..settings.workers).map(worker).collect::<Result<Vec<_>, _>>()?;
        let (interface, workers) = (interface.clone(), Registrar::new(workers));
        let engine =
            Arc::new(Self { interface, settings, workers, lease: Mutex::default(), origin });
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

    /// Its first worker with its port, once it has one; the others have the same terms.
    pub(crate) fn attached(&self) -> Option<&Attached> {
        self.workers[0].attached()
    }

    /// Says the counters of engine and port, if it was asked for.
    pub(crate) fn report(&self) {
        if self.settings.verbose && self.attached().is_some() {
            let workers = self.workers.iter().filter_map(EngineWorker::attached);
            let sums = sum_counters(workers.flat_map(|attached| counters(&attached.worker)));
            let seen = sums.iter().filter(|(_, n)| *n > 0);
            let seen: Vec<String> = seen.map(|(name, n)| format!("{name} {n}")).collect();
            say(&format!("{}: {}", self.interface.name, seen.join(", ")));
        }
    }

    /// Opens the ports, unless they are open.
    ///
    /// # Errors
    /// They cannot be opened: the number of the reason, which is also said on stderr.
    pub(crate) fn attach(&self) -> Result<(), Errno> {
        if !self.origin.is_here() {
            return Err(libc::EIO);
        }
        let mut lease = lock(&self.lease);
        if lease.is_none() {
            let taken = Lease::take(&self.interface);
            self.open().map_err(|e| self.failed(&*e))?;
            *lease = Some(taken);
        }
        Ok(())
    }

    /// Opens the ports and starts the workers, all or none.
    fn open(&self) -> Result<(), Error> {
        let (ports, config) = self.open_ports()?;
        let count = self.settings.workers;
        let bells = ports.iter().map(|_| worker::bell(Progress::Shared));
        let bells = bells.collect::<Result<Vec<_>, _>>()?;
        let qpns = config.of_worker(0, count)?.qpn_workers();
        let ports = Attachment::steered(ports, &bells, qpns).into_iter().zip(bells);
        let mut started = Vec::new();
        for ((port, bell), (worker, index)) in ports.zip(self.workers.iter().zip(0..)) {
            let config = config.of_worker(index, count)?;
            let of_worker = config.clone();
            worker
                .with(|endpoint| endpoint.reconfigure(of_worker))
                .map_err(|_| "it has ended")??;
            started.push((worker, start(port, bell, config)?));
        }
        started.into_iter().for_each(|(worker, attached)| worker.attach(attached));
        Ok(())
    }

    /// The port of each worker, and the configuration that fits them.
    fn open_ports(&self) -> Result<(Vec<Attachment>, ValidConfig), Error> {
        let Interface { name, address, .. } = &self.interface;
        let choice = WindowChoice::of(self.congestion().as_ref());
        let window = (choice == WindowChoice::Controlled).then_some(window::CC_WINDOW_PKTS);
        let xdp = window::port(name, 0, XdpPreference::Auto, window);
        let udp = UdpConfig { local: Some(IpAddr::V4(*address)), ..UdpConfig::new(name) };
        let wrap = Wrap { faults: self.settings.faults, pcap: None };
        let config = window::config(window, window::link_rate(name), None)?;
        let workers = self.settings.workers;
        let of = (workers, config.of_worker(0, workers)?.qpn_workers());
        let ports = Attachment::open_workers(self.settings.fabric, &xdp, &udp, &wrap, of)?;
        let attachment = ports.first().ok_or("no worker")?;
        let config = window::for_polling(attachment.fit(config, choice), Polling::Adaptive);
        if self.settings.verbose {
            let why = attachment.fallback.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            let cc =
                self.settings.congestion.as_ref().map_or("auto".to_owned(), ToString::to_string);
            let mode = self.settings.mode.name();
            let of = if workers > 1 { format!(", {workers} workers") } else { String::new() };
            say(&format!(
                "{name}, {address}: {}{why}{of}, mode {mode}, congestion control {cc}",
                attachment.mode_name()
            ));
        }
        Ok((ports, config))
    }

    fn failed(&self, e: &(dyn std::error::Error + Send + Sync + 'static)) -> Errno {
        say(&format!("{}: {e}", self.interface.name));
        errno::of(e)
    }
}

/// Starts a worker over a port, with an endpoint in the place of its own: that one is left as it is
/// until all ports are open, because the program has objects in it, and may try again.
fn start(port: Attachment, bell: Arc<Bell>, config: ValidConfig) -> Result<Attached, Error> {
    let Attachment { port, terms } = port;
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
    Ok(Attached { worker, terms, bursts: Bursts::default(), thread: Some(thread) })
}

/// The counters of engine, port and driver.
fn counters(worker: &Worker) -> Vec<(String, u64)> {
    let list = worker.with_engine(|core| {
        let mut list = core.node.counters().list();
        list.extend(core.port.counters());
        list.push(("worker_steps".to_owned(), core.driver().steps));
        list
    });
    list.unwrap_or_default()
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Acknowledgements that are due leave before the port is closed.
        self.worker.turn();
        self.worker.end("its last context was closed");
        if let Some(thread) = self.thread.take() {
            // It panicked: said on stderr by then.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // Threads and lease are the parent's.
            std::mem::forget(std::mem::replace(&mut self.workers, Registrar::new([])));
            std::mem::forget(std::mem::take(&mut self.lease));
        }
    }
}
