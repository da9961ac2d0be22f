//! Replicas that are frozen for the owner's sake: thawed when they may run again, ended when they
//! were kept for too long or their memory is wanted.

use std::sync::Arc;

use gleaner_protocol::{LeaseToken, Share, Span, Time};

use super::group::Group;
use super::limit::share_percent;
use super::{Busy, Inner, KillList, SlotTable, State};
use crate::limits::FREEZE_WAIT_MS_MAX;

/// A replica that runs or is kept frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldReplica {
    /// Where.
    pub(crate) slot: u32,
    /// Which.
    pub(crate) token: LeaseToken,
    /// When it was taken.
    pub(crate) since: Time,
    /// Whether it is frozen.
    pub(crate) frozen: bool,
    /// The group that runs it.
    pub(crate) pgid: i32,
    /// The share of a core in percent that it is held to; none for no limit.
    pub(crate) share_percent: Option<u32>,
}

/// How a runner's group is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupUse {
    /// Its number.
    pub(crate) pgid: i32,
    /// Replicas that it has been handed so far.
    pub(crate) begun: u64,
    /// Whether it has one now.
    pub(crate) busy: bool,
    /// Whether it is frozen.
    pub(crate) frozen: bool,
    /// Since when its replica was not frozen; the beginning of time where it has none.
    pub(crate) ran_since: Time,
}

/// What the owner's word has still to do, once it is heard: all that may wait or walks over
/// processes. Nothing that was said later is undone by it.
#[must_use = "what is frozen has to come to rest, and what is to run on to do so"]
#[derive(Debug, Default)]
pub(crate) struct Obedience {
    /// When it was heard.
    heard: Time,
    frozen: Vec<Arc<Group>>,
    due: Vec<(LeaseToken, usize)>,
    any_frozen: bool,
    kill_list: KillList,
}

impl SlotTable {
    /// The owner leaves replicas this much from now on, a core each, and the last one what is left
    /// of one: the youngest beyond are frozen and kept, and the oldest of those that are kept run on
    /// where there is room, when that is [finished](SlotTable::finish). What would
    /// [keep a disk busy](super::disk) beside a render is frozen and kept, too.
    pub(crate) fn hear(&self, now: Time, room: Share) -> Obedience {
        let mut inner = self.lock();
        let slots = room.cores_touched();
        inner.allowed = slots;
        inner.part = room.minus(Share::cores(room.whole_cores()));
        let beside_render = self.is_beside_render();
        let on_disk = inner.on_disk(beside_render);
        let mut frozen: Vec<Arc<Group>> =
            on_disk.iter().filter_map(|(_, slot)| inner.put_off_disk(*slot, now)).collect();
        let running = inner.oldest_first(Busy::runs);
        let (running, surplus) = inner.fitting(running, Share::cores(slots));
        let taken = inner.taken(|busy| running.iter().any(|(token, _)| *token == busy.token));
        inner.keep_off_disk_beyond(Share::cores(slots).minus(taken), now);
        frozen.extend(surplus.iter().filter_map(|(_, slot)| inner.keep(*slot, now)));
        inner.stir_if(!frozen.is_empty());
        Obedience {
            heard: now,
            frozen,
            due: inner.due_to_resume(beside_render, now),
            any_frozen: inner.busy.iter().flatten().any(Busy::is_frozen),
            kill_list: KillList::default(),
        }
    }

    /// Does what is left to do; returns how many were frozen, once these have come to rest.
    pub(crate) fn finish(&self, obedience: Obedience) -> u32 {
        let Obedience { heard, frozen, due, any_frozen, kill_list } = obedience;
        if !frozen.is_empty() || !kill_list.is_empty() {
            // To come to rest takes a few microseconds of a core, which idle work does not get
            // beside others. And memory may be wanted at once: to give it back is work too.
            self.idleness.set(false);
        }
        frozen.iter().filter_map(|group| group.reach()).for_each(|reach| reach.hurry());
        kill_list.kill_waiting();
        self.resume(heard, &due);
        self.share_out();
        if !frozen.is_empty() {
            self.wait_frozen(Span::from_millis(FREEZE_WAIT_MS_MAX));
        }
        if any_frozen {
            self.be_idle_again();
        }
        u32::try_from(frozen.len()).expect("at most one entry per core")
    }

    /// Both at once.
    #[cfg(test)]
    pub(crate) fn allow(&self, now: Time, slots: u32) -> u32 {
        self.finish(self.hear(now, Share::cores(slots)))
    }

    /// Lets run on what is still due to.
    fn resume(&self, now: Time, due: &[(LeaseToken, usize)]) {
        if due.is_empty() {
            return;
        }
        let groups: Vec<Arc<Group>> = {
            let inner = self.lock();
            due.iter().filter_map(|(_, slot)| inner.group(*slot)).collect()
        };
        // Frozen as it is, it stays where it is put.
        groups.iter().filter_map(|group| group.reach()).for_each(|reach| reach.calm());
        let mut inner = self.lock();
        // A render may have come in between: what is not due any more stays frozen.
        let still_due = inner.due_to_resume(self.is_beside_render(), now);
        let goes_on = due.iter().filter(|one| still_due.contains(one));
        let groups: Vec<_> = goes_on.filter_map(|(_, slot)| inner.resume(*slot, now)).collect();
        drop(inner);
        groups.iter().for_each(|group| self.strays_go_on(group));
    }

    /// Ends what has been kept frozen for the owner since `since` or longer, when that is
    /// finished. Returns which.
    pub(crate) fn end_owner_frozen(
        &self,
        since: Time,
        obedience: &mut Obedience,
    ) -> Vec<LeaseToken> {
        let is_due = |busy: &Busy| busy.owner_frozen_since().is_some_and(|frozen| frozen <= since);
        self.end_frozen(is_due, obedience)
    }

    /// Ends all that is kept frozen, for whatever reason, and what saves where it is, when that is
    /// finished. Returns which.
    pub(crate) fn end_all_frozen(&self, obedience: &mut Obedience) -> Vec<LeaseToken> {
        let is_kept = |busy: &Busy| !matches!(busy.state, State::Runs | State::Stopped);
        self.end_frozen(is_kept, obedience)
    }

    fn end_frozen(
        &self,
        which: impl Fn(&Busy) -> bool,
        obedience: &mut Obedience,
    ) -> Vec<LeaseToken> {
        let mut inner = self.lock();
        let mut overdue = inner.oldest_first(which);
        // What is about to run on is not ended.
        overdue.retain(|one| !obedience.due.contains(one));
        obedience.kill_list.extend(inner.stop_to_kill_all(&overdue));
        overdue.into_iter().map(|(token, _)| token).collect()
    }

    /// Since when the one is frozen that is kept for the longest time.
    pub(crate) fn owner_frozen_since(&self) -> Option<Time> {
        self.lock().busy.iter().flatten().filter_map(Busy::owner_frozen_since).min()
    }

    /// Since when a replica runs without having been frozen; none where it is now.
    pub(crate) fn runs_since(&self, slot: u32, token: LeaseToken) -> Option<Time> {
        let busy = self.lock().busy[slot as usize].filter(|busy| busy.token == token)?;
        (!busy.is_frozen()).then_some(busy.ran_since)
    }

    /// What runs, is kept frozen or saves where it is, by slots.
    pub(crate) fn held_replicas(&self) -> Vec<HeldReplica> {
        let inner = self.lock();
        let slots = inner.busy.iter().zip(&inner.runners).enumerate();
        slots
            .filter_map(|(slot, (busy, runner))| {
                let busy = busy.filter(|busy| busy.state != State::Stopped)?;
                Some(HeldReplica {
                    slot: u32::try_from(slot).ok()?,
                    token: busy.token,
                    since: busy.since,
                    frozen: busy.is_frozen(),
                    pgid: runner.as_ref()?.group.pgid(),
                    share_percent: share_percent(&runner.as_ref()?.group),
                })
            })
            .collect()
    }

    /// The groups of all runners, and what they were last used for.
    pub(crate) fn group_use(&self) -> Vec<GroupUse> {
        let inner = self.lock();
        let slots = inner.runners.iter().zip(&inner.busy);
        let used = slots.filter_map(|(runner, busy)| {
            let runner = runner.as_ref()?;
            let frozen = runner.stopped || busy.is_some_and(|busy| busy.is_frozen());
            let ran_since = busy.map_or(Time::ZERO, |busy| busy.ran_since);
            let (pgid, begun, busy) = (runner.group.pgid(), runner.begun, busy.is_some());
            Some(GroupUse { pgid, begun, busy, frozen, ran_since })
        });
        used.collect()
    }
}

impl Inner {
    /// Freezes what runs in a slot, to be kept; its group.
    fn keep(&mut self, slot: usize, now: Time) -> Option<Arc<Group>> {
        self.hold(slot, State::OwnerFrozen(now), now)
    }

    /// Freezes what runs in a slot, so that a render has the disk; its group.
    pub(super) fn put_off_disk(&mut self, slot: usize, now: Time) -> Option<Arc<Group>> {
        self.disk_tried = now;
        self.hold(slot, State::OffDisk(now), now)
    }

    fn hold(&mut self, slot: usize, state: State, now: Time) -> Option<Arc<Group>> {
        let (busy, runner) = (self.busy[slot].as_mut()?, self.runners[slot].as_ref()?);
        busy.state = state;
        busy.stands_still(now);
        runner.group.freeze();
        Some(Arc::clone(&runner.group))
    }

    /// What is kept and has room to run on, the oldest first.
    fn due_to_resume(&self, beside_render: bool, now: Time) -> Vec<(LeaseToken, usize)> {
        let room = Share::cores(self.allowed.min(self.gate.slots())).minus(self.taken(Busy::runs));
        let mut due = self.oldest_first(|busy| busy.owner_frozen_since().is_some());
        due.extend(self.due_on_disk(beside_render, now));
        self.fitting(due, room).0
    }

    /// Lets what is frozen in a slot run on; its group.
    fn resume(&mut self, slot: usize, now: Time) -> Option<Arc<Group>> {
        let (busy, runner) = (self.busy[slot].as_mut()?, self.runners[slot].as_mut()?);
        if busy.off_disk_since().is_some() {
            self.disk_tried = now;
        }
        busy.state = State::Runs;
        busy.ran_since = now;
        busy.goes_on(now);
        // What it does from now on is what counts.
        runner.keeps_disk_busy = false;
        runner.group.thaw();
        Some(Arc::clone(&runner.group))
    }

    pub(super) fn group(&self, slot: usize) -> Option<Arc<Group>> {
        self.runners[slot].as_ref().map(|runner| Arc::clone(&runner.group))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{EPOCH, NEXT, Sleeper, open, token};
    use super::super::{Cause, GateClosed, Room};
    use super::*;
    use gleaner_protocol::control::Fragment;

    fn at(micros: u64) -> Time {
        Time::from_micros(micros)
    }

    /// Three replicas that began one after the other, in slots 0, 1 and 2.
    fn three() -> (SlotTable, [Sleeper; 3]) {
        let table = open(3);
        let sleepers = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
        for slot in 0..3_u32 {
            table.enter_runner(slot, sleepers[slot as usize].pgid(), None);
            table.begin(slot, token(slot.into()), at(slot.into()), EPOCH, false).expect("open");
        }
        (table, sleepers)
    }

    fn held(table: &SlotTable) -> Vec<(u32, bool)> {
        table.held_replicas().iter().map(|held| (held.slot, held.frozen)).collect()
    }

    #[test]
    fn the_owner_freezes_the_youngest_and_the_oldest_runs_on_first() {
        let (table, mut sleepers) = three();
        assert_eq!(table.allow(at(10), 1), 2);
        sleepers[1..].iter().for_each(Sleeper::wait_until_frozen);
        assert_eq!(held(&table), [(0, false), (1, true), (2, true)]);
        assert_eq!(table.allow(at(11), 2), 0);
        sleepers[1].wait_until_thawed();
        assert_eq!(held(&table), [(0, false), (1, false), (2, true)]);
        assert_eq!(table.owner_frozen_since(), Some(at(10)));
        assert!(sleepers.iter_mut().all(Sleeper::is_alive));
        assert_eq!(table.remove_runner(2), Cause::Stopped, "what dies frozen did not fail");
        assert_eq!(table.remove_runner(0), Cause::Itself, "what dies running did");
    }

    #[test]
    fn nothing_begins_beyond_what_the_owner_allows() {
        let (table, _sleepers) = three();
        table.allow(at(10), 2);
        table.end(0);
        // Its place is for the one that is kept.
        assert_eq!(table.begin(0, token(7), at(11), EPOCH, false), Err(GateClosed));
        table.allow(at(12), 2);
        assert_eq!(held(&table), [(1, false), (2, false)]);
        assert_eq!(table.begin(0, token(7), at(13), EPOCH, false), Err(GateClosed));
        table.allow(at(14), 3);
        assert_eq!(table.begin(0, token(7), at(15), EPOCH, false), Ok(()));
    }

    #[test]
    fn what_was_kept_for_too_long_is_ended() {
        let (table, mut sleepers) = three();
        table.allow(at(10), 2);
        table.allow(at(20), 1);
        let mut obedience = Obedience::default();
        assert_eq!(table.end_owner_frozen(at(9), &mut obedience), []);
        assert_eq!(table.end_owner_frozen(at(10), &mut obedience), [token(2)]);
        table.finish(obedience);
        sleepers[2].wait_until_killed();
        assert!(sleepers[1].is_alive());
        assert_eq!(held(&table), [(0, false), (1, true)]);
        table.allow(at(30), 3);
        assert_eq!(held(&table), [(0, false), (1, false)], "the dead are not thawed");
    }

    #[test]
    fn a_render_takes_first_what_is_frozen_anyway() {
        let (table, mut sleepers) = three();
        table.allow(at(10), 2);
        let frozen = table.freeze(Some(NEXT), Room::slots(2));
        assert_eq!((frozen.tokens, frozen.slots_left), (vec![token(2)], 2));
        table.kill_frozen();
        sleepers[2].wait_until_killed();
        assert!(sleepers[..2].iter_mut().all(Sleeper::is_alive));
    }

    #[test]
    fn nothing_is_thawed_into_the_place_of_a_render() {
        let (table, sleepers) = three();
        table.allow(at(10), 0);
        table.hear_and_set_gate(Fragment { epoch: EPOCH, cores: 1, ..Fragment::default() });
        table.allow(at(11), 3);
        assert_eq!(held(&table), [(0, false), (1, true), (2, true)]);
        sleepers[1..].iter().for_each(Sleeper::wait_until_frozen);
    }
}
