//! Configuration of a line.

use crate::error::{ConfigError, check_range};
use crate::units::{self, Prob};
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Rate, Time};

/// Configuration of one direction of a link: rate, delay, impairments. The default is an ideal
/// wire.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LineConfig {
    /// Bits per second; none: a frame takes no time to send. Default none.
    #[serde(with = "units")]
    pub rate: Option<Rate>,
    /// Propagation delay, at most 1000 s. Default 0.
    #[serde(with = "units")]
    pub delay: Dur,
    /// Overhead of each frame on the wire: Ethernet's preamble 8, FCS 4 and inter-frame gap 12
    /// bytes. 0..=1024, default 24. Most published simulators count none.
    pub overhead_bytes: u32,
    /// Impairments. Default none.
    pub impairments: Impairments,
}

/// Impairments of a line. Each kind draws from its own generator for every frame, even if another
/// kind applies: disabling one does not change the frames that the others hit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Impairments {
    /// Independent loss. Default 0.
    pub loss: Prob,
    /// Burst loss. Default none.
    pub burst_loss: Option<BurstLoss>,
    /// Loss by block of frames. Default none.
    pub block_loss: Option<BlockLoss>,
    /// Frames delayed so that later ones overtake them. Default none.
    pub reorder: Option<Reorder>,
    /// Duplication: the second copy directly follows the first. Default 0.
    pub duplicate: Prob,
    /// Corruption: one bit flipped past the Ethernet header. Default 0.
    pub corrupt: Prob,
    /// Extra delay of each frame, uniformly distributed from 0 to this, at most 1000 s; it never
    /// reorders. Default 0.
    #[serde(with = "units")]
    pub jitter: Dur,
    /// Blackholes: when frames are lost while the link is up. Default never.
    pub blackhole: Vec<Interval>,
    /// Link failures: when the link is down. Default never.
    pub down: Vec<Interval>,
    /// A flapping link. Default none.
    pub flap: Option<Flap>,
}

/// Burst loss: the Gilbert-Elliott model.
///
/// The state may change before each frame; then the frame is lost with the state's probability. In
/// the long run enter / (enter + leave) of the frames meet the bad state, and a burst lasts 1 /
/// leave frames.
///
/// # Source
/// Gilbert, "Capacity of a Burst-Noise Channel", BSTJ 39 (1960); Elliott, "Estimates of Error Rates
/// for Codes on Burst-Noise Channels", BSTJ 42 (1963).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstLoss {
    /// Probability of the transition to the bad state, per frame.
    pub enter: Prob,
    /// Probability of the transition to the good state, per frame; above 0.
    pub leave: Prob,
    /// Loss in the good state. Default 0.
    #[serde(default)]
    pub loss_good: Prob,
    /// Loss in the bad state. Default 1.
    #[serde(default = "always")]
    pub loss_bad: Prob,
}

/// Loss by block of frames: in each block of `block_pkts` frames exactly k are lost with
/// probability `losses[k - 1]`, at uniformly drawn places.
///
/// A block consists of consecutive frames on this line, of any flow: the loss is a property of the
/// line. A flow alone on one path has all of a block's packets; a flow sprayed over several paths
/// shares blocks with others.
///
/// # Source
/// Uno (SC'25), table 1: losses among ten consecutive packets of a wide-area link. Its rates are
/// per block of ten: 0.03 %, 0.0075 % and 0.0016 % for one, two and three.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockLoss {
    /// Frames in a block, 1..=64. Default 10.
    #[serde(default = "ten")]
    pub block_pkts: u8,
    /// The probability of exactly 1, 2, .. losses in a block; at most `block_pkts` of them, with a
    /// sum of at most 1.
    pub losses: Vec<Prob>,
}

/// Reordering: frames delayed so that later ones overtake them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Probability that a frame is delayed.
    pub probability: Prob,
    /// The delay, at most 1000 s.
    #[serde(with = "units")]
    pub extra_delay: Dur,
}

/// A half-open interval from `from` to `to`, both since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Its start, since time 0.
    #[serde(with = "units")]
    pub from: Dur,
    /// Its end, since time 0; after `from`.
    #[serde(with = "units")]
    pub to: Dur,
}

/// A flapping link: it is down for the first `down` of each `period`, the first one starting at
/// `from`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flap {
    /// Interval between failures.
    #[serde(with = "units")]
    pub period: Dur,
    /// Duration of a failure; above 0 and below `period`.
    #[serde(with = "units")]
    pub down: Dur,
    /// The first failure, since time 0. Default 0.
    #[serde(with = "units", default = "Default::default")]
    pub from: Dur,
}

impl Default for LineConfig {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Dur::ZERO,
            overhead_bytes: 24,
            impairments: Impairments::default(),
        }
    }
}

impl LineConfig {
    /// A line of this rate and delay with Ethernet's overhead, without impairments.
    #[must_use]
    pub fn new(rate: Rate, delay: Dur) -> Self {
        Self { rate: Some(rate), delay, ..Self::default() }
    }

    /// Validates every range.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dur("delay", self.delay)?;
        check_range("overhead_bytes", self.overhead_bytes, 0..=1024)?;
        self.impairments.validate().map_err(|e| e.within("impairments"))
    }

    /// Maximum time in flight after serialisation: delay, jitter and reordering.
    #[must_use]
    pub fn longest_delay(&self) -> Dur {
        let held = self.impairments.reorder.map_or(Dur::ZERO, |r| r.extra_delay);
        self.delay + self.impairments.jitter + held
    }
}

impl Impairments {
    /// True if there are no impairments.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn validate(&self) -> Result<(), ConfigError> {
        check_dur("jitter", self.jitter)?;
        if let Some(r) = self.reorder {
            check_dur("reorder.extra_delay", r.extra_delay)?;
        }
        if self.burst_loss.is_some_and(|b| b.leave.is_zero()) {
            let what = "is 0, so that a burst never ends; use loss = \"100%\"";
            return Err(ConfigError::new("burst_loss.leave", what));
        }
        if let Some(b) = &self.block_loss {
            b.validate().map_err(|e| e.within("block_loss"))?;
        }
        for (name, list) in [("blackhole", &self.blackhole), ("down", &self.down)] {
            check_range(name, list.len(), 0..=1024)
                .map_err(|e| ConfigError { what: format!("its length {}", e.what), ..e })?;
            if let Some(i) = list.iter().position(|i| i.to <= i.from) {
                let what = "ends before it begins; `from` must be before `to`";
                return Err(ConfigError::new(format!("{name}[{i}]"), what));
            }
        }
        if self.flap.is_some_and(|f| f.down == Dur::ZERO || f.down >= f.period) {
            let what = "is down for the whole period or not at all; choose 0 < down < period";
            return Err(ConfigError::new("flap", what));
        }
        Ok(())
    }
}

impl BlockLoss {
    /// Uno's table 1, setup 1: per block of ten, one loss in 3.0e-4 of the blocks, two in 7.5e-5,
    /// three in 1.6e-5.
    #[must_use]
    pub fn uno_table_1() -> Self {
        Self::of_ten([300_000, 75_000, 16_000])
    }

    /// Setup 2, on a shorter path: 4.0e-5, 2.3e-5 and 4.9e-6.
    #[must_use]
    pub fn uno_table_1_setup_2() -> Self {
        Self::of_ten([40_000, 23_000, 4_900])
    }

    /// Multiplies every rate by `factor`, up to 1: for runs too short for rare events.
    #[must_use]
    pub fn times(mut self, factor: u32) -> Self {
        for prob in &mut self.losses {
            *prob = Prob::from_ppb(prob.ppb().saturating_mul(factor)).unwrap_or(Prob::ONE);
        }
        self
    }

    /// One, two and three losses in ten, in billionths.
    fn of_ten(ppb: [u32; 3]) -> Self {
        Self { block_pkts: 10, losses: ppb.iter().filter_map(|n| Prob::from_ppb(*n)).collect() }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        check_range("block_pkts", self.block_pkts, 1..=64)?;
        if self.losses.len() > usize::from(self.block_pkts) {
            let what = format!(
                "names up to {} losses in a block of {}; leave the last ones out",
                self.losses.len(),
                self.block_pkts
            );
            return Err(ConfigError::new("losses", what));
        }
        let sum: u64 = self.losses.iter().map(|p| u64::from(p.ppb())).sum();
        if sum > u64::from(Prob::ONE.ppb()) {
            return Err(ConfigError::new("losses", "add up to more than 1; lower them"));
        }
        Ok(())
    }
}

impl Interval {
    /// True if an instant of `[start, end]` is in it.
    pub(crate) fn overlaps(&self, start: Time, end: Time) -> bool {
        start.as_ps() < self.to.as_ps() && end.as_ps() >= self.from.as_ps()
    }
}

impl Flap {
    /// True if the link is down at an instant of `[start, end]`.
    pub(crate) fn overlaps(&self, start: Time, end: Time) -> bool {
        let Some(into) = end.as_ps().checked_sub(self.from.as_ps()) else { return false };
        let last_down = end - Dur::from_ps(into % self.period.as_ps());
        start < last_down + self.down
    }
}

/// Checks a duration: at most 1000 s, three orders above any path, so that sums of a few cannot
/// overflow.
fn check_dur(at: &str, d: Dur) -> Result<(), ConfigError> {
    if d <= Dur::from_secs(1000) {
        return Ok(());
    }
    Err(ConfigError::new(at, format!("is {d:?}; choose at most 1000s")))
}

fn always() -> Prob {
    Prob::ONE
}

fn ten() -> u8 {
    10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let config: LineConfig = serde_json::from_str(text).unwrap();
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn line_config__reads_every_field_and_writes_it_back() {
        let text = r#"{"rate": "100Gbit", "delay": "1us", "overhead_bytes": 0, "impairments": {
            "loss": "1%", "burst_loss": {"enter": "100ppm", "leave": "20%"},
            "block_loss": {"losses": ["300ppm", "75ppm", "16ppm"]},
            "reorder": {"probability": "5%", "extra_delay": "50us"}, "duplicate": "1ppm",
            "corrupt": "10ppb", "jitter": "2us", "blackhole": [{"from": "1ms", "to": "11ms"}],
            "down": [{"from": "0s", "to": "1ms"}],
            "flap": {"period": "10ms", "down": "1ms"}}}"#;
        let config: LineConfig = serde_json::from_str(text).unwrap();
        config.validate().unwrap();
        assert_eq!(config.impairments.block_loss, Some(BlockLoss::uno_table_1()));
        assert_eq!(config.impairments.burst_loss.unwrap().loss_bad, Prob::ONE);
        assert_eq!(config.longest_delay(), Dur::from_us(53));
        let again = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<LineConfig>(&again).unwrap(), config);
        assert!(serde_json::from_str::<LineConfig>(r#"{"dely": "1ms"}"#).is_err());
        assert_eq!(serde_json::from_str::<LineConfig>("{}").unwrap(), LineConfig::default());
    }

    #[test]
    fn validate__names_problem_and_field() {
        assert_eq!(error(r#"{"delay": "1001s"}"#), "delay: is 1001s; choose at most 1000s");
        assert!(error(r#"{"overhead_bytes": 2000}"#).starts_with("overhead_bytes: is 2000"));
        let at = |text: &str| error(&format!(r#"{{"impairments": {text}}}"#));
        assert!(
            at(r#"{"burst_loss": {"enter": "1%", "leave": "0%"}}"#)
                .starts_with("impairments.burst_loss.leave: is 0")
        );
        assert!(
            at(r#"{"block_loss": {"block_pkts": 1, "losses": ["1%", "1%"]}}"#)
                .starts_with("impairments.block_loss.losses: names up to 2")
        );
        assert!(at(r#"{"block_loss": {"losses": ["60%", "60%"]}}"#).contains("more than 1"));
        assert!(
            at(r#"{"blackhole": [{"from": "1s", "to": "2s"}, {"from": "5s", "to": "5s"}]}"#)
                .starts_with("impairments.blackhole[1]: ends before")
        );
        assert!(at(r#"{"flap": {"period": "1s", "down": "1s"}}"#).contains("0 < down < period"));
    }

    #[test]
    fn overlaps__of_an_interval_is_half_open() {
        let i = Interval { from: Dur::from_ns(10), to: Dur::from_ns(20) };
        let at = |a, b| i.overlaps(Time::from_ns(a), Time::from_ns(b));
        assert!(at(10, 10) && at(19, 30) && at(0, 10) && at(0, 50));
        assert!(!at(20, 30) && !at(0, 9));
    }

    #[test]
    fn overlaps__of_a_flap_agrees_with_every_instant() {
        let flap = Flap { period: Dur::from_ps(7), down: Dur::from_ps(3), from: Dur::from_ps(5) };
        let down = |t: u64| t >= 5 && (t - 5) % 7 < 3;
        for start in 0..40 {
            for end in start..40 {
                let want = (start..=end).any(down);
                let got = flap.overlaps(Time::from_ps(start), Time::from_ps(end));
                assert_eq!(got, want, "{start}..={end}");
            }
        }
    }
}
