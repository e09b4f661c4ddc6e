//! The types of connection that a listener returns.

/// A type that a listener returns: [`Connection`](crate::Connection) or
/// [`ByteStream`](crate::ByteStream).
pub trait Accepted: sealed::Sealed {}

pub(crate) mod sealed {
    use crate::handshake::Established;

    /// Conversion of an established connection.
    pub trait Sealed {
        #[doc(hidden)]
        fn from_established(established: Established) -> Self;
    }
}
