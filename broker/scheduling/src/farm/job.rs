//! Jobs: a range of workunits that takes no memory until it is touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use gleaner_protocol::JobId;
use gleaner_protocol::api::{JobState, JobStatus, ReplicaCounts};
use gleaner_protocol::job::JobSpec;

use super::{Ended, WorkunitIx};
use crate::ability::AbilityIx;

/// Whether a job goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    /// It does.
    Active,
    /// All its workunits have ended.
    Ended,
    /// It was cancelled.
    Cancelled,
}

/// A job and where it stands.
#[derive(Debug)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// What was asked for.
    pub spec: Arc<JobSpec>,
    /// Whether it goes on.
    pub phase: JobPhase,
    /// First index that may be untouched.
    pub next: u32,
    /// Its open workunits by index.
    pub open: BTreeMap<u32, WorkunitIx>,
    /// Its ended workunits.
    pub ended: Ended,
    /// What has happened to its replicas.
    pub counts: ReplicaCounts,
    /// Its leased replicas.
    pub pending: u32,
    pub(crate) ability: AbilityIx,
}

impl Job {
    /// How many workunits it has.
    #[must_use]
    pub fn workunit_count(&self) -> u32 {
        self.spec.workunits.len()
    }

    /// Whether it has workunits that nobody has touched.
    #[must_use]
    pub fn has_untouched(&self) -> bool {
        self.phase == JobPhase::Active && self.next < self.workunit_count()
    }

    /// The next index that nobody has touched, leaving it behind.
    pub(crate) fn take_untouched(&mut self) -> Option<u32> {
        let index = self.peek_untouched()?;
        self.next = index + 1;
        self.settle();
        Some(index)
    }

    fn peek_untouched(&self) -> Option<u32> {
        if self.phase != JobPhase::Active {
            return None;
        }
        (self.next..self.workunit_count()).find(|index| self.is_untouched(*index))
    }

    /// Moves `next` over what is open or ended, so that [`Job::has_untouched`] is exact.
    pub(crate) fn settle(&mut self) {
        while self.next < self.workunit_count() && !self.is_untouched(self.next) {
            self.next += 1;
        }
    }

    pub(crate) fn is_untouched(&self, index: u32) -> bool {
        !self.open.contains_key(&index) && !self.ended.contains(index)
    }

    /// For its submitter.
    #[must_use]
    pub fn status(&self) -> JobStatus {
        let state = match self.phase {
            JobPhase::Cancelled => JobState::Cancelled,
            JobPhase::Ended if self.ended.failed() > 0 => JobState::Failed,
            JobPhase::Ended => JobState::Completed,
            JobPhase::Active if self.counts.leased == 0 && self.ended.decided() == 0 => {
                JobState::Queued
            }
            JobPhase::Active => JobState::Running,
        };
        JobStatus {
            job: self.id,
            name: self.spec.name.clone(),
            owner: self.spec.owner.clone(),
            lane: self.spec.lane,
            state,
            workunits: self.workunit_count(),
            decided: self.ended.decided(),
            failed: self.ended.failed(),
            open: u32::try_from(self.open.len()).expect("WORKUNITS_MAX fits u32"),
            pending: self.pending,
            replicas: self.counts,
        }
    }
}
