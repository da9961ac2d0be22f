//! Jobs: a range of workunits that takes no memory until it is touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use gleaner_protocol::JobId;
use gleaner_protocol::api::{JobState, JobStatus, ReplicaCounts};
use gleaner_protocol::job::{JobSpec, Task};

use super::{Ended, WorkunitIx};
use crate::ability::AbilityIx;
use crate::core::Asked;

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
    /// Goes into the tokens of its leases.
    pub(crate) asked: Asked,
    /// One more than the highest index that was ever touched.
    touched_end: u32,
}

impl Job {
    pub(crate) fn new(id: JobId, spec: Arc<JobSpec>, ability: AbilityIx) -> Self {
        Self {
            id,
            asked: Asked::of(&spec),
            spec,
            phase: JobPhase::Active,
            next: 0,
            open: BTreeMap::new(),
            ended: Ended::default(),
            counts: ReplicaCounts::default(),
            pending: 0,
            ability,
            touched_end: 0,
        }
    }

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

    /// The next index that nobody has touched.
    pub(crate) fn next_untouched(&self) -> Option<u32> {
        self.has_untouched().then_some(self.next)
    }

    /// Enters an open workunit at an untouched index.
    pub(crate) fn open_at(&mut self, index: u32, workunit: WorkunitIx) {
        self.open.insert(index, workunit);
        self.touched_end = self.touched_end.max(index + 1);
        if index == self.next {
            self.next += 1;
        }
        while self.next < self.touched_end && !self.is_untouched(self.next) {
            self.next += 1;
        }
    }

    pub(crate) fn is_untouched(&self, index: u32) -> bool {
        index >= self.touched_end
            || (!self.open.contains_key(&index) && !self.ended.contains(index))
    }

    /// For its submitter.
    #[must_use]
    pub fn status(&self) -> JobStatus {
        let state = match self.phase {
            JobPhase::Cancelled => JobState::Cancelled,
            JobPhase::Ended if self.ended.failed() > 0 => JobState::Failed,
            JobPhase::Ended => JobState::Completed,
            JobPhase::Active if self.is_fresh() => JobState::Queued,
            JobPhase::Active => JobState::Running,
        };
        JobStatus {
            job: self.id,
            name: self.spec.name.clone(),
            owner: self.spec.owner.clone(),
            lane: self.spec.lane,
            application: match &self.spec.task {
                Task::Application(application) => Some(application.kernel.clone()),
                Task::Kernel(_) | Task::Command(_) | Task::Wasm(_) => None,
            },
            state,
            workunits: self.workunit_count(),
            decided: self.ended.decided(),
            failed: self.ended.failed(),
            open: u32::try_from(self.open.len()).expect("WORKUNITS_MAX fits u32"),
            pending: self.pending,
            replicas: self.counts,
        }
    }

    /// Whether nothing has happened to it, as far as is known: after a restart, leases that
    /// nobody has claimed yet are not.
    fn is_fresh(&self) -> bool {
        self.counts.leased == 0 && self.touched_end == 0
    }
}
