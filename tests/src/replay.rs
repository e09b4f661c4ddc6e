//! Replays one side of a capture with our engine: the recorded peer's packets are the input, and
//! the engine's packets are compared with those of the recorded side.
//!
//! [`Capture`] is the file with its entry in `captures.md`, [`play`] replays it and [`compare`]
//! aligns the two packet sequences. Judging the differences is left to the caller.

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
