//! Losses that a code must bear, beside the `reed-solomon-erasure` crate: same data, same losses,
//! both bring everything back. Parity differs between the two by design.

mod block;
mod every;
mod random;
