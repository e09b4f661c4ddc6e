//! The clients of a server that are not being served. One at a time is; the others are here, where
//! one that says nothing keeps nobody out.

use super::{Attended, Guest, Station};
use crate::dial::accept;
use crate::fabric::Error;
use crate::oob::{Oob, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

/// A listener and those who came.
pub struct Room {
    listener: TcpListener,
    /// In the order in which they are attended.
    guests: VecDeque<Guest>,
    address: Option<IpAddr>,
}

/// What happened in the room.
pub enum Event {
    /// This one asks for a job.
    Asks(Guest, Request),
    /// This one is gone, in good order or not.
    Gone(Guest, Result<(), Error>),
}

impl Room {
    /// A room for those who connect to `listener`, to whom our RoCE address is `address`, or the
    /// one that they have connected to.
    #[must_use]
    pub fn new(listener: TcpListener, address: Option<IpAddr>) -> Self {
        Self { listener, guests: VecDeque::new(), address }
    }

    /// Waits for what happens next, at most [`STOP_SEEN_WITHIN`].
    ///
    /// # Errors
    /// The listener is broken.
    pub fn next(&mut self, station: &mut Station) -> Result<Option<Event>, Error> {
        self.admit()?;
        if let Some(event) = self.attend(station) {
            return Ok(Some(event));
        }
        self.wait();
        Ok(None)
    }

    /// Takes one back that was served.
    pub fn take_back(&mut self, guest: Guest) {
        self.guests.push_back(guest);
    }

    /// Lets in whoever stands at the door.
    fn admit(&mut self) -> Result<(), Error> {
        while let Some((stream, from)) = accept(&self.listener)? {
            let from = from.ip().to_canonical();
            // One that has left meanwhile has no addresses any more.
            let Ok(guest) = self.guest(stream) else { continue };
            match self.make_room(from) {
                Ok(()) => self.guests.push_back(guest),
                Err(why) => guest.refuse(&why),
            }
        }
        Ok(())
    }

    fn guest(&self, stream: TcpStream) -> Result<Guest, Error> {
        let us = self.address.unwrap_or(stream.local_addr()?.ip().to_canonical());
        Ok(Guest::new(Oob::tcp(stream)?, us))
    }

    /// Makes room for one more from `address`: where there is none, the one that has been silent
    /// for longest has to go. Who has said hello stays.
    fn make_room(&mut self, address: IpAddr) -> Result<(), String> {
        let is_from = |g: &Guest| g.address() == Some(address);
        let from_there = self.guests.iter().filter(|g| is_from(g)).count();
        let full_of_them = from_there >= GUESTS_PER_ADDRESS_MAX;
        if !full_of_them && self.guests.len() < GUESTS_MAX {
            return Ok(());
        }
        let may_go = |g: &Guest| !g.is_known() && (!full_of_them || is_from(g));
        let silent = (0..self.guests.len()).filter(|i| may_go(&self.guests[*i]));
        match silent.min_by_key(|i| self.guests[*i].since()) {
            Some(oldest) => {
                // It is not answered: it has never said anything.
                drop(self.guests.remove(oldest));
                Ok(())
            }
            None => Err(format!(
                "too many clients wait here: {from_there} of {GUESTS_PER_ADDRESS_MAX} from \
                 {address}, {} of {GUESTS_MAX} in all",
                self.guests.len()
            )),
        }
    }

    /// Hears everybody once, or until something happens; the next time begins behind that one.
    fn attend(&mut self, station: &mut Station) -> Option<Event> {
        for _ in 0..self.guests.len() {
            let mut guest = self.guests.pop_front()?;
            match station.listen_to(&mut guest) {
                Ok(Attended::Waits) => self.guests.push_back(guest),
                Ok(Attended::Asks(request)) => return Some(Event::Asks(guest, request)),
                Ok(Attended::Left) => return Some(Event::Gone(guest, Ok(()))),
                Err(why) => return Some(Event::Gone(guest, Err(why))),
            }
        }
        None
    }

    /// Waits until somebody comes or says something.
    fn wait(&self) {
        let mut all: Vec<_> = vec![PollFd::new(&self.listener, PollFlags::IN)];
        all.extend(self.guests.iter().map(|g| PollFd::new(g, PollFlags::IN)));
        let timeout = Timespec::try_from(STOP_SEEN_WITHIN).ok();
        // A signal is no error, and what is wrong with a connection is seen when it is read from.
        let _ = poll(&mut all, timeout.as_ref());
    }
}

/// How soon a server that waits sees that it should stop.
pub const STOP_SEEN_WITHIN: Duration = Duration::from_millis(100);

/// Clients that may be here at a time: each has up to 1 MiB to say something in.
const GUESTS_MAX: usize = 64;

/// Those from one address. A machine that runs several measurements at once has a few.
const GUESTS_PER_ADDRESS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Attachment, Wrap};
    use crate::oob::{Hello, LINE_BYTES_MAX, Message, Modes, OobError, REPLY_TIMEOUT, VERSION};
    use spanwire_io::driver::Polling;
    use std::net::Ipv4Addr;
    use std::time::Instant;

    const US: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A server and its room; the other end of the pipe stays where it is.
    struct Rig {
        room: Room,
        station: Station,
        _other_end: Attachment,
    }

    impl Rig {
        fn new() -> Self {
            let (ours, other_end) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
            let listener = TcpListener::bind((US, 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            let station = Station::new(ours, US, Polling::Busy).unwrap();
            Self { room: Room::new(listener, None), station, _other_end: other_end }
        }

        fn connect(&self) -> Oob {
            Oob::tcp(TcpStream::connect(self.room.listener.local_addr().unwrap()).unwrap()).unwrap()
        }

        /// Runs the room until it has said something, for a while.
        fn event(&mut self) -> Option<Event> {
            let start = Instant::now();
            while start.elapsed() < REPLY_TIMEOUT {
                if let Some(event) = self.room.next(&mut self.station).unwrap() {
                    return Some(event);
                }
            }
            None
        }

        /// Runs the room until everybody has been heard.
        fn settle(&mut self) {
            for _ in 0..5 {
                assert!(self.room.next(&mut self.station).unwrap().is_none());
            }
        }
    }

    fn hello(ip: IpAddr) -> Message {
        let modes = Modes::default();
        let side_poll_port = None;
        Message::Hello(Hello { version: VERSION, ip, path_mtu: 1024, side_poll_port, modes })
    }

    fn is_refused(oob: &mut Oob, words: &str) -> bool {
        matches!(oob.recv(REPLY_TIMEOUT), Err(OobError::Rejected(why)) if why.contains(words))
    }

    #[test]
    fn next__one_that_speaks_is_heard_among_those_that_do_not() {
        let mut rig = Rig::new();
        let silent: Vec<_> = (0..GUESTS_PER_ADDRESS_MAX * 2).map(|_| rig.connect()).collect();
        let mut client = rig.connect();
        client.send(&hello(US)).unwrap();
        rig.settle();
        assert!(matches!(client.recv(REPLY_TIMEOUT), Ok(Message::Hello(_))));
        assert_eq!(rig.room.guests.len(), GUESTS_PER_ADDRESS_MAX);
        drop(silent);
    }

    #[test]
    fn next__those_who_have_said_hello_are_not_driven_out() {
        let mut rig = Rig::new();
        let mut known: Vec<_> = (0..GUESTS_PER_ADDRESS_MAX).map(|_| rig.connect()).collect();
        for client in &mut known {
            client.send(&hello(US)).unwrap();
        }
        rig.settle();
        let mut late = rig.connect();
        rig.settle();
        assert!(is_refused(&mut late, "too many clients wait here: 16 of 16 from 127.0.0.1"));
        for client in &mut known {
            assert!(matches!(client.recv(REPLY_TIMEOUT), Ok(Message::Hello(_))));
        }
    }

    #[test]
    fn next__an_address_that_was_not_shown_is_refused_unless_any_is_taken() {
        let mut rig = Rig::new();
        let elsewhere = Ipv4Addr::new(10, 77, 0, 9).into();
        let mut client = rig.connect();
        client.send(&hello(elsewhere)).unwrap();
        assert!(matches!(rig.event(), Some(Event::Gone(guest, Err(_))) if guest.has_spoken()));
        assert!(is_refused(&mut client, "connected from 127.0.0.1 wants its packets at 10.77.0.9"));
        rig.station.take_any_address();
        let mut client = rig.connect();
        client.send(&hello(elsewhere)).unwrap();
        rig.settle();
        assert!(matches!(client.recv(REPLY_TIMEOUT), Ok(Message::Hello(_))));
    }

    #[test]
    fn next__a_stranger_does_not_get_to_fill_memory() {
        let mut rig = Rig::new();
        let mut stream = TcpStream::connect(rig.room.listener.local_addr().unwrap()).unwrap();
        let flood = std::thread::spawn(move || {
            // The server hangs up in the middle of it.
            let _ = std::io::Write::write_all(&mut stream, &vec![b'x'; LINE_BYTES_MAX]);
        });
        let Some(Event::Gone(guest, Err(why))) = rig.event() else { panic!("it is sent away") };
        assert!(why.to_string().contains("a line above 16384 bytes"), "{why}");
        assert!(guest.has_spoken() && !guest.is_known());
        drop(guest);
        flood.join().unwrap();
    }

    #[test]
    fn next__one_that_comes_and_goes_has_not_spoken() {
        let mut rig = Rig::new();
        drop(rig.connect());
        assert!(matches!(rig.event(), Some(Event::Gone(guest, Err(_))) if !guest.has_spoken()));
    }
}
