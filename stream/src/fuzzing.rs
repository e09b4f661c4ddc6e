//! Entry point of the fuzz target `stream`: runs the handshake on arbitrary bytes and checks its
//! invariants.

use crate::channel::Local;
use crate::config::{Config, Shape};
use crate::error::SetupError;
use crate::handshake::{agree, expected_hello, rejection};
use crate::shared::Kind;
use crate::side::{Hello, LINE_BYTES_MAX, Ring, SideMessage, VERSION, parse, unexpected};
use spanwire_host::lines::{Lines, TooLong};
use spanwire_host::modes::{ModeChoice, Modes};
use spanwire_host::oob::WorkerOf;
use spanwire_host::queue_pair::QpParams;
use spanwire_host::side::PIECE_BYTES;
use spanwire_host::text::printable;
use spanwire_transport::{Offer, SrFeature, SrFeatures, SrOffer, SrVersions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The content of one line.
#[derive(PartialEq, Eq, Debug)]
enum LineContent {
    Message(SideMessage),
    /// An invalid line, which ends the connection.
    Wrong(String),
}

/// Runs the handshake on `data`: the first byte selects role and hello, the second the
/// size of the pieces that follow.
///
/// # Panics
/// When an invariant of `fuzz/README.md` does not hold.
pub fn run(data: &[u8]) {
    let Some((&[role, cut], said)) = data.split_first_chunk::<2>() else { return };
    let ours = our_hello(role);
    let whole = parse_lines(said, PIECE_BYTES);
    assert_eq!(whole, parse_lines(said, usize::from(cut) % 64 + 1), "cut otherwise");
    let we_called = role & 2 != 0;
    for (index, line) in whole.into_iter().enumerate() {
        match line {
            LineContent::Wrong(why) => check_shown(&why),
            LineContent::Message(word) => check_word(word, index == 0, &ours, we_called),
        }
    }
}

/// Seed inputs: valid hellos, and other messages that a peer may send.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let line = |word: &SideMessage| {
        let mut line = serde_json::to_vec(word).expect("words are JSON");
        line.push(b'\n');
        line
    };
    let mut seeds = Vec::new();
    for role in 0..16 {
        let hello = line(&SideMessage::Hello(Box::new(our_hello(role))));
        let ready = line(&SideMessage::Ready);
        seeds.push((format!("hello-{role}"), [&[role, 7][..], &hello, &ready].concat()));
    }
    for (name, word) in [
        ("reject", SideMessage::Reject { reason: "no \u{1b}[2J".to_owned(), busy: true }),
        ("abort", SideMessage::Abort { reason: "over".to_owned() }),
    ] {
        seeds.push((name.to_owned(), [&[0, 3][..], &line(&word)].concat()));
    }
    seeds.push(("long".to_owned(), [&[0, 63][..], &[b'x'; LINE_BYTES_MAX + 9]].concat()));
    seeds
}

/// Parses `said`, arriving in pieces of `piece_bytes`, up to the first error.
fn parse_lines(said: &[u8], piece_bytes: usize) -> Vec<LineContent> {
    let (mut lines, mut words) = (Lines::new(LINE_BYTES_MAX), Vec::new());
    for piece in said.chunks(piece_bytes) {
        lines.push(piece);
        let held = lines.capacity();
        assert!(held <= 2 * (LINE_BYTES_MAX + PIECE_BYTES), "{held} bytes are held");
        loop {
            let too_long = |e: TooLong| SetupError::Garbled(e.to_string());
            let word = match lines.take().map_err(too_long) {
                Ok(None) => break,
                Ok(Some(line)) => parse(line),
                Err(why) => Err(why),
            };
            match word {
                Ok(word) => words.push(LineContent::Message(word)),
                Err(why) => {
                    words.push(LineContent::Wrong(why.to_string()));
                    return words;
                }
            }
        }
    }
    words
}

fn check_word(word: SideMessage, is_first: bool, ours: &Hello, we_called: bool) {
    let again = serde_json::to_vec(&word).expect("words are JSON");
    assert_eq!(parse(&again).expect("it was one"), word, "said once more");
    if let SideMessage::Hello(hello) = &word {
        let held = hello.heap_bytes();
        assert!(held <= HELLO_BYTES_MAX, "a hello holds {held} bytes");
    }
    if let SideMessage::Reject { reason, .. } | SideMessage::Abort { reason } = &word {
        check_shown(&printable(reason));
    }
    if !is_first {
        check_error(&unexpected(&word, "ready"));
        return;
    }
    let theirs = match expected_hello(word) {
        Ok(theirs) => theirs,
        Err(why) => return check_error(&why),
    };
    match agree(ours, &theirs, we_called) {
        Err(why) => check_error(&why),
        Ok(terms) => {
            let at_their_end = agree(&theirs, ours, !we_called).expect("it is agreed");
            assert_eq!(terms, at_their_end, "both ends come to the same");
            let (shape, config) = (terms.shape, Config::default());
            let bounds = Shape::wanted(&config);
            assert!(shape.agree(shape).is_ok_and(|same| same == shape), "{shape:?} is possible");
            assert!(shape.ring_bytes <= bounds.ring_bytes, "{shape:?} is more than we allow");
            assert!(shape.fragments <= bounds.fragments, "{shape:?} is more than we allow");
            assert!(terms.path_mtu.bytes() <= ours.path_mtu.max(theirs.path_mtu));
        }
    }
}

/// Checks that the error text is printable, and that its rejection fits into one line.
fn check_error(why: &SetupError) {
    check_shown(&why.to_string());
    let line = serde_json::to_vec(&rejection(why));
    let line = line.expect("words are JSON");
    assert!(line.len() <= LINE_BYTES_MAX, "a reason of {} bytes", line.len());
}

/// Checks that `text` has no control characters and is bounded.
fn check_shown(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(text.chars().count() <= SHOWN_CHARS_MAX, "{} characters", text.chars().count());
}

/// The hello of this end, by the bits of `role`.
fn our_hello(role: u8) -> Hello {
    let sr = SrOffer {
        versions: SrVersions::of([1]),
        features: SrFeatures::of([SrFeature::Block.name()]),
        segment_bytes: 1408,
        reorder_pkts: 65_536,
    };
    let offer = Offer { rc: true, sr: Some(sr) };
    let choice = if role & 8 == 0 { ModeChoice::Auto } else { ModeChoice::Sr };
    Hello {
        version: VERSION,
        carries: if role & 1 == 0 { Kind::Messages } else { Kind::Bytes },
        protocol: "chess/2".to_owned(),
        ip: match role & 4 {
            0 => IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
            _ => IpAddr::V6(Ipv6Addr::LOCALHOST),
        },
        path_mtu: 1024,
        side_poll_port: Some(51_966),
        modes: Modes::from(choice.of(offer)),
        takes_fragments: false,
        worker: WorkerOf::default(),
        probe_qpn: None,
        qp: QpParams { qpn: 7, psn: 7 },
        ring: Ring::of(&Local::default(), Shape::wanted(&Config::default())),
    }
}

/// A line may name a feature every three bytes, each with 24 bytes of memory and spare capacity.
const HELLO_BYTES_MAX: usize = 32 * LINE_BYTES_MAX;
/// A protocol name of 255 characters, all escaped, and the rest of the message.
const SHOWN_CHARS_MAX: usize = 4000;
