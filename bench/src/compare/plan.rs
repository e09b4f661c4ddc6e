//! The plan of a run, and its variants.

use super::subject::Subject;
use crate::quiet::Limits;
use crate::sample::Error;
use serde::Serialize;
use spanwire_transport::Mtu;

/// The plan of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// Samples of each variant, 1 and up.
    pub rounds: usize,
    /// Milliseconds of a sample, 10 and up.
    pub ms: u64,
    /// MTUs of the veth pairs, [`LINK_MTU_MIN`] to [`LINK_MTU_MAX`].
    pub link_mtus: Vec<u32>,
    /// The limits of an undisturbed sample.
    pub limits: Limits,
    /// Retries of a disturbed sample before the round goes without it.
    pub repeats: u32,
    /// Milliseconds to wait, before each attempt, for cores in different complexes to come
    /// together.
    pub wait_ms: u64,
    /// The cores of the sending and the receiving thread.
    pub cores: [usize; 2],
    /// Measures only subjects whose name contains this, to profile one alone.
    pub only: Option<String>,
    /// Has fewer rows, and ends within a minute.
    pub quick: bool,
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

impl Default for Plan {
    fn default() -> Self {
        Self {
            rounds: 7,
            ms: 300,
            link_mtus: LINK_MTUS.to_vec(),
            limits: Limits::default(),
            repeats: 4,
            wait_ms: 500,
            cores: [0, 1],
            only: None,
            quick: false,
        }
    }
}

impl Plan {
    /// Every subject on every MTU; latencies on the first only.
    ///
    /// # Errors
    /// An MTU is out of range, or no subject is selected.
    pub fn variants(&self) -> Result<Vec<Variant>, Error> {
        let mut variants = Vec::new();
        for (n, link_mtu) in self.link_mtus.iter().copied().enumerate() {
            if !(LINK_MTU_MIN..=LINK_MTU_MAX).contains(&link_mtu) {
                let range = format!("{LINK_MTU_MIN}..={LINK_MTU_MAX}");
                return Err(format!("MTU {link_mtu} is not in {range}").into());
            }
            let widest = Mtu::for_link(link_mtu).expect("1280 bytes carry RoCEv2");
            let path_mtu = widest.bytes().min(FRAME_PATH_MTU);
            let mut subjects = Subject::rates(link_mtu, self.quick);
            if n == 0 && !self.quick {
                subjects.extend(Subject::LATENCIES);
            }
            subjects.retain(|subject| self.wants(*subject));
            let variant = |subject| Variant { subject, link_mtu, path_mtu };
            variants.extend(subjects.into_iter().map(variant));
        }
        if variants.is_empty() {
            let only = self.only.as_deref().unwrap_or_default();
            return Err(format!("--only {only:?}: no row has this in its name").into());
        }
        Ok(variants)
    }

    fn wants(&self, subject: Subject) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|only| subject.name().contains(only))
    }
}

/// The MTUs of a run: Ethernet's, the largest of a frame in one AF_XDP buffer, jumbo frames, and
/// the largest.
pub const LINK_MTUS: [u32; 4] = [1500, 3506, 9000, LINK_MTU_MAX];
/// The smallest MTU with IPv6, which every host here has.
pub const LINK_MTU_MIN: u32 = 1280;
/// The largest MTU of a veth pair.
pub const LINK_MTU_MAX: u32 = 65_535;
/// The largest path MTU of RC in a frame of one AF_XDP buffer, which is 3840 bytes.
const FRAME_PATH_MTU: u32 = 2048;

#[cfg(test)]
mod tests {
    use super::super::subject::Flow;
    use super::*;
    use std::collections::BTreeSet;

    fn counts(plan: &Plan) -> Vec<usize> {
        let variants = plan.variants().unwrap();
        let at = |mtu: &u32| variants.iter().filter(|v| v.link_mtu == *mtu).count();
        plan.link_mtus.iter().map(at).collect()
    }

    #[test]
    fn variants__every_mtu_has_rates_and_the_first_has_latencies() {
        let plan = Plan::default();
        // 3 + 1 raw, 2 TCP, 9 large, 8 small, READ and SEND, and 6 latencies.
        assert_eq!(counts(&plan), [25 + 6, 18, 13, 13]);
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
        assert_eq!(counts(&Plan { quick: true, ..Plan::default() }), [13; 4]);
    }

    #[test]
    fn variants__an_mtu_out_of_range_is_rejected() {
        for link_mtu in [1279, 65_536] {
            let plan = Plan { link_mtus: vec![link_mtu], ..Plan::default() };
            assert!(plan.variants().is_err(), "{link_mtu}");
        }
    }

    #[test]
    fn variants__only_some_subjects_if_wanted() {
        let mut plan = Plan { only: Some("AF_XDP RC none WRITE 64".to_owned()), ..Plan::default() };
        let variants = plan.variants().unwrap();
        let flow = Subject::Write(Flow::of_shares());
        assert!(variants.iter().all(|v| v.subject == flow), "{variants:?}");
        assert_eq!(variants.iter().map(|v| v.link_mtu).collect::<Vec<_>>(), [1500, 3506]);
        plan.only = Some("iperf".to_owned());
        let why = plan.variants().unwrap_err().to_string();
        assert!(why.contains("--only \"iperf\""), "{why}");
    }
}
