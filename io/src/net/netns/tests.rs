use super::super::testing::{self, unique_name};
use super::*;
use std::os::unix::fs::MetadataExt;

/// A named namespace that is deleted when the test ends, even by a panic.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        let _ = NetNs::delete_named(&self.0);
    }
}

#[test]
fn new_anonymous__is_another_namespace_with_lo_up() {
    if testing::lacks_privilege("new_anonymous") {
        return;
    }
    let here = NetNs::current().expect("procfs").inode().expect("a handle");
    let ns = NetNs::new_anonymous().expect("privileged");
    assert_ne!(ns.inode().expect("a handle"), here);
    assert_eq!(ns.name(), None);
    let lo = Netlink::open_in(&ns).expect("inside").link("lo").expect("lo");
    assert!(lo.up);
    assert_eq!(
        NetNs::current().expect("procfs").inode().expect("a handle"),
        here,
        "creating a namespace does not move the thread"
    );
}

#[test]
fn create_named__ip_netns_can_use_it() {
    if testing::lacks_privilege("create_named") {
        return;
    }
    let named = Named(unique_name("named"));
    let ns = NetNs::create_named(&named.0).expect("privileged");
    assert_eq!(ns.name(), Some(named.0.as_str()));
    assert!(NetNs::list().expect("readable").contains(&named.0));
    let opened = NetNs::open_named(&named.0).expect("just made");
    assert_eq!(opened.inode().expect("a handle"), ns.inode().expect("a handle"));

    let again = NetNs::create_named(&named.0).expect_err("the name is taken");
    assert_eq!(again.kind(), NetErrorKind::AlreadyExists);

    // Verified with iproute2, if it is installed.
    let output = Command::new("ip")
        .args(["netns", "exec", &named.0, "readlink", "/proc/self/ns/net"])
        .output();
    match output {
        Ok(output) => assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            format!("net:[{}]", ns.inode().expect("a handle"))
        ),
        Err(e) => eprintln!("SKIPPED: create_named with iproute2: cannot run ip: {e}"),
    }

    NetNs::delete_named(&named.0).expect("it exists");
    assert!(!NetNs::list().expect("readable").contains(&named.0));
    let gone = NetNs::open_named(&named.0).expect_err("deleted");
    assert_eq!(gone.kind(), NetErrorKind::NotFound);
    let gone = NetNs::delete_named(&named.0).expect_err("deleted");
    assert_eq!(gone.kind(), NetErrorKind::NotFound);
}

#[test]
fn open_named__plain_file_is_rejected_and_can_be_deleted() {
    if testing::lacks_privilege("open_named") {
        return;
    }
    let named = Named(unique_name("plain"));
    drop(prepare_directory().expect("privileged"));
    File::create(Path::new(DIRECTORY).join(&named.0)).expect("privileged");
    let error = NetNs::open_named(&named.0).expect_err("not a namespace");
    assert_eq!(error.kind(), NetErrorKind::Invalid);
    assert!(error.to_string().contains("ip netns delete"), "{error}");
    NetNs::delete_named(&named.0).expect("a leftover is removed");
}

#[test]
fn enter__restores_on_drop() {
    if testing::lacks_privilege("enter") {
        return;
    }
    let here = NetNs::current().expect("procfs").inode().expect("a handle");
    let ns = NetNs::new_anonymous().expect("privileged");
    let entered = ns.enter().expect("privileged");
    let inside = NetNs::current().expect("procfs").inode().expect("a handle");
    assert_eq!(inside, ns.inode().expect("a handle"));
    drop(entered);
    let back = NetNs::current().expect("procfs").inode().expect("a handle");
    assert_eq!(back, here);
}

#[test]
fn run__returns_the_result_and_the_caller_stays() {
    if testing::lacks_privilege("run") {
        return;
    }
    let here = NetNs::current().expect("procfs").inode().expect("a handle");
    let ns = NetNs::new_anonymous().expect("privileged");
    let inside = ns
        .run(|| NetNs::current().and_then(|ns| ns.inode()))
        .expect("privileged")
        .expect("a handle");
    assert_eq!(inside, ns.inode().expect("a handle"));
    let after = NetNs::current().expect("procfs").inode().expect("a handle");
    assert_eq!(after, here);
}

#[test]
fn run__panic_is_propagated() {
    if testing::lacks_privilege("run") {
        return;
    }
    let ns = NetNs::new_anonymous().expect("privileged");
    let caught = std::panic::catch_unwind(|| ns.run(|| panic!("from inside")));
    let payload = caught.expect_err("the panic reaches the caller");
    assert_eq!(payload.downcast_ref(), Some(&"from inside"));
}

#[test]
fn command__sees_only_the_namespace_also_in_sysfs() {
    if testing::lacks_privilege("command") {
        return;
    }
    let sysfs = || std::fs::metadata("/sys").expect("sysfs is mounted").dev();
    let before = sysfs();
    let ns = NetNs::new_anonymous().expect("privileged");
    let output = ns
        .command("sh")
        .expect("a handle")
        .args(["-c", "ls /sys/class/net; readlink /proc/self/ns/net; stat -c %d /sys; exit 7"])
        .output()
        .expect("sh exists");
    let text = String::from_utf8_lossy(&output.stdout);
    let inode = ns.inode().expect("a handle");
    let (found, inside) = text.trim_end().rsplit_once('\n').expect("three lines");
    assert_eq!(found, format!("lo\nnet:[{inode}]"), "{output:?}");
    assert_eq!(output.status.code(), Some(7));
    // A sysfs shows the interfaces of one namespace. That of this process is still the one before.
    assert_ne!(inside, before.to_string(), "another sysfs is mounted for the command");
    assert_eq!(sysfs(), before);
}

#[test]
fn command__program_that_does_not_exist_is_an_error() {
    if testing::lacks_privilege("command") {
        return;
    }
    let ns = NetNs::new_anonymous().expect("privileged");
    let error =
        ns.command("/no/such/program").expect("a handle").status().expect_err("no such program");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn path_of__only_file_names() {
    for name in ["", ".", "..", "a/b", "../etc", "a\0b"] {
        assert!(path_of(name).is_err(), "{name:?}");
    }
    assert!(path_of(&"n".repeat(256)).is_err());
    assert_eq!(path_of("sw-a"), Ok(PathBuf::from("/run/netns/sw-a")));
}
