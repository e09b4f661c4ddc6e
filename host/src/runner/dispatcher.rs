//! The dispatcher of a server with several workers: it reads the first message of each client,
//! which says the worker that the client wants.

use super::acceptor::PENDING_MAX;
use super::{Acceptor, HELLO_TIMEOUT, JobRunner, PendingClient};
use crate::cores::on_each;
use crate::fabric::Error;
use crate::oob::WorkerOf;
use spanwire_base::u32_from;
use spanwire_io::event::EventFd;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Instant;

/// Passes the clients of a listener to the acceptors of workers.
struct Dispatcher {
    acceptor: Acceptor,
    inboxes: Vec<(SyncSender<PendingClient>, Arc<EventFd>)>,
}

impl Dispatcher {
    /// A dispatcher for clients of `listener`, and an acceptor for each of `workers` workers. Our
    /// RoCE address is `address`, or the one that each client has connected to.
    ///
    /// # Errors
    /// There are no descriptors left.
    fn new(
        listener: TcpListener,
        address: Option<IpAddr>,
        workers: u32,
    ) -> Result<(Self, Vec<Acceptor>), Error> {
        let (mut inboxes, mut acceptors) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let event = Arc::new(EventFd::new()?);
            let (sender, inbox) = sync_channel(PENDING_MAX);
            acceptors.push(Acceptor::of_worker(inbox, Arc::clone(&event)));
            inboxes.push((sender, event));
        }
        Ok((Self { acceptor: Acceptor::new(listener, address), inboxes }, acceptors))
    }

    /// Passes clients on until `stop` returns true. Worker `i` of a client meets the one of the
    /// same index here, modulo their number. With `one_off` it ends once every worker of the first
    /// client has been passed on, or some seconds after its first one: it may have gone. The
    /// acceptors are closed then.
    ///
    /// # Errors
    /// The listener is broken.
    fn run(mut self, one_off: bool, stop: impl Fn() -> bool) -> Result<(), Error> {
        let (mut passed, mut expected) = (0, None::<(u32, Instant)>);
        let is_whole = |passed: u32, (workers, since): (u32, Instant)| {
            passed >= workers || since.elapsed() >= HELLO_TIMEOUT
        };
        while !stop() && !expected.is_some_and(|expected| is_whole(passed, expected)) {
            self.acceptor.accept_pending()?;
            for _ in 0..self.acceptor.clients().len() {
                let Some(mut client) = self.acceptor.clients().pop_front() else { break };
                if !client.has_arrived() {
                    self.acceptor.put_back(client);
                    continue;
                }
                let hello = client.hello().map(|hello| hello.worker);
                if let Some(of) = hello.filter(|_| one_off) {
                    passed += 1;
                    expected.get_or_insert((of.workers, Instant::now()));
                }
                self.pass(client, hello.unwrap_or_default());
            }
            self.acceptor.wait(None);
        }
        Ok(())
    }

    /// Passes `client` to the worker for `wanted`. The worker also reports what a client without
    /// hello did wrong.
    fn pass(&self, client: PendingClient, wanted: WorkerOf) {
        let index = wanted.index as usize % self.inboxes.len();
        let (inbox, event) = &self.inboxes[index];
        match inbox.try_send(client) {
            Ok(()) => event.signal(),
            Err(TrySendError::Full(client)) => {
                client.refuse(&format!("too many clients wait for worker {index} here"));
            }
            // The worker has ended, and the process is about to.
            Err(TrySendError::Disconnected(client)) => client.refuse("the server ends"),
        }
    }
}

/// Serves the clients of `listener` by the workers of `runners`, each in a thread on its core,
/// until `stop` returns true. `serve` serves those of one acceptor. With `one_off` acceptors are
/// closed after the first client. A single worker listens itself.
///
/// # Errors
/// Of `serve`, or the listener is broken.
pub fn serve_all(
    runners: Vec<JobRunner>,
    cores: &[Option<usize>],
    listener: (TcpListener, Option<IpAddr>),
    one_off: bool,
    stop: &(impl Fn() -> bool + Sync),
    serve: impl Fn(usize, JobRunner, Acceptor, &dyn Fn() -> bool) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let (listener, address) = listener;
    let workers = u32_from(runners.len());
    let (dispatcher, acceptors) = match workers {
        1 => (None, vec![Acceptor::new(listener, address)]),
        _ => {
            let (dispatcher, acceptors) = Dispatcher::new(listener, address, workers)?;
            (Some(dispatcher), acceptors)
        }
    };
    let have_ended = AtomicBool::new(false);
    let is_over = || stop() || have_ended.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let dispatching = dispatcher.map(|it| scope.spawn(|| it.run(one_off, is_over)));
        let items = runners.into_iter().zip(acceptors);
        let served = on_each(cores, items, stop, |worker, (runner, acceptor), stop| {
            serve(worker, runner, acceptor, stop)
        });
        have_ended.store(true, Ordering::Relaxed);
        let dispatched = dispatching
            .map_or(Ok(()), |it| it.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        served.and(dispatched)
    })
}
