//! Recoverable losses, compared with the `reed-solomon-erasure` crate: with the same data and
//! losses, both recover everything. Their parity differs by design.

mod block;
mod every;
mod random;
