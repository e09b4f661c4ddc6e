//! An endpoint and the application on its core, as one node.

use crate::endpoint::Endpoint;
use spanwire_base::{Awaited, Node, PortId, PortMask, RxMeta, Time, TxBurst, TxMeta};

/// An application on the engine's core, which runs to completion.
pub trait App {
    /// Called at the start, after completions or asynchronous events were added, and when
    /// [`App::poll_timeout`] is due. It polls completions, posts requests and returns; it must not
    /// block.
    fn poll(&mut self, now: Time, endpoint: &mut Endpoint);

    /// The time of the next call, even if nothing completes.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Another thread has published something for it.
    fn handle_ring(&mut self, _endpoint: &mut Endpoint) {}

    /// True if it has nothing left to do: its worker ends.
    fn is_finished(&self) -> bool {
        false
    }

    /// Ends all work because of `why`: its worker ends.
    fn end(&mut self, _endpoint: &mut Endpoint, _why: &str) {}
}

/// One host: an [`Endpoint`] and its [`App`].
#[derive(Debug)]
pub struct Host<A> {
    endpoint: Endpoint,
    app: A,
    started: bool,
}

impl<A: App> Host<A> {
    /// Creates a host. Its first `handle_timeout` starts the application.
    pub fn new(endpoint: Endpoint, app: A) -> Self {
        Self { endpoint, app, started: false }
    }

    /// The engine.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// The application, mutable.
    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// Endpoint and application, for a simulation that acts on them between steps.
    pub fn parts_mut(&mut self) -> (&mut Endpoint, &mut A) {
        (&mut self.endpoint, &mut self.app)
    }

    /// Takes the host apart.
    pub fn into_parts(self) -> (Endpoint, A) {
        (self.endpoint, self.app)
    }

    fn run_app(&mut self, now: Time) {
        self.app.poll(now, &mut self.endpoint);
        // Completions of the application's own posts (flushes) are left to its next call.
    }
}

impl<A: App> Node for Host<A> {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        self.endpoint.handle_packet(now, port, frame, meta);
        if self.endpoint.take_app_events() {
            self.run_app(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        let due = self.app.poll_timeout().is_some_and(|t| t <= now);
        if !self.started || due || self.endpoint.take_app_events() {
            self.started = true;
            self.run_app(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        self.endpoint.poll_transmit(now, port, frame)
    }

    fn transmit_burst(&mut self, now: Time, port: PortId, burst: &mut dyn TxBurst) -> bool {
        self.endpoint.transmit_burst(now, port, burst)
    }

    fn poll_timeout(&self) -> Option<Time> {
        if !self.started || self.endpoint.has_app_events() {
            return Some(Time::ZERO);
        }
        [self.endpoint.poll_timeout(), self.app.poll_timeout()].into_iter().flatten().min()
    }

    fn awaited(&mut self) -> Awaited {
        self.endpoint.awaited()
    }

    fn handle_ring(&mut self) {
        self.app.handle_ring(&mut self.endpoint);
    }

    fn is_finished(&self) -> bool {
        self.app.is_finished()
    }

    fn end(&mut self, why: &str) {
        self.app.end(&mut self.endpoint, why);
    }

    fn take_ready(&mut self) -> PortMask {
        self.endpoint.take_ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use spanwire_base::Dur;

    #[derive(Debug, Default)]
    struct Clockwork {
        calls: Vec<Time>,
        wakes: Option<Time>,
    }

    impl App for Clockwork {
        fn poll(&mut self, now: Time, _: &mut Endpoint) {
            self.calls.push(now);
            self.wakes = (self.calls.len() < 2).then(|| now + Dur::from_us(5));
        }

        fn poll_timeout(&self) -> Option<Time> {
            self.wakes
        }
    }

    #[test]
    fn handle_timeout__starts_the_application_once_and_then_when_it_is_due() {
        let config = Config::default().validate().unwrap();
        let mut host = Host::new(Endpoint::new(config, [1; 32]), Clockwork::default());
        assert_eq!(host.poll_timeout(), Some(Time::ZERO), "not started yet");
        let start = Time::from_ns(100);
        host.handle_timeout(start);
        let due = start + Dur::from_us(5);
        assert_eq!(host.poll_timeout(), Some(due));
        host.handle_timeout(start + Dur::from_us(4));
        assert_eq!(host.app().calls, [start]);
        host.handle_timeout(due);
        assert_eq!(host.app().calls, [start, due]);
        assert_eq!(host.poll_timeout(), None, "nothing to wait for");
    }
}
