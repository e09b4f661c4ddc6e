//! Counters for each path, for reports.

use crate::rtt::Rtt;
use crate::{Entropy, PathAck, PathLoss, PathState};
use spanwire_base::{Dur, Time};

/// The counters of one path since its first use, or since its next use after an eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathReport {
    /// The path.
    pub path: Entropy,
    /// The policy's state of the path.
    pub state: PathState,
    /// Packets sent on it.
    pub sent_packets: u64,
    /// Their payload bytes.
    pub sent_bytes: u64,
    /// Packets that arrived.
    pub acked_packets: u64,
    /// Their payload bytes.
    pub acked_bytes: u64,
    /// Packets that arrived marked CE.
    pub marked_packets: u64,
    /// Packets presumed lost. Some may have arrived later.
    pub presumed_lost_packets: u64,
    /// Their payload bytes.
    pub presumed_lost_bytes: u64,
    /// The round trip, smoothed.
    pub srtt: Option<Dur>,
    /// The smallest.
    pub min_rtt: Option<Dur>,
    /// The time of the last feedback about the path.
    pub feedback_at: Option<Time>,
    /// The number of times it was replaced by another.
    pub reroutes: u64,
}

/// The last paths used, at most [`PATHS_MAX`].
///
/// Keys, uses and counters are separate arrays, so that a packet's look-up reads 128 bytes.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    keys: Vec<Entropy>,
    /// The last use of each, as a number of uses.
    used: Vec<u64>,
    counts: Vec<Counts>,
    uses: u64,
    replaced: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: [u64; 2],
    acked: [u64; 2],
    lost: [u64; 2],
    marked: u64,
    rtt: Rtt,
    feedback_at: Option<Time>,
    /// The last feedback was a loss.
    lost_last: bool,
    reroutes: u64,
}

impl Paths {
    pub(crate) fn new() -> Self {
        let (keys, used) = (Vec::with_capacity(PATHS_MAX), Vec::with_capacity(PATHS_MAX));
        Self { keys, used, counts: Vec::with_capacity(PATHS_MAX), uses: 0, replaced: 0 }
    }

    pub(crate) fn on_sent(&mut self, path: Entropy, bytes: u32) {
        let at = self.find(path).unwrap_or_else(|| self.add(path));
        self.uses += 1;
        self.used[at] = self.uses;
        add(&mut self.counts[at].sent, 1, u64::from(bytes));
    }

    pub(crate) fn on_ack(&mut self, now: Time, ack: &PathAck) {
        let Some(at) = self.find(ack.path) else { return };
        let counts = &mut self.counts[at];
        add(&mut counts.acked, u64::from(ack.packets), ack.bytes);
        counts.marked += u64::from(ack.marked);
        counts.feedback_at = Some(now);
        counts.lost_last = false;
        if let Some(rtt) = ack.rtt {
            counts.rtt.sample(rtt);
        }
    }

    pub(crate) fn on_loss(&mut self, loss: &PathLoss) {
        let Some(at) = self.find(loss.path) else { return };
        add(&mut self.counts[at].lost, u64::from(loss.packets), loss.bytes);
        self.counts[at].lost_last = true;
    }

    pub(crate) fn on_replaced(&mut self, path: Entropy) {
        if let Some(at) = self.find(path) {
            self.counts[at].reroutes += 1;
        }
    }

    /// The number of evictions.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Reports of all paths in the order of first use; `state` is the policy's state of a path.
    pub(crate) fn reports<'a>(
        &'a self,
        state: impl Fn(Entropy) -> Option<PathState> + 'a,
    ) -> impl Iterator<Item = PathReport> + 'a {
        self.keys.iter().zip(&self.counts).map(move |(path, c)| {
            let by_feedback = if c.lost_last { PathState::Suspect } else { PathState::Live };
            PathReport {
                path: *path,
                state: state(*path).unwrap_or(by_feedback),
                sent_packets: c.sent[0],
                sent_bytes: c.sent[1],
                acked_packets: c.acked[0],
                acked_bytes: c.acked[1],
                marked_packets: c.marked,
                presumed_lost_packets: c.lost[0],
                presumed_lost_bytes: c.lost[1],
                srtt: c.rtt.smoothed(),
                min_rtt: c.rtt.min(),
                feedback_at: c.feedback_at,
                reroutes: c.reroutes,
            }
        })
    }

    fn find(&self, path: Entropy) -> Option<usize> {
        self.keys.iter().position(|key| *key == path)
    }

    fn add(&mut self, path: Entropy) -> usize {
        if self.keys.len() < PATHS_MAX {
            self.keys.push(path);
            self.used.push(0);
            self.counts.push(Counts::default());
            return self.keys.len() - 1;
        }
        self.replaced += 1;
        let oldest = (0..PATHS_MAX).min_by_key(|at| self.used[*at]).unwrap_or(0);
        self.keys[oldest] = path;
        self.counts[oldest] = Counts::default();
        oldest
    }
}

/// Packets and bytes.
fn add(count: &mut [u64; 2], packets: u64, bytes: u64) {
    count[0] += packets;
    count[1] += bytes;
}

/// Paths in the table.
pub(crate) const PATHS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{acked, at, lost};

    fn paths(paths: &Paths) -> Vec<u16> {
        paths.reports(|_| None).map(|report| report.path.bits()).collect()
    }

    #[test]
    fn on_sent__evicts_the_least_recently_used_path() {
        let mut table = Paths::new();
        for bits in 0..64 {
            table.on_sent(Entropy::new(bits), 1);
        }
        table.on_sent(Entropy::new(0), 1);
        assert_eq!(table.replaced(), 0);
        table.on_sent(Entropy::new(100), 7);
        assert_eq!((paths(&table).len(), table.replaced()), (64, 1));
        let new = table.reports(|_| None).find(|report| report.path == Entropy::new(100));
        assert_eq!(new.map(|report| (report.sent_packets, report.sent_bytes)), Some((1, 7)));
        assert!(paths(&table).contains(&0) && !paths(&table).contains(&1));
    }

    #[test]
    fn reports__count_events() {
        let mut table = Paths::new();
        let path = Entropy::new(5);
        for _ in 0..4 {
            table.on_sent(path, 1000);
        }
        table.on_ack(
            at(300),
            &PathAck { packets: 2, marked: 1, bytes: 2000, ..acked(path, at(1), 80) },
        );
        table.on_ack(at(310), &acked(Entropy::new(6), at(1), 1));
        table.on_loss(&lost(path, 1, at(2)));
        table.on_replaced(path);
        let report = table.reports(|_| None).next().unwrap();
        let counted = PathReport {
            path,
            state: PathState::Suspect,
            sent_packets: 4,
            sent_bytes: 4000,
            acked_packets: 2,
            acked_bytes: 2000,
            marked_packets: 1,
            presumed_lost_packets: 1,
            presumed_lost_bytes: 4096,
            srtt: Some(Dur::from_us(80)),
            min_rtt: Some(Dur::from_us(80)),
            feedback_at: Some(at(300)),
            reroutes: 1,
        };
        assert_eq!(report, counted);
        table.on_ack(at(320), &acked(path, at(3), 80));
        assert_eq!(table.reports(|_| None).next().unwrap().state, PathState::Live);
        let report = table.reports(|_| Some(PathState::Retired)).next().unwrap();
        assert_eq!(report.state, PathState::Retired, "the policy's state takes precedence");
    }
}
