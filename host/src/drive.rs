//! An application on a worker's endpoint for a while.

use spanwire_io::driver::DriverCounters;
use spanwire_io::fork::HereOnly;
use spanwire_io::port::Port;
use spanwire_io::worker::Worker;
use spanwire_transport::{App, Endpoint, Host};

/// Runs `app` in the calling thread until `stop` returns true. Returns the worker and the
/// application, or why the worker has ended. `stop` is called before every step, and at least every
/// 100 ms.
pub fn drive<A: App, P: Port>(
    worker: Worker<Endpoint, P>,
    app: A,
    mut stop: impl FnMut(&mut Host<A>, &DriverCounters) -> bool,
) -> (Worker<Endpoint, P>, Result<A, String>) {
    let worker = hosting(worker, app);
    let stopped = worker.wait_for(None, |core| {
        let counters = core.driver();
        stop(&mut core.node, &counters).then_some(())
    });
    let (worker, app) = parted(worker);
    let app =
        stopped.and(app).ok_or_else(|| worker.why().unwrap_or("the worker has ended").to_owned());
    (worker, app)
}

/// The worker with `app` on its endpoint.
pub(crate) fn hosting<A: App, P: Port>(worker: Worker<Endpoint, P>, app: A) -> Worker<Host<A>, P> {
    worker
        .map(|core| HereOnly::new(core.into_inner().with_node(|endpoint| Host::new(endpoint, app))))
}

/// The worker without its application; `None` for it once the worker has ended.
pub(crate) fn parted<A: App, P: Port>(
    worker: Worker<Host<A>, P>,
) -> (Worker<Endpoint, P>, Option<A>) {
    let mut app = None;
    let worker = worker.map(|core| {
        HereOnly::new(core.into_inner().with_node(|host| {
            let (endpoint, done) = host.into_parts();
            app = Some(done);
            endpoint
        }))
    });
    (worker, app)
}
