//! The table against real processes.

use super::*;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use gleaner_hooks::{ProcessStat, kill};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

impl Room {
    /// This many replicas, any memory, and the GPU.
    pub(crate) const fn slots(slots: u32) -> Self {
        Self { slots, memory_mib: None, gpu: true }
    }
}

pub(crate) const EPOCH: Epoch = Epoch { incarnation: 1, count: 5 };
pub(crate) const NEXT: Epoch = Epoch { incarnation: 1, count: 6 };

pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn start() -> Self {
        let mut sleep = Command::new("/bin/sleep");
        sleep.arg("1000");
        Self::start_this(sleep)
    }

    /// As the leader of a group.
    pub(crate) fn start_this(mut command: Command) -> Self {
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("it is there"))
    }

    pub(crate) fn pgid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a process number")
    }

    /// Writes to what it was given to read.
    pub(crate) fn tell(&mut self, words: &str) {
        let input = self.0.stdin.as_mut().expect("it was given something to read");
        input.write_all(words.as_bytes()).expect("it reads");
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("ours").is_none()
    }

    pub(crate) fn wait_until_frozen(&self) {
        let pid = WaitId::Pid(Pid::from_raw(self.pgid()).expect("a process number"));
        let status = waitid(pid, WaitIdOptions::STOPPED).expect("ours").expect("a change");
        assert!(status.stopped());
    }

    pub(crate) fn wait_until_thawed(&self) {
        let pid = WaitId::Pid(Pid::from_raw(self.pgid()).expect("a process number"));
        let status = waitid(pid, WaitIdOptions::CONTINUED).expect("ours").expect("a change");
        assert!(status.continued());
    }

    pub(crate) fn wait_until_killed(&mut self) {
        assert!(!self.0.wait().expect("ours").success());
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = kill(self.pgid());
        let _ = self.0.wait();
    }
}

/// No control groups: what is frozen here shows it to its parent.
pub(crate) fn nothing() -> Enclosure {
    Enclosure::open(gleaner_isolation::Choice::ProcessGroups, "none")
}

pub(crate) fn token(raw: u64) -> LeaseToken {
    LeaseToken::new(raw)
}

impl SlotTable {
    /// As the main loop does when it has heard of a release.
    pub(super) fn hear_and_set_gate(&self, gate: Fragment) {
        self.hear_hooks();
        self.set_gate(gate);
    }
}

pub(crate) fn open(slots: u32) -> SlotTable {
    SlotTable::new(
        slots,
        Fragment { epoch: EPOCH, cores: slots, ..Fragment::default() },
        nothing(),
        Arc::default(),
    )
}

/// Does something while the group of a slot's runner is in somebody else's hand.
pub(crate) fn in_hand(table: &SlotTable, slot: usize, act: impl FnOnce()) {
    let group = table.lock().runners[slot].as_ref().map(|runner| Arc::clone(&runner.group));
    let group = group.expect("entered");
    let _reach = group.reach().expect("it lives");
    act();
}

#[test]
fn a_render_takes_the_youngest_and_leaves_the_rest() {
    let table = open(3);
    let mut sleepers = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
    for (slot, age) in [(0, 30), (1, 10), (2, 20)] {
        let pgid = sleepers[slot as usize].pgid();
        let started = Time::from_micros(100 - age);
        table.enter_runner(slot, pgid, None);
        table.begin(slot, token(slot.into()), started, EPOCH, false).expect("open");
    }
    let frozen = table.freeze(Some(NEXT), Room::slots(1));
    assert_eq!((frozen.tokens, frozen.slots_left), (vec![token(1), token(2)], 1));
    sleepers[1..].iter().for_each(Sleeper::wait_until_frozen);
    assert_ne!(ProcessStat::of(sleepers[0].pgid()).expect("there").state, 'T');
    table.kill_frozen();
    sleepers[1..].iter_mut().for_each(Sleeper::wait_until_killed);
    assert_eq!(table.occupancy().running, 1);
    assert!(sleepers[0].0.try_wait().expect("ours").is_none());
}

#[test]
fn nothing_begins_past_a_release_that_the_main_loop_has_not_heard_of() {
    let table = open(2);
    table.freeze(Some(NEXT), Room::slots(1));
    let mut sleepers = [Sleeper::start(), Sleeper::start()];
    (0..2).for_each(|slot| table.enter_runner(slot, sleepers[slot as usize].pgid(), None));
    assert_eq!(table.begin(0, token(1), Time::ZERO, EPOCH, false), Err(GateClosed));
    table.hear_and_set_gate(Fragment { epoch: EPOCH, cores: 2, ..Fragment::default() });
    assert_eq!(table.begin(0, token(1), Time::ZERO, EPOCH, false), Err(GateClosed));
    assert_eq!(table.occupancy().slots, 1);
    table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 1, ..Fragment::default() });
    assert_eq!(table.begin(0, token(1), Time::ZERO, NEXT, false), Ok(()));
    assert_eq!(table.begin(1, token(2), Time::ZERO, NEXT, false), Err(GateClosed));
    table.end(0);
    assert_eq!(table.begin(1, token(2), Time::ZERO, NEXT, false), Ok(()));
    assert_eq!(table.remove_runner(0), Cause::Itself, "nothing of it was stopped");
    assert!(sleepers.iter_mut().all(Sleeper::is_alive));
}

#[test]
fn the_least_that_hooks_left_is_heard_once() {
    let table = open(4);
    assert_eq!(table.hear_hooks(), None);
    for left in [2, 1, 3] {
        table.freeze(Some(NEXT), Room::slots(left));
    }
    assert_eq!([table.hear_hooks(), table.hear_hooks()], [Some(1), None]);
}

#[test]
fn what_was_read_before_a_release_opens_nothing_that_it_has_closed() {
    let table = open(2);
    table.freeze(Some(NEXT), Room::slots(1));
    // The hook had raised the epoch when that was read, and had booked nothing yet.
    table.set_gate(Fragment { epoch: NEXT, cores: 2, ..Fragment::default() });
    assert_eq!(table.occupancy().slots, 1);
    table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 2, ..Fragment::default() });
    assert_eq!(table.occupancy().slots, 2);
}

#[test]
fn an_unknown_epoch_closes_the_gate_until_it_is_set() {
    let table = open(2);
    table.freeze(None, Room::slots(0));
    let sleeper = Sleeper::start();
    table.enter_runner(0, sleeper.pgid(), None);
    for epoch in [EPOCH, Epoch::default()] {
        assert_eq!(table.begin(0, token(1), Time::ZERO, epoch, false), Err(GateClosed));
    }
    table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 1, ..Fragment::default() });
    assert_eq!(table.begin(0, token(1), Time::ZERO, NEXT, false), Ok(()));
}

#[test]
fn idle_runners_go_with_the_cores_that_they_would_come_to_rest_on() {
    let table = open(3);
    let mut sleepers = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
    (0..3).for_each(|slot| table.enter_runner(slot, sleepers[slot as usize].pgid(), None));
    table.begin(1, token(1), Time::ZERO, EPOCH, false).expect("open");
    let frozen = table.freeze(Some(NEXT), Room::slots(2));
    assert_eq!((frozen.tokens, frozen.slots_left), (Vec::new(), 2));
    sleepers[2].wait_until_frozen();
    table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 3, ..Fragment::default() });
    assert_eq!(table.begin(2, token(2), Time::ZERO, NEXT, false), Err(GateClosed));
    table.kill_frozen();
    sleepers[2].wait_until_killed();
    assert!(sleepers[..2].iter_mut().all(Sleeper::is_alive));
    assert_eq!(table.remove_runner(2), Cause::Itself, "no replica was stopped");
}

#[test]
fn a_slot_that_runs_something_else_is_left_alone() {
    let table = open(1);
    let mut sleeper = Sleeper::start();
    table.enter_runner(0, sleeper.pgid(), None);
    table.begin(0, token(7), Time::ZERO, EPOCH, false).expect("open");
    table.stop(0, token(6));
    assert!(sleeper.0.try_wait().expect("ours").is_none());
    table.stop(0, token(7));
    sleeper.wait_until_killed();
}

#[test]
fn a_runner_that_is_being_killed_gets_no_replica() {
    let table = open(1);
    let mut sleeper = Sleeper::start();
    table.enter_runner(0, sleeper.pgid(), None);
    table.begin(0, token(7), Time::ZERO, EPOCH, false).expect("open");
    table.stop(0, token(7));
    table.end(0);
    assert_eq!(table.begin(0, token(8), Time::ZERO, EPOCH, false), Err(GateClosed));
    sleeper.wait_until_killed();
}

#[test]
fn who_kills_for_a_render_comes_again_where_somebody_has_a_group_in_hand() {
    let table = open(1);
    let mut sleeper = Sleeper::start();
    table.enter_runner(0, sleeper.pgid(), None);
    table.begin(0, token(7), Time::ZERO, EPOCH, false).expect("open");
    let group = table.lock().stopped_groups().pop();
    assert!(group.is_none(), "nothing is frozen");
    let group = table.lock().runners[0].as_ref().map(|runner| Arc::clone(&runner.group));
    let group = group.expect("entered");
    let reach = group.reach().expect("it lives");
    table.freeze(Some(NEXT), Room::slots(0));
    sleeper.wait_until_frozen();
    assert!(!table.kill_frozen());
    assert!(sleeper.is_alive());
    drop(reach);
    assert!(table.kill_frozen());
    sleeper.wait_until_killed();
}
