//! Hosts of the model, and what runs on them.

use gleaner_protocol::{HostInfo, HostName, LeaseToken, ReplicaId, Span, Time};
use gleaner_scheduling::HostIx;

use super::answers::Character;
use super::availability::Presence;

/// A replica on a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replica {
    pub(super) token: LeaseToken,
    pub(super) id: ReplicaId,
    /// When it came to run; `None` while it stands still.
    pub(super) since: Option<Time>,
    /// How long it ran before that, and keeps.
    pub(super) done: Span,
    /// How long it ran before that in all.
    pub(super) spent: Span,
    /// How much of that is measured.
    pub(super) measured: Span,
    /// Tells this run of it from others.
    pub(super) run: u64,
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) info: HostInfo,
    /// Its number in the core, once it was given something.
    pub(super) number: Option<HostIx>,
    pub(super) is_farm: bool,
    pub(super) cores: u32,
    /// How long a workunit takes on it.
    pub(super) run_time: Span,
    pub(super) speed: f64,
    pub(super) character: Character,
    pub(super) presence: Presence,
    /// Whether its fragment is open, or its link is up.
    pub(super) is_open: bool,
    /// Replicas that it runs or keeps.
    pub(super) replicas: Vec<Replica>,
}

impl Host {
    pub(super) fn name(&self) -> HostName {
        self.info.name.clone()
    }

    pub(super) fn take(&mut self, token: LeaseToken) -> Option<Replica> {
        let at = self.replicas.iter().position(|replica| replica.token == token)?;
        Some(self.replicas.remove(at))
    }

    /// Cores that run nothing.
    pub(super) fn free(&self) -> u32 {
        self.cores - self.replicas.len() as u32
    }
}

impl Replica {
    /// One that has not begun.
    pub(super) fn new(token: LeaseToken, id: ReplicaId) -> Self {
        let (done, spent, measured) = (Span::ZERO, Span::ZERO, Span::ZERO);
        Self { token, id, since: None, done, spent, measured, run: 0 }
    }

    /// How long it has run in all.
    pub(super) fn spent(&self, now: Time) -> Span {
        self.spent + self.since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// What it has done so far and keeps as long as it runs.
    pub(super) fn holds(&self, now: Time) -> Span {
        self.done + self.since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// It stops running at `now`; it keeps what it did up to its last checkpoint, all of it where
    /// `is_frozen`.
    pub(super) fn stop(&mut self, now: Time, is_frozen: bool, checkpoint: Option<Span>) {
        let Some(since) = self.since.take() else { return };
        let ran = now.since(since);
        self.spent = self.spent + ran;
        let done = self.done + ran;
        self.done = match checkpoint {
            _ if is_frozen => done,
            Some(every) => {
                let every = every.as_micros();
                Span::from_micros(done.as_micros() / every * every)
            }
            None => Span::ZERO,
        };
    }
}
