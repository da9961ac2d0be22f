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

/// Threads for the slices of plans.
#[derive(Debug)]
pub struct Threads(Option<ThreadPool>);

/// Why there are no threads.
#[derive(Debug, Error)]
#[error("cannot start {count} threads: {source}")]
pub struct ThreadsError {
    count: usize,
    source: ThreadPoolBuildError,
}

impl Threads {
    /// So many; one is the caller's own.
    ///
    /// # Errors
    /// The system gives no more.
    pub fn new(count: NonZero<usize>) -> Result<Self, ThreadsError> {
        let count = count.get();
        if count == 1 {
            return Ok(Self(None));
        }
        let pool = ThreadPoolBuilder::new().num_threads(count).build();
        Ok(Self(Some(pool.map_err(|source| ThreadsError { count, source })?)))
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
