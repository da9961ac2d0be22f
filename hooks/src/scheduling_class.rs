//! The scheduling class of a thread: whom the kernel lets run before whom.

/// How a thread ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulingClass {
    /// As any other does.
    Ordinary,
    /// Only where nothing else wants the core.
    Idle,
    /// Before all ordinary work, and what it starts too: the lowest real-time priority.
    Urgent,
    /// As urgent; what it starts is ordinary.
    UrgentAlone,
}

/// Puts a process's first thread, or the calling one for 0, into a class. False where that is
/// refused, or there is no such thread.
#[expect(unsafe_code, reason = "a call without a safe wrapper in our dependencies")]
pub fn set_scheduling_class(thread: i32, class: SchedulingClass) -> bool {
    let (policy, priority) = match class {
        SchedulingClass::Ordinary => (libc::SCHED_OTHER, 0),
        SchedulingClass::Idle => (libc::SCHED_IDLE, 0),
        SchedulingClass::Urgent => (libc::SCHED_RR, LEAST_REALTIME),
        SchedulingClass::UrgentAlone => {
            (libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, LEAST_REALTIME)
        }
    };
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the call only reads; the pointer is to a live, initialised structure.
    unsafe { libc::sched_setscheduler(thread, policy, &raw const parameter) == 0 }
}

/// Whether a process's first thread is in the idle class.
#[expect(unsafe_code, reason = "a call without a safe wrapper in our dependencies")]
pub(crate) fn is_in_idle_class(pid: i32) -> bool {
    // SAFETY: the call takes a number and writes nothing.
    unsafe { libc::sched_getscheduler(pid) == libc::SCHED_IDLE }
}

const LEAST_REALTIME: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_goes_last_may_come_back_only_if_the_kernel_lets_it() {
        // In a thread of its own: the other tests are none of its business.
        std::thread::spawn(|| {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            assert!(set_scheduling_class(0, SchedulingClass::Idle), "everybody may");
            assert!(is_in_idle_class(own));
            assert!(!set_scheduling_class(-1, SchedulingClass::Ordinary), "no thread");
        })
        .join()
        .expect("no panic");
    }
}
