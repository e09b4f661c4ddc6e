//! The verdict on one side of a capture: equal, justified and unresolved packets.

use crate::rules::{Ground, Rule};
use spanwire_tests::replay::{
    Capture, Difference, Host, LaneLog, Logged, Pace, Playback, compare, play,
};
use std::collections::BTreeMap;

/// The verdict on one side.
pub(crate) struct Verdict {
    pub(crate) capture: String,
    pub(crate) host: Host,
    /// Packets that the engine received, and sent.
    pub(crate) fed: usize,
    pub(crate) sent: usize,
    /// Packets that the recorded side sent.
    pub(crate) recorded: usize,
    /// Packets of ours that equal the recorded ones byte for byte.
    pub(crate) equal: usize,
    pub(crate) justified: BTreeMap<Rule, usize>,
    /// Differences without a rule.
    pub(crate) unresolved: Vec<String>,
    /// Counters and completions; the packet sequences have been judged and dropped.
    pub(crate) playback: Playback,
}

/// Replays `host` of `capture` and judges it.
pub(crate) fn judge(capture: &Capture, host: Host) -> Verdict {
    let mut playback = play(capture, host, Pace::Packets, true);
    let lanes = std::mem::take(&mut playback.lanes);
    let mut verdict = Verdict {
        capture: capture.name.clone(),
        host,
        fed: playback.fed,
        sent: 0,
        recorded: 0,
        equal: 0,
        justified: BTreeMap::new(),
        unresolved: Vec::new(),
        playback,
    };
    for mut log in lanes {
        verdict.sent += log.ours.len();
        verdict.recorded += log.recorded.len();
        if remove_unrecorded_loss(capture, host, &mut log.ours) {
            *verdict.justified.entry(Rule::NotInFile).or_default() += 1;
        }
        verdict.add(capture, &log);
    }
    verdict
}

impl Verdict {
    fn add(&mut self, capture: &Capture, log: &LaneLog) {
        let me = capture.index(self.host);
        let ground = Ground { capture, log, own: log.link.qpns[me] };
        let differences = compare(&log.recorded, &log.ours);
        let of_ours = |d: &&Difference| !matches!(d, Difference::Missing { .. });
        self.equal += log.ours.len() - differences.iter().filter(of_ours).count();
        for difference in &differences {
            match Rule::of(&ground, difference) {
                Some(rule) => *self.justified.entry(rule).or_default() += 1,
                None => {
                    let what = difference.describe(&log.recorded, &log.ours);
                    self.unresolved
                        .push(format!("{} {} {:?}: {what}", self.capture, self.host, log.lane));
                }
            }
        }
    }
}

/// Removes a packet that the recorded side sent too, but that was dropped before the point of
/// capture.
fn remove_unrecorded_loss(capture: &Capture, host: Host, ours: &mut Vec<Logged>) -> bool {
    let Some(loss) = capture.loss.filter(|l| l.from == host && host == Host::B) else {
        return false;
    };
    let of_kind = ours.iter().enumerate().filter(|(_, l)| l.sent.opcode() == loss.opcode);
    let nth = loss.nth.expect("B never lost all");
    let Some(at) = of_kind.map(|(i, _)| i).nth(nth - 1) else {
        return false;
    };
    ours.remove(at);
    true
}
