//! C programs against `<infiniband/verbs.h>` of the distribution, which run with the library under
//! test.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of `tests/calls/`, in a folder with the library by the name that programs look for.
pub(crate) struct Built {
    folder: PathBuf,
    binary: PathBuf,
}

impl Built {
    /// Builds `program` in a folder of the test; `None`, with a line on stderr, if programs cannot
    /// be built here.
    pub(crate) fn new(test: &str, program: &str) -> Option<Self> {
        if !Path::new("/usr/include/infiniband/verbs.h").exists() {
            eprintln!("SKIPPED: no <infiniband/verbs.h> (apt-get install libibverbs-dev)");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        fs::create_dir_all(&folder).expect("the target folder can be written");
        let link = folder.join("libibverbs.so.1");
        let _ = fs::remove_file(&link);
        // Cargo builds it beside the tests, because they depend on the crate.
        let library = std::env::current_exe().expect("the system knows").with_file_name(LIBRARY);
        assert!(library.exists(), "{} is not there", library.display());
        std::os::unix::fs::symlink(library, &link).expect("the target folder can be written");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/calls/{program}.c"));
        let binary = folder.join(program);
        let cc = Command::new("cc")
            .args(["-Wall", "-Werror", "-O1", "-pthread", "-o"])
            .args([&binary, &source])
            .arg("-libverbs")
            .args(sanitizer())
            .output()
            .expect("cc, which also links Rust's programs");
        assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
        Some(Self { folder, binary })
    }

    /// Runs it at `address` of the loopback, by another program and its arguments if `by` has one.
    pub(crate) fn command(&self, by: &[&str], address: Ipv4Addr) -> Command {
        let mut words = by.iter().map(Path::new).chain([self.binary.as_path()]);
        let mut command = Command::new(words.next().expect("the program at least"));
        command
            .args(words)
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("SPANWIRE_ADDR", address.to_string());
        if sanitizer().is_empty() {
            // As `spanwire run` does it. The sanitizer has to come first.
            command.env("LD_PRELOAD", self.folder.join("libibverbs.so.1"));
        } else if !self.binary.ends_with("random") {
            // The others may exit with objects.
            command.env("ASAN_OPTIONS", "detect_leaks=0");
        }
        command
    }
}

/// Arguments that link the runtime of AddressSanitizer into programs, if the library was built for
/// it (`tests/sanitize`).
fn sanitizer() -> Vec<String> {
    let Ok(runtime) = std::env::var("SPANWIRE_TEST_ASAN") else { return Vec::new() };
    let whole = format!("-Wl,--whole-archive,{runtime},--no-whole-archive,--export-dynamic");
    vec![whole, "-lm".to_owned()]
}

const LIBRARY: &str = "libibverbs.so";
