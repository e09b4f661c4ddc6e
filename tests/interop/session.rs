//! A session: two connected queue pairs, one on rxe, one on our engine, and a list of cases
//! executed in order.

use crate::case::Case;
use crate::guest::{DEVICE, GUEST_V4, GUEST_V6, Guest, OUR_V4, OUR_V6};
use crate::probe::{BUFFER_BYTES, Done, Probe, ProbeError, Setup};
use crate::transcript::{Seen, Transcript};
use spanwire_io::packet::PacketPort;
use spanwire_io::port::Port;
use spanwire_io::udp::{PacketChecksum, UdpConfig, UdpPort};
use spanwire_io::xdp::{XdpConfig, XdpPort};
use spanwire_transport::Mtu;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The role of our side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ours {
    Requester,
    Responder,
}

/// `IBV_QPS_RTS`: ready to send.
pub(crate) const RTS: u8 = 3;
/// `IBV_QPS_ERR`.
pub(crate) const ERR: u8 = 6;

/// The port of our side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attachment {
    AfXdp,
    /// For path MTU 4096, whose packets exceed an AF_XDP chunk.
    AfPacket,
    /// UDP sockets.
    Udp,
}

/// Parameters of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ours: Ours,
    pub(crate) is_v6: bool,
    pub(crate) mtu: Mtu,
    pub(crate) attachment: Attachment,
    pub(crate) loss_ppm: u32,
    pub(crate) psn: u32,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// The states (`enum ibv_qp_state`) the queue pairs of requester and responder end in.
    pub(crate) end_states: (u8, u8),
}

/// Results of all sessions of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    /// Failures, with the observations of both sides.
    failed: Vec<String>,
    sessions: u16,
}

impl Terms {
    /// IPv4 over AF_XDP at path MTU 1024, without loss.
    pub(crate) fn new(ours: Ours) -> Self {
        Self {
            ours,
            is_v6: false,
            mtu: Mtu::B1024,
            attachment: Attachment::AfXdp,
            loss_ppm: 0,
            psn: 0x12_3456,
            timeout: TIMEOUT_CALM,
            retry_cnt: 7,
            rnr_retry: 7,
            end_states: (RTS, RTS),
        }
    }

    fn title(&self) -> String {
        let role = match self.ours {
            Ours::Requester => "ours>rxe",
            Ours::Responder => "rxe>ours",
        };
        let ip = if self.is_v6 { "ipv6" } else { "ipv4" };
        let by = match self.attachment {
            Attachment::AfXdp => "af_xdp",
            Attachment::AfPacket => "af_packet",
            Attachment::Udp => "udp",
        };
        let mtu = self.mtu.bytes();
        let loss = match self.loss_ppm {
            0 => String::new(),
            ppm => format!(", loss {} %", f64::from(ppm) / 1e4),
        };
        format!("{role} {ip} mtu {mtu} {by}{loss}")
    }
}

impl Tally {
    /// Runs a session, records the result of each case and returns which of them passed. Call it in
    /// our namespace.
    pub(crate) fn run(&mut self, guest: &Guest, terms: &Terms, cases: &[Case]) -> Vec<bool> {
        self.sessions += 1;
        let title = terms.title();
        let begun = Instant::now();
        let setup = setup_of(terms, self.sessions);
        let (ours, theirs) = scripts(terms.ours, cases);
        let running = guest.spawn(0, SESSION_SECONDS, &vprobe(guest, &setup, &theirs));
        let capture = guest.folder().join("session.pcap");
        let done = attach(terms.attachment).and_then(|port| {
            Probe::connect(&setup, port, &capture).and_then(|probe| probe.run(&ours))
        });
        let ran = running.wait();
        let (done, wrong) = match done {
            Ok(done) => (Some(done), None),
            Err(e) => (None, Some(format!("our side: {e}"))),
        };
        let theirs = Transcript::parse(&ran.output);
        let nothing = Transcript::default();
        let ours = done.as_ref().map_or(&nothing, |done| &done.transcript);
        let failed_before = self.failed.len();
        let passed = self.judge(terms, &title, cases, ours, &theirs);
        if let Some(wrong) = wrong {
            self.failed.push(format!("{title}: {wrong}"));
        }
        let took = begun.elapsed().as_secs_f64();
        println!("     {title}: {} cases in {took:.1} s{}", cases.len(), remarks(done.as_ref()));
        let has_failed = self.failed.len() > failed_before;
        let kept = keep(&capture, self.sessions, has_failed);
        if has_failed {
            self.failed.push(format!(
                "{title}: capture {kept}\nours: {:?}\nrxe (exit code {:?}):\n{}",
                ours.steps, ran.code, ran.output
            ));
        }
        passed
    }

    fn judge(
        &mut self,
        terms: &Terms,
        title: &str,
        cases: &[Case],
        ours: &Transcript,
        theirs: &Transcript,
    ) -> Vec<bool> {
        let (requester, responder) = match terms.ours {
            Ours::Requester => (ours, theirs),
            Ours::Responder => (theirs, ours),
        };
        let (mut at_requester, mut at_responder) = (0, 0);
        let mut passed = Vec::new();
        for case in cases {
            let asked = part(requester, &mut at_requester, case.requester.script.len());
            let answered = part(responder, &mut at_responder, case.responder.script.len());
            let asking = case.requester.check(asked, answered);
            let answering = case.responder.check(answered, asked);
            let name = &case.name;
            let wrong = match (asking, answering) {
                (Ok(()), Ok(())) => {
                    self.passed += 1;
                    passed.push(true);
                    println!("ok   {title}: {name}");
                    continue;
                }
                (Err(e), _) => format!("requester: {e}"),
                (_, Err(e)) => format!("responder: {e}"),
            };
            passed.push(false);
            println!("FAIL {title}: {name}: {wrong}");
            self.failed.push(format!("{title}: {name}: {wrong}"));
        }
        let ends = (requester.end_state, responder.end_state);
        let expected = (Some(terms.end_states.0), Some(terms.end_states.1));
        if ends != expected {
            let wrong = format!("queue pairs ended in states {ends:?}, not {expected:?}");
            println!("FAIL {title}: {wrong}");
            self.failed.push(format!("{title}: {wrong}"));
        }
        passed
    }

    /// Prints the summary.
    ///
    /// # Panics
    /// With all details if anything failed.
    pub(crate) fn finish(self) {
        let failed = self.failed.len();
        println!("interop: {} cases passed in {} sessions", self.passed, self.sessions);
        assert!(failed == 0, "{}", self.failed.join("\n\n"));
        assert!(self.passed > 0, "nothing ran");
    }
}

fn setup_of(terms: &Terms, number: u16) -> Setup {
    let (ours, theirs) = if terms.is_v6 { (OUR_V6, GUEST_V6) } else { (OUR_V4, GUEST_V4) };
    Setup {
        ours,
        theirs,
        // A new port each time: the last connection may still be open in the guest.
        tcp_port: TCP_PORT + number,
        mtu: terms.mtu,
        psn: terms.psn,
        timeout: terms.timeout,
        retry_cnt: terms.retry_cnt,
        rnr_retry: terms.rnr_retry,
        rd_atomic: 16,
        loss_ppm: terms.loss_ppm,
        seed: u64::from(number),
    }
}

fn attach(attachment: Attachment) -> Result<Box<dyn Port>, ProbeError> {
    match attachment {
        Attachment::AfXdp => Ok(Box::new(XdpPort::open(&XdpConfig::new(DEVICE))?)),
        Attachment::AfPacket => Ok(Box::new(PacketPort::open(DEVICE)?)),
        Attachment::Udp => {
            let checksum = PacketChecksum {
                prefix: spanwire_wire::icrc_prefix,
                residue: spanwire_wire::icrc_residue,
                change: spanwire_wire::icrc_change,
            };
            let (checksum, any_id) = (Some(checksum), true);
            Ok(Box::new(UdpPort::open(&UdpConfig { checksum, any_id, ..UdpConfig::new(DEVICE) })?))
        }
    }
}

/// Our script and rxe's. Each case ends with a barrier, so that none begins before the last has
/// ended.
fn scripts(role: Ours, cases: &[Case]) -> (Vec<String>, Vec<String>) {
    let requester = cases.iter().flat_map(|case| case.requester.script.clone()).collect();
    let responder = cases.iter().flat_map(|case| case.responder.script.clone()).collect();
    match role {
        Ours::Requester => (requester, responder),
        Ours::Responder => (responder, requester),
    }
}

fn vprobe(guest: &Guest, setup: &Setup, script: &[String]) -> String {
    format!(
        "vprobe -d rxe0 -g {} -P {} -m {} -p {:#x} -t {} -r {} -n {} -q {} -B {BUFFER_BYTES} {}",
        guest.gid_index(setup.theirs),
        setup.tcp_port,
        setup.mtu.bytes(),
        setup.psn,
        setup.timeout,
        setup.retry_cnt,
        setup.rnr_retry,
        setup.rd_atomic,
        script.join(" ")
    )
}

/// The next `n` steps of a transcript, or as many as there are.
fn part<'a>(transcript: &'a Transcript, at: &mut usize, n: usize) -> &'a [Vec<Seen>] {
    let end = (*at + n).min(transcript.steps.len());
    let begin = std::mem::replace(at, end);
    &transcript.steps[begin..end]
}

/// Losses and retransmissions.
fn remarks(done: Option<&Done>) -> String {
    let Some(done) = done else { return String::new() };
    let (lost_rx, lost_tx) = done.lost;
    let (again, timeouts) =
        (done.counters.retransmitted_packets, done.counters.local_ack_timeout_err);
    format!("; lost {lost_rx} in, {lost_tx} out; ours retransmitted {again}, {timeouts} timeouts")
}

/// Keeps a capture after the guest's end, if a case failed or on request. Returns its path.
fn keep(capture: &Path, number: u16, has_failed: bool) -> String {
    let wished = std::env::var_os(CAPTURES).map(PathBuf::from);
    let Some(folder) = wished.or_else(|| has_failed.then(std::env::temp_dir)) else {
        return "not kept".to_owned();
    };
    let kept = folder.join(format!("interop-{}-{number:02}.pcap", std::process::id()));
    match std::fs::create_dir_all(&folder).and_then(|()| std::fs::copy(capture, &kept)) {
        Ok(_) => kept.display().to_string(),
        Err(e) => format!("not kept: {e}"),
    }
}

/// The environment variable with the folder for the captures of all sessions.
const CAPTURES: &str = "SPANWIRE_INTEROP_CAPTURES";
/// 4.096 us * 2^18 is 1.07 s: an emulated machine is slow, and slow packets must not be
/// retransmitted.
const TIMEOUT_CALM: u8 = 18;
/// In the range of vprobe's default port.
const TCP_PORT: u16 = 18_600;
/// The guest kills a session that takes longer, which only one that hangs does.
const SESSION_SECONDS: u32 = 1200;
