//! Who is told what clients of views want to see, while they say it: whoever records it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::ViewState;
use tokio::sync::broadcast;

use crate::limits::FOLLOWED_STATES_MAX;

type Told = broadcast::Sender<Arc<ViewState>>;

/// The followers of all views. Clones are of the same ones.
///
/// # Invariants
/// - A view that nobody follows has no entry once its client has said something.
#[derive(Debug, Clone, Default)]
pub(super) struct Followers(Arc<Mutex<BTreeMap<String, Told>>>);

impl Followers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more of a view.
    pub(super) fn follow(&self, view: &str) -> broadcast::Receiver<Arc<ViewState>> {
        let mut all = self.lock();
        // Whoever went while no client said anything.
        all.retain(|_, told| told.receiver_count() > 0);
        let new = || broadcast::channel(FOLLOWED_STATES_MAX).0;
        all.entry(view.to_owned()).or_insert_with(new).subscribe()
    }

    /// Tells those of a view.
    pub(super) fn tell(&self, view: &str, state: &ViewState) {
        let mut all = self.lock();
        if let Some(told) = all.get(view)
            && told.send(Arc::new(state.clone())).is_err()
        {
            all.remove(view);
        }
    }

    /// A view has ended.
    pub(super) fn end(&self, view: &str) {
        self.lock().remove(view);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::super::parts::tests::state;
    use super::*;

    #[test]
    fn followers_hear_of_their_view_alone_until_it_ends() {
        let followers = Followers::default();
        followers.tell("a", &state(1, true));
        let mut heard = followers.follow("a");
        followers.tell("b", &state(2, true));
        assert_eq!(heard.try_recv(), Err(TryRecvError::Empty));
        followers.tell("a", &state(3, true));
        assert_eq!(heard.try_recv().map(|state| state.seq), Ok(3));
        followers.end("a");
        assert_eq!(heard.try_recv(), Err(TryRecvError::Closed));
    }

    #[test]
    fn nothing_is_kept_of_whom_nobody_follows() {
        let followers = Followers::default();
        drop((followers.follow("a"), followers.follow("b")));
        followers.tell("a", &state(1, true));
        assert_eq!(followers.lock().len(), 1);
        let _heard = followers.follow("c");
        assert!(followers.lock().keys().eq(["c"]));
    }
}
