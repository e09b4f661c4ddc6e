//! What is counted.

use super::engine::Pair;
use crate::sample::Error;
use spanwire_transport::{Config, Mtu, WrOp};
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, IpRepr, Opcode, Packet, Psn, Qpn, Template, seal,
};
use std::hint::black_box;

/// Something that is done a number of times.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What an operation is.
    pub op: &'static str,
    /// Operations of the shorter of the two runs.
    pub ops: u64,
    run: fn(u64) -> Result<(), Error>,
}

impl Workload {
    /// The workload of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|w| w.name == name)
    }

    /// Does `ops` operations.
    ///
    /// # Errors
    /// The engine refuses, or a request does not succeed.
    pub fn run(&self, ops: u64) -> Result<(), Error> {
        (self.run)(ops)
    }
}

/// All of them. Both ends of a connection are counted together.
pub const ALL: &[Workload] = &[
    Workload {
        name: "write-64k",
        op: "message of 64 packets",
        ops: 200,
        run: |ops| Pair::new(Config::default(), Mtu::B1024)?.messages(ops, Pair::write, 1 << 16),
    },
    Workload {
        name: "read-64k",
        op: "message of 64 packets",
        ops: 200,
        run: |ops| Pair::new(Config::default(), Mtu::B1024)?.messages(ops, Pair::read, 1 << 16),
    },
    Workload {
        name: "send-64",
        op: "message of 64 bytes",
        ops: 2000,
        run: |ops| Pair::new(Config::default(), Mtu::B1024)?.messages(ops, |_| WrOp::Send, 64),
    },
    Workload {
        name: "fetch-add",
        op: "atomic",
        ops: 2000,
        run: |ops| Pair::new(Config::default(), Mtu::B1024)?.messages(ops, Pair::fetch_add, 8),
    },
    Workload {
        name: "write-elided",
        op: "message of 64 packets",
        ops: 200,
        run: |ops| {
            let config = Config { elide_payload: true, ..Config::default() };
            Pair::new(config, Mtu::B4096)?.messages(ops, Pair::write, 1 << 18)
        },
    },
    Workload { name: "parse-1024", op: "frame", ops: 20_000, run: parse },
    Workload { name: "emit-1024", op: "frame", ops: 20_000, run: emit },
];

fn parse(ops: u64) -> Result<(), Error> {
    let mut frame = vec![0; 2048];
    let len = write_frame(&mut frame, 0)?;
    for _ in 0..ops {
        black_box(Packet::parse(black_box(&frame[..len])).map_err(|e| format!("{e:?}"))?);
    }
    Ok(())
}

fn emit(ops: u64) -> Result<(), Error> {
    let mut frame = vec![0; 2048];
    for i in 0..ops {
        black_box(write_frame(black_box(&mut frame), u32::try_from(i)?)?);
    }
    Ok(())
}

/// A WRITE Middle of 1024 bytes over IPv4.
fn write_frame(frame: &mut [u8], psn: u32) -> Result<usize, Error> {
    let ip = IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).ok_or("one IP version")?;
    let template = Template::new(EthernetRepr::default(), ip, 0xc123);
    let bth = BthRepr::new(Opcode::RcWriteMiddle, Qpn::new(17), Psn::new(psn));
    let at = template.emit(&bth, &ExtHeaders::NONE, 1024, frame)?;
    let len = at.end + 4;
    seal(frame, len);
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run__every_workload_does_what_it_says() {
        for w in ALL {
            w.run(3).unwrap_or_else(|e| panic!("{}: {e}", w.name));
            assert!(Workload::named(w.name).is_some());
        }
    }
}
