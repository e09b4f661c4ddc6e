//! An emulated Linux host with Soft-RoCE (rxe), rdma-core and perftest, on an Ethernet link with
//! ours.
//!
//! There are two anonymous namespaces. In one a bridge connects the guest's tap and a veth, whose
//! other end is the interface [`DEVICE`] of our side's namespace. The kernel removes both with the
//! process. QEMU ends with the [`Guest`], with the thread that booted it, and with the process.

use spanwire_io::net::{Ethtool, IpPrefix, NetNs, Netlink, Offloads, VethEnd, VethSpec};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Our interface, in [`Guest::ours`].
pub(crate) const DEVICE: &str = "sw0";
/// Its addresses.
pub(crate) const OUR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 9));
pub(crate) const OUR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 9));
/// The guest's addresses, each a GID of device `rxe0`, see [`Guest::gid_index`].
pub(crate) const GUEST_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
pub(crate) const GUEST_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2));

/// The running guest and its network. Only one test of this process has one at a time.
pub(crate) struct Guest {
    /// Our host: [`DEVICE`] with [`OUR_V4`] and [`OUR_V6`] is connected to the guest.
    pub(crate) ours: NetNs,
    _wire: NetNs,
    qemu: Child,
    /// A switch between the bridge and our host.
    switch: Option<Child>,
    /// The GID table of `rxe0`.
    gids: Vec<Ipv6Addr>,
    run: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// A command running in the guest.
pub(crate) struct Running {
    child: Child,
    output: Option<JoinHandle<io::Result<String>>>,
}

/// A command that ended in the guest.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; 124 and 125 are the harness's own: no reply, or no guest.
    pub(crate) code: Option<i32>,
    /// Standard output and standard error.
    pub(crate) output: String,
}

impl Guest {
    /// Boots a guest. If this machine cannot, prints the reason (`SKIPPED: rxe guest: ...`) and
    /// returns `None`. The first build of the image takes about a minute.
    ///
    /// # Panics
    /// If it cannot boot and `SPANWIRE_REQUIRE_E2E=1`, or on unexpected errors.
    pub(crate) fn boot() -> Option<Self> {
        let turn = take_turn();
        match Self::try_boot(turn) {
            Ok(guest) => Some(guest),
            Err(why) => {
                let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
                assert!(!required, "the rxe guest cannot run: {why}");
                eprintln!("SKIPPED: rxe guest: {why}");
                None
            }
        }
    }

    fn try_boot(turn: MutexGuard<'static, ()>) -> Result<Self, String> {
        let ours = NetNs::new_anonymous().map_err(|e| e.to_string())?;
        let wire = NetNs::new_anonymous().map_err(|e| e.to_string())?;
        for program in ["qemu-system-x86_64", "ip", "setpriv", "python3"] {
            let found = Command::new(program).arg("--version").output();
            found.map_err(|e| format!("{program} does not run: {e}"))?;
        }
        let built = Command::new(SCRIPT).arg("build").output();
        let built = built.map_err(|e| format!("{SCRIPT}: {e}"))?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr);
            // Only the scripts' own messages; apt prints many.
            let ours = |line: &&str| line.starts_with("build-guest: ");
            let why: Vec<&str> = said.lines().filter(ours).collect();
            return Err(if why.is_empty() { said.trim().to_owned() } else { why.join("; ") });
        }
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        for warning in said.lines().filter(|line| line.starts_with("rxe-peer: WARNING: ")) {
            eprintln!("{warning}");
        }
        let image = String::from_utf8_lossy(&built.stdout).trim().to_owned();
        connect_veth(&ours, &wire);
        let run = std::env::temp_dir().join(format!("spanwire-rxe-{}", std::process::id()));
        std::fs::create_dir_all(run.join(NAME)).expect("a folder for temporary files");
        let log = std::fs::File::create(run.join(NAME).join("qemu.log")).expect("just made");
        // Entering the namespace moves the child's thread. QEMU is killed with the thread that
        // boots it, even if this process is killed.
        let mut command = wire.command("setpriv").expect("the namespace is there");
        let qemu = command
            .args(["--pdeathsig", "KILL", SCRIPT, "boot", NAME, "-m", &LINK_MTU.to_string(), "-i"])
            .arg(format!("{TAP}={GUEST_V4}/24,{GUEST_V6}/64"))
            .env("RXE_RUN", &run)
            .env("RXE_IMAGE", image)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("descriptors are left"))
            .stderr(log)
            .spawn()
            .expect("setpriv has just run");
        let mut guest =
            Self { ours, _wire: wire, qemu, switch: None, gids: Vec::new(), run, _turn: turn };
        guest.wait_ready();
        Ok(guest)
    }

    /// Waits until the guest accepts commands, and adds its tap to the bridge.
    fn wait_ready(&mut self) {
        let begun = Instant::now();
        let mut on_bridge = false;
        while !on_bridge {
            on_bridge = run_in(&self._wire, &["ip", "link", "set", TAP, "master", BRIDGE]).is_ok();
            self.check_alive();
            assert!(begun.elapsed() < BOOT_MAX, "no tap: {}", self.console());
            std::thread::sleep(Duration::from_millis(20));
        }
        let seconds = BOOT_MAX.as_secs().to_string();
        let mut command = Command::new(SCRIPT);
        let ready = command.args(["ready", NAME, &seconds]).env("RXE_RUN", &self.run).output();
        let ready = ready.expect("the script runs");
        self.check_alive();
        let said = String::from_utf8_lossy(&ready.stdout).trim().to_owned();
        let wrong = String::from_utf8_lossy(&ready.stderr).trim().to_owned();
        assert!(ready.status.success(), "{wrong}\n{}", self.console());
        while [GUEST_V4, GUEST_V6].iter().any(|ip| self.find_gid(*ip).is_none()) {
            assert!(begun.elapsed() < BOOT_MAX, "no GIDs of both addresses: {:?}", self.gids);
            self.gids = self.read_gids();
        }
        println!("rxe guest up in {:.1} s: {said}", begun.elapsed().as_secs_f64());
    }

    /// The index of an address of the guest in the GID table of `rxe0`. It varies: the kernel adds
    /// the link-local address in the background, sometimes before the others.
    pub(crate) fn gid_index(&self, ip: IpAddr) -> usize {
        self.find_gid(ip).expect("the guest is ready when it has both")
    }

    fn find_gid(&self, ip: IpAddr) -> Option<usize> {
        let wanted = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.gids.iter().position(|gid| *gid == wanted)
    }

    fn read_gids(&self) -> Vec<Ipv6Addr> {
        let table = "for i in 0 1 2 3 4 5 6 7; do \
                     cat /sys/class/infiniband/rxe0/ports/1/gids/$i; done";
        let ran = self.exec(60, table);
        ran.output.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    fn check_alive(&mut self) {
        if let Some(status) = self.qemu.try_wait().expect("our child") {
            panic!("QEMU ended ({status}): {}", self.console());
        }
    }

    /// Runs a shell command in the guest, for at most `seconds`, and waits for its end. Uses
    /// control port 0; see [`Guest::spawn`].
    pub(crate) fn exec(&self, seconds: u32, command: &str) -> Ran {
        self.spawn(0, seconds, command).wait()
    }

    /// Starts a shell command in the guest, which is killed after `seconds`. Commands on different
    /// control ports (0..=3) run concurrently, those on one port sequentially.
    pub(crate) fn spawn(&self, port: u8, seconds: u32, command: &str) -> Running {
        let mut child = Command::new(SCRIPT)
            .args(["exec", NAME, "-p", &port.to_string(), "-t", &seconds.to_string(), "--"])
            .arg(command)
            .env("RXE_RUN", &self.run)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the script runs");
        let mut stdout = child.stdout.take().expect("piped");
        let output = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        Running { child, output: Some(output) }
    }

    /// Puts `spanwire switch` between the guest and our host, with ports of this rate, `near` to
    /// our host and `far` to the guest, and further tables of its file.
    pub(crate) fn insert_switch(&mut self, rate: &str, tables: &str) {
        let wire = &self._wire;
        let run = |words: &[&str]| run_in(wire, words).unwrap_or_else(|e| panic!("{e}"));
        run(&["ip", "link", "set", PLUG, "nomaster", "mtu", SWITCH_MTU]);
        run(&[
            "ip", "link", "add", FAR, "mtu", SWITCH_MTU, "type", "veth", "peer", "name", FAR_PLUG,
        ]);
        run(&["ip", "link", "set", FAR_PLUG, "mtu", SWITCH_MTU, "master", BRIDGE, "up"]);
        run(&["ip", "link", "set", FAR, "up"]);
        let mtu = ["ip", "link", "set", DEVICE, "mtu", SWITCH_MTU];
        run_in(&self.ours, &mtu).unwrap_or_else(|e| panic!("{e}"));
        // The switch passes frames on as they are: with checksums.
        for (ns, name) in [(&self.ours, DEVICE), (wire, PLUG), (wire, FAR), (wire, FAR_PLUG)] {
            let ethtool = Ethtool::open_in(ns).expect("privileged");
            ethtool.set_offloads(name, &Offloads::OFF).expect("veth has them");
        }
        let port = |name: &str, device: &str| {
            format!("[port.{name}]\ndevice = '{device}'\nrate = '{rate}'\ndelay = '100us'\n")
        };
        let text = [&port("near", PLUG), &port("far", FAR), tables].concat();
        let (file, socket) = (self.run.join("switch.toml"), self.run.join("switch.sock"));
        std::fs::write(&file, text).expect("writable");
        let mut command = wire.command(SPANWIRE).expect("the namespace is there");
        let mut child = command
            .args(["switch", "--config"])
            .arg(&file)
            .arg("--socket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut said).expect("it prints a line");
        assert!(said.starts_with("switching between"), "{said:?}");
        self.switch = Some(child);
    }

    /// The CNPs that the switch has made, for each of its agents.
    pub(crate) fn cnps_of_switch(&self) -> Vec<u64> {
        let socket = self.run.join("switch.sock");
        let mut command = Command::new(SPANWIRE);
        command.args(["switch", "ctl", "--socket"]).arg(socket).args(["--json", "show"]);
        let ended = command.output().expect("it runs");
        let shown: serde_json::Value =
            serde_json::from_slice(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
        let agents = shown["agents"].as_array().expect("a list");
        agents.iter().filter_map(|agent| agent["counters"]["feedback_tx"].as_u64()).collect()
    }

    /// Console output of the guest's kernel and of QEMU.
    pub(crate) fn console(&self) -> String {
        let read = |file: &str| std::fs::read(self.run.join(NAME).join(file)).unwrap_or_default();
        let bytes = [read("qemu.log"), read("console")].concat();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The directory of this guest's files, removed with the guest.
    pub(crate) fn folder(&self) -> &Path {
        &self.run
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        for child in self.switch.iter_mut().chain([&mut self.qemu]) {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.run);
    }
}

impl Running {
    /// Waits for its end, which the guest enforces.
    pub(crate) fn wait(mut self) -> Ran {
        let status: io::Result<ExitStatus> = self.child.wait();
        let output = self.output.take().expect("waited for once").join();
        let output = output.expect("reading does not panic").expect("a pipe can be read");
        Ran { code: status.expect("our child").code(), output }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates the bridge, and the veth from it to our namespace.
fn connect_veth(ours: &NetNs, wire: &NetNs) {
    let veth = VethSpec {
        a: VethEnd { ns: ours, name: DEVICE },
        b: VethEnd { ns: wire, name: PLUG },
        mtu: LINK_MTU,
        queues: 1,
    };
    veth.create().expect("the namespaces are new");
    let bridge = ["ip", "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0"];
    run_in(wire, &bridge).unwrap_or_else(|e| panic!("{e}"));
    for device in [BRIDGE, PLUG] {
        let mtu = LINK_MTU.to_string();
        run_in(wire, &["ip", "link", "set", device, "mtu", &mtu, "up"])
            .unwrap_or_else(|e| panic!("{e}"));
    }
    run_in(wire, &["ip", "link", "set", PLUG, "master", BRIDGE]).unwrap_or_else(|e| panic!("{e}"));
    let mut netlink = Netlink::open_in(ours).expect("privileged");
    netlink.disable_ipv6_autoconf(DEVICE).expect("there is IPv6");
    netlink.set_up(DEVICE).expect("it is there");
    for (address, bits) in [(OUR_V4, 24), (OUR_V6, 64)] {
        let prefix = IpPrefix::new(address, bits).expect("it fits");
        netlink.add_address(DEVICE, prefix).expect("it is new");
    }
}

/// Runs a command in a namespace to its end.
fn run_in(ns: &NetNs, words: &[&str]) -> Result<(), String> {
    let mut command = ns.command(words[0]).map_err(|e| e.to_string())?;
    let ended = command.args(&words[1..]).output().map_err(|e| format!("{words:?}: {e}"))?;
    if ended.status.success() {
        return Ok(());
    }
    Err(format!("{words:?}: {}", String::from_utf8_lossy(&ended.stderr).trim()))
}

fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/rxe_peer/rxe-peer.sh");
const NAME: &str = "peer";
const BRIDGE: &str = "br0";
const PLUG: &str = "wire0";
const TAP: &str = "tap0";
/// The switch's interface towards the guest, and its other end in the bridge.
const FAR: &str = "far0";
const FAR_PLUG: &str = "wire1";
/// A frame of the switch is one buffer.
const SWITCH_MTU: &str = "1500";
const SPANWIRE: &str = env!("CARGO_BIN_EXE_spanwire");
/// MTU of every interface, for path MTU 4096.
const LINK_MTU: u32 = 9000;
/// Only a hang takes so long: it is 5 to 12 s on an idle machine.
const BOOT_MAX: Duration = Duration::from_secs(300);
