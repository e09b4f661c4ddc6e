//! The programs of Debian, unmodified, over the library: the table of docs/verbs.md.
//!
//! It needs root (network namespaces, AF_XDP) and the packages ibverbs-utils and perftest. Each
//! line runs on two hosts, over UDP sockets and over AF_XDP, and those for any user between two
//! addresses of the loopback without privileges as well: both ends must end with exit code 0.
//! `SPANWIRE_UPDATE=1` writes the figures of the run into the table.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use support::{Lab, Loopback, Pair, is_ready};

/// The lines of each program, and whether it is also run without privileges.
const LINES: &[(&str, bool)] = &[
    ("ibv_rc_pingpong -g 0 -c", true),
    ("ibv_rc_pingpong -g 0 -c -s 65536 -n 2000", false),
    ("ib_write_bw -F", true),
    ("ib_write_bw -F -a -n 200", false),
    ("ib_write_bw -F -q 8 -n 500", false),
    ("ib_write_bw -F -b -n 500", false),
    ("ib_read_bw -F", true),
    ("ib_read_bw -F -a -n 200", false),
    ("ib_read_bw -F -q 8 -n 500", false),
    ("ib_read_bw -F -b -n 500", false),
    ("ib_send_bw -F", true),
    ("ib_send_bw -F -a -n 200", false),
    ("ib_send_bw -F -q 8 -n 500", false),
    ("ib_send_bw -F -b -n 500", false),
    ("ib_send_lat -F", true),
    ("ib_read_lat -F", false),
    ("ib_atomic_bw -F", false),
    ("ib_atomic_lat -F", false),
];

/// Programs without another end.
const ALONE: &[&str] = &["ibv_devices", "ibv_devinfo -v"];

/// A lossy path: 1 % of the frames to host b, at 1 Gbit/s and 2 ms.
const LOSSY: &str = r#"
seed = 1
[port.a]
rate = "1Gbit"
delay = "1ms"
queue.limit_bytes = "1MB"
loss = "1%"
[port.b]
rate = "1Gbit"
delay = "1ms"
queue.limit_bytes = "1MB"
loss = "1%"
"#;

#[test]
fn programs__devices_are_listed() {
    if !is_ready() {
        return;
    }
    let loopback = Loopback::new();
    for line in ALONE {
        let shown = loopback.alone(line);
        assert!(shown.contains("lo"), "{line}: {shown}");
    }
    let verbose = loopback.alone("ibv_devinfo -v");
    for words in ["PORT_ACTIVE (4)", "::ffff:127.83.1.1, RoCE v2", "max_sge:", "active_mtu:"] {
        assert!(verbose.contains(words), "no {words:?} in {verbose}");
    }
}

#[test]
fn programs__run_on_two_hosts_and_for_any_user() {
    if !is_ready() {
        return;
    }
    let lab = Lab::up(1, None);
    let loopback = Loopback::new();
    let mut table = String::new();
    for (line, by_any_user) in LINES {
        let [udp, xdp] = ["udp", "xdp"].map(|fabric| lab.run(&["--fabric", fabric], line));
        let user = if *by_any_user { loopback.run(&[], line) } else { String::new() };
        let (program, options) = line.split_once(' ').expect("a program with options");
        writeln!(table, "| `{program}` | `{options}` | {udp} | {xdp} | {user} |").expect("memory");
    }
    update("programs", &table);
}

#[test]
fn programs__run_in_sr_and_on_a_lossy_path() {
    if !is_ready() {
        return;
    }
    let lab = Lab::up(2, Some(LOSSY));
    let loopback = Loopback::new();
    let mut table = String::new();
    for line in ["ib_write_bw -F -n 500", "ib_send_bw -F -n 500", "ib_read_bw -F -n 500"] {
        let [rc, sr] = ["rc", "sr"].map(|mode| lab.run(&["--mode", mode], line));
        writeln!(table, "| `{line}` | {rc} | {sr} |").expect("memory");
    }
    update("lossy", &table);
    for line in ["ibv_rc_pingpong -g 0 -c", "ib_atomic_lat -F", "ib_write_bw -F -q 8 -n 100"] {
        for faults in [&[][..], &["--loss", "1", "--dup", "1", "--reorder", "2", "--seed", "7"]] {
            loopback.run(&[&["--mode", "sr"], faults].concat(), line);
        }
    }
}

/// Compares the rows between the markers of docs/verbs.md with those of this run, without their
/// figures, or replaces them.
fn update(name: &str, rows: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/verbs.md");
    let text = fs::read_to_string(&path).expect("part of the repository");
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = text.split_once(&begin).expect("the marker is there");
    let (known, after) = rest.split_once(&end).expect("the marker is there");
    if std::env::var_os("SPANWIRE_UPDATE").is_some() {
        let head: String = known.lines().take(3).map(|line| format!("{line}\n")).collect();
        let text = format!("{before}{begin}{head}{rows}\n{end}{after}");
        return fs::write(&path, text).expect("the document can be written");
    }
    let without_figures = |rows: &str| -> Vec<String> {
        let rows = rows.lines().filter(|row| row.starts_with("| `"));
        rows.map(|row| row.replace(|c: char| c.is_ascii_digit() || c == '.', "")).collect()
    };
    assert_eq!(without_figures(known), without_figures(rows), "SPANWIRE_UPDATE=1 writes it");
}

#[test]
fn figure__is_that_of_the_last_line() {
    let bandwidth = " #bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n \
                     65536 5000 3892.43 3521.99 0.056352\n----\n";
    assert_eq!(Pair::figure("ib_write_bw -F", bandwidth), "3522 MB/s");
    let latency = " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]\n \
                   2 1000 9.22 30.45 9.81 10.40 2.45 25.14 30.45\n---\n";
    assert_eq!(Pair::figure("ib_send_lat -F", latency), "9.8 us");
    let pingpong = "8192000 bytes in 0.05 seconds = 1290.18 Mbit/sec\n\
                    1000 iters in 0.05 seconds = 50.80 usec/iter\n";
    assert_eq!(Pair::figure("ibv_rc_pingpong -g 0 -c", pingpong), "50.8 us");
}
