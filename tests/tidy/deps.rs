//! Allowed dependencies: they point down, and each needs a reason.

use crate::Finding;

/// The allowed dependencies of one crate.
struct Allowed {
    krate: &'static str,
    /// Crates of this workspace, without `spanwire-`.
    ours: &'static [&'static str],
    /// External crates.
    theirs: &'static [&'static str],
}

/// The direction of the whole workspace. `io` knows no protocol; `transport` no I/O.
const ALLOWED: &[Allowed] = &[
    Allowed { krate: "base", ours: &["mem"], theirs: &[] },
    Allowed { krate: "params", ours: &[], theirs: &[] },
    Allowed { krate: "cc", ours: &["base", "params"], theirs: &[] },
    Allowed { krate: "loadbalance", ours: &["base", "params"], theirs: &[] },
    Allowed { krate: "pacer", ours: &["base"], theirs: &[] },
    Allowed { krate: "erasure", ours: &[], theirs: &[] },
    Allowed { krate: "wire", ours: &["base"], theirs: &["crc32fast"] },
    Allowed { krate: "mem", ours: &[], theirs: &["libc"] },
    Allowed {
        krate: "nn",
        ours: &["base"],
        // The format of files, which other libraries read.
        theirs: &["safetensors", "serde", "serde_json"],
    },
    Allowed { krate: "switch", ours: &["base", "nn", "wire"], theirs: &["arrayvec", "serde"] },
    Allowed { krate: "af_xdp", ours: &[], theirs: &["bytemuck", "libc"] },
    Allowed {
        krate: "transport",
        ours: &["base", "wire", "mem", "cc", "pacer", "erasure", "loadbalance"],
        theirs: &["arrayvec", "rand_chacha"],
    },
    Allowed {
        krate: "sim",
        ours: &[
            "base",
            "params",
            "wire",
            "mem",
            "cc",
            "erasure",
            "loadbalance",
            "nn",
            // The rule by which hosts spin or sleep is that of real drivers.
            "progress",
            "switch",
            "transport",
        ],
        // Counters are taken over by name, so that the switch's list of them is the only one.
        theirs: &["serde", "serde_json"],
    },
    // The model checker, in its own build only.
    Allowed { krate: "progress", ours: &["base"], theirs: &["loom"] },
    Allowed {
        krate: "io",
        ours: &["base", "mem", "af-xdp", "progress"],
        theirs: &[
            // Structures of the kernel as bytes.
            "bytemuck",
            "core_affinity",
            "crossbeam-queue",
            "libc",
            "netlink-packet-core",
            "netlink-packet-route",
            "netlink-sys",
            "rustix",
            "tracing",
        ],
    },
    Allowed {
        krate: "host",
        ours: &[
            "base",
            "wire",
            "mem",
            "cc",
            "erasure",
            "loadbalance",
            "transport",
            "io",
            "progress",
        ],
        theirs: &[
            // Keys of engines, seeds.
            "getrandom",
            "hdrhistogram",
            "libc",
            // Error numbers of the system by name.
            "rustix",
            "serde",
            "serde_json",
            // Hashes of a transfer's data, on both ends.
            "sha2",
            // Sockets bound to an interface, and keepalive.
            "socket2",
            "tracing",
        ],
    },
    Allowed {
        krate: "stream",
        ours: &["base", "wire", "mem", "transport", "io", "progress", "host"],
        theirs: &[
            // Bounded lock-free rings between applications and the worker.
            "crossbeam-queue",
            // poll(2) for the side connections, without unsafe code of ours.
            "rustix",
            "serde",
            "serde_json",
            "tracing",
        ],
    },
    Allowed {
        krate: "copy",
        ours: &["base", "host", "stream"],
        theirs: &[
            "hdrhistogram",
            // openat and its family, which confine a receiver to its directory.
            "rustix",
            "serde",
            "serde_json",
            "sha2",
            "tracing",
        ],
    },
    Allowed {
        krate: "pcap",
        ours: &["wire"],
        theirs: &[
            // pcap and pcapng. The latter has many block types, and a hostile file must not cause a
            // crash: the parser of the Rusticata project supports them.
            "pcap-parser",
            "serde",
        ],
    },
    Allowed {
        krate: "plot",
        ours: &[],
        // Only its SVG backend: no fonts of the system, no pixels, so the same data gives the same
        // bytes everywhere.
        theirs: &["plotters"],
    },
    Allowed {
        krate: "lab",
        ours: &["io", "host"],
        theirs: &[
            // pidfd_open, so that a signal cannot reach another process that reuses the process id.
            "rustix",
            "serde",
            "serde_json",
        ],
    },
    // Names, layouts and errors of the C interface.
    Allowed {
        krate: "verbs",
        ours: &["mem", "wire", "transport", "io", "host"],
        theirs: &["libc", "tracing"],
    },
    Allowed {
        krate: "bins",
        ours: &[
            "base",
            "cc",
            "erasure",
            "loadbalance",
            "wire",
            "mem",
            "transport",
            "io",
            "host",
            "stream",
            "copy",
            "switch",
            "sim",
            "pcap",
            "plot",
            "lab",
        ],
        theirs: &[
            "clap",
            "serde",
            "serde_json",
            // The hash of a trained file.
            "sha2",
            "signal-hook",
            // The configuration of `spanwire switch`.
            "toml",
            "tracing",
            "tracing-subscriber",
            // The grammar of a paper's metrics and bars.
            "winnow",
        ],
    },
    Allowed {
        krate: "bench",
        ours: &[
            "base",
            "cc",
            "pacer",
            "erasure",
            "wire",
            "mem",
            "af-xdp",
            "transport",
            "switch",
            "sim",
            "io",
            "host",
            // The library that `service` measures.
            "stream",
            // The chart of `compare`.
            "plot",
            "bins",
        ],
        theirs: &[
            "clap",
            "hdrhistogram",
            "libc",
            // Other implementations of erasure coding, as references of the benchmark.
            "reed-solomon-erasure",
            "reed-solomon-simd",
            // Epoll, and the processor time of a process.
            "rustix",
            "serde",
            "serde_json",
            // The hash of `copy`, for TCP with the same.
            "sha2",
            // Selects the congestion control of the reference TCP.
            "socket2",
        ],
    },
    Allowed {
        krate: "tests",
        ours: &[
            "base",
            "wire",
            "mem",
            "cc",
            "erasure",
            "loadbalance",
            "switch",
            "sim",
            "af-xdp",
            "transport",
            "io",
            "bins",
        ],
        theirs: &["serde", "serde_json"],
    },
    Allowed {
        krate: "fuzz",
        ours: &[
            "base",
            "wire",
            "mem",
            "cc",
            "erasure",
            "loadbalance",
            "transport",
            "io",
            "host",
            "stream",
            "switch",
            "tests",
        ],
        theirs: &["libfuzzer-sys", "serde_json"],
    },
];

/// Further dependencies that any crate may use in its tests.
const ALLOWED_IN_TESTS: &[&str] = &["proptest"];

/// Crates that dev-dependencies may add to one crate: (crate, dependency).
const ALLOWED_IN_TESTS_OF: &[(&str, &str)] = &[
    // The reader of captures, for the replay of perftest's exchanges.
    ("host", "spanwire-tests"),
    // An example of threads that share an endpoint. The crate itself knows no protocol.
    ("io", "spanwire-transport"),
    ("io", "spanwire-wire"),
    // Another implementation of the same codes, as an oracle.
    ("erasure", "reed-solomon-erasure"),
    // Proves that the engine allocates nothing in steady state.
    ("tests", "allocation-counter"),
    // Deliberately misbehaving peers.
    ("stream", "socket2"),
    // Configurations and counters as text.
    ("switch", "serde_json"),
    // Parses the figures: they must be valid XML with the expected content.
    ("plot", "roxmltree"),
    ("bins", "roxmltree"),
    // Hashes of files that `spanwire copy` has transferred; signals, file capabilities and
    // misbehaving sockets in tests of the command.
    ("bins", "sha2"),
    ("bins", "libc"),
    ("bins", "rustix"),
    ("bins", "socket2"),
];

/// `manifests` are (path, text) of each crate's `Cargo.toml`.
pub(crate) fn check(manifests: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in manifests {
        let krate = path.split('/').next().unwrap_or_default();
        let Some(allowed) = ALLOWED.iter().find(|a| a.krate == krate) else {
            let what = format!("{krate} has no entry in tests/tidy/deps.rs: say what it may use");
            findings.push(Finding::new(path, 1, what));
            continue;
        };
        for (line, dependency, dev) in dependencies(text) {
            let ok = match dependency.strip_prefix("spanwire-") {
                Some(ours) => allowed.ours.contains(&ours),
                None => allowed.theirs.contains(&&*dependency),
            };
            let ok_in_tests = dev
                && (ALLOWED_IN_TESTS.contains(&&*dependency)
                    || ALLOWED_IN_TESTS_OF.contains(&(krate, &*dependency)));
            if !ok && !ok_in_tests {
                let what = format!(
                    "{krate} may not depend on {dependency}: turn the dependency round, \
                     or argue for it in tests/tidy/deps.rs"
                );
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    findings
}

/// (line, package, only for tests) of each dependency in a manifest.
fn dependencies(manifest: &str) -> Vec<(usize, String, bool)> {
    let mut found = Vec::new();
    let mut section = "";
    for (number, line) in (1..).zip(manifest.lines()) {
        let line = line.trim();
        if let Some(head) = line.strip_prefix('[') {
            section = head.trim_end_matches(']');
            // The long form: [dependencies.NAME].
            if let Some((table, name)) = section.rsplit_once('.')
                && table.ends_with("dependencies")
            {
                let name = name.trim_matches('"').to_owned();
                found.push((number, name, table.contains("dev-")));
            }
        } else if section.ends_with("dependencies") && !line.is_empty() && !line.starts_with('#') {
            let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
            let name = key.trim_matches('"').to_owned();
            found.push((number, name, section.contains("dev-")));
        }
    }
    found
}

/// The document with the table of [`ALLOWED`] for readers.
pub(crate) const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
const TABLE_HEAD: &str = "| crate | depends on |";

/// The table below [`TABLE_HEAD`] in `document` has a row `| [crate](..) | its dependencies |` for
/// each crate of [`ALLOWED`], and no other.
pub(crate) fn check_table(document: &str) -> Vec<Finding> {
    let rows: Vec<(usize, &str, &str)> = (1..)
        .zip(document.lines())
        .skip_while(|(_, line)| *line != TABLE_HEAD)
        .skip(2)
        .take_while(|(_, line)| line.starts_with('|'))
        .filter_map(|(number, line)| {
            let mut cells = line.split('|').skip(1).map(str::trim);
            let name = cells.next()?.trim_start_matches('[').split(']').next()?;
            Some((number, name, cells.next()?))
        })
        .collect();
    let mut findings = Vec::new();
    let mut add = |line, what: String| findings.push(Finding::new(ARCHITECTURE, line, what));
    for allowed in ALLOWED {
        let mut wanted: Vec<&str> = allowed.ours.to_vec();
        wanted.sort_unstable();
        let wanted = if wanted.is_empty() { "nothing".to_owned() } else { wanted.join(", ") };
        let krate = allowed.krate;
        match rows.iter().find(|(_, name, _)| *name == krate) {
            None => add(1, format!("no row for {krate} below `{TABLE_HEAD}`: add `{wanted}`")),
            Some((line, _, cell)) if *cell != wanted => {
                add(*line, format!("{krate} may depend on `{wanted}`: say so, or mend deps.rs"));
            }
            Some(_) => {}
        }
    }
    for (line, name, _) in rows {
        if !ALLOWED.iter().any(|allowed| allowed.krate == name) {
            add(line, format!("{name} is not in tests/tidy/deps.rs: remove the row"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    fn of(path: &str, text: &str) -> Vec<String> {
        messages(&check(&[(path.to_owned(), text.to_owned())]))
    }

    #[test]
    fn check__an_upward_dependency_fires() {
        let found = of("io/Cargo.toml", "[dependencies]\nspanwire-transport.workspace = true\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("io/Cargo.toml:2: io may not depend on spanwire-transport"));
    }

    #[test]
    fn check__a_new_dependency_fires_in_every_form() {
        for text in [
            "[dependencies]\nrand = \"1\"\n",
            "[dev-dependencies]\n\nrand.workspace = true\n",
            "[target.'cfg(unix)'.dependencies]\nrand = { version = \"1\" }\n",
            "[dependencies.rand]\nversion = \"1\"\n",
            "[build-dependencies]\n\"rand\" = \"1\"\n",
        ] {
            assert_eq!(of("wire/Cargo.toml", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn check__what_is_allowed_passes() {
        let text = "[package]\nname = \"x\"\n[dependencies]\n# why\n\
                    spanwire-base.workspace = true\ncrc32fast = \"1\"\n\
                    [dev-dependencies]\nproptest = \"1\"\n[lints]\nworkspace = true\n";
        assert_eq!(of("wire/Cargo.toml", text), [] as [&str; 0]);
        let shipped = "[dependencies]\nproptest = \"1\"\n";
        assert_eq!(of("wire/Cargo.toml", shipped).len(), 1, "only for tests");
    }

    #[test]
    fn check_table__rows_that_lack_differ_or_are_too_many_fire() {
        let table = |change: &dyn Fn(&Allowed) -> Option<String>| {
            let rows: String = ALLOWED.iter().filter_map(change).collect();
            messages(&check_table(&format!("text\n\n{TABLE_HEAD}\n|---|---|\n{rows}\ntext\n")))
        };
        let row = |a: &Allowed| {
            let mut ours = a.ours.to_vec();
            ours.sort_unstable();
            let ours = if ours.is_empty() { "nothing".to_owned() } else { ours.join(", ") };
            Some(format!("| [{}](../x) | {ours} |\n", a.krate))
        };
        assert_eq!(table(&row), [] as [&str; 0]);
        let lacks = table(&|a| row(a).filter(|_| a.krate != "cc"));
        assert_eq!(
            lacks,
            ["docs/ARCHITECTURE.md:1: no row for cc below `| crate | depends on |`: add \
              `base, params`"]
        );
        let differs = table(&|a| row(a).map(|r| r.replace("| base, params |", "| base |")));
        assert!(differs[0].contains("cc may depend on `base, params`"), "{differs:?}");
        let more = table(&|a| row(a).map(|r| r.replace("[pacer]", "[wheel]")));
        assert!(more.iter().any(|m| m.contains("wheel is not in tests/tidy/deps.rs")), "{more:?}");
        assert_eq!(check_table("").len(), ALLOWED.len());
    }

    #[test]
    fn check__an_unknown_crate_fires() {
        assert!(of("nobody/Cargo.toml", "")[0].contains("no entry"));
    }
}
