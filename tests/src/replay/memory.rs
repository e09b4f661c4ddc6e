//! The memory that a side exposes to its peer, as the recorded side did.

use super::capture::{Announced, Capture};
use super::messages::Message;
use super::packet::Sent;
use super::script::Program;
use spanwire_base::{u64_from, usize_from};
use spanwire_mem::Region;
use spanwire_transport::{Access, Endpoint, MemoryRegion, PdId};
use spanwire_wire::OpKind;
use std::collections::{BTreeMap, BTreeSet};

/// One region under its recorded key.
#[derive(Debug)]
pub(super) struct Exposed {
    recorded_rkey: u32,
    pub(super) region: Region,
    pub(super) mr: MemoryRegion,
}

/// All regions of one side.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) exposed: Vec<Exposed>,
    /// The memory's content is unknown from the program, and is derived from results of READs and
    /// atomics.
    is_derived: bool,
    /// Addresses whose content is known from an atomic.
    atomics: BTreeSet<u64>,
}

impl Memory {
    /// Registers the regions of the side at `index`: those that it announced, or those that its
    /// peer's `requests` name.
    pub(super) fn new(
        capture: &Capture,
        index: usize,
        requests: &[Message],
        ep: &mut Endpoint,
        pd: PdId,
    ) -> Self {
        let program = capture.scripts[index].program;
        let mut ranges: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        match capture.announced[index] {
            Some(Announced { rkey, va, len, .. }) => {
                ranges.insert(rkey, (va, va + len));
            }
            None => {
                for m in requests {
                    let Some(remote) = remote_of(m) else {
                        continue;
                    };
                    let end = remote.0 + u64::from(m.len);
                    let range = ranges.entry(remote.1).or_insert((remote.0, end));
                    *range = (range.0.min(remote.0), range.1.max(end));
                }
            }
        }
        let mut exposed = Vec::new();
        for (recorded_rkey, (start, end)) in ranges {
            let region = Region::zeroed(usize_from(end - start).max(8));
            if let Program::Vprobe { client } = program {
                fill_as_vprobe(&region, client);
            }
            let mr = ep.reg_mr(pd, region.clone(), Access::ALL, Some(start)).expect("a region");
            exposed.push(Exposed { recorded_rkey, region, mr });
        }
        let is_derived = !matches!(program, Program::Vprobe { .. });
        Self { exposed, is_derived, atomics: BTreeSet::new() }
    }

    /// Our key for a recorded one; an unknown key is not changed.
    pub(super) fn rkey(&self, recorded: u32) -> u32 {
        let known = self.exposed.iter().find(|e| e.recorded_rkey == recorded);
        known.and_then(|e| e.mr.rkey).unwrap_or(recorded)
    }

    /// Writes the content that the application had written before its peer's request, as derived
    /// from the recorded responses.
    pub(super) fn derive_content(&mut self, request: &Message, answers: &[&Sent], mtu: u32) {
        let Some((va, rkey)) = remote_of(request).filter(|_| self.is_derived) else {
            return;
        };
        for answer in answers {
            let psn = answer.headers.bth.psn;
            let packet = psn.distance_from(request.first);
            if packet >= request.pkts {
                continue;
            }
            match (request.kind, answer.headers.ext.atomic_ack) {
                (OpKind::ReadRequest, None) => {
                    self.put(rkey, va + u64::from(packet * mtu), &answer.payload);
                }
                (OpKind::Atomic, Some(ack)) if self.atomics.insert(va) => {
                    self.put(rkey, va, &ack.original.to_ne_bytes());
                }
                _ => {}
            }
        }
    }

    /// The bytes at a recorded address.
    pub(super) fn bytes(&self, rkey: u32, va: u64, len: u32) -> Option<Vec<u8>> {
        let (e, offset) = self.place(rkey, va)?;
        let mut out = vec![0; len as usize];
        e.region.copy_out(offset, &mut out).ok()?;
        Some(out)
    }

    fn put(&self, rkey: u32, va: u64, bytes: &[u8]) {
        if let Some((e, offset)) = self.place(rkey, va) {
            e.region.copy_in(offset, bytes).expect("inside what the requests name");
        }
    }

    fn place(&self, rkey: u32, va: u64) -> Option<(&Exposed, usize)> {
        let e = self.exposed.iter().find(|e| e.recorded_rkey == rkey)?;
        Some((e, usize_from(va.checked_sub(e.mr.addr)?)))
    }
}

/// Address and key of a message.
pub(super) fn remote_of(m: &Message) -> Option<(u64, u32)> {
    use spanwire_transport::WrOp::{CmpSwap, FetchAdd, Read, Write, WriteImm};
    match m.op {
        Write { remote }
        | WriteImm { remote, .. }
        | Read { remote }
        | FetchAdd { remote, .. }
        | CmpSwap { remote, .. } => Some((remote.va, remote.rkey)),
        _ => None,
    }
}

/// Fills vprobe's memory: a half of zeros for receives, then a pattern that differs between the two
/// sides.
fn fill_as_vprobe(region: &Region, client: bool) {
    let half = region.len() / 2;
    let side = if client { 1 } else { 2 };
    let pattern: Vec<u8> = (0..u64_from(region.len() - half))
        .map(|i| (i.wrapping_mul(7).wrapping_add(i >> 8).wrapping_add(side)).to_le_bytes()[0])
        .collect();
    region.copy_in(half, &pattern).expect("the second half");
}
