//! Places of a send queue that requests keep until their completion is polled.

use crate::wc::WcStatus;
use std::collections::VecDeque;

/// The requests that are posted and whose completions are not polled, if the queue pair was made
/// so ([`QpInit::places_until_polled`](crate::QpInit::places_until_polled)).
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: u32,
    /// Requests since the last one with a completion.
    silent: u32,
    /// Requests that each expected completion stands for, oldest first: its own and the silent ones
    /// before it.
    expected: VecDeque<u32>,
}

impl Places {
    /// Requests whose places are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// A request was posted.
    pub(crate) fn take(&mut self, signaled: bool) {
        self.taken += 1;
        self.silent += 1;
        if signaled {
            self.expected.push_back(std::mem::take(&mut self.silent));
        }
    }

    /// The completion of a request was polled. After a failure each request has one, and no more
    /// are counted: the send queue is empty.
    pub(crate) fn release(&mut self, status: WcStatus) {
        match status {
            WcStatus::Success => {
                let requests = self.expected.pop_front().unwrap_or(0);
                self.taken = self.taken.saturating_sub(requests);
            }
            _ => *self = Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release__a_completion_returns_the_silent_requests_before_it() {
        let mut places = Places::default();
        for signaled in [false, false, true, true, false] {
            places.take(signaled);
        }
        assert_eq!(places.taken(), 5);
        places.release(WcStatus::Success);
        assert_eq!(places.taken(), 2);
        places.release(WcStatus::Success);
        assert_eq!(places.taken(), 1, "no completion is expected for it");
        places.take(true);
        places.release(WcStatus::Success);
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn release__after_a_failure_nothing_is_taken() {
        let mut places = Places::default();
        (0..3).for_each(|_| places.take(true));
        places.release(WcStatus::RetryExcErr);
        places.release(WcStatus::WrFlushErr);
        assert_eq!(places.taken(), 0);
    }
}
