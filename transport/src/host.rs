//! An endpoint and the application on its core, as one node.

use crate::endpoint::Endpoint;
use spanwire_base::{Node, PortId, PortMask, RxMeta, Time, TxMeta};

/// An application that lives on the engine's core and runs to completion.
pub trait App {
    /// Called at the start, after completions arrived, and when [`App::poll_timeout`] is due. It
    /// polls its completion queues, posts what it wants and returns; it must not block.
    fn poll(&mut self, now: Time, endpoint: &mut Endpoint);

    /// When it wants to be called even if nothing completes.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

/// One host: an [`Endpoint`] and its [`App`].
#[derive(Debug)]
pub struct Host<A> {
    endpoint: Endpoint,
    app: A,
    started: bool,
}

impl<A: App> Host<A> {
    /// A host whose application has not run yet: its first call is the first `handle_timeout`.
    pub fn new(endpoint: Endpoint, app: A) -> Self {
        Self {
            endpoint,
            app,
            started: false,
        }
    }

    /// The engine.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// The application, to change.
    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// Both parts, for a world that wants to act on them between steps.
    pub fn parts_mut(&mut self) -> (&mut Endpoint, &mut A) {
        (&mut self.endpoint, &mut self.app)
    }

    /// Takes the host apart.
    pub fn into_parts(self) -> (Endpoint, A) {
        (self.endpoint, self.app)
    }

    fn run_app(&mut self, now: Time) {
        self.app.poll(now, &mut self.endpoint);
        // What the application's own posts completed (flushes) is its next call's.
    }
}

impl<A: App> Node for Host<A> {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: RxMeta) {
        self.endpoint.handle_packet(now, port, frame, meta);
        if self.endpoint.take_cq_event() {
            self.run_app(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        let due = self.app.poll_timeout().is_some_and(|t| t <= now);
        if !self.started || due || self.endpoint.take_cq_event() {
            self.started = true;
            self.run_app(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        self.endpoint.poll_transmit(now, port, frame)
    }

    fn poll_timeout(&self) -> Option<Time> {
        if !self.started || self.endpoint.has_cq_event() {
            return Some(Time::ZERO);
        }
        [self.endpoint.poll_timeout(), self.app.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn take_ready(&mut self) -> PortMask {
        self.endpoint.take_ready()
    }
}
