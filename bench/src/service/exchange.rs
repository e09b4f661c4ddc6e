//! The two applications: a client that sends requests and verifies replies, and a server. Each is
//! the same for every transport, which calls it for each message.

use super::case::Load;
use super::content::{digest, fill_reply, fill_request, is_reply};
use super::schedule::Schedule;
use super::task::{Budget, EndReport};
use crate::rtt::Trips;
use crate::sample::Error;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// An application at one end of some connections.
pub(super) trait Application {
    /// Bytes of a message received, and of one sent.
    fn message_bytes(&self) -> (usize, usize);

    /// Writes the next message that `connection` sends now without having received one. False if
    /// there is none.
    fn first(&mut self, connection: usize, out: &mut [u8]) -> bool;

    /// Handles a message, and writes the next one to send. False if there is none.
    fn on_message(
        &mut self,
        connection: usize,
        message: &[u8],
        out: &mut [u8],
    ) -> Result<bool, Error>;

    /// When the next message of `first` is due, if that is a matter of time.
    fn wakes_at(&self) -> Option<Instant> {
        None
    }

    /// The other end has finished sending on `connection`.
    fn on_end(&mut self, connection: usize) -> Result<(), Error>;

    /// A message is due on `connection`, or its end.
    fn expects(&self, connection: usize) -> bool;

    /// Nothing is due on any connection.
    fn is_done(&self) -> bool;
}

/// The client.
#[derive(Debug)]
pub(super) struct Client {
    load: Load,
    budget: Budget,
    /// Requests without a reply, by connection, the oldest first.
    pending: Vec<VecDeque<Pending>>,
    outstanding: usize,
    sent: u64,
    /// Of an open loop, once it has begun.
    schedule: Option<Schedule>,
    verified: u64,
    started: Instant,
    measurement: Option<Measurement>,
    is_over: bool,
}

/// A request without a reply.
#[derive(Clone, Copy, Debug)]
struct Pending {
    digest: u64,
    /// When it was due, in an open loop.
    sent_at: Instant,
}

/// The part of a run after the warm-up.
#[derive(Debug)]
struct Measurement {
    since: Instant,
    until: Instant,
    cpu_since: Duration,
    cpu_until: Duration,
    requests: u64,
    trips: Trips,
}

/// The server.
#[derive(Debug)]
pub(super) struct Server {
    load: Load,
    is_open: Vec<bool>,
    open: usize,
    replies: u64,
    /// Processor time at the first request, and at the first end of a connection.
    cpu: [Option<Duration>; 2],
}

impl Client {
    pub(super) fn new(load: Load, budget: Budget) -> Self {
        Self {
            load,
            budget,
            pending: vec![VecDeque::with_capacity(load.outstanding); load.connections],
            outstanding: 0,
            sent: 0,
            schedule: None,
            verified: 0,
            started: Instant::now(),
            measurement: None,
            is_over: false,
        }
    }

    /// Writes the next request; false if the run is over.
    fn next(&mut self, connection: usize, request: &mut [u8]) -> bool {
        if self.are_all_sent() {
            return false;
        }
        fill_request(self.sent, request);
        let digest = digest(request);
        let sent_at = self.schedule.map_or_else(Instant::now, |due| due.at(self.sent));
        self.sent += 1;
        self.outstanding += 1;
        self.pending[connection].push_back(Pending { digest, sent_at });
        true
    }

    fn are_all_sent(&self) -> bool {
        self.is_over || self.budget.requests.is_some_and(|most| self.sent >= most)
    }

    /// Records a verified reply to a request of `sent_at`.
    fn record(&mut self, sent_at: Instant) {
        let now = Instant::now();
        let is_warm = now - self.started >= self.budget.warm_up();
        let (budget, sent, outstanding) = (self.budget, self.sent, self.outstanding);
        match &mut self.measurement {
            None if is_warm => self.measurement = Some(Measurement::start(now)),
            None => {}
            Some(measured) => {
                measured.requests += 1;
                measured.trips.record(now - sent_at);
                measured.until = now;
                self.is_over |= match budget.requests {
                    Some(most) => sent >= most,
                    None => now - measured.since >= budget.time(),
                };
                if self.is_over && outstanding == 0 {
                    measured.cpu_until = cpu_time();
                }
            }
        }
    }

    /// The report of a run whose requests all have their replies.
    pub(super) fn report(self) -> Result<EndReport, Error> {
        let measured = self.measurement.filter(|measured| measured.requests > 0);
        let measured = measured.ok_or("no request was measured")?;
        Ok(EndReport {
            count: self.verified,
            measured: measured.requests,
            seconds: (measured.until - measured.since).as_secs_f64(),
            cpu_us: micros(measured.cpu_until.saturating_sub(measured.cpu_since)),
            latency: Some(measured.trips.latency()?),
            schedule_cpu_us: self.schedule.map(Schedule::own_cpu_us).transpose()?,
        })
    }
}

impl Measurement {
    fn start(now: Instant) -> Self {
        let (cpu_since, cpu_until) = (cpu_time(), Duration::ZERO);
        let trips = Trips::default();
        Self { since: now, until: now, cpu_since, cpu_until, requests: 0, trips }
    }
}

impl Application for Client {
    fn message_bytes(&self) -> (usize, usize) {
        (self.load.reply_bytes, self.load.request_bytes)
    }

    fn first(&mut self, connection: usize, out: &mut [u8]) -> bool {
        if self.budget.requests.is_some() && self.measurement.is_none() {
            // A number of requests has no warm-up.
            self.measurement = Some(Measurement::start(Instant::now()));
        }
        if self.schedule.is_none() {
            self.schedule = self.load.per_s.map(Schedule::start);
        }
        let is_due = self.schedule.is_none_or(|due| due.at(self.sent) <= Instant::now());
        let has_room = self.pending[connection].len() < self.load.outstanding;
        has_room && is_due && self.next(connection, out)
    }

    fn wakes_at(&self) -> Option<Instant> {
        let has_room = self.outstanding < self.load.outstanding && !self.are_all_sent();
        self.schedule.filter(|_| has_room).map(|due| due.at(self.sent))
    }

    fn on_message(
        &mut self,
        connection: usize,
        message: &[u8],
        out: &mut [u8],
    ) -> Result<bool, Error> {
        let number = self.verified;
        let Some(Pending { digest, sent_at }) = self.pending[connection].pop_front() else {
            return Err(format!("reply {number} has no request").into());
        };
        if message.len() != self.load.reply_bytes || !is_reply(digest, message) {
            let bytes = message.len();
            return Err(
                format!("reply {number} of {bytes} bytes is not that of its request").into()
            );
        }
        self.outstanding -= 1;
        self.verified += 1;
        self.record(sent_at);
        Ok(self.schedule.is_none() && self.next(connection, out))
    }

    fn on_end(&mut self, _: usize) -> Result<(), Error> {
        Err(format!("the server ended with {} requests outstanding", self.outstanding).into())
    }

    fn expects(&self, connection: usize) -> bool {
        !self.pending[connection].is_empty() || self.wakes_at().is_some()
    }

    fn is_done(&self) -> bool {
        self.outstanding == 0 && (self.schedule.is_none() || self.are_all_sent())
    }
}

impl Server {
    pub(super) fn new(load: Load) -> Self {
        let (is_open, open) = (vec![true; load.connections], load.connections);
        Self { load, is_open, open, replies: 0, cpu: [None; 2] }
    }

    pub(super) fn report(self) -> Result<EndReport, Error> {
        let [Some(since), Some(until)] = self.cpu else { return Err("no request arrived".into()) };
        let cpu_us = micros(until.saturating_sub(since));
        let count = self.replies;
        Ok(EndReport { count, measured: count, cpu_us, ..EndReport::default() })
    }
}

impl Application for Server {
    fn message_bytes(&self) -> (usize, usize) {
        (self.load.request_bytes, self.load.reply_bytes)
    }

    fn first(&mut self, _: usize, _: &mut [u8]) -> bool {
        false
    }

    fn on_message(&mut self, _: usize, message: &[u8], out: &mut [u8]) -> Result<bool, Error> {
        if self.replies == 0 {
            self.cpu[0] = Some(cpu_time());
        }
        if message.len() != self.load.request_bytes {
            return Err(format!("request {} has {} bytes", self.replies, message.len()).into());
        }
        self.replies += 1;
        fill_reply(digest(message), out);
        Ok(true)
    }

    fn on_end(&mut self, connection: usize) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_open[connection], false) {
            self.cpu[1].get_or_insert_with(cpu_time);
            self.open -= 1;
        }
        Ok(())
    }

    fn expects(&self, connection: usize) -> bool {
        self.is_open[connection]
    }

    fn is_done(&self) -> bool {
        self.open == 0
    }
}

/// User and system time of all threads of this process.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

pub(super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load =
        Load { request_bytes: 64, reply_bytes: 128, connections: 2, outstanding: 3, per_s: None };
    const FIVE: Budget = Budget { ms: 0, requests: Some(5) };

    /// Requests of a new client, by connection.
    fn first(client: &mut Client) -> Vec<(usize, Vec<u8>)> {
        let mut requests = Vec::new();
        for connection in 0..LOAD.connections {
            let mut request = vec![0; LOAD.request_bytes];
            while client.first(connection, &mut request) {
                requests.push((connection, request.clone()));
            }
        }
        requests
    }

    #[test]
    fn client__sends_its_requests_and_counts_verified_replies() {
        let (mut client, mut server) = (Client::new(LOAD, FIVE), Server::new(LOAD));
        let requests = first(&mut client);
        let connections: Vec<usize> = requests.iter().map(|(connection, _)| *connection).collect();
        assert_eq!(connections, [0, 0, 0, 1, 1]);
        let mut out = [0; 128];
        for (n, (connection, request)) in requests.iter().enumerate() {
            assert!(client.expects(*connection) && !client.is_done());
            assert!(server.on_message(*connection, request, &mut out).unwrap());
            // Five were all.
            let is_another = client.on_message(*connection, &out, &mut [0; 64]).unwrap();
            assert!(!is_another, "{n}");
        }
        assert!(client.is_done() && !client.expects(0));
        let report = client.report().unwrap();
        assert_eq!((report.count, report.measured), (5, 5));
        assert!(!server.is_done());
        for connection in [0, 1, 1] {
            server.on_end(connection).unwrap();
        }
        assert!(server.is_done());
        assert_eq!(server.report().unwrap().count, 5);
    }

    #[test]
    fn client__of_an_open_loop_sends_when_it_is_time_and_not_upon_a_reply() {
        // The second request is due after a day.
        let load = Load { connections: 1, per_s: Some(1), ..LOAD };
        let mut client = Client::new(load, Budget { ms: 0, requests: Some(90_000) });
        let mut request = [0; 64];
        assert!(client.first(0, &mut request) && !client.first(0, &mut request));
        let (mut reply, sent_at) = ([0; 128], client.pending[0][0].sent_at);
        assert_eq!(sent_at, client.schedule.unwrap().at(0));
        assert_eq!(client.wakes_at(), Some(client.schedule.unwrap().at(1)));
        Server::new(load).on_message(0, &request, &mut reply).unwrap();
        assert!(!client.on_message(0, &reply, &mut request).unwrap());
        assert!(client.expects(0) && !client.is_done(), "it waits for the next one");
        // A day late, as many as may be outstanding are sent at once, and wait for replies.
        client.schedule = Some(client.schedule.unwrap().earlier(Duration::from_secs(86_400)));
        assert_eq!((0..9).filter(|_| client.first(0, &mut request)).count(), 3);
        assert_eq!(client.wakes_at(), None);
        let waited = client.pending[0][0].sent_at.elapsed();
        assert!(waited > Duration::from_secs(80_000), "latency begins when it was due: {waited:?}");
    }

    #[test]
    fn client__a_wrong_reply_is_an_error() {
        let replied = |change: fn(&mut Vec<u8>)| {
            let (mut client, mut server) = (Client::new(LOAD, FIVE), Server::new(LOAD));
            let requests = first(&mut client);
            let mut reply = vec![0; LOAD.reply_bytes];
            server.on_message(0, &requests[0].1, &mut reply).unwrap();
            change(&mut reply);
            client.on_message(0, &reply, &mut [0; 64])
        };
        assert!(replied(|_| {}).is_ok());
        let changes: [fn(&mut Vec<u8>); 2] = [|reply| reply[127] ^= 1, |reply| reply.truncate(64)];
        for change in changes {
            let why = replied(change).unwrap_err().to_string();
            assert!(why.contains("reply 0") && why.contains("is not that of its request"), "{why}");
        }
    }

    #[test]
    fn client__replies_in_another_order_or_without_a_request_are_errors() {
        let (mut client, mut server) = (Client::new(LOAD, FIVE), Server::new(LOAD));
        let requests = first(&mut client);
        let mut second = [0; 128];
        server.on_message(0, &requests[1].1, &mut second).unwrap();
        assert!(client.on_message(0, &second, &mut [0; 64]).is_err());
        let mut idle = Client::new(LOAD, FIVE);
        let why = idle.on_message(1, &second, &mut [0; 64]).unwrap_err().to_string();
        assert!(why.contains("has no request"), "{why}");
        assert!(idle.report().is_err());
    }

    #[test]
    fn server__an_incomplete_request_is_an_error() {
        let mut server = Server::new(LOAD);
        assert!(server.on_message(0, &[0; 63], &mut [0; 128]).is_err());
    }

    #[test]
    fn cpu_time__only_grows() {
        let before = cpu_time();
        assert!(cpu_time() >= before && !before.is_zero());
    }
}
