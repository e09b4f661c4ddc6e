//! A counterpart of vprobe on our engine: the same exchange, operations and buffer.
//!
//! `tests/rxe_peer/vprobe.c` describes the operations. `cut`, which cuts the link, is additional.

use crate::badwire::BadWire;
use crate::guest::DEVICE;
use crate::transcript::{Completion, Seen, Transcript, fnv, stream};
use spanwire_base::{Node, PortMask, Time, u64_from, usize_from};
use spanwire_io::clock::Clock;
use spanwire_io::driver::{Budget, step};
use spanwire_io::net::{Netlink, resolve};
use spanwire_io::pcap::{PcapPort, PcapWriter};
use spanwire_io::port::Port;
use spanwire_mem::Region;
use spanwire_transport::{
    Access, AddressVector, Config, Counters, CqId, Endpoint, MemoryRegion, Mtu, QpAttr, QpCaps,
    QpInit, QpState, RecvRequest, RemoteAddr, Sge, Wc, WcOpcode, WorkRequest, WrOp,
};
use spanwire_wire::{MacAddr, Psn, Qpn};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Buffer size: each half has room for messages of 1 MiB and the bytes after them.
pub(crate) const BUFFER_BYTES: usize = 4 << 20;
/// Offset of the second half: the source of sends and of the peer's READs, and the target of our
/// READs.
const HALF: usize = BUFFER_BYTES / 2;

/// Parameters of both sides of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) ours: IpAddr,
    pub(crate) theirs: IpAddr,
    pub(crate) tcp_port: u16,
    pub(crate) mtu: Mtu,
    /// First PSN of both sides.
    pub(crate) psn: u32,
    /// Local ACK timeout: 4.096 us * 2^n.
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// READs and atomics outstanding, each way.
    pub(crate) rd_atomic: u8,
    /// Frames lost each way, of a million.
    pub(crate) loss_ppm: u32,
    pub(crate) seed: u64,
}

/// Our side of a session.
pub(crate) struct Probe {
    endpoint: Endpoint,
    port: Cable,
    clock: Clock,
    unfinished: PortMask,
    tcp: TcpStream,
    inbox: VecDeque<u8>,
    cq: CqId,
    qpn: Qpn,
    region: Region,
    mr: MemoryRegion,
    peer: Peer,
    next_id: u64,
    transcript: Transcript,
}

type Cable = BadWire<PcapPort<Box<dyn Port>, File>>;

/// The parameters that vprobe announces.
#[derive(Clone, Copy, Debug)]
struct Peer {
    qpn: Qpn,
    psn: Psn,
    rkey: u32,
    va: u64,
    len: u64,
}

/// The result of our side.
pub(crate) struct Done {
    pub(crate) transcript: Transcript,
    pub(crate) counters: Counters,
    /// Frames lost on the link: received, sent.
    pub(crate) lost: (u64, u64),
}

/// An error of our side, as text.
pub(crate) type ProbeError = Box<dyn std::error::Error>;

impl Probe {
    /// Connects to the vprobe that listens in the guest. Call it in our namespace.
    pub(crate) fn connect(
        setup: &Setup,
        port: Box<dyn Port>,
        capture: &Path,
    ) -> Result<Self, ProbeError> {
        let clock = Clock::start();
        let port = PcapPort::new(port, PcapWriter::create(capture, clock.wall_start())?);
        let port = BadWire::new(port, setup.seed, setup.loss_ppm);
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&setup.seed.to_le_bytes());
        // Every second case is without fast paths.
        let config = Config { fast_paths: setup.seed.is_multiple_of(2), ..Config::default() };
        let mut endpoint = Endpoint::new(config.validate()?, seed);
        let pd = endpoint.alloc_pd()?;
        let cq = endpoint.create_cq(1024)?;
        let region = Region::zeroed(BUFFER_BYTES);
        let mr = endpoint.reg_mr(pd, region.clone(), Access::ALL, None)?;
        let caps = QpCaps { max_send_wr: 256, max_recv_wr: 256, ..QpCaps::default() };
        let qpn = endpoint.create_qp(&QpInit::new(pd, cq, cq, caps))?;
        endpoint.modify_qp(qpn, &QpAttr::init(Access::ALL))?;
        let mut tcp = dial(SocketAddr::new(setup.theirs, setup.tcp_port))?;
        let rkey = mr.rkey.ok_or("memory that the peer may use has an rkey")?;
        let (number, psn, va) = (qpn.get(), setup.psn, mr.addr);
        let gid = gid_of(setup.ours);
        writeln!(
            tcp,
            "VP {number:#08x} {psn:#08x} {gid} {rkey:#010x} {va:#018x} {BUFFER_BYTES} 0x0"
        )?;
        let mut probe = Self {
            peer: read_peer(&mut tcp)?,
            endpoint,
            port,
            clock,
            unfinished: PortMask::EMPTY,
            tcp,
            inbox: VecDeque::new(),
            cq,
            qpn,
            region,
            mr,
            next_id: 1,
            transcript: Transcript::default(),
        };
        probe.tcp.set_nonblocking(true)?;
        probe.make_ready(setup)?;
        Ok(probe)
    }

    /// Moves the queue pair to RTR and RTS.
    fn make_ready(&mut self, setup: &Setup) -> Result<(), ProbeError> {
        let ifindex = Netlink::open()?.ifindex(DEVICE)?;
        let hop = resolve(setup.theirs, Some(ifindex))?;
        let av = AddressVector::new(
            MacAddr::new(hop.src_mac),
            MacAddr::new(hop.dst_mac),
            setup.ours,
            setup.theirs,
        );
        let mut attr = QpAttr::rtr(self.peer.qpn, self.peer.psn, setup.mtu, av);
        attr.max_dest_rd_atomic = Some(setup.rd_atomic);
        self.endpoint.modify_qp(self.qpn, &attr)?;
        let mut attr = QpAttr::rts(Psn::new(setup.psn));
        attr.max_rd_atomic = Some(setup.rd_atomic);
        attr.timeout = Some(setup.timeout);
        attr.retry_cnt = Some(setup.retry_cnt);
        attr.rnr_retry = Some(setup.rnr_retry);
        self.endpoint.modify_qp(self.qpn, &attr)?;
        Ok(())
    }

    /// Runs the script, with vprobe's barriers before and after.
    pub(crate) fn run(mut self, script: &[String]) -> Result<Done, ProbeError> {
        self.barrier()?;
        for op in script {
            self.transcript.begin();
            self.run_op(op).map_err(|e| format!("{op}: {e}"))?;
        }
        let state = self.endpoint.query_qp(self.qpn).map(|info| info.state);
        self.transcript.end_state = state.map(|state| match state {
            QpState::Reset => 0,
            QpState::Init => 1,
            QpState::Rtr => 2,
            QpState::Rts => 3,
            QpState::Sqd => 4,
            QpState::Sqe => 5,
            QpState::Err => 6,
        });
        self.barrier()?;
        let counters = self.endpoint.counters().clone();
        Ok(Done { transcript: self.transcript, counters, lost: self.port.lost() })
    }

    fn run_op(&mut self, op: &str) -> Result<(), ProbeError> {
        let (op, waits) = op.strip_prefix("nb:").map_or((op, true), |op| (op, false));
        let mut words = op.split(':');
        let name = words.next().unwrap_or_default();
        let mut number = |default| words.next().map_or(Ok(default), str::parse::<u64>);
        let (a, b) = (number(0)?, number(1)?);
        let len = usize_from(a);
        match name {
            "bar" => self.barrier(),
            "clear" => Ok(self.region.copy_in(0, &vec![0; HALF])?),
            "fill" => Ok(self.region.copy_in(HALF, &stream(a, HALF))?),
            "cut" => {
                self.port.cut();
                Ok(())
            }
            "sleep" => {
                let end = Instant::now() + Duration::from_millis(a);
                self.drive(|_| Ok(Instant::now() >= end))
            }
            "recv" => (0..b).try_for_each(|_| self.post_recv(a)),
            "poll" => self.poll(a, POLL_MAX),
            "dump" => self.note_hash(0, len),
            _ => {
                let n = if name == "cas" { 1 } else { b };
                for at in 0..n {
                    self.post(name, a, b, at)?;
                }
                if waits {
                    self.poll(n, POLL_MAX)?;
                    match name {
                        "read" => self.note_hash(HALF, len)?,
                        "faa" | "cas" => (0..n).try_for_each(|at| self.note_original(at))?,
                        _ => {}
                    }
                }
                Ok(())
            }
        }
    }

    fn post_recv(&mut self, len: u64) -> Result<(), ProbeError> {
        let sge = Sge { addr: self.mr.addr, len: u32::try_from(len)?, lkey: self.mr.lkey };
        let wr_id = self.take_id() | RECV;
        let request = RecvRequest { wr_id, sges: std::slice::from_ref(&sge) };
        Ok(self.endpoint.post_recv(self.qpn, &request)?)
    }

    /// Posts one request, the `at`-th of its kind in a row.
    fn post(&mut self, name: &str, a: u64, b: u64, at: u64) -> Result<(), ProbeError> {
        let id = self.take_id();
        let imm = IMM_BASE + u32::try_from(id)?;
        let (va, rkey) = (self.peer.va, self.peer.rkey);
        let to = |va, rkey| RemoteAddr { va, rkey };
        let (first, bad) = (to(va, rkey), to(va, rkey ^ 0x5a));
        let op = match name {
            "send" | "sendse" => WrOp::Send,
            "sendimm" => WrOp::SendImm { imm },
            "write" => WrOp::Write { remote: first },
            "writeimm" => WrOp::WriteImm { remote: first, imm },
            "read" => WrOp::Read { remote: to(va + self.peer.len / 2, rkey) },
            "badkey" => WrOp::Write { remote: bad },
            "badkeyread" => WrOp::Read { remote: bad },
            "badaddr" => WrOp::Write { remote: to(va + self.peer.len - a / 2, rkey) },
            "faa" => WrOp::FetchAdd { remote: first, add: a },
            "cas" => WrOp::CmpSwap { remote: first, compare: a, swap: b },
            "badkeyatomic" => WrOp::FetchAdd { remote: bad, add: a },
            "unaligned" => WrOp::FetchAdd { remote: to(va + 4, rkey), add: a },
            _ => return Err("no such operation".into()),
        };
        let (addr, lkey) = (self.mr.addr + u64_from(HALF), self.mr.lkey);
        let sge = match op {
            // Each atomic in a row has its own word for the original value.
            WrOp::FetchAdd { .. } | WrOp::CmpSwap { .. } => {
                Sge { addr: addr + 8 * at, len: 8, lkey }
            }
            _ => Sge { addr, len: u32::try_from(a)?, lkey },
        };
        let mut request = WorkRequest::new(id, op, std::slice::from_ref(&sge));
        request.solicited = name == "sendse";
        Ok(self.endpoint.post_send(self.qpn, &request)?)
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Waits for `n` completions, each for at most `each`.
    fn poll(&mut self, n: u64, each: Duration) -> Result<(), ProbeError> {
        for _ in 0..n {
            let end = Instant::now() + each;
            let mut found = None;
            self.drive(|probe| {
                found = probe.endpoint.poll_cq(probe.cq)?;
                Ok(found.is_some() || Instant::now() >= end)
            })?;
            let Some(wc) = found else {
                self.transcript.note(Seen::TimedOut);
                break;
            };
            self.transcript.note(Seen::Wc(completion(&wc)));
        }
        Ok(())
    }

    fn note_hash(&mut self, at: usize, len: usize) -> Result<(), ProbeError> {
        let mut bytes = vec![0; len];
        self.region.copy_out(at, &mut bytes)?;
        self.transcript.note(Seen::Fnv(fnv(&bytes)));
        Ok(())
    }

    /// Records the original value of the `at`-th atomic in a row.
    fn note_original(&mut self, at: u64) -> Result<(), ProbeError> {
        let mut bytes = [0; 8];
        self.region.copy_out(HALF + 8 * usize_from(at), &mut bytes)?;
        self.transcript.note(Seen::Original(u64::from_ne_bytes(bytes)));
        Ok(())
    }

    /// Sends the barrier message and waits for the peer's.
    fn barrier(&mut self) -> Result<(), ProbeError> {
        // A few bytes on an otherwise idle connection: the write never blocks.
        self.tcp.write_all(b"BAR\n")?;
        let end = Instant::now() + BARRIER_MAX;
        self.drive(|probe| {
            if Instant::now() >= end {
                return Err("the peer does not reach the barrier".into());
            }
            probe.receive_line()
        })
    }

    /// Receives; returns true if a complete line has arrived, and removes it. The peer may have
    /// closed the connection after its last one, which may have arrived with the one before.
    fn receive_line(&mut self) -> Result<bool, ProbeError> {
        if self.take_line() {
            return Ok(true);
        }
        let mut bytes = [0; 256];
        match self.tcp.read(&mut bytes) {
            Ok(0) => return Err("the peer has closed the connection".into()),
            Ok(n) => self.inbox.extend(&bytes[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
        Ok(self.take_line())
    }

    fn take_line(&mut self) -> bool {
        let at = self.inbox.iter().position(|b| *b == b'\n');
        at.map(|at| self.inbox.drain(..=at)).is_some()
    }

    /// Runs the engine until `is_done`, so that the peer is served during every wait.
    fn drive(
        &mut self,
        mut is_done: impl FnMut(&mut Self) -> Result<bool, ProbeError>,
    ) -> Result<(), ProbeError> {
        while !is_done(self)? {
            let now = self.clock.now();
            let Self { endpoint, port, unfinished, .. } = self;
            let progress = step(&self.clock, endpoint, port, unfinished, Budget::default())?;
            if progress.is_idle() {
                let due = time_left(self.endpoint.poll_timeout(), now);
                self.port.wait(due.min(NAP))?;
            }
        }
        Ok(())
    }
}

/// Time until a deadline.
fn time_left(deadline: Option<Time>, now: Time) -> Duration {
    deadline.map_or(Duration::MAX, |at| Duration::from_nanos(at.since(now).as_ns()))
}

fn completion(wc: &Wc) -> Completion {
    let is_recv = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
    let landed = is_recv && wc.status.code() == 0;
    Completion {
        id: wc.wr_id & !RECV,
        is_recv,
        status: wc.status.code(),
        len: landed.then_some(wc.byte_len),
        imm: wc.imm.filter(|_| landed),
        solicited: landed.then_some(wc.solicited),
    }
}

/// Connects to vprobe, which may still be starting.
fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let end = Instant::now() + DIAL_MAX;
    loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                tcp.set_read_timeout(Some(DIAL_MAX))?;
                return Ok(tcp);
            }
            Err(e) if Instant::now() >= end => return Err(e),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Reads vprobe's line byte by byte, because later bytes belong to the barriers.
fn read_peer(tcp: &mut TcpStream) -> Result<Peer, ProbeError> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    loop {
        tcp.read_exact(&mut byte)?;
        match byte {
            [b'\n'] => break,
            [byte] => line.push(byte),
        }
    }
    let line = String::from_utf8(line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["VP", qpn, psn, _gid, rkey, va, len, _qkey] = words[..] else {
        return Err(format!("not vprobe's line: {line:?}").into());
    };
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16);
    let hex32 = |word| -> Result<u32, ProbeError> { Ok(u32::try_from(hex(word)?)?) };
    Ok(Peer {
        qpn: Qpn::new(hex32(qpn)?),
        psn: Psn::new(hex32(psn)?),
        rkey: hex32(rkey)?,
        va: hex(va)?,
        len: len.parse()?,
    })
}

/// The GID of an address, as text.
fn gid_of(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// vprobe's immediate data are this plus the request's number.
pub(crate) const IMM_BASE: u32 = 0xabcd_0000;
/// Marks the number of a receive request.
const RECV: u64 = 1 << 32;
/// Interval of polling resources without a wakeup.
const NAP: Duration = Duration::from_micros(500);
/// Time limit of one completion, as in vprobe: only a hang takes so long.
const POLL_MAX: Duration = Duration::from_secs(300);
/// vprobe takes some time to start in the guest, and only a hang takes so long.
const DIAL_MAX: Duration = Duration::from_secs(300);
/// Above the longest time between two barriers.
const BARRIER_MAX: Duration = Duration::from_secs(600);
