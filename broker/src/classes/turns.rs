//! Turns: what is compared is compared one by one for each workunit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gleaner_protocol::WorkunitId;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// The turns of all workunits. Whoever came first has its turn first.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<BTreeMap<WorkunitId, Weak<Lock<()>>>>>);

/// While somebody has it, nobody else has one of the same workunit.
pub(crate) struct Turn(#[expect(dead_code, reason = "held")] OwnedMutexGuard<()>);

impl Turns {
    /// Waits for a turn.
    pub(super) async fn of(&self, workunit: WorkunitId) -> Turn {
        Turn(self.lock(workunit).lock_owned().await)
    }

    fn lock(&self, workunit: WorkunitId) -> Arc<Lock<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(&workunit).and_then(Weak::upgrade) {
            return lock;
        }
        // Nobody has or waits for those of others.
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(workunit, Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use gleaner_protocol::JobId;

    use super::*;

    #[test]
    fn a_workunit_has_one_turn_at_a_time_and_is_forgotten_after_its_last() {
        let turns = Turns::default();
        let workunit = |index| WorkunitId { job: JobId::new(1), index };
        let take = |index| turns.of(workunit(index)).now_or_never();
        let (first, other) = (take(1), take(2));
        assert!(first.is_some() && other.is_some());
        assert!(take(1).is_none());
        drop(first);
        assert!(take(1).is_some());
        drop(other);
        let _last = take(3);
        assert_eq!(turns.0.lock().expect("nobody panicked").len(), 1);
    }
}
