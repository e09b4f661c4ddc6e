//! Fixtures of the tests of copy.

use crate::connection;
use spanwire_host::fabric::{Attachment, Wrap};
use spanwire_stream::{
    Config, Connection, Listener, ModeChoice, Network, NetworkOptions, Progress,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A directory that is removed when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("spanwire-copy-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).expect("the name is this process's own");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Names the mode of progress of a run of the tests that is not the first one.
const MODE: &str = "SPANWIRE_TEST_PROGRESS";

/// Which threads drive the engines.
fn progress() -> Progress {
    match std::env::var(MODE).as_deref() {
        Err(_) => Progress::Shared,
        Ok("worker") => Progress::Worker,
        Ok("inline") => Progress::Inline,
        Ok(other) => panic!("{MODE}={other}: it is worker or inline"),
    }
}

#[test]
fn progress__all_tests_pass_in_the_other_modes_too() {
    if std::env::var_os(MODE).is_some() {
        return;
    }
    for mode in ["worker", "inline"] {
        let mut tests = Command::new(std::env::current_exe().unwrap());
        let output = tests.env(MODE, mode).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{mode}: {said}");
    }
}

/// Two networks in this process, and connections between them.
pub(crate) struct Wire {
    networks: [Network; 2],
    listener: Listener<Connection>,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let (a, b) = Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
        let networks = [a, b].map(|attachment| {
            // On a busy machine a worker may have no core for seconds.
            let limits = connection::limits();
            let limits = Config { handshake_timeout: MINUTE, timeout: 20, ..limits };
            let config = limits.validate().unwrap();
            let options =
                NetworkOptions { config, progress: progress(), ..NetworkOptions::default() };
            Network::over(attachment, "lo", options).unwrap()
        });
        let listener = networks[0].listen(0, connection::options(ModeChoice::Auto)).unwrap();
        Self { networks, listener }
    }

    /// A connected receiver and sender.
    pub(crate) fn pair(&mut self) -> (Connection, Connection) {
        let address = SocketAddr::new([127, 0, 0, 1].into(), self.listener.local_addr().port());
        let theirs =
            self.networks[1].connect(address, &connection::options(ModeChoice::Auto)).unwrap();
        (self.listener.accept().unwrap(), theirs)
    }
}
