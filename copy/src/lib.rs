//! Files and directories from one host to another, over connections of [`spanwire_stream`]: one for
//! each worker of the end that has fewer.
//!
//! The first connection carries the messages about files ([`message`]), and all of them chunks of
//! files in turn ([`chunks`]). Both ends hash
//! what they read and write. A file gets its final name only when it is complete, verified and on
//! disk. The part that arrived in an earlier attempt is not sent again. docs/decisions/0013 has the
//! reasons.
//!
//! Each end has threads of its own beside the connection's worker, so that no thread waits for a
//! disk and for the peer at once:
//!
//! | | files | messages |
//! |---|---|---|
//! | sender | [`source`] | [`send`], fed by [`walk`] |
//! | receiver | [`sink`], into [`partial`] | [`receive`], with [`dest`]; [`connection`] sorts |
//!
//! [`session`] is the state that the threads of one copy share.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod chunk;
pub mod chunks;
pub mod connection;
pub mod dest;
pub mod existing;
pub mod gaps;
pub mod grant;
mod join;
pub mod message;
pub mod partial;
pub mod receive;
pub mod row;
pub mod send;
pub mod session;
pub mod sink;
pub mod source;
#[cfg(test)]
mod testing;
pub mod walk;

/// The TCP port that a receiver listens on: the next after perf's.
pub const DEFAULT_PORT: u16 = 18_517;
