//! Access by machine code.

use std::arch::{asm, is_x86_feature_detected};

/// Copies the bytes from `at` on into all of `dst`.
///
/// # Safety
/// `dst.len()` bytes from `at` must be readable, outside of `dst`, and accessed by this module
/// only.
#[inline]
pub(crate) unsafe fn load(at: *const u8, dst: &mut [u8]) {
    // SAFETY: the caller's guarantee; `dst` is borrowed.
    unsafe { copy(at, dst.as_mut_ptr(), dst.len()) }
}

/// Copies `src` to `at` and the bytes after it.
///
/// # Safety
/// `src.len()` bytes from `at` must be writable, outside of `src`, and accessed by this module
/// only.
#[inline]
pub(crate) unsafe fn store(at: *mut u8, src: &[u8]) {
    // SAFETY: the caller's guarantee; `src` is borrowed.
    unsafe { copy(src.as_ptr(), at, src.len()) }
}

/// Adds `add` to the word at `at`, wrapping; returns the old value. Atomic to every other access.
///
/// # Safety
/// `at` must be aligned, readable and writable, and accessed by this module only.
pub(crate) unsafe fn fetch_add(at: *mut u64, add: u64) -> u64 {
    let mut word = add;
    // SAFETY: accesses the eight bytes of the word, by the caller's guarantee.
    unsafe {
        asm!("lock xadd qword ptr [{at}], {word}", at = in(reg) at, word = inout(reg) word,
            options(nostack));
    }
    word
}

/// Writes `swap` to the word at `at` if it equals `compare`; returns the old value. Atomic to
/// every other access.
///
/// # Safety
/// As [`fetch_add`].
pub(crate) unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> u64 {
    let mut word = compare;
    // SAFETY: accesses the eight bytes of the word, by the caller's guarantee.
    unsafe {
        asm!("lock cmpxchg qword ptr [{at}], {swap}", at = in(reg) at, swap = in(reg) swap,
            inout("rax") word, options(nostack));
    }
    word
}

/// Copies by the first and the last bytes as one register each, which may overlap.
macro_rules! both_ends {
    ($src:ident, $dst:ident, $len:ident, $size:literal, $word:literal) => {
        asm!(
            concat!("mov {head", $word, "}, [{src}]"),
            concat!("mov {tail", $word, "}, [{src} + {len} - ", $size, "]"),
            concat!("mov [{dst}], {head", $word, "}"),
            concat!("mov [{dst} + {len} - ", $size, "], {tail", $word, "}"),
            src = in(reg) $src,
            dst = in(reg) $dst,
            len = in(reg) $len,
            head = out(reg) _,
            tail = out(reg) _,
            options(nostack, preserves_flags),
        )
    };
}

/// Copies `len` bytes in ascending order. Bytes may be read and written more than once. The usual
/// short lengths are inlined and need only SSE2, which every x86-64 has.
///
/// # Safety
/// The bytes at `src` must be readable, those at `dst` writable, and the ranges disjoint.
#[inline(always)]
unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: each of them copies exactly `len` bytes for lengths of its range.
    unsafe {
        if len > 64 {
            copy_long(src, dst, len);
        } else if len >= 32 {
            asm!(
                "movdqu {a}, [{src}]",
                "movdqu {b}, [{src} + 16]",
                "movdqu {c}, [{src} + {len} - 32]",
                "movdqu {d}, [{src} + {len} - 16]",
                "movdqu [{dst}], {a}",
                "movdqu [{dst} + 16], {b}",
                "movdqu [{dst} + {len} - 32], {c}",
                "movdqu [{dst} + {len} - 16], {d}",
                src = in(reg) src,
                dst = in(reg) dst,
                len = in(reg) len,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        } else if len >= 16 {
            asm!(
                "movdqu {head}, [{src}]",
                "movdqu {tail}, [{src} + {len} - 16]",
                "movdqu [{dst}], {head}",
                "movdqu [{dst} + {len} - 16], {tail}",
                src = in(reg) src,
                dst = in(reg) dst,
                len = in(reg) len,
                head = out(xmm_reg) _,
                tail = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        } else if len >= 8 {
            both_ends!(src, dst, len, 8, ":r");
        } else {
            copy_shorter(src, dst, len);
        }
    }
}

/// # Safety
/// As [`copy`], for lengths above 64.
#[inline(never)]
unsafe fn copy_long(src: *const u8, dst: *mut u8, len: usize) {
    // The bytes of the last aligned word. A vector that crosses two cache lines may become visible
    // in either order, so these bytes become visible afterwards, and at once.
    let last = 1 << ((dst.addr() + len) | 8).trailing_zeros();
    let body = len - last;
    // SAFETY: at least a vector of either width, and the processor has it; then the last 8 bytes.
    unsafe {
        if is_x86_feature_detected!("avx") {
            copy_avx(src, dst, body);
        } else {
            copy_sse(src, dst, body);
        }
        asm!(
            "mov {word}, [{src} + {len} - 8]",
            "mov [{dst} + {len} - 8], {word}",
            src = in(reg) src,
            dst = in(reg) dst,
            len = in(reg) len,
            word = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As [`copy`], for lengths below 8.
#[inline(never)]
unsafe fn copy_shorter(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: two registers of `size` bytes, the first at the start and the last at the end,
    // lie inside and cover all of `size..=2 * size` bytes.
    unsafe {
        match len {
            0 => {}
            1 => asm!("mov {byte}, [{src}]", "mov [{dst}], {byte}", src = in(reg) src,
                dst = in(reg) dst, byte = out(reg_byte) _, options(nostack, preserves_flags)),
            2..4 => both_ends!(src, dst, len, 2, ":x"),
            _ => both_ends!(src, dst, len, 4, ":e"),
        }
    }
}

/// Copies by vectors of `$size` bytes in registers `$reg`, in ascending order. The last four and
/// the first are unaligned; those in between go in groups of four, from the first aligned place in
/// `dst`.
macro_rules! vectors {
    ($name:ident, $size:literal, $reg:literal, $mov:literal, $leave:literal) => {
        /// # Safety
        /// As [`copy`], for lengths of at least one vector, on processors that have them.
        #[inline]
        pub(super) unsafe fn $name(src: *const u8, dst: *mut u8, len: usize) {
            // SAFETY: reads and writes inside `len` bytes of `src` and `dst`: `len` is at
            // least one vector, the others are used if `len` exceeds them, and the loop ends
            // where the last four begin.
            unsafe {
                asm!(
                    concat!($mov, " ", $reg, "0, [{src}]"),
                    concat!($mov, " ", $reg, "1, [{src} + {len} - {v}]"),
                    concat!($mov, " [{dst}], ", $reg, "0"),
                    "lea {end}, [{dst} + {len}]",
                    "cmp {len}, 2 * {v}",
                    "jbe 6f",
                    concat!($mov, " ", $reg, "2, [{src} + {len} - 2 * {v}]"),
                    "cmp {len}, 4 * {v}",
                    "jbe 4f",
                    concat!($mov, " ", $reg, "3, [{src} + {len} - 3 * {v}]"),
                    concat!($mov, " ", $reg, "4, [{src} + {len} - 4 * {v}]"),
                    "lea {at}, [{dst} + {v}]",
                    "and {at}, -{v}",
                    // From here on src - dst, which turns a dst address into src's.
                    "sub {src}, {dst}",
                    "lea {len}, [{end} - 4 * {v}]",
                    "cmp {at}, {len}",
                    "jae 3f",
                    "2:",
                    concat!($mov, " ", $reg, "5, [{src} + {at}]"),
                    concat!($mov, " ", $reg, "6, [{src} + {at} + {v}]"),
                    concat!($mov, " ", $reg, "7, [{src} + {at} + 2 * {v}]"),
                    concat!($mov, " ", $reg, "8, [{src} + {at} + 3 * {v}]"),
                    concat!($mov, " [{at}], ", $reg, "5"),
                    concat!($mov, " [{at} + {v}], ", $reg, "6"),
                    concat!($mov, " [{at} + 2 * {v}], ", $reg, "7"),
                    concat!($mov, " [{at} + 3 * {v}], ", $reg, "8"),
                    "add {at}, 4 * {v}",
                    "cmp {at}, {len}",
                    "jb 2b",
                    "3:",
                    concat!($mov, " [{end} - 4 * {v}], ", $reg, "4"),
                    concat!($mov, " [{end} - 3 * {v}], ", $reg, "3"),
                    "jmp 5f",
                    "4:",
                    concat!($mov, " ", $reg, "3, [{src} + {v}]"),
                    concat!($mov, " [{dst} + {v}], ", $reg, "3"),
                    "5:",
                    concat!($mov, " [{end} - 2 * {v}], ", $reg, "2"),
                    "6:",
                    concat!($mov, " [{end} - {v}], ", $reg, "1"),
                    $leave,
                    v = const $size,
                    src = inout(reg) src => _,
                    dst = in(reg) dst,
                    len = inout(reg) len => _,
                    end = out(reg) _,
                    at = out(reg) _,
                    // Of all vector registers, `vzeroupper` clears the upper halves.
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                    out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    options(nostack),
                );
            }
        }
    };
}

vectors!(copy_avx, 32, "ymm", "vmovdqu", "vzeroupper");
vectors!(copy_sse, 16, "xmm", "movdqu", "");
