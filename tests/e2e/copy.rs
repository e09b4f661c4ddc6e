//! `spanwire copy` end to end.

use crate::cc::check_auto_without_marks;
use crate::lab::{Lab, Outcome, Running, await_listener, until};
use serde_json::Value;
use spanwire_io::net::LabConfig;
use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed with the test.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("spanwire-e2e-copy-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("the name is this process's own");
        Self(path)
    }

    /// The path of `name` in it, as text.
    pub(crate) fn join(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a plain name").to_owned()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Random bytes, so that a wrong offset is detected.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    spanwire_base::Rng::new(seed).fill(&mut bytes);
    bytes
}

pub(crate) fn receiver(lab: &Lab, into: &TempDir, more: &[&str]) -> Running {
    let into = into.join("");
    let args = ["copy", "receive", "--dev", "sw0", "--into", &into];
    let args = [&args[..], &lab.fabric_args(), more].concat();
    lab.start_until(&lab.hosts.a.ns, &args, "receiving on sw0")
}

pub(crate) fn start_sender(lab: &Lab, paths: &[&str], more: &[&str]) -> Running {
    let to = lab.v4().to_string();
    let fabric = lab.fabric_args();
    let args = [&["copy", "send"], paths, &[&to, "--json"], &fabric, more].concat();
    lab.start(&lab.hosts.b.ns, &args)
}

fn send(lab: &Lab, paths: &[&str], more: &[&str]) -> Outcome {
    start_sender(lab, paths, more).wait()
}

/// Sends `paths` and expects success.
pub(crate) fn send_well(lab: &Lab, paths: &[&str], more: &[&str]) -> Value {
    let outcome = send(lab, paths, more);
    let report = outcome.json();
    assert_eq!(report["ok"], true, "{report}\n{}", outcome.stderr);
    assert!(outcome.success);
    report
}

/// The names in a directory, including hidden ones.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("it is there");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Bytes of the partial file of `name`.
pub(crate) fn partial_bytes(into: &TempDir, name: &str) -> u64 {
    fs::metadata(into.join(&format!(".{name}.spanwire-partial"))).map_or(0, |m| m.len())
}

/// Waits until the partial file of `name` has some bytes.
pub(crate) fn wait_for_partial(into: &TempDir, name: &str, bytes: u64) {
    until("data arrives", || partial_bytes(into, name) >= bytes);
}

#[test]
fn copy__one_file_of_an_odd_length_over_both_ip_versions() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let (path, bytes) = (from.join("big"), noise((1 << 20) + 12_345, 1));
    fs::write(&path, &bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4750)).unwrap();
    let receiver = receiver(&lab, &into, &["--overwrite"]);
    for to in [lab.v4().to_string(), format!("[{}]:18517", lab.v6())] {
        let _ = fs::remove_file(into.join("big"));
        let outcome = lab.run(&lab.hosts.b.ns, &["copy", "send", &path, &to, "--json"]);
        let report = outcome.json();
        assert_eq!(report["ok"], true, "{report}");
        assert_eq!(report["sent_bytes"], bytes.len());
        assert_eq!(report["files"][0]["status"], "copied");
        assert_eq!(report["files"][0]["sha256"].as_str().map(str::len), Some(64));
        assert_eq!(fs::read(into.join("big")).unwrap(), bytes);
        let [ours, theirs] = [&path, &into.join("big")].map(|p| fs::metadata(p).unwrap());
        assert_eq!((ours.mtime(), ours.mtime_nsec()), (theirs.mtime(), theirs.mtime_nsec()));
        assert_eq!(theirs.mode() & 0o7777, 0o750, "set-id bits are not copied");
    }
    assert_eq!(names(&into.0), ["big"]);
    receiver.terminate();
}

#[test]
fn copy__a_tree_with_every_kind_of_entry() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let tree = from.0.join("tree");
    fs::create_dir_all(tree.join("empty")).unwrap();
    fs::create_dir_all(tree.join("Ünïcode 🦀/deep/er")).unwrap();
    fs::write(tree.join("zero"), "").unwrap();
    fs::write(tree.join("Ünïcode 🦀/deep/er/größe\n"), noise(300_000, 2)).unwrap();
    fs::write(tree.join("locked"), "may be read by its owner only").unwrap();
    fs::set_permissions(tree.join("locked"), fs::Permissions::from_mode(0o400)).unwrap();
    for n in 0..200 {
        fs::write(tree.join(format!("small-{n}")), noise(n * 7, n as u64)).unwrap();
    }
    symlink("zero", tree.join("inside")).unwrap();
    symlink("/etc/passwd", tree.join("outside")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    let mkfifo = std::process::Command::new("mkfifo").arg(tree.join("fifo")).status();
    assert!(mkfifo.unwrap().success());
    fs::set_permissions(tree.join("empty"), fs::Permissions::from_mode(0o555)).unwrap();
    let receiver = receiver(&lab, &into, &[]);
    let tree = tree.to_str().unwrap();
    let outcome = send(&lab, &[tree], &[]);
    let report = outcome.json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["files_done"], 203);
    assert!(outcome.stderr.contains("fifo is left out"), "{}", outcome.stderr);
    assert_eq!(outline(Path::new(tree)), outline(&into.0.join("tree")));
    // A second copy: all files exist, are compared by hash, and none is sent.
    let again = send_well(&lab, &[tree], &[]);
    assert_eq!(again["sent_bytes"], 0);
    assert_eq!(again["resumed_bytes"], report["bytes"]);
    assert_eq!(outline(Path::new(tree)), outline(&into.0.join("tree")));
    receiver.terminate();
}

/// The attributes of all entries of a tree: (path, kind and mode, time, content).
fn outline(top: &Path) -> Vec<(PathBuf, u32, i64, Vec<u8>)> {
    let mut out = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let path = top.join(&relative);
        let meta = fs::symlink_metadata(&path).unwrap();
        let (content, mtime) = match meta.file_type() {
            t if t.is_fifo() => continue,
            t if t.is_symlink() => {
                (fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes().to_vec(), 0)
            }
            t if t.is_dir() => {
                open.extend(names(&path).into_iter().map(|name| relative.join(name)));
                (Vec::new(), meta.mtime())
            }
            _ => (fs::read(&path).unwrap(), meta.mtime()),
        };
        out.push((relative, meta.mode(), mtime, content));
    }
    out.sort();
    out
}

/// That SR is faster then is asserted in virtual time (`sim::loss_sweep`).
#[test]
fn copy__every_byte_is_right_in_both_modes_when_packets_are_lost() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let (path, bytes) = (from.join("big"), noise(32 << 20, 3));
    fs::write(&path, &bytes).unwrap();
    let receiver = receiver(&lab, &into, &["--loss", "1", "--seed", "5", "--overwrite"]);
    for mode in ["rc", "sr"] {
        let _ = fs::remove_file(into.join("big"));
        let report = send_well(&lab, &[&path], &["--mode", mode, "--loss", "1", "--seed", "6"]);
        assert_eq!(report["mode"], mode);
        assert!(report["counters"]["fault_lost"].as_u64() > Some(0), "{report}");
        assert!(report["counters"]["retransmitted_packets"].as_u64() > Some(0), "{report}");
        assert!(fs::read(into.join("big")).unwrap() == bytes, "bytes differ");
    }
    receiver.terminate();
}

/// A copy that takes more than five seconds, because no sender exceeds this rate: it does not
/// complete before it is killed.
const BIG: usize = 64 << 20;
const SLOW: [&str; 4] = ["--cc", "fixed", "--cc-set", "rate_mbps=100"];

#[test]
fn copy__a_killed_receiver_is_reported_and_the_next_attempt_resumes() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let (path, bytes) = (from.join("big"), noise(BIG, 4));
    fs::write(&path, &bytes).unwrap();
    let doomed = receiver(&lab, &into, &[]);
    let sender = start_sender(&lab, &[&path], &SLOW);
    wait_for_partial(&into, "big", 4 << 20);
    doomed.kill();
    let outcome = sender.wait();
    assert_eq!(outcome.code, Some(4), "{}", outcome.stderr);
    let report = outcome.json();
    assert_eq!((&report["ok"], &report["resumable"]), (&false.into(), &true.into()));
    for words in ["the other end is gone", "the same command again goes on"] {
        assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    }
    assert_eq!(names(&into.0), [".big.spanwire-partial"], "no half file under its name");
    assert_eq!(names(&from.0), ["big"], "the sender leaves nothing");

    let receiver = receiver(&lab, &into, &[]);
    let report = send_well(&lab, &[&path], &[]);
    let resumed = report["resumed_bytes"].as_u64().unwrap();
    assert!(resumed >= 4 << 20, "{report}");
    assert_eq!(report["sent_bytes"].as_u64().unwrap() + resumed, BIG as u64);
    assert_eq!(report["files"][0]["resumed_bytes"], resumed);
    assert!(fs::read(into.join("big")).unwrap() == bytes, "bytes differ");
    assert_eq!(names(&into.0), ["big"]);
    receiver.terminate();
}

#[test]
fn copy__a_killed_or_interrupted_sender_is_reported_and_the_next_one_resumes() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let (path, bytes) = (from.join("big"), noise(BIG, 5));
    fs::write(&path, &bytes).unwrap();
    for (signal, code, words) in [
        (libc::SIGKILL, 4, "the other end is gone"),
        (libc::SIGINT, 5, "the other end gave up: interrupted by its user"),
    ] {
        let into_text = into.join("");
        let args = ["copy", "receive", "--dev", "sw0", "--once", "--json", "--into", &into_text];
        let mut receiver = lab.start(&lab.hosts.a.ns, &args);
        await_listener(&lab.hosts.a.ns, spanwire_copy::DEFAULT_PORT, &mut receiver);
        let before = partial_bytes(&into, "big");
        let sender = start_sender(&lab, &[&path], &SLOW);
        wait_for_partial(&into, "big", before + (4 << 20));
        let ended = sender.end_with(signal);
        let outcome = receiver.wait();
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(words), "{words:?} not in {}", outcome.stderr);
        assert_eq!(outcome.json()["resumable"], true);
        if signal == libc::SIGINT {
            assert_eq!(ended.code, Some(130), "{}", ended.stderr);
            assert_eq!(ended.json()["ok"], false);
        }
        assert_eq!(names(&into.0), [".big.spanwire-partial"]);
    }
    let receiver = receiver(&lab, &into, &[]);
    let report = send_well(&lab, &[&path], &[]);
    assert!(report["resumed_bytes"].as_u64() >= Some(4 << 20), "{report}");
    assert!(fs::read(into.join("big")).unwrap() == bytes, "bytes differ");
    receiver.terminate();
}

#[test]
fn copy__verify_disk_detects_a_file_that_another_process_changes() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let (path, small) = (from.join("big"), from.join("small"));
    fs::write(&path, noise(BIG / 2, 11)).unwrap();
    fs::write(&small, "small").unwrap();
    let receiver = receiver(&lab, &into, &["--once"]);
    let sender = start_sender(&lab, &[&path, &small], &[&SLOW[..], &["--verify-disk"]].concat());
    wait_for_partial(&into, "big", 1 << 20);
    let partial = into.join(".big.spanwire-partial");
    let other = fs::File::options().read(true).write(true).open(partial).unwrap();
    let mut byte = [0];
    other.read_exact_at(&mut byte, 4096).unwrap();
    other.write_all_at(&[!byte[0]], 4096).unwrap();
    let outcome = sender.wait();
    assert_eq!(outcome.code, Some(5), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("big differs on disk"), "{}", outcome.stderr);
    let report = outcome.json();
    let statuses = ["failed", "copied"].map(Value::from);
    assert_eq!([&report["files"][0]["status"], &report["files"][1]["status"]], statuses.each_ref());
    let outcome = receiver.wait();
    assert_eq!(outcome.code, Some(5), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("big differs on disk"), "{}", outcome.stdout);
    assert_eq!(names(&into.0), ["small"], "nothing is kept of the other");
}

#[test]
fn copy__an_interrupted_receiver_is_reported_at_both_ends() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let path = from.join("big");
    fs::write(&path, noise(BIG, 6)).unwrap();
    let receiver = receiver(&lab, &into, &[]);
    let sender = start_sender(&lab, &[&path], &SLOW);
    wait_for_partial(&into, "big", 1 << 20);
    let ended = receiver.end_with(libc::SIGINT);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let outcome = sender.wait();
    assert_eq!(outcome.code, Some(5));
    assert!(outcome.stderr.contains("interrupted by its user"), "{}", outcome.stderr);
    assert_eq!(names(&into.0), [".big.spanwire-partial"]);
}

#[test]
fn copy__a_link_failure_is_detected_at_both_ends() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let path = from.join("big");
    fs::write(&path, noise(BIG, 10)).unwrap();
    let receiver = receiver(&lab, &into, &["--once"]);
    let sender = start_sender(&lab, &[&path], &SLOW);
    wait_for_partial(&into, "big", 1 << 20);
    let mut netlink = spanwire_io::net::Netlink::open_in(&lab.hosts.b.ns).unwrap();
    netlink.set_down("sw0").unwrap();
    for end in [sender, receiver] {
        let outcome = end.wait();
        assert_eq!(outcome.code, Some(4), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("the other end is gone"), "{}", outcome.stderr);
    }
    assert_eq!(names(&into.0), [".big.spanwire-partial"]);
}

#[test]
fn copy__reports_congestion_control_and_why() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let path = from.join("f");
    fs::write(&path, noise(4 << 20, 12)).unwrap();
    let receiver = receiver(&lab, &into, &["--overwrite"]);
    let congestion = &send_well(&lab, &[&path], &[])["congestion"];
    check_auto_without_marks(congestion);
    for us in ["base_rtt_us", "target_us", "host_late_us"] {
        assert!(congestion[us].as_f64() > Some(0.0), "{us}: {congestion}");
    }
    fs::write(&path, noise(4 << 20, 13)).unwrap();
    let none = &send_well(&lab, &[&path], &["--cc", "none"])["congestion"];
    assert_eq!(none, &serde_json::json!({"name": "none"}));
    fs::write(&path, noise(4 << 20, 14)).unwrap();
    let to = lab.v4().to_string();
    let shown = lab.run(&lab.hosts.b.ns, &["copy", "send", &path, &to]).stdout;
    assert!(shown.contains("congestion control: auto by delay: "), "{shown}");
    receiver.terminate();
}

#[test]
fn copy__a_partial_file_that_is_no_prefix_is_restarted() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let (path, bytes) = (from.join("f"), noise(5 << 20, 7));
    fs::write(&path, &bytes).unwrap();
    let receiver = receiver(&lab, &into, &[]);
    let mut damaged = bytes[..3 << 20].to_vec();
    damaged[1 << 20] ^= 1;
    let longer = [&bytes[..], b"more"].concat();
    for partial in [damaged, longer] {
        fs::write(into.join(".f.spanwire-partial"), partial).unwrap();
        let report = send_well(&lab, &[&path], &[]);
        assert_eq!(report["resumed_bytes"], 0);
        assert_eq!(fs::read(into.join("f")).unwrap(), bytes);
        assert_eq!(names(&into.0), ["f"]);
        fs::remove_file(into.join("f")).unwrap();
    }
    receiver.terminate();
}

#[test]
fn copy__existing_files_are_replaced_only_on_request() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let [there, other] = [from.join("there"), from.join("other")];
    fs::write(&there, "new").unwrap();
    fs::write(&other, "other").unwrap();
    fs::write(into.join("there"), "precious").unwrap();
    let careful = receiver(&lab, &into, &[]);
    let outcome = send(&lab, &[&there, &other], &[]);
    assert_eq!(outcome.code, Some(5));
    assert!(outcome.stderr.contains("--overwrite"), "{}", outcome.stderr);
    assert_eq!(fs::read(into.join("there")).unwrap(), b"precious");
    assert_eq!(fs::read(into.join("other")).unwrap(), b"other", "the rest is copied");
    careful.terminate();
    let bold = receiver(&lab, &into, &["--overwrite"]);
    send_well(&lab, &[&there, &other], &[]);
    assert_eq!(fs::read(into.join("there")).unwrap(), b"new");
    assert_eq!(names(&into.0), ["other", "there"]);
    bold.terminate();
}

#[test]
fn copy__lack_of_space_or_permission_is_reported_before_sending() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let [big, small] = [from.join("big"), from.join("small")];
    fs::write(&big, noise(3 << 20, 8)).unwrap();
    fs::write(&small, "fits").unwrap();
    let mount = Tmpfs::new(&into, "1m");
    let full = receiver(&lab, &into, &[]);
    let outcome = send(&lab, &[&big], &[]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("no space"), "{}", outcome.stderr);
    assert!(names(&into.0).is_empty());
    send_well(&lab, &[&small], &[]);
    full.terminate();
    drop(mount);

    // Root may write anywhere except to a read-only file system.
    let mount = Tmpfs::new(&into, "1m,ro");
    let readonly = receiver(&lab, &into, &[]);
    let outcome = send(&lab, &[&small], &[]);
    assert_eq!(outcome.code, Some(5));
    assert!(outcome.stderr.contains("Read-only"), "{}", outcome.stderr);
    readonly.terminate();
    drop(mount);
}

/// A small file system mounted over a directory, unmounted on drop.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(over: &TempDir, size: &str) -> Self {
        let options = format!("size={size}");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&over.0)
            .status();
        assert!(mounted.is_ok_and(|s| s.success()), "cannot mount a tmpfs");
        Self(over.0.clone())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn copy__errors_have_advice() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let path = from.join("big");
    fs::write(&path, noise(BIG, 9)).unwrap();
    let failing = |args: &[&str], words: &[&str]| {
        let outcome = lab.run(&lab.hosts.b.ns, args);
        assert!(!outcome.success);
        for word in words {
            assert!(outcome.stderr.contains(word), "{args:?}: no {word:?} in {}", outcome.stderr);
        }
    };
    let to = lab.v4().to_string();
    failing(&["copy", "send", &path, &to], &["is `spanwire copy receive` running there?"]);
    failing(&["copy", "send", &from.join("gone"), &to], &["gone"]);
    failing(&["copy", "send", &path, "192.0.2.1"], &["192.0.2.1", "--dev"]);
    failing(&["copy", "send", &path, &to, "--dev", "nope"], &["nope", "sw0"]);
    failing(&["copy", "send", &to], &["PATH"]);
    let nowhere = ["copy", "receive", "--dev", "sw0", "--into", "/nowhere"];
    failing(&nowhere, &["cannot copy into /nowhere"]);
    let picky = receiver(&lab, &into, &["--from", "10.77.0.99"]);
    failing(&["copy", "send", &path, &to], &["another address only"]);
    picky.terminate();
    let receiver = receiver(&lab, &into, &[]);
    // The interface belongs to the first process, and a second one must report that.
    let serve = ["perf", "server", "--dev", "sw0"];
    let first = lab.start_until(&lab.hosts.b.ns, &serve, "serving on sw0");
    failing(&["copy", "send", &path, &to], &["sw0", "another XDP program"]);
    first.terminate();
    receiver.terminate();
}

#[test]
fn receive__on_a_queue_that_gets_no_packets_warns() {
    let Some(lab) = Lab::with(&LabConfig { queues: 2, ..LabConfig::default() }) else { return };
    let into = TempDir::new();
    let receiver = receiver(&lab, &into, &["--queue", "1"]);
    let said = receiver.end_with(libc::SIGTERM).stderr;
    for words in ["warning: sw0: 2 receive queues", "spanwire doctor --dev sw0 --queue 1"] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn copy__a_file_with_more_content_than_its_size_is_not_copied_as_empty() {
    let Some(lab) = Lab::new(1500) else { return };
    let into = TempDir::new();
    let receiver = receiver(&lab, &into, &["--once"]);
    let sent = send(&lab, &["/proc/cpuinfo"], &[]);
    assert_eq!(sent.code, Some(5), "{}{}", sent.stdout, sent.stderr);
    let reason = &sent.json()["files"][0]["reason"];
    assert!(reason.as_str().is_some_and(|why| why.contains("size of 0 bytes")), "{reason}");
    assert_eq!(receiver.wait().code, Some(5));
    assert_eq!(names(&into.0), [""; 0]);
}

#[test]
fn copy__the_receiver_names_the_entries_of_a_rejected_directory() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    fs::create_dir_all(from.join("d/e")).expect("writable");
    for name in ["d/f", "d/e/g"] {
        fs::write(from.join(name), "x").expect("writable");
    }
    fs::write(into.join("d"), "a file").expect("writable");
    let receiver = receiver(&lab, &into, &["--once"]);
    send(&lab, &[&from.join("d")], &[]);
    let received = receiver.wait();
    assert_eq!(received.code, Some(5), "{}", received.stderr);
    for path in ["d/f", "d/e", "d/e/g"] {
        let line = format!("/{path}: its directory was not made");
        assert!(received.stdout.contains(&line), "{path}: {}", received.stdout);
    }
}
