//! Banned words in code: where `unsafe` is allowed, and which calls are banned where.

use crate::Finding;
use crate::scan::{Source, has_word};

/// Crates that may contain `unsafe`: the kernel's rings, memory that the network writes, system
/// calls, vector instructions, the C interface of libibverbs.
const UNSAFE_IN: &[&str] = &["af_xdp", "mem", "io", "erasure", "verbs"];
/// Crates that may use clocks, threads and the environment.
const MACHINE: &[&str] = &[
    "af_xdp", "io", "progress", "host", "stream", "copy", "lab", "verbs", "bins", "bench", "tests",
    "fuzz",
];
/// Library crates: they do not write to the terminal and do not unwrap.
const LIBRARIES: &[&str] = &[
    "af_xdp",
    "base",
    "params",
    "wire",
    "mem",
    "nn",
    "erasure",
    "loadbalance",
    "transport",
    "switch",
    "sim",
    "io",
    "host",
    "stream",
    "copy",
    "pcap",
    "plot",
    "lab",
    "verbs",
];

/// A word that must not occur in code.
struct Ban {
    words: &'static [&'static str],
    applies: fn(&str) -> bool,
    /// In tests, too.
    in_tests: bool,
    instead: &'static str,
}

/// Files of the switch with floats: the state, the networks and the record of its agent `ecn`,
/// which run in a timer. Their operations round alike on every machine.
const FLOATS_IN: &[&str] = &[
    "switch/src/agent/ecn/policy.rs",
    "switch/src/agent/ecn/state.rs",
    "switch/src/agent/ecn/trace.rs",
];

const BANS: &[Ban] = &[
    Ban {
        words: &["unsafe"],
        applies: |krate| !UNSAFE_IN.contains(&krate),
        in_tests: true,
        instead: "unsafe belongs to af_xdp, mem, io, erasure and verbs",
    },
    Ban {
        words: &["Instant::now", "SystemTime", "thread::", "std::env"],
        applies: |krate| !MACHINE.contains(&krate),
        in_tests: false,
        instead: "time and configuration are arguments; clocks and threads live in io and bins",
    },
    Ban {
        words: &["HashMap", "HashSet"],
        applies: |krate| !MACHINE.contains(&krate),
        in_tests: false,
        instead: "hash order differs from run to run; use a slab, a Vec or a BTreeMap",
    },
    Ban {
        words: &["f32", "f64"],
        applies: |krate| {
            matches!(krate, "base" | "wire" | "erasure" | "loadbalance" | "transport" | "switch")
        },
        in_tests: false,
        instead: "rounding differs between machines; use integers",
    },
    Ban {
        words: &["print!", "println!", "eprint!", "eprintln!"],
        applies: |krate| LIBRARIES.contains(&krate),
        in_tests: false,
        instead: "a library counts or returns; io and bins may use tracing",
    },
    Ban {
        words: &[".unwrap()"],
        applies: |krate| LIBRARIES.contains(&krate),
        in_tests: false,
        instead: "return an error, or .expect() with the invariant that makes it impossible",
    },
    Ban {
        words: &["fs::read", "fs::read_to_string"],
        applies: |krate| matches!(krate, "host" | "stream" | "copy" | "pcap" | "lab" | "bins"),
        in_tests: false,
        instead: "a path may lead to a device without an end; use host::file, which has a limit",
    },
    Ban {
        words: &["todo!", "unimplemented!", "dbg!"],
        applies: |_| true,
        in_tests: true,
        instead: "finish it",
    },
    Ban {
        words: &["#[ignore"],
        applies: |_| true,
        in_tests: true,
        instead: "a test that never runs protects nothing; make it fast or delete it",
    },
];

/// Banned words, in code only: comments and literals may name them.
pub(crate) fn check_words(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        // Cargo reads the output of build scripts.
        let is_excepted = |ban: &Ban| {
            ban.words.contains(&"f32") && FLOATS_IN.contains(&&*source.path)
                || ban.words.contains(&"println!") && source.path.ends_with("/build.rs")
        };
        let applies = |ban: &&Ban| (ban.applies)(source.krate()) && !is_excepted(ban);
        for ban in BANS.iter().filter(applies) {
            for (number, line) in source.code_lines(!ban.in_tests) {
                for word in ban.words.iter().filter(|word| has_word(line, word)) {
                    let what = format!("`{word}`: {}", ban.instead);
                    findings.push(Finding::new(&source.path, number, what));
                }
            }
        }
    }
    findings
}

/// Crates without `unsafe` have `#![forbid(unsafe_code)]`.
pub(crate) fn check_forbid(sources: &[Source]) -> Vec<Finding> {
    sources
        .iter()
        .filter(|s| !UNSAFE_IN.contains(&s.krate()))
        .filter(|s| s.path.ends_with("/src/lib.rs") || s.path.ends_with("/src/main.rs"))
        .filter(|s| !s.code.contains("#![forbid(unsafe_code)]"))
        .map(|s| Finding::new(&s.path, 1, "add #![forbid(unsafe_code)] below the crate's doc"))
        .collect()
}

/// An open task in a comment needs the number of an issue.
pub(crate) fn check_todos(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (number, line) in (1..).zip(source.comments.lines()) {
            let open = ["TODO", "FIXME"].iter().any(|word| has_word(line, word));
            if open && !has_issue(line) {
                let what = "a TODO needs its issue's number, as in TODO(#12)";
                findings.push(Finding::new(&source.path, number, what));
            }
        }
    }
    findings
}

fn has_issue(line: &str) -> bool {
    line.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(path: &str, text: &str) -> usize {
        check_words(&[Source::new(path, text)]).len()
    }

    #[test]
    fn check_words__each_ban_fires_where_it_applies() {
        for (bad, krate, fine_in) in [
            ("unsafe { x() }", "bins", "mem"),
            ("let t = Instant::now();", "transport", "io"),
            ("use std::time::SystemTime;", "wire", "bins"),
            ("std::thread::spawn(f);", "mem", "bench"),
            ("std::env::var(x);", "base", "tests"),
            ("let m: HashMap<u8, u8>;", "transport", "io"),
            ("let m = HashSet::new();", "base", "bins"),
            ("let x = 1 as f64;", "wire", "bench"),
            ("fn f(x: f32) {}", "transport", "io"),
            ("println!();", "io", "bins"),
            ("eprintln!();", "transport", "bench"),
            ("x.unwrap();", "io", "bins"),
            ("fs::read(path)?;", "bins", "bench"),
            ("fs::read_to_string(path)?;", "lab", "io"),
        ] {
            assert_eq!(words(&format!("{krate}/src/a.rs"), bad), 1, "{bad} in {krate}");
            assert_eq!(words(&format!("{fine_in}/src/a.rs"), bad), 0, "{bad} in {fine_in}");
        }
        assert_eq!(words("io/build.rs", "println!();"), 0, "it is for cargo");
        for bad in ["todo!()", "unimplemented!()", "dbg!(x)", "#[ignore]", "#[ignore = \"\"]"] {
            assert_eq!(words("tests/a.rs", bad), 1, "{bad}");
            assert_eq!(words("io/src/a.rs", bad), 1, "{bad}");
        }
    }

    #[test]
    fn check_words__say_nothing_of_comments_strings_and_longer_words() {
        let text = "// unsafe\n/* todo!() */\nlet s = \"HashMap println!\";\nx.unwrap_or(1);\n\
                    let unsafe_code = f64x2();\n";
        assert_eq!(words("transport/src/a.rs", text), 0);
    }

    #[test]
    fn check_words__tests_may_unwrap_but_not_be_unsafe() {
        let test = |line: &str| format!("#[cfg(test)]\nmod tests {{\n{line}\n}}\n");
        assert_eq!(words("wire/src/a.rs", &test("x.unwrap();")), 0);
        assert_eq!(words("wire/src/a.rs", &test("unsafe { x() }")), 1);
        assert_eq!(words("wire/src/a/tests.rs", "x.unwrap();"), 0);
        assert_eq!(words("wire/src/a/tests.rs", "unsafe { x() }"), 1);
    }

    #[test]
    fn check_forbid__fires_for_a_crate_root_without_it() {
        let of = |path, text| check_forbid(&[Source::new(path, text)]).len();
        assert_eq!(of("wire/src/lib.rs", "//! doc #![forbid(unsafe_code)]\n"), 1);
        assert_eq!(of("wire/src/lib.rs", "//! doc\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(of("bins/src/main.rs", ""), 1);
        assert_eq!(of("wire/src/other.rs", ""), 0);
        assert_eq!(of("mem/src/lib.rs", ""), 0);
    }

    #[test]
    fn check_todos__fire_without_an_issue() {
        let of = |text| check_todos(&[Source::new("io/src/a.rs", text)]).len();
        assert_eq!(of("// TODO: more\n/* FIXME # 1 */\n"), 2);
        assert_eq!(of("// TODO(#12): more\nlet s = \"TODO\"; // mastodont\n"), 0);
    }
}
