//! Qinit: jobs with untouched workunits, of the account first who has used least of the farm.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gleaner_protocol::JobId;
use priority_queue::PriorityQueue;
use rustc_hash::FxBuildHasher;

use super::Change;
use crate::Desk;
use crate::ability::AbilityIx;
use crate::farm::{AccountIx, Farm, Job};

type TurnQueue<T> = PriorityQueue<T, Reverse<u64>, FxBuildHasher>;
/// The least comes first: the account's place by what it has used, then its turn.
type AccountQueue = PriorityQueue<AccountIx, Reverse<(u64, u64)>, FxBuildHasher>;

/// Owners by what they have used, of equals in turn; and each account's jobs in turn, so that ten
/// workunits do not wait behind a million. All untouched workunits have the key 1, so the published order leaves this open.
///
/// A job stands for its range of untouched workunits: the queue's size does not depend on
/// theirs. Jobs of different abilities are in queues of their own, so that what a host cannot
/// run is not in its way and does not lose its turn.
///
/// # Invariants
/// - An account is in the queue of an ability if and only if one of its jobs with that ability is,
///   with the same place and turn in all of them.
/// - Of those who have used as much, who was served waits until everyone who was there has been.
#[derive(Default)]
pub(super) struct Turns {
    by_ability: Vec<AccountQueue>,
    accounts: BTreeMap<AccountIx, Entry>,
    turn: u64,
}

struct Entry {
    place: u64,
    turn: u64,
    jobs: BTreeMap<AbilityIx, TurnQueue<JobId>>,
}

/// What Qinit needs to know of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) account: AccountIx,
    pub(super) job: JobId,
    pub(super) ability: AbilityIx,
}

impl Turn {
    pub(super) fn of(job: &Job) -> Self {
        Self { account: job.account, job: job.id, ability: job.ability }
    }
}

impl Turns {
    /// Whether this job is in it.
    pub(super) fn contains(&self, Turn { account, job, ability }: Turn) -> bool {
        let jobs = self.accounts.get(&account).and_then(|account| account.jobs.get(&ability));
        jobs.is_some_and(|jobs| jobs.contains(&job))
    }

    /// Takes note of what a change says of untouched workunits. `true` where there are new ones.
    pub(super) fn observe(&mut self, farm: &Farm, change: Change) -> bool {
        match change {
            Change::JobAdded(id) => {
                let job = farm.job(id).filter(|job| job.has_untouched());
                if let Some(job) = job {
                    self.add(Turn::of(job), farm.usage.place(job.account, farm.now));
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

    /// Enters a job at the end of its account's round.
    pub(super) fn add(&mut self, Turn { account, job, ability }: Turn, place: u64) {
        self.turn += 1;
        let turn = self.turn;
        let entry = self.accounts.entry(account).or_insert_with(|| Entry {
            place,
            turn,
            jobs: BTreeMap::new(),
        });
        entry.jobs.entry(ability).or_default().push(job, Reverse(turn));
        if self.by_ability.len() <= ability.get() {
            self.by_ability.resize_with(ability.get() + 1, AccountQueue::default);
        }
        self.by_ability[ability.get()].push(account, Reverse((entry.place, entry.turn)));
    }

    /// Takes a job out.
    pub(super) fn remove(&mut self, Turn { account, job, ability }: Turn) {
        let Some(entry) = self.accounts.get_mut(&account) else { return };
        let Some(jobs) = entry.jobs.get_mut(&ability) else { return };
        jobs.remove(&job);
        if jobs.is_empty() {
            entry.jobs.remove(&ability);
            self.by_ability[ability.get()].remove(&account);
        }
        if entry.jobs.is_empty() {
            self.accounts.remove(&account);
        }
    }

    /// The job whose turn it is among those that need an ability that `accepts` lets through.
    pub(super) fn first(&self, accepts: impl Fn(AbilityIx) -> bool) -> Option<JobId> {
        let (_, account) = self
            .by_ability
            .iter()
            .enumerate()
            .filter_map(|(index, accounts)| {
                accounts.peek().map(|(account, place)| (index, account, place))
            })
            .filter(|(index, ..)| accepts(AbilityIx::from_index(*index)))
            .map(|(_, account, Reverse(place))| (*place, account))
            .min()?;
        let jobs = &self.accounts.get(account)?.jobs;
        let heads = jobs.iter().filter(|(ability, _)| accepts(**ability));
        heads
            .filter_map(|(_, jobs)| jobs.peek())
            .map(|(job, Reverse(turn))| (*turn, *job))
            .min()
            .map(|(_, job)| job)
    }

    /// Sends a job and its account to the end of the round.
    pub(super) fn served(&mut self, Turn { account, job, ability }: Turn) {
        let Some(entry) = self.accounts.get_mut(&account) else { return };
        self.turn += 1;
        entry.turn = self.turn;
        Self::queue(&mut self.by_ability, account, entry);
        if let Some(jobs) = entry.jobs.get_mut(&ability) {
            jobs.change_priority(&job, Reverse(self.turn));
        }
    }

    /// Takes note of what accounts have used since.
    pub(super) fn refresh(&mut self, desk: &mut Desk<'_>) {
        for (account, place) in desk.take_moved_accounts() {
            if let Some(entry) = self.accounts.get_mut(&account) {
                entry.place = place;
                Self::queue(&mut self.by_ability, account, entry);
            }
        }
    }

    fn queue(by_ability: &mut [AccountQueue], account: AccountIx, entry: &Entry) {
        for with in entry.jobs.keys() {
            let place = Reverse((entry.place, entry.turn));
            by_ability[with.get()].change_priority(&account, place);
        }
    }

    /// The first job that is in it but should not be, or the other way round.
    pub(super) fn difference(&self, farm: &Farm, wanted: impl Fn(&Job) -> bool) -> Option<JobId> {
        let wrong = farm.jobs().find(|job| wanted(job) != self.contains(Turn::of(job)));
        let queues = self.accounts.values().flat_map(|account| account.jobs.values());
        let mut stray = queues.flat_map(PriorityQueue::iter).map(|(job, _)| *job);
        wrong.map(|job| job.id).or_else(|| stray.find(|job| farm.job(*job).is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: AccountIx = AccountIx::of(0);
    const BOB: AccountIx = AccountIx::of(1);

    fn turn(account: AccountIx, job: u64, ability: usize) -> Turn {
        Turn { account, job: JobId::new(job), ability: AbilityIx::from_index(ability) }
    }

    #[test]
    fn owners_take_turns_and_so_do_their_jobs() {
        let all = [turn(ANN, 1, 0), turn(ANN, 2, 0), turn(BOB, 3, 0)];
        let mut turns = Turns::default();
        all.iter().for_each(|turn| turns.add(*turn, 0));
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
        let mut turns = Turns::default();
        turns.add(turn(ANN, 1, 0), 0);
        turns.add(turn(ANN, 2, 1), 0);
        turns.add(turn(BOB, 3, 1), 0);
        let can_run_1 = |ability: AbilityIx| ability.get() == 1;
        assert_eq!(turns.first(can_run_1), Some(JobId::new(2)));
        turns.served(turn(ANN, 2, 1));
        assert_eq!(turns.first(can_run_1), Some(JobId::new(3)), "it is bob's turn now");
        turns.served(turn(BOB, 3, 1));
        assert_eq!(turns.first(|_| true), Some(JobId::new(1)), "ann's other job waited longer");
        turns.remove(turn(ANN, 1, 0));
        turns.remove(turn(ANN, 2, 1));
        turns.remove(turn(BOB, 3, 1));
        assert_eq!(turns.first(|_| true), None);
        assert!(turns.accounts.is_empty());
    }
}
