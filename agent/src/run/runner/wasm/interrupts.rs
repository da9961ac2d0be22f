//! Looking up from a module's code: when the agent has something to say, and when CPU time has
//! gone by.
//!
//! Both are signals to the module's own thread. Their handler raises the epoch, which compiled
//! code looks at in each loop and each function; so a module in the tightest loop looks up within
//! microseconds, without a second thread that would have to get a core first.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::engine;
use super::limits::{COMPILE_CPU_S_MAX, TICK_MS};

/// By which the agent says that it has written something. Where no handler stands yet it does
/// nothing.
const LOOK_UP: libc::c_int = libc::SIGURG;

static HANDLED: AtomicBool = AtomicBool::new(false);

/// What happens on both signals: only what a signal handler may do, two loads and an addition.
extern "C" fn raise_epoch(_: libc::c_int) {
    engine::raise_epochs();
}

/// Has both signals handled from now on.
pub(super) fn handle() -> io::Result<()> {
    if HANDLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    install(LOOK_UP)?;
    install(libc::SIGPROF)
}

#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
fn install(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sigaction`, with an empty mask; the handler is a function of
    // the right type that only does what is async-signal-safe.
    let refused = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int) = raise_epoch;
        action.sa_sigaction = handler as libc::sighandler_t;
        // On the stack that the runtime's own handlers use: the module's may be full.
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut()) < 0
    };
    if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Raises the epoch regularly, counted in CPU time, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticks(());

impl Ticks {
    /// Begins.
    pub(super) fn start() -> Self {
        set_timer(TICK_MS);
        Self(())
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        set_timer(0);
    }
}

/// rustix has no `setitimer`.
#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
fn set_timer(every_ms: u64) {
    let micros = every_ms * 1_000;
    let every = libc::timeval {
        tv_sec: libc::time_t::try_from(micros / 1_000_000).expect("short"),
        tv_usec: libc::suseconds_t::try_from(micros % 1_000_000).expect("below a second"),
    };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the pointer is to a live, initialised structure that the call only reads.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) };
}

/// Lets the kernel end this process when it has taken much CPU time, until it is dropped: for
/// compiling, which nothing can interrupt.
#[derive(Debug)]
pub(super) struct CompileLimit(Rlimit);

impl CompileLimit {
    /// Begins, `used_s` seconds of CPU time after this process did.
    pub(super) fn start(used_s: u64) -> Self {
        let before = getrlimit(Resource::Cpu);
        let current = Some(used_s + COMPILE_CPU_S_MAX);
        let _ = setrlimit(Resource::Cpu, Rlimit { current, maximum: before.maximum });
        Self(before)
    }
}

impl Drop for CompileLimit {
    fn drop(&mut self) {
        let before = Rlimit { current: self.0.current, maximum: self.0.maximum };
        let _ = setrlimit(Resource::Cpu, before);
    }
}
