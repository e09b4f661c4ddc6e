//! A peer that completes the handshake and then violates the protocol: a second engine at the other
//! end of the pipe.
#![expect(non_snake_case, reason = "tests are named function__case")]

use serde_json::{Value, json};
use spanwire_io::driver::{Driver, Polling};
use spanwire_mem::Region;
use spanwire_stream::fabric::{Attachment, Wrap};
use spanwire_stream::modes::{Modes, settle};
use spanwire_stream::{Cause, Config, ConnectOptions, Error, Listener, Network, NetworkOptions};
use spanwire_transport::{
    Access, AddressVector, Config as EngineConfig, CongestionControl, CqId, Endpoint, MemoryRegion,
    Mtu, Offer, PdId, QpAttr, QpCaps, QpInit, RecvRequest, RemoteAddr, Sge, SrOptions, Wc,
    WcStatus, WireMode, WorkRequest, WrOp,
};
use spanwire_wire::{MacAddr, Psn, Qpn};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A queue pair of the hostile peer, connected to a connection of the listener.
struct AttackerQp {
    side: BufReader<TcpStream>,
    qpn: Qpn,
    /// The listener's ring for this connection.
    ring: RemoteAddr,
}

/// The hostile host at the other end of the pipe.
struct HostilePeer {
    endpoint: Endpoint,
    attachment: Attachment,
    driver: Driver,
    pd: PdId,
    cq: CqId,
    memory: Region,
    mr: MemoryRegion,
}

impl AttackerQp {
    /// Sends `ready`; returns the reply.
    fn ready(&mut self) -> String {
        writeln!(self.side.get_ref(), "{{\"type\":\"ready\"}}").unwrap();
        let mut reply = String::new();
        self.side.read_line(&mut reply).unwrap();
        reply
    }
}

impl HostilePeer {
    fn new(attachment: Attachment) -> Self {
        let config = EngineConfig::default().validate().expect("the defaults");
        let mut endpoint = Endpoint::new(config, [9; 32]);
        let pd = endpoint.alloc_pd().unwrap();
        let cq = endpoint.create_cq(64).unwrap();
        let memory = Region::zeroed(4096);
        let mr = endpoint.reg_mr(pd, memory.clone(), Access::LOCAL_WRITE, Some(0)).unwrap();
        let driver = Driver::new(attachment.clock, Polling::Busy);
        Self { endpoint, attachment, driver, pd, cq, memory, mr }
    }

    /// Sets up a connection.
    fn call(&mut self, address: SocketAddr, mode: WireMode, timeout: u8) -> AttackerQp {
        let mut qp = self.half_open(address, mode, timeout);
        assert_eq!(qp.ready(), "{\"type\":\"ready\"}\n");
        qp
    }

    /// Sets up a connection without its `ready`, with the messages of
    /// docs/protocol/stream-and-copy.md, "Setting up".
    ///
    /// A write that is to arrive has the time of a `timeout` of 20, on a busy machine too. One that
    /// is rejected ends soon with 14.
    fn half_open(&mut self, address: SocketAddr, mode: WireMode, timeout: u8) -> AttackerQp {
        let caps = QpCaps { max_send_wr: 16, max_recv_wr: 16, ..QpCaps::default() };
        let qpn = self.endpoint.create_qp(&QpInit::new(self.pd, self.cq, self.cq, caps)).unwrap();
        self.endpoint.modify_qp(qpn, &QpAttr::init(Access::LOCAL_WRITE)).unwrap();
        for _ in 0..16 {
            self.endpoint.post_recv(qpn, &RecvRequest { wr_id: 0, sges: &[] }).unwrap();
        }
        let segment = Offer::segment_bytes(self.attachment.ip_bytes, true);
        let offer = Offer::of(&EngineConfig::default(), segment).only(mode);
        let hello = json!({
            "type": "hello", "version": 3, "carries": "messages", "ip": LOCALHOST,
            "path_mtu": 1024, "side_poll_port": null, "modes": Modes::from(offer),
            "qp": {"qpn": qpn.get(), "psn": 7},
            "ring": {"va": 0, "rkey": 1, "bytes": 65536, "fragment_bytes": 4096,
                     "fragments": 16, "max_message_bytes": 4096},
        });
        let mut side = BufReader::new(TcpStream::connect(address).unwrap());
        side.get_ref().set_read_timeout(Some(LATE)).unwrap();
        writeln!(side.get_ref(), "{hello}").unwrap();
        let mut answer = String::new();
        side.read_line(&mut answer).unwrap();
        let theirs: Value = serde_json::from_str(&answer).unwrap();
        let number = |pointer: &str| theirs.pointer(pointer).and_then(Value::as_u64).unwrap();
        let modes: Modes = serde_json::from_value(theirs["modes"].clone()).unwrap();
        let agreed = settle(&offer, &Offer::from(&modes)).unwrap();
        let mac = |n| MacAddr::new([2, 0x53, 0x57, 0, 0, n]);
        let av = AddressVector::new(mac(2), mac(1), LOCALHOST, LOCALHOST);
        let word = |pointer: &str| u32::try_from(number(pointer)).unwrap();
        let (their_qpn, psn) = (Qpn::new(word("/qp/qpn")), Psn::new(word("/qp/psn")));
        let wire = Some(agreed.wire(&SrOptions::default(), &CongestionControl::default()));
        let rtr = QpAttr { wire, ..QpAttr::rtr(their_qpn, psn, Mtu::B1024, av) };
        self.endpoint.modify_qp(qpn, &rtr).unwrap();
        let rts = QpAttr { timeout: Some(timeout), retry_cnt: Some(2), ..QpAttr::rts(Psn::new(7)) };
        self.endpoint.modify_qp(qpn, &rts).unwrap();
        let ring = RemoteAddr { va: number("/ring/va"), rkey: word("/ring/rkey") };
        AttackerQp { side, qpn, ring }
    }

    /// Writes `bytes` from `line` to the beginning of `ring`, as a whole message if `is_message`.
    fn write(&mut self, line: &AttackerQp, ring: RemoteAddr, bytes: &[u8], is_message: bool) -> Wc {
        self.memory.copy_in(0, bytes).unwrap();
        let len = u32::try_from(bytes.len()).unwrap();
        let sges = [Sge { addr: self.mr.addr, len, lkey: self.mr.lkey }];
        let op = match is_message {
            true => WrOp::WriteImm { remote: ring, imm: 0 },
            false => WrOp::Write { remote: ring },
        };
        self.endpoint.post_send(line.qpn, &WorkRequest::new(0, op, &sges)).unwrap();
        let (deadline, cq) = (Instant::now() + LATE, self.cq);
        let mut found = None;
        let port = &mut *self.attachment.port;
        let ran = self.driver.run_until(&mut self.endpoint, port, |endpoint| {
            found = endpoint.poll_cq(cq).unwrap().filter(|wc| wc.qpn == line.qpn);
            found.is_some() || Instant::now() > deadline
        });
        ran.expect("a pipe stays");
        found.expect("a request completes")
    }
}

#[test]
fn write__with_another_connections_rkey_ends_the_writer_and_changes_nothing() {
    for mode in [WireMode::Rc, WireMode::Sr] {
        let wrap = Wrap::default();
        let (a, b) = Attachment::pipe([&wrap, &wrap]).unwrap();
        let network = Network::over(a, "lo", NetworkOptions::default()).unwrap();
        let listener: Listener<_> = network.listen(0, ConnectOptions::default()).unwrap();
        let address = SocketAddr::new(LOCALHOST, listener.local_addr().port());
        let mut peer = HostilePeer::new(b);
        let lines = [20, 14].map(|timeout| {
            let line = peer.call(address, mode, timeout);
            (line, listener.accept_timeout(LATE).unwrap().expect("it called"))
        });
        let [(victim, mut to_victim), (attacker, mut to_attacker)] = lines;
        let wc = peer.write(&victim, victim.ring, b"\0\0\0\x10the victim's own", true);
        assert_eq!(wc.status, WcStatus::Success, "{mode:?}");
        let wc = peer.write(&attacker, victim.ring, b"what was written", false);
        // The listener's queue pair may be gone before its NAK has left.
        assert_ne!(wc.status, WcStatus::Success, "{mode:?}");
        assert_eq!(to_victim.recv().unwrap().as_deref(), Some(&b"the victim's own"[..]));
        let ended = to_attacker.recv();
        assert!(matches!(ended, Err(Error::Lost(Cause::Protocol(_)))), "{mode:?}: {ended:?}");
    }
}

#[test]
fn write__before_ready_is_dropped() {
    for mode in [WireMode::Rc, WireMode::Sr] {
        let wrap = Wrap::default();
        let (a, b) = Attachment::pipe([&wrap, &wrap]).unwrap();
        // The connection is half-open for as long as the write is retried.
        let limits = Config { handshake_timeout: Duration::from_secs(60), ..Config::default() };
        let config = limits.validate().unwrap();
        let options = NetworkOptions { config, ..NetworkOptions::default() };
        let network = Network::over(a, "lo", options).unwrap();
        let listener: Listener<_> = network.listen(0, ConnectOptions::default()).unwrap();
        let address = SocketAddr::new(LOCALHOST, listener.local_addr().port());
        let mut peer = HostilePeer::new(b);
        let mut attacker = peer.half_open(address, mode, 14);
        let wc = peer.write(&attacker, attacker.ring, b"too early", false);
        assert_eq!(wc.status, WcStatus::RetryExcErr, "{mode:?}");
        let counters = network.counters();
        let dropped = counters.iter().filter(|(name, _)| name.starts_with("drop_"));
        assert!(dropped.map(|(_, n)| n).sum::<u64>() > 0, "{mode:?}: {counters:?}");
        assert_eq!(attacker.ready(), "{\"type\":\"ready\"}\n");
        let _connection: spanwire_stream::Connection =
            listener.accept_timeout(LATE).unwrap().expect("it called");
    }
}

#[test]
fn connect__no_address_of_the_process_is_in_a_hello() {
    let wrap = Wrap::default();
    let (a, b) = Attachment::pipe([&wrap, &wrap]).unwrap();
    let network = Network::over(a, "lo", NetworkOptions::default()).unwrap();
    let listener: Listener<spanwire_stream::Connection> =
        network.listen(0, ConnectOptions::default()).unwrap();
    let address = SocketAddr::new(LOCALHOST, listener.local_addr().port());
    let mut peer = HostilePeer::new(b);
    assert_eq!(peer.call(address, WireMode::Sr, 14).ring.va, 0);
}
