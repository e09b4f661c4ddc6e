//! `--pcap`: a capture at one end of a simulated link.

use spanwire_base::{RxMeta, Time, TxMeta, usize_from};
use spanwire_host::fabric::Error;
use spanwire_host::text::unknown;
use spanwire_io::pcap::PcapWriter;
use spanwire_sim::{Cable, LinkId, Observer, Plug, Topology};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

/// A capture at one end of a link. A sent frame has the time of its first bit, a received frame
/// that of its last. Time 0 of the simulation is 1970.
///
/// A frame with an elided payload is recorded as truncated at the payload, with its length on the
/// wire. Its ICRC is left out, because a reader cannot check it without the payload.
#[derive(Debug)]
pub(super) struct Capture<W: Write> {
    writer: PcapWriter<W>,
    outward: LinkId,
    inward: LinkId,
    frames: u64,
    error: Option<std::io::Error>,
}

impl Capture<File> {
    /// A capture into a file, at the first-named end of the link `name`, or of the first link.
    ///
    /// # Errors
    /// The link does not exist, or the file cannot be created.
    pub(super) fn create(
        path: &Path,
        name: Option<&str>,
        topology: &Topology,
    ) -> Result<Self, Error> {
        let (outward, inward) = find(topology, name)?;
        let writer = PcapWriter::create(path, SystemTime::UNIX_EPOCH)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self::new(writer, outward, inward))
    }
}

impl<W: Write> Capture<W> {
    fn new(writer: PcapWriter<W>, outward: LinkId, inward: LinkId) -> Self {
        Self { writer, outward, inward, frames: 0, error: None }
    }

    /// Ends the capture.
    ///
    /// # Returns
    /// The number of frames in it.
    ///
    /// # Errors
    /// A frame could not be written.
    pub(super) fn finish(mut self) -> std::io::Result<u64> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.writer.flush().map(|()| self.frames),
        }
    }

    fn record(&mut self, at: Time, frame: &[u8], elided_bytes: u32) {
        if self.error.is_some() {
            // After a partial record a reader could not parse further ones.
            return;
        }
        let written = match elided_bytes {
            0 => self.writer.write(at, frame),
            elided => {
                let len = frame.len() + usize_from(elided.into());
                self.writer.write_beginning(at, beginning(frame, elided), len)
            }
        };
        match written {
            Ok(()) => self.frames += 1,
            Err(error) => self.error = Some(error),
        }
    }
}

impl<W: Write> Observer for Capture<W> {
    fn on_sent(&mut self, now: Time, link: LinkId, frame: &[u8], meta: TxMeta) {
        if link == self.outward {
            self.record(now, frame, meta.elided_bytes);
        }
    }

    fn on_arrived(&mut self, now: Time, link: LinkId, frame: &[u8], meta: RxMeta) {
        if link == self.inward {
            self.record(now, frame, meta.elided_bytes);
        }
    }
}

/// Both directions of the link `name` (`A-B`, or `A.PORT-B.PORT`), the one from A first.
fn find(topology: &Topology, name: Option<&str>) -> Result<(LinkId, LinkId), String> {
    // Direction 2 i of the simulation is link i from a to b, the next one back.
    let both_ends =
        |i: usize, cable: &Cable| [(2 * i, [cable.a, cable.b]), (2 * i + 1, [cable.b, cable.a])];
    let directions: Vec<(usize, [Plug; 2])> =
        topology.links.iter().enumerate().flat_map(|(i, cable)| both_ends(i, cable)).collect();
    let pair_of =
        |direction: usize| (LinkId::from_index(direction), LinkId::from_index(direction ^ 1));
    let Some(name) = name else {
        return directions
            .first()
            .map(|(direction, _)| pair_of(*direction))
            .ok_or("the topology has no link".to_owned());
    };
    let node = |plug: Plug| topology.name(plug.node);
    let short = |ends: &[Plug; 2]| ends.map(node).join("-");
    let long = |ends: &[Plug; 2]| ends.map(|p| format!("{}.{}", node(p), p.port)).join("-");
    let matching: Vec<_> = directions.iter().filter(|(_, ends)| short(ends) == name).collect();
    let exact = directions.iter().find(|(_, ends)| long(ends) == name);
    match (&matching[..], exact) {
        (_, Some((direction, _))) | ([(direction, _)], None) => Ok(pair_of(*direction)),
        ([], None) => {
            let names: Vec<String> =
                directions.iter().step_by(2).map(|(_, ends)| short(ends)).collect();
            Err(unknown("link", name, names.iter().map(String::as_str)))
        }
        (several, None) => {
            let names: Vec<String> = several.iter().map(|(_, ends)| long(ends)).collect();
            Err(format!("there are several links `{name}`: {}", names.join(", ")))
        }
    }
}

/// The bytes of a frame before its elided payload.
fn beginning(frame: &[u8], elided_bytes: u32) -> &[u8] {
    let end = spanwire_wire::ip_end(frame, elided_bytes).unwrap_or(frame.len());
    &frame[..end.saturating_sub(ICRC_LEN)]
}

/// Bytes of the ICRC, the end of an IP packet.
const ICRC_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::{Node, PortId, PortMask};
    use spanwire_sim::World;
    use spanwire_switch::{Line, LineConfig};

    /// A node that sends given frames and discards received ones.
    struct Sender {
        frames: Vec<(Vec<u8>, u32)>,
        ready: PortMask,
    }

    impl Node for Sender {
        fn handle_packet(&mut self, _: Time, _: PortId, _: &[u8], _: &RxMeta) {}
        fn handle_timeout(&mut self, _: Time) {}
        fn poll_transmit(&mut self, _: Time, _: PortId, out: &mut [u8]) -> Option<TxMeta> {
            let (frame, elided_bytes) = self.frames.pop()?;
            out[..frame.len()].copy_from_slice(&frame);
            Some(TxMeta { elided_bytes, ..TxMeta::whole(frame.len()) })
        }
        fn poll_timeout(&self) -> Option<Time> {
            None
        }
        fn take_ready(&mut self) -> PortMask {
            self.ready.take()
        }
    }

    /// An IPv4 packet of `ip_len` bytes, `elided` of which are elided.
    fn frame(ip_len: u16, elided: u32) -> (Vec<u8>, u32) {
        let mut frame = vec![0; 14 + usize::from(ip_len) - usize_from(elided.into())];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
        (frame, elided)
    }

    /// Three links: a-b, and c-d twice.
    fn topology() -> Topology {
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let cable = |a, b, port| {
            let [a, b] = [a, b].map(|node| Plug { node, port });
            Cable { a, b, rate_bps: 1_000_000_000, delay_ps: 1 }
        };
        let links = vec![cable(0, 1, 0), cable(2, 3, 0), cable(2, 3, 1)];
        Topology {
            hosts: names(&["a", "b"]),
            switches: names(&["c", "d"]),
            roles: Vec::new(),
            links,
        }
    }

    fn world() -> World<Sender> {
        let mut world = World::new(2_048);
        let mut node =
            |frames| world.add_node(Sender { frames, ready: PortMask::of(PortId::HOST) });
        let a = node(vec![frame(1_052, 1_000), frame(100, 0)]);
        let [b, c, d] = [vec![frame(60, 0)], vec![frame(61, 0)], vec![]].map(node);
        let line = || Line::new(LineConfig::default(), 1).expect("it is valid");
        for (from, to) in [(a, b), (c, d)] {
            world.connect((from, PortId::HOST), (to, PortId::HOST), [line(), line()]);
        }
        world
    }

    #[test]
    fn find__handles_both_directions_and_parallel_links() {
        let directions =
            |name| find(&topology(), name).map(|(out, back)| (out.index(), back.index()));
        assert_eq!(directions(None), Ok((0, 1)));
        assert_eq!(directions(Some("a-b")), Ok((0, 1)));
        assert_eq!(directions(Some("b-a")), Ok((1, 0)));
        assert_eq!(directions(Some("d.1-c.1")), Ok((5, 4)));
        let several = directions(Some("c-d")).expect_err("there are two");
        assert_eq!(several, "there are several links `c-d`: c.0-d.0, c.1-d.1");
        let none = directions(Some("a-d")).expect_err("there is none");
        assert!(none.starts_with("no link `a-d`") && none.contains("a-b, c-d"), "{none}");
    }

    #[test]
    fn observer__records_one_link_at_one_end_with_the_wires_lengths() {
        let mut file = Vec::new();
        let writer = PcapWriter::new(&mut file, SystemTime::UNIX_EPOCH).expect("a vector");
        let (outward, inward) = find(&topology(), Some("a-b")).expect("it is there");
        let mut capture = Capture::new(writer, outward, inward);
        world().run(Time::MAX, 1_000, &mut capture);
        assert_eq!(capture.finish().expect("writing to a vector cannot fail"), 3);
        let mut read = spanwire_pcap::Capture::new(&file[..]).expect("it is a capture");
        let mut lengths = Vec::new();
        while let Some(record) = read.next_record().expect("it is complete") {
            lengths.push((record.bytes.len(), record.original_len));
        }
        lengths.sort_unstable();
        // The elided frame is recorded without its ICRC, which no reader could check.
        assert_eq!(lengths, [(62, 1_066), (74, 74), (114, 114)]);
    }
}
