//! A runner's process group: how it is stopped, thawed and killed.
//!
//! To stop a group or to thaw it is a signal or one write, and is done under the table's lock. A
//! kill, and whatever walks over processes, may take long where there are many of them or cores
//! are short: that is done outside of it, so that no release waits for it.
//!
//! # Invariants
//! - A group is signalled only while its number is its own: under the table's lock while it is
//!   entered there, or by a [`Reach`], for the end of which [`Group::retire`] waits before the
//!   group's leader is reaped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use gleaner_hooks::{calm, freeze, freeze_until, has_stopped, kill, stop_stragglers, thaw_strays};
use gleaner_isolation::Leaf;
use gleaner_protocol::Time;
use rustix::process::{Pid, Signal, kill_process_group};
use tracing::debug;

use crate::run::scheduling_class::{be_idle, let_die, let_stop};

/// A group and what holds it.
#[derive(Debug)]
pub(super) struct Group {
    pgid: i32,
    /// What holds it and all that it has started, where this host has control groups.
    leaf: Option<Arc<Leaf>>,
    /// Whether its number is its own.
    lives: Mutex<bool>,
}

/// Somebody else reaches a group just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy;

/// As long as this is there, a group keeps its number.
pub(super) struct Reach<'a> {
    group: &'a Group,
    _lives: MutexGuard<'a, bool>,
}

impl Group {
    /// The group `pgid`, which lives, in `leaf`.
    pub(super) const fn new(pgid: i32, leaf: Option<Arc<Leaf>>) -> Self {
        Self { pgid, leaf, lives: Mutex::new(true) }
    }

    pub(super) const fn pgid(&self) -> i32 {
        self.pgid
    }

    /// What holds it, where this host has control groups.
    pub(super) const fn leaf(&self) -> Option<&Arc<Leaf>> {
        self.leaf.as_ref()
    }

    /// What freezes it as a whole, where there is that.
    pub(super) fn freezer(&self) -> Option<&Arc<Leaf>> {
        self.leaf.as_ref().filter(|leaf| leaf.can_freeze())
    }

    /// Whether all of it stands still; false where that cannot be seen until then.
    pub(super) fn is_at_rest(&self, until: Time) -> bool {
        self.freezer().map_or_else(|| has_stopped(self.pgid, until), |leaf| leaf.is_frozen())
    }

    /// Stops it, to be kept. Under the table's lock; [`Reach::hurry`] comes after.
    pub(super) fn freeze(&self) {
        if self.freezer().is_none_or(|leaf| leaf.freeze().is_err()) {
            self.stop();
        }
    }

    /// Stops it in the fastest of all ways, since its leader is put before everything else to
    /// obey. Under the table's lock; [`Group::enclose`] and [`Reach::hurry`] come after.
    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
        let_stop(self.pgid);
    }

    /// Stops what has left the group. Under the table's lock.
    pub(super) fn enclose(&self) {
        if let Some(error) = self.freezer().and_then(|leaf| leaf.freeze().err()) {
            debug!("cannot freeze a control group: {error}");
        }
    }

    /// Lets it run on. Under the table's lock, after [`Reach::calm`]; [`SlotTable::strays_go_on`]
    /// comes after.
    ///
    /// [`SlotTable::strays_go_on`]: super::SlotTable::strays_go_on
    pub(super) fn thaw(&self) {
        if let Some(error) = self.freezer().and_then(|leaf| leaf.thaw().err()) {
            debug!("cannot thaw a control group: {error}");
        }
        // Also where it has a freezer: that may have refused to freeze it.
        self.signal(Signal::CONT);
    }

    /// Holds on to its number; none once it is retired. Waits for whoever has it.
    pub(super) fn reach(&self) -> Option<Reach<'_>> {
        // Who panicked over it has left nothing half done.
        let lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives.then_some(Reach { group: self, _lives: lives })
    }

    /// As [`Group::reach`], for whoever must not wait.
    pub(super) fn try_reach(&self) -> Result<Option<Reach<'_>>, Busy> {
        let lives = match self.lives.try_lock() {
            Ok(lives) => lives,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Busy),
        };
        Ok(lives.then_some(Reach { group: self, _lives: lives }))
    }

    /// Its leader is about to be reaped: from now on nobody reaches it. It must not be in the
    /// table any more.
    pub(super) fn retire(&self) {
        *self.lives.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    fn signal(&self, signal: Signal) {
        // A number of 1 or below would reach beyond one group.
        let group = Pid::from_raw(self.pgid).filter(|_| self.pgid > 1);
        // One that ended in this moment is what was wanted.
        let _ = group.map(|group| kill_process_group(group, signal));
    }
}

impl Reach<'_> {
    /// Has what was told to stop, and is not in a freezer, do so before all others.
    pub(super) fn hurry(&self) {
        if self.group.freezer().is_none() {
            self.send(freeze);
            let_stop(self.group.pgid);
        }
    }

    /// As [`Reach::hurry`]; looks for what has left the group until then, and says whether it has
    /// come to the end of that.
    pub(super) fn hurry_until(&self, until: Time) -> bool {
        if self.group.freezer().is_some() {
            return true;
        }
        let is_all = freeze_until(self.group.pgid, until);
        let_stop(self.group.pgid);
        // One that ended in this moment has stopped.
        is_all.unwrap_or(true)
    }

    /// Stops what has left the group, which itself has stopped.
    pub(super) fn stop_stragglers(&self) {
        if self.group.freezer().is_none() {
            stop_stragglers(self.group.pgid);
            // It may have been put last in the moment in which it was stopped.
            let_stop(self.group.pgid);
        }
    }

    /// Lets what has left the group run on, as the group itself does.
    pub(super) fn thaw_strays(&self) {
        if self.group.freezer().is_none() {
            thaw_strays(self.group.pgid);
        }
    }

    /// Puts what is frozen where it runs last again.
    pub(super) fn calm(&self) {
        calm(self.group.pgid);
        // Also what no walk from the leader finds.
        let members = self.group.freezer().map(|leaf| leaf.members()).unwrap_or_default();
        members.into_iter().for_each(be_idle);
    }

    /// Kills it and all that it has started.
    pub(super) fn kill(&self) {
        if let Some(error) = self.group.freezer().and_then(|leaf| leaf.kill().err()) {
            debug!("cannot kill a control group: {error}");
        }
        self.send(kill);
    }

    /// Kills it as [`Reach::kill`], where it is frozen: it gives its memory back like any other.
    pub(super) fn kill_frozen(&self) {
        let_die(self.group.pgid);
        self.kill();
    }

    fn send(&self, signal: fn(i32) -> std::io::Result<()>) {
        let pgid = self.group.pgid;
        if let Err(error) = signal(pgid) {
            // It ended in this moment, and its slot's task is about to notice.
            debug!("cannot signal process group {pgid}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Sleeper;
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn nobody_reaches_a_group_that_is_about_to_be_reaped() {
        let mut sleeper = Sleeper::start();
        let group = Group::new(sleeper.pgid(), None);
        group.retire();
        assert!(group.reach().is_none());
        assert!(matches!(group.try_reach(), Ok(None)));
        assert!(sleeper.is_alive());
    }

    #[test]
    fn who_retires_a_group_waits_for_who_reaches_it_and_a_release_does_not() {
        let group = Group::new(Sleeper::start().pgid(), None);
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let reach = group.reach().expect("it lives");
            assert!(matches!(group.try_reach(), Err(Busy)));
            let (group, heard) = (&group, tell.clone());
            scope.spawn(move || {
                group.retire();
                heard.send("retired").expect("the test listens");
            });
            tell.send("reached").expect("the test listens");
            drop(reach);
        });
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["reached", "retired"]);
    }
}
