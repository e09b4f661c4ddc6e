//! Observations of one side of a session, in one form for our probe and for vprobe's output.

/// An observation of one side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// A completion.
    Wc(Completion),
    /// The hash of a READ's bytes, or of a dump.
    Fnv(u64),
    /// The original value of an atomic.
    Original(u64),
    /// A completion that did not arrive in time.
    TimedOut,
}

/// A completion with the numbers of verbs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Completion {
    /// Requests of a side are numbered from 1 in the order of posting, including receives.
    pub(crate) id: u64,
    /// True for a receive request.
    pub(crate) is_recv: bool,
    /// `enum ibv_wc_status`.
    pub(crate) status: u8,
    /// Bytes; only of a successful receive.
    pub(crate) len: Option<u32>,
    /// Immediate data; only of a successful receive.
    pub(crate) imm: Option<u32>,
    /// True if the sender requested an event; vprobe does not report it.
    pub(crate) solicited: Option<bool>,
}

/// All observations of a side, by operation of its script.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(crate) steps: Vec<Vec<Seen>>,
    /// The state its queue pair ended in (`enum ibv_qp_state`).
    pub(crate) end_state: Option<u8>,
}

impl Transcript {
    /// Parses vprobe's output.
    pub(crate) fn parse(output: &str) -> Self {
        let mut transcript = Self::default();
        for line in output.lines() {
            if line.starts_with("op ") {
                transcript.steps.push(Vec::new());
            } else if let Some(state) = line.strip_prefix("end qp_state=") {
                transcript.end_state = state.trim().parse().ok();
            } else if let (Some(seen), Some(step)) = (parse_line(line), transcript.steps.last_mut())
            {
                step.push(seen);
            }
        }
        transcript
    }

    /// Begins the next operation of the script.
    pub(crate) fn begin(&mut self) {
        self.steps.push(Vec::new());
    }

    /// Records an observation of the present operation.
    pub(crate) fn note(&mut self, seen: Seen) {
        self.steps.last_mut().expect("an operation has begun").push(seen);
    }
}

fn parse_line(line: &str) -> Option<Seen> {
    if line.starts_with("wc ") {
        return parse_wc(line).map(Seen::Wc);
    }
    if line.starts_with("poll: timed out") || line.starts_with("no completion") {
        return Some(Seen::TimedOut);
    }
    if let Some(value) = line.strip_prefix("atomic original=0x") {
        return u64::from_str_radix(value.trim(), 16).ok().map(Seen::Original);
    }
    let hash = line.split_once("fnv=")?.1.get(..16)?;
    u64::from_str_radix(hash, 16).ok().map(Seen::Fnv)
}

/// `wc id=4294967298 RECV status=0 (success) opcode=128 len=64 imm=0xabcd0002 t=0.004`.
fn parse_wc(line: &str) -> Option<Completion> {
    let is_recv = line.contains(" RECV ");
    let id: u64 = field(line, " id=")?.parse().ok()?;
    let status: u8 = field(line, " status=")?.parse().ok()?;
    let landed = is_recv && status == 0;
    let imm = field(line, " imm=0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let len = field(line, " len=").and_then(|len| len.parse().ok());
    Some(Completion {
        id: id & u64::from(u32::MAX),
        is_recv,
        status,
        len: len.filter(|_| landed),
        imm: imm.filter(|_| landed),
        solicited: None,
    })
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_once(name)?.1.split_whitespace().next()
}

/// FNV-1a, 64 bits, as vprobe's.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    let start = 0x1465_0fb0_739d_0383;
    bytes.iter().fold(start, |h, b| (h ^ u64::from(*b)).wrapping_mul(1_099_511_628_211))
}

/// The bytes of `fill:SEED`, as vprobe's.
pub(crate) fn stream(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn parse__reads_what_vprobe_prints() {
    let transcript = Transcript::parse(
        "local  VP 0x1\nop recv:64\nop poll:1\n\
         wc id=4294967298 RECV status=0 (success) opcode=128 len=64 imm=0xabcd0002 t=0.004\n\
         op write:8\nwc id=3 SEND status=10 (remote access error) vendor_err=0x88 t=0.1\n\
         op dump:1\ndump 1 fnv=00000000000000ff: 00\nop faa:1\natomic original=0x12\n\
         op poll:1\npoll: timed out at 0 of 1 t=1.0\nend qp_state=6\n",
    );
    let landed = Completion {
        id: 2,
        is_recv: true,
        status: 0,
        len: Some(64),
        imm: Some(0xabcd_0002),
        solicited: None,
    };
    let refused =
        Completion { id: 3, is_recv: false, status: 10, len: None, imm: None, solicited: None };
    let steps = [
        vec![],
        vec![Seen::Wc(landed)],
        vec![Seen::Wc(refused)],
        vec![Seen::Fnv(255)],
        vec![Seen::Original(0x12)],
        vec![Seen::TimedOut],
    ];
    assert_eq!(transcript.steps, steps);
    assert_eq!(transcript.end_state, Some(6));
}
