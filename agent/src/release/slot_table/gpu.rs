//! Which replica has the host's GPU, where its owner gives one.
//!
//! # Invariants
//! - One replica at a time has it, or a runner that keeps what it has there for its next frames of
//!   views.
//! - Nothing has it that a render would freeze and not kill: a frozen process keeps the device's
//!   memory.
//! - Nothing has it that a render has booked, or that others use, nor while what had it still dies.

use std::collections::VecDeque;
use std::sync::MutexGuard;

use gleaner_protocol::control::Lease;
use gleaner_protocol::farm::Booked;
use gleaner_protocol::{JobId, LeaseToken, Span, Time};

use super::{Busy, Inner, SlotTable};
use crate::limits::{GPU_REFUSED_JOBS_MAX, GPU_REST_MS};
use crate::owner::wishes::Gpus;
use crate::run::runner::Fault;

/// The GPU.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// When its owner gives it.
    given: Gpus,
    /// A render has it.
    is_booked: bool,
    /// Others use it, or it is not known whether they do.
    is_used: bool,
    /// The slot whose runner has it from one replica to the next, until it ends.
    kept_in: Option<u32>,
    /// The slot whose runner had it, and dies.
    dies_in: Option<u32>,
    /// Something went wrong with it: it is left alone until then.
    rests_until: Option<Time>,
    /// Jobs that it is not given to any more, the latest last: it failed under them, by their own
    /// fault for all that is known.
    refused: VecDeque<JobId>,
    /// Under which of these it failed last, and when, where it may be its own fault.
    suspect: Option<(JobId, Time)>,
}

impl SlotTable {
    /// There is one, and its owner gives it.
    pub(crate) fn give_gpu(&self, given: Gpus) {
        self.lock().gpu.given = given;
    }

    /// Whether these bookings leave it to harvested work.
    pub(crate) fn gpu_is_left_by(&self, bookings: &[Booked]) -> bool {
        let given = self.lock().gpu.given;
        bookings.iter().all(|booked| given.holds_beside(booked))
    }

    /// Whether its owner and those who use it leave it to harvested work now.
    pub(crate) fn is_gpu_given(&self) -> bool {
        let Place { given, is_booked, is_used, .. } = self.lock().gpu;
        given != Gpus::Never && !is_booked && !is_used
    }

    /// Notes whether the bookings that there are leave it. Where they do not, what has it is stopped
    /// and killed: it began beside them, or its render came without a hook.
    pub(crate) fn note_gpu(&self, is_left: bool) -> Vec<LeaseToken> {
        let mut inner = self.lock();
        inner.gpu.is_booked = !is_left;
        self.drive_off(inner, !is_left)
    }

    /// Notes whether others use it, or may, for all that is known. Where they do, what has it is
    /// stopped and killed.
    pub(crate) fn note_gpu_use(&self, is_used: bool) -> Vec<LeaseToken> {
        let mut inner = self.lock();
        inner.gpu.is_used = is_used;
        self.drive_off(inner, is_used)
    }

    fn drive_off(&self, mut inner: MutexGuard<'_, Inner>, all: bool) -> Vec<LeaseToken> {
        let ended = if all { inner.on_gpu() } else { Vec::new() };
        let idle = if all { inner.idle_on_gpu() } else { None };
        let mut kill_list = inner.stop_to_kill_all(&ended);
        kill_list.extend(idle.map(|slot| inner.stop_idle(slot)).unwrap_or_default());
        drop(inner);
        if !kill_list.is_empty() {
            // To come to rest and to die take a little of a core, which idle work does not get
            // beside a render.
            self.idleness.set(false);
            kill_list.kill_waiting();
        }
        ended.into_iter().map(|(token, _)| token).collect()
    }

    /// Whether a replica has it, or may come to have it as soon as the host is opened and it is known
    /// that nobody else does: this is to be known before, for a replica does not wait for it.
    pub(crate) fn may_use_gpu(&self) -> bool {
        let inner = self.lock();
        let Place { given, is_booked, .. } = inner.gpu;
        let is_used_here = inner.uses_gpu();
        given != Gpus::Never && (is_used_here || (inner.allowed > 0 && !is_booked))
    }

    /// Whether a replica has it, or had it and still dies, or a runner keeps it.
    pub(crate) fn has_gpu(&self) -> bool {
        let inner = self.lock();
        inner.gpu.dies_in.is_some() || inner.uses_gpu()
    }

    /// Gives it to the replica that runs in a slot, if it can be had.
    pub(crate) fn take_gpu(&self, now: Time, slot: u32, lease: &Lease) -> bool {
        let mut inner = self.lock();
        let token = lease.token;
        let Place { given, is_booked, is_used, kept_in, dies_in, rests_until, .. } = inner.gpu;
        if inner.gpu.refused.contains(&lease.replica.workunit.job) {
            return false;
        }
        let is_free = dies_in.is_none()
            && kept_in.is_none_or(|kept_in| kept_in == slot)
            && inner.busy.iter().flatten().all(|busy| !busy.has_gpu);
        let rests = rests_until.is_some_and(|end| now < end);
        if given == Gpus::Never || is_booked || is_used || rests || !is_free {
            return false;
        }
        match &mut inner.busy[slot as usize] {
            Some(busy) if busy.token == token && busy.runs() && !busy.parks => {
                busy.has_gpu = true;
                true
            }
            _ => false,
        }
    }

    /// The runner of the replica that has it in a slot keeps what it has there until it ends.
    pub(crate) fn keep_gpu(&self, slot: u32, token: LeaseToken) {
        let mut inner = self.lock();
        let busy = inner.busy[slot as usize];
        if busy.is_some_and(|busy| busy.token == token && busy.has_gpu) {
            inner.gpu.kept_in = Some(slot);
        }
    }

    /// Whether the runner of a slot keeps what it has there.
    pub(crate) fn keeps_gpu(&self, slot: u32) -> bool {
        self.lock().gpu.kept_in == Some(slot)
    }

    /// The replica in a slot does without it.
    pub(crate) fn leave_gpu(&self, slot: u32, token: LeaseToken) {
        let mut inner = self.lock();
        let busy = inner.busy[slot as usize].as_mut().filter(|busy| busy.token == token);
        if let Some(busy) = busy {
            busy.has_gpu = false;
        }
    }

    /// It did not come to an end with a replica of this job. Where that is its own fault nothing
    /// takes it for a while; where it is the job's no other replica of this job does. Where nobody
    /// knows it is the job's, until another job has the same to say soon after.
    pub(crate) fn blame_gpu(&self, now: Time, job: JobId, fault: Fault) {
        self.lock().gpu.blame(now, job, fault);
    }
}

impl Place {
    fn blame(&mut self, now: Time, job: JobId, fault: Fault) {
        let rest = Span::from_millis(GPU_REST_MS);
        let again = |(other, at): (JobId, Time)| other != job && now < at + rest;
        if fault == Fault::Device || (fault == Fault::Unclear && self.suspect.is_some_and(again)) {
            self.rests_until = Some(now + rest);
            if let Some((wronged, _)) = self.suspect.take().filter(|_| fault == Fault::Unclear) {
                self.refused.retain(|refused| *refused != wronged);
            }
            return;
        }
        if fault == Fault::Unclear {
            self.suspect = Some((job, now));
        }
        self.refused.retain(|refused| *refused != job);
        if self.refused.len() == GPU_REFUSED_JOBS_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(job);
    }

    /// A render comes that leaves it, or does not.
    pub(super) const fn meet(&mut self, is_left: bool) {
        self.is_booked |= !is_left;
    }

    /// A slot's runner is about to die, whose replica `had` it or not.
    pub(super) fn note_dying_in(&mut self, slot: u32, had: bool) {
        let kept = self.kept_in.take_if(|kept_in| *kept_in == slot).is_some();
        if had || kept {
            self.dies_in = Some(slot);
        }
    }

    /// Nothing is left of what died in a slot.
    pub(super) fn note_reaped_in(&mut self, slot: u32) {
        self.dies_in = self.dies_in.filter(|dying| *dying != slot);
    }
}

impl Inner {
    /// What has it, or runs in a runner that keeps it, and would run on.
    pub(super) fn on_gpu(&self) -> Vec<(LeaseToken, usize)> {
        let kept_for = self.gpu.kept_in.and_then(|slot| self.busy[slot as usize]);
        let keeps = |busy: &Busy| kept_for.is_some_and(|kept_for| kept_for.token == busy.token);
        self.oldest_first(|busy| (busy.has_gpu || keeps(busy)) && busy.takes_slot())
    }

    /// The slot of a runner that keeps it and has nothing to run.
    pub(super) fn idle_on_gpu(&self) -> Option<usize> {
        let kept_in = self.gpu.kept_in? as usize;
        self.idle_runners().find(|slot| *slot == kept_in)
    }

    fn uses_gpu(&self) -> bool {
        self.gpu.kept_in.is_some() || self.busy.iter().flatten().any(|busy| busy.has_gpu)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{EPOCH, NEXT, Sleeper, open, token};
    use super::super::{Room, Upkeep};
    use super::*;
    use gleaner_protocol::{LimitsChange, ReplicaId, WorkunitId, boottime};

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    /// Two replicas that run, of which the second one parks where `parks`.
    fn running(parks: bool) -> (SlotTable, [Sleeper; 2]) {
        let table = open(2);
        let sleepers = [Sleeper::start(), Sleeper::start()];
        for (slot, sleeper) in (0..).zip(&sleepers) {
            table.enter_runner(slot, sleeper.pgid(), None);
            let began = at(1 + u64::from(slot));
            table.begin(slot, token(slot.into()), began, EPOCH, parks && slot == 1).expect("open");
        }
        (table, sleepers)
    }

    /// Of a job of its own.
    fn lease(raw: u64) -> Lease {
        let workunit = WorkunitId { job: JobId::new(raw), index: 0 };
        let replica = ReplicaId { workunit, attempt: 1 };
        Lease {
            token: token(raw),
            replica,
            item: None,
            limits: LimitsChange::NONE,
            goes_on: None,
            chunk: None,
            hands_on: true,
        }
    }

    fn booked(gpus: Option<u32>) -> Booked {
        Booked { gpus, ..Booked::default() }
    }

    #[test]
    fn it_is_nobodys_where_its_owner_does_not_give_it() {
        let (table, _sleepers) = running(false);
        assert!(!table.take_gpu(at(5), 0, &lease(0)));
        table.give_gpu(Gpus::Never);
        assert!(!table.take_gpu(at(5), 0, &lease(0)));
    }

    #[test]
    fn one_has_it_at_a_time_and_never_one_that_parks() {
        let (table, _sleepers) = running(true);
        table.give_gpu(Gpus::Idle);
        assert!(!table.take_gpu(at(5), 1, &lease(1)), "it would keep its memory");
        assert!(!table.take_gpu(at(5), 0, &lease(7)), "that is none that runs");
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        assert!(!table.take_gpu(at(5), 0, &lease(0)), "it has it");
        let (table, _sleepers) = running(false);
        table.give_gpu(Gpus::Always);
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        assert!(!table.take_gpu(at(5), 1, &lease(1)));
        table.leave_gpu(0, token(0));
        assert!(table.take_gpu(at(5), 1, &lease(1)));
        table.end(1);
        assert!(table.take_gpu(at(5), 0, &lease(0)));
    }

    #[test]
    fn a_runner_that_keeps_it_has_it_for_its_own_replicas_alone() {
        let (table, _sleepers) = running(false);
        table.give_gpu(Gpus::Idle);
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        table.keep_gpu(1, token(1));
        assert!(!table.keeps_gpu(1), "it has nothing to keep");
        table.keep_gpu(0, token(0));
        table.end(0);
        assert!(table.keeps_gpu(0) && table.has_gpu() && table.may_use_gpu());
        assert!(!table.take_gpu(at(6), 1, &lease(1)));
        table.begin(0, token(2), at(7), EPOCH, false).expect("open");
        assert!(table.take_gpu(at(7), 0, &lease(2)));
        table.leave_gpu(0, token(2));
        assert!(table.keeps_gpu(0), "until it ends");
        table.remove_runner(0);
        assert!(!table.keeps_gpu(0) && table.has_gpu());
        assert!(!table.take_gpu(at(8), 1, &lease(1)), "what kept it still dies");
        table.note_reaped(0);
        assert!(!table.has_gpu());
        assert!(table.take_gpu(at(8), 1, &lease(1)));
    }

    #[test]
    fn what_keeps_it_gives_way_as_what_has_it_does_whatever_it_runs() {
        type Taken = fn(&SlotTable) -> Vec<LeaseToken>;
        let takes: [Taken; 3] = [
            |table| table.note_gpu(false),
            |table| table.note_gpu_use(true),
            |table| {
                let room = Room { slots: 2, memory_mib: None, gpu: false };
                let tokens = table.freeze(Some(NEXT), room).tokens;
                assert!(table.kill_frozen());
                tokens
            },
        ];
        for (take, is_idle) in takes.into_iter().flat_map(|take| [(take, true), (take, false)]) {
            let (table, mut sleepers) = running(false);
            table.give_gpu(Gpus::Idle);
            assert!(table.take_gpu(at(5), 0, &lease(0)));
            table.keep_gpu(0, token(0));
            table.end(0);
            if !is_idle {
                // Which the processor computes.
                table.begin(0, token(2), at(6), EPOCH, false).expect("open");
            }
            let left = Room { slots: 2, memory_mib: None, gpu: true };
            assert_eq!(table.freeze(Some(EPOCH), left).count, 0);
            let ended = if is_idle { Vec::new() } else { vec![token(2)] };
            assert_eq!(take(&table), ended);
            sleepers[0].wait_until_killed();
            assert!(sleepers[1].is_alive());
        }
    }

    #[test]
    fn after_a_fault_of_its_own_it_is_left_alone_for_a_while() {
        let (table, _sleepers) = running(false);
        table.give_gpu(Gpus::Idle);
        table.blame_gpu(at(5), JobId::new(7), Fault::Device);
        assert!(!table.take_gpu(at(6), 0, &lease(0)));
        assert!(table.take_gpu(at(5) + Span::from_millis(GPU_REST_MS), 0, &lease(0)));
    }

    #[test]
    fn a_job_whose_fault_it_was_does_without_it_and_no_other() {
        for fault in [Fault::Job, Fault::Unclear] {
            let (table, _sleepers) = running(false);
            table.give_gpu(Gpus::Idle);
            table.blame_gpu(at(5), JobId::new(0), fault);
            table.blame_gpu(at(6), JobId::new(0), fault);
            assert!(!table.take_gpu(at(900), 0, &lease(0)), "{fault:?}");
            assert!(table.take_gpu(at(6), 1, &lease(1)), "{fault:?}");
            let others = u64::try_from(GPU_REFUSED_JOBS_MAX).expect("few");
            (0..others).for_each(|job| table.blame_gpu(at(7), JobId::new(9 + job), Fault::Job));
            table.leave_gpu(1, token(1));
            assert!(table.take_gpu(at(8), 0, &lease(0)), "it is forgotten after so many");
        }
    }

    #[test]
    fn what_happens_to_two_jobs_is_its_own_fault() {
        let (table, _sleepers) = running(false);
        table.give_gpu(Gpus::Idle);
        table.blame_gpu(at(5), JobId::new(0), Fault::Unclear);
        table.blame_gpu(at(6), JobId::new(1), Fault::Unclear);
        let later = at(6) + Span::from_millis(GPU_REST_MS);
        assert!(!table.take_gpu(at(7), 1, &lease(1)), "it rests");
        assert!(table.take_gpu(later, 0, &lease(0)), "and neither was to blame");
        table.leave_gpu(0, token(0));
        assert!(table.take_gpu(later, 1, &lease(1)));
        // Long after, it is another matter.
        table.blame_gpu(at(1_000), JobId::new(0), Fault::Unclear);
        table.blame_gpu(at(2_000), JobId::new(8), Fault::Unclear);
        table.leave_gpu(1, token(1));
        assert!(table.take_gpu(at(2_001), 1, &lease(1)));
    }

    #[test]
    fn who_is_frozen_for_the_owner_does_not_run_since_it_was_thawed() {
        let (table, _sleepers) = running(false);
        let before = table.runs_since(1, token(1));
        assert_eq!((before, table.runs_since(1, token(0))), (Some(at(2)), None));
        table.allow(boottime(), 1);
        assert_eq!(table.runs_since(1, token(1)), None);
        let thawed = boottime();
        table.allow(thawed, 2);
        assert!(table.runs_since(1, token(1)) >= Some(thawed));
    }

    #[test]
    fn a_booking_takes_it_as_far_as_its_owner_gives_it() {
        let table = open(1);
        for (given, gpus, is_left) in [
            (Gpus::Idle, Some(0), true),
            (Gpus::Idle, None, false),
            (Gpus::Idle, Some(1), false),
            (Gpus::Always, Some(0), true),
            (Gpus::Always, None, true),
            (Gpus::Always, Some(1), false),
        ] {
            table.give_gpu(given);
            assert_eq!(table.gpu_is_left_by(&[booked(Some(0)), booked(gpus)]), is_left);
        }
        assert!(table.gpu_is_left_by(&[]));
    }

    #[test]
    fn a_render_that_books_it_drives_out_what_has_it_and_nothing_else() {
        let (table, mut sleepers) = running(false);
        table.give_gpu(Gpus::Idle);
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        // By what it would lose it is the other one's turn.
        let room = Room { slots: 2, memory_mib: None, gpu: false };
        let frozen = table.freeze(Some(NEXT), room);
        assert_eq!((frozen.tokens, frozen.count), (vec![token(0)], 1));
        assert!(table.kill_frozen());
        sleepers[0].wait_until_killed();
        assert!(sleepers[1].is_alive());
        assert!(!table.take_gpu(at(6), 1, &lease(1)), "the render has it");
        assert_eq!(table.note_gpu(false), []);
        assert_eq!(table.note_gpu(true), []);
        table.remove_runner(0);
        assert!(!table.take_gpu(at(6), 1, &lease(1)), "what had it still dies");
        table.note_reaped(0);
        assert!(table.take_gpu(at(6), 1, &lease(1)));
    }

    #[test]
    fn what_has_the_gpu_and_is_in_the_way_of_memory_too_is_told_of_once() {
        let (table, sleepers) = running(false);
        table.give_gpu(Gpus::Idle);
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        let upkeep = |sleeper: &Sleeper| Upkeep {
            pgid: sleeper.pgid(),
            begun: 1,
            cpu: Span::from_secs(1),
            memory_mib: 500,
            keeps_disk_busy: false,
            self_resumed_since: None,
        };
        table.note_upkeep(at(6), &sleepers.each_ref().map(upkeep));
        let frozen = table.freeze(Some(NEXT), Room { slots: 2, memory_mib: Some(600), gpu: false });
        assert_eq!((frozen.tokens, frozen.count), (vec![token(0)], 1), "there is memory for one");
        let frozen = table.freeze(Some(NEXT), Room { slots: 2, memory_mib: Some(0), gpu: false });
        assert_eq!((frozen.tokens, frozen.count), (vec![token(1)], 1), "and now for none");
    }

    #[test]
    fn a_booking_that_no_hook_has_told_of_leaves_what_a_render_has_just_frozen() {
        let (table, mut sleepers) = running(false);
        table.give_gpu(Gpus::Idle);
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        let loses_less = Upkeep {
            pgid: sleepers[1].pgid(),
            begun: 1,
            cpu: Span::ZERO,
            memory_mib: 0,
            keeps_disk_busy: false,
            self_resumed_since: None,
        };
        table.note_upkeep(boottime(), &[loses_less]);
        assert_eq!(table.freeze(Some(NEXT), Room::slots(1)).tokens, [token(1)]);
        assert_eq!(table.note_gpu(false), [token(0)]);
        sleepers[0].wait_until_killed();
        sleepers[1].wait_until_frozen();
        assert!(sleepers[1].is_alive(), "its time has not come");
        assert_eq!(table.stopped_tokens(), [token(0), token(1)]);
    }

    #[test]
    fn a_booking_that_no_hook_has_told_of_ends_what_has_it() {
        let (table, mut sleepers) = running(false);
        table.give_gpu(Gpus::Idle);
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        assert_eq!(table.note_gpu(true), []);
        assert_eq!(table.note_gpu(false), [token(0)]);
        sleepers[0].wait_until_killed();
        assert!(sleepers[1].is_alive());
        assert_eq!(table.note_gpu(false), [], "once");
    }

    #[test]
    fn what_has_it_gives_way_to_others_and_nothing_has_it_until_they_are_gone() {
        let (table, mut sleepers) = running(false);
        table.give_gpu(Gpus::Idle);
        assert_eq!(table.note_gpu_use(false), []);
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        assert_eq!(table.note_gpu_use(true), [token(0)]);
        sleepers[0].wait_until_killed();
        assert!(sleepers[1].is_alive());
        assert_eq!(table.note_gpu_use(true), [], "once");
        table.remove_runner(0);
        table.note_reaped(0);
        assert!(!table.take_gpu(at(6), 1, &lease(1)), "others use it");
        assert_eq!(table.note_gpu(true), [], "which no booking says");
        assert!(!table.take_gpu(at(6), 1, &lease(1)));
        assert_eq!(table.note_gpu_use(false), []);
        assert!(table.take_gpu(at(6), 1, &lease(1)));
    }

    #[test]
    fn who_uses_it_matters_while_something_may_run_there() {
        let (table, _sleepers) = running(false);
        assert!(!table.may_use_gpu(), "its owner does not give it");
        table.give_gpu(Gpus::Idle);
        assert!(table.may_use_gpu());
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        table.allow(boottime(), 0);
        assert!(table.may_use_gpu(), "it is frozen with the device's memory");
        assert!(table.has_gpu());
        table.leave_gpu(0, token(0));
        assert!(!table.has_gpu());
        assert!(!table.may_use_gpu());
        table.allow(boottime(), 2);
        assert!(table.may_use_gpu());
        table.note_gpu(false);
        assert!(!table.may_use_gpu(), "a render has it");
        table.note_gpu(true);
        table.freeze(Some(NEXT), Room { slots: 0, memory_mib: None, gpu: true });
        assert!(table.may_use_gpu(), "as soon as the render on all cores has ended");
        table.freeze(Some(NEXT), Room { slots: 0, memory_mib: None, gpu: false });
        assert!(!table.may_use_gpu(), "a render has booked it");
    }

    #[test]
    fn a_render_that_leaves_it_drives_nothing_out_for_it() {
        let (table, _sleepers) = running(false);
        table.give_gpu(Gpus::Idle);
        assert!(table.take_gpu(at(5), 0, &lease(0)));
        let frozen = table.freeze(Some(NEXT), Room { slots: 2, memory_mib: None, gpu: true });
        assert_eq!(frozen.count, 0);
        let frozen = table.freeze(Some(NEXT), Room { slots: 1, memory_mib: None, gpu: false });
        assert_eq!((frozen.tokens, frozen.count), (vec![token(0)], 1), "the other one has room");
    }
}
