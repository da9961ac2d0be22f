//! Jobs that have ended are forgotten after a while, where that is configured.

use std::collections::BTreeSet;

use gleaner_protocol::{JobId, Span, Time};

/// Jobs that have ended, by when they are to be forgotten. A job that ended in an earlier life of
/// the broker counts as ended when this one began: the journal does not know the time.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// How long they are kept; for ever where it is not given.
    keep: Option<Span>,
    due: BTreeSet<(Time, JobId)>,
}

impl Retention {
    pub(super) fn new(keep: Option<Span>) -> Self {
        Self { keep, due: BTreeSet::new() }
    }

    /// A job has ended.
    pub(super) fn ended(&mut self, now: Time, job: JobId) {
        self.due.extend(self.keep.map(|keep| (now + keep, job)));
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(time, _)| *time)
    }

    /// A job whose time has come. It may be forgotten already.
    pub(super) fn take_due(&mut self, now: Time) -> Option<JobId> {
        let (time, job) = *self.due.first().filter(|(time, _)| *time <= now)?;
        self.due.remove(&(time, job));
        Some(job)
    }
}
