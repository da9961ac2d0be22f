//! Qinit: jobs with untouched workunits, served in turn.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gleaner_protocol::{JobId, OwnerName};
use priority_queue::PriorityQueue;
use rustc_hash::FxBuildHasher;

use super::Change;
use crate::ability::AbilityIx;
use crate::farm::{Farm, Job};

type TurnQueue<T> = PriorityQueue<T, Reverse<u64>, FxBuildHasher>;

/// Owners in turn, and each owner's jobs in turn, so that ten workunits do not wait behind a
/// million. All untouched workunits have the key 1, so the published order leaves this open.
///
/// A job stands for its range of untouched workunits: the queue's size does not depend on
/// theirs. Jobs of different abilities are in queues of their own, so that what a host cannot
/// run is not in its way and does not lose its turn.
///
/// # Invariants
/// - An owner is in the queue of an ability if and only if one of its jobs with that ability is,
///   with the same turn in all of them.
/// - Who was served waits until everyone who was there has been.
#[derive(Default)]
pub(super) struct Turns {
    by_ability: Vec<TurnQueue<OwnerName>>,
    owners: BTreeMap<OwnerName, Owner>,
    turn: u64,
}

struct Owner {
    turn: u64,
    jobs: BTreeMap<AbilityIx, TurnQueue<JobId>>,
}

/// What Qinit needs to know of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn<'a> {
    pub(super) owner: &'a OwnerName,
    pub(super) job: JobId,
    pub(super) ability: AbilityIx,
}

impl<'a> Turn<'a> {
    pub(super) fn of(job: &'a Job) -> Self {
        Self { owner: &job.spec.owner, job: job.id, ability: job.ability }
    }
}

impl Turns {
    /// Whether this job is in it.
    pub(super) fn contains(&self, Turn { owner, job, ability }: Turn<'_>) -> bool {
        let jobs = self.owners.get(owner).and_then(|owner| owner.jobs.get(&ability));
        jobs.is_some_and(|jobs| jobs.contains(&job))
    }

    /// Takes note of what a change says of untouched workunits. `true` where there are new ones.
    pub(super) fn observe(&mut self, farm: &Farm, change: Change) -> bool {
        match change {
            Change::JobAdded(id) => {
                let job = farm.job(id).filter(|job| job.has_untouched());
                if let Some(job) = job {
                    self.add(Turn::of(job));
                }
                job.is_some()
            }
            Change::JobTouched(id) | Change::JobEnded(id) => {
                if let Some(job) = farm.job(id) {
                    self.remove(Turn::of(job));
                }
                false
            }
            _ => false,
        }
    }

    /// Enters a job at the end of its owner's round.
    pub(super) fn add(&mut self, Turn { owner, job, ability }: Turn<'_>) {
        self.turn += 1;
        let turn = self.turn;
        let entry = self
            .owners
            .entry(owner.clone())
            .or_insert_with(|| Owner { turn, jobs: BTreeMap::new() });
        entry.jobs.entry(ability).or_default().push(job, Reverse(turn));
        if self.by_ability.len() <= ability.get() {
            self.by_ability.resize_with(ability.get() + 1, TurnQueue::default);
        }
        self.by_ability[ability.get()].push(owner.clone(), Reverse(entry.turn));
    }

    /// Takes a job out.
    pub(super) fn remove(&mut self, Turn { owner, job, ability }: Turn<'_>) {
        let Some(entry) = self.owners.get_mut(owner) else { return };
        let Some(jobs) = entry.jobs.get_mut(&ability) else { return };
        jobs.remove(&job);
        if jobs.is_empty() {
            entry.jobs.remove(&ability);
            self.by_ability[ability.get()].remove(owner);
        }
        if entry.jobs.is_empty() {
            self.owners.remove(owner);
        }
    }

    /// The job whose turn it is among those that need an ability that `accepts` lets through.
    pub(super) fn first(&self, accepts: impl Fn(AbilityIx) -> bool) -> Option<JobId> {
        let (_, owner) = self
            .by_ability
            .iter()
            .enumerate()
            .filter_map(|(index, owners)| owners.peek().map(|(owner, turn)| (index, owner, turn)))
            .filter(|(index, ..)| accepts(AbilityIx::from_index(*index)))
            .map(|(_, owner, Reverse(turn))| (*turn, owner))
            .min()?;
        let jobs = &self.owners.get(owner)?.jobs;
        let heads = jobs.iter().filter(|(ability, _)| accepts(**ability));
        heads
            .filter_map(|(_, jobs)| jobs.peek())
            .map(|(job, Reverse(turn))| (*turn, *job))
            .min()
            .map(|(_, job)| job)
    }

    /// Sends a job and its owner to the end of the round.
    pub(super) fn served(&mut self, Turn { owner, job, ability }: Turn<'_>) {
        let Some(entry) = self.owners.get_mut(owner) else { return };
        self.turn += 1;
        entry.turn = self.turn;
        for with in entry.jobs.keys() {
            self.by_ability[with.get()].change_priority(owner, Reverse(self.turn));
        }
        if let Some(jobs) = entry.jobs.get_mut(&ability) {
            jobs.change_priority(&job, Reverse(self.turn));
        }
    }

    /// The first job that is in it but should not be, or the other way round.
    pub(super) fn difference(&self, farm: &Farm, wanted: impl Fn(&Job) -> bool) -> Option<JobId> {
        let wrong = farm.jobs().find(|job| wanted(job) != self.contains(Turn::of(job)));
        let queues = self.owners.values().flat_map(|owner| owner.jobs.values());
        let mut stray = queues.flat_map(PriorityQueue::iter).map(|(job, _)| *job);
        wrong.map(|job| job.id).or_else(|| stray.find(|job| farm.job(*job).is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerName {
        OwnerName::new(name).expect("a plain name")
    }

    fn turn(owner: &OwnerName, job: u64, ability: usize) -> Turn<'_> {
        Turn { owner, job: JobId::new(job), ability: AbilityIx::from_index(ability) }
    }

    #[test]
    fn owners_take_turns_and_so_do_their_jobs() {
        let (ann, bob) = (owner("ann"), owner("bob"));
        let all = [turn(&ann, 1, 0), turn(&ann, 2, 0), turn(&bob, 3, 0)];
        let mut turns = Turns::default();
        all.iter().for_each(|turn| turns.add(*turn));
        let mut served = Vec::new();
        for _ in 0..6 {
            let job = turns.first(|_| true).expect("three jobs wait");
            turns.served(all[job.get() as usize - 1]);
            served.push(job.get());
        }
        assert_eq!(served, [1, 3, 2, 3, 1, 3]);
    }

    #[test]
    fn a_host_that_cannot_run_the_first_gets_the_next_and_the_first_keeps_its_turn() {
        let (ann, bob) = (owner("ann"), owner("bob"));
        let mut turns = Turns::default();
        turns.add(turn(&ann, 1, 0));
        turns.add(turn(&ann, 2, 1));
        turns.add(turn(&bob, 3, 1));
        let can_run_1 = |ability: AbilityIx| ability.get() == 1;
        assert_eq!(turns.first(can_run_1), Some(JobId::new(2)));
        turns.served(turn(&ann, 2, 1));
        assert_eq!(turns.first(can_run_1), Some(JobId::new(3)), "it is bob's turn now");
        turns.served(turn(&bob, 3, 1));
        assert_eq!(turns.first(|_| true), Some(JobId::new(1)), "ann's other job waited longer");
        turns.remove(turn(&ann, 1, 0));
        turns.remove(turn(&ann, 2, 1));
        turns.remove(turn(&bob, 3, 1));
        assert_eq!(turns.first(|_| true), None);
        assert!(turns.owners.is_empty());
    }
}
