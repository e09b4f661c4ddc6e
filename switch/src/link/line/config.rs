//! What a line is like.

use crate::error::{ConfigError, check_range};
use crate::units::{self, Prob};
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Rate, Time};

/// One direction of a link: how fast, how long, how bad. The default is a perfect wire.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LineConfig {
    /// Bits per second; none: a frame takes no time to send. Default none.
    #[serde(with = "units")]
    pub rate: Option<Rate>,
    /// Propagation delay, at most 1000 s. Default 0.
    #[serde(with = "units")]
    pub delay: Dur,
    /// Bytes that each frame costs on the wire beside its own: preamble 8, FCS 4 and gap 12 of
    /// Ethernet. 0..=1024, default 24. Published simulators mostly count none.
    pub overhead_bytes: u32,
    /// What goes wrong. Default nothing.
    pub impairments: Impairments,
}

/// What goes wrong on a line. Each kind draws from a generator of its own, for each frame, whether
/// or not another kind has hit it: switching one off does not change what the others hit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Impairments {
    /// Frames lost, each by itself. Default 0.
    pub loss: Prob,
    /// Losses in bursts. Default none.
    pub burst_loss: Option<BurstLoss>,
    /// Losses by block of frames. Default none.
    pub block_loss: Option<BlockLoss>,
    /// Frames held back so that later ones overtake them. Default none.
    pub reorder: Option<Reorder>,
    /// Frames delivered twice, the second right behind the first. Default 0.
    pub duplicate: Prob,
    /// Frames with one bit flipped past the Ethernet header. Default 0.
    pub corrupt: Prob,
    /// Extra delay of each frame, evenly from 0 to this, at most 1000 s; it never reorders. Default
    /// 0.
    #[serde(with = "units")]
    pub jitter: Dur,
    /// When frames vanish although the link looks well. Default never.
    pub blackhole: Vec<Interval>,
    /// When the link is down. Default never.
    pub down: Vec<Interval>,
    /// A link that goes down again and again. Default none.
    pub flap: Option<Flap>,
}

/// Losses in bursts: the model of Gilbert and Elliott.
///
/// Before each frame the state may change, then the frame is lost with the state's probability. In
/// the long run the line is in the bad state for enter / (enter + leave) of the frames, and a stay
/// there lasts 1 / leave frames.
///
/// # Source
/// Gilbert, "Capacity of a Burst-Noise Channel", BSTJ 39 (1960); Elliott, "Estimates of Error Rates
/// for Codes on Burst-Noise Channels", BSTJ 42 (1963).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstLoss {
    /// From the good state to the bad one, per frame.
    pub enter: Prob,
    /// From the bad state back, per frame; above 0.
    pub leave: Prob,
    /// Loss in the good state. Default 0.
    #[serde(default)]
    pub loss_good: Prob,
    /// Loss in the bad state. Default 1.
    #[serde(default = "always")]
    pub loss_bad: Prob,
}

/// Losses by block of frames: in each run of `block_pkts` frames exactly k are lost with
/// probability `losses[k - 1]`, at places drawn evenly.
///
/// A run is of frames that follow each other on this line, whatever flow they are of: it is the
/// line that is bad for a moment. A flow alone on one path meets its own packets in it, one that is
/// spread over several paths those of others.
///
/// # Source
/// Uno (SC'25), table 1: how many of ten packets in a row a wide-area link loses. The rates there
/// are per block of ten: 0.03 %, 0.0075 % and 0.0016 % for one, two and three.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockLoss {
    /// Frames in a block, 1..=64. Default 10.
    #[serde(default = "ten")]
    pub block_pkts: u8,
    /// The probability of exactly 1, 2, .. losses in a block; at most `block_pkts` of them, in sum
    /// at most 1.
    pub losses: Vec<Prob>,
}

/// Frames held back so that later ones overtake them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Frames held back.
    pub probability: Prob,
    /// By how long, at most 1000 s.
    #[serde(with = "units")]
    pub extra_delay: Dur,
}

/// A stretch of time: from `from` up to, not with, `to`, both since the start.
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

/// A link that is down for the first `down` of each `period`, the first period starting at `from`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flap {
    /// From one failure to the next.
    #[serde(with = "units")]
    pub period: Dur,
    /// How long each lasts; above 0 and below `period`.
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
    /// A line of this rate and delay and Ethernet's overhead, without faults.
    #[must_use]
    pub fn new(rate: Rate, delay: Dur) -> Self {
        Self { rate: Some(rate), delay, ..Self::default() }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dur("delay", self.delay)?;
        check_range("overhead_bytes", self.overhead_bytes, 0..=1024)?;
        self.impairments.validate().map_err(|e| e.within("impairments"))
    }

    /// The longest that a frame may be under way once it is sent: delay, jitter and holding back.
    #[must_use]
    pub fn longest_delay(&self) -> Dur {
        let held = self.impairments.reorder.map_or(Dur::ZERO, |r| r.extra_delay);
        self.delay + self.impairments.jitter + held
    }
}

impl Impairments {
    /// True when nothing goes wrong, ever.
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
            let what = "is 0, so that one burst lasts for ever; for that use loss = \"100%\"";
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
    /// The losses of Uno's table 1, setup 1: per block of ten, one lost in 3.0e-4 of the blocks,
    /// two in 7.5e-5, three in 1.6e-5.
    #[must_use]
    pub fn uno_table_1() -> Self {
        Self::of_ten([300_000, 75_000, 16_000])
    }

    /// Those of setup 2, on a shorter way: 4.0e-5, 2.3e-5 and 4.9e-6.
    #[must_use]
    pub fn uno_table_1_setup_2() -> Self {
        Self::of_ten([40_000, 23_000, 4_900])
    }

    /// The same with every rate times `factor`, at most 1 each: for runs that are too short to
    /// meet what is rare.
    #[must_use]
    pub fn times(mut self, factor: u32) -> Self {
        for prob in &mut self.losses {
            *prob = Prob::from_ppb(prob.ppb().saturating_mul(factor)).unwrap_or(Prob::ONE);
        }
        self
    }

    /// One, two and three lost of ten, in billionths.
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
    /// True when some instant of `[start, end]` is in it.
    pub(crate) fn overlaps(&self, start: Time, end: Time) -> bool {
        start.as_ps() < self.to.as_ps() && end.as_ps() >= self.from.as_ps()
    }
}

impl Flap {
    /// True when the link is down at some instant of `[start, end]`.
    pub(crate) fn overlaps(&self, start: Time, end: Time) -> bool {
        let Some(into) = end.as_ps().checked_sub(self.from.as_ps()) else { return false };
        let last_down = end - Dur::from_ps(into % self.period.as_ps());
        start < last_down + self.down
    }
}

/// Every length of time here is at most 1000 s: three orders above any path, and sums of a few
/// cannot reach the end of the range.
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
    fn validate__says_what_and_where() {
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
