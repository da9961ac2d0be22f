//! A priority queue of workunits that have a replica waiting, which can be asked for the first
//! one that a given host may take.

mod list;
mod marks;

use self::list::List;
use crate::ability::AbilityIx;
use crate::farm::{Farm, HostIx, Workunit, WorkunitIx};
use crate::{Desk, Violation};

/// Place of a workunit in a queue: its key, then its arrival. Unique in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) key: u64,
    pub(crate) arrival: u64,
}

impl Rank {
    const FIRST: Self = Self { key: 0, arrival: 0 };

    fn next(self) -> Self {
        Self { arrival: self.arrival + 1, ..self }
    }
}

/// Workunits in order of (key, arrival), least first.
///
/// A host may not take a workunit that it cannot run, or on which it has a replica or a vote, so
/// the least is not always the answer. Workunits of different abilities are in lists of their
/// own, so that what a host cannot run is not in its way; what it has touched is skipped by the
/// [`List`].
///
/// # Invariants
/// - Entries are exactly the workunits given to [`Backlog::put`] and not removed since.
#[derive(Default)]
pub(crate) struct Backlog {
    lists: Vec<List>,
    arrivals: u64,
}

impl Backlog {
    /// How many workunits have a replica waiting.
    pub(crate) fn len(&self) -> usize {
        self.lists.iter().map(List::len).sum()
    }

    /// Its place, where it is in it.
    pub(crate) fn rank(&self, ability: AbilityIx, workunit: WorkunitIx) -> Option<Rank> {
        self.lists.get(ability.get())?.rank(workunit)
    }

    /// Enters a workunit, or changes its key and keeps its place among equals. Call it whenever
    /// a host may have become right for the workunit.
    pub(crate) fn put(&mut self, ability: AbilityIx, workunit: WorkunitIx, key: u64) {
        if self.lists.len() <= ability.get() {
            self.lists.resize_with(ability.get() + 1, List::default);
        }
        self.arrivals += 1;
        self.lists[ability.get()].put(workunit, Rank { key, arrival: self.arrivals });
    }

    /// Enters a workunit while replicas of it wait, under the key that it has; takes it out when
    /// none does.
    pub(crate) fn update(&mut self, workunit: WorkunitIx, unit: &Workunit, key: u64) {
        if unit.waiting > 0 {
            self.put(unit.ability, workunit, key);
        } else {
            self.remove(unit.ability, workunit);
        }
    }

    /// Takes a workunit out.
    pub(crate) fn remove(&mut self, ability: AbilityIx, workunit: WorkunitIx) {
        if let Some(list) = self.lists.get_mut(ability.get()) {
            list.remove(workunit);
        }
    }

    /// The number of a forgotten host will be that of another one.
    pub(crate) fn forget_host(&mut self, host: HostIx) {
        self.lists.iter_mut().for_each(|list| list.forget_host(host));
    }

    /// The first workunit that `host` may take a replica of, and its place. It stays in the
    /// queue.
    pub(crate) fn first_for(
        &mut self,
        desk: &Desk<'_>,
        host: HostIx,
    ) -> Option<(Rank, WorkunitIx)> {
        let farm = desk.farm();
        let lists = self.lists.iter_mut().enumerate();
        lists
            .filter(|(_, list)| list.len() > 0)
            .filter(|(index, _)| desk.may_begin(host, AbilityIx::from_index(*index)))
            .filter_map(|(_, list)| list.first_for(farm, host))
            .min()
    }

    /// A workunit that `host` has refused and that nobody else is left for, as far as is looked; for
    /// a host that finds nothing else.
    pub(crate) fn last_resort(&self, desk: &Desk<'_>, host: HostIx) -> Option<WorkunitIx> {
        let farm = desk.farm();
        let lists = self.lists.iter().enumerate();
        let able = lists
            .filter(|(index, _)| desk.may_begin(host, AbilityIx::from_index(*index)))
            .filter_map(|(_, list)| list.last_resort(farm, host));
        able.min().map(|(_, workunit)| workunit)
    }

    /// Whether it holds exactly what `wanted` says, under the keys that it says.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn check(
        &self,
        name: &'static str,
        farm: &Farm,
        wanted: impl Fn(&Workunit) -> Option<u64>,
    ) -> Result<(), Violation> {
        let mut expected = 0;
        for (workunit, unit) in farm.workunits() {
            let wanted = wanted(unit);
            expected += usize::from(wanted.is_some());
            let key = self.rank(unit.ability, workunit).map(|rank| rank.key);
            if key != wanted {
                let detail = format!("{name}: {} has key {key:?}, not {wanted:?}", unit.id);
                return Err(Violation::new("queue-keys", detail));
            }
        }
        if self.len() != expected {
            let detail = format!("{name}: {} entries, not {expected}", self.len());
            return Err(Violation::new("queue-members", detail));
        }
        self.lists.iter().try_for_each(|list| list.check(name))
    }
}
