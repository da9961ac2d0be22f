//! What the broker gives, and what is asked of it.

use std::sync::Arc;

use gleaner_protocol::control::{AbortReason, AgentMessage, BrokerMessage, Lease, ReleaseReason};
use gleaner_protocol::job::{OnRelease, Task};
use gleaner_protocol::{
    FRAME_KERNEL, JobId, Kept, KernelName, LeaseToken, LimitsChange, Share, Time,
};

use super::held::{Course, Held};
use super::{Effect, Harvest};
use crate::limits::{DRAWN_MAX, TASKS_MAX, UNACKED_BYTES_MAX, UNACKED_REPORTS_MAX};

/// What the broker has said of a job.
#[derive(Debug)]
pub(super) struct Known {
    /// What its workunits run, or why they cannot run here.
    task: Result<Arc<Task>, String>,
    on_release: OnRelease,
    /// What each of them has beside cores.
    kept: Kept,
}

impl Harvest {
    pub(super) fn hear(&mut self, now: Time, message: BrokerMessage, effects: &mut Vec<Effect>) {
        if let BrokerMessage::Welcome { incarnation, adopted } = message {
            return self.be_welcome(incarnation, &adopted, effects);
        }
        if !self.link.is_up() && !matches!(message, BrokerMessage::Refused { .. }) {
            effects.push(Effect::EndLink { reason: "it spoke before its welcome" });
            return;
        }
        match message {
            BrokerMessage::Welcome { .. } | BrokerMessage::Refused { .. } => {}
            // Nothing that runs depends on copies.
            BrokerMessage::ListCopies
            | BrokerMessage::FetchChunk(_)
            | BrokerMessage::ServeChunk(_)
            | BrokerMessage::DropCopies(_) => {}
            BrokerMessage::Opening(opening) => self.obey_opening(now, &opening, effects),
            BrokerMessage::Closing { .. } => self.close(),
            BrokerMessage::Task { job, task, on_release, gpus } => {
                self.learn_task(job, task, on_release, gpus, effects);
            }
            BrokerMessage::Forget { job } => {
                self.tasks.remove(&job);
            }
            BrokerMessage::Lease(lease) => self.take_lease(now, lease, effects),
            BrokerMessage::Limit { token, limits } => self.limit(token, limits, effects),
            BrokerMessage::Park { token } => self.park_for_lane(now, token, effects),
            BrokerMessage::Resume { token } => self.resume(token, effects),
            BrokerMessage::Abort { token, reason } => self.abort(token, reason, effects),
            BrokerMessage::Verdict { token, .. } => {
                if matches!(self.held.get(&token), Some(Held::Reported { .. })) {
                    self.let_go(token);
                }
            }
        }
    }

    /// Asks for replicas for as many cores as nothing is coming for.
    pub(super) fn ask(&mut self, effects: &mut Vec<Effect>) {
        // What goes on takes the place of what was asked for, and parts of a core come unasked.
        self.requested = self.requested.min(self.left().cores_touched());
        let full = self.unacked >= UNACKED_REPORTS_MAX || self.unacked_bytes >= UNACKED_BYTES_MAX;
        if full || !self.link.is_up() || self.waits_for_cores() {
            return;
        }
        let cores = self.left().cores_touched().saturating_sub(self.requested);
        // What is parked is still in a slot.
        let cores = cores.min(self.empty_slots().saturating_sub(self.requested));
        if cores > 0 {
            self.requested += cores;
            effects.push(Effect::Send(AgentMessage::Request { cores }));
        }
    }

    fn learn_task(
        &mut self,
        job: JobId,
        task: Task,
        on_release: OnRelease,
        gpus: u8,
        effects: &mut Vec<Effect>,
    ) {
        if self.tasks.len() >= TASKS_MAX && !self.tasks.contains_key(&job) {
            // Nothing is lost by it: on the next link it sends only what it still needs.
            effects.push(Effect::EndLink { reason: "it never had us forget a task" });
            return;
        }
        let kept = task.kept(gpus);
        let task = self.check_task(&task).map(|()| Arc::new(task));
        self.tasks.insert(job, Known { task, on_release, kept });
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        match task {
            Task::Kernel(kernel) => self.check_kernel(kernel),
            Task::Frame(frame) => {
                frame.state.check().map_err(|error| error.to_string())?;
                self.check_kernel(&KernelName::new(FRAME_KERNEL).expect("a plain name"))
            }
            Task::Application(application) => {
                application.check().map_err(|error| error.to_string())?;
                self.check_kernel(&application.kernel)?;
                let most = self.host.capabilities.kernel_memory_mib;
                match application.memory_mib.filter(|asked| *asked > most) {
                    None => Ok(()),
                    Some(asked) => {
                        Err(format!("a kernel gets {most} MiB of memory on this host, not {asked}"))
                    }
                }
            }
            Task::Command(command) => {
                command.check().map_err(|error| error.to_string())?;
                let program = command.argv.first().map_or("", String::as_str);
                if self.host.capabilities.commands.contains(program) {
                    Ok(())
                } else {
                    Err(format!("{program} is not allowed on this host"))
                }
            }
            Task::Wasm(wasm) => {
                wasm.check().map_err(|error| error.to_string())?;
                let most = self.host.capabilities.wasm_memory_mib;
                if wasm.memory_mib <= most {
                    Ok(())
                } else {
                    let asked = wasm.memory_mib;
                    Err(format!("a module gets {most} MiB of memory on this host, not {asked}"))
                }
            }
        }
    }

    fn check_kernel(&self, kernel: &KernelName) -> Result<(), String> {
        if self.host.capabilities.kernels.contains(kernel) {
            Ok(())
        } else {
            Err(format!("kernel {kernel} is not offered on this host"))
        }
    }

    fn take_lease(&mut self, now: Time, lease: Lease, effects: &mut Vec<Effect>) {
        let token = lease.token;
        let share = lease.share();
        self.requested = self.requested.saturating_sub(share.whole_cores());
        if self.held.contains_key(&token) {
            return;
        }
        let job = lease.replica.workunit.job;
        let (task, on_release, kept) = match self.tasks.get(&job) {
            Some(Known { task: Ok(task), on_release, kept }) => {
                (Arc::clone(task), *on_release, *kept)
            }
            Some(Known { task: Err(reason), .. }) => {
                let reason = ReleaseReason::CannotRun(reason.clone());
                return self.say_released(token, reason, effects);
            }
            None => {
                let reason = ReleaseReason::CannotRun(format!("the task of {job} is not known"));
                return self.say_released(token, reason, effects);
            }
        };
        let room = share <= self.left() && kept.fits(self.kept_left());
        // A runner that dies for a render is not replaced while another one waits for work: its
        // start would compete with that render's.
        let drawn = match (&*task, &lease.chunk) {
            (Task::Frame(_), Some(chunk)) => Some(chunk.digest),
            _ => None,
        };
        let drew = drawn.as_ref().and_then(|chunk| self.drawn.get(chunk));
        let empty = drew.filter(|slot| self.empty.contains(slot));
        let empty = empty.or(self.empty.intersection(&self.warm).next()).or(self.empty.first());
        let Some(slot) = empty.copied().filter(|_| room) else {
            // It crossed with a fragment that has less.
            return self.say_released(token, ReleaseReason::FragmentClosed, effects);
        };
        self.empty.remove(&slot);
        if let Some(chunk) = drawn {
            if self.drawn.len() >= DRAWN_MAX {
                // Of no more than where it is drawn soonest.
                self.drawn.clear();
            }
            self.drawn.insert(chunk, slot);
        }
        if lease.goes_on.is_some_and(|goes_on| !goes_on.is_own) {
            self.heirs.insert(token);
        }
        let (replica, course, saved) = (lease.replica, Course::Runs, None);
        let running = Held::Running {
            replica,
            slot,
            since: now,
            safe: now,
            on_release,
            course,
            share,
            kept,
            saved,
        };
        self.held.insert(token, running);
        if lease.limits != LimitsChange::NONE {
            effects.push(Effect::Limit { slot, token, limits: lease.limits });
        }
        let (epoch, parks) = (self.fragment.epoch, self.may_park(on_release));
        effects.push(Effect::Start { slot, lease, task, epoch, since: now, parks });
    }

    /// What has ended has no limits any more.
    fn limit(&mut self, token: LeaseToken, limits: LimitsChange, effects: &mut Vec<Effect>) {
        let Some(Held::Running { slot, share, .. }) = self.held.get_mut(&token) else { return };
        if let Some(change) = limits.share {
            *share = change.value().unwrap_or(Share::WHOLE);
        }
        effects.push(Effect::Limit { slot: *slot, token, limits });
        // What the broker has said to take more than there is goes like anything else.
        self.shed(&ReleaseReason::FragmentClosed, effects);
    }

    fn abort(&mut self, token: LeaseToken, reason: AbortReason, effects: &mut Vec<Effect>) {
        match self.held.get(&token) {
            Some(held @ Held::Running { .. }) => {
                // The lease that takes its slot comes unasked.
                if reason == AbortReason::Preempted && !held.is_parked() {
                    self.requested += held.share().whole_cores();
                }
                self.end_running(token, ReleaseReason::Aborted, effects);
            }
            Some(Held::Storing { .. }) => {
                effects.push(Effect::Discard { token });
                self.give_back(token, ReleaseReason::Aborted, effects);
            }
            // The report is under way and gets its verdict all the same.
            Some(Held::Reported { .. }) | None => {}
        }
    }
}
