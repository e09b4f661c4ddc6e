//! Instructions by function and source file, from the output of cachegrind, and their stages.

use std::collections::BTreeMap;

/// Instructions of a run, by place.
#[derive(Clone, Debug, Default)]
pub struct Costs(BTreeMap<Place, u64>);

/// A function as the linker names it, and the source file of the instruction: that of an inlined
/// function where one is. Without debug information there is no file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    function: String,
    file: String,
}

impl Costs {
    /// Reads the output file of cachegrind: lines `fl=FILE`, `fn=FUNCTION` and `LINE COUNT`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut costs = BTreeMap::new();
        let (mut file, mut function) = ("", "");
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fl=") {
                file = name;
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = name;
            } else if let Some((number, count)) = line.split_once(' ')
                && let (Ok(_), Ok(count)) = (number.parse::<u64>(), count.trim().parse::<u64>())
            {
                let place = Place { function: function.to_owned(), file: file.to_owned() };
                *costs.entry(place).or_default() += count;
            }
        }
        Self(costs)
    }

    /// The difference to `more`, a longer run.
    #[must_use]
    pub fn to(&self, more: &Self) -> Self {
        let beyond = |(place, n): (&Place, &u64)| {
            let n = n.saturating_sub(self.0.get(place).copied().unwrap_or(0));
            (n > 0).then(|| (place.clone(), n))
        };
        Self(more.0.iter().filter_map(beyond).collect())
    }

    /// All instructions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Those of all stages but the CRC kernel and the copy of payload: the engine. Both are bound
    /// by bytes, and valgrind has no VPCLMULQDQ, so the kernel counts as its 128-bit form.
    #[must_use]
    pub fn engine(&self) -> u64 {
        let bytes = |place: &&Place| [CRC_KERNEL, COPY].contains(&place.stage());
        self.total() - self.0.iter().filter(|(place, _)| bytes(place)).map(|(_, n)| n).sum::<u64>()
    }

    /// Instructions by stage, most first.
    #[must_use]
    pub fn stages(&self) -> Vec<(&'static str, u64)> {
        let mut stages = BTreeMap::new();
        for (place, n) in &self.0 {
            *stages.entry(place.stage()).or_default() += n;
        }
        let mut stages: Vec<_> = stages.into_iter().collect();
        stages.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        stages
    }

    /// The functions and files of [`OTHER`], most first: those that no stage names.
    #[must_use]
    pub fn unknown(&self) -> Vec<(String, u64)> {
        let unknown = self.0.iter().filter(|(place, _)| place.stage() == OTHER);
        let mut unknown: Vec<_> = unknown
            .map(|(place, n)| (format!("{} in {}", place.function, place.file), *n))
            .collect();
        unknown.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        unknown
    }
}

impl Place {
    /// Its stage: by the source file, or for code of other crates that is inlined, by the module of
    /// the function around it.
    fn stage(&self) -> &'static str {
        let function = self.function.trim_start_matches('<');
        if function.starts_with("crc32fast::specialized") {
            return CRC_KERNEL;
        }
        if function.starts_with("spanwire_mem::shared") {
            return COPY;
        }
        let module = function.trim_start_matches("spanwire_").replace("::", "/");
        stage(&in_crate(&self.file)).or_else(|| stage(&module)).unwrap_or(OTHER)
    }
}

/// The path of a source file from its crate on: `wire/icrc.rs` for `/w/wire/src/icrc.rs`.
fn in_crate(file: &str) -> String {
    let Some((before, rest)) = file.rsplit_once("/src/") else { return String::new() };
    format!("{}/{rest}", before.rsplit('/').next().unwrap_or_default())
}

/// The stage of the longest beginning of `path` that has one.
fn stage(path: &str) -> Option<&'static str> {
    let known = STAGES.iter().flat_map(|(stage, paths)| paths.iter().map(move |p| (*p, *stage)));
    known.filter(|(p, _)| path.starts_with(p)).max_by_key(|(p, _)| p.len()).map(|(_, stage)| stage)
}

const CRC_KERNEL: &str = "CRC kernel";
const COPY: &str = "payload copy";
/// The stage of code that no other one names.
pub const OTHER: &str = "other";

/// Stages, and beginnings of the paths of their files and modules; the longest one counts.
const STAGES: &[(&str, &[&str])] = &[
    ("benchmark", &["bench/"]),
    ("ICRC beside its kernel", &["wire/icrc", "crc32fast"]),
    ("SR header", &["wire/sr"]),
    ("BTH, extension headers", &["wire/bth", "wire/ext", "wire/opcode", "wire/psn", "wire/qpn"]),
    ("outer headers", &["wire/"]),
    (
        "congestion control, pacing",
        &[
            "cc/",
            "pacer/token_bucket",
            "transport/qp/congestion",
            "transport/qp/flow",
            "transport/rc/congestion",
        ],
    ),
    (
        "erasure coding",
        &[
            "erasure/",
            "transport/blocks",
            "transport/sr/recover",
            "transport/sr/rx/decoder",
            "transport/sr/tx/block_position",
            "transport/sr/tx/encoder",
        ],
    ),
    (
        "timers, loss detection",
        &[
            "transport/rc/loss",
            "transport/rc/timing",
            "transport/sr/rx/deadline",
            "transport/sr/tx/margin",
            "transport/sr/tx/reorder",
            "transport/sr/tx/rtt",
            "transport/sr/tx/sent/loss_detection",
            "transport/sr/tx/timers",
            "transport/timer",
        ],
    ),
    (
        "memory: keys, bounds, copy calls",
        &["mem/", "transport/mr", "transport/payload", "transport/qp/wq", "transport/tables"],
    ),
    (
        "posts, completions",
        &[
            "arrayvec",
            "transport/cq",
            "transport/qp/complete",
            "transport/qp/outcome",
            "transport/qp/post",
            "transport/qp/receive",
            "transport/srq",
            "transport/verbs",
            "transport/wc",
        ],
    ),
    (
        "acknowledgements",
        &[
            "transport/rc/ack",
            "transport/rc/completer",
            "transport/rc/on_response",
            "transport/sr/on_ack",
            "transport/sr/rx/ack",
            "transport/sr/tx/on_ack",
            "transport/sr/tx/sent",
        ],
    ),
    (
        "receiving: check, place, execute",
        &[
            "transport/rc/on_request",
            "transport/rc/outcome",
            "transport/rc/responder",
            "transport/sr/on_data",
            "transport/sr/rx",
        ],
    ),
    (
        "sending: choose, describe, write",
        &["transport/qp/path", "transport/qp/write", "transport/rc/", "transport/sr/"],
    ),
    ("scheduling of queue pairs", &["pacer/", "transport/endpoint/turn", "transport/schedule"]),
    ("dispatch, accounting", &["transport/"]),
    ("struct copies", &["__mem", "mem", "bcmp"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "desc: I1 cache:\ncmd: x\nevents: Ir\n\
        fl=/w/wire/src/icrc.rs\nfn=spanwire_wire::icrc::icrc\n10 100\n11 20\n\
        fl=/rust/core/src/slice/mod.rs\nfn=spanwire_wire::icrc::icrc\n7 5\n\
        fl=???\nfn=crc32fast::specialized::pclmulqdq::calculate\n0 1000\n\
        fl=/w/mem/src/shared/x86_64.rs\nfn=spanwire_mem::shared::x86_64::copy_long\n3 200\n\
        fl=???\nfn=strange\n0 9\nsummary: 1334\n";

    #[test]
    fn parse__attributes_inlined_code_to_the_function_around_it() {
        assert_eq!(in_crate("/a/src/cc/wire/src/icrc.rs"), "wire/icrc.rs");
        let costs = Costs::parse(RUN);
        assert_eq!((costs.total(), costs.engine()), (1334, 134));
        let stages = costs.stages();
        assert_eq!(stages[0], (CRC_KERNEL, 1000));
        assert!(stages.contains(&("ICRC beside its kernel", 125)), "{stages:?}");
        assert_eq!(costs.unknown(), [("strange in ???".to_owned(), 9)]);
    }

    #[test]
    fn to__is_the_difference() {
        let longer = RUN.replace("3 200", "3 700");
        let more = Costs::parse(RUN).to(&Costs::parse(&longer));
        assert_eq!(more.stages(), [(COPY, 500)]);
    }
}
