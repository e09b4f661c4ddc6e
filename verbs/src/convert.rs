//! Values of the engine as programs see them, and back.

use crate::abi::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024,
    IBV_MTU_2048, IBV_MTU_4096, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS,
    IBV_QPS_SQD, IBV_QPS_SQE,
};
use crate::errno::Errno;
use libc::{c_int, c_uint};
use spanwire_host::registrar::RegisterError;
use spanwire_transport::{Access, CreateError, Mtu, QpState};

/// The access rights of a queue pair or of memory.
///
/// # Errors
/// `EOPNOTSUPP`: memory windows and paging on demand. `EINVAL`: a bit that is neither known nor
/// optional, or the peer may write what we may not.
pub(crate) fn access(bits: c_uint) -> Result<Access, Errno> {
    let unsupported = IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND;
    let ignored = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;
    let rights = [
        (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
    ];
    let known = rights.iter().fold(unsupported | ignored, |known, (bit, _)| known | bit);
    if bits & !known != 0 {
        return Err(libc::EINVAL);
    }
    if bits & unsupported != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let given = rights.iter().filter(|(bit, _)| bits & bit != 0);
    Ok(given.fold(Access::LOCAL_READ, |sum, (_, right)| sum | *right))
}

/// The number of the reason why an object was not created.
pub(crate) fn number(e: &CreateError) -> Errno {
    match e {
        CreateError::Limit(_) => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

/// The number of the reason why a registrar refused.
pub(crate) fn of_registrar(e: &RegisterError) -> Errno {
    match e {
        RegisterError::Refused(why) => number(why),
        RegisterError::Invalidation => libc::EOPNOTSUPP,
        RegisterError::UnknownKey => libc::EINVAL,
        RegisterError::Ended => libc::EIO,
    }
}

/// A state as the program sees it.
pub(crate) fn state(state: QpState) -> c_int {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::Sqd => IBV_QPS_SQD,
        QpState::Sqe => IBV_QPS_SQE,
        QpState::Err => IBV_QPS_ERR,
    }
}

/// The state of that value; the engine enters SQE by itself only.
pub(crate) fn state_of(state: c_int) -> Option<QpState> {
    Some(match state {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_ERR => QpState::Err,
        _ => return None,
    })
}

/// Access rights as the program sees them.
pub(crate) fn bits_of(access: Access) -> c_uint {
    let rights = [
        (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
    ];
    let given = rights.into_iter().filter(|(_, right)| access.allows(*right));
    given.fold(0, |bits, (bit, _)| bits | bit)
}

/// READs and atomics that a queue pair has outstanding, or responds to, at a time.
pub(crate) const RD_ATOMIC: u8 = 16;

/// A path MTU as the program sees it.
pub(crate) fn mtu(mtu: Mtu) -> c_int {
    match mtu {
        Mtu::B256 => IBV_MTU_256,
        Mtu::B512 => IBV_MTU_512,
        Mtu::B1024 => IBV_MTU_1024,
        Mtu::B2048 => IBV_MTU_2048,
        Mtu::B4096 => IBV_MTU_4096,
    }
}

/// The inverse of [`mtu`].
pub(crate) fn of_mtu(value: c_int) -> Option<Mtu> {
    Mtu::ALL.into_iter().find(|one| mtu(*one) == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of__inverts_each() {
        assert!(Mtu::ALL.into_iter().all(|one| of_mtu(mtu(one)) == Some(one)));
        assert!((0..=6).filter(|n| *n != IBV_QPS_SQE).all(|n| state_of(n).map(state) == Some(n)));
        assert_eq!((of_mtu(0), of_mtu(6), state_of(7)), (None, None, None));
    }

    #[test]
    fn bits_of__inverts_access() {
        for bits in 0..16 {
            assert_eq!(bits_of(access(bits).unwrap()), bits);
        }
        assert_eq!(access(1 << 20), Ok(Access::LOCAL_READ), "optional");
        assert_eq!(access(1 << 8), Err(libc::EINVAL), "unknown");
        assert_eq!(access(1 << 6), Err(libc::EOPNOTSUPP), "paging on demand");
    }
}
