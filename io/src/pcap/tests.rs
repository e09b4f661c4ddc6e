use super::*;
use crate::pipe::{PipeConfig, pipe};
use crate::port::reserve;
use std::cell::RefCell;
use std::rc::Rc;

/// An output shared with the test that accepts at most `room` bytes.
#[derive(Clone)]
struct Disk {
    bytes: Rc<RefCell<Vec<u8>>>,
    room: usize,
}

impl Disk {
    fn new(room: usize) -> Self {
        let bytes = Rc::default();
        Self { bytes, room }
    }
}

impl Write for Disk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.borrow_mut();
        if bytes.len() + buf.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        bytes.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const HEADER: [u8; 24] =
    [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];

fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(0x0102_0304, 999_999_999)
}

/// (seconds, nanoseconds, frame) of each record.
fn records(file: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    assert_eq!(file[..24], HEADER);
    let (mut rest, mut out) = (&file[24..], Vec::new());
    while !rest.is_empty() {
        let word = |at: usize| {
            let bytes = rest[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        let len = word(8) as usize;
        assert_eq!(word(8), word(12), "no frame is truncated");
        out.push((word(0), word(4), rest[16..16 + len].to_vec()));
        rest = &rest[16 + len..];
    }
    out
}

#[test]
fn write__makes_the_bytes_of_the_format() {
    let disk = Disk::new(1_000);
    let mut writer = PcapWriter::new(disk.clone(), start()).unwrap();
    writer.write(Time::from_ns(2), &[0xaa, 0xbb, 0xcc]).unwrap();
    assert!(disk.bytes.borrow().is_empty(), "it is buffered");
    writer.flush().unwrap();
    let mut expected = HEADER.to_vec();
    expected.extend([0x05, 0x03, 0x02, 0x01, 1, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0]);
    expected.extend([0xaa, 0xbb, 0xcc]);
    assert_eq!(*disk.bytes.borrow(), expected);
}

#[test]
fn write__truncates_to_the_snap_length_and_records_it() {
    let disk = Disk::new(1 << 20);
    let mut writer = PcapWriter::new(disk.clone(), start()).unwrap();
    writer.write(Time::ZERO, &vec![7; 300_000]).unwrap();
    writer.flush().unwrap();
    let bytes = disk.bytes.borrow();
    assert_eq!(bytes[32..36], 262_144u32.to_le_bytes());
    assert_eq!(bytes[36..40], 300_000u32.to_le_bytes());
    assert_eq!(bytes.len(), 24 + 16 + 262_144);
}

#[test]
fn write_beginning__records_the_length_of_the_frame() {
    let disk = Disk::new(1_000);
    let mut writer = PcapWriter::new(disk.clone(), start()).unwrap();
    writer.write_beginning(Time::ZERO, &[7; 54], 4_166).unwrap();
    writer.flush().unwrap();
    let bytes = disk.bytes.borrow();
    assert_eq!(bytes[32..36], 54u32.to_le_bytes());
    assert_eq!(bytes[36..40], 4_166u32.to_le_bytes());
    assert_eq!(bytes[40..], [7; 54]);
}

#[test]
fn create__writes_a_file() {
    let name = format!("spanwire-pcap-test-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut writer = PcapWriter::create(&path, start()).unwrap();
    writer.write(Time::ZERO, &[1; 60]).unwrap();
    drop(writer);
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(records(&file).len(), 1);
}

#[test]
fn pcap_port__records_both_directions_with_the_nodes_time() {
    let disk = Disk::new(1_000);
    let (mut peer, port) = pipe(PipeConfig::default());
    let writer = PcapWriter::new(disk.clone(), SystemTime::UNIX_EPOCH).unwrap();
    let mut port = PcapPort::new(port, writer);
    let mut slot = reserve(&mut peer).unwrap();
    slot.bytes()[..60].fill(1);
    slot.commit(TxMeta::whole(60));
    peer.flush(Time::ZERO).unwrap();

    let mut seen = 0;
    port.rx_burst(&Time::from_ns(5_000_000_007), 64, &mut |frame, _| {
        assert_eq!(frame, [1; 60]);
        seen += 1;
    });
    assert_eq!(seen, 1);
    let mut slot = reserve(&mut port).unwrap();
    slot.bytes()[..70].fill(2);
    slot.commit(TxMeta::whole(70));
    drop(reserve(&mut port));
    port.flush(Time::from_ns(5_000_000_007)).unwrap();
    assert_eq!(port.counters().recorded, 2);
    port.flush_capture();
    let got = records(&disk.bytes.borrow());
    assert_eq!(got, [(5, 7, vec![1; 60]), (5, 7, vec![2; 70])]);
    assert_eq!(peer.rx_burst(&Time::ZERO, 64, &mut |_, _| ()), 1);
}

#[test]
fn pcap_port__flushes_when_dropped() {
    let disk = Disk::new(1_000);
    let (port, _peer) = pipe(PipeConfig::default());
    let writer = PcapWriter::new(disk.clone(), start()).unwrap();
    let mut port = PcapPort::new(port, writer);
    reserve(&mut port).unwrap().commit(TxMeta::whole(60));
    drop(port);
    assert_eq!(records(&disk.bytes.borrow()).len(), 1);
}

#[test]
fn pcap_port__reports_an_error_of_the_flush_when_dropped() {
    let (port, _peer) = pipe(PipeConfig::default());
    let mut port = PcapPort::new(port, PcapWriter::new(Disk::new(10), start()).unwrap());
    reserve(&mut port).unwrap().commit(TxMeta::whole(60));
    let error = port.capture_error();
    assert!(error.get().is_none(), "it is buffered");
    drop(port);
    assert_eq!(error.get().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
}

#[test]
fn pcap_port__continues_when_the_disk_is_full() {
    let disk = Disk::new(10_000);
    let (port, mut peer) = pipe(PipeConfig::default());
    let writer = PcapWriter::new(disk, start()).unwrap();
    let mut port = PcapPort::new(port, writer);
    for _ in 0..20 {
        reserve(&mut port).unwrap().commit(TxMeta::whole(1_000));
    }
    port.flush(Time::ZERO).unwrap();
    let c = port.counters();
    assert_eq!(c.recorded + c.unrecorded, 20);
    assert!(c.unrecorded > 0);
    let error = port.capture_error();
    assert_eq!(error.get().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
    assert_eq!(peer.rx_burst(&Time::ZERO, 64, &mut |_, _| ()), 20);
    assert_eq!(port.inner().counters().tx_frames, 20);
}
