use super::*;
use crate::error::Error;
use crate::shared::Kind;
use crate::testing::{Faults, Pair, SMALL, in_both_modes};
use proptest::prelude::*;
use spanwire_base::{Dur, Rng, usize_from};
use spanwire_transport::WireMode;

const SOON: Dur = Dur::from_ms(50);
const LONG: Dur = Dur::from_secs(60);

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

fn messages(mode: WireMode) -> Pair {
    Pair::new(mode, Kind::Messages, SMALL)
}

fn bytes(mode: WireMode) -> Pair {
    Pair::new(mode, Kind::Bytes, SMALL)
}

#[test]
fn handle_news__messages_keep_their_boundaries() {
    in_both_modes(|mode| {
        let mut pair = messages(mode);
        let sent = [noise(2500, 1), Vec::new(), noise(1, 2)];
        for message in &sent {
            pair.sender(0).try_message(message).unwrap();
        }
        assert!(pair.run(SOON));
        let mut got = vec![9; 7];
        for message in &sent {
            assert_eq!(pair.receiver(1).try_message(&mut got), Ok(true));
            assert_eq!(&got, message);
        }
        assert_eq!(pair.receiver(1).try_message(&mut got), Err(Error::WouldBlock));
    });
}

#[test]
fn handle_news__rejects_a_message_above_the_limit() {
    let mut pair = messages(WireMode::Rc);
    let e = pair.sender(0).try_message(&[0; 3001]).unwrap_err();
    assert_eq!(e, Error::TooLong { bytes: 3001, max: 3000 });
    assert!(e.to_string().contains("max_message_bytes"));
    pair.sender(0).try_message(b"short").unwrap();
}

#[test]
fn handle_news__a_full_ring_blocks_the_sender_until_data_are_taken() {
    in_both_modes(|mode| {
        let mut pair = messages(mode);
        let message = noise(1000, 3);
        let mut sent = 0;
        while pair.sender(0).try_message(&message).is_ok() {
            sent += 1;
            assert!(pair.run(SOON));
        }
        assert_eq!(sent, 4, "the ring holds four and a bit");
        let mut got = Vec::new();
        assert_eq!(pair.receiver(1).try_message(&mut got), Ok(true));
        assert!(pair.run(SOON));
        assert_eq!(
            pair.sender(0).try_message(&message),
            Err(Error::WouldBlock),
            "no credit for less than a quarter"
        );
        assert_eq!(pair.receiver(1).try_message(&mut got), Ok(true));
        assert!(pair.run(SOON));
        pair.sender(0).try_message(&message).unwrap();
    });
}

#[test]
fn handle_news__the_longest_message_always_fits_eventually() {
    in_both_modes(|mode| {
        let mut pair = messages(mode);
        let mut got = Vec::new();
        // At every position in the ring, including its end.
        for before in (0..4096).step_by(61).chain([1023, 1024]) {
            for len in [before.min(3000), 3000] {
                let message = noise(len, 4);
                pair.sender(0).try_message(&message).unwrap();
                assert!(pair.run(SOON));
                assert_eq!(pair.receiver(1).try_message(&mut got), Ok(true));
                assert!(got == message);
                assert!(pair.run(SOON));
            }
        }
    });
}

#[test]
fn handle_news__messages_of_a_burst_share_packets() {
    in_both_modes(|mode| {
        let mut pair = messages(mode);
        let before = pair.frames();
        for n in 0..20 {
            pair.sender(0).try_message(&[n; 5]).unwrap();
        }
        assert!(pair.run(SOON));
        assert!(pair.frames() - before <= 3, "one of 180 bytes, and acknowledgements");
        let mut got = Vec::new();
        for n in 0..20 {
            assert_eq!(pair.receiver(1).try_message(&mut got), Ok(true));
            assert_eq!(got, [n; 5]);
        }
    });
}

#[test]
fn handle_news__a_message_is_taken_in_parts_while_it_arrives() {
    in_both_modes(|mode| {
        let mut pair = messages(mode);
        let (first, second) = (noise(2900, 8), noise(1100, 9));
        pair.sender(0).try_message(&first).unwrap();
        pair.sender(0).try_message(&second).unwrap();
        let mut got = Vec::new();
        let mut parts = 0;
        while pair.receiver(1).try_message(&mut got) == Err(Error::WouldBlock) {
            parts += 1;
            pair.run(Dur::from_us(1));
        }
        assert!(got == first && parts > 1, "{parts} attempts");
        assert!(pair.run(SOON));
        assert_eq!(pair.receiver(1).try_message(&mut got), Ok(true));
        assert!(got == second);
    });
}

/// The end of a connection whose peer has written `said` where messages belong, and has finished.
fn ended_by(said: &[u8]) -> (Error, ChannelState) {
    let mut pair = Pair::between(WireMode::Sr, [Kind::Bytes, Kind::Messages], SMALL);
    pair.sender(0).try_bytes(said).unwrap();
    pair.sender(0).finish();
    assert!(pair.run(SOON));
    let mut got = Vec::new();
    let error = loop {
        match pair.receiver(1).try_message(&mut got) {
            Ok(true) => {}
            Ok(false) => panic!("an orderly end"),
            Err(e) => break e,
        }
    };
    assert!(got.capacity() <= 3000, "the length of a message that has not come is not allocated");
    pair.run(SOON);
    (error, pair.ends[1].state.clone())
}

#[test]
fn try_message__a_peer_that_violates_the_framing_loses_the_connection() {
    for (said, why) in [
        (&[0, 0, 0x0b, 0xb9][..], "a message longer than agreed"),
        (&[0xff; 4], "a message longer than agreed"),
        (&[0, 0, 0], "an end inside a message"),
        (&[0, 0, 0, 2, 7], "an end inside a message"),
        (&[0, 0, 0, 1, 7, 0, 0, 0x0b, 0xb8], "an end inside a message"),
    ] {
        let lost = Cause::Protocol(why);
        assert_eq!(ended_by(said), (lost.clone().into(), ChannelState::Lost(lost)), "{said:?}");
    }
}

/// Transfers `total` bytes of noise in both directions, split as the seed determines. Checks that
/// they arrive once and in order.
fn exchange(mut pair: Pair, total: usize, seed: u64, max: u64) {
    let mut rng = Rng::new(seed);
    let data = [noise(total, seed ^ 1), noise(total, seed ^ 2)];
    let is_messages = pair.ends[0].channel.shared().kind == Kind::Messages;
    let (mut sent, mut got) = ([0; 2], [Vec::new(), Vec::new()]);
    let (mut borders, mut seen) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut buffer = vec![0; 3000];
    while got.iter().any(|g| g.len() < total) {
        for side in [0, 1] {
            let left = &data[side][sent[side]..];
            let cut = left.len().min(usize_from(rng.below(max + 1)));
            let sender = pair.sender(side);
            let taken = match is_messages {
                true => sender.try_message(&left[..cut]).map(|()| cut),
                false => sender.try_bytes(&left[..cut]),
            };
            match taken {
                Ok(count) => {
                    borders[side].push(count);
                    sent[side] += count;
                }
                Err(e) => assert_eq!(e, Error::WouldBlock),
            }
            let room = 1 + usize_from(rng.below(2999));
            let receiver = pair.receiver(side);
            let came = match is_messages {
                true => receiver.try_message(&mut buffer).map(|_| buffer.len()),
                false => {
                    buffer.resize(3000, 0);
                    receiver.try_bytes(&mut buffer[..room])
                }
            };
            match came {
                Ok(count) => {
                    got[side].extend_from_slice(&buffer[..count]);
                    seen[side].push(count);
                }
                Err(e) => assert_eq!(e, Error::WouldBlock),
            }
        }
        pair.run(Dur::from_us(20));
        assert!(pair.now < spanwire_base::Time::ZERO + Dur::from_secs(300), "it has stopped");
    }
    assert!(got[1] == data[0] && got[0] == data[1]);
    if is_messages {
        for side in [0, 1] {
            let whole = &borders[side][..seen[1 - side].len()];
            assert_eq!(seen[1 - side], whole, "messages were cut or joined");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn handle_completions__every_byte_is_delivered_once_and_in_order(
        seed in any::<u64>(), sr in any::<bool>(), stream in any::<bool>(), max in 1_u64..3000,
    ) {
        let mode = if sr { WireMode::Sr } else { WireMode::Rc };
        let kind = if stream { Kind::Bytes } else { Kind::Messages };
        let mut pair = Pair::new(mode, kind, SMALL);
        pair.faults = Faults { loss_ppm: 20_000, late_ppm: 20_000, twice_ppm: 20_000 };
        // The total is bounded, because many small messages take as long as few large ones.
        let total = usize_from(max * 60).min(60_000);
        exchange(pair, total, seed, max);
    }
}

#[test]
fn handle_news__both_ends_detect_an_orderly_end() {
    in_both_modes(|mode| {
        let mut pair = bytes(mode);
        pair.faults.loss_ppm = 50_000;
        let sent = noise(3000, 5);
        assert_eq!(pair.sender(0).try_bytes(&sent), Ok(3000));
        pair.sender(0).finish();
        assert_eq!(pair.sender(0).try_bytes(b"more"), Err(Error::Finished));
        assert!(pair.run(LONG));
        assert_eq!(pair.sender(0).check_drained(), Err(Error::WouldBlock), "nothing was taken");
        let mut got = vec![0; 4000];
        assert_eq!(pair.receiver(1).try_bytes(&mut got), Ok(3000));
        assert!(got[..3000] == sent);
        assert_eq!(pair.receiver(1).try_bytes(&mut got), Ok(0), "the end");
        assert!(pair.run(LONG));
        assert_eq!(pair.sender(0).check_drained(), Ok(()));
        // The other direction is still open.
        assert_eq!(pair.sender(1).try_bytes(b"thanks"), Ok(6));
        pair.sender(1).finish();
        assert!(pair.run(LONG));
        assert_eq!(pair.receiver(0).try_bytes(&mut got), Ok(6));
        assert_eq!(pair.receiver(0).try_bytes(&mut got), Ok(0));
        assert!(pair.run(LONG));
        assert_eq!(pair.sender(1).check_drained(), Ok(()));
        for end in &pair.ends {
            assert_eq!(end.state, ChannelState::Done);
            assert!(end.endpoint.query_qp(end.channel.qpn()).is_none(), "nothing is kept");
        }
    });
}

#[test]
fn handle_news__dropping_the_halves_delivers_what_was_sent() {
    in_both_modes(|mode| {
        let mut pair = messages(mode);
        pair.sender(0).try_message(b"last words").unwrap();
        (pair.ends[0].sending, pair.ends[0].receiving) = (None, None);
        assert!(pair.run(SOON));
        let mut got = Vec::new();
        assert_eq!(pair.receiver(1).try_message(&mut got), Ok(true));
        assert_eq!(got, b"last words");
        assert_eq!(pair.receiver(1).try_message(&mut got), Ok(false));
        (pair.ends[1].sending, pair.ends[1].receiving) = (None, None);
        assert!(pair.run(SOON));
        assert_eq!(pair.ends.each_ref().map(|e| &e.state), [&ChannelState::Done; 2]);
    });
}

#[test]
fn handle_news__dropping_a_receiver_with_unread_data_ends_the_connection() {
    let mut pair = messages(WireMode::Sr);
    pair.ends[0].receiving = None;
    pair.sender(1).try_message(b"hello?").unwrap();
    pair.run(SOON);
    assert!(matches!(pair.ends[0].state, ChannelState::Lost(Cause::Aborted(_))));
    assert!(matches!(pair.sender(0).try_message(b"x"), Err(Error::Lost(Cause::Aborted(_)))));
}

#[test]
fn handle_news__an_abort_gives_both_halves_its_reason() {
    let mut pair = messages(WireMode::Rc);
    pair.sender(0).abort("enough");
    pair.run(SOON);
    let aborted = Cause::Aborted("enough".into());
    assert_eq!(pair.ends[0].state, ChannelState::Lost(aborted.clone()));
    let got = pair.receiver(0).try_message(&mut Vec::new());
    assert_eq!(got, Err(Error::Lost(aborted)));
}

#[test]
fn handle_completions__data_before_a_peer_failure_can_be_taken() {
    in_both_modes(|mode| {
        let mut pair = messages(mode);
        pair.sender(1).try_message(b"before").unwrap();
        assert!(pair.run(SOON));
        pair.faults.loss_ppm = 1_000_000;
        pair.sender(0).try_message(b"anybody?").unwrap();
        pair.run(LONG);
        assert!(matches!(pair.ends[0].state, ChannelState::Lost(Cause::PeerGone(_))));
        let mut got = Vec::new();
        assert_eq!(pair.receiver(0).try_message(&mut got), Ok(true));
        assert_eq!(got, b"before");
        let lost = pair.receiver(0).try_message(&mut got);
        assert!(matches!(lost, Err(Error::Lost(Cause::PeerGone(_)))));
    });
}

#[test]
fn handle_peer_left__is_orderly_if_everything_was_delivered_both_ways() {
    let ended = |takes: bool, answers: bool| {
        let mut pair = messages(WireMode::Rc);
        let mut got = Vec::new();
        pair.sender(1).try_message(b"answer").unwrap();
        pair.sender(0).try_message(b"question").unwrap();
        assert!(pair.run(SOON));
        if answers {
            pair.receiver(0).try_message(&mut got).unwrap();
        }
        pair.sender(0).finish();
        assert!(pair.run(SOON));
        if takes {
            pair.receiver(1).try_message(&mut got).unwrap();
        }
        assert!(pair.run(SOON));
        pair.ends[1].channel.handle_peer_left(None)
    };
    assert_eq!(ended(true, true), ChannelState::Done);
    let gone = ChannelState::Lost(Cause::PeerGone("its side connection closed"));
    assert_eq!(ended(false, true), gone);
    assert_eq!(ended(true, false), gone, "it may not have taken our answer");
    let mut pair = messages(WireMode::Rc);
    let aborted = ChannelState::Lost(Cause::PeerAborted("no".into()));
    assert_eq!(pair.ends[0].channel.handle_peer_left(Some("no".into())), aborted);
}

/// An action of a hostile peer on its own queue pair.
#[derive(Clone, Debug)]
enum Attack {
    Fragment { at: u32, bytes: u32, imm: u32 },
    Control { imm: u32 },
    Plain { bytes: u32 },
}

fn attack() -> impl Strategy<Value = Attack> {
    // Mostly near valid values, so that some attacks pass the first checks.
    let imm = prop_oneof![0_u32..20, (0_u32..20).prop_map(|n| n | 1 << 31), any::<u32>()];
    let at = prop_oneof![Just(0_u32), 0_u32..5000, any::<u32>()];
    let control =
        prop_oneof![0_u32..3, (0_u32..3).prop_map(|n| n | 1 << 30), Just(1 << 31), any::<u32>()];
    prop_oneof![
        (at, 0_u32..4096, imm).prop_map(|(at, bytes, imm)| Attack::Fragment { at, bytes, imm }),
        control.prop_map(|imm| Attack::Control { imm }),
        (0_u32..10).prop_map(|bytes| Attack::Plain { bytes }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn handle_completions__a_hostile_peer_ends_its_own_connection_at_most(
        attacks in prop::collection::vec(attack(), 1..30), sr in any::<bool>(),
        stream in any::<bool>(), talks in any::<bool>(),
    ) {
        let mode = if sr { WireMode::Sr } else { WireMode::Rc };
        let kind = if stream { Kind::Bytes } else { Kind::Messages };
        let mut pair = Pair::new(mode, kind, SMALL);
        if talks {
            let sender = pair.sender(0);
            let _ = match kind {
                Kind::Bytes => sender.try_bytes(b"hello").map(drop),
                Kind::Messages => sender.try_message(b"hello"),
            };
            pair.sender(0).finish();
        }
        for attack in attacks {
            let end = &mut pair.ends[1];
            let mr = end.channel.objects.send_mr;
            let sge = |len| Sge { addr: mr.addr, len, lkey: mr.lkey };
            let theirs = end.channel.theirs;
            let (op, sge) = match attack {
                Attack::Fragment { at, bytes, imm } => {
                    let remote = RemoteAddr { va: theirs.va.wrapping_add(at.into()), ..theirs };
                    (WrOp::WriteImm { remote, imm }, sge(bytes))
                }
                Attack::Control { imm } => (WrOp::SendImm { imm }, sge(0)),
                Attack::Plain { bytes } => (WrOp::Send, sge(bytes)),
            };
            let qpn = end.channel.qpn();
            let sges = [sge];
            let request = WorkRequest { signaled: false, ..WorkRequest::new(0, op, &sges) };
            let _ = end.endpoint.post_send(qpn, &request);
            for _ in 0..6 {
                pair.step(1);
                pair.step(0);
                pair.now += Dur::from_us(3);
            }
            // The received data stay within the agreed limits.
            let mut got = vec![0; 3000];
            let receiver = pair.receiver(0);
            let _ = match kind {
                Kind::Bytes => receiver.try_bytes(&mut got).map(drop),
                Kind::Messages => receiver.try_message(&mut got).map(drop),
            };
            prop_assert!(got.len() <= 3000);
        }
        pair.run(SOON);
        if let ChannelState::Lost(cause) = &pair.ends[0].state {
            prop_assert!(
                matches!(cause, Cause::Protocol(_) | Cause::QueuePair(_) | Cause::PeerGone(_)),
                "{cause:?}"
            );
        }
    }
}
