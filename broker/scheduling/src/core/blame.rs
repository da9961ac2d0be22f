//! Whose fault it is that a replica came to nothing: its host's, which backs off then, or its job's.

use std::sync::Arc;

use gleaner_protocol::JobId;

use super::Core;
use crate::farm::{HostIx, JobPhase, Leased, Step};
use crate::limits::{LOOKED_AT_AGAIN_MAX, SUSPECT_AFTER_HOSTS};
use crate::policy::Change;

/// What a host did with a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It failed.
    Failed,
    /// It was refused.
    Refused,
    /// Something of the host was in the way, whatever the job.
    InTrouble,
}

impl Core {
    /// A replica came to nothing. Its host backs off from what the job asks for, twice as long
    /// each time, unless the job is suspect: then nobody is held up by what it fails at, and
    /// nobody for longer than the first time by what it is refused for.
    pub(super) fn blame(&mut self, host: HostIx, id: JobId, unfit: Unfit, why: &Arc<str>) {
        let job = self.farm.jobs.get_mut(&id).expect("a workunit's job is known");
        let ability = job.ability;
        if unfit != Unfit::InTrouble && job.note_unfit(host) {
            self.farm.hosts.mention(host);
        }
        let is_suspect = unfit != Unfit::InTrouble && self.is_suspect(id);
        if is_suspect {
            self.pardon(id);
        }
        let step = match (unfit, is_suspect) {
            (Unfit::Failed, true) => return,
            (Unfit::Refused, true) => Step::First,
            _ => Step::Doubled,
        };
        if step == Step::Doubled {
            self.farm.hosts.halve_quota(host, self.farm.now);
        }
        for ability in self.farm.abilities.alike(ability) {
            self.farm.hosts.back_off(self.farm.now, host, ability, id, why, step);
        }
    }

    /// A host gave an output: it can do that, and the job can be done.
    pub(super) fn prove(&mut self, host: HostIx, id: JobId) {
        let job = self.farm.jobs.get_mut(&id).expect("a workunit's job is known");
        job.refusal = None;
        let ability = job.ability;
        self.farm.clear_unfit(id);
        let backed_off = self.farm.hosts.get(host).backs_off(ability).is_some();
        for ability in self.farm.abilities.alike(ability) {
            self.farm.hosts.clear_backoff(host, ability);
        }
        if backed_off {
            self.tell_all(Change::HostChanged(host));
        }
    }

    /// Whether a job is held to be at fault itself: since its last output all awaited hosts failed or
    /// refused it that could run it, or [`SUSPECT_AFTER_HOSTS`] of them did.
    fn is_suspect(&self, id: JobId) -> bool {
        let job = self.farm.jobs.get(&id).expect("a workunit's job is known");
        job.unfit.len() >= SUSPECT_AFTER_HOSTS
            || !self.farm.hosts().any(|(index, entry)| {
                entry.is_awaited(self.farm.now)
                    && entry.offers(job.ability)
                    && !job.unfit.contains(&index)
            })
    }

    /// What a job had hosts back off for was not their fault: the job is suspect, or a workunit of it
    /// has failed for good on several of them.
    pub(super) fn pardon(&mut self, id: JobId) {
        let job = self.farm.jobs.get(&id).expect("a workunit's job is known");
        let ability = job.ability;
        for host in job.unfit.clone() {
            let backoffs = &self.farm.hosts.get(host).backoffs;
            let mut of_job = backoffs.iter().filter(|of| of.ability == ability && of.job == id);
            if let Some(halved) = of_job.next().map(|of| of.halved) {
                for ability in self.farm.abilities.alike(ability) {
                    self.farm.hosts.clear_backoff(host, ability);
                }
                self.farm.hosts.double_quota(host, halved);
                self.tell_all(Change::HostChanged(host));
            }
        }
    }

    /// A host cannot do a replica, and the workunit is not to blame: it waits again, first for
    /// hosts that have not tried it.
    pub(super) fn refuse(&mut self, lease: Leased, unfit: Unfit, why: &str) {
        let Leased { host, workunit, .. } = lease;
        let id = self.farm.workunits.get(workunit).id.job;
        let job = self.farm.jobs.get_mut(&id).expect("a workunit's job is known");
        let why = job.keep_words(why);
        let name = self.farm.hosts.get(host).info.name.clone();
        job.refusal = Some((name, Arc::clone(&why)));
        let dropped = self.farm.workunits.get_mut(workunit).push_refusal(host);
        self.farm.hosts.mention(host);
        dropped.into_iter().for_each(|dropped| self.farm.hosts.drop_mention(dropped));
        self.farm.troubled.insert(workunit);
        self.blame(host, id, unfit, &why);
        self.give_back(lease);
    }

    /// The hosts have changed: whoever waited for one of them may have to do with others.
    pub(super) fn look_again(&mut self) {
        let troubled: Vec<_> =
            self.farm.troubled.iter().take(LOOKED_AT_AGAIN_MAX).copied().collect();
        for workunit in troubled {
            let job = self.farm.workunits.get(workunit).id.job;
            if self.farm.job(job).is_some_and(|job| job.phase == JobPhase::Active) {
                self.workunit_changed(workunit);
            }
        }
    }
}
