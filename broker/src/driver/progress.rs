//! Progress of jobs for the event stream: often enough for people, never more.

use std::collections::BTreeSet;

use gleaner_protocol::api::ProgressEvent;
use gleaner_protocol::{JobId, Time};
use gleaner_scheduling::Core;

use super::decided::Decided;
use crate::limits::PROGRESS_INTERVAL;

/// Jobs that changed since they were told of.
#[derive(Debug, Default)]
pub(super) struct Progress {
    changed: BTreeSet<JobId>,
    next: Option<Time>,
}

impl Progress {
    pub(super) fn changed(&mut self, now: Time, job: JobId) {
        self.changed.insert(job);
        self.next.get_or_insert(now + PROGRESS_INTERVAL);
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    /// Tells of everything that changed, when the interval has gone by.
    pub(super) fn emit_due<M>(&mut self, now: Time, core: &Core, turn: &mut Decided<M>) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        self.next = None;
        for id in std::mem::take(&mut self.changed) {
            turn.events.extend(core.farm().job(id).map(|job| {
                let status = job.status();
                ProgressEvent::JobProgress {
                    job: id,
                    state: status.state,
                    decided: status.decided,
                    failed: status.failed,
                }
            }));
        }
    }
}
