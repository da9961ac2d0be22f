//! Which process groups run harvested work right now: what the releaser and the main loop share.
//!
//! The main loop asks here before it hands a replica to a runner; the releaser stops what is in a
//! render's way without asking the main loop at all. One small lock, never held over anything
//! that waits, that kills, or that walks over processes.
//!
//! # Invariants
//! - A replica is handed to a runner only between [`SlotTable::begin`] and [`SlotTable::end`].
//! - A group is signalled only while it is entered here, or by whoever found it here and holds on
//!   to it; it is taken out, and everybody has let go of it, before its leader is reaped: so no
//!   other group can have its number.
//! - A runner that is being killed gets no replica.
//! - A runner is entered here for as long as its process may run, idle or not: an idle one still
//!   has to come to rest after its last replica, for which it may wait long behind a render.
//! - No more begin than take the cores that the gate leaves. Only the main loop opens the gate, and never over
//!   an epoch that the releaser has seen and it has not.
//! - No more run than take the cores that the owner allows; what does is kept frozen or killed.
//! - What a render has driven out and its job wants kept, and what the broker has parked, is frozen,
//!   and takes no slot, until the main loop has it go on. Where what is to leave it a place still
//!   ends, it waits for that, frozen as before, and never longer than the gate stays open at the
//!   epoch at which it was to go on.

mod booked_cores;
mod disk;
mod fence;
mod freeze_wait;
mod gpu;
mod group;
mod idleness;
mod kill_list;
mod limit;
mod loss;
mod owner_frozen;
mod parked;
mod self_resumed;
mod shares;
mod standing;
mod took;

pub(crate) use kill_list::{KillList, Stragglers};
pub(crate) use loss::Upkeep;
pub(crate) use owner_frozen::GroupUse;
pub(crate) use standing::{Frozen, LinkStanding, Occupancy};

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_isolation::{Enclosure, Leaf};
use gleaner_protocol::control::Fragment;
use gleaner_protocol::{Epoch, LeaseToken, Share, Span, Time, boottime};
use rustix::thread::CpuSet;

use crate::limits::HURRY_MS_MAX;
use crate::release::gate::Gate;
use crate::run::spawner::Session;
use group::Group;
use idleness::Idleness;

/// The table.
#[derive(Debug)]
pub(crate) struct SlotTable {
    inner: Mutex<Inner>,
    /// Whether all of it runs last.
    idleness: Idleness,
    /// Cores that renders had booked when the run folder was read last.
    booked_cores: AtomicU32,
    /// Cores that they take by that: also those that share a physical one with them.
    taken_cores: AtomicU32,
    /// Who has less than they take. Locked while the kernel is told so, and never with the rest.
    held: Mutex<Vec<limit::Held>>,
}

#[derive(Debug)]
struct Inner {
    /// What may run.
    gate: Gate,
    /// Cores that the owner allows.
    allowed: u32,
    /// How much of the last of them may be used; nothing for all of it.
    part: Share,
    busy: Vec<Option<Busy>>,
    /// By slot: what was asked for its replica.
    asked: Vec<Option<limit::Asked>>,
    /// By slot: a replica that was parked before it began, and so does not begin.
    shut_out: Vec<Option<LeaseToken>>,
    /// By slot: the replica that ended last.
    ended: Vec<Option<Busy>>,
    /// The runner of each slot.
    runners: Vec<Option<RunnerEntry>>,
    link: LinkStanding,
    /// Runners that have been taken out and are not reaped yet.
    dying: u32,
    /// The GPU that it gives.
    gpu: gpu::Place,
    /// How often something was about to be stopped, for which harvested work does not run last.
    stirs: u64,
    /// CPUs that others are bound to.
    claims: BTreeSet<u32>,
    /// CPUs that all of it is kept to, where no control group does that.
    cpus: Option<CpuSet>,
    /// When one that keeps a disk busy was put off or tried again beside a render.
    disk_tried: Time,
}

/// A runner process.
#[derive(Debug)]
struct RunnerEntry {
    group: Arc<Group>,
    /// Frozen for a render, and to be killed.
    stopped: bool,
    /// It is being killed.
    killed: bool,
    /// It went on though it was frozen, and is killed for that.
    self_resumed: bool,
    /// Replicas that it was handed.
    begun: u64,
    /// CPU time that it has used, as it was seen last.
    cpu: Span,
    /// Memory that it takes, in MiB, as it was seen last.
    memory_mib: u64,
    /// Whether its replica kept a disk busy when it was seen to run last.
    keeps_disk_busy: bool,
}

/// What runs in a slot.
#[derive(Debug, Clone, Copy)]
struct Busy {
    token: LeaseToken,
    since: Time,
    /// Whether a render that drives it out has it frozen only.
    parks: bool,
    /// Since when it was not frozen.
    ran_since: Time,
    /// Whether it has the GPU.
    has_gpu: bool,
    state: State,
    /// CPU time that its runner had used when it began.
    began_with: Span,
    /// CPU time that it was seen to have used itself, when, and for how long it had been frozen then.
    took: Span,
    took_by: Time,
    stood_by_then: Span,
    /// CPU time that its runner had used when it began, or when it saved where it is.
    safe: Span,
    /// When its runner's CPU time was seen last.
    seen: Time,
    /// Since when it is frozen, and for how long it was before.
    stands_since: Option<Time>,
    stood: Span,
    /// Most memory that it was seen to take, in MiB.
    peak_mib: Option<u64>,
}

/// What a replica does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    /// Its runner is frozen for the owner since then, to be thawed or killed.
    OwnerFrozen(Time),
    /// Its runner is frozen since then, so that a render has the disk.
    OffDisk(Time),
    /// Its runner is frozen for a render or another lane; the main loop decides on it.
    Parked,
    /// It was parked, and goes on at this epoch as soon as there is a place for it.
    Waits(Epoch),
    /// A render drove it out, and it saves where it is beside that.
    Saves,
    /// Its runner is frozen for a render, and to be killed.
    Stopped,
}

impl Busy {
    fn runs(&self) -> bool {
        self.state == State::Runs
    }

    fn takes_slot(&self) -> bool {
        matches!(self.state, State::Runs | State::OwnerFrozen(_) | State::OffDisk(_))
    }

    fn owner_frozen_since(&self) -> Option<Time> {
        match self.state {
            State::OwnerFrozen(since) => Some(since),
            _ => None,
        }
    }

    fn is_frozen(&self) -> bool {
        matches!(
            self.state,
            State::OwnerFrozen(_)
                | State::OffDisk(_)
                | State::Parked
                | State::Waits(_)
                | State::Stopped
        )
    }
}

/// The gate is closed to a replica: a render wants its core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GateClosed;

/// Why a replica ends whose runner is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was stopped for a render, or frozen for the owner.
    Stopped,
    /// It went on though it was frozen.
    SelfResumed,
    /// Nobody here had a hand in it.
    Itself,
}

/// What a render leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Cores that may still be used.
    pub(crate) slots: u32,
    /// Memory that all harvested work may take together, in MiB, where that is known.
    pub(crate) memory_mib: Option<u64>,
    /// Whether what has the GPU may keep it.
    pub(crate) gpu: bool,
}

impl SlotTable {
    /// A table of `slots` empty slots, whose leaves are in `enclosure` and whose runners in
    /// `session`.
    pub(crate) fn new(
        slots: u32,
        gate: Fragment,
        enclosure: Enclosure,
        session: Arc<Session>,
    ) -> Self {
        Self::with(slots, gate, Idleness::of(enclosure, session))
    }

    fn with(slots: u32, gate: Fragment, idleness: Idleness) -> Self {
        let inner = Inner {
            gate: Gate::new(gate),
            allowed: u32::MAX,
            part: Share::NONE,
            busy: vec![None; slots as usize],
            asked: vec![None; slots as usize],
            shut_out: vec![None; slots as usize],
            ended: vec![None; slots as usize],
            runners: (0..slots).map(|_| None).collect(),
            link: LinkStanding::Waiting,
            dying: 0,
            gpu: gpu::Place::default(),
            stirs: 0,
            claims: BTreeSet::new(),
            cpus: None,
            disk_tried: Time::ZERO,
        };
        let (inner, held) = (Mutex::new(inner), Mutex::new(Vec::new()));
        let (booked_cores, taken_cores) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { inner, idleness, booked_cores, taken_cores, held }
    }

    /// Enters the runner that was started for a slot: the leader of group `pgid`, in `leaf`.
    pub(crate) fn enter_runner(&self, slot: u32, pgid: i32, leaf: Option<Arc<Leaf>>) {
        let mut inner = self.lock();
        let group = Arc::new(Group::new(pgid, leaf));
        let entry = RunnerEntry {
            group: Arc::clone(&group),
            stopped: false,
            killed: false,
            self_resumed: false,
            begun: 0,
            cpu: Span::ZERO,
            memory_mib: 0,
            keeps_disk_busy: false,
        };
        inner.runners[slot as usize] = Some(entry);
        drop(inner);
        self.keep_in(&group);
        // A hook that stopped all by itself lets it die like any other.
        self.be_idle_again();
    }

    /// Takes a slot's runner out, and its replica: its group is about to be reaped, after which
    /// comes [`SlotTable::note_reaped`]. Says why the replica ends. Returns when nobody reaches the group
    /// any more.
    pub(crate) fn remove_runner(&self, slot: u32) -> Cause {
        let mut inner = self.lock();
        let runner = inner.runners[slot as usize].take();
        let replica = inner.busy[slot as usize].take();
        inner.dying += u32::from(runner.is_some());
        inner.gpu.note_dying_in(slot, replica.is_some_and(|busy| busy.has_gpu));
        drop(inner);
        let is_self_resumed = runner.as_ref().is_some_and(|runner| runner.self_resumed);
        if let Some(runner) = runner {
            runner.group.retire();
            self.be_idle_again();
        }
        self.share_out();
        match replica {
            Some(_) if is_self_resumed => Cause::SelfResumed,
            Some(busy) if !busy.runs() => Cause::Stopped,
            _ => Cause::Itself,
        }
    }

    /// Nothing is left of a runner that was taken out of a slot.
    pub(crate) fn note_reaped(&self, slot: u32) {
        let mut inner = self.lock();
        inner.dying = inner.dying.saturating_sub(1);
        inner.gpu.note_reaped_in(slot);
        drop(inner);
        self.be_idle_again();
    }

    /// Enters a replica, taken at `since`, that is about to be handed to the slot's runner. A
    /// render that drives out one that `parks` has it frozen only.
    pub(crate) fn begin(
        &self,
        slot: u32,
        token: LeaseToken,
        since: Time,
        epoch: Epoch,
        parks: bool,
    ) -> Result<(), GateClosed> {
        let mut inner = self.lock();
        let is_open =
            inner.admits(slot, token, epoch) && inner.shut_out[slot as usize] != Some(token);
        let runner = inner.runners[slot as usize].as_ref();
        let has_runner = runner.is_some_and(|runner| !runner.stopped && !runner.killed);
        if !is_open || !has_runner {
            return Err(GateClosed);
        }
        let mut safe = Span::ZERO;
        if let Some(runner) = &mut inner.runners[slot as usize] {
            runner.begun += 1;
            runner.keeps_disk_busy = false;
            safe = runner.cpu;
        }
        let is_alone = inner.running() == 0;
        inner.busy[slot as usize] = Some(Busy {
            token,
            since,
            parks,
            ran_since: since,
            has_gpu: false,
            state: State::Runs,
            began_with: safe,
            took: Span::ZERO,
            took_by: since,
            stood_by_then: Span::ZERO,
            safe,
            seen: since,
            stands_since: None,
            stood: Span::ZERO,
            peak_mib: None,
        });
        let stands_beside_dying = is_alone && inner.dying > 0;
        drop(inner);
        if stands_beside_dying {
            // What dies kept all of it from running last; this one is to.
            self.be_idle_again();
        }
        self.share_out();
        Ok(())
    }

    /// Whether a replica, taken at `epoch`, might begin now in this slot.
    pub(crate) fn admits(&self, slot: u32, token: LeaseToken, epoch: Epoch) -> bool {
        self.lock().admits(slot, token, epoch)
    }

    /// Kills the group that runs this replica in this slot, if it is still there. What is frozen
    /// is left to whoever has it as [`KillList`].
    pub(crate) fn stop(&self, slot: u32, token: LeaseToken) {
        let mut inner = self.lock();
        let replica = inner.busy[slot as usize]
            .filter(|busy| busy.token == token && busy.state != State::Stopped);
        let runner = inner.runners[slot as usize].as_mut().filter(|_| replica.is_some());
        let Some(runner) = runner else { return };
        runner.killed = true;
        let group = Arc::clone(&runner.group);
        drop(inner);
        match (group.reach(), replica.is_some_and(|busy| busy.is_frozen())) {
            (Some(reach), true) => reach.kill_frozen(),
            (Some(reach), false) => reach.kill(),
            (None, _) => {}
        }
    }

    /// The main loop is about to read what hooks have written down: the least that they left meanwhile.
    pub(crate) fn hear_hooks(&self) -> Option<u32> {
        self.lock().gate.hear()
    }

    /// Lets this much run from now on, by [what was read last](Self::hear_hooks); nothing is stopped
    /// by it. Of two that disagree on the epoch the newer one stands, and what it does not know of
    /// stays closed.
    pub(crate) fn set_gate(&self, gate: Fragment) {
        self.lock().gate.set(gate);
    }

    /// Leaves no more than this: freezes the rest, what [loses least](loss) first, and the idle
    /// runners for which no slot is left, and keeps frozen what would [keep a disk busy](disk). What is
    /// frozen already and takes memory that is not left is to be killed, the largest first. `epoch` is
    /// the host's from now on, where it is known; where it is not, nothing starts any more until the
    /// gate is set again.
    pub(crate) fn freeze(&self, epoch: Option<Epoch>, room: Room) -> Frozen {
        let (mut inner, now) = (self.lock(), boottime());
        inner.gate.narrow(epoch, room.slots);
        inner.park_waiting();
        inner.gpu.meet(room.gpu);
        let saving = inner.oldest_first(|busy| busy.state == State::Saves);
        let on_gpu = if room.gpu { Vec::new() } else { inner.on_gpu() };
        let mut kill_list = inner.cheapest_first(now);
        // It goes in any case, so that nothing else has to in its place.
        kill_list.retain(|one| !on_gpu.contains(one));
        let cores = Share::cores(room.slots);
        let (mut running, mut kill_list) = inner.fitting(kill_list.into_iter().rev(), cores);
        running.reverse();
        kill_list.reverse();
        // It has had its time, and no render may find it on its cores.
        kill_list.extend(saving);
        let mut in_the_way = inner.beyond_memory(room.memory_mib, &running);
        in_the_way.extend(on_gpu);
        running.retain(|one| !in_the_way.contains(one));
        kill_list.extend(
            in_the_way.iter().filter(|one| !kill_list.contains(one)).copied().collect::<Vec<_>>(),
        );
        let idle_left = (room.slots as usize).saturating_sub(running.len());
        let on_gpu = if room.gpu { None } else { inner.idle_on_gpu() };
        let goes = |(at, slot): &(usize, usize)| *at >= idle_left || on_gpu == Some(*slot);
        let idle = inner.idle_runners().enumerate().filter(goes).map(|(_, slot)| slot);
        let idle: Vec<usize> = idle.collect();
        let mut on_disk = inner.on_disk(self.is_beside_render());
        on_disk.retain(|one| !kill_list.contains(one));
        let stirs = !(kill_list.is_empty() && idle.is_empty() && on_disk.is_empty());
        inner.stir_if(stirs);
        let mut tokens = Vec::new();
        let mut parked = Vec::new();
        for (token, slot) in &kill_list {
            match inner.busy[*slot] {
                Some(Busy {
                    parks: true,
                    state: State::Runs | State::OwnerFrozen(_) | State::OffDisk(_),
                    ..
                }) if !in_the_way.contains(&(*token, *slot)) => {
                    parked.extend(inner.park(*slot));
                }
                _ => {
                    inner.stop_to_kill(*slot);
                    tokens.push(*token);
                }
            }
        }
        for slot in idle {
            inner.freeze_runner(slot);
        }
        let off_disk = on_disk.iter().filter_map(|(_, slot)| inner.put_off_disk(*slot, now));
        parked.extend(off_disk);
        // First what computes on all slots, then whatever has left its group.
        let stopped = inner.stopped_groups();
        let all = || stopped.iter().chain(&parked);
        all().for_each(|group| group.enclose());
        let frozen = Frozen {
            tokens,
            parked: inner.tokens(|busy| busy.state == State::Parked),
            count: u32::try_from(kill_list.len() + on_disk.len())
                .expect("at most one entry per core"),
            slots_left: inner.gate.slots(),
            has_stragglers: false,
        };
        drop(inner);
        if stirs {
            // To come to rest takes a few microseconds of a core, which idle work does not get
            // beside a render.
            self.idleness.set(false);
        }
        // One that somebody else reaches is being killed, or stands still already.
        let until = boottime() + Span::from_millis(HURRY_MS_MAX);
        let reached = all().filter_map(|group| group.try_reach().ok().flatten());
        let mut has_stragglers = false;
        reached.for_each(|reach| has_stragglers |= !reach.hurry_until(until));
        Frozen { has_stragglers, ..frozen }
    }

    /// Notes how the link to the broker stands.
    pub(crate) fn set_link(&self, link: LinkStanding) {
        self.lock().link = link;
    }

    /// Why there is no link to the broker, where that is known.
    pub(crate) fn link_trouble(&self) -> Option<String> {
        match &self.lock().link {
            LinkStanding::Down(trouble) => Some(trouble.clone()),
            LinkStanding::Waiting | LinkStanding::Up => None,
        }
    }

    /// How it stands.
    pub(crate) fn occupancy(&self) -> Occupancy {
        let inner = self.lock();
        Occupancy {
            slots: inner.gate.slots(),
            running: inner.running(),
            frozen: inner.count(|busy| busy.is_frozen() && busy.state != State::Stopped),
            off_disk: inner.count(|busy| busy.off_disk_since().is_some()),
            allowed: inner.allowed,
            connected: inner.link == LinkStanding::Up,
        }
    }

    /// A panic of a holder leaves nothing half done here that matters more than stopping work.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Something is about to be stopped, or nothing is.
    fn stir_if(&mut self, stirs: bool) {
        if stirs {
            self.stirs += 1;
        }
    }

    /// Replicas that run.
    fn running(&self) -> u32 {
        self.count(Busy::runs)
    }

    /// Whether a replica may begin in a slot, or go on there, beside what runs or is kept frozen for
    /// the owner.
    fn admits(&self, slot: u32, token: LeaseToken, epoch: Epoch) -> bool {
        let taken = self.taken_with(slot as usize, token);
        self.gate.admits(taken, epoch) && taken <= Share::cores(self.allowed)
    }

    fn count(&self, which: impl Fn(&Busy) -> bool) -> u32 {
        let count = self.busy.iter().flatten().filter(|busy| which(busy)).count();
        u32::try_from(count).expect("at most one entry per core")
    }

    /// Replicas and their slots: those that run before those that are frozen, the oldest of each
    /// first.
    fn oldest_first(&self, which: impl Fn(&Busy) -> bool) -> Vec<(LeaseToken, usize)> {
        let slots = self.busy.iter().enumerate();
        let chosen = slots.filter_map(|(slot, busy)| Some((slot, busy.filter(&which)?)));
        let mut order: Vec<_> =
            chosen.map(|(slot, busy)| (busy.is_frozen(), busy.since, busy.token, slot)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, token, slot)| (token, slot)).collect()
    }

    /// By slots.
    fn tokens(&self, which: impl Fn(&Busy) -> bool) -> Vec<LeaseToken> {
        self.busy.iter().flatten().filter(|busy| which(busy)).map(|busy| busy.token).collect()
    }

    /// Freezes what runs in a slot, to be killed.
    fn stop_to_kill(&mut self, slot: usize) {
        if let Some(busy) = &mut self.busy[slot] {
            busy.state = State::Stopped;
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
            runner.group.stop();
        }
    }

    /// Runners that are frozen, to be killed or kept.
    fn frozen_runners(&self) -> impl Iterator<Item = &RunnerEntry> {
        let slots = self.runners.iter().zip(&self.busy);
        slots.filter_map(|(runner, busy)| {
            let is_frozen = busy.is_some_and(|busy| busy.is_frozen());
            runner.as_ref().filter(|runner| runner.stopped || is_frozen)
        })
    }

    /// Runners that are frozen to be killed.
    fn stopped_groups(&self) -> Vec<Arc<Group>> {
        let stopped = self.runners.iter().flatten().filter(|runner| runner.stopped);
        stopped.map(|runner| Arc::clone(&runner.group)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
