//! Cases and transports: the rows of the benchmark.

use super::calls::Caller;
use serde::{Deserialize, Serialize};

/// A transport of requests and replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Transport {
    /// Messages of `stream`, blocking calls.
    Stream,
    /// The same without a worker, polling busily: for threads that have a core each.
    InlineStream,
    /// SEND and receive requests on the thread of the driver.
    Verbs,
    /// Kernel TCP, blocking calls, a write for each message, without Nagle's delay.
    Tcp,
    /// The same with writes in a buffer that is flushed before a wait.
    BufferedTcp,
    /// Kernel TCP, non-blocking, level-triggered epoll, without Nagle's delay.
    Epoll,
}

/// A transport of bulk data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BulkTransport {
    /// A byte stream of `stream`, memory to memory.
    Stream,
    /// Kernel TCP, memory to memory.
    Tcp,
    /// Kernel TCP with a SHA-256 of the data at both ends, as `copy` has.
    HashedTcp,
    /// `spanwire copy` from one file in memory to another.
    Copy,
}

/// Requests and replies on some connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    /// Bytes of a request.
    pub(super) request_bytes: usize,
    /// Bytes of a reply.
    pub(super) reply_bytes: usize,
    /// Connections, which one thread at each end serves.
    pub(super) connections: usize,
    /// Requests outstanding on each, at most.
    pub(super) outstanding: usize,
    /// Requests a second, whatever happens to those before; none if each waits for a reply.
    pub(super) per_s: Option<u64>,
}

/// A row: one transport in one case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    Service(Load, Transport),
    Bulk(BulkTransport),
    /// A verb in a process of its own.
    Verb(Caller),
}

impl Load {
    /// All loads, in the order of the table.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        SIZES.into_iter().flat_map(|(request_bytes, reply_bytes)| {
            WIDTHS.into_iter().map(move |(connections, outstanding)| Self {
                request_bytes,
                reply_bytes,
                connections,
                outstanding,
                per_s: None,
            })
        })
    }

    /// The loads of an open loop.
    fn open() -> impl Iterator<Item = Self> {
        let load = |per_s| Self {
            request_bytes: 64,
            reply_bytes: 64,
            connections: 1,
            outstanding: OPEN_OUTSTANDING,
            per_s: Some(per_s),
        };
        RATES.into_iter().map(load)
    }

    /// Its name.
    pub(super) fn name(&self) -> String {
        let Self { request_bytes, reply_bytes, connections, outstanding, per_s } = *self;
        let sizes = format!("{}/{}", size(request_bytes), size(reply_bytes));
        match (per_s, connections) {
            (Some(per_s), _) => format!("{sizes}, {per_s}/s"),
            (None, 1) => format!("{sizes}, {outstanding} outstanding"),
            (None, _) => format!("{sizes}, {connections} connections"),
        }
    }
}

impl Subject {
    /// All rows. Those of one case are neighbours, so that they are measured close to each other.
    pub(super) fn all() -> Vec<Self> {
        let services = Load::all()
            .flat_map(|load| Transport::ALL.into_iter().map(move |t| Self::Service(load, t)));
        // A thread without a worker must never sleep, which no open loop leaves out.
        let sleeping = Transport::ALL.into_iter().filter(|t| *t != Transport::InlineStream);
        let open =
            Load::open().flat_map(|load| sleeping.clone().map(move |t| Self::Service(load, t)));
        let services = services.chain(open);
        let bulk = BulkTransport::ALL.into_iter().map(Self::Bulk);
        let verbs = [Caller::Own, Caller::Other].into_iter().map(Self::Verb);
        services.chain(bulk).chain(verbs).collect()
    }

    /// The name of its case.
    pub(super) fn case(&self) -> String {
        match self {
            Self::Service(load, _) => load.name(),
            Self::Bulk(_) => "bulk".to_owned(),
            Self::Verb(_) => "a verb".to_owned(),
        }
    }

    /// The name of its transport.
    pub(super) fn transport(&self) -> &'static str {
        match self {
            Self::Service(_, transport) => transport.name(),
            Self::Bulk(transport) => transport.name(),
            Self::Verb(Caller::Own) => "own thread",
            Self::Verb(Caller::Other) => "other",
        }
    }

    /// Case and transport, as `--only` selects them.
    pub(super) fn name(&self) -> String {
        format!("{}: {}", self.case(), self.transport())
    }

    /// The row that it is compared with: blocking kernel TCP in the same case; a verb in the
    /// endpoint's own thread.
    pub(super) fn reference(&self) -> Self {
        match self {
            Self::Service(load, _) => Self::Service(*load, Transport::Tcp),
            Self::Bulk(_) => Self::Bulk(BulkTransport::Tcp),
            Self::Verb(_) => Self::Verb(Caller::Own),
        }
    }

    /// Requests a second that an open loop offers.
    pub(super) fn offered_per_s(&self) -> Option<u64> {
        match self {
            Self::Service(load, _) => load.per_s,
            Self::Bulk(_) | Self::Verb(_) => None,
        }
    }

    /// Its figures and their units.
    pub(super) fn figures(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Service(load, _) if load.per_s.is_some() => &OPEN_FIGURES,
            Self::Service(..) => &SERVICE_FIGURES,
            // The processes of `copy` do not report their time.
            Self::Bulk(BulkTransport::Copy) => &BULK_FIGURES[..1],
            Self::Bulk(_) => &BULK_FIGURES,
            Self::Verb(_) => &[("post_ns", "ns"), ("poll_ns", "ns")],
        }
    }
}

impl Transport {
    pub(super) const ALL: [Self; 6] =
        [Self::Stream, Self::InlineStream, Self::Verbs, Self::Tcp, Self::BufferedTcp, Self::Epoll];

    fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::InlineStream => "stream-inline",
            Self::Verbs => "verbs",
            Self::Tcp => "tcp",
            Self::BufferedTcp => "tcp-buffered",
            Self::Epoll => "tcp-epoll",
        }
    }

    /// Packets bypass the kernel's TCP.
    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Stream | Self::InlineStream | Self::Verbs)
    }
}

impl BulkTransport {
    const ALL: [Self; 4] = [Self::Stream, Self::Tcp, Self::HashedTcp, Self::Copy];

    fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Tcp => "tcp",
            Self::HashedTcp => "tcp-sha256",
            Self::Copy => "copy",
        }
    }
}

fn size(bytes: usize) -> String {
    if bytes.is_multiple_of(KIB) { format!("{} KiB", bytes / KIB) } else { format!("{bytes} B") }
}

/// Figures of requests and replies, the first of which is the main one.
const SERVICE_FIGURES: [(&str, &str); 5] = [
    ("requests_per_s", "1/s"),
    ("p50_us", "us"),
    ("p99_us", "us"),
    ("client_cpu_us", "us a request"),
    ("server_cpu_us", "us a request"),
];
const OPEN_FIGURES: [(&str, &str); 7] = [
    ("cpu_us", "us a request"),
    ("requests_per_s", "1/s"),
    ("p50_us", "us"),
    ("p99_us", "us"),
    ("client_cpu_us", "us a request"),
    ("server_cpu_us", "us a request"),
    ("schedule_cpu_us", "us a request"),
];
const BULK_FIGURES: [(&str, &str); 3] =
    [("gbps", "Gbit/s"), ("client_cpu_us", "us a MiB"), ("server_cpu_us", "us a MiB")];

/// Bytes of requests and of replies.
const SIZES: [(usize, usize); 3] = [(64, 64), (64, 4096), (4096, 64)];
/// Connections, and requests outstanding on each.
const WIDTHS: [(usize, usize); 5] = [(1, 1), (1, 16), (1, 64), (1, 256), (64, 1)];
/// Requests a second of an open loop, and how many are outstanding before more are late.
const RATES: [u64; 3] = [10_000, 50_000, 250_000];
const OPEN_OUTSTANDING: usize = 512;
const KIB: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all__has_every_case_once_with_its_reference() {
        let all = Subject::all();
        assert_eq!(all.len(), 3 * 5 * 6 + 3 * 5 + 4 + 2);
        let names: BTreeSet<String> = all.iter().map(Subject::name).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.contains("64 B/4 KiB, 16 outstanding: tcp-epoll"), "{names:?}");
        assert!(names.contains("4 KiB/64 B, 64 connections: verbs"), "{names:?}");
        for subject in &all {
            assert!(all.contains(&subject.reference()));
            assert_eq!(subject.reference().case(), subject.case());
        }
    }
}
