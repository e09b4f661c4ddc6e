//! Alignment of the recorded packets with ours.

use super::packet::{Field, Lane, Logged};

/// One place where the two sequences differ. Indices are those of the sequences compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// The same packet with different fields.
    Changed {
        /// Index of the recorded packet.
        recorded: usize,
        /// Index of ours.
        ours: usize,
        /// The fields that differ.
        fields: Vec<Field>,
    },
    /// A packet that only our engine sent.
    Extra {
        /// Recorded packets before it.
        recorded: usize,
        /// Index of ours.
        ours: usize,
    },
    /// A packet that only the recorded side sent.
    Missing {
        /// Index of the recorded packet.
        recorded: usize,
        /// Our packets before it.
        ours: usize,
    },
}

/// The differences of the cheapest alignment, in order. Packets with different PSNs never match,
/// nor does a response recorded before the request of ours.
#[must_use]
pub fn compare(recorded: &[Logged], ours: &[Logged]) -> Vec<Difference> {
    let (n, m) = (recorded.len(), ours.len());
    // cost[i][j]: of aligning recorded[i..] with ours[j..].
    let mut cost = vec![vec![0; m + 1]; n + 1];
    for i in (0..=n).rev() {
        for j in (0..=m).rev() {
            cost[i][j] = match (i < n, j < m) {
                (false, false) => 0,
                (true, false) => cost[i + 1][j] + GAP,
                (false, true) => cost[i][j + 1] + GAP,
                (true, true) => {
                    let pair = pair_cost(&recorded[i], &ours[j]).map(|c| c + cost[i + 1][j + 1]);
                    let gap = cost[i + 1][j].min(cost[i][j + 1]) + GAP;
                    pair.map_or(gap, |pair| pair.min(gap))
                }
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < n || j < m {
        // Among alignments of equal cost, the earlier of two equal packets of ours is the extra
        // one, because the later one is nearer to the recorded one. Of a packet recorded twice the
        // second is the extra one.
        let pair = (i < n && j < m).then(|| pair_cost(&recorded[i], &ours[j])).flatten();
        if j < m && cost[i][j + 1] + GAP == cost[i][j] {
            found.push(Difference::Extra { recorded: i, ours: j });
            j += 1;
        } else if pair.is_some_and(|c| c + cost[i + 1][j + 1] == cost[i][j]) {
            let fields = ours[j].sent.differs_from(&recorded[i].sent);
            if !fields.is_empty() {
                found.push(Difference::Changed { recorded: i, ours: j, fields });
            }
            (i, j) = (i + 1, j + 1);
        } else {
            found.push(Difference::Missing { recorded: i, ours: j });
            i += 1;
        }
    }
    found
}

/// The cost of matching the two packets, if they can match.
fn pair_cost(recorded: &Logged, ours: &Logged) -> Option<usize> {
    if ours.sent.lane() == Some(Lane::Responses) && recorded.at < ours.at {
        // The request was recorded later than this response.
        return None;
    }
    let fields = ours.sent.differs_from(&recorded.sent);
    (!fields.contains(&Field::Psn)).then(|| fields.len().min(2 * GAP - 1))
}

impl Difference {
    /// A description in a few lines.
    #[must_use]
    pub fn describe(&self, recorded: &[Logged], ours: &[Logged]) -> String {
        match self {
            Self::Changed { recorded: i, ours: j, fields } => {
                let (a, b) = (&recorded[*i].sent, &ours[*j].sent);
                format!("{fields:?}\n    recorded #{i} {a}\n    ours     #{j} {b}")
            }
            Self::Extra { recorded: i, ours: j } => {
                format!("only ours, before recorded #{i}\n    ours     #{j} {}", ours[*j].sent)
            }
            Self::Missing { recorded: i, ours: j } => {
                format!("only recorded, before ours #{j}\n    recorded #{i} {}", recorded[*i].sent)
            }
        }
    }
}

/// Cost of a packet without a match.
const GAP: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::packet::Sent;
    use spanwire_wire::{
        AethRepr, BthRepr, EthernetRepr, ExtHeaders, Headers, IpRepr, MacAddr, Opcode, Psn, Qpn,
        Syndrome, UdpRepr,
    };

    fn packet(at: usize, opcode: Opcode, psn: u32, msn: u32) -> Logged {
        let syndrome = Syndrome::Ack { credits: 31 };
        let aeth = opcode.props().aeth.then_some(AethRepr { syndrome, msn });
        let mac = MacAddr::new([2; 6]);
        let headers = Headers {
            eth: EthernetRepr { dst: mac, src: mac, ethertype: EthernetRepr::IPV4 },
            ip: IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).expect("one version"),
            udp: UdpRepr::new(0xc000),
            bth: BthRepr::new(opcode, Qpn::new(5), Psn::new(psn)),
            ext: ExtHeaders { aeth, ..ExtHeaders::NONE },
        };
        Logged { at, sent: Sent { headers, payload: Vec::new() } }
    }

    fn ack(at: usize, psn: u32, msn: u32) -> Logged {
        packet(at, Opcode::RcAck, psn, msn)
    }

    fn send(at: usize, psn: u32) -> Logged {
        packet(at, Opcode::RcSendOnly, psn, 0)
    }

    #[test]
    fn compare__equal_sequences_do_not_differ() {
        let all = [ack(1, 0xff_ffff, 1), ack(2, 0, 2)];
        assert_eq!(compare(&all, &all), []);
        assert_eq!(compare(&[], &[]), []);
    }

    #[test]
    fn compare__reports_the_fields_that_changed() {
        let mut ours = send(0, 7);
        ours.sent.payload.push(1);
        ours.sent.headers.bth.ack_req = true;
        let fields = vec![Field::AckReq, Field::Payload];
        let want = [Difference::Changed { recorded: 0, ours: 0, fields }];
        assert_eq!(compare(&[send(0, 7)], &[ours]), want);
        let fields = vec![Field::Msn];
        let want = [Difference::Changed { recorded: 0, ours: 0, fields }];
        assert_eq!(compare(&[ack(1, 7, 1)], &[ack(0, 7, 2)]), want);
    }

    #[test]
    fn compare__another_psn_is_another_packet() {
        let want = [
            Difference::Extra { recorded: 0, ours: 0 },
            Difference::Missing { recorded: 0, ours: 1 },
        ];
        assert_eq!(compare(&[send(0, 7)], &[send(0, 8)]), want);
    }

    #[test]
    fn compare__of_equal_packets_the_first_of_ours_and_the_second_recorded_are_extra() {
        let (one, two) = ([ack(5, 7, 1)], [ack(1, 7, 1), ack(2, 7, 1)]);
        assert_eq!(compare(&one, &two), [Difference::Extra { recorded: 0, ours: 0 }]);
        let (one, two) = ([send(1, 7)], [send(1, 7), send(2, 7)]);
        assert_eq!(compare(&two, &one), [Difference::Missing { recorded: 1, ours: 1 }]);
    }

    #[test]
    fn compare__no_response_matches_one_before_its_request() {
        let (recorded, ours) = ([ack(3, 7, 1)], [ack(4, 7, 1)]);
        assert_eq!(compare(&recorded, &ours).len(), 2);
        assert_eq!(compare(&recorded, &[ack(2, 7, 1)]), []);
    }
}
