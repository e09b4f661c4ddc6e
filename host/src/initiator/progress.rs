//! Progress of a job: what completed, in what time, and why it ended early.

use crate::unsent::Unsent;
use spanwire_base::{Dur, Time};
use spanwire_transport::WcStatus;
use std::fmt;

/// Progress of a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// When the first message was posted.
    pub started: Option<Time>,
    /// When a timed run stops posting.
    pub until: Option<Time>,
    /// When the last message completed so far.
    pub last_completion: Option<Time>,
    /// The end of the measured time. A timed run ends with its last completion, at
    /// [`Progress::until`] or later; a run that failed ends with its failure.
    pub finished: Option<Time>,
    /// The longest time without a completion, from the start to the end.
    pub longest_gap: Dur,
    /// Completed messages.
    pub messages: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Messages still outstanding when a timed run was ended.
    pub unfinished: u64,
    /// The reason of an early end.
    pub failure: Option<Failure>,
}

impl Progress {
    /// Counts a message of `bytes` that completed at `now`.
    pub(crate) fn on_completion(&mut self, now: Time, bytes: u32) {
        self.messages += 1;
        self.bytes += u64::from(bytes);
        self.end_gap(now);
        self.last_completion = Some(now);
    }

    /// Ends the measured time at `at`, if it has not ended.
    pub(crate) fn finish(&mut self, at: Time) {
        if self.finished.is_none() {
            self.finished = Some(at);
            self.end_gap(at);
        }
    }

    fn end_gap(&mut self, at: Time) {
        let since = self.last_completion.or(self.started).unwrap_or(at);
        self.longest_gap = self.longest_gap.max(at.since(since));
    }
}

/// Why a job ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A request completed with this status.
    Completion(WcStatus),
    /// As [`WcStatus::RetryExcErr`], if no packet of the peer was received during the job.
    NoResponse,
    /// As [`WcStatus::RetryExcErr`], if this host did not send packets.
    Unsent(Unsent),
    /// No message completed before the end of the run.
    NoCompletion,
    /// The user, or a watcher, ended the job.
    Interrupted,
    /// The peer broke the protocol of the job.
    Protocol(&'static str),
    /// A request could not be posted, or the completion queue failed: a bug of this program.
    Internal(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completion(status) => write!(f, "{}{}", status.name(), advice(*status)),
            Self::NoResponse => f.write_str(
                "RETRY_EXC_ERR: packets were sent and not one packet came back, so packets are \
                 lost on the way (a firewall, or full-sized ones where the MTU is smaller), or \
                 arrive on a queue that is not served; `spanwire doctor --dev NAME --peer ADDRESS \
                 --queue N` at both ends shows the path's MTU and the queues",
            ),
            Self::Unsent(why) => write!(f, "RETRY_EXC_ERR: {why}"),
            Self::NoCompletion => f.write_str("no message completed before the time was up"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Protocol(what) => write!(f, "the peer broke the protocol: {what}"),
            Self::Internal(what) => write!(f, "internal: {what}"),
        }
    }
}

/// The usual cause of a status.
fn advice(status: WcStatus) -> &'static str {
    match status {
        WcStatus::RetryExcErr => ": the peer stopped answering (killed, or the link is gone)",
        WcStatus::RnrRetryExcErr => ": the peer posts no receives",
        WcStatus::RemAccessErr => ": the peer refused access to its memory",
        _ => "",
    }
}
