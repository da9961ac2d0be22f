//! Whoever frees a host's cores goes before everything else on it.
//!
//! A render waits for it, and it needs a core for microseconds at a time. Where the kernel
//! allows it, that is the lowest round-robin priority; else as far above the rest as is allowed.
//! Harvested work, which is in the idle class, it precedes in any case.

use rustix::process::setpriority_process;

use crate::{SchedulingClass, set_scheduling_class};

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
    let class = match heirs {
        Heirs::Ordinary => SchedulingClass::UrgentAlone,
        Heirs::Urgent => SchedulingClass::Urgent,
    };
    if !set_scheduling_class(SELF, class) {
        let _ = setpriority_process(None, HIGH);
    }
}

/// Lets this thread run before other ordinary threads, and after what is urgent: what it does takes
/// longer, and nobody waits for it.
pub fn become_prompt() {
    let _ = set_scheduling_class(SELF, SchedulingClass::Ordinary);
    let _ = setpriority_process(None, HIGH);
}

/// Lets this thread run as ordinary threads do.
pub fn become_ordinary() {
    let _ = set_scheduling_class(SELF, SchedulingClass::Ordinary);
    let _ = setpriority_process(None, ORDINARY);
}

/// The calling thread.
const SELF: i32 = 0;
const HIGH: i32 = -10;
const ORDINARY: i32 = 0;
