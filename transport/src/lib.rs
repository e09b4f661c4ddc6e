//! The RoCEv2 engine: queue pairs with verbs semantics over two wire protocols, without I/O.
//!
//! [`Endpoint`] is a [`Node`](spanwire_base::Node): frames and time go in, frames and deadlines
//! come out. The engine reads no clock, starts no thread and owns no socket. The same code runs
//! over AF_XDP, over an in-process pipe and inside the simulator.
//!
//! # The two protocols
//! **RC** ([`WireMode::Rc`]) is the Reliable Connection of IBTA, interoperable with adapters and
//! Linux rxe. PSNs have 24 bits and packets are accepted in order only. Loss recovery is
//! *go-back-N*: on a NAK or a timeout, the requester retransmits everything from the first missing
//! packet. The responder sends an ACK when a packet has the AckReq bit, and ACKs are cumulative. A
//! message that finds no receive request gets an RNR NAK. Congestion is signalled by CNPs, and the
//! round trip is measured on one packet at a time. Specification: `docs/protocol/rc.md`.
//!
//! **SR** ([`WireMode::Sr`]) is *selective repeat*, for lossy and multipath networks. Packets may
//! arrive in any order and their data are placed at once. ACKs carry SACK blocks, ECN counts and a
//! timestamp echo. Loss detection is *RACK* with a *tail loss probe* (TLP; both RFC 8985) and a
//! retransmission timeout (RTO). Only lost packets are retransmitted. Optional *forward error
//! correction* (FEC) adds parity packets to blocks of source packets, so that the receiver recovers
//! losses without a retransmission. *Receive credit* replaces RNR: an ACK carries the limit on the
//! messages that may use a receive request. A load balancer may select the path of each packet.
//! Specification: `docs/protocol/sr.md`.
//!
//! # Map
//! | place | content |
//! |---|---|
//! | `endpoint.rs`, `endpoint/` | all tables of one worker, the verbs |
//! | `schedule.rs`, `timer.rs` | which queue pair sends next; one deadline for each queue pair |
//! | `mr.rs`, `cq.rs`, `srq.rs` | memory regions, completion queues, shared receive queues |
//! | `attr.rs`, `verbs.rs`, `wc.rs`, `event.rs` | attributes, work requests, completions, events |
//! | `config.rs`, `counters.rs`, `drop.rs` | every limit, every counter, every drop reason |
//! | `qp/` | what RC and SR share: states, posting, completion, congestion control, addresses |
//! | `rc/` | RC: requester, completer, responder, go-back-N |
//! | `sr/tx/` | sender of SR: requester, loss recovery, FEC encoder, load balancer |
//! | `sr/rx/` | receiver of SR: received PSNs, responder, FEC decoder, ACKs |
//! | `offer.rs` | the agreement of two ends on the version and features of SR |
//!
//! `qp/engine.rs` is the only file that distinguishes RC and SR.
//!
//! # A received packet
//! | step | RC | SR |
//! |---|---|---|
//! | parse, find the queue pair by QPN, check the ICRC | `endpoint.rs` | `endpoint.rs` |
//! | dispatch to the protocol | `qp/engine.rs` | `qp/engine.rs` |
//! | check service, peer, partition key and state | `qp/common.rs` | `qp/common.rs` |
//! | dispatch by opcode | `rc/mod.rs` | `sr/mod.rs` |
//! | classify the PSN of a request | `rc/responder.rs` | `sr/on_data.rs`, `sr/rx/received.rs` |
//! | place the data, execute the request | `rc/responder.rs` | `sr/rx/responder.rs` |
//! | schedule an ACK, complete a receive request | `rc/on_request.rs` | `sr/rx/ack.rs` |
//! | ACK or response: complete requests | `rc/completer.rs`, `rc/on_response.rs` | `sr/on_ack.rs` |
//!
//! # A posted request
//! | step | RC | SR |
//! |---|---|---|
//! | `post_send`, then the queue pair joins the schedule | `endpoint.rs` | `endpoint.rs` |
//! | check state and limits | `qp/post.rs` | `qp/post.rs` |
//! | queue the request | `rc/requester.rs` | `sr/tx/requester.rs` |
//! | `poll_transmit`: the next queue pair | `endpoint/turn.rs` | `endpoint/turn.rs` |
//! | windows, limits and pacer | `rc/mod.rs` | `sr/tx/schedule.rs` |
//! | choose the next packet | `rc/requester.rs` | `sr/tx/schedule.rs` |
//! | write headers and payload | `rc/send.rs`, `qp/write.rs` | `sr/send.rs`, `sr/tx/write.rs` |
//! | keep it for loss recovery | `rc/loss.rs` | `sr/tx/sent.rs` |
//!
//! # An application
//! Applications use the verbs of [`Endpoint`]: [`Endpoint::reg_mr`], [`Endpoint::create_qp`],
//! [`Endpoint::modify_qp`], [`Endpoint::post_send`], [`Endpoint::post_recv`],
//! [`Endpoint::poll_cq`]. An application that runs on the engine's core implements [`App`] and runs
//! in a [`Host`].
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod attr;
mod blocks;
mod coding;
mod config;
mod counters;
mod cq;
mod drop;
mod endpoint;
mod event;
mod host;
mod ids;
mod lending;
mod mr;
mod offer;
mod payload;
mod qp;
mod rc;
mod schedule;
mod sr;
mod srq;
mod tables;
#[cfg(test)]
mod testing;
mod timer;
mod verbs;
mod wc;

pub use attr::{
    AddressVector, Balance, CongestionControl, Mtu, Preset, QpAttr, QpCaps, QpInit, Service,
    SourcePort, SrOptions, Wire, WireMode,
};
pub use coding::{CodingWhen, ErasureCoding};
pub use config::{Config, ConfigError, QpnPrefix, QpnWorkers, ValidConfig};
pub use counters::Counters;
pub use cq::{CqError, CqId, Notify};
pub use drop::DropReason;
pub use endpoint::{Endpoint, QpInfo, ReconfigureError};
pub use event::AsyncEvent;
pub use host::{App, Host};
pub use ids::SrqId;
pub use mr::{Access, MemoryRegion, MrError, PdId};
pub use offer::{Agreed, Offer, SrFeature, SrFeatures, SrOffer, SrTerms, SrVersions, agree};
pub use qp::flow::{FlowInfo, FlowLimit, LimitTimes};
pub use qp::state::{ModifyError, QpState};
pub use srq::{SrqError, SrqInfo, SrqInit};
pub use verbs::{CreateError, PostError, RecvRequest, RemoteAddr, Sge, WorkRequest, WrOp};
pub use wc::{Wc, WcOpcode, WcStatus};
