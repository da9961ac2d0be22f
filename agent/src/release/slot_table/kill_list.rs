//! What is frozen for a render, and whoever looks after it once the render has its answer.
//!
//! To kill a group, and to look for what has left it, are walks over processes: they take
//! milliseconds where there are many threads, in which a next render would go unheard. So they are
//! not done by whoever answers.

use std::sync::Arc;

use gleaner_protocol::LeaseToken;

use super::group::Group;
use super::{Inner, SlotTable, State};

/// Groups of which something may have left that is to be stopped.
#[derive(Debug, Default)]
pub(crate) struct Stragglers(Vec<Arc<Group>>);

impl Stragglers {
    /// None where there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Groups that are to be killed.
#[must_use = "they are frozen, and stay so until they are killed"]
#[derive(Debug, Default)]
pub(crate) struct KillList(Vec<Arc<Group>>);

impl KillList {
    /// None where there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over what another one has.
    pub(crate) fn extend(&mut self, other: Self) {
        let others = other.0.into_iter();
        let new: Vec<_> =
            others.filter(|one| !self.0.iter().any(|o| Arc::ptr_eq(o, one))).collect();
        self.0.extend(new);
    }

    /// Kills them. What somebody else has in hand just now is left, to be tried again: who kills
    /// for a render waits for nobody.
    pub(crate) fn kill(&mut self) {
        self.0.retain(|group| match group.try_reach() {
            Ok(Some(reach)) => {
                reach.kill_frozen();
                false
            }
            Ok(None) => false,
            Err(_) => true,
        });
    }

    /// Kills them, and waits for whoever has one in hand.
    pub(crate) fn kill_waiting(self) {
        self.0.iter().filter_map(|group| group.reach()).for_each(|reach| reach.kill_frozen());
    }
}

impl SlotTable {
    /// All that is frozen for renders and to be killed.
    pub(crate) fn kill_list(&self) -> KillList {
        KillList(self.lock().stopped_groups())
    }

    /// Kills it. False where somebody else has a part of it in hand.
    #[cfg(test)]
    pub(crate) fn kill_frozen(&self) -> bool {
        let mut kill_list = self.kill_list();
        kill_list.kill();
        kill_list.is_empty()
    }

    /// Groups that are frozen, of which a [release](SlotTable::freeze) may have had no time to look for
    /// all that has left them.
    pub(crate) fn frozen_groups(&self) -> Stragglers {
        let inner = self.lock();
        Stragglers(inner.frozen_runners().map(|runner| Arc::clone(&runner.group)).collect())
    }

    /// Stops what has left one of these groups, where there is no freezer. False where there are no more.
    pub(crate) fn stop_stragglers(&self, stragglers: &mut Stragglers) -> bool {
        let Some(group) = stragglers.0.pop() else { return false };
        if self.goes_on(&group) {
            return !stragglers.is_empty();
        }
        // Who reaches it otherwise kills it, or looks for the same.
        if let Ok(Some(reach)) = group.try_reach() {
            reach.stop_stragglers();
        }
        if self.goes_on(&group) {
            // It was let go on meanwhile.
            self.strays_go_on(&group);
        }
        !stragglers.is_empty()
    }

    /// Lets what has left a group run on, which does so itself. Only a walk finds that, for which no
    /// release waits.
    pub(super) fn strays_go_on(&self, group: &Group) {
        if group.freezer().is_some() {
            return;
        }
        loop {
            let goes_on = self.goes_on(group);
            let Some(reach) = group.reach() else { return };
            if goes_on {
                // Whoever looked for it meanwhile has put all of it first.
                reach.calm();
                reach.thaw_strays();
            } else {
                reach.stop_stragglers();
            }
            drop(reach);
            // A release, or the end of one, that came in between may have left it to whoever reached it.
            if self.goes_on(group) == goes_on {
                return;
            }
        }
    }

    /// Whether this is the group of a runner that is not frozen.
    fn goes_on(&self, group: &Group) -> bool {
        let inner = self.lock();
        let is_it = |runner: &super::RunnerEntry| std::ptr::eq(&*runner.group, group);
        inner.runners.iter().flatten().any(is_it) && !inner.frozen_runners().any(is_it)
    }

    /// Replicas that were stopped for renders and are to be killed, by slots.
    pub(crate) fn stopped_tokens(&self) -> Vec<LeaseToken> {
        self.lock().tokens(|busy| busy.state == State::Stopped)
    }

    /// Replicas that are frozen for renders or by the broker's word, and not to be killed, by slots.
    pub(crate) fn parked_tokens(&self) -> Vec<LeaseToken> {
        self.lock().tokens(|busy| busy.state == State::Parked)
    }
}

impl Inner {
    /// Freezes what runs in these slots, to be killed.
    pub(super) fn stop_to_kill_all(&mut self, slots: &[(LeaseToken, usize)]) -> KillList {
        self.stir_if(!slots.is_empty());
        slots.iter().for_each(|(_, slot)| self.stop_to_kill(*slot));
        KillList(slots.iter().filter_map(|(_, slot)| self.group(*slot)).collect())
    }

    /// Freezes a runner that has nothing to run, to be killed.
    pub(super) fn stop_idle(&mut self, slot: usize) -> KillList {
        self.stir_if(true);
        self.freeze_runner(slot);
        KillList(self.group(slot).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};
    use std::thread::yield_now;

    use gleaner_hooks::ProcessStat;
    use gleaner_protocol::Time;
    use gleaner_protocol::control::Fragment;
    use rustix::process::{Pid, getpgid};

    use super::super::Room;
    use super::super::tests::{EPOCH, NEXT, Sleeper, open, token};

    /// What the leader of a group has started, once it has left the group.
    fn stray_of(leader: i32) -> i32 {
        loop {
            let children = fs::read_to_string(format!("/proc/{leader}/task/{leader}/children"));
            let child =
                children.unwrap_or_default().split_whitespace().find_map(|pid| pid.parse().ok());
            let has_left = |pid: i32| {
                getpgid(Pid::from_raw(pid)).is_ok_and(|group| group.as_raw_pid() != leader)
            };
            match child.filter(|pid| has_left(*pid)) {
                Some(stray) => return stray,
                None => yield_now(),
            }
        }
    }

    /// `SCHED_IDLE` is 5.
    fn policy_of(pid: i32) -> String {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        fields.split_whitespace().nth(38).expect("its policy").to_owned()
    }

    #[test]
    fn what_was_let_go_on_while_its_strays_were_looked_for_runs_last_with_them() {
        let table = open(1);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "setsid sleep 1000 & read word"]).stdin(Stdio::piped());
        let leader = Sleeper::start_this(shell);
        let stray = stray_of(leader.pgid());
        table.enter_runner(0, leader.pgid(), None);
        table.begin(0, token(1), Time::from_micros(1), EPOCH, true).expect("open");
        let is_stopped = || ProcessStat::of(stray).expect("it is there").state == 'T';
        let freeze = || {
            assert_eq!(table.freeze(Some(NEXT), Room::slots(0)).parked, [token(1)]);
            leader.wait_until_frozen();
            // A machine that is busy may have left it to this.
            while table.stop_stragglers(&mut table.frozen_groups()) {}
            while !is_stopped() {
                yield_now();
            }
        };
        let thaw = || {
            table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 1, ..Fragment::default() });
            table.thaw(Time::from_micros(10), 0, token(1), NEXT);
            leader.wait_until_thawed();
            assert!(!is_stopped());
            assert_eq!((policy_of(leader.pgid()), policy_of(stray)), ("5".into(), "5".into()));
        };
        freeze();
        let mut stragglers = table.frozen_groups();
        thaw();
        assert!(!table.stop_stragglers(&mut stragglers));
        assert!(!is_stopped(), "it goes on");
        assert_eq!(policy_of(stray), "5");

        // Between the two looks of who lets it go on.
        freeze();
        table.frozen_groups().0[0].reach().expect("it lives").stop_stragglers();
        assert_ne!(policy_of(stray), "5", "it was put first to stop");
        thaw();
    }
}
