use super::*;
use proptest::prelude::*;
use std::io;

/// A record for comparison: time, link type, length on the wire, bytes.
type Seen = (Option<i128>, u32, usize, Vec<u8>);

/// The byte order of a file, and its encoder.
#[derive(Clone, Copy)]
struct Order {
    big_endian: bool,
}

impl Order {
    fn u16(self, v: u16) -> [u8; 2] {
        if self.big_endian { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn u32(self, v: u32) -> [u8; 4] {
        if self.big_endian { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| self.u32(*w)).collect()
    }

    /// A block of a pcapng file.
    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let body: Vec<u8> = [body, &vec![0; body.len().wrapping_neg() % 4]].concat();
        let len = u32::try_from(body.len() + 12).unwrap();
        [&self.words(&[kind, len])[..], &body, &self.u32(len)].concat()
    }

    fn section(self) -> Vec<u8> {
        self.block(0x0a0d_0d0a, &self.words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]))
    }

    fn interface(self, link: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = [&self.u16(link)[..], &[0, 0], &self.u32(0)].concat();
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(u16::try_from(value.len()).unwrap()));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    /// The obsolete form, with a count of dropped packets.
    fn old_packet(self, interface: u16, ticks: u64, original_len: u32, bytes: &[u8]) -> Vec<u8> {
        let [high, low] = [ticks >> 32, ticks & 0xffff_ffff].map(|v| u32::try_from(v).unwrap());
        let captured = u32::try_from(bytes.len()).unwrap();
        let mut body = [self.u16(interface), self.u16(7)].concat();
        body.extend(self.words(&[high, low, captured, original_len]));
        body.extend(bytes);
        self.block(2, &body)
    }

    fn packet(self, interface: u32, ticks: u64, original_len: u32, bytes: &[u8]) -> Vec<u8> {
        let [high, low] = [ticks >> 32, ticks & 0xffff_ffff].map(|v| u32::try_from(v).unwrap());
        let captured = u32::try_from(bytes.len()).unwrap();
        let mut body = self.words(&[interface, high, low, captured, original_len]);
        body.extend(bytes);
        self.block(6, &body)
    }
}

const LE: Order = Order { big_endian: false };
const BE: Order = Order { big_endian: true };

/// A classic file with a frame of 9 bytes, 3 of them captured, 5 us or ns after second 2.
fn classic(order: Order, magic: u32, link: u32) -> Vec<u8> {
    let version = [order.u16(2), order.u16(4)].concat();
    let header = order.words(&[0, 0, 65_535, link]);
    let record = order.words(&[2, 5, 3, 9]);
    [&order.u32(magic)[..], &version, &header, &record, &[7, 8, 9]].concat()
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// All records of a file up to the first error, and that error.
fn read(input: impl Read) -> (Vec<Seen>, Result<(), CaptureError>) {
    let mut seen = Vec::new();
    let mut capture = match Capture::new(input) {
        Ok(capture) => capture,
        Err(e) => return (seen, Err(e)),
    };
    loop {
        match capture.next_record() {
            Ok(Some(r)) => seen.push((r.at_ns, r.link, r.original_len, r.bytes.to_vec())),
            Ok(None) => return (seen, Ok(())),
            Err(e) => return (seen, Err(e)),
        }
    }
}

fn read_all(file: &[u8]) -> Vec<Seen> {
    let (seen, end) = read(file);
    end.unwrap();
    seen
}

/// A reader that returns one byte at a time, as a slow pipe does.
struct Dripping<'a>(&'a [u8]);

impl Read for Dripping<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(1);
        self.0.read(&mut buf[..n])
    }
}

#[test]
fn next_record__reads_the_obsolete_packet_block() {
    for order in [LE, BE] {
        let file = [
            order.section(),
            order.interface(101, &[]),
            order.interface(1, &[(9, &[9])]),
            order.old_packet(1, 5_000_000_000, 9, &[7, 8, 9]),
            order.packet(0, 6, 3, &[1, 2, 3]),
        ]
        .concat();
        let old = (Some(5_000_000_000), 1, 9, vec![7, 8, 9]);
        assert_eq!(read_all(&file), [old, (Some(6_000), 101, 3, vec![1, 2, 3])]);
        // Lengths in the block are not trusted.
        let mut long = order.old_packet(0, 0, 3, &[1, 2, 3]);
        long[20..24].copy_from_slice(&order.u32(u32::MAX));
        let short = order.block(2, &[0; 16]);
        let no_interface = order.old_packet(3, 0, 3, &[1, 2, 3]);
        for bad in [long, short, no_interface] {
            let file = [order.section(), order.interface(1, &[]), bad].concat();
            assert!(matches!(read(&file[..]).1, Err(CaptureError::Malformed)));
        }
    }
}

#[test]
fn new__detects_formats_and_compression() {
    assert!(matches!(read(&b""[..]).1, Err(CaptureError::NotACapture)));
    assert!(matches!(read(&b"\x7fELF\x02\x01"[..]).1, Err(CaptureError::NotACapture)));
    assert!(matches!(read(&classic(LE, MICROSECONDS, 1)[..23]).1, Err(CaptureError::NotACapture)));
    assert!(matches!(read(&[0x1f, 0x8b, 8, 0, 0][..]).1, Err(CaptureError::Compressed)));
    assert!(matches!(read(&[0x28, 0xb5, 0x2f, 0xfd, 0][..]).1, Err(CaptureError::Compressed)));
    let mut old = classic(LE, MICROSECONDS, 1);
    old[4] = 1;
    assert!(matches!(read(&old[..]).1, Err(CaptureError::Version(1, 4))));
}

#[test]
fn next_record__classic_in_both_byte_orders_and_both_units() {
    for order in [LE, BE] {
        for (magic, at) in [(MICROSECONDS, 2_000_005_000), (NANOSECONDS, 2_000_000_005)] {
            // The upper bits describe a frame check sequence of 4 bytes.
            let file = classic(order, magic, 0x2400_0071);
            let want = vec![(Some(at), 113, 9, vec![7, 8, 9])];
            assert_eq!(read_all(&file), want);
            assert_eq!(read(Dripping(&file)).0, want);
        }
    }
}

#[test]
fn next_record__classic_with_long_record_headers() {
    let mut file = classic(LE, 0xa1b2_cd34, 1);
    let at = file.len() - 3;
    file.splice(at..at, [0; 8]);
    assert_eq!(read_all(&file), [(Some(2_000_005_000), 1, 9, vec![7, 8, 9])]);
}

#[test]
fn next_record__truncation_is_an_error() {
    let one = classic(LE, MICROSECONDS, 1);
    let two = [&one[..], &one[24..]].concat();
    for cut in one.len() + 1..two.len() {
        let (seen, end) = read(&two[..cut]);
        assert_eq!(seen.len(), 1);
        assert!(matches!(end, Err(CaptureError::CutShort)), "{cut}: {end:?}");
    }
    let ng = [LE.section(), LE.interface(1, &[]), LE.packet(0, 1, 3, &[1, 2, 3])].concat();
    let ends = [LE.section().len(), LE.section().len() + LE.interface(1, &[]).len(), ng.len()];
    for cut in 4..=ng.len() {
        let (seen, end) = read(&ng[..cut]);
        assert_eq!(seen.len(), usize::from(cut == ng.len()));
        assert_eq!(end.is_ok(), ends.contains(&cut), "{cut}: {end:?}");
    }
}

#[test]
fn next_record__length_fields_do_not_allocate() {
    for (claimed, too_long) in [(u32::MAX, true), (1 << 20, true), (200 << 10, false)] {
        let mut file = classic(LE, MICROSECONDS, 1);
        file[32..36].copy_from_slice(&claimed.to_le_bytes());
        let mut capture = Capture::new(&file[..]).unwrap();
        match capture.next_record() {
            Err(CaptureError::TooLong(_)) => assert!(too_long),
            Err(CaptureError::CutShort) => assert!(!too_long),
            other => panic!("{claimed}: {other:?}"),
        }
        assert!(capture.buffer.capacity() < 4096, "{}", capture.buffer.capacity());
    }
    let mut file = [LE.section(), LE.interface(1, &[])].concat();
    file.extend(LE.words(&[6, !3, 0]));
    assert!(matches!(read(&file[..]).1, Err(CaptureError::TooLong(_))));
}

#[test]
fn next_record__pcapng_in_both_byte_orders() {
    for order in [LE, BE] {
        let file = [
            order.section(),
            order.interface(1, &[]),
            // A resolution of nanoseconds, as in files of Wireshark, and an offset of one second.
            order.interface(276, &[(9, &[9]), (14, &offset(order, 1))]),
            // Binary fractions: 2^-10 s.
            order.interface(101, &[(9, &[0x8a])]),
            // A resolution that overflows.
            order.interface(1, &[(9, &[0x7f])]),
            order.packet(1, 5, 60, &[1, 2, 3]),
            order.packet(0, 5 << 32, 4, &[1, 2, 3, 4]),
            // A block of an unknown type, and a name resolution block.
            order.block(0x8888, &[1, 2, 3, 4, 5]),
            order.block(4, &[0; 4]),
            order.packet(2, 512, 1, &[9]),
            order.packet(3, 1, 1, &[9]),
            // A simple packet: no interface, no time.
            order.block(3, &[&order.u32(2)[..], &[5, 6]].concat()),
        ]
        .concat();
        let want = vec![
            (Some(1_000_000_005), 276, 60, vec![1, 2, 3]),
            (Some((5_i128 << 32) * 1000), 1, 4, vec![1, 2, 3, 4]),
            (Some(500_000_000), 101, 1, vec![9]),
            (None, 1, 1, vec![9]),
            (None, 1, 2, vec![5, 6]),
        ];
        assert_eq!(read_all(&file), want);
        assert_eq!(read(Dripping(&file)).0, want);
    }
}

fn offset(order: Order, seconds: i64) -> [u8; 8] {
    if order.big_endian { seconds.to_be_bytes() } else { seconds.to_le_bytes() }
}

#[test]
fn next_record__a_new_section_resets_interfaces() {
    let first = [LE.section(), LE.interface(1, &[]), LE.packet(0, 1, 1, &[1])].concat();
    let second = [BE.section(), BE.interface(113, &[]), BE.packet(0, 2, 1, &[2])].concat();
    let links: Vec<_> =
        read_all(&[&first[..], &second].concat()).iter().map(|seen| seen.1).collect();
    assert_eq!(links, [1, 113]);
    let (seen, end) = read(&[first, LE.section(), LE.packet(0, 2, 1, &[2])].concat()[..]);
    assert_eq!(seen.len(), 1);
    assert!(matches!(end, Err(CaptureError::Malformed)), "{end:?}");
}

#[test]
fn next_record__inconsistent_blocks_are_malformed() {
    let start = [LE.section(), LE.interface(1, &[])].concat();
    let good = LE.packet(0, 1, 3, &[1, 2, 3]);
    // The captured length, the trailing length, and lengths shorter than any packet block.
    for (at, value) in [(20, 200), (good.len() - 4, 40), (4, 8), (4, 12)] {
        let mut bad = good.clone();
        bad[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        // The reader must not continue into the records that follow.
        let file = [&start[..], &bad, &good, &good, &good, &good, &good].concat();
        let (seen, end) = read(&file[..]);
        assert_eq!(seen, []);
        assert!(matches!(end, Err(CaptureError::Malformed)), "{at}: {end:?}");
    }
}

#[test]
fn next_record__interfaces_are_limited() {
    let file = [LE.section(), LE.interface(1, &[]).repeat(INTERFACES_MAX)].concat();
    assert_eq!(read_all(&file), []);
    let file = [file, LE.interface(1, &[])].concat();
    assert!(matches!(read(&file[..]).1, Err(CaptureError::Malformed)));
}

proptest! {
    /// No input causes a panic, an endless loop or unbounded memory.
    #[test]
    fn next_record__survives_any_damage(
        big_endian: bool,
        ng: bool,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let order = Order { big_endian };
        let mut file = if ng {
            let packets = order.packet(0, 1, 9, &[1, 2, 3]).repeat(3);
            [order.section(), order.interface(1, &[(9, &[9])]), packets].concat()
        } else {
            let one = classic(order, MICROSECONDS, 1);
            [&one[..], &one[24..], &one[24..]].concat()
        };
        for (at, value) in damage {
            let at = at.index(file.len());
            file[at] = value;
        }
        let (seen, _) = read(&file[..]);
        prop_assert!(seen.len() <= 6);
        prop_assert!(seen.iter().all(|(_, _, _, bytes)| bytes.len() <= file.len()));
    }
}
