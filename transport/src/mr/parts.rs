//! Parts of lists of SGEs.

use crate::verbs::Sge;

/// The `len` bytes from byte `skip` on of a list of one SGE, if it has them and they are some.
#[inline]
pub(super) fn only_part(sges: &[Sge], skip: u32, len: u32) -> Option<Sge> {
    let [sge] = sges else { return None };
    let fits = len > 0 && skip.checked_add(len)? <= sge.len;
    fits.then_some(Sge { addr: sge.addr.checked_add(skip.into())?, len, lkey: sge.lkey })
}

/// Calls `each` with the part of every SGE in the `len` bytes from byte `skip` on.
/// `out_of_bounds` if the list has fewer bytes.
// Not inlined: the callers, whose lists nearly always have one SGE, would save registers for it.
#[inline(never)]
pub(super) fn walk<E: Copy>(
    sges: &[Sge],
    (mut skip, mut len): (u32, u32),
    out_of_bounds: E,
    mut each: impl FnMut(&Sge, u32) -> Result<(), E>,
) -> Result<(), E> {
    for sge in sges {
        if len == 0 {
            return Ok(());
        }
        if skip >= sge.len {
            skip -= sge.len;
            continue;
        }
        let n = len.min(sge.len - skip);
        let addr = sge.addr.checked_add(skip.into()).ok_or(out_of_bounds)?;
        each(&Sge { addr, len: n, lkey: sge.lkey }, n)?;
        len -= n;
        skip = 0;
    }
    if len == 0 { Ok(()) } else { Err(out_of_bounds) }
}
