//! What goes on though it was frozen.
//!
//! Where no control group freezes it, a process is stopped by a signal, and another signal lets it go
//! on: a timer of its own that sends it that, or anybody of its session, whoever they are. No filter of
//! system calls sees all of these. So it is looked at what is frozen, like at everything else, and what
//! uses CPU time is ended.

use gleaner_protocol::LeaseToken;

use super::{Inner, SlotTable, State, Upkeep};

impl SlotTable {
    /// Ends what was seen to go on though it is frozen; returns which. What is to be killed anyway is
    /// left to whoever does.
    pub(crate) fn end_self_resumed(&self, upkeep: &[Upkeep]) -> Vec<LeaseToken> {
        let mut inner = self.lock();
        let Inner { runners, busy, .. } = &mut *inner;
        let (mut ended, mut groups) = (Vec::new(), Vec::new());
        for (runner, busy) in runners.iter_mut().zip(busy) {
            let (Some(runner), Some(busy)) = (runner, busy) else { continue };
            let is_kept = busy.is_frozen() && busy.state != State::Stopped && !runner.killed;
            let goes_on = |one: &&Upkeep| {
                (one.pgid, one.begun) == (runner.group.pgid(), runner.begun)
                    && one.self_resumed_since == Some(busy.ran_since)
            };
            if is_kept && upkeep.iter().any(|one| goes_on(&one)) {
                (runner.self_resumed, runner.killed) = (true, true);
                ended.push(busy.token);
                groups.push(runner.group.clone());
            }
        }
        inner.stir_if(!ended.is_empty());
        drop(inner);
        if !ended.is_empty() {
            // To die takes a little of a core, which idle work does not get beside a render.
            self.idleness.set(false);
        }
        groups.iter().filter_map(|group| group.reach()).for_each(|reach| reach.kill_frozen());
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{EPOCH, Sleeper, open, token};
    use super::super::{Cause, SlotTable};
    use super::*;
    use gleaner_protocol::{Span, Time};

    fn at(micros: u64) -> Time {
        Time::from_micros(micros)
    }

    fn seen(sleeper: &Sleeper, self_resumed_since: Option<Time>) -> Upkeep {
        let (cpu, memory_mib, keeps_disk_busy) = (Span::ZERO, 0, false);
        let pgid = sleeper.pgid();
        Upkeep { pgid, begun: 1, cpu, memory_mib, keeps_disk_busy, self_resumed_since }
    }

    /// Two replicas, of which the owner has the second one frozen.
    fn one_of_two() -> (SlotTable, [Sleeper; 2]) {
        let table = open(2);
        let sleepers = [Sleeper::start(), Sleeper::start()];
        for (slot, sleeper) in (0..).zip(&sleepers) {
            table.enter_runner(slot, sleeper.pgid(), None);
            table.begin(slot, token(slot.into()), at(slot.into()), EPOCH, false).expect("open");
        }
        assert_eq!(table.allow(at(10), 1), 1);
        sleepers[1].wait_until_frozen();
        (table, sleepers)
    }

    #[test]
    fn what_goes_on_though_it_is_frozen_is_ended_and_has_failed() {
        let (table, mut sleepers) = one_of_two();
        let upkeep = [seen(&sleepers[0], None), seen(&sleepers[1], Some(at(1)))];
        assert_eq!(table.end_self_resumed(&upkeep), [token(1)]);
        sleepers[1].wait_until_killed();
        assert_eq!(table.end_self_resumed(&upkeep), [], "it is ended once");
        assert_eq!(table.remove_runner(1), Cause::SelfResumed);
        assert!(sleepers[0].is_alive());
        assert_eq!(table.remove_runner(0), Cause::Itself);
    }

    #[test]
    fn what_was_let_go_on_meanwhile_is_left_alone() {
        let (table, mut sleepers) = one_of_two();
        // Seen before it was thawed and frozen again.
        table.allow(at(11), 2);
        sleepers[1].wait_until_thawed();
        assert_eq!(table.end_self_resumed(&[seen(&sleepers[1], Some(at(1)))]), [], "it may run");
        table.allow(at(12), 1);
        assert_eq!(table.end_self_resumed(&[seen(&sleepers[1], Some(at(1)))]), []);
        assert!(sleepers[1].is_alive());
        assert_eq!(table.remove_runner(1), Cause::Stopped);
    }
}
