//! The idle scheduling class, in which harvested work runs.

/// Puts this thread, and all that it will start, into the idle class: it runs only where nothing
/// else wants the core. Where that is refused, at the lowest priority.
pub(super) fn become_idle() {
    if !set_idle_class() {
        let _ = rustix::process::setpriority_process(None, LOWEST);
    }
}

const LOWEST: i32 = 19;

/// rustix has no `sched_setscheduler`.
#[expect(unsafe_code, reason = "one call without a safe wrapper in our dependencies")]
fn set_idle_class() -> bool {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live, initialised structure that the call only reads; 0 names
    // the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) == 0 }
}

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
