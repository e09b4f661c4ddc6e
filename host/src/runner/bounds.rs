//! Bounds of a job's parameters.

use crate::oob::{Job, JobKind, Op};
use spanwire_transport::{Access, Mtu};

/// Bytes of memory that `job` takes on each side, at most 8 GiB.
///
/// # Errors
/// A parameter is out of its bounds. The text names it and its bounds.
pub fn job_bytes(job: &Job, path_mtu: Mtu) -> Result<u64, String> {
    check(job, path_mtu)?;
    Ok(region_bytes(job))
}

/// Checks the bounds of a job, whose parameters determine memory and queue pairs of this process.
pub(super) fn check(job: &Job, path_mtu: Mtu) -> Result<(), String> {
    let between = |name: &str, value: u64, min: u64, max: u64| {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(format!("{name} is {value}, but must be between {min} and {max}"))
    };
    between("the size of a message", job.size.into(), 1, 1 << 30)?;
    between("the number of queue pairs", job.qps.into(), 1, 1024)?;
    between("the number of outstanding messages", job.depth.into(), 1, 2048)?;
    between("the timeout exponent", job.timeout.into(), 0, 31)?;
    between("the retry count", job.retry_cnt.into(), 0, 7)?;
    between(
        "the number of outstanding messages of all queue pairs",
        u64::from(job.qps) * u64::from(job.depth),
        1,
        16_384,
    )?;
    if job.op.is_atomic() {
        between("the size of an atomic", job.size.into(), 8, 8)?;
    }
    match job.kind {
        JobKind::Transfer { bytes, .. } => {
            between("the number of bytes", bytes, 1, 8 << 30)?;
            if job.op.is_atomic() {
                return Err("atomics carry no bytes to transfer".into());
            }
        }
        JobKind::Bandwidth { duration_ms } | JobKind::Latency { duration_ms } => {
            between("the duration in milliseconds", duration_ms, 0, DURATION_MS_MAX)?;
        }
    }
    match Mtu::from_bytes(job.path_mtu) {
        Some(mtu) if mtu <= path_mtu => Ok(()),
        Some(_) => Err(format!(
            "path MTU {} does not fit here; the largest is {}",
            job.path_mtu,
            path_mtu.bytes()
        )),
        None => Err(format!("{} is no path MTU (256, 512, 1024, 2048, 4096)", job.path_mtu)),
    }
}

/// Bytes of memory that a job needs on each side: those of a transfer, else a slot for every
/// outstanding message, within bounds.
pub(super) fn region_bytes(job: &Job) -> u64 {
    let size = u64::from(job.size);
    match job.kind {
        JobKind::Transfer { bytes, .. } => bytes,
        _ => (size * u64::from(job.depth) * u64::from(job.qps)).min(BUFFER_BYTES_MAX).max(size),
    }
}

/// The longest run: a day.
const DURATION_MS_MAX: u64 = 86_400_000;

/// Memory of a bandwidth job. If its slots need more, messages share slots, as perftest's always
/// do.
const BUFFER_BYTES_MAX: u64 = 64 << 20;

/// The access that a client's operation requires, and no other.
pub(super) fn access(op: Op) -> Access {
    match op {
        Op::Send => Access::LOCAL_WRITE,
        Op::Write => Access::LOCAL_WRITE.and(Access::REMOTE_WRITE),
        Op::Read => Access::LOCAL_WRITE.and(Access::REMOTE_READ),
        Op::FetchAdd | Op::CmpSwap => Access::LOCAL_WRITE.and(Access::REMOTE_ATOMIC),
    }
}
