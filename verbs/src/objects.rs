//! Objects of the program: what it sees, and what is ours behind it.
//!
//! A program holds the address of the part that `verbs.h` declares, may read and write it, and
//! gives it back in each call. No reference is ever made to that part. Ours follows it in the same
//! allocation, and is immutable or synchronised.

use crate::abi::{ibv_context, ibv_pd, verbs_context};
use crate::engine::Engine;
use crate::errno::Errno;
use spanwire_transport::PdId;
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::Arc;

/// An object: `A` is the program's part.
#[repr(C)]
struct Object<A: Visible> {
    visible: UnsafeCell<A>,
    ours: A::Ours,
}

/// The program's part of an object.
pub(crate) trait Visible {
    /// Ours.
    type Ours;
}

/// An open device.
pub(crate) struct Context {
    pub(crate) engine: Arc<Engine>,
}

/// A protection domain.
pub(crate) struct Pd {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: PdId,
}

impl Visible for verbs_context {
    type Ours = Context;
}

impl Visible for ibv_pd {
    type Ours = Pd;
}

/// Makes an object; the program has it until [`take`].
pub(crate) fn publish<A: Visible>(visible: A, ours: A::Ours) -> *mut A {
    let object = Object { visible: UnsafeCell::new(visible), ours };
    Box::into_raw(Box::new(object)).cast()
}

/// Ours of an object.
///
/// # Errors
/// `EINVAL` for NULL.
///
/// # Safety
/// `visible` is NULL, or is from [`publish`] and [`take`] was not called for it. So the program
/// promises by the contract of verbs; a pointer of any other kind is its undefined behaviour, as
/// with any C library.
pub(crate) unsafe fn ours<'a, A: Visible>(visible: *mut A) -> Result<&'a A::Ours, Errno> {
    if visible.is_null() {
        return Err(libc::EINVAL);
    }
    let object = visible.cast::<Object<A>>();
    // SAFETY: the object is alive. No reference is made to the visible part, and no mutable one to
    // ours until `take`.
    Ok(unsafe { &(*object).ours })
}

/// Takes an object back from the program.
///
/// # Safety
/// As [`ours`], and no other thread uses the object.
pub(crate) unsafe fn take<A: Visible>(visible: *mut A) -> A::Ours {
    // SAFETY: from `publish`, once.
    let object = unsafe { Box::from_raw(visible.cast::<Object<A>>()) };
    object.ours
}

/// The extended context that holds `context`.
pub(crate) fn extended(context: *mut ibv_context) -> *mut verbs_context {
    if context.is_null() {
        return std::ptr::null_mut();
    }
    context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

/// Ours of a context.
///
/// # Errors
/// `EINVAL` for NULL.
///
/// # Safety
/// As [`ours`].
pub(crate) unsafe fn of_context<'a>(context: *mut ibv_context) -> Result<&'a Context, Errno> {
    // SAFETY: all contexts are made by `publish` of the extended one.
    unsafe { ours(extended(context)) }
}
