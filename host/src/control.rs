//! The control socket of a running switch: requests of other processes, and their replies.
//!
//! One request per connection, a line of JSON. The switch writes a line before it serves the
//! request, and the reply after that. A client that gives up shuts its connection down first, and
//! the kernel orders both: either the switch cannot write the line and drops the request, or the
//! client finds it. So nothing changes after a client has reported that nothing was changed.
//!
//! A thread of its own serves the connections, so that the forwarding loop never waits; the loop
//! only polls for a pending request.

mod clients;
mod request;

pub use request::{PendingRequest, Reply, Request};

use crate::fabric::Error;
use clients::Clients;
use request::BEGUN;
use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// The control socket of this process. Dropping it removes the file.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    requests: Receiver<PendingRequest>,
}

impl Control {
    /// Listens at `path`, for the same user only.
    ///
    /// # Errors
    /// Another switch listens there, the path is something else, or it cannot be made.
    pub fn listen(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        clear(path).map_err(|e| format!("--socket {shown}: {e}"))?;
        let bind = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            // On Linux the file gets the mode of its socket, less the umask. So the file never
            // exists with another mode.
            rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            socket.bind(&SockAddr::unix(path)?)?;
            socket.listen(BACKLOG)?;
            Ok(UnixListener::from(OwnedFd::from(socket)))
        };
        let listener = bind().map_err(|e: io::Error| format!("--socket {shown}: {e}"))?;
        let (sender, requests) = sync_channel(1);
        listener.set_nonblocking(true)?;
        let clients = Clients::new(listener, sender);
        std::thread::Builder::new().name("control".to_owned()).spawn(move || clients.run())?;
        Ok(Self { path: path.to_owned(), requests })
    }

    /// The next request, if one is pending. If none is, the cost is one poll of a channel. The
    /// request must be served now.
    #[must_use]
    pub fn poll(&self) -> Option<PendingRequest> {
        // Dropping a request whose client has given up ends its connection.
        self.requests.try_recv().ok().filter(PendingRequest::begin)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Sends `request` to the switch at `path` and returns its reply.
///
/// # Errors
/// No process listens there, or the process is not a switch. A rejection is in the reply. If the
/// switch does not serve the request within `timeout`, it never will.
pub fn ask(path: &Path, request: &Request, timeout: Duration) -> io::Result<Reply> {
    let stream = connect(path, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    let mut reader = BufReader::new((&stream).take(REPLY_BYTES_MAX));
    let mut reply = Vec::new();
    let mut read = |reply: &mut Vec<u8>| read_line(&mut reader, reply);
    if let Err(e) = (&stream).write_all(&line).and_then(|()| read(&mut reply)) {
        // An error means that the switch has closed the connection.
        let _ = stream.shutdown(Shutdown::Both);
        // Finds what the switch wrote before.
        if read(&mut reply).is_err() {
            return Err(failed(&e, timeout, NOTHING));
        }
    }
    if reply == BEGUN {
        reply.clear();
        read(&mut reply).map_err(|e| failed(&e, timeout, "but the changes may have been made"))?;
    }
    Ok(serde_json::from_slice(&reply)?)
}

/// The error of a request that failed by `e`, and `so` says with what effect.
fn failed(e: &io::Error, timeout: Duration, so: &str) -> io::Error {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            io::Error::new(ErrorKind::TimedOut, format!("no reply within {timeout:?}, {so}"))
        }
        kind => io::Error::new(kind, format!("{e}, {so}")),
    }
}

/// Connects within `timeout`: it takes long if many clients wait.
fn connect(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(timeout))?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Err(failed(&e, timeout, NOTHING)),
        connected => connected.map(|()| OwnedFd::from(socket).into()),
    }
}

/// True if a switch at `path` replies.
#[must_use]
pub fn is_answering(path: &Path) -> bool {
    is_answering_within(path, TIMEOUT)
}

fn is_answering_within(path: &Path, timeout: Duration) -> bool {
    ask(path, &Request::Show {}, timeout).is_ok_and(|reply| reply.error.is_none())
}

/// Removes the socket file of a switch that ended without removing it.
fn clear(path: &Path) -> io::Result<()> {
    let is_socket = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type().is_socket(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if !is_socket {
        return Err(io::Error::other("is there and is no socket; name another file"));
    }
    let connected = connect(path, TIMEOUT);
    if connected.is_ok() || connected.is_err_and(|e| e.kind() == ErrorKind::TimedOut) {
        return Err(io::Error::other("another process listens there; name another file"));
    }
    fs::remove_file(path)
}

/// Appends a line to `line`, without its newline.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    reader.read_until(b'\n', line)?;
    match line.pop() {
        Some(b'\n') => Ok(()),
        last => {
            line.extend(last);
            Err(io::Error::other("the line does not end"))
        }
    }
}

/// The effect of a request that the switch has not begun.
const NOTHING: &str = "and nothing was changed";

/// Backlog of the control socket.
const BACKLOG: i32 = 16;

/// The largest reply: some kilobytes for each of 128 ports.
const REPLY_BYTES_MAX: u64 = 16 << 20;

/// Time for a switch to say that it is there. A forwarding loop that sleeps polls ten times a
/// second.
const TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    use std::mem::MaybeUninit;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Only a hang takes so long.
    const LATE: Duration = Duration::from_secs(120);

    fn path() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        std::env::temp_dir().join(format!("spanwire-control-{}-{n}", std::process::id()))
    }

    /// A switch that answers `count` requests with their own text.
    fn answer(control: Control, count: usize) -> std::thread::JoinHandle<Control> {
        std::thread::spawn(move || {
            for _ in 0..count {
                let pending = loop {
                    match control.poll() {
                        Some(pending) => break pending,
                        None => std::thread::sleep(Duration::from_millis(1)),
                    }
                };
                let text = format!("{:?}", pending.request);
                pending.answer(Reply { text, ..Reply::default() });
            }
            control
        })
    }

    #[test]
    fn ask__returns_the_reply_of_the_switch() {
        let path = path();
        assert!(!is_answering(&path));
        let switch = answer(Control::listen(&path).expect("a new file"), 2);
        let request = Request::Set { changes: vec!["port.a.rate=1Gbit".to_owned()] };
        let reply = ask(&path, &request, LATE).expect("it answers");
        assert!(reply.text.contains("port.a.rate=1Gbit"), "{reply:?}");
        assert!(is_answering_within(&path, LATE));
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(switch.join().expect("no panic"));
        assert!(!path.exists(), "the file goes with the switch");
    }

    /// The switch comes to the requests only after their clients have given up.
    #[test]
    fn ask__a_request_that_timed_out_is_never_served() {
        let path = path();
        let control = Control::listen(&path).expect("a new file");
        let set = |change: &str| Request::Set { changes: vec![change.to_owned()] };
        // The first waits for the switch, the others for the first.
        for _ in 0..3 {
            let error = ask(&path, &set("late"), Duration::from_millis(10)).expect_err("stopped");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(error.to_string().ends_with(NOTHING), "{error}");
        }
        let switch = std::thread::spawn(move || {
            let mut served = Vec::new();
            while !served.contains(&set("in time")) {
                match control.poll() {
                    None => std::thread::sleep(Duration::from_millis(1)),
                    Some(pending) => {
                        served.push(pending.request.clone());
                        pending.answer(Reply::default());
                    }
                }
            }
            served
        });
        ask(&path, &set("in time"), LATE).expect("it answers");
        assert_eq!(switch.join().expect("no panic"), [set("in time")]);
    }

    #[test]
    fn ask__a_request_that_was_begun_may_have_had_its_effect() {
        let path = path();
        let listener = UnixListener::bind(&path).expect("a new file");
        let switch = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            read_line(&mut BufReader::new(&client), &mut Vec::new()).expect("a request");
            client.write_all(BEGUN).and_then(|()| client.write_all(b"\n")).expect("it reads");
        });
        let error = ask(&path, &Request::Show {}, LATE).expect_err("it ends without a reply");
        assert!(error.to_string().contains("may have been made"), "{error}");
        switch.join().expect("no panic");
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn ask__does_not_wait_for_a_process_that_accepts_no_client() {
        let path = path();
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        socket.bind(&SockAddr::unix(&path).expect("short")).expect("a new file");
        socket.listen(0).expect("bound");
        let mut waiting = Vec::new();
        loop {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
            client.set_nonblocking(true).expect("ours");
            match client.connect(&SockAddr::unix(&path).expect("short")) {
                Ok(()) => waiting.push(client),
                Err(e) => break assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        // In a thread of its own, so that a wait for ever fails the test.
        let (sender, asked) = sync_channel(1);
        let there = path.clone();
        std::thread::spawn(move || {
            let _ = sender.send(ask(&there, &Request::Show {}, Duration::from_millis(10)));
        });
        let asked = asked.recv_timeout(LATE).expect("it waits for ever");
        assert_eq!(asked.expect_err("full").kind(), ErrorKind::TimedOut);
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn listen__silent_clients_do_not_delay_others() {
        let path = path();
        let switch = answer(Control::listen(&path).expect("a new file"), 1);
        let mut silent: Vec<UnixStream> =
            (0..64).map(|_| UnixStream::connect(&path).expect("it listens")).collect();
        ask(&path, &Request::Show {}, LATE).expect("it answers");
        // The oldest have given their places to new ones; the newest did not have to go before.
        let mut byte = [0];
        assert_eq!(silent[0].read(&mut byte).expect("closed"), 0);
        let newest = silent.last_mut().expect("there are some");
        newest.set_nonblocking(true).expect("ours");
        let error = newest.read(&mut byte).expect_err("open, and nothing to read");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(switch.join().expect("no panic"));
    }

    /// 100 replies of 1 MiB, of which none is taken, before one that is.
    #[test]
    fn listen__clients_that_take_no_reply_do_not_delay_others() {
        let path = path();
        let control = Control::listen(&path).expect("a new file");
        let switch = std::thread::spawn(move || {
            let mut served = 0;
            while served < 101 {
                match control.poll() {
                    None => std::thread::sleep(Duration::from_millis(1)),
                    Some(pending) => {
                        let text = "x".repeat(1 << 20);
                        pending.answer(Reply { text, ..Reply::default() });
                        served += 1;
                    }
                }
            }
            control
        });
        let mut held = Vec::new();
        for _ in 0..100 {
            let mut stream = UnixStream::connect(&path).expect("it listens");
            stream.write_all(b"{\"show\":{}}\n").expect("room for a line");
            let mut begun = [0; BEGUN.len()];
            stream.read_exact(&mut begun).expect("it is served");
            assert_eq!(begun, BEGUN);
            held.push(stream);
        }
        let reply = ask(&path, &Request::Show {}, LATE).expect("it answers");
        assert_eq!(reply.text.len(), 1 << 20);
        drop(switch.join().expect("no panic"));
    }

    #[test]
    fn listen__the_socket_file_has_mode_0600_from_its_creation() {
        let dir = path();
        fs::create_dir(&dir).expect("a new directory");
        let watch = init(CreateFlags::NONBLOCK).expect("inotify");
        add_watch(&watch, &dir, WatchFlags::CREATE | WatchFlags::ATTRIB).expect("a watch");
        let control = Control::listen(&dir.join("s")).expect("a new file");
        let mode = fs::metadata(dir.join("s")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let seen = || {
            let mut buffer = [const { MaybeUninit::uninit() }; 4096];
            let mut reader = Reader::new(&watch, &mut buffer);
            std::iter::from_fn(|| Some(reader.next().ok()?.events())).collect::<Vec<_>>()
        };
        assert_eq!(seen(), [ReadFlags::CREATE]);
        // The watch reports a mode change after creation, as this one shows.
        fs::set_permissions(dir.join("s"), fs::Permissions::from_mode(0o600)).expect("ours");
        assert_eq!(seen(), [ReadFlags::ATTRIB]);
        drop(control);
        fs::remove_dir(&dir).expect("empty");
    }

    #[test]
    fn listen__replaces_only_the_socket_of_a_process_that_ended() {
        let path = path();
        drop(UnixListener::bind(&path).expect("a new file"));
        let control = Control::listen(&path).expect("no process listens");
        let text = Control::listen(&path).expect_err("a process listens").to_string();
        assert!(text.contains("another process listens"), "{text}");
        drop(control);
        fs::write(&path, "precious").expect("writable");
        let text = Control::listen(&path).expect_err("a file").to_string();
        assert!(text.contains("no socket"), "{text}");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn serve__an_invalid_request_does_not_prevent_the_next() {
        let path = path();
        let switch = answer(Control::listen(&path).expect("a new file"), 1);
        let raw = |bytes: &[u8]| {
            let mut stream = UnixStream::connect(&path).expect("it listens");
            // The switch may close the connection before it has read everything.
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut reply = String::new();
            let _ = stream.read_to_string(&mut reply);
            reply
        };
        assert!(raw(b"{\"drop_all\":{}}\n").contains("no request"));
        assert!(raw(b"\xff\xfe\n").contains("no request"));
        assert_eq!(raw(b"no end"), "");
        assert_eq!(raw(&vec![b'x'; 100_000]), "");
        assert!(ask(&path, &Request::Show {}, LATE).is_ok());
        drop(switch.join().expect("no panic"));
    }
}
