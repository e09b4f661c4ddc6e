//! MLCC's agent among those of a switch.

use super::{Agents, Made};
use crate::agent::feedback::{self, FRAME_MAX};
use crate::agent::kind::Kind;
use crate::agent::mlcc::{MlccFlow, RateChange};
use crate::agent::passing::SrData;
use spanwire_base::Time;
use spanwire_wire::{
    INT_ECHO_HEADER_LEN, INT_FULL_LEN, INT_MAX_HOPS, IntRecords, IntStack, NearKind, SrNearRepr,
};

impl Agents {
    /// The near telemetry of a packet with this tag that leaves by a port, if its flow is to get
    /// some.
    pub(crate) fn reflect(
        &mut self,
        now: Time,
        (port, tag): (u8, u32),
        data: &SrData,
        stack: &IntStack<'_>,
    ) -> Option<Made> {
        let index = usize::from(self.by_port[usize::from(port)]?);
        let at = &mut self.at_ports[index];
        let Kind::Mlcc(mlcc) = &mut at.agent else { return None };
        let flow = mlcc.reflect(now, tag)?;
        let mut bytes = [0; INT_ECHO_HEADER_LEN + INT_MAX_HOPS as usize * INT_FULL_LEN];
        let (header, records) = bytes.split_at_mut(INT_ECHO_HEADER_LEN);
        header.copy_from_slice(&stack.echo_header());
        records.get_mut(..stack.records().len())?.copy_from_slice(stack.records());
        let int = IntRecords::parse(&bytes[..INT_ECHO_HEADER_LEN + stack.records().len()]);
        let SrData { psn, sent_ps: echo_ps } = *data;
        let hop_limit = flow.hop_limit;
        let near = SrNearRepr { kind: NearKind::Telemetry, psn, hop_limit, echo_ps, int };
        let mut frame = [0; FRAME_MAX];
        let len = feedback::near(&flow.ends, flow.sender, &near, &mut frame)?;
        if !at.limit.take(crate::link::wire_bytes(len, 0)) {
            at.counters.limited += 1;
            return None;
        }
        Some(Made { frame, len, at: index })
    }

    /// True if an agent reads the telemetry of packets.
    pub(crate) fn reads_stacks(&self) -> bool {
        self.at_ports.first().is_some_and(|at| matches!(at.agent, Kind::Mlcc(_)))
    }

    /// The next rate of a flow that is to change since the last call.
    #[inline]
    pub(crate) fn pop_rate(&mut self) -> Option<RateChange> {
        match self.at_ports.first_mut().map(|at| &mut at.agent) {
            Some(Kind::Mlcc(mlcc)) => mlcc.pop_change(),
            _ => None,
        }
    }

    /// The flows that an agent lets in at a rate of their own.
    pub(crate) fn mlcc_flows(&self, now: Time) -> impl Iterator<Item = MlccFlow> {
        self.at_ports
            .iter()
            .flat_map(move |at| match &at.agent {
                Kind::Mlcc(mlcc) => Some(mlcc.flows(now)),
                _ => None,
            })
            .flatten()
    }
}
