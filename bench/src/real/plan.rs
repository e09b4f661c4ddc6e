//! The plan of a run: the options of `spanwire-bench real` and `verbs`.

use crate::command::Common;
use serde::Serialize;

/// The plan of a run.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Plan {
    /// Fewer and shorter rows with the same bars, one round, at most 60 s in all
    #[arg(long)]
    pub quick: bool,
    /// Samples of each row [default: 3, with --quick 1]
    #[arg(long, default_value = "3", default_value_if("quick", "true", "1"),
        hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// The options of all benchmarks.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::options;
    use std::path::Path;

    #[test]
    fn plan__a_quick_run_is_one_round() {
        let plan = |words: &[&str]| options::<Plan>(words).unwrap();
        assert_eq!((plan(&[]).rounds, plan(&[]).quick), (3, false));
        assert_eq!((plan(&["--quick"]).rounds, plan(&["--quick"]).quick), (1, true));
        assert_eq!(plan(&["--quick", "--rounds", "2"]).rounds, 2);
        let only = plan(&["--only", "RTT", "--spanwire", "/bin/spanwire"]);
        assert_eq!(only.common.only.as_deref(), Some("RTT"));
        assert_eq!(only.common.path(), Path::new("/bin/spanwire"));
    }

    #[test]
    fn plan__errors_name_the_option() {
        let why = options::<Plan>(&["--rounds", "0"]).unwrap_err().to_string();
        assert!(why.contains("--rounds"), "{why}");
        assert!(options::<Plan>(&["--seconds", "1"]).is_err());
    }
}
