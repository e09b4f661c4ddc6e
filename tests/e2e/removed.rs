//! Idle servers whose interface is removed, and comes back under the same name and address.

use crate::copy::{TempDir, receiver};
use crate::lab::{Lab, Running};
use spanwire_io::net::{IpPrefix, Netlink, VethEnd, VethSpec};
use std::fs;

/// Removes the interface of host a and makes another one of its name and address.
fn replace_interface(lab: &Lab) {
    let host = &lab.hosts.a;
    let mut netlink = Netlink::open_in(&host.ns).expect("privileged");
    netlink.delete_link("sw0").expect("it is there");
    let (a, b) = (VethEnd { ns: &host.ns, name: "sw0" }, VethEnd { ns: &host.ns, name: "other" });
    VethSpec { a, b, mtu: 1500, queues: 1 }.create().expect("privileged");
    for name in ["sw0", "other"] {
        netlink.set_up(name).expect("privileged");
    }
    let prefix = IpPrefix::new(host.v4.into(), 24).expect("a prefix");
    netlink.add_address("sw0", prefix).expect("privileged");
}

/// The process ends by itself, with the code of a failure and a sentence. A listener of the removed
/// interface would accept nothing any more.
fn assert_ends(server: Running) {
    let outcome = server.wait();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    for words in ["interface sw0", "is gone", "start again once the interface is there"] {
        assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    }
}

#[test]
fn removed__an_idle_receiver_of_copies_ends() {
    for more in [&[][..], &["--loss", "1"]] {
        let Some(lab) = Lab::new(1500) else { return };
        let into = TempDir::new();
        let receiver = receiver(&lab, &into, more);
        replace_interface(&lab);
        assert_ends(receiver);
        assert_eq!(fs::read_dir(into.join("")).expect("it is there").count(), 0);
    }
}

#[test]
fn removed__an_idle_perf_server_ends() {
    let perftest = ["--oob", "perftest", "--op", "write"];
    for more in [&[][..], &["--json"], &perftest] {
        let Some(lab) = Lab::new(1500) else { return };
        let is_silent = more == ["--json"];
        let server = if is_silent { lab.json_server(&[]) } else { lab.server(more) };
        replace_interface(&lab);
        assert_ends(server);
    }
}
