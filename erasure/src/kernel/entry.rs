//! The entry points of a kernel.

/// The loops for a vector, as functions with its target features. Whole sums process `$n` vectors
/// of each row at a time.
macro_rules! entry_points {
    ($(#[$feature:meta])* $vector:ty, $n:literal) => {
        /// # Safety
        /// As the loop of this name.
        $(#[$feature])*
        pub(in crate::kernel) unsafe fn add<const ROWS: usize, const FIRST_IS_ONE: bool>(
            src: &[u8],
            factors: [u8; ROWS],
            dst: [&mut [u8]; ROWS],
        ) {
            // SAFETY: the features are those of the vector; the caller guarantees the rest.
            unsafe { crate::kernel::loops::add::<$vector, ROWS, FIRST_IS_ONE>(src, factors, dst) }
        }

        /// # Safety
        /// As the loop of this name.
        $(#[$feature])*
        pub(in crate::kernel) unsafe fn sum<const ROWS: usize, const FIRST_IS_ONE: bool>(
            sources: &[&[u8]],
            factors: &[[u8; ROWS]],
            at: usize,
            dst: [&mut [u8]; ROWS],
            accumulate: bool,
        ) {
            // SAFETY: the features are those of the vector; the caller guarantees the rest.
            unsafe {
                crate::kernel::loops::sum::<$vector, ROWS, FIRST_IS_ONE, $n>(
                    sources, factors, at, dst, accumulate,
                );
            }
        }

        /// # Safety
        /// As the loop of this name.
        $(#[$feature])*
        pub(in crate::kernel) unsafe fn horner(
            sources: &[&[u8]],
            at: usize,
            p: &mut [u8],
            q: &mut [u8],
        ) {
            // SAFETY: the features are those of the vector; the caller guarantees the rest.
            unsafe { crate::kernel::loops::horner::<$vector, 4>(sources, at, p, q) }
        }
    };
}
pub(in crate::kernel) use entry_points;
