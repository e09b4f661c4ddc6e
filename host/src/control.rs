//! The control socket of a running switch: requests of other processes, and their replies.
//!
//! One request and one reply per connection, each a line of JSON. A thread of its own accepts
//! connections, so that the forwarding loop never waits; the loop only polls for a pending request.

use crate::fabric::Error;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// A request to a switch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Counters and configuration.
    Show {},
    /// Changes, all or none: `port.NAME.KEY=VALUE`.
    Set {
        /// The changes, in order.
        changes: Vec<String>,
    },
}

/// The reply of a switch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Reason for a rejected request; null on success.
    pub error: Option<String>,
    /// Text for people.
    pub text: String,
    /// Report for programs.
    pub report: serde_json::Value,
}

/// A pending request.
#[derive(Debug)]
pub struct PendingRequest {
    /// The request.
    pub request: Request,
    reply: SyncSender<Reply>,
}

/// The control socket of this process. Dropping it removes the file.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    requests: Receiver<PendingRequest>,
}

impl PendingRequest {
    /// Sends the reply. An error means that the client has closed its connection, and is ignored.
    pub fn answer(self, reply: Reply) {
        let _ = self.reply.send(reply);
    }
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
        std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client with an invalid request gets no reply. The timeouts of `serve` bound how
                // long it delays the next client.
                if let Err(e) = serve(&stream, &sender) {
                    tracing::debug!("control connection: {e}");
                }
            }
        })?;
        Ok(Self { path: path.to_owned(), requests })
    }

    /// The next request, if one is pending. If none is, the cost is one poll of a channel.
    #[must_use]
    pub fn poll(&self) -> Option<PendingRequest> {
        self.requests.try_recv().ok()
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
/// No process listens there, or the process is not a switch. A rejection is in the reply.
pub fn ask(path: &Path, request: &Request, timeout: Duration) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let reply = read_line(&stream, REPLY_BYTES_MAX)?;
    Ok(serde_json::from_slice(&reply)?)
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
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::other("another process listens there; name another file"));
    }
    fs::remove_file(path)
}

fn serve(stream: &UnixStream, requests: &SyncSender<PendingRequest>) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let line = read_line(stream, REQUEST_BYTES_MAX)?;
    let reply = match serde_json::from_slice(&line) {
        Ok(request) => forward(request, requests)?,
        Err(e) => Reply { error: Some(format!("no request: {e}")), ..Reply::default() },
    };
    let mut line = serde_json::to_vec(&reply)?;
    line.push(b'\n');
    let mut stream = stream;
    stream.write_all(&line)
}

fn forward(request: Request, requests: &SyncSender<PendingRequest>) -> io::Result<Reply> {
    let (reply, answer) = sync_channel(1);
    let ended = || io::Error::other("the switch has ended");
    requests.send(PendingRequest { request, reply }).map_err(|_| ended())?;
    answer.recv_timeout(TIMEOUT).map_err(|_| ended())
}

fn read_line(stream: &UnixStream, max: u64) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(stream.take(max)).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::Error::other("the line does not end"));
    }
    Ok(line)
}

/// Backlog of the control socket.
const BACKLOG: i32 = 16;

/// The largest request: a few changes.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// The largest reply: some kilobytes for each of 128 ports.
const REPLY_BYTES_MAX: u64 = 16 << 20;

/// Read, write and reply timeout. A forwarding loop that sleeps polls ten times a second.
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
