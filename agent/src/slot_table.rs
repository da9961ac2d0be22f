//! Which process groups run harvested work right now: what the releaser and the main loop share.
//!
//! The main loop asks here before it hands a replica to a runner; the releaser stops what is in a
//! render's way without asking the main loop at all. One small lock, never held over anything
//! that waits.
//!
//! # Invariants
//! - A replica is handed to a runner only between [`SlotTable::begin`] and [`SlotTable::end`].
//! - A group is signalled only while it is entered here, and it is taken out before its leader is
//!   reaped: so no other group can have its number.
//! - A runner is entered here for as long as its process may run, idle or not: an idle one still
//!   has to come to rest after its last replica, for which it may wait long behind a render.
//! - No more begin than the gate has slots. Only the main loop opens the gate, and never over
//!   an epoch that the releaser has seen and it has not.
//! - No more run than the owner allows; what does is kept frozen or killed.

mod kept;

pub(crate) use kept::GroupUse;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_hooks::{calm, freeze, kill, thaw};
use gleaner_isolation::{Enclosure, Leaf};
use gleaner_protocol::control::Fragment;
use gleaner_protocol::{Epoch, LeaseToken, Span, Time, boottime};
use rustix::process::{Pid, Signal, kill_process_group};
use tracing::debug;

use crate::gate::Gate;
use crate::limits::SETTLE_PAUSE_US;
use crate::scheduling_class::{be_idle, let_die, let_stop};

/// The table.
#[derive(Debug)]
pub(crate) struct SlotTable {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// What may run.
    gate: Gate,
    /// Replicas that the owner allows to run.
    allowed: u32,
    busy: Vec<Option<Busy>>,
    /// The runner of each slot.
    runners: Vec<Option<RunnerEntry>>,
    connected: bool,
    /// What holds all of them.
    enclosure: Enclosure,
}

/// A runner process.
#[derive(Debug)]
struct RunnerEntry {
    pgid: i32,
    /// What holds it and all that it has started, where this host has control groups.
    leaf: Option<Arc<Leaf>>,
    /// Frozen for a render, and to be killed.
    stopped: bool,
    /// Replicas that it was handed.
    begun: u64,
}

/// What runs in a slot.
#[derive(Debug, Clone, Copy)]
struct Busy {
    token: LeaseToken,
    since: Time,
    /// Its runner is frozen for a render, and to be killed.
    stopped: bool,
    /// Since when its runner is frozen for its owner, to be thawed or killed.
    kept: Option<Time>,
}

impl Busy {
    fn runs(&self) -> bool {
        !self.stopped && self.kept.is_none()
    }
}

/// The gate is closed to a replica: a render wants its core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GateClosed;

/// What a release did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Frozen {
    /// Replicas that were stopped.
    pub(crate) tokens: Vec<LeaseToken>,
    /// Replicas that may still run.
    pub(crate) slots_left: u32,
}

/// How the host is, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Occupancy {
    /// Replicas that may run.
    pub(crate) slots: u32,
    /// Replicas that run.
    pub(crate) running: u32,
    /// Replicas that are kept frozen for the owner.
    pub(crate) kept: u32,
    /// Replicas that the owner allows.
    pub(crate) allowed: u32,
    /// Whether the broker is linked.
    pub(crate) connected: bool,
}

impl SlotTable {
    /// A table of `slots` empty slots, whose leaves are in `enclosure`.
    pub(crate) fn new(slots: u32, gate: Fragment, enclosure: Enclosure) -> Self {
        let inner = Inner {
            gate: Gate::new(gate),
            allowed: u32::MAX,
            busy: vec![None; slots as usize],
            runners: (0..slots).map(|_| None).collect(),
            connected: false,
            enclosure,
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Enters the runner that was started for a slot: the leader of group `pgid`, in `leaf`.
    pub(crate) fn enter_runner(&self, slot: u32, pgid: i32, leaf: Option<Arc<Leaf>>) {
        let mut inner = self.lock();
        inner.runners[slot as usize] = Some(RunnerEntry { pgid, leaf, stopped: false, begun: 0 });
        if inner.frozen_runners().next().is_none() {
            // A hook that stopped all by itself lets it die like any other.
            inner.set_idle(true);
        }
    }

    /// Takes a slot's runner out, and its replica: its group is about to be reaped. Says whether
    /// the replica was stopped for a render, or frozen for the owner.
    pub(crate) fn remove_runner(&self, slot: u32) -> bool {
        let mut inner = self.lock();
        let runner = inner.runners[slot as usize].take();
        if runner.is_some() && inner.frozen_runners().next().is_none() {
            inner.set_idle(true);
        }
        inner.busy[slot as usize].take().is_some_and(|busy| !busy.runs())
    }

    /// Enters a replica, taken at `since`, that is about to be handed to the slot's runner.
    pub(crate) fn begin(
        &self,
        slot: u32,
        token: LeaseToken,
        since: Time,
        epoch: Epoch,
    ) -> Result<(), GateClosed> {
        let mut inner = self.lock();
        let held = inner.held();
        let is_open = inner.gate.admits(held, epoch) && held < inner.allowed;
        let runner = inner.runners[slot as usize].as_ref();
        let has_runner = runner.is_some_and(|runner| !runner.stopped);
        if !is_open || !has_runner {
            return Err(GateClosed);
        }
        if let Some(runner) = &mut inner.runners[slot as usize] {
            runner.begun += 1;
        }
        inner.busy[slot as usize] = Some(Busy { token, since, stopped: false, kept: None });
        Ok(())
    }

    /// Takes a slot's replica out: it has ended.
    pub(crate) fn end(&self, slot: u32) {
        self.lock().busy[slot as usize] = None;
    }

    /// Kills the group that runs this replica in this slot, if it is still there. What is frozen
    /// is left to [`SlotTable::kill_frozen`].
    pub(crate) fn stop(&self, slot: u32, token: LeaseToken) {
        let inner = self.lock();
        let runs =
            inner.busy[slot as usize].is_some_and(|busy| busy.token == token && !busy.stopped);
        if let Some(runner) = inner.runners[slot as usize].as_ref().filter(|_| runs) {
            runner.kill();
        }
    }

    /// Lets this much run from now on; nothing is stopped by it. Of two that disagree on the
    /// epoch the newer one stands, and what it does not know of stays closed.
    pub(crate) fn set_gate(&self, gate: Fragment) {
        self.lock().gate.set(gate);
    }

    /// Leaves at most `slots_left` running: freezes the rest, first what is kept frozen already,
    /// then the youngest, and the idle runners for which no slot is left. `epoch` is
    /// the host's from now on, where it is known; where it is not, nothing starts any more until
    /// the gate is set again.
    pub(crate) fn freeze(&self, epoch: Option<Epoch>, slots_left: u32) -> Frozen {
        let mut inner = self.lock();
        inner.gate.narrow(epoch, slots_left);
        let mut running = inner.oldest_first(|busy| !busy.stopped);
        let mut doomed = running.split_off(running.len().min(slots_left as usize));
        doomed.reverse();
        let idle_left = (slots_left as usize).saturating_sub(running.len());
        let idle: Vec<usize> = inner.idle_runners().skip(idle_left).collect();
        if !doomed.is_empty() || !idle.is_empty() {
            // To come to rest takes a few microseconds of a core, which idle work does not get
            // beside a render.
            inner.set_idle(false);
        }
        for (_, slot) in &doomed {
            inner.doom(*slot);
        }
        for slot in idle {
            inner.freeze_runner(slot);
        }
        // First what computes on all slots, then whatever has left its group.
        for runner in inner.runners.iter().flatten().filter(|runner| runner.stopped) {
            runner.enclose();
        }
        Frozen {
            tokens: doomed.into_iter().map(|(token, _)| token).collect(),
            slots_left: inner.gate.slots(),
        }
    }

    /// Returns when what is frozen has come to rest, or after `limit`. It does not run from the
    /// moment on in which it was frozen; but whoever looks at it may see it about to.
    pub(crate) fn settle(&self, limit: Span) {
        let end = boottime() + limit;
        let mut leaves: Vec<Arc<Leaf>> = {
            let inner = self.lock();
            inner
                .frozen_runners()
                .filter_map(|runner| runner.leaf.clone())
                .filter(|l| l.can_freeze())
                .collect()
        };
        let mut urged = false;
        loop {
            leaves.retain(|leaf| !leaf.is_frozen());
            if leaves.is_empty() || boottime() >= end {
                return;
            }
            if !urged {
                // To come to rest takes a few microseconds of a core, for which it may have to
                // wait behind all others.
                leaves.iter().flat_map(|leaf| leaf.members()).for_each(let_stop);
                urged = true;
            }
            std::thread::sleep(Span::from_micros(SETTLE_PAUSE_US).into());
        }
    }

    /// Kills all that is frozen.
    pub(crate) fn kill_frozen(&self) {
        let inner = self.lock();
        for runner in inner.runners.iter().flatten().filter(|runner| runner.stopped) {
            let_die(runner.pgid);
            runner.kill();
        }
    }

    /// Notes whether the broker is linked.
    pub(crate) fn set_connected(&self, connected: bool) {
        self.lock().connected = connected;
    }

    /// How it stands.
    pub(crate) fn occupancy(&self) -> Occupancy {
        let inner = self.lock();
        Occupancy {
            slots: inner.gate.slots(),
            running: inner.running(),
            kept: inner.held() - inner.running(),
            allowed: inner.allowed,
            connected: inner.connected,
        }
    }

    /// A panic of a holder leaves nothing half done here that matters more than stopping work.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Replicas that run.
    fn running(&self) -> u32 {
        self.count(Busy::runs)
    }

    /// Replicas that run or are kept frozen.
    fn held(&self) -> u32 {
        self.count(|busy| !busy.stopped)
    }

    fn count(&self, which: impl Fn(&Busy) -> bool) -> u32 {
        let count = self.busy.iter().flatten().filter(|busy| which(busy)).count();
        u32::try_from(count).expect("at most one entry per core")
    }

    /// Replicas and their slots: those that run before those that are kept frozen, the oldest of
    /// each first.
    fn oldest_first(&self, which: impl Fn(&Busy) -> bool) -> Vec<(LeaseToken, usize)> {
        let slots = self.busy.iter().enumerate();
        let chosen = slots.filter_map(|(slot, busy)| Some((slot, busy.filter(&which)?)));
        let mut order: Vec<_> = chosen
            .map(|(slot, busy)| (busy.kept.is_some(), busy.since, busy.token, slot))
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, token, slot)| (token, slot)).collect()
    }

    /// Freezes what runs in a slot, to be killed.
    fn doom(&mut self, slot: usize) {
        if let Some(busy) = &mut self.busy[slot] {
            busy.stopped = true;
        }
        self.freeze_runner(slot);
    }

    /// Slots whose runner has nothing to run.
    fn idle_runners(&self) -> impl Iterator<Item = usize> {
        let slots = self.runners.iter().zip(&self.busy).enumerate();
        slots.filter_map(|(slot, (runner, busy))| {
            let is_there = runner.as_ref().is_some_and(|runner| !runner.stopped);
            (busy.is_none() && is_there).then_some(slot)
        })
    }

    fn freeze_runner(&mut self, slot: usize) {
        if let Some(runner) = &mut self.runners[slot] {
            runner.stopped = true;
            runner.stop();
        }
    }

    /// Runners that are frozen, to be killed or kept.
    fn frozen_runners(&self) -> impl Iterator<Item = &RunnerEntry> {
        let slots = self.runners.iter().zip(&self.busy);
        slots.filter_map(|(runner, busy)| {
            let is_kept = busy.is_some_and(|busy| busy.kept.is_some());
            runner.as_ref().filter(|runner| runner.stopped || is_kept)
        })
    }

    fn has_stopped(&self) -> bool {
        self.runners.iter().flatten().any(|runner| runner.stopped)
    }

    fn set_idle(&self, idle: bool) {
        if let Err(error) = self.enclosure.set_idle(idle) {
            // It was removed under us, and its members with it.
            debug!("{error}");
        }
    }
}

impl RunnerEntry {
    fn freezer(&self) -> Option<&Leaf> {
        self.leaf.as_deref().filter(|leaf| leaf.can_freeze())
    }

    fn freeze(&self) {
        if self.freezer().is_some_and(|leaf| leaf.freeze().is_ok()) {
            return;
        }
        signal(freeze, self.pgid);
        let_stop(self.pgid);
    }

    /// Stops its group, to be killed: the fastest of all ways, since its leader is put before
    /// everything else to obey.
    fn stop(&self) {
        if self.freezer().is_none() {
            return self.freeze();
        }
        let group = Pid::from_raw(self.pgid).filter(|_| self.pgid > 1);
        // One that ended in this moment is what was wanted.
        let _ = group.map(|group| kill_process_group(group, Signal::STOP));
        let_stop(self.pgid);
    }

    /// Stops what has left its group.
    fn enclose(&self) {
        if let Some(error) = self.freezer().and_then(|leaf| leaf.freeze().err()) {
            debug!("cannot freeze a control group: {error}");
        }
    }

    fn thaw(&self) {
        match self.freezer() {
            Some(leaf) => {
                calm(self.pgid);
                // Also what no walk from the leader finds.
                leaf.members().into_iter().for_each(be_idle);
                if leaf.thaw().is_err() {
                    signal(thaw, self.pgid);
                }
            }
            None => signal(thaw, self.pgid),
        }
    }

    fn kill(&self) {
        if let Some(error) = self.freezer().and_then(|leaf| leaf.kill().err()) {
            debug!("cannot kill a control group: {error}");
        }
        signal(kill, self.pgid);
    }
}

fn signal(send: fn(i32) -> std::io::Result<()>, pgid: i32) {
    if let Err(error) = send(pgid) {
        // It ended in this moment, and its slot's task is about to notice.
        debug!("cannot signal process group {pgid}: {error}");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use gleaner_hooks::ProcessStat;
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

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

    pub(crate) fn open(slots: u32) -> SlotTable {
        SlotTable::new(slots, Fragment { epoch: EPOCH, slots }, nothing())
    }

    #[test]
    fn a_render_takes_the_youngest_and_leaves_the_rest() {
        let table = open(3);
        let mut sleepers = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
        for (slot, age) in [(0, 30), (1, 10), (2, 20)] {
            let pgid = sleepers[slot as usize].pgid();
            let started = Time::from_micros(100 - age);
            table.enter_runner(slot, pgid, None);
            table.begin(slot, token(slot.into()), started, EPOCH).expect("open");
        }
        let frozen = table.freeze(Some(NEXT), 1);
        assert_eq!(frozen, Frozen { tokens: vec![token(1), token(2)], slots_left: 1 });
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
        table.freeze(Some(NEXT), 1);
        let mut sleepers = [Sleeper::start(), Sleeper::start()];
        (0..2).for_each(|slot| table.enter_runner(slot, sleepers[slot as usize].pgid(), None));
        assert_eq!(table.begin(0, token(1), Time::ZERO, EPOCH), Err(GateClosed));
        table.set_gate(Fragment { epoch: EPOCH, slots: 2 });
        assert_eq!(table.begin(0, token(1), Time::ZERO, EPOCH), Err(GateClosed));
        assert_eq!(table.occupancy().slots, 1);
        table.set_gate(Fragment { epoch: NEXT, slots: 1 });
        assert_eq!(table.begin(0, token(1), Time::ZERO, NEXT), Ok(()));
        assert_eq!(table.begin(1, token(2), Time::ZERO, NEXT), Err(GateClosed));
        table.end(0);
        assert_eq!(table.begin(1, token(2), Time::ZERO, NEXT), Ok(()));
        assert!(!table.remove_runner(0), "nothing of it was stopped");
        assert!(sleepers.iter_mut().all(Sleeper::is_alive));
    }

    #[test]
    fn an_unknown_epoch_closes_the_gate_until_it_is_set() {
        let table = open(2);
        table.freeze(None, 0);
        let sleeper = Sleeper::start();
        table.enter_runner(0, sleeper.pgid(), None);
        for epoch in [EPOCH, Epoch::default()] {
            assert_eq!(table.begin(0, token(1), Time::ZERO, epoch), Err(GateClosed));
        }
        table.set_gate(Fragment { epoch: NEXT, slots: 1 });
        assert_eq!(table.begin(0, token(1), Time::ZERO, NEXT), Ok(()));
    }

    #[test]
    fn idle_runners_go_with_the_cores_that_they_would_come_to_rest_on() {
        let table = open(3);
        let mut sleepers = [Sleeper::start(), Sleeper::start(), Sleeper::start()];
        (0..3).for_each(|slot| table.enter_runner(slot, sleepers[slot as usize].pgid(), None));
        table.begin(1, token(1), Time::ZERO, EPOCH).expect("open");
        let frozen = table.freeze(Some(NEXT), 2);
        assert_eq!(frozen, Frozen { tokens: Vec::new(), slots_left: 2 });
        sleepers[2].wait_until_frozen();
        table.set_gate(Fragment { epoch: NEXT, slots: 3 });
        assert_eq!(table.begin(2, token(2), Time::ZERO, NEXT), Err(GateClosed));
        table.kill_frozen();
        sleepers[2].wait_until_killed();
        assert!(sleepers[..2].iter_mut().all(Sleeper::is_alive));
        assert!(!table.remove_runner(2), "no replica was stopped");
    }

    #[test]
    fn a_slot_that_runs_something_else_is_left_alone() {
        let table = open(1);
        let mut sleeper = Sleeper::start();
        table.enter_runner(0, sleeper.pgid(), None);
        table.begin(0, token(7), Time::ZERO, EPOCH).expect("open");
        table.stop(0, token(6));
        assert!(sleeper.0.try_wait().expect("ours").is_none());
        table.stop(0, token(7));
        sleeper.wait_until_killed();
    }
}
