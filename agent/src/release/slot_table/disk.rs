//! Who keeps a disk busy beside a render.
//!
//! Cores and memory that a render has booked are its own; a disk is everybody's, and no weight keeps a
//! render's share of it where the kernel has none to give. So a replica that was seen to read or write
//! much stands still while a render has booked a part of its host, from the moment on in which a hook
//! says so. It is frozen, and not held to a rate: what waits for a disk ends first, so that nobody else
//! waits for a file system that waits for it.
//!
//! Now and then one of them may go on, and show itself anew: it may only have read its input.
//!
//! # Invariants
//! - Beside a render, what was seen to keep a disk busy runs until the next look at most.
//! - It stays where it is until it may go on, for as long as the render takes and its owner would let it
//!   run: it loses nothing, and nothing begins in its place that would keep the disk busy as well.

use gleaner_protocol::{LeaseToken, Share, Span, Time};

use super::{Busy, Inner, State};
use crate::limits::DISK_TRY_MS;

impl Inner {
    /// What runs and keeps a disk busy beside a render, if there is one.
    pub(super) fn on_disk(&self, beside_render: bool) -> Vec<(LeaseToken, usize)> {
        if !beside_render {
            return Vec::new();
        }
        let mut running = self.oldest_first(Busy::runs);
        running.retain(|(_, slot)| {
            let runner = self.runners[*slot].as_ref();
            runner.is_some_and(|runner| runner.keeps_disk_busy)
        });
        running
    }

    /// What stands still for that and would not be allowed to run either, beyond this much, is kept
    /// frozen for the owner from now on, and no longer than such are.
    pub(super) fn keep_off_disk_beyond(&mut self, allowed: Share, now: Time) {
        let off = self.oldest_first(|busy| busy.off_disk_since().is_some());
        for (_, slot) in self.fitting(off, allowed).1 {
            if let Some(busy) = &mut self.busy[slot] {
                busy.state = State::OwnerFrozen(now);
            }
        }
    }

    /// What stands still for that and may go on: all of it without a render, and beside one the one
    /// that has stood for longest, if nobody has tried for a while.
    pub(super) fn due_on_disk(&self, beside_render: bool, now: Time) -> Vec<(LeaseToken, usize)> {
        let mut off = self.oldest_first(|busy| busy.off_disk_since().is_some());
        if beside_render {
            let since = |slot: usize| self.busy[slot].and_then(|busy| busy.off_disk_since());
            off.sort_by_key(|(token, slot)| (since(*slot), *token));
            let may_try = now.since(self.disk_tried) >= Span::from_millis(DISK_TRY_MS);
            off.truncate(usize::from(may_try));
        }
        off
    }
}

impl Busy {
    /// Since when it stands still so that a render has the disk.
    pub(super) fn off_disk_since(&self) -> Option<Time> {
        match self.state {
            State::OffDisk(since) => Some(since),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{EPOCH, NEXT, Sleeper, open, token};
    use super::super::{Room, SlotTable, Upkeep};
    use super::*;
    use gleaner_protocol::control::Fragment;
    use gleaner_protocol::{Share, boottime};

    fn at_ms(ms: u64) -> Time {
        Time::from_micros(ms * 1_000)
    }

    /// Three replicas in slots 0, 1 and 2.
    struct Three {
        table: SlotTable,
        sleepers: [Sleeper; 3],
        /// Later than all that was done with the clock of the machine.
        later: Time,
    }

    impl Three {
        fn new() -> Self {
            let table = open(4);
            let sleepers = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
            for slot in 0..3_u32 {
                table.enter_runner(slot, sleepers[slot as usize].pgid(), None);
                let began = at_ms(slot.into());
                table.begin(slot, token(slot.into()), began, EPOCH, false).expect("open");
            }
            Self { table, sleepers, later: boottime() + Span::from_secs(3_600) }
        }

        /// Of them these are seen to keep a disk busy.
        fn seen(&self, busy: [bool; 3]) {
            let upkeep = |(sleeper, keeps_disk_busy): (&Sleeper, bool)| Upkeep {
                pgid: sleeper.pgid(),
                begun: 1,
                cpu: Span::ZERO,
                memory_mib: 1,
                keeps_disk_busy,
                self_resumed_since: None,
            };
            let all: Vec<Upkeep> = self.sleepers.iter().zip(busy).map(upkeep).collect();
            self.table.note_upkeep(at_ms(9), &all);
        }

        /// What runs, by slots, when the owner's word is heard so much later.
        fn runs(&self, ms: u64) -> Vec<u32> {
            let now = self.later + Span::from_millis(ms);
            let _ = self.table.finish(self.table.hear(now, Share::cores(4)));
            let held = self.table.held_replicas();
            held.iter().filter(|one| !one.frozen).map(|one| one.slot).collect()
        }

        /// A render has booked a core, and these are seen to keep the disk busy beside it.
        fn beside_render(busy: [bool; 3]) -> Self {
            let three = Self::new();
            assert_eq!(three.render(), 0, "nobody was seen to before");
            three.seen(busy);
            three
        }

        /// A render books a core, and leaves all of these where they are.
        fn render(&self) -> u32 {
            self.table.note_booked_cores(1, 1);
            let frozen = self.table.freeze(Some(NEXT), Room::slots(3));
            assert_eq!((&frozen.tokens[..], &frozen.parked[..]), (&[][..], &[][..]));
            self.table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 3, ..Fragment::default() });
            frozen.count
        }
    }

    #[test]
    fn beside_a_render_only_those_go_on_that_leave_the_disk_alone() {
        let three = Three::new();
        three.seen([true, false, false]);
        assert_eq!(three.runs(0), [0, 1, 2], "nobody renders");
        assert_eq!(three.render(), 1);
        three.sleepers[0].wait_until_frozen();
        assert_eq!(three.table.occupancy().off_disk, 1);
        three.table.note_booked_cores(0, 0);
        assert_eq!(three.runs(1), [0, 1, 2], "it has ended");
        three.sleepers[0].wait_until_thawed();
    }

    #[test]
    fn who_is_seen_to_keep_it_busy_beside_a_render_stands_still_from_then_on() {
        let three = Three::beside_render([true, false, false]);
        assert_eq!(three.runs(0), [1, 2]);
        // What stands still is seen to use nothing, which says nothing, and is kept however long.
        three.seen([false, false, false]);
        let mut obedience = three.table.hear(three.later, Share::cores(4));
        assert_eq!(three.table.end_owner_frozen(three.later, &mut obedience), []);
        let _ = three.table.finish(obedience);
        assert_eq!(three.table.occupancy().off_disk, 1);
    }

    #[test]
    fn one_at_a_time_may_try_again_and_the_one_that_has_stood_for_longest_first() {
        let three = Three::beside_render([false, false, true]);
        assert_eq!(three.runs(0), [0, 1]);
        three.seen([true, false, false]);
        assert_eq!(three.runs(1), [1]);
        assert_eq!(three.runs(DISK_TRY_MS), [1], "the last was put off just now");
        assert_eq!(three.runs(DISK_TRY_MS + 1), [1, 2]);
        three.seen([false, false, false]);
        assert_eq!(three.runs(2 * DISK_TRY_MS), [1, 2]);
        assert_eq!(three.runs(2 * DISK_TRY_MS + 1), [0, 1, 2], "it had only read its input");
    }

    #[test]
    fn it_goes_like_any_other_where_a_render_wants_its_core_or_nobody_may_run() {
        let three = Three::beside_render([true, false, false]);
        assert_eq!(three.runs(0), [1, 2]);
        let frozen = three.table.freeze(Some(NEXT), Room::slots(2));
        assert_eq!(frozen.tokens, [token(0)], "it does nothing, so it goes first");
        let three = Three::beside_render([true, false, false]);
        assert_eq!(three.runs(0), [1, 2]);
        let mut obedience = three.table.hear(three.later, Share::NONE);
        let ended = three.table.end_all_frozen(&mut obedience);
        assert_eq!(ended.len(), 3, "all harvest is stopped: {ended:?}");
        let _ = three.table.finish(obedience);
    }

    #[test]
    fn for_an_owner_it_stands_still_no_longer_than_anything_else() {
        let three = Three::beside_render([true, false, false]);
        assert_eq!(three.runs(0), [1, 2]);
        let mut obedience = three.table.hear(three.later, Share::cores(2));
        assert_eq!(
            three.table.end_owner_frozen(three.later, &mut obedience),
            [token(0)],
            "two may run"
        );
        let _ = three.table.finish(obedience);
    }

    #[test]
    fn the_next_replica_of_a_runner_is_another() {
        let three = Three::new();
        three.seen([true, false, false]);
        three.table.end(0);
        three.table.begin(0, token(7), at_ms(9), EPOCH, false).expect("open");
        assert_eq!(three.render(), 0);
    }
}
