//! Plays one side of a capture with our engine: the recorded peer's packets go in, and what the
//! engine sends is held against what the recorded side sent.
//!
//! [`Capture`] is the file with what `captures.md` says of it, [`play`] runs the engine through it
//! and [`compare`] lines the two sequences of packets up. What a difference means is not decided
//! here.

mod align;
mod capture;
mod conn;
mod memory;
mod messages;
mod packet;
mod player;
mod rewrite;
mod script;

pub use align::{Difference, compare};
pub use capture::{Capture, Frame, Host, Link, Loss, captures, rxe_dir};
pub use packet::{Field, Lane, Logged, Sent};
pub use player::{LaneLog, Pace, Playback, play, play_other_transport};
