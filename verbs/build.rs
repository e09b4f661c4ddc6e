//! Symbol versions of the library, from `exports.txt`.
//!
//! Rust can neither version a symbol nor export one function under several names. So the assembler
//! does: each row becomes a label that jumps to its function, with a `.symver` for each of its
//! versions, and the linker gets a version script with the same nodes. The script also hides all
//! other symbols.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=exports.txt");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let out = Path::new(&out);
    let table = fs::read_to_string("exports.txt").expect("part of the crate");
    let rows: Vec<Row<'_>> =
        table.lines().filter(|l| !l.starts_with('#')).map(Row::parse).collect();

    let script = out.join("versions.map");
    fs::write(&script, version_script(&rows)).expect("OUT_DIR can be written");
    fs::write(out.join("exports.s"), assembly(&rows)).expect("OUT_DIR can be written");

    // `nodelete`: threads of the library may run when a program calls dlclose.
    let script = format!("--version-script={}", script.display());
    for argument in [&script, "-soname,libibverbs.so.1", "-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    use_lld();
    link_soname(out);
}

/// rustc has a version script of its own, without a name, and GNU ld takes no other beside such a
/// one. LLD does, and rustc comes with it, but uses it unasked only from 1.90 and on x86-64.
fn use_lld() {
    let rustc = env::var("RUSTC").expect("cargo sets it");
    let host = env::var("HOST").expect("cargo sets it");
    let print = Command::new(rustc).args(["--print", "sysroot"]).output().expect("rustc runs");
    let sysroot = String::from_utf8(print.stdout).expect("cargo's directories are UTF-8");
    let bundled = format!("{}/lib/rustlib/{host}/bin/gcc-ld", sysroot.trim());
    if Path::new(&bundled).is_dir() {
        println!("cargo::rustc-cdylib-link-arg=-B{bundled}");
    }
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
}

/// One exported name.
struct Row<'a> {
    name: &'a str,
    kind: &'a str,
    /// Version nodes, the default one last.
    nodes: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Self {
        let mut words = line.split(' ');
        let (Some(name), Some(kind)) = (words.next(), words.next()) else {
            panic!("exports.txt: not `name kind versions`: {line}");
        };
        let nodes: Vec<&str> = words.collect();
        assert!(!nodes.is_empty(), "exports.txt: {name} has no version");
        Self { name, kind, nodes }
    }
}

/// Each node with the names that it has. The first one hides all others.
fn version_script(rows: &[Row<'_>]) -> String {
    let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in rows {
        for node in &row.nodes {
            nodes.entry(node).or_default().insert(row.name);
        }
    }
    let mut script = String::new();
    let mut local = "local: *; ";
    for (node, names) in nodes {
        let names: Vec<&str> = names.into_iter().collect();
        writeln!(script, "IBVERBS_{node} {{ global: {}; {local}}};", names.join("; "))
            .expect("a string takes everything");
        local = "";
    }
    script
}

/// A label and its versions for each row. Linkers resolve the jumps without a PLT, because the
/// functions are not exported.
fn assembly(rows: &[Row<'_>]) -> String {
    let jump = match &*env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it") {
        "x86_64" => "jmp",
        "aarch64" => "b",
        other => panic!("no jump instruction is known for {other}"),
    };
    let mut text = String::new();
    for row in rows {
        let name = row.name;
        let function = match row.kind {
            "data" => None,
            "call" => Some(format!("sw_{name}")),
            "int" | "fail" | "null" | "void" => Some(format!("sw_missing_{}", row.kind)),
            other => panic!("exports.txt: {name} has the unknown kind {other}"),
        };
        // rustc's version script exports the function, too; `.hidden` overrules it.
        let (section, kind, body) = match function {
            Some(function) => {
                (".text", "function", format!("{jump} {function}; .hidden {function}"))
            }
            None => (".data", "object", format!(".byte 0; .size sw_export_{name}, 1")),
        };
        let mut line = |args: std::fmt::Arguments<'_>| {
            writeln!(text, "{args}").expect("a string takes everything");
        };
        line(format_args!(".pushsection {section}"));
        line(format_args!(".globl sw_export_{name}"));
        line(format_args!(".type sw_export_{name}, @{kind}"));
        line(format_args!("sw_export_{name}: {body}"));
        for (i, node) in row.nodes.iter().enumerate() {
            let at = if i + 1 == row.nodes.len() { "@@" } else { "@" };
            line(format_args!(".symver sw_export_{name}, {name}{at}IBVERBS_{node}"));
        }
        line(format_args!(".popsection"));
    }
    text
}

/// Puts a link with the name that the loader looks for beside the library.
fn link_soname(out: &Path) {
    // OUT_DIR is PROFILE/build/PACKAGE-HASH/out.
    let profile = out.ancestors().nth(3).expect("cargo's directories are deeper");
    let link = profile.join("libibverbs.so.1");
    let linked = fs::read_link(&link).is_ok_and(|to| to == Path::new("libibverbs.so"));
    if !linked {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink("libibverbs.so", &link).expect("the profile can be written");
    }
}
