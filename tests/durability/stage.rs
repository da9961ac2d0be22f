//! What the players share: where the broker is, what it acknowledged, and how far the play is.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::api::{self, Api};
use crate::ledger::Ledger;

/// Where the play stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    /// Jobs are sent without end.
    Busy,
    /// No more jobs; what is endless is cancelled.
    Closing,
}

/// A broker that listens.
#[derive(Debug, Clone)]
pub(crate) struct Presence {
    pub(crate) url: String,
    /// Which start of it this is.
    pub(crate) start: u32,
}

/// See the module's page.
pub(crate) struct Stage {
    ledger: Mutex<Ledger>,
    changes: watch::Sender<u64>,
    presence: watch::Sender<Option<Presence>>,
    act: watch::Sender<Act>,
    pub(crate) client: reqwest::Client,
}

impl Stage {
    pub(crate) fn new(ledger: Ledger) -> Arc<Self> {
        Arc::new(Self {
            ledger: Mutex::new(ledger),
            changes: watch::Sender::new(0),
            presence: watch::Sender::new(None),
            act: watch::Sender::new(Act::Busy),
            client: api::client(),
        })
    }

    /// The ledger; those who wait for news look when it is given back.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no player panics with the ledger in hand")
    }

    /// Changes the ledger and tells those who wait for news.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let changed = change(&mut self.ledger());
        self.changes.send_modify(|count| *count += 1);
        changed
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, so: impl Fn(&Ledger) -> bool) {
        let mut changes = self.changes.subscribe();
        while !so(&self.ledger()) {
            changes.changed().await.expect("the stage stands");
        }
    }

    pub(crate) fn enter(&self, url: String, start: u32) -> Api {
        let api = Api::at(&self.client, &url);
        self.presence.send_replace(Some(Presence { url, start }));
        api
    }

    pub(crate) fn leave(&self) {
        self.presence.send_replace(None);
    }

    /// The broker of a later start than `after`, once it listens.
    pub(crate) async fn broker_after(&self, after: u32) -> (Api, u32) {
        let mut presence = self.presence.subscribe();
        let later = |now: &Option<Presence>| now.as_ref().is_some_and(|now| now.start > after);
        let now = presence.wait_for(later).await.expect("the stage stands");
        let Presence { url, start } = now.clone().expect("it is there");
        (Api::at(&self.client, &url), start)
    }

    /// Waits until the broker of this start is gone.
    pub(crate) async fn gone(&self, start: u32) {
        let mut presence = self.presence.subscribe();
        let gone = |now: &Option<Presence>| now.as_ref().is_none_or(|now| now.start != start);
        drop(presence.wait_for(gone).await.expect("the stage stands"));
    }

    pub(crate) fn act(&self) -> Act {
        *self.act.borrow()
    }

    pub(crate) fn close(&self) {
        self.act.send_replace(Act::Closing);
    }

    /// Waits for the closing act.
    pub(crate) async fn closing(&self) {
        let mut act = self.act.subscribe();
        drop(act.wait_for(|act| *act == Act::Closing).await.expect("the stage stands"));
    }
}
