//! The RoCEv2 Reliable Connection engine: verbs semantics without I/O.
//!
//! Bytes and time go in, bytes and deadlines come out ([`spanwire_base::Node`]). The engine reads
//! no clock, starts no thread and owns no socket, so the same code runs over AF_XDP, over an
//! in-process pipe and inside a simulator.
//!
//! # The two paths
//! Receive: [`Endpoint`] parses a frame, finds the queue pair by QPN and calls its
//! `handle_packet` (`qp/mod.rs`), where a request goes to `qp/responder.rs` and a response to
//! `qp/completer.rs`. Both return what happened as a value; the queue pair applies it.
//!
//! Send: the driver reserves a frame and asks `poll_transmit`. The queue pair answers the questions
//! in order: what is owed (`qp/ack.rs`, read responses), what is next (`qp/requester.rs`), how much
//! is allowed (the window), and writes it.
//!
//! # An application
//! Applications use the verbs of [`Endpoint`]: [`Endpoint::reg_mr`], [`Endpoint::create_qp`],
//! [`Endpoint::modify_qp`], [`Endpoint::post_send`], [`Endpoint::post_recv`],
//! [`Endpoint::poll_cq`]. One that lives on the engine's core implements [`App`] and runs in a
//! [`Host`].
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

pub use attr::{AddressVector, Balance, CongestionControl, Mtu, QpAttr, QpCaps, QpInit, WireMode};
pub use coding::{CodingWhen, ErasureCoding};
pub use config::{Config, ConfigError, ValidConfig};
pub use counters::Counters;
pub use cq::{CqError, CqId, Notify};
pub use drop::DropReason;
pub use endpoint::{Endpoint, QpInfo};
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
