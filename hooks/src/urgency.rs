//! Whoever frees a host's cores goes before everything else on it.
//!
//! A render waits for it, and it needs a core for microseconds at a time. Where the kernel
//! allows it, that is the lowest round-robin priority; else as far above the rest as is allowed.
//! Harvested work, which is in the idle class, it precedes in any case.

use rustix::process::setpriority_process;

/// What the threads and processes started by an urgent thread are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heirs {
    /// As ordinary as if the thread had never been urgent.
    Ordinary,
    /// As urgent: whoever waits for a child's first step is not kept waiting by the child. The
    /// child has to [calm down](become_ordinary) itself.
    Urgent,
}

/// Lets this thread run before all ordinary work.
pub fn become_urgent(heirs: Heirs) {
    let flags = match heirs {
        Heirs::Ordinary => libc::SCHED_RESET_ON_FORK,
        Heirs::Urgent => 0,
    };
    if !set_class(libc::SCHED_RR | flags, LEAST_REALTIME) {
        let _ = setpriority_process(None, HIGH);
    }
}

/// Lets this thread run as ordinary threads do.
pub fn become_ordinary() {
    let _ = set_class(libc::SCHED_OTHER, 0);
    let _ = setpriority_process(None, ORDINARY);
}

const LEAST_REALTIME: i32 = 1;
const HIGH: i32 = -10;
const ORDINARY: i32 = 0;

/// rustix has no `sched_setscheduler`.
#[expect(unsafe_code, reason = "one call without a safe wrapper in our dependencies")]
fn set_class(class: i32, priority: i32) -> bool {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the pointer is to a live, initialised structure that the call only reads.
    unsafe { libc::sched_setscheduler(0, class, &raw const parameter) == 0 }
}
