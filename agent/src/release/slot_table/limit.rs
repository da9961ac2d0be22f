//! What one replica may use of its host: what was asked for it, changed while it runs, and what is
//! left of a core that others have in part.
//!
//! # Invariants
//! - What is asked for a replica holds until it ends, and for no other: also where it was said before
//!   the replica began.
//! - While the owner's wishes leave a part of a core and every core that they leave is taken, the
//!   youngest replica that runs has that part; else none is held to less than was asked for it.

use std::sync::{Arc, PoisonError};

use gleaner_isolation::{Ability, Leaf, LeafLimits};
use gleaner_protocol::{LeaseToken, Limit, LimitsChange, Share};
use tracing::{debug, warn};

use super::group::Group;
use super::{Busy, Inner, SlotTable};

/// What was asked for a replica that is in a slot, or about to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    token: LeaseToken,
    limits: LimitsChange,
}

/// Who has a part of a core only.
#[derive(Debug)]
pub(super) struct Held {
    leaf: Arc<Leaf>,
    permille: u32,
}

impl Held {
    fn is_same(&self, other: &Self) -> bool {
        self.permille == other.permille && Arc::ptr_eq(&self.leaf, &other.leaf)
    }
}

impl SlotTable {
    /// Limits what runs in a slot, until it ends: the next replica begins with what its own job
    /// says. Why not, where it cannot.
    pub(crate) fn limit_slot(&self, slot: u32, limits: LimitsChange) -> Result<(), String> {
        let token = self.lock().busy.get(slot as usize).copied().flatten().map(|busy| busy.token);
        let token = token.ok_or_else(|| format!("nothing runs in slot {slot}"))?;
        self.limit(slot, token, limits)
    }

    /// Limits a replica, at once or as soon as it begins in this slot. Why not, where it cannot.
    pub(crate) fn limit(
        &self,
        slot: u32,
        token: LeaseToken,
        limits: LimitsChange,
    ) -> Result<(), String> {
        let mut inner = self.lock();
        let before = inner.asked_of(slot, token);
        let all = before.map_or(limits, |before| before.then(limits));
        inner.asked[slot as usize] = Some(Asked { token, limits: all });
        drop(inner);
        self.keep_to(slot, token, limits)
    }

    /// Has a replica that runs keep to what was asked for it, if anything was. Why not, where it cannot.
    pub(crate) fn keep_to_limits(&self, slot: u32, token: LeaseToken) -> Result<(), String> {
        let asked = self.lock().asked_of(slot, token);
        asked.map_or(Ok(()), |limits| self.keep_to(slot, token, limits))
    }

    /// What of this cannot be is left out, and said.
    fn keep_to(&self, slot: u32, token: LeaseToken, limits: LimitsChange) -> Result<(), String> {
        let leaf = self.lock().leaf_of(slot, token);
        let Some(leaf) = leaf.transpose()? else { return Ok(()) };
        // The leaf is the slot's: it may have got the next replica in this moment, whose own limits
        // are set after that.
        let is_still_there = || self.lock().leaf_of(slot, token).is_some();
        let outcome =
            leaf.change_limits(|before| is_still_there().then(|| changed(before, limits)));
        outcome.map_err(|error| format!("slot {slot} cannot be limited: {error}"))?;
        may_have(&leaf, limits)
    }

    /// Sees to it that the right replica has the part of a core that is left, and no other.
    pub(super) fn share_out(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.lock().due_part();
        if let (Some(before), Some(due)) = (&*held, &due)
            && before.is_same(due)
        {
            return;
        }
        let freed = held
            .take()
            .filter(|before| due.as_ref().is_none_or(|due| !Arc::ptr_eq(&due.leaf, &before.leaf)));
        if let Some(error) = freed.and_then(|before| before.leaf.hold_share(None).err()) {
            // Its group is gone, and what was in it.
            debug!("a task is not let go on whole: {error}");
        }
        if let Some(due) = &due
            && let Err(error) = due.leaf.hold_share(Some(due.permille))
        {
            warn!("a task goes on with a whole core beside others: {error}");
            return;
        }
        *held = due;
    }
}

impl Inner {
    pub(super) fn asked_of(&self, slot: u32, token: LeaseToken) -> Option<LimitsChange> {
        let asked = (*self.asked.get(slot as usize)?)?;
        (asked.token == token).then_some(asked.limits)
    }

    /// The leaf of a replica that is in a slot; none where it is not, or not yet.
    fn leaf_of(&self, slot: u32, token: LeaseToken) -> Option<Result<Arc<Leaf>, String>> {
        let slot = slot as usize;
        self.busy.get(slot)?.filter(|busy| busy.token == token)?;
        let leaf = self.group(slot)?.leaf().cloned();
        Some(
            leaf.ok_or_else(|| {
                "this host has no control groups; `gleaner doctor` says why".to_owned()
            }),
        )
    }

    fn due_part(&self) -> Option<Held> {
        let (slot, permille) = self.due_slot()?;
        let leaf = self.group(slot)?.leaf().cloned()?;
        Some(Held { leaf, permille })
    }

    /// The slot that has the part of a core that is left, and how much that is, in thousandths.
    fn due_slot(&self) -> Option<(usize, u32)> {
        let part = Some(self.part).filter(|part| *part > Share::NONE)?;
        let last = (self.allowed as usize).checked_sub(1)?;
        let (_, slot) = *self.oldest_first(Busy::runs).get(last)?;
        Some((slot, part.as_permille()))
    }
}

/// The share of a core in percent that a group is held to; none for no limit.
pub(super) fn share_percent(group: &Group) -> Option<u32> {
    group.leaf()?.share_permille().map(|permille| permille.div_ceil(10))
}

/// Why a leaf cannot have these limits.
fn may_have(leaf: &Leaf, limits: LimitsChange) -> Result<(), String> {
    let wanted = [
        (Ability::Share, limits.share.is_some()),
        (Ability::Weight, limits.weight_permille.is_some()),
        (Ability::Memory, limits.memory_mib.is_some()),
    ];
    match wanted.into_iter().find(|(one, is_wanted)| *is_wanted && !leaf.has(*one)) {
        Some((ability, _)) => {
            Err(format!("this host does not grant {ability}; `gleaner doctor` says why"))
        }
        None => Ok(()),
    }
}

fn changed(before: LeafLimits, change: LimitsChange) -> LeafLimits {
    let share = change.share.map(Limit::value);
    LeafLimits {
        share_permille: share.map_or(before.share_permille, |share| share.map(Share::as_permille)),
        weight_permille: change.weight_permille.unwrap_or(before.weight_permille),
        memory_mib: change.memory_mib.map_or(before.memory_mib, Limit::value),
        processes: before.processes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{EPOCH, Sleeper, open, token};
    use super::*;
    use gleaner_protocol::Time;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    /// Three replicas that began one after the other, in slots 2, 1 and 0.
    fn three() -> (SlotTable, [Sleeper; 3]) {
        let table = open(3);
        let sleepers = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
        for (began, slot) in (1..).zip([2_u32, 1, 0]) {
            table.enter_runner(slot, sleepers[slot as usize].pgid(), None);
            table.begin(slot, token(began), at(began), EPOCH, false).expect("open");
        }
        (table, sleepers)
    }

    fn hear(table: &SlotTable, permille: u32) -> Option<(usize, u32)> {
        let _ = table.finish(table.hear(at(9), Share::permille(permille)));
        table.lock().due_slot()
    }

    #[test]
    fn the_youngest_has_the_part_of_a_core_that_is_left() {
        let (table, sleepers) = three();
        assert_eq!(hear(&table, 3_000), None, "all of it is left");
        assert_eq!(hear(&table, 2_250), Some((0, 250)));
        assert_eq!(hear(&table, 1_750), Some((1, 750)), "the youngest is frozen");
        sleepers[0].wait_until_frozen();
        // Where a core is not taken, nobody has to do with less.
        table.end(2);
        assert_eq!(table.lock().due_slot(), None);
        assert_eq!(hear(&table, 0), None);
    }

    #[test]
    fn what_is_asked_for_a_replica_is_for_no_other() {
        let table = open(1);
        let half = LimitsChange::to_share(Share::percent(50));
        assert!(table.limit_slot(0, half).expect_err("empty").contains("nothing runs in slot 0"));
        assert!(table.limit_slot(7, half).expect_err("none").contains("nothing runs in slot 7"));
        // It is about to begin.
        table.limit(0, token(1), half).expect("noted");
        let memory_mib = Some(Limit::At(64));
        table.limit(0, token(1), LimitsChange { memory_mib, ..LimitsChange::NONE }).expect("noted");
        let asked = table.lock().asked[0].expect("noted");
        assert_eq!((asked.token, asked.limits), (token(1), LimitsChange { memory_mib, ..half }));
        table.keep_to_limits(0, token(2)).expect("nothing is asked for this one");
        let sleeper = Sleeper::start();
        table.enter_runner(0, sleeper.pgid(), None);
        table.begin(0, token(1), at(1), EPOCH, false).expect("open");
        let why = table.keep_to_limits(0, token(1)).expect_err("nothing that could limit it");
        assert!(why.contains("no control groups"), "{why}");
        let why = table.limit_slot(0, half).expect_err("nothing that could limit it");
        assert!(why.contains("no control groups"), "{why}");
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let before = LeafLimits { processes: Some(8), memory_mib: Some(64), ..Default::default() };
        let share = changed(before, LimitsChange::to_share(Share::percent(25)));
        assert_eq!(share, LeafLimits { share_permille: Some(250), ..before });
        let lifted = LimitsChange {
            share: Some(Limit::Lifted),
            memory_mib: Some(Limit::Lifted),
            weight_permille: Some(500),
        };
        let none = LeafLimits { memory_mib: None, weight_permille: 500, ..before };
        assert_eq!(changed(share, lifted), none);
    }
}
