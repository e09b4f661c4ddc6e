//! Interoperation with Linux: verbs between our engine and another RoCEv2 implementation
//! (rdma_rxe), compared byte for byte, over AF_XDP. docs/interop.md describes the coverage.
//!
//! Needs root and QEMU. Without them every test prints `SKIPPED: ...`; with
//! `SPANWIRE_REQUIRE_E2E=1` that is a failure.
#![forbid(unsafe_code)]
#![expect(non_snake_case, reason = "tests are named function__case")]

mod agents;
mod badwire;
mod case;
mod guest;
mod matrix;
mod perftest;
mod probe;
mod session;
mod transcript;

use case::Case;
use guest::Guest;
use session::{Attachment, ERR, Ours, RTS, Tally, Terms};
use spanwire_transport::Mtu;

#[test]
fn rxe__verbs_both_ways_over_udp_sockets() {
    let Some(guest) = Guest::boot() else { return };
    let _here = guest.ours.enter().expect("privileged: there is a guest");
    let mut tally = Tally::default();
    for ours in [Ours::Requester, Ours::Responder] {
        for is_v6 in [false, true] {
            let terms = Terms { is_v6, attachment: Attachment::Udp, ..Terms::new(ours) };
            tally.run(&guest, &terms, &every_operation());
            let lossy = Terms { loss_ppm: LOSS_PPM, timeout: TIMEOUT_LOSSY, ..terms };
            tally.run(&guest, &lossy, &some_operations());
        }
    }
    tally.finish();
}

#[test]
fn rxe__verbs_both_ways() {
    let Some(guest) = Guest::boot() else { return };
    let kernel = guest.exec(300, "uname -r");
    assert_eq!(kernel.code, Some(0), "{kernel:?}");
    println!("against rdma_rxe of Linux {}", kernel.output.trim());
    let _here = guest.ours.enter().expect("privileged: there is a guest");
    let mut tally = Tally::default();
    for ours in [Ours::Requester, Ours::Responder] {
        for is_v6 in [false, true] {
            for (mtu, attachment) in [
                (Mtu::B1024, Attachment::AfXdp),
                (Mtu::B2048, Attachment::AfXdp),
                (Mtu::B4096, Attachment::AfPacket),
            ] {
                let terms = Terms { is_v6, mtu, attachment, ..Terms::new(ours) };
                tally.run(&guest, &terms, &every_operation());
                let lossy = Terms { loss_ppm: LOSS_PPM, timeout: TIMEOUT_LOSSY, ..terms };
                tally.run(&guest, &lossy, &some_operations());
            }
        }
        errors(&mut tally, &guest, ours);
    }
    tally.finish();
}

/// Every operation at every size.
fn every_operation() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut seed = 1;
    for len in [0, 1, 64, 1024, 4097, 65_536, 1 << 20] {
        for op in ["send", "sendimm", "writeimm"] {
            cases.push(case::message(op, len, 1, seed));
            seed += 1;
        }
        cases.push(case::write(len, 1, seed));
        cases.push(case::read(len, 1, seed + 1));
        seed += 2;
    }
    cases.push(case::message("sendse", 64, 1, seed));
    cases.push(case::message("sendimm", 3000, 16, seed + 1));
    cases.push(case::write(5000, 16, seed + 2));
    cases.push(case::read(5000, 16, seed + 3));
    cases.push(case::atomics(32, seed + 4));
    cases.push(case::both_ways(9000, 8, seed + 5));
    cases.push(case::rnr("send", 3000, seed + 7));
    cases.push(case::rnr("writeimm", 3000, seed + 8));
    cases
}

/// Operations for loss: single packets, long messages, many requests.
fn some_operations() -> Vec<Case> {
    let mut cases = Vec::new();
    for (len, n, seed) in [(64, 32, 101), (4097, 16, 111), (65_536, 2, 121)] {
        cases.push(case::message("sendimm", len, n, seed));
        cases.push(case::message("writeimm", len, n, seed + 1));
        cases.push(case::write(len, n, seed + 2));
        cases.push(case::read(len, n, seed + 3));
        cases.push(case::both_ways(len, n, seed + 4));
    }
    cases.push(case::atomics(100, 131));
    cases
}

/// Errors that end a queue pair, each with its own queue pair.
fn errors(tally: &mut Tally, guest: &Guest, ours: Ours) {
    let terms = Terms::new(ours);
    let fatal = Terms { end_states: (ERR, ERR), ..terms };
    for op in ["badkey", "badkeyread", "badkeyatomic", "badaddr"] {
        tally.run(guest, &fatal, &[case::refused(op, case::REM_ACCESS_ERR)]);
    }
    if ours == Ours::Requester {
        // The guest's library rejects it before sending.
        tally.run(guest, &fatal, &[case::refused("unaligned", case::REM_INV_REQ_ERR)]);
    }
    // rxe reports an operational error on both sides; the specification and our engine report an
    // invalid request for the wrong length.
    let (sent, received) = match ours {
        Ours::Requester => (case::REM_OP_ERR, case::LOC_QP_OP_ERR),
        Ours::Responder => (case::REM_INV_REQ_ERR, case::LOC_LEN_ERR),
    };
    tally.run(guest, &fatal, &[case::too_long(sent, received)]);
    // Only the requester detects it.
    let gives_up = Terms { end_states: (ERR, RTS), ..terms };
    tally.run(guest, &Terms { rnr_retry: 2, ..gives_up }, &[case::never_received()]);
    let hasty = Terms { timeout: 14, retry_cnt: 2, ..gives_up };
    tally.run(guest, &hasty, &[case::silence(ours)]);
    // The 24-bit PSN wraps in the middle of each of these.
    let wraps = Terms { psn: 0xff_fff0, ..terms };
    tally.run(guest, &wraps, &[case::write(65_536, 1, 1), case::message("send", 1024, 32, 2)]);
    tally.run(guest, &wraps, &[case::read(65_536, 1, 1), case::read(1, 16, 2)]);
}

/// 2 % of the frames, each way.
const LOSS_PPM: u32 = 20_000;
/// 268 ms: losses are detected after at most this, and half of it for rxe.
const TIMEOUT_LOSSY: u8 = 16;
