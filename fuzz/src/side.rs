//! The side connection of `spanwire perf` on any bytes: lines are split correctly in bounded
//! memory, and the content of a message is accepted or rejected.

use spanwire_host::lines::{Lines, TooLong};
use spanwire_host::oob::perftest::{Keys, cycle_buffer_from, mtu_from, version_from};
use spanwire_host::oob::{
    Coding, Congestion, Message, OobError, Request, read, read_balance, settle,
};
use spanwire_host::runner::job_bytes;
use spanwire_transport::{Agreed, Config, Mtu, Offer};

/// Interprets all but the first two bytes of `data` as input of an unauthenticated peer. The first
/// two bytes define its fragmentation and the maximum length of a line.
///
/// # Panics
/// If the side connection violates its contract.
pub fn run(data: &[u8]) {
    let [cut, max, text @ ..] = data else { return };
    check_lines(text, usize::from(*cut) + 1, usize::from(*max) * 8);
    for line in text.split(|b| *b == b'\n') {
        check_message(line);
    }
    check_perftest(text);
}

/// Checks that lines do not depend on the fragmentation, up to the first that is too long.
fn check_lines(text: &[u8], cut: usize, max: usize) {
    let mut lines = Lines::new(max);
    let (mut at, mut seen) = (0, 0);
    for part in text.chunks(cut) {
        lines.push(part);
        seen += part.len();
        loop {
            let rest = &text[at..seen];
            let end = rest.iter().position(|b| *b == b'\n');
            match lines.take() {
                Err(TooLong(_)) => {
                    assert!(
                        end.unwrap_or(rest.len()) > max,
                        "a line within the limit was rejected"
                    );
                    return;
                }
                Ok(None) => {
                    assert!(end.is_none() && rest.len() <= max, "a complete line was not returned");
                    break;
                }
                Ok(Some(line)) => {
                    let end = end.expect("an incomplete line was returned");
                    assert_eq!(line, &rest[..end]);
                    assert!(end <= max);
                    at += end + 1;
                }
            }
        }
        // A vector grows by doubling.
        let held = lines.capacity();
        assert!(held <= 2 * (max + cut) + 64, "{held} bytes for lines of {max} by {cut}");
    }
}

/// Checks that an accepted message serialises and parses to the same, and that its content is
/// bounded by the line's length.
fn check_message(line: &[u8]) {
    let message = match read(line) {
        Ok(message) => message,
        Err(OobError::Rejected(_) | OobError::Garbled(_)) => return,
        Err(other) => panic!("{other}"),
    };
    let text = serde_json::to_vec(&message).expect("it was parsed from JSON");
    assert_eq!(read(&text).expect("an emitted message is accepted"), message);
    match &message {
        Message::Request(request) => check_request(request, line.len()),
        Message::Hello(hello) => {
            let theirs = Offer::from(&hello.modes);
            let ours = Offer::of(&Config::default(), Some(1408));
            for agreed in [settle(&ours, &theirs), settle(&theirs, &ours)].into_iter().flatten() {
                let Agreed::Sr(terms) = agreed else { continue };
                assert!((64..=1408).contains(&terms.segment_bytes), "{terms:?}");
            }
        }
        Message::Accept(accept) => assert!(accept.qps.len() < line.len()),
        _ => {}
    }
}

/// Checks that the resources of a request are bounded before any is allocated.
fn check_request(request: &Request, line_bytes: usize) {
    assert!(request.qps.len() < line_bytes);
    if let Ok(bytes) = job_bytes(&request.job, Mtu::B4096) {
        assert!((1..=8 << 30).contains(&bytes), "{:?}", request.job);
    }
    // Each is accepted or rejected; a server does so before it accepts the connection.
    let _ = request.congestion.as_ref().map(Congestion::read);
    let _ = request.erasure.as_ref().map(Coding::read);
    let _ = request.balance.as_deref().map(read_balance);
}

/// Checks the other exchange, of `--oob perftest`.
fn check_perftest(text: &[u8]) {
    let _ = version_from(text);
    let _ = cycle_buffer_from(text);
    let _ = mtu_from(text);
    if let Ok(keys) = Keys::from_bytes(text) {
        let parsed = Keys::from_bytes(&keys.to_bytes()).expect("an emitted message is accepted");
        assert_eq!(parsed, keys);
    }
}

/// The seed corpus: one of each message, and the keys of perftest.
///
/// # Panics
/// Never: the messages are this crate's own.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let transfer = r#""kind":"transfer","bytes":1048576,"seed":7,"op":"write","size":65536"#;
    let bandwidth = r#""kind":"bandwidth","duration_ms":500,"op":"send","size":1"#;
    let terms = r#","qps":1,"depth":8,"path_mtu":1024,"timeout":14,"retry_cnt":7"#;
    let qps = r#""qps":[{"qpn":17,"psn":99}]"#;
    let lb = r#","balance":"unolb,subflows=4""#;
    let request = |job: &str, more: &str| {
        format!(r#"{{"type":"request","job":{{{job}{terms}}},{qps}{more}}}"#)
    };
    let memory = r#""memory":{"va":0,"rkey":1,"len":65536}"#;
    let gid = "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01";
    let hello = r#"{"type":"hello","version":1,"ip":"10.77.0.2","path_mtu":1024,"modes":[]}"#;
    let rest = [
        r#"{"type":"ready"}"#,
        r#"{"type":"done"}"#,
        r#"{"type":"result","sha256":null,"messages":3}"#,
        r#"{"type":"reject","reason":"no"}"#,
    ];
    let texts = [
        ("hello", hello.to_owned()),
        ("transfer", request(transfer, "")),
        ("bandwidth", request(bandwidth, lb)),
        ("accept", format!(r#"{{"type":"accept",{qps},{memory}}}"#)),
        ("rest", rest.join("\n")),
        ("perftest", format!("0000:0001:000011:000001:00000001:0000000000000000:{gid}:00000000:")),
    ];
    let seed = |(name, text): (&str, String)| {
        (name.to_owned(), [&[40, 255][..], text.as_bytes(), b"\n"].concat())
    };
    texts.into_iter().map(seed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn run__on_random_bytes() {
        testing::random(2_000, 600, run);
    }

    #[test]
    fn run__on_regressions() {
        testing::regressions("side", 0, run);
    }

    #[test]
    fn seeds__are_messages_and_tolerate_any_cut_and_bit_flip() {
        for (name, seed) in seeds() {
            run(&seed);
            for cut in 0..=255 {
                let mut other = seed.clone();
                other[0] = cut;
                run(&other);
            }
            for at in 2..seed.len() {
                let mut other = seed.clone();
                other[at] ^= 1 << (at % 8);
                run(&other);
            }
            let text = &seed[2..seed.len() - 1];
            let is_message =
                name != "perftest" && text.split(|b| *b == b'\n').any(|l| read(l).is_ok());
            assert!(is_message || name == "perftest", "{name} is not a message");
        }
    }
}
