//! Qinit: jobs with untouched workunits, served in turn.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gleaner_protocol::{JobId, OwnerName};
use priority_queue::PriorityQueue;
use rustc_hash::FxBuildHasher;

use crate::farm::{Farm, Job};

type TurnQueue<T> = PriorityQueue<T, Reverse<u64>, FxBuildHasher>;

/// Owners in turn, and each owner's jobs in turn, so that ten workunits do not wait behind a
/// million. All untouched workunits have the key 1, so the published order leaves this open.
///
/// A job stands for its range of untouched workunits: the queue's size does not depend on
/// theirs.
///
/// # Invariants
/// - An owner is in the queue if and only if one of its jobs is.
/// - Who was served waits until everyone who was there has been.
#[derive(Default)]
pub struct Turns {
    owners: TurnQueue<OwnerName>,
    jobs: BTreeMap<OwnerName, TurnQueue<JobId>>,
    turn: u64,
}

impl Turns {
    /// Whether no job has untouched workunits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Whether this job is in it.
    #[must_use]
    pub fn contains(&self, owner: &OwnerName, job: JobId) -> bool {
        self.jobs.get(owner).is_some_and(|jobs| jobs.get(&job).is_some())
    }

    /// Enters a job at the end of its owner's round.
    pub fn add(&mut self, owner: &OwnerName, job: JobId) {
        let turn = self.next_turn();
        self.jobs.entry(owner.clone()).or_default().push(job, turn);
        if self.owners.get(owner).is_none() {
            self.owners.push(owner.clone(), turn);
        }
    }

    /// Takes a job out.
    pub fn remove(&mut self, owner: &OwnerName, job: JobId) {
        let Some(jobs) = self.jobs.get_mut(owner) else { return };
        jobs.remove(&job);
        if jobs.is_empty() {
            self.jobs.remove(owner);
            self.owners.remove(owner);
        }
    }

    /// The job whose turn it is among those that `accepts` lets through.
    pub fn first(&self, accepts: impl Fn(JobId) -> bool) -> Option<(OwnerName, JobId)> {
        let (head, _) = self.owners.peek()?;
        if let Some(job) = Self::first_of(self.jobs.get(head)?, &accepts) {
            return Some((head.clone(), job));
        }
        let mut others: Vec<_> = self.owners.iter().collect();
        others.sort_unstable_by_key(|(_, turn)| Reverse(**turn));
        others.into_iter().find_map(|(owner, _)| {
            Self::first_of(self.jobs.get(owner)?, &accepts).map(|job| (owner.clone(), job))
        })
    }

    /// Sends a job and its owner to the end of the round.
    pub fn served(&mut self, owner: &OwnerName, job: JobId) {
        let turn = self.next_turn();
        self.owners.change_priority(owner, turn);
        if let Some(jobs) = self.jobs.get_mut(owner) {
            jobs.change_priority(&job, turn);
        }
    }

    fn first_of(jobs: &TurnQueue<JobId>, accepts: impl Fn(JobId) -> bool) -> Option<JobId> {
        let (&head, _) = jobs.peek()?;
        if accepts(head) {
            return Some(head);
        }
        jobs.iter()
            .filter(|(job, _)| accepts(**job))
            .max_by_key(|(_, turn)| **turn)
            .map(|(job, _)| *job)
    }

    fn next_turn(&mut self) -> Reverse<u64> {
        self.turn += 1;
        Reverse(self.turn)
    }

    /// The first job that is in it but should not be, or the other way round.
    #[must_use]
    pub fn difference(&self, farm: &Farm, wanted: impl Fn(&Job) -> bool) -> Option<JobId> {
        let missing = farm.jobs().find(|job| wanted(job) != self.contains(&job.spec.owner, job.id));
        let stray = self.jobs.values().flat_map(PriorityQueue::iter).map(|(job, _)| *job);
        missing.map(|job| job.id).or_else(|| stray.into_iter().find(|job| farm.job(*job).is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerName {
        OwnerName::new(name).expect("a plain name")
    }

    #[test]
    fn owners_take_turns_and_so_do_their_jobs() {
        let (ann, bob) = (owner("ann"), owner("bob"));
        let mut turns = Turns::default();
        turns.add(&ann, JobId::new(1));
        turns.add(&ann, JobId::new(2));
        turns.add(&bob, JobId::new(3));
        let mut served = Vec::new();
        for _ in 0..6 {
            let (owner, job) = turns.first(|_| true).expect("three jobs wait");
            turns.served(&owner, job);
            served.push(job.get());
        }
        assert_eq!(served, [1, 3, 2, 3, 1, 3]);
    }

    #[test]
    fn a_host_that_cannot_run_the_first_gets_the_next() {
        let ann = owner("ann");
        let mut turns = Turns::default();
        turns.add(&ann, JobId::new(1));
        turns.add(&ann, JobId::new(2));
        assert_eq!(turns.first(|job| job.get() == 2), Some((ann.clone(), JobId::new(2))));
        turns.remove(&ann, JobId::new(1));
        turns.remove(&ann, JobId::new(2));
        assert!(turns.is_empty());
        assert_eq!(turns.first(|_| true), None);
    }
}
