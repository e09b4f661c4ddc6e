//! The messages of a control socket, and a request at the switch.

use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

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
    /// Its client's connection, non-blocking.
    pub(super) client: Arc<UnixStream>,
    pub(super) reply: SyncSender<Reply>,
}

impl PendingRequest {
    /// Sends the reply. An error means that the client has closed its connection, and is ignored.
    pub fn answer(self, reply: Reply) {
        let _ = self.reply.send(reply);
    }

    /// Tells the client that its request is served now. False if the client has given up.
    pub(super) fn begin(&self) -> bool {
        let mut client = &*self.client;
        client.write_all(BEGUN).and_then(|()| client.write_all(b"\n")).is_ok()
    }
}

/// The line before the reply of a request that is served.
pub(super) const BEGUN: &[u8] = b"\"begun\"";
