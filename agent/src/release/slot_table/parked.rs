//! Replicas that a render has driven out and that are not killed, and those that the broker has
//! parked: frozen, in no slot's place, until the main loop has them go on, save where they are, or end.
//!
//! What is to go on in the place of one that still ends waits for that.

use std::sync::Arc;

use gleaner_protocol::{Epoch, LeaseToken, Share, Span, Time, boottime};

use super::group::Group;
use super::{Inner, SlotTable, State};
use crate::limits::HURRY_MS_MAX;

impl SlotTable {
    /// Freezes what runs in a slot for another lane of the broker, and what waits there to go on stays
    /// frozen; what has not begun there does not begin, and is given back.
    pub(crate) fn park(&self, slot: u32, token: LeaseToken) {
        let at = slot as usize;
        let mut inner = self.lock();
        let Some(busy) = inner.busy[at].filter(|busy| busy.token == token) else {
            inner.shut_out[at] = Some(token);
            return;
        };
        let may_run = busy.takes_slot() || matches!(busy.state, State::Waits(_));
        let group = if may_run { inner.park(at) } else { None };
        drop(inner);
        let Some(group) = group else { return };
        group.enclose();
        if let Ok(Some(reach)) = group.try_reach() {
            reach.hurry_until(boottime() + Span::from_millis(HURRY_MS_MAX));
        }
        self.share_out();
    }

    /// Lets what is parked in a slot run on. Where a render has come in between it stays as it is,
    /// as that one's release tells; where the owner has, it is frozen for them. Where there is no
    /// place for it yet it waits for one, until [`SlotTable::thaw_waiting`].
    pub(crate) fn thaw(&self, now: Time, slot: u32, token: LeaseToken, epoch: Epoch) {
        self.go_on(slot, token, |inner| inner.thawed(now, slot, token, epoch));
    }

    /// A place may have become free: lets what waits for one run on, what began first before the
    /// rest, where the run folder stands at the epoch at which it was to. What was to at another one
    /// is parked again; whether anything is.
    pub(crate) fn thaw_waiting(&self, now: Time, stands: impl FnOnce() -> Option<Epoch>) -> bool {
        let waiting = self.lock().waiting();
        if waiting.is_empty() {
            return false;
        }
        let stands = stands();
        let mut is_parked = false;
        for (slot, token, epoch) in waiting {
            let decide = |inner: &Inner| {
                if stands == Some(epoch) {
                    inner.thawed(now, slot, token, epoch)
                } else {
                    State::Parked
                }
            };
            if decide(&self.lock()) != State::Waits(epoch) {
                is_parked |= self.go_on(slot, token, decide) == Some(State::Parked);
            }
        }
        is_parked
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

    /// Has what is parked in a slot do what is decided on it; what that is.
    fn go_on(
        &self,
        slot: u32,
        token: LeaseToken,
        decide: impl Fn(&Inner) -> State,
    ) -> Option<State> {
        let slot = slot as usize;
        let group = self.lock().parked_group(slot, token)?;
        // Frozen as it is, it stays where it is put.
        if let Some(reach) = group.reach() {
            reach.calm();
        }
        let mut inner = self.lock();
        inner.parked_group(slot, token)?;
        let state = decide(&inner);
        if let Some(busy) = &mut inner.busy[slot] {
            busy.state = state;
            busy.ran_since = boottime();
            if matches!(state, State::Runs | State::Saves) {
                busy.goes_on(busy.ran_since);
            }
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
        Some(state)
    }
}

impl Inner {
    /// What becomes of one that is to run on.
    fn thawed(&self, now: Time, slot: u32, token: LeaseToken, epoch: Epoch) -> State {
        let taken = self.taken_with(slot as usize, token);
        if !self.gate.is_open_at(epoch) {
            State::Parked
        } else if !self.gate.admits(taken, epoch) {
            State::Waits(epoch)
        } else if taken > Share::cores(self.allowed) {
            State::OwnerFrozen(now)
        } else {
            State::Runs
        }
    }

    /// What waits to go on, and at which epoch it was to: what began first before the rest.
    fn waiting(&self) -> Vec<(u32, LeaseToken, Epoch)> {
        let waiting = self.oldest_first(|busy| matches!(busy.state, State::Waits(_)));
        let slots = waiting.into_iter().filter_map(|(token, slot)| match self.busy[slot]?.state {
            // What is being killed leaves its place to the next one.
            State::Waits(epoch) if !self.runners[slot].as_ref()?.killed => {
                Some((u32::try_from(slot).ok()?, token, epoch))
            }
            _ => None,
        });
        slots.collect()
    }

    /// A render closes the host to what waits to go on.
    pub(super) fn park_waiting(&mut self) {
        for busy in self.busy.iter_mut().flatten() {
            if matches!(busy.state, State::Waits(_)) {
                busy.state = State::Parked;
            }
        }
    }

    /// Freezes what runs in a slot, for the main loop to decide on; its group.
    pub(super) fn park(&mut self, slot: usize) -> Option<Arc<Group>> {
        let (busy, runner) = (self.busy[slot].as_mut()?, self.runners[slot].as_ref()?);
        busy.state = State::Parked;
        busy.stands_still(boottime());
        runner.group.stop();
        Some(Arc::clone(&runner.group))
    }

    fn parked_group(&self, slot: usize, token: LeaseToken) -> Option<Arc<Group>> {
        let busy = self.busy[slot].filter(|busy| busy.token == token)?;
        let is_parked = matches!(busy.state, State::Parked | State::Waits(_));
        let runner = self.runners[slot].as_ref().filter(|_| is_parked)?;
        Some(Arc::clone(&runner.group))
    }
}

#[cfg(test)]
mod tests {
    use super::super::owner_frozen::Obedience;
    use super::super::tests::{EPOCH, NEXT, Sleeper, nothing, open, token};
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
        assert_eq!((occupancy.running, occupancy.frozen), (0, 2));
        table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 1, ..Fragment::default() });
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
        table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 2, ..Fragment::default() });
        let later = Epoch { count: NEXT.count + 1, ..NEXT };
        assert_eq!(table.freeze(Some(later), Room::slots(1)).parked, [token(0), token(1)]);
        table.thaw(at(10), 0, token(0), NEXT);
        table.save(1, token(1), NEXT);
        assert_eq!(table.occupancy().frozen, 2);
        assert!(!table.can_hear(0, token(0)));
        drop(sleepers);
    }

    #[test]
    fn where_the_owner_came_in_between_it_is_frozen_for_them() {
        let (table, sleepers) = parked();
        table.allow(at(5), 0);
        table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 2, ..Fragment::default() });
        table.thaw(at(10), 0, token(0), NEXT);
        assert_eq!((table.owner_frozen_since(), table.occupancy().running), (Some(at(10)), 0));
        table.allow(at(11), 2);
        sleepers[0].wait_until_thawed();
        assert_eq!(table.occupancy().frozen, 1, "what a render froze is none of the owner's");
    }

    #[test]
    fn one_that_saves_takes_no_place_and_the_next_render_ends_it() {
        let (table, mut sleepers) = parked();
        table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 1, ..Fragment::default() });
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

    /// One that the broker has parked in slot 0, and the one in its place in slot 1, which is being
    /// ended as the first is told to go on.
    fn waiting() -> (SlotTable, [Sleeper; 2]) {
        let gate = Fragment { epoch: EPOCH, cores: 1, ..Fragment::default() };
        let table = SlotTable::new(2, gate, nothing(), Arc::default());
        let sleepers = [Sleeper::start(), Sleeper::start()];
        for slot in 0..2_u32 {
            table.enter_runner(slot, sleepers[slot as usize].pgid(), None);
            table.begin(slot, token(slot.into()), at(slot.into()), EPOCH, false).expect("open");
            if slot == 0 {
                table.park(0, token(0));
                sleepers[0].wait_until_frozen();
            }
        }
        table.stop(1, token(1));
        table.thaw(at(10), 0, token(0), EPOCH);
        assert!(!table.thaw_waiting(at(10), || Some(EPOCH)), "it waits for its place");
        assert!(!table.can_hear(0, token(0)));
        assert_eq!(table.parked_tokens(), [], "nobody else has a say in it");
        (table, sleepers)
    }

    /// What was in its place has gone.
    fn frees_its_place(table: &SlotTable) {
        assert_eq!(table.remove_runner(1), Cause::Itself);
    }

    #[test]
    fn what_is_to_go_on_before_its_place_is_free_does_so_when_it_is() {
        let (table, sleepers) = waiting();
        frees_its_place(&table);
        assert!(!table.thaw_waiting(at(11), || Some(EPOCH)));
        sleepers[0].wait_until_thawed();
        assert_eq!((table.occupancy().running, table.occupancy().frozen), (1, 0));
        assert!(!table.thaw_waiting(at(12), || panic!("nothing waits")));
    }

    #[test]
    fn of_two_that_wait_the_one_that_began_first_goes_on_first() {
        let gate = Fragment { epoch: EPOCH, cores: 1, ..Fragment::default() };
        let table = SlotTable::new(3, gate, nothing(), Arc::default());
        let sleepers = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
        for slot in 0..3_u32 {
            table.enter_runner(slot, sleepers[slot as usize].pgid(), None);
            table.begin(slot, token(slot.into()), at(slot.into()), EPOCH, false).expect("open");
            if slot < 2 {
                table.park(slot, token(slot.into()));
            }
        }
        for slot in [1_u32, 0] {
            table.thaw(at(10), slot, token(slot.into()), EPOCH);
        }
        table.end(2);
        assert!(!table.thaw_waiting(at(11), || Some(EPOCH)));
        assert!(table.can_hear(0, token(0)));
        assert_eq!((table.occupancy().running, table.occupancy().frozen), (1, 1));
        table.end(0);
        assert!(!table.thaw_waiting(at(12), || Some(EPOCH)));
        assert!(table.can_hear(1, token(1)));
    }

    #[test]
    fn a_render_closes_the_host_to_what_waits_like_to_all_that_is_parked() {
        let (table, _sleepers) = waiting();
        let frozen = table.freeze(Some(NEXT), Room::slots(1));
        assert_eq!(frozen.parked, [token(0)], "it is told of");
        table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 1, ..Fragment::default() });
        frees_its_place(&table);
        assert!(!table.thaw_waiting(at(11), || Some(NEXT)));
        assert_eq!((table.occupancy().running, table.occupancy().frozen), (0, 1));
    }

    #[test]
    fn what_waits_does_not_go_on_where_only_the_run_folder_says_that_a_render_came() {
        let (table, _sleepers) = waiting();
        frees_its_place(&table);
        assert!(table.thaw_waiting(at(11), || Some(NEXT)));
        assert_eq!(table.parked_tokens(), [token(0)]);
        assert!(!table.thaw_waiting(at(12), || Some(EPOCH)), "that is decided");
        assert_eq!(table.occupancy().running, 0);
    }

    #[test]
    fn what_waits_does_not_go_on_in_a_closed_fragment() {
        let (table, _sleepers) = waiting();
        table.hear_and_set_gate(Fragment { epoch: EPOCH, cores: 0, ..Fragment::default() });
        frees_its_place(&table);
        assert!(table.thaw_waiting(at(11), || Some(EPOCH)));
        assert_eq!((table.parked_tokens(), table.occupancy().running), (vec![token(0)], 0));
    }

    #[test]
    fn what_waits_is_parked_again_where_the_broker_says_so_and_ended_where_it_is_stopped() {
        let (table, _sleepers) = waiting();
        table.park(0, token(0));
        frees_its_place(&table);
        assert!(!table.thaw_waiting(at(11), || Some(EPOCH)));
        assert_eq!((table.parked_tokens(), table.occupancy().running), (vec![token(0)], 0));
        let (table, mut sleepers) = waiting();
        table.stop(0, token(0));
        sleepers[0].wait_until_killed();
        frees_its_place(&table);
        assert!(!table.thaw_waiting(at(11), || panic!("nothing waits any more")));
        assert_eq!(table.remove_runner(0), Cause::Stopped, "it did not fail");
    }

    #[test]
    fn who_stops_all_ends_what_is_parked_too() {
        let (table, mut sleepers) = parked();
        let mut obedience = Obedience::default();
        let ended = table.end_owner_frozen(at(1_000), &mut obedience);
        assert_eq!(ended, [], "its time is not the owner's");
        assert_eq!(table.end_all_frozen(&mut obedience), [token(0), token(1)]);
        table.finish(obedience);
        sleepers.iter_mut().for_each(Sleeper::wait_until_killed);
    }
}
