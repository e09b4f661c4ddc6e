//! Parameters from the commands in `captures.md`: attributes and receive requests.

/// The program of a side, as far as a replay depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Program {
    /// The scripted verbs program: its memory and its receive requests are known exactly.
    Vprobe {
        /// It connected (`-c`): its memory has another pattern.
        client: bool,
    },
    /// perftest, ping-pong, rping: sufficient receive requests, memory derived from the packets.
    Other,
    /// The hand-made endpoint, which is no implementation to conform to.
    HandMade,
}

/// One side's half of a capture's heading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Script {
    pub(super) program: Program,
    /// Connected by the connection manager, which sets a flow label.
    pub(super) by_cm: bool,
    /// Path MTU in bytes.
    pub(super) mtu: u32,
    pub(super) min_rnr_timer: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    /// READs and atomics outstanding, each way.
    pub(super) rd_atomic: u8,
    /// Lengths of the receive requests posted before any traffic (vprobe only).
    pub(super) recvs: Vec<u32>,
    /// Lengths of those posted after a sleep, after RNR NAKs to the peer (vprobe only).
    pub(super) late_recvs: Vec<u32>,
}

impl Script {
    /// Reads a command line.
    pub(super) fn parse(command: &str) -> Self {
        let words: Vec<&str> = command.split_whitespace().collect();
        let name = words.first().copied().unwrap_or_default();
        let number = |flag: &str| -> Option<u32> {
            let at = words.iter().position(|w| *w == flag)?;
            words.get(at + 1)?.parse().ok()
        };
        let small = |flag: &str, default: u8| {
            number(flag).and_then(|n| u8::try_from(n).ok()).unwrap_or(default)
        };
        let vprobe = name == "vprobe";
        let program = match name {
            "vprobe" => Program::Vprobe { client: words.contains(&"-c") },
            "userspace" => Program::HandMade,
            _ => Program::Other,
        };
        // With the connection manager (-R, rping) the path MTU is the link's; -m is ignored.
        let by_cm = name == "rping" || (words.contains(&"-R") && !vprobe);
        let default_mtu = if vprobe { 1024 } else { 4096 };
        let mut this = Self {
            program,
            by_cm,
            mtu: number("-m").filter(|_| !by_cm).unwrap_or(default_mtu),
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            rd_atomic: small("-o", 128),
            recvs: Vec::new(),
            late_recvs: Vec::new(),
        };
        if vprobe {
            this.min_rnr_timer = small("-R", 12);
            this.timeout = small("-t", 14);
            this.retry_cnt = small("-r", 7);
            this.rnr_retry = small("-n", 7);
            this.rd_atomic = small("-q", 16);
            this.read_recvs(&words);
        } else {
            this.timeout = small("-u", 14);
        }
        this
    }

    fn read_recvs(&mut self, words: &[&str]) {
        let mut slept = false;
        for word in words {
            slept |= word.starts_with("sleep:");
            let Some(spec) = word.strip_prefix("recv:") else {
                continue;
            };
            let (len, count) = spec.split_once(':').unwrap_or((spec, "1"));
            let len: u32 = len.parse().expect("recv:LEN");
            let count: usize = count.parse().expect("recv:LEN:N");
            let list = if slept { &mut self.late_recvs } else { &mut self.recvs };
            list.extend(std::iter::repeat_n(len, count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__reads_a_vprobe_script() {
        let line = "vprobe -m 1024 -R 20 recv:64:2 bar sleep:300 recv:32 poll:6 bar";
        let s = Script::parse(line);
        assert_eq!(s.program, Program::Vprobe { client: false });
        assert_eq!((s.mtu, s.min_rnr_timer, s.rd_atomic, s.retry_cnt), (1024, 20, 16, 7));
        assert_eq!((s.recvs, s.late_recvs), (vec![64, 64], vec![32]));
        let client = Script::parse("vprobe -m 1024 -c 10.77.0.2 -n 2 -t 12 -r 3 bar send:64");
        assert_eq!(client.program, Program::Vprobe { client: true });
        assert_eq!((client.rnr_retry, client.timeout, client.retry_cnt), (2, 12, 3));
    }

    #[test]
    fn parse__knows_the_choices_of_perftest_and_the_connection_manager() {
        let s = Script::parse("ib_read_bw -d rxe0 -x 1 -m 1024 -s 5001 -n 5 -F -u 18 10.77.0.9");
        assert_eq!((s.program, s.mtu, s.timeout, s.rd_atomic), (Program::Other, 1024, 18, 128));
        assert_eq!(Script::parse("ib_read_bw -m 1024 -o 1").rd_atomic, 1);
        assert_eq!(Script::parse("ib_write_bw -d rxe0 -R -m 1024 -s 1500").mtu, 4096);
        assert_eq!(Script::parse("userspace endpoint: probe - x").program, Program::HandMade);
    }
}
