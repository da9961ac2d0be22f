//! What one replica may use of its host: what was asked for it, changed while it runs, and what is
//! left of a core that others have in part.
//!
//! # Invariants
//! - What is asked for a replica holds until it ends, and for no other: also where it was said before
//!   the replica began.
//! - Both the broker's limits and the owner's hold: of two the tighter one. What a replica takes of the
//!   cores is what the broker says, whatever its owner holds it to.
//! - While what runs takes more than the owner's wishes leave, since these leave a part of a core only,
//!   the youngest replicas are held to less by as much; else none is.

use std::sync::{Arc, PoisonError};

use gleaner_isolation::{Ability, Leaf, LeafLimits};
use gleaner_protocol::{LeaseToken, Limit, LimitsChange, Share};
use tracing::{debug, warn};

use super::group::Group;
use super::{Busy, Inner, SlotTable};

/// Least that a replica is left of a core, in thousandths: less the kernel does not grant.
const PERMILLE_MIN: u32 = 10;

/// What was asked for a replica that is in a slot, or about to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    token: LeaseToken,
    by_broker: LimitsChange,
    by_owner: LimitsChange,
}

/// Who asks for a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Broker,
    Owner,
}

impl Asked {
    fn of(token: LeaseToken) -> Self {
        Self { token, by_broker: LimitsChange::NONE, by_owner: LimitsChange::NONE }
    }

    fn note(&mut self, who: Who, limits: LimitsChange) {
        let asked = match who {
            Who::Broker => &mut self.by_broker,
            Who::Owner => &mut self.by_owner,
        };
        *asked = asked.then(limits);
    }

    /// What a replica takes of the cores, where its lease says so.
    pub(super) fn share(&self) -> Option<Share> {
        self.by_broker.share.and_then(Limit::value)
    }

    /// What holds: of two limits the tighter one.
    fn both(&self) -> LimitsChange {
        let (broker, owner) = (self.by_broker, self.by_owner);
        LimitsChange {
            share: tighter(broker.share, owner.share),
            weight_permille: owner.weight_permille.or(broker.weight_permille),
            memory_mib: tighter(broker.memory_mib, owner.memory_mib),
        }
    }
}

fn tighter<T: Ord + Copy>(one: Option<Limit<T>>, other: Option<Limit<T>>) -> Option<Limit<T>> {
    match (one, other) {
        (Some(Limit::At(one)), Some(Limit::At(other))) => Some(Limit::At(one.min(other))),
        (Some(Limit::At(at)), _) | (_, Some(Limit::At(at))) => Some(Limit::At(at)),
        (one, other) => one.or(other),
    }
}

/// Who has a part of a core only.
#[derive(Debug)]
pub(super) struct Held {
    leaf: Arc<Leaf>,
    permille: u32,
}

impl Held {
    fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.leaf, &other.leaf)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.permille == other.permille && self.is_of(other)
    }
}

impl SlotTable {
    /// Limits what runs in a slot, until it ends: the next replica begins with what its own job
    /// says. Why not, where it cannot.
    pub(crate) fn limit_slot(&self, slot: u32, limits: LimitsChange) -> Result<(), String> {
        let token = self.lock().busy.get(slot as usize).copied().flatten().map(|busy| busy.token);
        let token = token.ok_or_else(|| format!("nothing runs in slot {slot}"))?;
        self.note_limits(Who::Owner, slot, token, limits)
    }

    /// Limits a replica as its lease says, at once or as soon as it begins in this slot. Why not, where
    /// it cannot.
    pub(crate) fn limit(
        &self,
        slot: u32,
        token: LeaseToken,
        limits: LimitsChange,
    ) -> Result<(), String> {
        self.note_limits(Who::Broker, slot, token, limits)
    }

    fn note_limits(
        &self,
        who: Who,
        slot: u32,
        token: LeaseToken,
        limits: LimitsChange,
    ) -> Result<(), String> {
        let mut inner = self.lock();
        let mut asked = inner.asked_of(slot, token).unwrap_or(Asked::of(token));
        asked.note(who, limits);
        inner.asked[slot as usize] = Some(asked);
        drop(inner);
        self.keep_to(slot, token, asked.both())
    }

    /// Has a replica that runs keep to what was asked for it, if anything was. Why not, where it cannot.
    pub(crate) fn keep_to_limits(&self, slot: u32, token: LeaseToken) -> Result<(), String> {
        let asked = self.lock().asked_of(slot, token);
        asked.map_or(Ok(()), |asked| self.keep_to(slot, token, asked.both()))
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

    /// Sees to it that what runs takes no more than the owner leaves of the last core.
    pub(super) fn share_out(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.lock().due_parts();
        for before in held.iter().filter(|before| !due.iter().any(|due| due.is_of(before))) {
            if let Err(error) = before.leaf.hold_share(None) {
                // Its group is gone, and what was in it.
                debug!("a task is not let go on whole: {error}");
            }
        }
        let mut keeps = Vec::new();
        for due in due {
            let is_kept = held.iter().any(|before| due.is_same(before));
            match if is_kept { Ok(()) } else { due.leaf.hold_share(Some(due.permille)) } {
                Ok(()) => keeps.push(due),
                Err(error) => {
                    warn!("a task goes on with more of a core than the owner leaves: {error}");
                }
            }
        }
        *held = keeps;
    }
}

impl Inner {
    pub(super) fn asked_of(&self, slot: u32, token: LeaseToken) -> Option<Asked> {
        let asked = (*self.asked.get(slot as usize)?)?;
        (asked.token == token).then_some(asked)
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

    fn due_parts(&self) -> Vec<Held> {
        let due = self.due_slots().into_iter();
        due.filter_map(|(slot, permille)| {
            Some(Held { leaf: self.group(slot)?.leaf().cloned()?, permille })
        })
        .collect()
    }

    /// The slots whose replicas are to do with less than they take, since the owner leaves a part of
    /// the last core only, and how much that is, in thousandths of a core: the youngest first.
    fn due_slots(&self) -> Vec<(usize, u32)> {
        if self.part == Share::NONE || self.allowed == 0 {
            return Vec::new();
        }
        let left = Share::cores(self.allowed - 1).plus(self.part);
        let mut excess = self.taken(Busy::runs).minus(left).as_permille();
        let mut due = Vec::new();
        for (token, slot) in self.oldest_first(Busy::runs).into_iter().rev() {
            let share = self.share_of(slot, token).as_permille();
            let less = excess.min(share.saturating_sub(PERMILLE_MIN));
            if less == 0 {
                break;
            }
            due.push((slot, share - less));
            excess -= less;
        }
        due
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

    fn hear(table: &SlotTable, permille: u32) -> Vec<(usize, u32)> {
        let _ = table.finish(table.hear(at(9), Share::permille(permille)));
        table.lock().due_slots()
    }

    #[test]
    fn the_youngest_has_the_part_of_a_core_that_is_left() {
        let (table, sleepers) = three();
        assert_eq!(hear(&table, 3_000), [], "all of it is left");
        assert_eq!(hear(&table, 2_250), [(0, 250)]);
        assert_eq!(hear(&table, 1_750), [(1, 750)], "the youngest is frozen");
        sleepers[0].wait_until_frozen();
        // Where a core is not taken, nobody has to do with less.
        table.end(2);
        assert_eq!(table.lock().due_slots(), []);
        assert_eq!(hear(&table, 0), []);
    }

    #[test]
    fn the_owner_keeps_a_part_of_a_core_from_replicas_that_take_parts() {
        let (table, _sleepers) = three();
        for (slot, began) in [(2_u32, 1), (1, 2), (0, 3)] {
            let half = LimitsChange::to_share(Share::percent(50));
            let _no_groups = table.limit(slot, token(began), half);
        }
        assert_eq!(hear(&table, 1_500), [], "as much as they take");
        assert_eq!(hear(&table, 1_300), [(0, 300)]);
        assert_eq!(hear(&table, 1_001), [(0, 10), (1, 491)], "one alone cannot do with so little");
    }

    #[test]
    fn an_owner_who_limits_a_task_makes_no_room_for_another() {
        let table = SlotTable::new(
            2,
            gleaner_protocol::control::Fragment { epoch: EPOCH, cores: 1, ..Default::default() },
            super::super::tests::nothing(),
            Arc::default(),
        );
        let sleepers = [Sleeper::start(), Sleeper::start()];
        for slot in 0..2_u32 {
            table.enter_runner(slot, sleepers[slot as usize].pgid(), None);
        }
        let half = LimitsChange::to_share(Share::percent(50));
        let _no_groups = table.limit(1, token(1), half);
        table.begin(0, token(0), at(1), EPOCH, false).expect("open");
        let _no_groups = table.limit_slot(0, half);
        assert!(table.begin(1, token(1), at(2), EPOCH, false).is_err(), "it still has all of it");
        // Its lease says that it takes half: then there is room.
        let _no_groups = table.limit(0, token(0), half);
        table.begin(1, token(1), at(2), EPOCH, false).expect("half of it is free");
    }

    #[test]
    fn of_two_limits_the_tighter_one_holds() {
        let at = |percent| LimitsChange::to_share(Share::percent(percent));
        let mut asked = Asked::of(token(1));
        asked.note(Who::Owner, at(25));
        asked.note(Who::Broker, at(50));
        assert_eq!(asked.both(), at(25));
        asked.note(Who::Owner, LimitsChange::to_no_share());
        assert_eq!((asked.both(), asked.share()), (at(50), Some(Share::percent(50))));
        asked.note(Who::Broker, LimitsChange::to_no_share());
        assert_eq!(asked.both(), LimitsChange::to_no_share());
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
        assert_eq!((asked.token, asked.both()), (token(1), LimitsChange { memory_mib, ..half }));
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
