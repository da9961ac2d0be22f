//! Replicas that are frozen for the owner's sake: thawed when they may run again, ended when they
//! were kept for too long or their memory is wanted.

use gleaner_isolation::Leaf;
use gleaner_protocol::{LeaseToken, Span, Time};

use super::{Busy, Inner, RunnerEntry, SlotTable};
use crate::limits::SETTLE_MS_MAX;
use crate::scheduling_class::let_die;

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
}

impl SlotTable {
    /// The owner allows this many replicas to run from now on: the youngest beyond are frozen
    /// and kept, and the oldest of those that are kept run on where there is room. Returns how
    /// many were frozen.
    pub(crate) fn allow(&self, now: Time, slots: u32) -> u32 {
        let mut inner = self.lock();
        inner.allowed = slots;
        let running = inner.oldest_first(Busy::runs);
        let surplus = running.iter().skip(slots as usize);
        let frozen = surplus.clone().count();
        if frozen > 0 {
            // To come to rest takes a few microseconds of a core, which idle work does not get
            // beside others.
            inner.set_idle(false);
        }
        for (_, slot) in surplus {
            inner.keep(*slot, now);
        }
        let room = slots.min(inner.gate.slots()).saturating_sub(inner.running());
        let kept = inner.oldest_first(|busy| !busy.stopped && busy.kept.is_some());
        let any_kept = frozen > 0 || !kept.is_empty();
        for (_, slot) in kept.into_iter().take(room as usize) {
            inner.resume(slot);
        }
        drop(inner);
        if frozen > 0 {
            self.settle(Span::from_millis(SETTLE_MS_MAX));
        }
        if any_kept {
            self.be_idle_again();
        }
        u32::try_from(frozen).expect("at most one entry per core")
    }

    /// Puts harvested work last again, where all that is frozen has come to rest.
    fn be_idle_again(&self) {
        let inner = self.lock();
        let rests = |runner: &RunnerEntry| runner.freezer().is_none_or(Leaf::is_frozen);
        if !inner.has_stopped() && inner.frozen_runners().all(rests) {
            inner.set_idle(true);
        }
    }

    /// Ends what has been kept frozen since `since` or longer. Returns which.
    pub(crate) fn end_kept(&self, since: Time) -> Vec<LeaseToken> {
        let mut inner = self.lock();
        let overdue = inner
            .oldest_first(|busy| !busy.stopped && busy.kept.is_some_and(|frozen| frozen <= since));
        if !overdue.is_empty() {
            // Its memory may be wanted at once, and to give it back is work.
            inner.set_idle(false);
        }
        for (_, slot) in &overdue {
            inner.doom(*slot);
            if let Some(runner) = &inner.runners[*slot] {
                let_die(runner.pgid);
                runner.kill();
            }
        }
        overdue.into_iter().map(|(token, _)| token).collect()
    }

    /// Since when the one is frozen that is kept for the longest time.
    pub(crate) fn kept_since(&self) -> Option<Time> {
        self.lock().busy.iter().flatten().filter(|busy| !busy.stopped).filter_map(|b| b.kept).min()
    }

    /// What runs or is kept frozen, by slots.
    pub(crate) fn held_replicas(&self) -> Vec<HeldReplica> {
        let inner = self.lock();
        let slots = inner.busy.iter().zip(&inner.runners).enumerate();
        slots
            .filter_map(|(slot, (busy, runner))| {
                let busy = busy.filter(|busy| !busy.stopped)?;
                Some(HeldReplica {
                    slot: u32::try_from(slot).ok()?,
                    token: busy.token,
                    since: busy.since,
                    frozen: busy.kept.is_some(),
                    pgid: runner.as_ref()?.pgid,
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
            let frozen = runner.stopped || busy.is_some_and(|busy| !busy.runs());
            let (pgid, begun, busy) = (runner.pgid, runner.begun, busy.is_some());
            Some(GroupUse { pgid, begun, busy, frozen })
        });
        used.collect()
    }
}

impl Inner {
    fn keep(&mut self, slot: usize, now: Time) {
        if let (Some(busy), Some(runner)) = (&mut self.busy[slot], &self.runners[slot]) {
            busy.kept = Some(now);
            runner.freeze();
        }
    }

    fn resume(&mut self, slot: usize) {
        if let (Some(busy), Some(runner)) = (&mut self.busy[slot], &self.runners[slot]) {
            busy.kept = None;
            runner.thaw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{EPOCH, NEXT, Sleeper, open, token};
    use super::super::{Frozen, GateClosed};
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
            table.begin(slot, token(slot.into()), at(slot.into()), EPOCH).expect("open");
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
        assert_eq!(table.kept_since(), Some(at(10)));
        assert!(sleepers.iter_mut().all(Sleeper::is_alive));
        assert!(table.remove_runner(2), "what dies frozen did not fail");
        assert!(!table.remove_runner(0), "what dies running did");
    }

    #[test]
    fn nothing_begins_beyond_what_the_owner_allows() {
        let (table, _sleepers) = three();
        table.allow(at(10), 2);
        table.end(0);
        // Its place is for the one that is kept.
        assert_eq!(table.begin(0, token(7), at(11), EPOCH), Err(GateClosed));
        table.allow(at(12), 2);
        assert_eq!(held(&table), [(1, false), (2, false)]);
        assert_eq!(table.begin(0, token(7), at(13), EPOCH), Err(GateClosed));
        table.allow(at(14), 3);
        assert_eq!(table.begin(0, token(7), at(15), EPOCH), Ok(()));
    }

    #[test]
    fn what_was_kept_for_too_long_is_ended() {
        let (table, mut sleepers) = three();
        table.allow(at(10), 2);
        table.allow(at(20), 1);
        assert_eq!(table.end_kept(at(9)), []);
        assert_eq!(table.end_kept(at(10)), [token(2)]);
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
        let frozen = table.freeze(Some(NEXT), 2);
        assert_eq!(frozen, Frozen { tokens: vec![token(2)], slots_left: 2 });
        table.kill_frozen();
        sleepers[2].wait_until_killed();
        assert!(sleepers[..2].iter_mut().all(Sleeper::is_alive));
    }

    #[test]
    fn nothing_is_thawed_into_the_place_of_a_render() {
        let (table, sleepers) = three();
        table.allow(at(10), 0);
        table.set_gate(Fragment { epoch: EPOCH, slots: 1 });
        table.allow(at(11), 3);
        assert_eq!(held(&table), [(0, false), (1, true), (2, true)]);
        sleepers[1..].iter().for_each(Sleeper::wait_until_frozen);
    }
}
