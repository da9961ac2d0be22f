//! Work that is shared out among threads.
//!
//! # Invariants
//! What comes out does not depend on the number of threads: parts are the same for any, and what
//! they bring is put together in their order. Without threads that were asked for there is one,
//! the caller's own: kernels run beside renders.

use std::num::NonZero;
use std::ops::Range;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use thiserror::Error;

use crate::limits::THREADS_MAX;

/// Threads for the slices of plans.
#[derive(Debug)]
pub struct Threads(Option<ThreadPool>);

/// Why there are no threads.
#[derive(Debug, Error)]
pub enum ThreadsError {
    /// More than are of use to anybody.
    #[error("{0} threads: give 1 to {THREADS_MAX}, such as one for each core")]
    TooMany(usize),
    /// The system gives no more.
    #[error("cannot start {count} threads: {source}")]
    Start {
        /// How many.
        count: usize,
        /// Why not.
        source: ThreadPoolBuildError,
    },
}

impl Threads {
    /// So many; one is the caller's own.
    ///
    /// # Errors
    /// As [`Self::check`], or the system gives no more.
    pub fn new(count: NonZero<usize>) -> Result<Self, ThreadsError> {
        Self::check(count)?;
        let count = count.get();
        if count == 1 {
            return Ok(Self(None));
        }
        let pool = ThreadPoolBuilder::new().num_threads(count).build();
        Ok(Self(Some(pool.map_err(|source| ThreadsError::Start { count, source })?)))
    }

    /// That so many may be asked for.
    ///
    /// # Errors
    /// They are more than 1024.
    pub fn check(count: NonZero<usize>) -> Result<(), ThreadsError> {
        match count.get() {
            count if count > THREADS_MAX => Err(ThreadsError::TooMany(count)),
            _ => Ok(()),
        }
    }

    /// Does some work; plans that it runs share their slices out among these threads.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.0 {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

/// What `work` makes of each part, in order.
pub(crate) fn map<R: Send>(parts: Range<usize>, work: impl Fn(usize) -> R + Send + Sync) -> Vec<R> {
    if parts.len() > 1 && rayon::current_thread_index().is_some() {
        parts.into_par_iter().map(work).collect()
    } else {
        parts.map(work).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn parts_come_back_in_order_from_any_number_of_threads() {
        for count in [1, 2, 5] {
            let threads = Threads::new(NonZero::new(count).expect("some")).expect("threads");
            let squares = threads.run(|| map(3..1000, |part| part * part));
            assert!(squares.into_iter().eq((3..1000).map(|part| part * part)));
        }
    }

    #[test]
    fn more_threads_than_are_of_use_are_refused_before_any_is_started() {
        for count in [THREADS_MAX + 1, 100_000, usize::MAX] {
            let error = Threads::new(NonZero::new(count).expect("some")).expect_err("refused");
            let told = format!("{count} threads: give 1 to 1024, such as one for each core");
            assert_eq!(error.to_string(), told);
        }
        let most = Threads::new(NonZero::new(THREADS_MAX).expect("some")).expect("threads");
        assert_eq!(most.run(|| map(0..5000, |part| part)).len(), 5000);
    }

    #[test]
    fn nobody_gets_threads_without_asking() {
        let seen = Mutex::new(BTreeSet::new());
        let see = |_| {
            let own = format!("{:?}", std::thread::current().id());
            seen.lock().expect("no panic").insert(own);
        };
        map(0..100, see);
        Threads::new(NonZero::<usize>::MIN).expect("one").run(|| map(0..100, see));
        assert_eq!(seen.lock().expect("no panic").len(), 1);
    }
}
