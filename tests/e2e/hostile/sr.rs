//! The same in SR, whose windows are wide and whose keys are checked out of order.

use super::forge::{Attack, Forge, INSIDE, counted, resealed_with};
use super::{Injector, Lab, Numbers, PROGRESS, Tap, under_attack};
use serde_json::Value;
use spanwire_host::fabric::FabricChoice;
use spanwire_wire::{
    AckReason, AtomicEthRepr, BlockRepr, NakCode, Opcode, Psn, RethRepr, SrAckRepr, SrDataRepr,
    SrKind, SrNak,
};

#[test]
fn hostile__a_transfer_of_sr_under_attack_ends_right_and_each_attack_is_counted() {
    sr_under_attack(FabricChoice::Xdp);
}

#[test]
fn hostile__a_transfer_of_sr_under_attack_ends_right_and_each_attack_is_counted_over_udp() {
    sr_under_attack(FabricChoice::Udp);
}

fn sr_under_attack(fabric: FabricChoice) {
    under_attack(fabric, "sr", |n, lab| (n.sr_against_server(lab), n.sr_against_client(lab)));
}

/// A slow client leaves most of a window of 65,536 numbers unused. A single wrong key in it ends
/// the connection, so an attacker has one guess.
#[test]
fn hostile__a_wrong_key_in_sr_ends_the_connection() {
    wrong_key(FabricChoice::Xdp);
}

#[test]
fn hostile__a_wrong_key_in_sr_ends_the_connection_over_udp() {
    wrong_key(FabricChoice::Udp);
}

fn wrong_key(fabric: FabricChoice) {
    let Some(lab) = Lab::over(fabric) else { return };
    // The default of AF_XDP. Over UDP sockets that would be the receive buffer's length, which is
    // below the 20,000.
    let window = ["--window", "16384"];
    let server = lab.json_server(&window);
    let mut tap = Tap::new(&lab.hosts.b);
    // With defaults the transfer would end before the attack. At 8 Mbit/s it is so slow that
    // numbers 20,000 ahead stay inside the window of 65,536 and are never reached.
    let slow = ["--cc", "fixed", "--cc-set", "rate_mbps=8"];
    let args = ["--transfer", "8M", "--size", "64K", "--mode", "sr", "--json"];
    let mut client = lab.start_client(lab.v4(), &[&args[..], &slow, &window].concat());
    let numbers = tap.capture_numbers();
    lab.await_traffic(PROGRESS);
    assert!(client.is_running(), "8 MiB at 8 Mbit/s take eight seconds");
    let forge = Forge::new(&lab.hosts.b, &lab.hosts.a, numbers.server_qpn);
    let mut from_b = Injector::new(&lab.hosts.b);
    for guess in 1..=200 {
        let header = numbers.sr_write(numbers.first() + 20_000, numbers.va, numbers.rkey ^ guess);
        from_b.send(&forge.sr(&header, 64));
    }
    let outcome = client.wait();
    assert!(!outcome.success, "it survived 200 guesses: {}", outcome.stdout);
    let served = server.end_with(libc::SIGTERM);
    let served: Value = serde_json::from_str(&served.stdout).expect("one line per job");
    let counters = &served["counters"];
    assert_eq!(counters["tx_fatal_naks"], 1, "{served}");
    assert_eq!(
        counters["drop_refused_ahead"],
        Value::Null,
        "no guess was ignored silently: {served}"
    );
}

impl Numbers {
    /// The number of the client's first packet. It sends fewer than 2^20.
    fn first(&self) -> u32 {
        self.client_psn << 8
    }

    fn sr_write(&self, psn: u32, va: u64, rkey: u32) -> SrDataRepr {
        let reth = Some(RethRepr { va, rkey, dma_len: 64 });
        SrDataRepr { reth, ..SrDataRepr::new(SrKind::Write, psn, 1) }
    }

    fn sr_against_server(&self, lab: &Lab) -> Vec<Attack> {
        let forge = Forge::new(&lab.hosts.b, &lab.hosts.a, self.server_qpn);
        let mut attacks = self.broken(&forge);
        attacks.extend(self.sr_misplaced(&forge, self.first().wrapping_sub(1 << 20)));
        attacks.extend(self.sr_requests(&forge));
        attacks
    }

    /// Packets with a single error, at a number without effect.
    fn sr_misplaced(&self, forge: &Forge, psn: u32) -> Vec<Attack> {
        let right = forge.sr(&self.sr_write(psn, self.va, self.rkey), 64);
        let resealed_with = |change: fn(&mut Vec<u8>)| resealed_with(right.clone(), change);
        let rc = |opcode: Opcode| forge.plain(opcode, Psn::new(psn));
        let rows = [
            ("a SEND of RC", rc(Opcode::RcSendOnly), "drop_wrong_service"),
            ("an ACK of RC", rc(Opcode::RcAck), "drop_wrong_service"),
            ("a CNP", rc(Opcode::Cnp), "drop_ignored_cnp"),
            ("a later version", resealed_with(|f| f[INSIDE] = 2 << 4 | 1), "drop_sr_version"),
            ("a kind of no meaning", resealed_with(|f| f[INSIDE] = 1 << 4 | 9), "drop_sr_kind"),
            ("a part from the future", resealed_with(|f| f[INSIDE + 2] = 0x80), "drop_sr_feature"),
        ];
        let rows = rows.map(|(name, frame, counter)| counted(name, frame, counter));
        let mut attacks = forge.misplaced(&right, Psn::new(psn));
        attacks.extend(rows);
        attacks
    }

    /// Requests for memory, behind and ahead of the window.
    fn sr_requests(&self, forge: &Forge) -> Vec<Attack> {
        let mut attacks = Vec::new();
        for (name, va, rkey) in self.targets() {
            for (psn, counter) in [
                (self.first().wrapping_sub(1 << 20), "drop_old_packet"),
                (self.first().wrapping_add(3 << 20), "drop_beyond_psn_limit"),
            ] {
                let write = self.sr_write(psn, va, rkey);
                let block = Some(BlockRepr { index: 2, data: 2, parity: 1, scheme: 1 });
                let parity = SrDataRepr { block, block_bytes: Some(64), ..write };
                let read =
                    SrDataRepr { reth: write.reth, ..SrDataRepr::new(SrKind::ReadRequest, psn, 1) };
                let operands = AtomicEthRepr { va, rkey, swap_or_add: 1, compare: 0 };
                let add = SrDataRepr::new(SrKind::FetchAdd, psn, 1);
                let add = SrDataRepr { atomic: Some(operands), ..add };
                let send = SrDataRepr::new(SrKind::Send, psn, 1);
                let send = SrDataRepr { receive: Some(0), ..send };
                for (header, len) in [(write, 64), (parity, 64), (read, 0), (add, 0), (send, 64)] {
                    attacks.push(counted(name, forge.sr(&header, len), counter));
                }
            }
        }
        attacks
    }

    /// Unsolicited acknowledgements and responses. The server sends only acknowledgements, so the
    /// window of its stream does not move.
    fn sr_against_client(&self, lab: &Lab) -> Vec<Attack> {
        let forge = Forge::new(&lab.hosts.a, &lab.hosts.b, self.client_qpn);
        let theirs = self.server_psn << 8;
        let mut attacks = self.broken(&forge);
        attacks.extend(self.sr_misplaced(&forge, theirs.wrapping_sub(1 << 20)));
        let code = NakCode::RemoteAccess;
        for (name, next) in [
            ("an ACK of long ago", self.first().wrapping_sub(1 << 20)),
            ("an ACK beyond", self.first().wrapping_add(3 << 20)),
        ] {
            let plain = SrAckRepr { next, newest: next, ..SrAckRepr::default() };
            let nak = Some(SrNak { psn: self.first(), code });
            let refused = SrAckRepr { nak, reason: AckReason::Nak, ..plain };
            let future = SrAckRepr { echo_ps: u64::MAX, ..plain };
            for ack in [plain, refused, future] {
                attacks.push(counted(name, forge.sr_ack(&ack), "drop_response_beyond_sent"));
            }
        }
        let ahead = theirs.wrapping_add(5);
        let answer = SrDataRepr::new(SrKind::ReadResponse, ahead, 0);
        let answer = SrDataRepr { response_to: Some(1 << 30), ..answer };
        let nothing = forge.sr(&answer, 64);
        attacks.push(counted("a READ response", nothing, "drop_response_to_nothing"));
        // The client grants no remote access, regardless of a gap before the packet.
        let write = forge.sr(&self.sr_write(ahead, self.va, self.rkey), 64);
        attacks.push(counted("a WRITE", write, "drop_refused_ahead"));
        attacks
    }
}
