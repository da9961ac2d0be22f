//! The limit of the memory of all harvested work, which a kernel may refuse for a while: more is in
//! use, and cannot be given back.
//!
//! # Invariants
//! - What was refused is tried again, and not at each look: a kernel may take its time to refuse,
//!   and the main loop waits for it. What holds is not set again.

use gleaner_protocol::{Span, Time};

use crate::limits::MEMORY_LIMIT_REST_MS;

/// What holds, and what was refused last and when, in MiB.
#[derive(Debug, Default)]
pub(crate) struct MemoryLimit {
    held: Option<u64>,
    refused: Option<(u64, Time)>,
}

impl MemoryLimit {
    /// Has `set` set this limit, unless it holds.
    ///
    /// # Errors
    /// It is refused; said once for each limit.
    pub(crate) fn keep<E>(
        &mut self,
        now: Time,
        mib: u64,
        set: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.held == Some(mib) {
            return Ok(());
        }
        let before = self.refused.filter(|(refused, _)| *refused == mib);
        if before.is_some_and(|(_, at)| now < at + Span::from_millis(MEMORY_LIMIT_REST_MS)) {
            return Ok(());
        }
        // What a refused change leaves is not known.
        self.held = None;
        match set(mib) {
            Ok(()) => {
                *self = Self { held: Some(mib), refused: None };
                Ok(())
            }
            Err(error) => {
                self.refused = Some((mib, now));
                if before.is_some() { Ok(()) } else { Err(error) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_limit_is_tried_until_it_holds_and_told_of_once() {
        let mut limit = MemoryLimit::default();
        let mut tries = 0;
        let mut keep = |seconds, mib, answer: Result<(), &'static str>| {
            let said = limit.keep(Time::ZERO + Span::from_secs(seconds), mib, |_| {
                tries += 1;
                answer
            });
            (said, tries)
        };
        assert_eq!(keep(1, 100, Err("busy")), (Err("busy"), 1));
        assert_eq!(keep(10, 100, Err("busy")), (Ok(()), 1), "it was tried just now");
        assert_eq!(keep(11, 100, Err("busy")), (Ok(()), 2), "said before");
        assert_eq!(keep(20, 100, Ok(())), (Ok(()), 2));
        assert_eq!(keep(21, 100, Ok(())), (Ok(()), 3));
        assert_eq!(keep(60, 100, Ok(())), (Ok(()), 3), "it holds");
        assert_eq!(keep(61, 50, Err("busy")), (Err("busy"), 4));
        assert_eq!(keep(61, 100, Ok(())), (Ok(()), 5), "a refused change may have undone it");
        assert_eq!(keep(61, 50, Err("busy")), (Err("busy"), 6), "said anew");
    }
}
