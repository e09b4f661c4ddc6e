//! The exported symbols: `exports.txt` as assembly, and the functions for what is missing.

use libc::{EOPNOTSUPP, c_int, c_void};

#[cfg(not(test))]
std::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/exports.s")));

fn set_errno() {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() = EOPNOTSUPP };
}

// Missing functions ignore their arguments, which the C calling conventions of x86-64 and AArch64
// allow: the caller passes and removes them.

#[unsafe(export_name = "sw_missing_int")]
extern "C" fn missing_int() -> c_int {
    set_errno();
    EOPNOTSUPP
}

#[unsafe(export_name = "sw_missing_fail")]
extern "C" fn missing_fail() -> c_int {
    set_errno();
    -1
}

#[unsafe(export_name = "sw_missing_null")]
extern "C" fn missing_null() -> *mut c_void {
    set_errno();
    std::ptr::null_mut()
}

#[unsafe(export_name = "sw_missing_void")]
extern "C" fn missing_void() {}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> Option<c_int> {
        std::io::Error::last_os_error().raw_os_error()
    }

    #[test]
    fn missing__each_kind_fails_by_its_own_convention() {
        // SAFETY: as in `set_errno`.
        let clear = || unsafe { *libc::__errno_location() = 0 };
        assert_eq!((missing_int(), clear()).0, 95);
        assert_eq!((missing_fail(), errno()), (-1, Some(95)));
        clear();
        assert_eq!((missing_null(), errno()), (std::ptr::null_mut(), Some(95)));
        clear();
        assert_eq!((missing_void(), errno()), ((), Some(0)));
    }
}
