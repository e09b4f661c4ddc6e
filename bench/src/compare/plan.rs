//! The plan of a run, which the options of `spanwire-bench compare` are, and its variants.

use super::subject::{Paced, Subject};
use crate::command::Common;
use crate::quiet::Limits;
use crate::sample::Error;
use serde::Serialize;
use spanwire_host::quantity::limit;
use spanwire_transport::Mtu;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The plan of a run.
#[derive(Clone, PartialEq, Debug, Serialize, clap::Args)]
pub struct Plan {
    /// Only the main rows, three rounds of short samples, at most 60 s in all
    #[arg(long)]
    pub quick: bool,
    /// Samples of each row [default: 7, with --quick 3]
    #[arg(long, default_value = "7", default_value_if("quick", "true", "3"),
        hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Milliseconds of a sample [default: 300, with --quick 200]
    #[arg(long, default_value = "300", default_value_if("quick", "true", "200"),
        hide_default_value = true, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub ms: u64,
    /// MTUs of the veth pairs
    #[arg(long = "mtu", value_name = "MTU", value_delimiter = ',', default_values_t = LINK_MTUS,
        value_parser = clap::value_parser!(u32).range(link_mtus()))]
    pub link_mtus: Vec<u32>,
    /// Cores of the sender and the receiver
    #[arg(long, num_args = 2, value_names = ["SENDER", "RECEIVER"], default_values_t = [0, 1])]
    pub cores: Vec<usize>,
    /// The limits of an undisturbed sample.
    #[command(flatten)]
    pub limits: Limits,
    /// Retry a dropped sample at most this often [default: 4, with --quick 1]
    #[arg(
        long,
        default_value = "4",
        default_value_if("quick", "true", "1"),
        hide_default_value = true
    )]
    pub repeats: u32,
    /// Milliseconds to wait for cores that are far apart before each attempt [default: 500, with
    /// --quick 50]
    #[arg(
        long = "wait",
        value_name = "MS",
        default_value = "500",
        default_value_if("quick", "true", "50"),
        hide_default_value = true
    )]
    pub wait_ms: u64,
    /// Title of the report: a date, a commit
    #[arg(long)]
    #[serde(skip)]
    pub label: Option<String>,
    /// Write a bar chart of the rates to this file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub chart: Option<PathBuf>,
    /// Fail (exit code 1) if WRITE reaches less than this share of raw AF_XDP's packets
    #[arg(long, value_name = "PERCENT", value_parser = limit)]
    #[serde(skip)]
    pub min_share: Option<f64>,
    /// The options of all benchmarks.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// A subject on a veth pair of one MTU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// The subject.
    pub subject: Subject,
    /// The interfaces' MTU.
    pub link_mtu: u32,
    /// The path MTU of RC there, and the payload of a raw AF_XDP frame.
    pub path_mtu: u32,
}

impl Plan {
    /// The same with each MTU once, in ascending order.
    ///
    /// # Errors
    /// No row is left.
    pub fn complete(mut self) -> Result<Self, Error> {
        self.link_mtus.sort_unstable();
        self.link_mtus.dedup();
        self.variants().map(|_| self)
    }

    /// The cores of the sending and the receiving thread.
    pub(crate) fn cores(&self) -> [usize; 2] {
        [self.cores[0], self.cores[1]]
    }

    /// Every subject on every MTU; latencies on the first only, and there processor time if `only`
    /// names it.
    ///
    /// # Errors
    /// No subject is selected.
    pub fn variants(&self) -> Result<Vec<Variant>, Error> {
        let mut variants = Vec::new();
        for (n, link_mtu) in self.link_mtus.iter().copied().enumerate() {
            let widest = Mtu::for_link(link_mtu).expect("1280 bytes carry RoCEv2");
            let path_mtu = widest.bytes().min(FRAME_PATH_MTU);
            let mut subjects = Subject::rates(link_mtu, self.quick);
            if n == 0 && !self.quick {
                subjects.extend(Subject::LATENCIES);
            }
            if n == 0 && self.needs_spanwire() {
                let is_quick = |paced: &Paced| !self.quick || paced.mbps == Some(QUICK_MBPS);
                subjects.extend(Paced::all().filter(is_quick).map(Subject::Cpu));
            }
            subjects.retain(|subject| self.common.wants(&subject.name()));
            let variant = |subject| Variant { subject, link_mtu, path_mtu };
            variants.extend(subjects.into_iter().map(variant));
        }
        if variants.is_empty() {
            return Err(self.common.no_row(""));
        }
        Ok(variants)
    }

    /// It measures processor time, of processes of `spanwire`.
    #[must_use]
    pub fn needs_spanwire(&self) -> bool {
        self.common.only.as_deref().is_some_and(|only| only.contains("cpu"))
    }
}

/// The MTUs of a run: Ethernet's, the largest of a frame in one AF_XDP buffer, jumbo frames, and
/// the largest.
pub const LINK_MTUS: [u32; 4] = [1500, 3506, 9000, LINK_MTU_MAX];
/// The smallest MTU with IPv6, which every host here has.
pub const LINK_MTU_MIN: u32 = 1280;
/// The largest MTU of a veth pair.
pub const LINK_MTU_MAX: u32 = 65_535;
/// The rate of a quick run.
const QUICK_MBPS: u64 = 200;
/// The largest path MTU of RC in a frame of one AF_XDP buffer, which is 3840 bytes.
const FRAME_PATH_MTU: u32 = 2048;

fn link_mtus() -> RangeInclusive<i64> {
    i64::from(LINK_MTU_MIN)..=i64::from(LINK_MTU_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::subject::Flow;
    use super::*;
    use crate::testing::options;
    use std::collections::BTreeSet;

    fn counts(plan: &Plan) -> Vec<usize> {
        let variants = plan.variants().unwrap();
        let at = |mtu: &u32| variants.iter().filter(|v| v.link_mtu == *mtu).count();
        plan.link_mtus.iter().map(at).collect()
    }

    #[test]
    fn variants__every_mtu_has_rates_and_the_first_has_latencies() {
        let plan = options(&[]).unwrap();
        // 3 + 2 raw, 2 TCP, 9 large, 8 small, READ and SEND, and 6 latencies.
        assert_eq!(counts(&plan), [26 + 6, 19, 14, 14]);
        let variants = plan.variants().unwrap();
        let path_mtus: Vec<u32> = plan
            .link_mtus
            .iter()
            .filter_map(|mtu| Some(variants.iter().find(|v| v.link_mtu == *mtu)?.path_mtu))
            .collect();
        assert_eq!(path_mtus, [1024, 2048, 2048, 2048]);
        let names: BTreeSet<_> = variants.iter().map(|v| (v.subject.name(), v.link_mtu)).collect();
        assert_eq!(names.len(), variants.len(), "two variants share a name");
    }

    #[test]
    fn variants__a_quick_run_has_the_main_rows_of_every_mtu() {
        assert_eq!(counts(&Plan { quick: true, ..options(&[]).unwrap() }), [14; 4]);
    }

    #[test]
    fn variants__only_some_subjects_if_wanted() {
        let mut plan: Plan = options(&["--only", "AF_XDP RC none WRITE 64"]).unwrap();
        let variants = plan.variants().unwrap();
        let flow = Subject::Write(Flow::of_shares());
        assert!(variants.iter().all(|v| v.subject == flow), "{variants:?}");
        assert_eq!(variants.iter().map(|v| v.link_mtu).collect::<Vec<_>>(), [1500, 3506]);
        plan.common.only = Some("cpu".to_owned());
        assert_eq!(counts(&plan), [24, 0, 0, 0]);
        assert_eq!(counts(&Plan { quick: true, ..plan.clone() }), [6, 0, 0, 0]);
        plan.common.only = Some("iperf".to_owned());
        let why = plan.variants().unwrap_err().to_string();
        assert!(why.contains("--only \"iperf\""), "{why}");
    }

    fn plan(words: &[&str]) -> Result<Plan, Error> {
        options::<Plan>(words)?.complete()
    }

    #[test]
    fn plan__defaults_are_those_of_the_plan_and_a_quick_run_is_shorter() {
        assert_eq!(plan(&[]).unwrap(), options(&[]).unwrap());
        let quick = plan(&["--quick"]).unwrap();
        assert_eq!((quick.rounds, quick.ms, quick.quick), (3, 200, true));
        assert_eq!(plan(&["--quick", "--rounds", "1"]).unwrap().rounds, 1);
        assert_eq!(plan(&["--mtu", "9000,1500,9000"]).unwrap().link_mtus, [1500, 9000]);
    }
}
