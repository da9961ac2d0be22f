//! Replicas that a render has driven out and that are not killed: frozen, in no slot's place, until
//! the main loop has them go on, save where they are, or end.

use std::sync::Arc;

use gleaner_protocol::{Epoch, LeaseToken, Time, boottime};

use super::group::Group;
use super::{Inner, SlotTable, State};

impl SlotTable {
    /// Lets what is frozen for a render in a slot run on. Where a render has come in between it
    /// stays as it is, as that one's release tells; where the owner has, it is frozen for them.
    pub(crate) fn thaw(&self, now: Time, slot: u32, token: LeaseToken, epoch: Epoch) {
        self.go_on(slot, token, |inner| {
            if !inner.gate.admits(inner.held(), epoch) {
                State::Parked
            } else if inner.held() >= inner.allowed {
                State::Kept(now)
            } else {
                State::Runs
            }
        });
    }

    /// Lets what is frozen for a render in a slot run on beside it, to save where it is. Where
    /// another render has come in between it stays as it is, as that one's release tells.
    pub(crate) fn save(&self, slot: u32, token: LeaseToken, epoch: Epoch) {
        self.go_on(slot, token, |inner| {
            let may_save = inner.gate.is_open_at(epoch) && inner.allowed > 0;
            if may_save { State::Saves } else { State::Parked }
        });
    }

    /// Whether this replica runs on beside a render only to save where it is.
    pub(crate) fn is_saving(&self, slot: u32, token: LeaseToken) -> bool {
        let busy = self.lock().busy[slot as usize];
        busy.is_some_and(|busy| busy.token == token && busy.state == State::Saves)
    }

    /// Freezes what ran on beside a render to save where it is, and has. Whether it did.
    pub(crate) fn stop_saving(&self, slot: u32, token: LeaseToken) -> bool {
        let mut inner = self.lock();
        let saves = inner.busy[slot as usize]
            .is_some_and(|busy| busy.token == token && busy.state == State::Saves);
        saves && inner.park(slot as usize).is_some()
    }

    /// Whether this replica runs in this slot, so that it can be asked for something.
    pub(crate) fn can_hear(&self, slot: u32, token: LeaseToken) -> bool {
        let busy = self.lock().busy[slot as usize];
        busy.is_some_and(|busy| busy.token == token && !busy.is_frozen())
    }

    fn go_on(&self, slot: u32, token: LeaseToken, decide: impl Fn(&Inner) -> State) {
        let slot = slot as usize;
        let Some(group) = self.lock().parked_group(slot, token) else { return };
        // Frozen as it is, it stays where it is put.
        if let Some(reach) = group.reach() {
            reach.calm();
        }
        let mut inner = self.lock();
        if inner.parked_group(slot, token).is_none() {
            return;
        }
        let state = decide(&inner);
        if let Some(busy) = &mut inner.busy[slot] {
            busy.state = state;
            busy.ran_since = boottime();
        }
        let goes_on = matches!(state, State::Runs | State::Saves);
        if goes_on {
            group.thaw();
        }
        drop(inner);
        if goes_on {
            self.strays_go_on(&group);
        }
        self.share_out();
    }
}

impl Inner {
    /// Freezes what runs in a slot, for the main loop to decide on; its group.
    pub(super) fn park(&mut self, slot: usize) -> Option<Arc<Group>> {
        let (busy, runner) = (self.busy[slot].as_mut()?, self.runners[slot].as_ref()?);
        busy.state = State::Parked;
        runner.group.stop();
        Some(Arc::clone(&runner.group))
    }

    fn parked_group(&self, slot: usize, token: LeaseToken) -> Option<Arc<Group>> {
        let busy = self.busy[slot].filter(|busy| busy.token == token)?;
        let runner = self.runners[slot].as_ref().filter(|_| busy.state == State::Parked)?;
        Some(Arc::clone(&runner.group))
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::Obedience;
    use super::super::tests::{EPOCH, NEXT, Sleeper, open, token};
    use super::super::{Cause, Room};
    use super::*;
    use gleaner_protocol::control::Fragment;

    fn at(micros: u64) -> Time {
        Time::from_micros(micros)
    }

    /// Two replicas that a render has frozen.
    fn parked() -> (SlotTable, [Sleeper; 2]) {
        let table = open(2);
        let sleepers = [Sleeper::start(), Sleeper::start()];
        for slot in 0..2_u32 {
            table.enter_runner(slot, sleepers[slot as usize].pgid(), None);
            table.begin(slot, token(slot.into()), at(slot.into()), EPOCH, true).expect("open");
        }
        let frozen = table.freeze(Some(NEXT), Room::slots(0));
        assert_eq!(frozen.parked, [token(0), token(1)]);
        assert_eq!((frozen.tokens.len(), frozen.count), (0, 2));
        sleepers.iter().for_each(Sleeper::wait_until_frozen);
        (table, sleepers)
    }

    #[test]
    fn what_a_render_has_frozen_is_not_killed_and_goes_on_where_it_is_let() {
        let (table, mut sleepers) = parked();
        assert!(table.kill_frozen());
        let occupancy = table.occupancy();
        assert_eq!((occupancy.running, occupancy.kept), (0, 2));
        table.hear_and_set_gate(Fragment { epoch: NEXT, slots: 1 });
        table.thaw(at(10), 0, token(0), NEXT);
        sleepers[0].wait_until_thawed();
        table.thaw(at(10), 1, token(1), NEXT);
        assert_eq!(table.occupancy().running, 1, "there is no room for both");
        assert!(sleepers.iter_mut().all(Sleeper::is_alive));
        table.stop(1, token(1));
        sleepers[1].wait_until_killed();
        assert_eq!(table.remove_runner(1), Cause::Stopped, "it did not fail");
    }

    #[test]
    fn a_render_that_came_in_between_keeps_it_frozen() {
        let (table, sleepers) = parked();
        table.hear_and_set_gate(Fragment { epoch: NEXT, slots: 2 });
        let later = Epoch { count: NEXT.count + 1, ..NEXT };
        assert_eq!(table.freeze(Some(later), Room::slots(1)).parked, [token(0), token(1)]);
        table.thaw(at(10), 0, token(0), NEXT);
        table.save(1, token(1), NEXT);
        assert_eq!(table.occupancy().kept, 2);
        assert!(!table.can_hear(0, token(0)));
        drop(sleepers);
    }

    #[test]
    fn where_the_owner_came_in_between_it_is_frozen_for_them() {
        let (table, sleepers) = parked();
        table.allow(at(5), 0);
        table.hear_and_set_gate(Fragment { epoch: NEXT, slots: 2 });
        table.thaw(at(10), 0, token(0), NEXT);
        assert_eq!((table.kept_since(), table.occupancy().running), (Some(at(10)), 0));
        table.allow(at(11), 2);
        sleepers[0].wait_until_thawed();
        assert_eq!(table.occupancy().kept, 1, "what a render froze is none of the owner's");
    }

    #[test]
    fn one_that_saves_takes_no_place_and_the_next_render_ends_it() {
        let (table, mut sleepers) = parked();
        table.hear_and_set_gate(Fragment { epoch: NEXT, slots: 1 });
        table.save(0, token(0), NEXT);
        sleepers[0].wait_until_thawed();
        table.thaw(at(10), 1, token(1), NEXT);
        sleepers[1].wait_until_thawed();
        let later = Epoch { count: NEXT.count + 1, ..NEXT };
        let frozen = table.freeze(Some(later), Room::slots(1));
        assert_eq!((frozen.tokens, frozen.parked), (vec![token(0)], Vec::new()));
        assert!(table.kill_frozen());
        sleepers[0].wait_until_killed();
        assert!(sleepers[1].is_alive());
    }

    #[test]
    fn who_stops_all_ends_what_is_parked_too() {
        let (table, mut sleepers) = parked();
        let mut obedience = Obedience::default();
        let ended = table.end_kept(at(1_000), &mut obedience);
        assert_eq!(ended, [], "its time is not the owner's");
        assert_eq!(table.end_all_kept(&mut obedience), [token(0), token(1)]);
        table.finish(obedience);
        sleepers.iter_mut().for_each(Sleeper::wait_until_killed);
    }
}
