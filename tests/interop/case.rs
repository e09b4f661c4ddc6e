//! Test cases: operations of a requester and a responder, and their expected observations. The
//! session decides which of them is ours.

use crate::session::Ours;
use crate::transcript::{Completion, Seen, fnv, stream};

/// A test case. Both scripts have the same number of barriers.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) requester: Side,
    pub(crate) responder: Side,
}

/// Script and expectations of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    pub(crate) script: Vec<String>,
    pub(crate) expect: Vec<Expect>,
}

/// An expected observation, in the order of [`Seen`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    /// A completion of the send queue with this status (`enum ibv_wc_status`).
    Sent(u8),
    /// A message received.
    Received { len: u32, with: With },
    /// A completion of the receive queue with this error.
    NotReceived(u8),
    /// Bytes of this hash.
    Hash(u64),
    /// The original value of an atomic.
    Original(u64),
}

/// Properties of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum With {
    Nothing,
    /// Immediate data, which contain the other side's request number.
    Imm,
    /// A solicited event.
    Event,
}

impl Case {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), requester: Side::default(), responder: Side::default() }
    }

    fn requester(mut self, script: &str, expect: impl Into<Vec<Expect>>) -> Self {
        self.requester = Side::new(script, expect.into());
        self
    }

    fn responder(mut self, script: &str, expect: impl Into<Vec<Expect>>) -> Self {
        self.responder = Side::new(script, expect.into());
        self
    }
}

impl Side {
    fn new(script: &str, expect: Vec<Expect>) -> Self {
        Self { script: script.split_whitespace().map(str::to_owned).collect(), expect }
    }

    /// Compares the observations with the expectations. `other` has the other side's observations,
    /// whose numbers are in the immediate data.
    pub(crate) fn check(&self, seen: &[Vec<Seen>], other: &[Vec<Seen>]) -> Result<(), String> {
        let all = flatten(seen);
        let mut sent = flatten(other).into_iter().filter_map(|seen| match seen {
            Seen::Wc(wc) if !wc.is_recv => Some(wc.id),
            _ => None,
        });
        for (at, expect) in self.expect.iter().enumerate() {
            let imm = matches!(expect, Expect::Received { .. }).then(|| sent.next()).flatten();
            match all.get(at) {
                Some(seen) if expect.is_met_by(seen, imm) => {}
                Some(seen) => return Err(format!("expected {expect:?}, saw {seen:?}")),
                None => return Err(format!("expected {expect:?}, found no more")),
            }
        }
        match all.get(self.expect.len()) {
            Some(surplus) => Err(format!("saw {surplus:?} as well")),
            None => Ok(()),
        }
    }
}

impl Expect {
    fn is_met_by(&self, seen: &Seen, other_id: Option<u64>) -> bool {
        match (self, seen) {
            (Self::Sent(status), Seen::Wc(wc)) => !wc.is_recv && wc.status == *status,
            (Self::NotReceived(status), Seen::Wc(wc)) => wc.is_recv && wc.status == *status,
            (Self::Received { len, with }, Seen::Wc(wc)) => {
                wc.is_recv && wc.status == 0 && wc.len == Some(*len) && with.is_met_by(wc, other_id)
            }
            (Self::Hash(hash), Seen::Fnv(fnv)) => hash == fnv,
            (Self::Original(value), Seen::Original(found)) => value == found,
            _ => false,
        }
    }
}

impl With {
    fn is_met_by(self, wc: &Completion, other_id: Option<u64>) -> bool {
        let imm = match (self, other_id) {
            (Self::Imm, Some(id)) => Some(crate::probe::IMM_BASE + u32::try_from(id).unwrap_or(0)),
            (Self::Imm, None) => return false,
            (Self::Nothing | Self::Event, _) => None,
        };
        let event = wc.solicited.is_none_or(|solicited| solicited == (self == Self::Event));
        wc.imm == imm && event
    }
}

/// All observations of a case; the completions of each side are in the order of their requests.
fn flatten(steps: &[Vec<Seen>]) -> Vec<Seen> {
    let mut all = Vec::new();
    for step in steps {
        let mut step = step.clone();
        step.sort_by_key(|seen| match seen {
            Seen::Wc(wc) => (0, wc.is_recv, wc.id),
            _ => (1, false, 0),
        });
        all.extend(step);
    }
    all
}

/// `n` messages of `len` bytes by SEND (`send`, `sendimm`, `sendse`) or WRITE with immediate data.
/// All have the same target, which is compared together with the bytes after it.
pub(crate) fn message(op: &str, len: u32, n: usize, seed: u64) -> Case {
    let with = match op {
        "sendimm" | "writeimm" => With::Imm,
        "sendse" => With::Event,
        _ => With::Nothing,
    };
    let room = if op == "writeimm" { 0 } else { len };
    let received = vec![Expect::Received { len, with }; n];
    let hash = Expect::Hash(hash_landed(seed, len));
    let dump = len + BEYOND;
    Case::new(named(op, len, n))
        .requester(&format!("fill:{seed} bar {op}:{len}:{n} bar"), vec![Expect::Sent(0); n])
        .responder(
            &format!("clear recv:{room}:{n} bar poll:{n}:20000 bar dump:{dump}"),
            [received, vec![hash]].concat(),
        )
}

/// `n` WRITEs of `len` bytes to the same target.
pub(crate) fn write(len: u32, n: usize, seed: u64) -> Case {
    let dump = len + BEYOND;
    Case::new(named("write", len, n))
        .requester(&format!("fill:{seed} bar write:{len}:{n} bar"), vec![Expect::Sent(0); n])
        .responder(&format!("clear bar bar dump:{dump}"), [Expect::Hash(hash_landed(seed, len))])
}

/// `n` READs of `len` bytes to the same buffer.
pub(crate) fn read(len: u32, n: usize, seed: u64) -> Case {
    let hash = Expect::Hash(fnv(&stream(seed, len as usize)));
    let other = !seed & 0xffff;
    Case::new(named("read", len, n))
        .requester(
            &format!("fill:{other} bar read:{len}:{n} bar"),
            [vec![Expect::Sent(0); n], vec![hash]].concat(),
        )
        .responder(&format!("fill:{seed} bar bar"), [])
}

/// FETCH_ADD twice, a CMP_SWAP that fails, one that succeeds, and `n` consecutive FETCH_ADDs on the
/// same word, with their original values and the final one.
pub(crate) fn atomics(n: u8, seed: u64) -> Case {
    let word: [u8; 8] = *stream(seed, 8).first_chunk().expect("8 bytes");
    // Both machines are little-endian, so the word has the WRITE's bytes.
    let start = u64::from_le_bytes(word);
    let (add, swap): (u64, u64) = (0x0102_0304_0506, 0xfedc_ba98_7654_3210);
    let second = start.wrapping_add(add);
    let third = second.wrapping_add(1);
    let script =
        format!("fill:{seed} bar write:8 faa:{add} faa:1 cas:5:6 cas:{third}:{swap} faa:3:{n} bar");
    let alone = [start, second, third, third].map(|v| [Expect::Sent(0), Expect::Original(v)]);
    let sent = std::iter::repeat_n(Expect::Sent(0), usize::from(n));
    let in_a_row = sent.chain((0..u64::from(n)).map(|k| Expect::Original(swap + 3 * k)));
    let expect = [vec![Expect::Sent(0)], alone.concat(), in_a_row.collect()].concat();
    let mut left = (swap + 3 * u64::from(n)).to_le_bytes().to_vec();
    left.resize(8 + BEYOND as usize, 0);
    Case::new(format!("fetch-add and compare-swap, then fetch-add x{n}"))
        .requester(&script, expect)
        .responder(&format!("clear bar bar dump:{}", left.len()), [Expect::Hash(fnv(&left))])
}

/// Both sides send and write simultaneously: each is requester and responder.
pub(crate) fn both_ways(len: u32, n: usize, seed: u64) -> Case {
    let side = |seed: u64, other: u64| {
        let waits = 3 * n;
        let script = format!(
            "clear fill:{seed} recv:{len}:{n} bar nb:send:{len}:{n} nb:write:{len}:{n} \
             poll:{waits}:20000 bar dump:{}",
            len + BEYOND
        );
        let received = Expect::Received { len, with: With::Nothing };
        let hash = Expect::Hash(hash_landed(other, len));
        let expect = [vec![Expect::Sent(0); 2 * n], vec![received; n], vec![hash]].concat();
        (script, expect)
    };
    let (requester, responder) = (side(seed, seed + 1), side(seed + 1, seed));
    Case::new(format!("both ways {len} x{n}"))
        .requester(&requester.0, requester.1)
        .responder(&responder.0, responder.1)
}

/// A message that first meets RNR.
pub(crate) fn rnr(op: &str, len: u32, seed: u64) -> Case {
    let with = if op == "send" { With::Nothing } else { With::Imm };
    let dump = len + BEYOND;
    Case::new(format!("{op} {len}, RNR at first"))
        .requester(&format!("fill:{seed} bar {op}:{len} bar"), [Expect::Sent(0)])
        .responder(
            &format!("clear bar sleep:100 recv:{len} poll:1:20000 bar dump:{dump}"),
            [Expect::Received { len, with }, Expect::Hash(hash_landed(seed, len))],
        )
}

/// A request that fails with `status`, and a following one that is flushed. Nothing is written. The
/// queue pairs are unusable afterwards.
pub(crate) fn refused(op: &str, status: u8) -> Case {
    Case::new(format!("{op} refused"))
        .requester(
            &format!("fill:7 bar nb:{op}:64 nb:write:64 poll:2:20000 bar"),
            [Expect::Sent(status), Expect::Sent(FLUSHED)],
        )
        .responder(&format!("clear bar bar dump:{BEYOND}"), [Expect::Hash(hash_landed(7, 0))])
}

/// A SEND that exceeds the receive request. The queue pairs are unusable afterwards.
pub(crate) fn too_long(sent: u8, received: u8) -> Case {
    Case::new("send longer than the receive request")
        .requester("bar send:100 bar", [Expect::Sent(sent)])
        .responder("recv:50 bar poll:1:20000 bar", [Expect::NotReceived(received)])
}

/// A SEND without a receive request. The queue pairs are unusable afterwards.
pub(crate) fn never_received() -> Case {
    Case::new("rnr_retry exceeded")
        .requester("bar send:64 bar", [Expect::Sent(RNR_RETRY_EXC_ERR)])
        .responder("bar bar", [])
}

/// A WRITE on a link that our side has cut. The queue pairs are unusable afterwards.
pub(crate) fn silence(ours: Ours) -> Case {
    let (asks, answers) = match ours {
        Ours::Requester => ("cut ", ""),
        Ours::Responder => ("", "cut "),
    };
    Case::new("retry_cnt exceeded")
        .requester(&format!("{asks}bar write:64 bar"), [Expect::Sent(RETRY_EXC_ERR)])
        .responder(&format!("clear {answers}bar bar dump:64"), [Expect::Hash(fnv(&[0; 64]))])
}

fn named(op: &str, len: u32, n: usize) -> String {
    match n {
        1 => format!("{op} {len}"),
        _ => format!("{op} {len} x{n}"),
    }
}

/// The hash of a message at its target and of the zeros after it.
fn hash_landed(seed: u64, len: u32) -> u64 {
    let mut bytes = stream(seed, len as usize);
    bytes.resize((len + BEYOND) as usize, 0);
    fnv(&bytes)
}

/// `IBV_WC_LOC_LEN_ERR`.
pub(crate) const LOC_LEN_ERR: u8 = 1;
/// `IBV_WC_LOC_QP_OP_ERR`.
pub(crate) const LOC_QP_OP_ERR: u8 = 2;
/// `IBV_WC_WR_FLUSH_ERR`.
const FLUSHED: u8 = 5;
/// `IBV_WC_REM_INV_REQ_ERR`.
pub(crate) const REM_INV_REQ_ERR: u8 = 9;
/// `IBV_WC_REM_ACCESS_ERR`.
pub(crate) const REM_ACCESS_ERR: u8 = 10;
/// `IBV_WC_REM_OP_ERR`.
pub(crate) const REM_OP_ERR: u8 = 11;
/// `IBV_WC_RETRY_EXC_ERR`.
const RETRY_EXC_ERR: u8 = 12;
/// `IBV_WC_RNR_RETRY_EXC_ERR`.
const RNR_RETRY_EXC_ERR: u8 = 13;
/// Bytes after a message that must not be modified.
const BEYOND: u32 = 64;
