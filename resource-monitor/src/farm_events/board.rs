//! What is known of a farm's messages, and who is woken by them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gleaner_protocol::api::FarmEventsStatus;
use tokio::sync::Notify;
use tracing::{info, warn};

/// Where the link says what it hears, the poller waits for it, and people look.
#[derive(Debug, Default)]
pub(crate) struct EventBoard {
    changed: Notify,
    /// None where nobody listens.
    view: Mutex<Option<FarmEventsStatus>>,
}

impl EventBoard {
    /// What is known; none where nobody listens.
    pub(crate) fn view(&self) -> Option<FarmEventsStatus> {
        self.lock().clone()
    }

    /// Ends when something has changed, once for all that changed meanwhile.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn begin(&self, url: String) {
        let view = FarmEventsStatus { url, is_connected: false, trouble: None, heard: 0 };
        *self.lock() = Some(view);
    }

    /// Who was deaf until now may have missed something.
    pub(super) fn connected(&self) {
        if let Some(view) = &mut *self.lock() {
            view.is_connected = true;
            view.trouble = None;
            info!(url = view.url, "the farm says when something changes");
        }
        self.changed.notify_one();
    }

    /// A message came.
    pub(crate) fn heard(&self) {
        if let Some(view) = &mut *self.lock() {
            view.heard += 1;
        }
        self.changed.notify_one();
    }

    /// Said once, until it is connected again.
    pub(super) fn lost(&self, trouble: String) {
        if let Some(view) = &mut *self.lock() {
            if view.is_connected || view.trouble.is_none() {
                let url = &view.url;
                warn!(url, trouble, "the farm's messages are not heard: polls in turn go on");
            }
            view.is_connected = false;
            view.trouble = Some(trouble);
        }
    }

    /// No code that holds it can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Option<FarmEventsStatus>> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn what_comes_while_nobody_waits_wakes_once() {
        let board = EventBoard::default();
        assert_eq!(board.view(), None);
        board.begin("mqtt://farm".into());
        board.connected();
        (0..1_000).for_each(|_| board.heard());
        board.changed().await;
        let mut again = pin!(board.changed());
        let is_woken = poll_fn(|context| Poll::Ready(again.as_mut().poll(context).is_ready()));
        assert!(!is_woken.await);
        board.lost("gone".into());
        let view = board.view().expect("somebody listens");
        assert_eq!((view.heard, view.is_connected), (1_000, false));
        assert_eq!(view.trouble.as_deref(), Some("gone"));
    }
}
