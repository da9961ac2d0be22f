//! The view from outside: what submitters and agents were told, and whether it stays true.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::Verdict;
use gleaner_protocol::{Digest, HostName, JobId, LeaseToken, WorkunitId};
use gleaner_scheduling::{Core, Effect, Fact, HostIx};

use super::{Breach, StormReport};

/// Knows only what crossed the broker's border.
#[derive(Default)]
pub(super) struct Watcher {
    jobs: BTreeSet<JobId>,
    votes: BTreeMap<WorkunitId, BTreeMap<HostName, LeaseToken>>,
    decided: BTreeMap<WorkunitId, Digest>,
    /// What each connected host was given and its fragment, as the broker knows them.
    given: BTreeMap<HostName, Given>,
}

#[derive(Default)]
struct Given {
    slots: u32,
    held: BTreeSet<LeaseToken>,
}

impl Watcher {
    /// A host announced what it gives.
    pub(super) fn fragment(&mut self, host: &HostName, slots: u32) {
        self.given.entry(host.clone()).or_default().slots = slots;
    }

    /// A host connected: it holds what it will be told it may keep, replicas that are done aside.
    pub(super) fn joined(&mut self, host: &HostName, slots: u32) {
        self.given.insert(host.clone(), Given { slots, held: BTreeSet::new() });
    }

    pub(super) fn left(&mut self, host: &HostName) {
        self.given.remove(host);
    }

    pub(super) fn ended(&mut self, host: &HostName, token: LeaseToken) {
        if let Some(given) = self.given.get_mut(host) {
            given.held.remove(&token);
        }
    }

    /// The core wants something done. `is_done` tells of a token whether its replica has ended.
    pub(super) fn wanted(
        &mut self,
        effects: &[Effect],
        name: impl Fn(HostIx) -> HostName,
        is_done: impl Fn(LeaseToken) -> bool,
    ) -> Result<(), Breach> {
        for effect in effects {
            let (host, given, taken): (_, Vec<_>, _) = match effect {
                Effect::Lease { host, token, .. } => (*host, vec![*token], None),
                Effect::Welcome { host, adopted } => {
                    let running = adopted.iter().copied().filter(|token| !is_done(*token));
                    (*host, running.collect(), None)
                }
                Effect::Abort { host, token, .. } => (*host, Vec::new(), Some(*token)),
                Effect::Persist(fact) => {
                    self.decision(fact)?;
                    continue;
                }
                _ => continue,
            };
            let host = name(host);
            let entry = self.given.entry(host).or_default();
            entry.held.extend(given);
            if let Some(token) = taken {
                entry.held.remove(&token);
            }
        }
        // Between two inputs, nobody holds more than fits.
        let over = self.given.iter().find(|(_, given)| given.held.len() > given.slots as usize);
        match over {
            None => Ok(()),
            Some((host, Given { slots, held })) => Err(Breach::OverFragment {
                host: host.to_string(),
                held: held.len(),
                slots: *slots,
            }),
        }
    }

    fn decision(&mut self, fact: &Fact) -> Result<(), Breach> {
        match fact {
            Fact::Decided { workunit, digest } => {
                let before = self.decided.get(workunit);
                if before.is_some_and(|before| before != digest) {
                    return Err(Breach::DecisionChanged(*workunit));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Something was written, or told to the outside after it was.
    pub(super) fn performed(
        &mut self,
        effect: &Effect,
        report: &mut StormReport,
    ) -> Result<(), Breach> {
        match effect {
            Effect::Submitted { result: Ok(job), .. } => {
                self.jobs.insert(*job);
                report.jobs_accepted += 1;
            }
            Effect::Lease { .. } => report.leases += 1,
            Effect::Welcome { adopted, .. } => report.adopted += adopted.len() as u64,
            Effect::Persist(fact) => self.written(fact)?,
            Effect::Verdict { verdict: Verdict::Counted, token, workunit, .. } => {
                report.counted += 1;
                // A replica that failed is no vote, but its verdict is the same.
                let votes = self.votes.get(workunit);
                let is_written = votes.is_some_and(|votes| votes.values().any(|of| of == token));
                if !is_written {
                    return Err(Breach::VoteLost(*workunit));
                }
            }
            Effect::Verdict { .. } => report.refused += 1,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn written(&mut self, fact: &Fact) -> Result<(), Breach> {
        match fact {
            Fact::Voted { workunit, host, token, .. }
            | Fact::ReplicaFailed { workunit, host, token, .. } => {
                let of_host = self.votes.entry(*workunit).or_default();
                if of_host.insert(host.clone(), *token).is_some() {
                    return Err(Breach::SecondVote(*workunit, host.to_string()));
                }
            }
            Fact::Decided { workunit, digest } => {
                self.decided.insert(*workunit, *digest);
            }
            _ => {}
        }
        Ok(())
    }

    /// A broker came back: does it still know what was told? `durable` is all that is on disk; it
    /// may be more than was told.
    pub(super) fn restarted(&mut self, core: &Core, durable: &[Fact]) -> Result<(), Breach> {
        self.given.clear();
        if let Some(job) = self.jobs.iter().find(|job| core.farm().job(**job).is_none()) {
            return Err(Breach::JobLost(*job));
        }
        let digest = |id: &WorkunitId| core.farm().job(id.job)?.ended.digest(id.index);
        if let Some((id, _)) = self.decided.iter().find(|(id, of)| digest(id) != Some(**of)) {
            return Err(Breach::DecisionChanged(*id));
        }
        for (id, votes) in &self.votes {
            let Some(open) = core.farm().find(*id) else { continue };
            let counted = core.farm().workunit(open).votes.len();
            if counted < votes.len() {
                return Err(Breach::VoteLost(*id));
            }
        }
        // What came to be on disk in the moment of the crash counts from now on.
        for fact in durable {
            match fact {
                Fact::Voted { workunit, host, token, .. }
                | Fact::ReplicaFailed { workunit, host, token, .. } => {
                    let of_host = self.votes.entry(*workunit).or_default();
                    if of_host.insert(host.clone(), *token).is_some_and(|of| of != *token) {
                        return Err(Breach::SecondVote(*workunit, host.to_string()));
                    }
                }
                Fact::Decided { workunit, digest } => {
                    self.decided.insert(*workunit, *digest);
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn jobs(&self) -> &BTreeSet<JobId> {
        &self.jobs
    }

    pub(super) fn decided(&self) -> &BTreeMap<WorkunitId, Digest> {
        &self.decided
    }
}
