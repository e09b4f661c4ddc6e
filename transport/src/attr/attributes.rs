//! The attributes of `modify_qp`, each declared once.

use super::{AddressVector, CongestionControl, Mtu, SrOptions, Wire, WireMode};
use crate::mr::Access;
use crate::qp::state::QpState;
use spanwire_wire::{Psn, Qpn};

/// Makes [`QpAttr`] and its list [`Attr`]; `if` has the valid values.
macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident: $type:ty $(, if $is_valid:expr)?;)*) => {
        /// The attributes that `modify_qp` sets; `None` keeps one. The tables in
        /// `qp/transitions.rs` have those of each transition, as in `ibv_modify_qp(3)`.
        #[derive(Clone, Copy, PartialEq, Debug, Default)]
        pub struct QpAttr {
            /// Next state.
            pub state: Option<QpState>,
            $($(#[$doc])* pub $name: Option<$type>,)*
        }

        /// One attribute of [`QpAttr`] beside the state, by its name.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[expect(non_camel_case_types, reason = "the names of the fields")]
        pub(crate) enum Attr {
            $($name,)*
        }

        impl Attr {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// `attr` sets it.
            pub(crate) fn is_given(self, attr: &QpAttr) -> bool {
                match self {
                    $(Self::$name => attr.$name.is_some(),)*
                }
            }
        }

        impl QpAttr {
            /// Applies the attributes that `newer` sets.
            pub(crate) fn merge(&mut self, newer: &Self) {
                self.state = newer.state.or(self.state);
                $(self.$name = newer.$name.or(self.$name);)*
            }

            /// The first attribute outside its range.
            pub(crate) fn out_of_range(&self) -> Option<&'static str> {
                $($(
                    let is_valid: fn(&$type) -> bool = $is_valid;
                    if self.$name.as_ref().is_some_and(|value| !is_valid(value)) {
                        return Some(stringify!($name));
                    }
                )?)*
                self.sr().and_then(|options| options.out_of_range())
            }
        }
    };
}

attributes! {
    /// The peer's access rights to our memory through this queue pair.
    access: Access;
    /// The path to the peer. Its addresses are of one IP version.
    av: AddressVector, if |av| av.src_ip.is_ipv4() == av.dst_ip.is_ipv4();
    /// Path MTU, the payload of every packet but a message's last.
    path_mtu: Mtu;
    /// The peer's queue pair.
    dest_qpn: Qpn;
    /// First PSN expected from the peer.
    rq_psn: Psn;
    /// First PSN sent.
    sq_psn: Psn;
    /// READs and atomics that may be outstanding at the peer, 0..=255. If more than the peer's
    /// `max_dest_rd_atomic`, the peer refuses them.
    max_rd_atomic: u8;
    /// READs and atomics that the peer may have outstanding, 0..=255: the number of responder
    /// resources.
    max_dest_rd_atomic: u8;
    /// Wait requested in an RNR NAK: IBTA's 5-bit code, e.g. 12 for 0.64 ms.
    min_rnr_timer: u8, if |code| *code <= 31;
    /// Local ACK timeout: 4.096 us * 2^n for n in 1..=31; 0 is infinite.
    timeout: u8, if |n| *n <= 31;
    /// Timeouts without progress before the queue pair fails, 0..=7.
    retry_cnt: u8, if |n| *n <= 7;
    /// RNR NAKs of one request before the queue pair fails, 0..=6; 7 sets no limit.
    rnr_retry: u8, if |n| *n <= 7;
    /// The wire protocol of a reliable connection with its options; [`Wire::Rc`] by default.
    wire: Wire;
    /// Congestion control: window and rate; [`CongestionControl::default`] by default.
    congestion: CongestionControl, if |c| c.algorithm.is_none_or(|cc| cc.validate().is_ok());
    /// Weight in deficit round robin among the queue pairs of the endpoint, by bytes, 1..=255; 1 by
    /// default. Control packets are not counted.
    weight: u8, if |n| *n > 0;
}

impl QpAttr {
    /// The transition RESET to INIT.
    #[must_use]
    pub fn init(access: Access) -> Self {
        Self { state: Some(QpState::Init), access: Some(access), ..Self::default() }
    }

    /// The transition INIT to RTR with common values: 16 outstanding READs and atomics of the peer,
    /// RNR timer 0.64 ms.
    #[must_use]
    pub fn rtr(dest_qpn: Qpn, rq_psn: Psn, path_mtu: Mtu, av: AddressVector) -> Self {
        Self {
            state: Some(QpState::Rtr),
            dest_qpn: Some(dest_qpn),
            rq_psn: Some(rq_psn),
            path_mtu: Some(path_mtu),
            av: Some(av),
            max_dest_rd_atomic: Some(16),
            min_rnr_timer: Some(12),
            ..Self::default()
        }
    }

    /// The transition RTR to RTS with common values: 16 outstanding READs and atomics, timeout 14
    /// (67 ms), 7 retries, unlimited RNR retries.
    #[must_use]
    pub fn rts(sq_psn: Psn) -> Self {
        Self {
            state: Some(QpState::Rts),
            sq_psn: Some(sq_psn),
            max_rd_atomic: Some(16),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            ..Self::default()
        }
    }

    /// The wire protocol, without its options.
    #[must_use]
    pub fn mode(&self) -> WireMode {
        self.wire.as_ref().map_or(WireMode::Rc, Wire::mode)
    }

    /// The options of SR, if that is the wire protocol.
    #[must_use]
    pub fn sr(&self) -> Option<&SrOptions> {
        self.wire.as_ref()?.sr()
    }
}
