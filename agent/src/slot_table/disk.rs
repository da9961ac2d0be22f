//! Who keeps a disk busy beside a render.
//!
//! Cores and memory that a render has booked are its own; a disk is everybody's, and no weight keeps a
//! render's share of it where the kernel has none to give. So a replica that was seen to read or write
//! much stands still while a render has booked a part of its host, from the moment on in which a hook
//! says so. It is frozen, and not held to a rate: what waits for a disk ends first, so that nobody else
//! waits for a file system that waits for it.
//!
//! What it was seen to use is forgotten by half again and again; then it may go on, and show itself
//! anew.
//!
//! # Invariants
//! - Beside a render, what was seen to keep a disk busy runs until the next look at most.

use gleaner_protocol::{LeaseToken, Span, Time};

use super::{Busy, Inner, RunnerEntry, State};
use crate::limits::{DISK_BESIDE_KIB_S_MAX, DISK_FORGOTTEN_MS, DISK_HALVES_MAX};

impl Inner {
    /// What runs and keeps a disk busy beside a render, if there is one.
    pub(super) fn on_disk(&self, beside_render: bool, now: Time) -> Vec<(LeaseToken, usize)> {
        if !beside_render {
            return Vec::new();
        }
        let mut running = self.oldest_first(Busy::runs);
        running.retain(|(_, slot)| self.keeps_disk_busy(*slot, now));
        running
    }

    /// Whether what is in a slot was seen to, and that is not forgotten yet.
    pub(super) fn keeps_disk_busy(&self, slot: usize, now: Time) -> bool {
        match (&self.busy[slot], &self.runners[slot]) {
            (Some(busy), Some(runner)) => {
                remembered_kib_s(busy, runner, now) > DISK_BESIDE_KIB_S_MAX
            }
            _ => false,
        }
    }

    /// Replicas that stand still for that reason alone.
    pub(super) fn kept_off_disk(&self, beside_render: bool, now: Time) -> u32 {
        let slots = (0..self.busy.len()).filter(|slot| {
            let is_kept = self.busy[*slot].is_some_and(|busy| busy.kept_since().is_some());
            beside_render && is_kept && self.keeps_disk_busy(*slot, now)
        });
        u32::try_from(slots.count()).expect("at most one entry per core")
    }
}

/// What it used when it was looked at last, as far as that is remembered.
fn remembered_kib_s(busy: &Busy, runner: &RunnerEntry, now: Time) -> u64 {
    let most = DISK_BESIDE_KIB_S_MAX << DISK_HALVES_MAX;
    let still = match busy.state {
        State::Kept(since) => now.since(since),
        _ => Span::ZERO,
    };
    let halves = still.as_millis() / DISK_FORGOTTEN_MS;
    runner.disk_kib_s.min(most) >> halves.min(63)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{EPOCH, NEXT, Sleeper, open, token};
    use super::super::{Room, SlotTable, Upkeep};
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::from_micros(ms * 1_000)
    }

    /// Two replicas, in slots 0 and 1, of which the first was seen to use so much.
    fn seen(disk_kib_s: u64) -> (SlotTable, [Sleeper; 2]) {
        let table = open(3);
        let sleepers = [Sleeper::start(), Sleeper::start()];
        for slot in 0..2_u32 {
            table.enter_runner(slot, sleepers[slot as usize].pgid(), None);
            table.begin(slot, token(slot.into()), at_ms(slot.into()), EPOCH, false).expect("open");
        }
        let upkeep = |slot: usize, disk_kib_s| Upkeep {
            pgid: sleepers[slot].pgid(),
            cpu: Span::ZERO,
            memory_mib: 1,
            disk_kib_s,
        };
        table.note_upkeep(at_ms(1), &[upkeep(0, disk_kib_s), upkeep(1, 0)]);
        (table, sleepers)
    }

    /// What runs, by slots, when the owner's word is heard again.
    fn runs(table: &SlotTable, now: Time) -> Vec<u32> {
        let _ = table.finish(table.hear(now, gleaner_protocol::Share::cores(3)));
        table.held_replicas().iter().filter(|one| !one.frozen).map(|one| one.slot).collect()
    }

    #[test]
    fn beside_a_render_only_those_go_on_that_leave_the_disk_alone() {
        let (table, sleepers) = seen(DISK_BESIDE_KIB_S_MAX + 1);
        assert_eq!(runs(&table, at_ms(2)), [0, 1], "nobody renders");
        table.note_booked_cores(1);
        let frozen = table.freeze(Some(NEXT), Room::slots(2));
        assert_eq!((frozen.count, frozen.tokens, frozen.parked), (1, vec![], vec![]));
        sleepers[0].wait_until_frozen();
        assert_eq!(table.occupancy().off_disk, 1);
        table.note_booked_cores(0);
        assert_eq!(runs(&table, at_ms(3)), [0, 1], "it has ended");
        sleepers[0].wait_until_thawed();
    }

    #[test]
    fn who_is_seen_to_keep_it_busy_beside_a_render_stands_still_from_then_on() {
        let (table, sleepers) = seen(0);
        table.note_booked_cores(1);
        assert_eq!(table.freeze(Some(NEXT), Room::slots(2)).count, 0);
        let disk_kib_s = DISK_BESIDE_KIB_S_MAX << 2;
        let pgid = sleepers[0].pgid();
        table.note_upkeep(at_ms(5), &[Upkeep { pgid, cpu: Span::ZERO, memory_mib: 1, disk_kib_s }]);
        assert_eq!(runs(&table, at_ms(10)), [1]);
        // What stands still is seen to use nothing, which says nothing.
        table.note_upkeep(
            at_ms(20),
            &[Upkeep { pgid, cpu: Span::ZERO, memory_mib: 1, disk_kib_s: 0 }],
        );
        assert_eq!(runs(&table, at_ms(10 + 2 * DISK_FORGOTTEN_MS - 1)), [1]);
        table.set_gate(gleaner_protocol::control::Fragment { epoch: NEXT, slots: 2 });
        assert_eq!(runs(&table, at_ms(10 + 2 * DISK_FORGOTTEN_MS)), [0, 1], "it may try again");
    }

    #[test]
    fn the_next_replica_of_a_runner_is_another() {
        let (table, _sleepers) = seen(1 << 20);
        table.note_booked_cores(1);
        table.end(0);
        table.begin(0, token(7), at_ms(9), EPOCH, false).expect("open");
        assert_eq!(table.freeze(Some(NEXT), Room::slots(2)).count, 0);
    }

    #[test]
    fn whatever_it_used_is_forgotten_in_the_end() {
        let (table, _sleepers) = seen(u64::MAX);
        let mut inner = table.lock();
        inner.keep(0, at_ms(0));
        let forgotten = DISK_FORGOTTEN_MS * u64::from(DISK_HALVES_MAX);
        assert!(inner.keeps_disk_busy(0, at_ms(forgotten - 1)));
        assert!(!inner.keeps_disk_busy(0, at_ms(forgotten)));
    }
}
