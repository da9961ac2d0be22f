//! What a render costs: which replicas lose least when it drives them out, and which are in the
//! way of its memory.
//!
//! In this order they go:
//! 1. what is frozen already, for the owner or for a disk's sake;
//! 2. what its job wants kept frozen, which loses nothing where the host is free again in time;
//! 3. the rest.
//!
//! Among these, first what has used the least CPU time since it began, or since it saved where it
//! is last; of what was not seen since, the time that went by counts. Of two alike the younger
//! goes.

use std::cmp::Reverse;

use gleaner_protocol::{LeaseToken, Span, Time};

use super::{Busy, Inner, RunnerEntry, SlotTable, State};

/// What a runner's group takes of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Upkeep {
    /// Its number.
    pub(crate) pgid: i32,
    /// Replicas that it had been handed.
    pub(crate) begun: u64,
    /// CPU time that it has used since it was started.
    pub(crate) cpu: Span,
    /// Memory that it takes, in MiB.
    pub(crate) memory_mib: u64,
    /// Whether its replica keeps a disk busy.
    pub(crate) keeps_disk_busy: bool,
    /// Since when its replica had not been frozen, where it is and goes on all the same.
    pub(crate) self_resumed_since: Option<Time>,
}

impl SlotTable {
    /// Runners were seen to take this much.
    pub(crate) fn note_upkeep(&self, now: Time, upkeep: &[Upkeep]) {
        let mut inner = self.lock();
        let Inner { runners, busy, .. } = &mut *inner;
        for (runner, busy) in runners.iter_mut().zip(busy) {
            let Some(runner) = runner else { continue };
            let seen = upkeep.iter().find(|one| one.pgid == runner.group.pgid());
            let Some(Upkeep { begun, cpu, memory_mib, keeps_disk_busy, .. }) = seen else {
                continue;
            };
            (runner.cpu, runner.memory_mib) = (*cpu, *memory_mib);
            if let Some(busy) = busy {
                busy.seen = now;
                // What a replica before it did is not its own.
                if !busy.is_frozen() && *begun == runner.begun {
                    runner.keeps_disk_busy = *keeps_disk_busy;
                }
                if *begun == runner.begun {
                    busy.peak_mib = busy.peak_mib.max(Some(*memory_mib));
                    busy.took = minus(*cpu, busy.began_with);
                    (busy.took_by, busy.stood_by_then) = (now, busy.stood_by(now));
                }
            }
        }
    }

    /// CPU time that the runner of a replica had used when it was seen last.
    pub(crate) fn cpu_used(&self, slot: u32, token: LeaseToken) -> Option<Span> {
        let inner = self.lock();
        let slot = slot as usize;
        inner.busy[slot].filter(|busy| busy.token == token)?;
        inner.runners[slot].as_ref().map(|runner| runner.cpu)
    }

    /// Takes a slot's replica out: it has ended.
    pub(crate) fn end(&self, slot: u32) {
        let mut inner = self.lock();
        let slot = slot as usize;
        inner.ended[slot] = inner.busy[slot].take().or(inner.ended[slot]);
        drop(inner);
        self.share_out();
    }

    /// CPU time that a replica has taken that is here or was the last of its slot: as it was seen, and
    /// since then at the same rate where it did not stand still. One that was not seen counts as one that
    /// has computed all the time. None of any other.
    pub(crate) fn cpu_taken(&self, now: Time, token: LeaseToken) -> Span {
        let inner = self.lock();
        let mut all = inner.busy.iter().chain(&inner.ended).flatten();
        let Some(busy) = all.find(|busy| busy.token == token) else { return Span::ZERO };
        let stood = minus(busy.stood_by(now), busy.stood_by_then);
        let unseen = minus(now.since(busy.took_by), stood);
        let seen = minus(busy.took_by.since(busy.since), busy.stood_by_then).as_micros();
        let rate = if seen > 0 { busy.took.as_micros() as f64 / seen as f64 } else { 1.0 };
        busy.took + Span::from_micros((unseen.as_micros() as f64 * rate) as u64)
    }

    /// A replica saved where it is: what it has done so far is not lost.
    pub(crate) fn note_saved(&self, now: Time, slot: u32, token: LeaseToken) {
        let mut inner = self.lock();
        let Inner { runners, busy, .. } = &mut *inner;
        let slot = slot as usize;
        if let (Some(runner), Some(busy)) = (&runners[slot], &mut busy[slot])
            && busy.token == token
        {
            busy.safe = runner.cpu + now.since(busy.seen);
        }
    }
}

impl Inner {
    /// What takes a slot, what loses least first.
    pub(super) fn cheapest_first(&self, now: Time) -> Vec<(LeaseToken, usize)> {
        let slots = self.busy.iter().zip(&self.runners).enumerate();
        let taking = slots.filter_map(|(slot, (busy, runner))| {
            let busy = busy.filter(Busy::takes_slot)?;
            let loss = loss(now, &busy, runner.as_ref());
            Some((rank(&busy), loss, Reverse(busy.since), busy.token, slot))
        });
        let mut order: Vec<_> = taking.collect();
        order.sort_unstable();
        order.into_iter().map(|(.., token, slot)| (token, slot)).collect()
    }

    /// What has to go so that all that is left, of this and of what is frozen, takes no more
    /// memory than this: what is frozen first, the largest of it before the rest.
    pub(super) fn beyond_memory(
        &self,
        most_mib: Option<u64>,
        running: &[(LeaseToken, usize)],
    ) -> Vec<(LeaseToken, usize)> {
        let Some(most_mib) = most_mib else { return Vec::new() };
        let memory_mib = |slot: usize| self.runners[slot].as_ref().map_or(0, |r| r.memory_mib);
        let mut frozen: Vec<(LeaseToken, usize)> = self
            .busy
            .iter()
            .enumerate()
            .filter_map(|(slot, busy)| Some((busy.as_ref()?.token, slot)))
            .filter(|one| !running.contains(one))
            .filter(|(_, slot)| self.busy[*slot].is_some_and(|busy| stays_frozen(&busy)))
            .collect();
        frozen.sort_by_key(|(token, slot)| (Reverse(memory_mib(*slot)), *token));
        let all = || frozen.iter().chain(running);
        let mut total_mib: u64 = all().map(|(_, slot)| memory_mib(*slot)).sum();
        let mut gone = Vec::new();
        for one in all() {
            if total_mib <= most_mib {
                break;
            }
            total_mib -= memory_mib(one.1);
            gone.push(*one);
        }
        gone
    }
}

fn rank(busy: &Busy) -> u8 {
    match (busy.state, busy.parks) {
        (State::OwnerFrozen(_) | State::OffDisk(_), _) => 0,
        (_, true) => 1,
        (_, false) => 2,
    }
}

fn loss(now: Time, busy: &Busy, runner: Option<&RunnerEntry>) -> Span {
    let used = runner.map_or(Span::ZERO, |runner| runner.cpu) + now.since(busy.seen);
    minus(used, busy.safe)
}

fn minus(span: Span, less: Span) -> Span {
    Span::from_micros(span.as_micros().saturating_sub(less.as_micros()))
}

/// Whether it would be frozen and not killed if it had to go.
fn stays_frozen(busy: &Busy) -> bool {
    match busy.state {
        State::Parked | State::Waits(_) => true,
        State::Runs | State::OwnerFrozen(_) | State::OffDisk(_) => busy.parks,
        State::Saves | State::Stopped => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Room;
    use super::super::tests::{EPOCH, NEXT, Sleeper, open, token};
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    /// Replicas that began one after the other in slots 0, 1, …, and are kept or killed.
    fn running(parks: &[bool]) -> (SlotTable, Vec<Sleeper>) {
        let slots = u32::try_from(parks.len()).expect("few");
        let table = open(slots);
        let sleepers: Vec<Sleeper> = parks.iter().map(|_| Sleeper::start()).collect();
        for ((slot, sleeper), parks) in (0..slots).zip(&sleepers).zip(parks) {
            table.enter_runner(slot, sleeper.pgid(), None);
            let began = at(1 + u64::from(slot));
            table.begin(slot, token(slot.into()), began, EPOCH, *parks).expect("open");
        }
        (table, sleepers)
    }

    /// CPU time in seconds and memory in MiB of each, seen at second 100.
    fn seen(table: &SlotTable, sleepers: &[Sleeper], upkeep: &[(u64, u64)]) {
        let upkeep: Vec<Upkeep> = sleepers
            .iter()
            .zip(upkeep)
            .map(|(sleeper, (cpu_s, memory_mib))| Upkeep {
                pgid: sleeper.pgid(),
                begun: 1,
                cpu: Span::from_secs(*cpu_s),
                memory_mib: *memory_mib,
                keeps_disk_busy: false,
                self_resumed_since: None,
            })
            .collect();
        table.note_upkeep(at(100), &upkeep);
    }

    #[test]
    fn what_a_replica_took_is_told_also_when_it_has_just_ended() {
        let (table, sleepers) = running(&[false; 2]);
        let took = |number, now| table.cpu_taken(at(now), token(number)).as_secs_f64();
        assert_eq!((took(0, 11), took(1, 11)), (10.0, 9.0), "nobody has looked");
        seen(&table, &sleepers, &[(80, 0), (20, 0)]);
        // The one began a second before the other, which has computed for less than half of the time.
        assert_eq!((took(0, 100), took(1, 100)), (80.0, 20.0));
        assert_eq!(took(1, 149), 20.0 + 10.0);
        table.end(1);
        assert_eq!(took(1, 149), 30.0);
        // The next one has what its runner takes from now on.
        table.begin(1, token(7), at(149), EPOCH, false).expect("open");
        assert_eq!((took(7, 150), took(1, 149), took(9, 149)), (1.0, 30.0, 0.0));
    }

    fn order(table: &SlotTable) -> Vec<u64> {
        let order = table.lock().cheapest_first(at(100));
        order.into_iter().map(|(token, _)| token.get()).collect()
    }

    #[test]
    fn unseen_the_youngest_goes_first() {
        let (table, _sleepers) = running(&[false; 3]);
        assert_eq!(order(&table), [2, 1, 0]);
    }

    #[test]
    fn what_has_computed_least_goes_first() {
        let (table, sleepers) = running(&[false; 3]);
        seen(&table, &sleepers, &[(5, 0), (90, 0), (40, 0)]);
        assert_eq!(order(&table), [0, 2, 1]);
        table.note_saved(at(100), 1, token(1));
        assert_eq!(order(&table), [1, 0, 2], "what was saved is not lost");
        table.note_saved(at(100), 2, token(1));
        assert_eq!(order(&table), [1, 0, 2], "that was another replica");
    }

    #[test]
    fn what_the_runner_did_before_is_no_loss() {
        let (table, sleepers) = running(&[false; 2]);
        seen(&table, &sleepers, &[(80, 0), (20, 0)]);
        table.end(0);
        table.begin(0, token(7), at(90), EPOCH, false).expect("open");
        assert_eq!(order(&table), [7, 1]);
    }

    #[test]
    fn what_stays_frozen_goes_before_what_is_killed() {
        let (table, sleepers) = running(&[false, true, false]);
        seen(&table, &sleepers, &[(5, 0), (90, 0), (1, 0)]);
        assert_eq!(order(&table), [1, 2, 0]);
        // The owner's wish freezes the youngest.
        table.allow(at(100), 2);
        assert_eq!(order(&table), [2, 1, 0]);
    }

    #[test]
    fn what_is_frozen_in_the_way_of_memory_is_killed_the_largest_first() {
        let (table, mut sleepers) = running(&[true, true, true, false]);
        seen(&table, &sleepers, &[(50, 300), (60, 700), (70, 200), (80, 100)]);
        let frozen = table.freeze(Some(NEXT), Room { slots: 1, memory_mib: Some(650), gpu: true });
        assert_eq!((frozen.tokens, frozen.parked), (vec![token(1)], vec![token(0), token(2)]));
        assert_eq!(frozen.count, 3);
        // The next render wants more of it.
        let frozen = table.freeze(Some(NEXT), Room { slots: 1, memory_mib: Some(350), gpu: true });
        assert_eq!((frozen.tokens, frozen.parked), (vec![token(0)], vec![token(2)]));
        assert!(table.kill_frozen());
        sleepers[..2].iter_mut().for_each(Sleeper::wait_until_killed);
        assert!(sleepers[2..].iter_mut().all(Sleeper::is_alive));
        // And then all: what runs goes last.
        let frozen = table.freeze(Some(NEXT), Room { slots: 1, memory_mib: Some(0), gpu: true });
        assert_eq!((frozen.tokens, frozen.parked), (vec![token(2), token(3)], Vec::new()));
    }

    #[test]
    fn where_nobody_says_how_much_memory_nothing_dies_for_it() {
        let (table, sleepers) = running(&[true, true]);
        seen(&table, &sleepers, &[(50, 3_000_000), (60, 700)]);
        assert_eq!(table.freeze(Some(NEXT), Room::slots(0)).parked, [token(0), token(1)]);
    }
}
