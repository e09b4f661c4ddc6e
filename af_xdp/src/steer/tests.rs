use super::*;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn steer_for__only_the_map_loads_change() {
    let (xsks, addresses) = (0x1234_5678, 0x0765_4321);
    let check = |insns: Vec<u64>, plain: &[u64], loads: &[(usize, u32)]| {
        assert_eq!(insns.len(), plain.len());
        for (n, (patched, plain)) in insns.iter().zip(plain).enumerate() {
            match loads.iter().find(|(at, _)| *at == n) {
                Some((_, fd)) => assert_eq!(*patched, 0x1118 | u64::from(*fd) << 32),
                None => assert_eq!(patched, plain, "instruction {n}"),
            }
        }
    };
    let loads = [(STEER_XSKS_AT, xsks), (STEER_ADDRESSES_AT, addresses)];
    check(steer_for(Maps::RoceV2 { xsks, addresses }), &STEER, &loads);
    check(steer_for(Maps::All { xsks }), &STEER_ALL, &[(STEER_ALL_XSKS_AT, xsks)]);
}

#[test]
fn steer__the_text_holds_the_port() {
    let port = u64::from(STEER_PORT.to_be()) << 32;
    let holding = STEER.iter().filter(|insn| *insn >> 32 << 32 == port);
    assert_eq!(holding.count(), 2, "one comparison for IPv4, one for IPv6");
}

/// The instructions are the output of the pinned clang for the C source.
#[test]
fn steer__is_clangs_output_for_the_source() {
    compare_with_clang("steer.bpf.c", &STEER);
}

#[test]
fn steer_all__is_clangs_output_for_the_source() {
    compare_with_clang("steer_all.bpf.c", &STEER_ALL);
}

fn compare_with_clang(source: &str, instructions: &[u64]) {
    let version = match Command::new("clang").arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return skip(&format!("clang: {error}")),
    };
    if !version.contains("clang version 14.") {
        let first = version.lines().next().unwrap_or_default();
        return skip(&format!("the instructions are the output of clang 14, installed is {first}"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(source);
    let object: PathBuf =
        std::env::temp_dir().join(format!("spanwire-{source}-{}.o", std::process::id()));
    let output = Command::new("clang")
        .args(["-O2", "-target", "bpf", "-Wall", "-Wextra", "-Werror", "-c"])
        .arg(&path)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("clang has just reported its version");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    let elf = std::fs::read(&object).expect("clang has written it");
    std::fs::remove_file(&object).expect("the test's own file");
    let section = elf_section(&elf, "xdp.frags").expect("the program's section");
    let words: Vec<u64> = section.chunks_exact(8).map(|word| u64_at(word, 0)).collect();
    assert_eq!(words, instructions, "{source}");
}

/// The bytes of a section of a little-endian 64-bit ELF file.
fn elf_section<'a>(elf: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let at = |offset: usize| usize::try_from(u64_at(elf, offset)).expect("a small file");
    let half = |offset: usize| usize::from(u16::from_le_bytes([elf[offset], elf[offset + 1]]));
    let (table, entry_len, count, names) = (at(0x28), half(0x3a), half(0x3c), half(0x3e));
    let bytes = |n: usize| {
        let header = table + n * entry_len;
        let (start, len) = (at(header + 0x18), at(header + 0x20));
        &elf[start..start + len]
    };
    (0..count).map(|n| (table + n * entry_len, n)).find_map(|(header, n)| {
        let name_at = u32::from_le_bytes(elf[header..header + 4].try_into().ok()?);
        let name = &bytes(names)[usize::try_from(name_at).ok()?..];
        let name = std::ffi::CStr::from_bytes_until_nul(name).ok()?;
        (name.to_bytes() == wanted.as_bytes()).then(|| bytes(n))
    })
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

/// A missing compiler is not a missing privilege: unlike the tests against the kernel, this one
/// never fails for being skipped.
fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
}
