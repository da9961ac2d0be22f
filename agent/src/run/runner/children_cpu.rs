//! CPU time of commands.

/// CPU time of all children of this process that have been waited for, theirs included, in
/// microseconds. rustix has no `getrusage`.
#[expect(unsafe_code, reason = "one call without a safe wrapper in our dependencies")]
pub(super) fn children_cpu_us() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of the right size and alignment, which the call fills; all
    // zeroes, as it is where the call fails, is a valid `rusage`.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    micros(usage.ru_utime) + micros(usage.ru_stime)
}
