//! The limit of the memory of all harvested work, which a kernel may refuse for a while: more is in
//! use, and cannot be given back.
//!
//! # Invariants
//! - What was refused is tried again; what holds is not set again.

/// What holds, and what was refused last, in MiB.
#[derive(Debug, Default)]
pub(super) struct MemoryLimit {
    held: Option<u64>,
    refused: Option<u64>,
}

impl MemoryLimit {
    /// Has `set` set this limit, unless it holds.
    ///
    /// # Errors
    /// It is refused; said once for each limit.
    pub(super) fn keep<E>(
        &mut self,
        mib: u64,
        set: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.held == Some(mib) {
            return Ok(());
        }
        // What a refused change leaves is not known.
        self.held = None;
        match set(mib) {
            Ok(()) => {
                *self = Self { held: Some(mib), refused: None };
                Ok(())
            }
            Err(_) if self.refused == Some(mib) => Ok(()),
            Err(error) => {
                self.refused = Some(mib);
                Err(error)
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
        let mut keep = |mib, answer: Result<(), &'static str>| {
            let said = limit.keep(mib, |_| {
                tries += 1;
                answer
            });
            (said, tries)
        };
        assert_eq!(keep(100, Err("busy")), (Err("busy"), 1));
        assert_eq!(keep(100, Err("busy")), (Ok(()), 2), "said before");
        assert_eq!(keep(100, Ok(())), (Ok(()), 3));
        assert_eq!(keep(100, Ok(())), (Ok(()), 3), "it holds");
        assert_eq!(keep(50, Err("busy")), (Err("busy"), 4));
        assert_eq!(keep(100, Ok(())), (Ok(()), 5), "a refused change may have undone it");
        assert_eq!(keep(50, Err("busy")), (Err("busy"), 6), "said anew");
    }
}
