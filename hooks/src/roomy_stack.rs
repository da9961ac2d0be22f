//! A stack that is large enough, whatever limits a job has handed on.
//!
//! A hook inherits the limits of whoever starts it, which may be a job's own: `ulimit -s 64`, say. A thread
//! has a stack of the size that is asked for. Where a stack is large enough, and where no thread is to be
//! had, everything stays on the one that is there.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

use rustix::process::{Resource, getrlimit};

use crate::limits::STACK_BYTES;

/// Does it with enough of a stack.
pub(crate) fn with_room<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let has_room = getrlimit(Resource::Stack).current.is_none_or(|bytes| bytes >= STACK_BYTES);
    if has_room { act() } else { in_thread(act) }
}

fn in_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let mut waiting = Some(act);
    let done = scope(|scope| {
        let take = || waiting.take().map(|act| act());
        let thread = Builder::new().name("hook".into()).stack_size(STACK_BYTES as usize);
        match thread.spawn_scoped(scope, take) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => None,
        }
    });
    match (done, waiting) {
        (Some(done), _) => done,
        (None, act) => act.expect("what was not done still waits")(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_once_and_what_it_gives_is_handed_on() {
        let mut times = 0;
        assert_eq!(in_thread(|| std::mem::replace(&mut times, 1)), 0);
        assert_eq!(with_room(|| std::mem::replace(&mut times, 2)), 1);
        assert_eq!(times, 2);
    }
}
