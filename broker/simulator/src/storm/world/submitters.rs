//! Those who submit jobs, and try again until they are told that theirs is accepted.

use std::collections::BTreeSet;

use gleaner_protocol::job::{ApplicationTask, Attempts, JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{Digest, JobId, KernelName, OwnerName, Profile, Share, Span, Trust};

use super::{Event, WORKUNITS_PER_JOB, World};
use crate::storm::broker::Command;
use crate::storm::machine::Machine;
use crate::storm::rules::{LARGE_MIB, LEASE_S};

impl World<'_> {
    pub(super) fn submit(&mut self) {
        if !self.broker.admits() {
            // Its submitter tries again.
            return self.after(Span::from_secs(15), Event::Submit);
        }
        self.submissions += 1;
        self.unanswered += 1;
        let spec = self.draw_job();
        self.ask_broker(Command::Submit(Box::new(spec)));
    }

    fn draw_job(&mut self) -> JobSpec {
        let voters = self.voters();
        let read = self.dataset_to_read();
        let dice = &mut self.chances.work;
        let replication = u8::try_from(1 + dice.below(voters.min(3))).expect("at most 3");
        let count = 1 + dice.below(2 * WORKUNITS_PER_JOB as usize - 1);
        let spare = voters - usize::from(replication);
        let more = dice.below(1 + usize::from(replication).min(spare));
        let mut few = || u16::try_from(1 + dice.below(4)).expect("few");
        let attempts = Attempts { failed: few(), timed_out: few(), lost: 2 + few() };
        let trust = match dice.chance(200) {
            true => Trust::Adaptive { error_ppb: 1_000_000 },
            false => Trust::Fixed,
        };
        // What their items say is no other job's, whatever id it gets; a range has none.
        let workunits = match self.submissions % 4 {
            0 => Workunits::Count(u32::try_from(count).expect("few workunits")),
            of => Workunits::Items(
                (0..count).map(|item| format!("{}-{of}-{item}", self.submissions)).collect(),
            ),
        };
        let takes_us = 100_000_000 * (1 + dice.below(4)) as u64;
        let (lane, profile) = match self.submissions % 5 {
            1 => {
                let due_ms = Some(3_600_000 * (1 + dice.below(6)) as u64);
                (Lane::Deadline, Profile { due_ms, cpu_us: Some(takes_us), ..Profile::default() })
            }
            3 => (Lane::Batch, Profile { cpu_us: Some(takes_us), ..Profile::default() }),
            _ => (Lane::Background, Profile::default()),
        };
        let (lane, profile, workunits) = match read {
            Some((reads, workunits)) => {
                let window = self.submissions.is_multiple_of(2).then_some(4);
                let profile = Profile { reads: Some(reads), window, ..Profile::default() };
                (Lane::Dataset, profile, workunits)
            }
            None => (lane, profile, workunits),
        };
        let (replication, trust) = match lane {
            Lane::Deadline => (1, Trust::Fixed),
            _ => (replication, trust),
        };
        // Where a bug is planted, whole cores show it soonest.
        let is_plain = self.config.bug.is_some() || self.config.saboteur.is_some();
        let are_wide = self.machines.iter().all(|machine| machine.info.cores > 1);
        let cores_permille = match (self.submissions % 7, lane) {
            _ if is_plain => Share::WHOLE,
            (2, Lane::Background) => Share::permille(500),
            (4 | 6, Lane::Background | Lane::Deadline) if are_wide => Share::cores(2),
            _ => Share::WHOLE,
        };
        let kernel = KernelName::new("model").expect("a plain name");
        let task = match self.submissions % 6 {
            5 if !is_plain => Task::Application(ApplicationTask {
                kernel,
                spec: Digest::of(b"a specification"),
                inputs: Vec::new(),
                memory_mib: Some(LARGE_MIB),
                comparison: Default::default(),
            }),
            _ => Task::Kernel(kernel),
        };
        JobSpec {
            name: format!("storm-{}", self.submissions),
            owner: OwnerName::new(format!("owner{}", dice.below(3))).expect("a plain name"),
            project: None,
            lane,
            task,
            workunits,
            replication,
            quorum: None,
            max_replicas: Some(u16::from(replication) + u16::try_from(more).expect("few")),
            lease_s: LEASE_S,
            profile,
            trust,
            on_release: Default::default(),
            attempts,
            on: None,
            cores_permille,
            gpus: 0,
        }
    }

    /// Voters on the smaller side. Some policies keep a workunit on one side, and more replicas
    /// than there are voters could never be given out.
    fn voters(&self) -> usize {
        let of_side = |is_farm: bool| {
            let is_on_it = |machine: &&Machine| machine.is_farm() == is_farm;
            let able = self.machines.iter().filter(|machine| !machine.is_black_hole);
            let side = able.filter(is_on_it);
            let owners: BTreeSet<_> =
                side.clone().filter_map(|machine| machine.info.owner.as_ref()).collect();
            side.filter(|machine| machine.info.owner.is_none()).count() + owners.len()
        };
        let sides = [of_side(true), of_side(false)];
        sides.into_iter().filter(|voters| *voters > 0).min().unwrap_or(1)
    }

    /// A submitter is told.
    pub(super) fn accepted(&mut self, job: JobId) {
        self.watcher.accepted(job);
        self.report.jobs_accepted += 1;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.to_submit = self.to_submit.saturating_sub(1);
        if self.chances.work.chance(100) {
            let cancel = self.chances.work.around_secs(400);
            self.after(cancel, Event::Cancel(job));
        }
    }

    /// A submitter is told that the job is declined: another one comes in its place.
    pub(super) fn declined(&mut self) {
        self.report.jobs_declined += 1;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.after(Span::from_secs(15), Event::Submit);
    }

    pub(super) fn cancel(&mut self, job: JobId) {
        if self.broker.admits() {
            self.ask_broker(Command::Cancel(job));
        }
    }

    /// The broker died: those who were not answered submit anew.
    pub(super) fn submit_again(&mut self) {
        for _ in 0..std::mem::take(&mut self.unanswered) {
            let again = self.chances.work.millis(1_000, 60_000);
            self.after(again, Event::Submit);
        }
    }
}
