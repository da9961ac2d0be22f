//! What every policy of partitioned datasets has to know.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{ChunkId, JobId, Span, Time, WorkunitId};

use super::tasks::{Stage, Tasks};
use crate::explain::WaitReason;
use crate::farm::{Farm, Host, HostIx, JobPhase};
use crate::policy::Change;
use crate::{Desk, Violation};

/// Holders of a copy that are named to whoever asks.
const HOLDERS_NAMED_MAX: usize = 4;

/// The jobs of the lane, in order of submission, and the hosts that wait for work.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) jobs: BTreeMap<JobId, Tasks>,
    /// Hosts that asked and have room. Some may have lost it since.
    pub(crate) idle: BTreeSet<HostIx>,
    /// Since when there may be something for them that there was not before.
    stirred: Option<Time>,
    /// When something last changed for the lane.
    changed: Option<Time>,
    /// Whether some host has room in the place of replicas of lanes behind: it does not ask for that.
    is_lent: bool,
}

/// A replica was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) job: JobId,
    pub(crate) host: HostIx,
    /// From its lease to its report.
    pub(crate) took: Span,
}

impl Board {
    /// Takes only jobs that say what their workunits read.
    pub(crate) fn admit(spec: &JobSpec) -> Result<(), String> {
        match spec.profile.reads {
            Some(_) => Ok(()),
            None => Err("this lane runs workunits where copies of their chunks are; \
                 say in profile.reads which dataset they read"
                .into()),
        }
    }

    /// Takes note of a change, and says so where a replica was reported.
    pub(crate) fn observe(&mut self, now: Time, farm: &Farm, change: Change) -> Option<Reported> {
        let is_of_others = match change {
            Change::CopyChanged { chunk, .. } => !self.is_read(chunk),
            _ => false,
        };
        if is_of_others {
            return None;
        }
        self.changed = Some(now);
        if !matches!(change, Change::HostChanged(_) | Change::JobTouched(_)) {
            self.stir(now);
        }
        match change {
            Change::JobAdded(id) => {
                let tasks = farm.job(id).and_then(|job| Tasks::new(now, farm, job));
                self.jobs.extend(tasks.map(|tasks| (id, tasks)));
            }
            Change::JobEnded(id) => drop(self.jobs.remove(&id)),
            Change::WorkunitChanged(workunit) => {
                if let Some(tasks) = self.jobs.get_mut(&farm.workunit(workunit).id.job) {
                    tasks.sync(now, farm, workunit);
                }
            }
            Change::WorkunitEnded(workunit) => {
                let WorkunitId { job, index } = farm.workunit(workunit).id;
                if let Some(tasks) = self.jobs.get_mut(&job) {
                    tasks.end(index);
                }
            }
            Change::DecidedBefore(WorkunitId { job, index }) => {
                if let Some(tasks) = self.jobs.get_mut(&job) {
                    tasks.end(index);
                }
            }
            Change::CopyChanged { host, chunk, held } => {
                for tasks in self.jobs.values_mut() {
                    if let Some(index) = tasks.reader_of(chunk) {
                        tasks.set_copy(index, host, held);
                    }
                }
            }
            Change::Completed { workunit, host, took: Some(_) } => {
                let WorkunitId { job, index } = farm.workunit(workunit).id;
                let took = self.jobs.get(&job)?.took(now, index, host)?;
                return Some(Reported { job, host, took });
            }
            Change::HostForgotten(host) => drop(self.idle.remove(&host)),
            Change::Completed { took: None, .. }
            | Change::JobTouched(_)
            | Change::HostChanged(_) => {}
        }
        None
    }

    /// There may be something for the hosts that wait that there was not before.
    pub(crate) fn stir(&mut self, now: Time) {
        self.stirred.get_or_insert(now);
    }

    /// Whether one of the jobs reads this chunk.
    fn is_read(&self, chunk: ChunkId) -> bool {
        self.jobs.values().any(|tasks| tasks.reader_of(chunk).is_some())
    }

    /// Whether something changed for the lane just now.
    pub(crate) fn has_changed(&self, now: Time) -> bool {
        self.changed == Some(now)
    }

    /// When the hosts that have room are to be looked at.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.stirred.filter(|_| self.is_lent || !self.idle.is_empty())
    }

    /// The hosts that wait and still have room, and those with room in the place of lanes behind, in
    /// order.
    pub(crate) fn take_idle(&mut self, desk: &Desk<'_>) -> Vec<HostIx> {
        self.stirred = None;
        let mut idle = std::mem::take(&mut self.idle);
        if self.jobs.is_empty() {
            self.is_lent = false;
        } else {
            let farm = desk.farm();
            let lent = farm.hosts().filter(|(host, of)| of.free() == 0 && desk.room(*host) > 0);
            let before = idle.len();
            idle.extend(lent.map(|(host, _)| host));
            self.is_lent = idle.len() > before;
        }
        idle.into_iter().filter(|host| desk.room(*host) > 0).collect()
    }

    pub(crate) fn explain(&self, farm: &Farm, id: WorkunitId) -> Vec<WaitReason> {
        let Some(tasks) = self.jobs.get(&id.job) else { return Vec::new() };
        if let Some((window, first)) = tasks.is_beyond(id.index) {
            return vec![WaitReason::BeyondWindow { window, first }];
        }
        let all = tasks.holders(id.index);
        let stands = |host: &HostIx| {
            let host = farm.host(*host);
            let stands = match () {
                () if !host.connected => "away",
                () if host.fragment.cores == 0 => "gives no cores now",
                () if host.free() == 0 => "computes something else",
                () => "free",
            };
            (host.info.name.clone(), stands)
        };
        let holders: Vec<_> = all.iter().take(HOLDERS_NAMED_MAX).map(stands).collect();
        let more = all.len() - holders.len();
        let keeps = |host: &Host| host.connected && host.info.chunk_cache_mib > 0;
        let keepers = farm.hosts().filter(|(_, host)| keeps(host)).count();
        let reads = farm.job(id.job).and_then(|job| job.spec.profile.reads);
        let bytes = reads.map_or(0, |reads| reads.chunk_bytes);
        let (coming, copy_ms) = (None, None);
        vec![WaitReason::CopiesElsewhere { holders, more, keepers, bytes, coming, copy_ms }]
    }

    /// `queue-members`: stages, runs and copies are those of the farm. `nobody-idles`: no host
    /// asks that has a copy of a chunk of the window whose workunit waits; only where the policy
    /// `never_holds_back`.
    pub(crate) fn check(
        &self,
        farm: &Farm,
        lane: Lane,
        window: u32,
        never_holds_back: impl Fn(JobId, u32) -> bool,
    ) -> Result<(), Violation> {
        let of_lane = farm.jobs().filter(|job| job.spec.lane == lane);
        for job in of_lane.filter(|job| job.phase == JobPhase::Active) {
            let Some(tasks) = self.jobs.get(&job.id) else {
                let is_known = job.spec.profile.reads.is_none();
                let detail = format!("{} is not listed", job.id);
                return if is_known {
                    Ok(())
                } else {
                    Err(Violation::new("queue-members", detail))
                };
            };
            tasks.check(farm, job).map_err(|detail| {
                Violation::new("queue-members", format!("of {}: {detail}", job.id))
            })?;
            for (host, entry) in farm.hosts().filter(|(_, entry)| entry.free() > 0) {
                let mut held = tasks.of_host(host, window);
                let waiting = held.find(|index| {
                    tasks.stage(*index) == Stage::Ready
                        && never_holds_back(job.id, *index)
                        && tasks.may_run(farm, *index, host)
                });
                if let Some(index) = waiting {
                    let detail = format!("{}/{index} waits and {} asks", job.id, entry.info.name);
                    return Err(Violation::new("nobody-idles", detail));
                }
            }
        }
        let ended = self
            .jobs
            .keys()
            .find(|job| farm.job(**job).is_none_or(|job| job.phase != JobPhase::Active));
        match ended {
            Some(job) => Err(Violation::new("queue-members", format!("{job} has ended"))),
            None => Ok(()),
        }
    }
}
