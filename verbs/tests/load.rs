//! The library as programs see it: its symbols, and the programs and libraries of distributions
//! that look for them. Needs their packages: `apt-get install ibverbs-utils perftest
//! ibverbs-providers librdmacm1 libucx0`.
#![expect(non_snake_case, reason = "tests are named function__case")]

use libc::{RTLD_NOW, c_char, c_int, c_void, dlopen, dlvsym};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Packages with programs and libraries that need libibverbs.so.1.
const PACKAGES: &[&str] =
    &["ibverbs-utils", "perftest", "ibverbs-providers", "librdmacm1", "libucx0"];

/// A symbol and its version, as in `ibv_query_port@IBVERBS_1.1`; `@@` before a default version.
type Symbols = BTreeSet<String>;

/// The library under test. Cargo builds it beside the tests, because they depend on the crate.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the system knows");
    let library = test.with_file_name("libibverbs.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// (name, kind, versions) of each row of the table.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, Vec<&'static str>)> {
    let rows = include_str!("../exports.txt").lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let mut words = row.split(' ');
        let (Some(name), Some(kind)) = (words.next(), words.next()) else {
            panic!("not `name kind versions`: {row}");
        };
        (name, kind, words.collect())
    })
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The symbols in a file's dynamic section that are defined, or those that are not.
fn symbols(file: &Path, defined: bool) -> Symbols {
    let read = run(Command::new("readelf").args(["-W", "--dyn-syms"]).arg(file));
    assert!(read.status.success(), "{}", text(&read.stderr));
    let lines = text(&read.stdout);
    // Num: Value Size Type Bind Vis Ndx Name; an undefined one has the number of its version last.
    let fields = lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_kind = fields.filter(|f| f.len() >= 8 && f[0] != "Num:" && (f[6] != "UND") == defined);
    of_kind.map(|fields| fields[7].to_owned()).collect()
}

/// Defined symbols as those that bind them name them: with one `@`.
fn as_bound(defined: &Symbols) -> Symbols {
    defined.iter().map(|symbol| symbol.replace("@@", "@")).collect()
}

/// Files of a package that need libibverbs.so.1; none, with a line on stderr, if it is missing.
fn files(package: &str) -> Vec<PathBuf> {
    let list = Command::new("dpkg").args(["-L", package]).output();
    let list = list.ok().filter(|list| list.status.success());
    let Some(list) = list else {
        eprintln!("SKIPPED: {package} is not installed (apt-get install {package})");
        return Vec::new();
    };
    let needs = |file: &PathBuf| {
        let is_elf = file.is_file() && fs::read(file).is_ok_and(|of| of.starts_with(b"\x7fELF"));
        is_elf && {
            let dynamic = run(Command::new("readelf").arg("-d").arg(file));
            text(&dynamic.stdout).contains("[libibverbs.so.1]")
        }
    };
    let files: Vec<PathBuf> = text(&list.stdout).lines().map(PathBuf::from).filter(needs).collect();
    assert!(!files.is_empty(), "{package} has no file that needs libibverbs.so.1");
    files
}

#[test]
fn exports__are_the_table_and_nothing_else() {
    let mut table = Symbols::new();
    for (name, _, versions) in rows() {
        let (default, older) = versions.split_last().expect("each has a version");
        table.insert(format!("{name}@@IBVERBS_{default}"));
        table.extend(older.iter().map(|version| format!("{name}@IBVERBS_{version}")));
    }
    let exported = symbols(&library(), true);
    let missing: Vec<&String> = table.difference(&exported).collect();
    let beyond: Vec<&String> = exported.difference(&table).collect();
    assert!(missing.is_empty() && beyond.is_empty(), "missing {missing:?}, beyond {beyond:?}");

    // By this name glibc finds it again if it is preloaded from a file of any name.
    let dynamic = text(&run(Command::new("readelf").arg("-d").arg(library())).stdout);
    assert!(dynamic.contains("soname: [libibverbs.so.1]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

/// The loader's own view, and the calls through it.
#[test]
fn exports__dlvsym_finds_each_and_what_is_missing_fails() {
    let find = |handle: *mut c_void, name: &str, version: &str| {
        let [name, version] = [name, version].map(|of| CString::new(of).expect("no NUL in it"));
        // SAFETY: the handle is open, both names end with NUL.
        unsafe { dlvsym(handle, name.as_ptr(), version.as_ptr()) }
    };
    let path = CString::new(library().to_str().expect("UTF-8")).expect("no NUL in it");
    // SAFETY: the path ends with NUL.
    let handle = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
    assert!(!handle.is_null());
    let mut found = 0;
    for (name, kind, versions) in rows() {
        for version in versions {
            let symbol = find(handle, name, &format!("IBVERBS_{version}"));
            assert!(!symbol.is_null(), "{name}@IBVERBS_{version}");
            found += 1;
            let errno = || std::io::Error::last_os_error().raw_os_error();
            match kind {
                "int" | "fail" => {
                    // SAFETY: such a function reads no arguments and returns an int.
                    let missing: extern "C" fn() -> c_int = unsafe { std::mem::transmute(symbol) };
                    let code = if kind == "int" { libc::EOPNOTSUPP } else { -1 };
                    assert_eq!((missing(), errno()), (code, Some(libc::EOPNOTSUPP)), "{name}");
                }
                "null" => {
                    // SAFETY: such a function reads no arguments and returns a pointer.
                    let missing: extern "C" fn() -> *mut c_void =
                        unsafe { std::mem::transmute(symbol) };
                    assert!(missing().is_null(), "{name}");
                    assert_eq!(errno(), Some(libc::EOPNOTSUPP), "{name}");
                }
                "void" => {
                    // SAFETY: such a function reads no arguments and returns nothing.
                    let missing: extern "C" fn() = unsafe { std::mem::transmute(symbol) };
                    missing();
                }
                // SAFETY: the only data is one byte.
                "data" => assert_eq!(unsafe { *symbol.cast::<c_char>() }, 0, "{name}"),
                _ => {}
            }
        }
    }
    assert_eq!(found, 493);
    assert!(find(handle, "ibv_open_device", "IBVERBS_1.0").is_null(), "left out on purpose");
    assert!(find(handle, "ibv_open_device", "IBVERBS_PRIVATE_33").is_null());
}

/// All that the distribution's own library has, whatever its release, except for its compatibility
/// entries, which are the only ones without a default version.
#[test]
fn exports__cover_the_library_of_the_distribution() {
    let list = Command::new("dpkg").args(["-L", "libibverbs1"]).output();
    let list = list.map(|list| text(&list.stdout)).unwrap_or_default();
    let Some(theirs) = list.lines().find(|file| file.contains("/libibverbs.so.1.")) else {
        eprintln!("SKIPPED: libibverbs1 is not installed (apt-get install libibverbs1)");
        return;
    };
    let exported = as_bound(&symbols(&library(), true));
    let mut theirs = symbols(Path::new(theirs), true);
    theirs.retain(|symbol| symbol.contains("@@IBVERBS_"));
    let theirs = as_bound(&theirs);
    assert!(theirs.len() > 140, "{theirs:?}");
    let missing: Vec<&String> = theirs.difference(&exported).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn programs__find_each_symbol_at_its_version() {
    let exported = as_bound(&symbols(&library(), true));
    for file in PACKAGES.iter().flat_map(|package| files(package)) {
        let mut wanted = symbols(&file, false);
        wanted.retain(|symbol| symbol.contains("@IBVERBS_"));
        assert!(!wanted.is_empty(), "{} wants nothing", file.display());
        let missing: Vec<&String> = wanted.difference(&exported).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", file.display());
    }
}

/// The loader binds all symbols of each file at once, and has nothing to say about versions.
#[test]
fn programs__load_with_this_library() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("load");
    let link = folder.join("libibverbs.so.1");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(library(), &link).expect("the target folder can be written");
    let with_ours = |program: &str| {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &folder).env("LD_BIND_NOW", "1");
        command
    };
    let complaints = ["no version information", "symbol lookup error", "undefined symbol"];
    let (mut programs, mut libraries) = (0, 0);
    for file in PACKAGES.iter().flat_map(|package| files(package)) {
        let ldd = run(with_ours("ldd").arg("-r").arg(&file));
        let said = text(&ldd.stdout) + &text(&ldd.stderr);
        assert!(said.contains(&format!("=> {}", link.display())), "{}: {said}", file.display());
        assert!(!complaints.iter().any(|of| said.contains(of)), "{}: {said}", file.display());
        if file.parent() == Some(Path::new("/usr/bin")) {
            programs += 1;
        } else {
            libraries += 1;
        }
    }
    eprintln!("{programs} programs and {libraries} libraries load");
    if Path::new("/usr/bin/ib_write_bw").exists() {
        let ran = run(with_ours("ib_write_bw").arg("--version"));
        assert!(text(&ran.stdout).contains("Version"), "{ran:?}");
        assert!(ran.stderr.is_empty(), "{ran:?}");
    }
}
