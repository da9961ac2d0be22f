//! Jobs: a range of workunits that takes no memory until it is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::api::{JobState, JobStatus, ReplicaCounts};
use gleaner_protocol::job::{JobSpec, Task};
use gleaner_protocol::{HostName, JobId, Time};
use smallvec::SmallVec;

use super::{AccountIx, Ended, HostIx, WorkunitIx};
use crate::ability::AbilityIx;
use crate::core::Asked;
use crate::limits::{ATTEMPT_WORDS_BYTES_MAX, ATTEMPT_WORDS_MAX, SUSPECT_AFTER_HOSTS};

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
    /// When it was accepted, in microseconds of UTC.
    pub accepted_us: u64,
    /// When all of it is to be done, where somebody said.
    pub due: Option<Time>,
    /// Whether it goes on.
    pub phase: JobPhase,
    /// When it ended; the beginning of time where that was before this life of the broker.
    pub ended_at: Option<Time>,
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
    /// Whose it is.
    pub(crate) account: AccountIx,
    /// Hosts that failed or refused it since its last output, as many as make it suspect.
    pub(crate) unfit: SmallVec<[HostIx; 2]>,
    /// Who refused it last since its last output, and why.
    pub(crate) refusal: Option<(HostName, Arc<str>)>,
    /// The words of its failed attempts.
    words: BTreeSet<Arc<str>>,
    /// Goes into the tokens of its leases.
    pub(crate) asked: Asked,
    /// One more than the highest index that was ever touched.
    touched_end: u32,
}

/// When a job was accepted, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    /// In microseconds of UTC.
    pub(crate) utc_us: u64,
    /// Microseconds of UTC at [`Time::ZERO`].
    pub(crate) zero_us: u64,
}

impl Accepted {
    /// So many milliseconds later, as the core counts; at the beginning where that is before it.
    fn in_ms(self, later_ms: u64) -> Time {
        let due_us = self.utc_us.saturating_add(later_ms.saturating_mul(1000));
        Time::from_micros(due_us.saturating_sub(self.zero_us))
    }
}

impl Job {
    pub(crate) fn new(
        id: JobId,
        spec: Arc<JobSpec>,
        accepted: Accepted,
        (ability, account): (AbilityIx, AccountIx),
        ended: Ended,
    ) -> Self {
        Self {
            accepted_us: accepted.utc_us,
            due: spec.profile.due_ms.map(|due_ms| accepted.in_ms(due_ms)),
            id,
            asked: Asked::of(&spec),
            spec,
            phase: JobPhase::Active,
            ended_at: None,
            next: 0,
            open: BTreeMap::new(),
            ended,
            counts: ReplicaCounts::default(),
            pending: 0,
            ability,
            account,
            unfit: SmallVec::new(),
            refusal: None,
            words: BTreeSet::new(),
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
        self.touch(index);
    }

    /// Notes that an index is untouched no more: it is open, or has ended.
    pub(crate) fn touch(&mut self, index: u32) {
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

    /// Keeps the words of a failed attempt, equal ones once. Of very many others it is only kept
    /// that there were some.
    pub(crate) fn keep_words(&mut self, words: &str) -> Arc<str> {
        let words = &words[..words.floor_char_boundary(ATTEMPT_WORDS_BYTES_MAX)];
        let words = match self.words.contains(words) || self.words.len() < ATTEMPT_WORDS_MAX {
            true => words,
            false => "in words that are not kept: others of the job failed in too many others",
        };
        if let Some(known) = self.words.get(words) {
            return Arc::clone(known);
        }
        let words: Arc<str> = words.into();
        self.words.insert(Arc::clone(&words));
        words
    }

    /// Notes a host that failed or refused it; whether that is news.
    pub(crate) fn note_unfit(&mut self, host: HostIx) -> bool {
        let is_new = self.unfit.len() < SUSPECT_AFTER_HOSTS && !self.unfit.contains(&host);
        if is_new {
            self.unfit.push(host);
        }
        is_new
    }

    /// When it is due, in milliseconds of UTC, where somebody said.
    #[must_use]
    pub fn due_utc_ms(&self) -> Option<u64> {
        let due_ms = self.spec.profile.due_ms?;
        Some((self.accepted_us / 1_000).saturating_add(due_ms))
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
            project: self.spec.project.clone(),
            lane: self.spec.lane,
            application: match &self.spec.task {
                Task::Application(application) => Some(application.kernel.clone()),
                Task::Kernel(_) | Task::Command(_) | Task::Wasm(_) | Task::Frame(_) => None,
            },
            state,
            workunits: self.workunit_count(),
            decided: self.ended.decided(),
            failed: self.ended.failed(),
            open: u32::try_from(self.open.len()).expect("WORKUNITS_MAX fits u32"),
            pending: self.pending,
            due_ms: self.due_utc_ms(),
            chance_permille: None,
            expected_end_ms: None,
            replicas: self.counts,
        }
    }

    /// Whether nothing has happened to it, as far as is known: after a restart, leases that
    /// nobody has claimed yet are not.
    fn is_fresh(&self) -> bool {
        self.counts.leased == 0 && self.touched_end == 0
    }
}
